"""Criteria of a partition: how well clusters explain the edges of a graph, without known classes.

All of them are functions of one small matrix, the share of the weight of the edges that joins each pair of
clusters (:func:`cluster_shares`), so that a partition costs one pass over the edges and any number of
criteria. :func:`partition_criterion` is the one by which candidates are compared, on one graph or on several
layers; ``python -m benchmarks labels`` compares it with the others on labelled graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from spectrograd.graph import Graph
from spectrograd.labels.neighbor_labels import small_blocks
from spectrograd.typing import Array

# Relative information, in root nats, below which a layer counts less than others: random layers of degree 10
# reach .03 to .2 by the partition that fits them best, layers with clusters .3 to 1.3.
MIN_INFORMATION = 0.2


def cluster_shares(graph: Graph, labels: ArrayLike, n_clusters: int | None = None) -> Array:
    """Share of the weight of all edges that joins each pair of clusters, in one pass over the edges.

    Parameters
    ----------
    graph : Graph
        In memory or on disk; labels are in the order of its rows.
    labels : array of int, shape (n_nodes,)
        Cluster of every node; -1 takes no part.
    n_clusters : int, optional
        Number of rows of the result; None is one more than the largest label.

    Returns
    -------
    array of shape (n_clusters, n_clusters)
        Symmetric, not negative, with sum 1; all zero where no edge joins two nodes that take part. The sum of
        a row is the share of the volume of its cluster.

    Examples
    --------
    >>> path = Graph.from_edges([0, 1, 2], [1, 2, 3])
    >>> cluster_shares(path, [0, 0, 1, 1]).round(3).tolist()
    [[0.333, 0.167], [0.167, 0.333]]
    """
    numbers = np.asarray(labels, dtype=np.int64)
    if numbers.shape != (graph.n_nodes,):
        raise ValueError(f"labels have shape {numbers.shape} for {graph.n_nodes} nodes")
    k = int(numbers.max(initial=-1)) + 1 if n_clusters is None else n_clusters
    smallest = int(numbers.min(initial=0))
    if numbers.max(initial=-1) >= k:
        raise ValueError(f"a label is {numbers.max()}; with {k} clusters it must be below {k}")
    weights = np.zeros(k * k)
    for block in small_blocks(graph):
        # entry (r, s) of E' W E, with E the indicators of the clusters, counts in place r K + s
        heads = np.repeat(numbers[block.start : block.stop], np.diff(block.indptr))
        tails = numbers[block.indices]
        places = heads * k + tails
        data = block.weights
        if smallest < 0:
            active = (heads >= 0) & (tails >= 0)
            places = places[active]
            data = None if data is None else data[active]
        weights += np.bincount(places, data, k * k)
    total = weights.sum()
    return (weights / total if total > 0 else weights).reshape(k, k)


def edge_information(shares: Array) -> float:
    """Mutual information, in nats, between the clusters at the two ends of a random edge.

    ``I = sum_rs e_rs log(e_rs / (a_r a_s))`` with ``e`` the shares and ``a`` their row sums. It is, per edge
    and up to a constant, the likelihood of the graph under a degree-corrected block model with these clusters
    (Karrer and Newman 2011, Eq. 14; docs/method.md). It lies between 0 (edges do not care for the clusters)
    and the entropy of the volumes, hence low for a partition in which one cluster holds nearly everything,
    however few edges that cuts.

    Examples
    --------
    >>> round(edge_information(np.array([[0.5, 0.0], [0.0, 0.5]])), 3)  # no edge is cut: log 2
    0.693
    >>> round(edge_information(np.array([[0.98, 0.0], [0.0, 0.02]])), 3)  # neither here
    0.098
    """
    volumes = shares.sum(axis=1)
    return float(_x_log_x(shares).sum() - 2 * _x_log_x(volumes).sum())


def information_within_components(graph: Graph, labels: Array) -> float:
    """:func:`edge_information` about edges whose component is known, mean over the edges.

    A partition of whole components cuts no edge, whichever it is. Of a graph with more components than
    clusters there are many such, and its edges tell nothing about which of them is meant: what remains is
    ``I(z_i; z_j | c) = sum e_crs log(e_crs e_c / (a_cr a_cs))``, zero for all of them.

    Examples
    --------
    >>> graph = Graph.from_edges([0, 2, 4], [1, 3, 5])  # three pairs
    >>> information_within_components(graph, np.array([0, 0, 1, 1, 1, 1]))
    0.0
    """
    k = int(labels.max()) + 1
    components = graph.components.astype(np.int64)
    n_components = int(components.max()) + 1
    own = _membership_matrix(np.where(labels < 0, -1, components * k + labels), n_components * k)
    # e_crs, shape (n_components k, k)
    shares = own.T @ (graph.matrix @ _membership_matrix(labels, k))
    total = shares.sum()
    if total == 0:
        return 0.0
    volumes = np.asarray(shares.sum(axis=1)).ravel() / total
    of_components = volumes.reshape(n_components, k).sum(axis=1)
    joint = _x_log_x(shares.data / total).sum()
    logs = joint - 2 * _x_log_x(volumes).sum() + _x_log_x(of_components).sum()
    return max(0.0, float(logs))


def _membership_matrix(labels: Array, n_clusters: int) -> sp.csr_array:
    """N x K with a one in the column of the cluster of every node; rows of -1 are empty."""
    active = labels >= 0
    indptr = np.concatenate([[0], np.cumsum(active)])
    ones = np.ones(int(active.sum()))
    return sp.csr_array((ones, labels[active], indptr), shape=(len(labels), n_clusters))


def relative_information(shares: Array) -> float:
    """:func:`edge_information` over the root of its upper bound, the entropy of the volumes.

    Information grows with the evenness of clusters whatever they mean; over its bound, a partition with one
    large cluster would win. The root lies between the two.

    Examples
    --------
    >>> round(relative_information(np.array([[0.5, 0.0], [0.0, 0.5]])), 3)  # log 2 / sqrt(log 2)
    0.833
    """
    entropy = volume_entropy(shares)
    return edge_information(shares) / entropy**0.5 if entropy > 0 else 0.0


def volume_entropy(shares: Array) -> float:
    """Entropy, in nats, of the clusters' shares of the volume: log K where all are equal."""
    return float(-_x_log_x(shares.sum(axis=1)).sum())


def partition_criterion(
    graphs: Graph | Sequence[Graph], labels: ArrayLike, weights: Sequence[float] | None = None
) -> float:
    """The criterion by which partitions into equally many clusters are compared; more is better.

    :func:`relative_information` of a graph; of several graphs on the same rows, that is of layers, its
    weighted mean. Of a graph in memory with more components than clusters it is the information within
    components (:func:`information_within_components`). Layers of any weight and density count alike.
    Partitions into different numbers of clusters are not comparable by it alone: it grows with the number.

    Parameters
    ----------
    graphs : Graph, or sequence of Graph
        Layers on the same rows. Layers in which no edge joins two nodes that take part do not count.
    labels : array of int, shape (n_nodes,)
        Cluster of every node, -1 where it takes no part.
    weights : sequence of float, optional
        One per layer; None weighs them alike.

    Examples
    --------
    >>> two = Graph.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3])  # triangles joined by an edge
    >>> good, bad = [0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]
    >>> partition_criterion(two, good) > partition_criterion(two, bad)
    True
    """
    layers = [graphs] if isinstance(graphs, Graph) else list(graphs)
    counts = np.ones(len(layers)) if weights is None else np.asarray(weights, dtype=np.float64)
    if counts.shape != (len(layers),):
        raise ValueError(f"{len(counts)} weights for {len(layers)} layers")
    numbers = np.asarray(labels, dtype=np.int64)
    n_clusters = int(numbers.max(initial=-1)) + 1
    total = weight_sum = 0.0
    for layer, weight in zip(layers, counts, strict=True):
        shares = cluster_shares(layer, numbers, n_clusters)
        if shares.sum() > 0:
            total += float(weight) * _information_of_layer(layer, numbers, shares)
            weight_sum += float(weight)
    return total / weight_sum if weight_sum > 0 else 0.0


def layer_information(layer: Graph, labels: Array) -> tuple[float, float]:
    """Information about the edges of one layer, as it is and over the root of the entropy of the volumes.

    Of a graph in memory with more components than clusters both are those within components.
    """
    shares = cluster_shares(layer, labels)
    relative = _information_of_layer(layer, labels, shares)
    return relative * volume_entropy(shares) ** 0.5, relative


def information_scales(information: Array, weights: Array) -> Array:
    """What the information about each layer is multiplied by, so that the sum is the mean share reached.

    Parameters
    ----------
    information : array of shape (n_candidates, n_layers)
        Of each candidate about each layer.
    weights : array of shape (n_layers,)

    Examples
    --------
    >>> links, neighbours = [0.4, 0.2], [0.9, 1.0]  # of two candidates: the second tells a tenth more of one
    >>> found = np.array([links, neighbours]).T
    >>> (found @ information_scales(found, np.ones(2))).round(2)  # and half of the other
    array([0.71, 0.58])
    """
    best = np.maximum(information.max(axis=0), 0.0)
    return np.asarray(weights / weights.sum() / (best + MIN_INFORMATION))


def _information_of_layer(layer: Graph, labels: Array, shares: Array) -> float:
    """Relative information, of many components within them."""
    entropy = volume_entropy(shares)
    if not layer.is_resident or entropy == 0:
        return relative_information(shares)
    n_linked = int(layer.components.max()) + 1 - len(layer.isolated)
    if n_linked <= len(shares):
        return relative_information(shares)
    return float(information_within_components(layer, labels) / entropy**0.5)


def _x_log_x(values: ArrayLike) -> Array:
    """``x log x``, zero at zero."""
    x = np.asarray(values, dtype=np.float64)
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))
