"""Quality of clusterings and subspaces: scores, conductance, projection distance, principal angle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.graph import Graph


UNLABELLED = -1
# Key of a score in the result of score() -> its title in tables.
SCORE_TITLES = {"purity": "purity", "nmi": "NMI", "ri": "RI", "ari": "ARI"}


def purity(truth: ArrayLike, labels: ArrayLike) -> float:
    """Fraction of nodes that belong to the majority class of their cluster.

    Many small clusters are pure by accident: compare values for the same number of clusters only.

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], [0, 0, 0, 1])
    0.75
    """
    from sklearn.metrics.cluster import contingency_matrix

    classes, clusters = _label_pair(truth, labels)
    table = contingency_matrix(classes, clusters)
    return float(table.max(axis=0).sum() / len(classes))


def nmi(truth: ArrayLike, labels: ArrayLike) -> float:
    """Mutual information over the arithmetic mean of the two entropies: 0 independent, 1 the same."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(*_label_pair(truth, labels)))


def rand_index(truth: ArrayLike, labels: ArrayLike) -> float:
    """Fraction of pairs of nodes on which the two partitions agree (together, or apart, in both)."""
    from sklearn.metrics import rand_score

    return float(rand_score(*_label_pair(truth, labels)))


def adjusted_rand_index(truth: ArrayLike, labels: ArrayLike) -> float:
    """Rand index corrected for chance: 0 on average for random labels, 1 for the same partition."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(*_label_pair(truth, labels)))


def score(truth: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """All four scores over the nodes whose class is known (``truth != -1``).

    Parameters
    ----------
    truth : (N,) array
        Known class of every node; -1 where it is unknown.
    labels : (N,) array
        Cluster of every node.

    Returns
    -------
    dict
        Keys ``purity``, ``nmi``, ``ri``, ``ari``.

    Examples
    --------
    >>> score([0, 0, 1, 1, -1], [5, 5, 2, 2, 7])
    {'purity': 1.0, 'nmi': 1.0, 'ri': 1.0, 'ari': 1.0}
    """
    classes, clusters = _label_pair(truth, labels)
    # Names of classes (strings) have no marker for "unknown"; comparing them with -1 is meaningless.
    if classes.dtype.kind in "if":
        is_labelled = classes != UNLABELLED
        classes = classes[is_labelled]
        clusters = clusters[is_labelled]
        if not len(classes):
            raise ValueError("no node is labelled: every truth label is -1")
    return {
        "purity": purity(classes, clusters),
        "nmi": nmi(classes, clusters),
        "ri": rand_index(classes, clusters),
        "ari": adjusted_rand_index(classes, clusters),
    }


def conductance(graph: Graph, labels: ArrayLike) -> Array:
    """Weight of the edges that leave a cluster, over its volume or that of the rest, whichever is smaller.

    Parameters
    ----------
    graph : Graph
        One layer; volumes are sums of its degrees.
    labels : (N,) array
        Cluster of every node.

    Returns
    -------
    array
        One number per cluster, in the order of ``np.unique(labels)``: 0 a component of its own, 1 no edge
        inside; nan where the cluster or the rest has no edges.

    Examples
    --------
    >>> from spectrograd import Graph
    >>> conductance(Graph.from_edges([0, 1, 2], [1, 2, 3]), [0, 0, 1, 1]).round(3).tolist()
    [0.333, 0.333]
    """
    import scipy.sparse as sp

    clusters, ranks = np.unique(np.asarray(labels), return_inverse=True)
    if ranks.shape != (graph.n_nodes,):
        raise ValueError(f"labels have shape {ranks.shape} for {graph.n_nodes} nodes")
    order = getattr(graph, "input_order", None)
    if order is not None:  # rows of a graph on disk; labels are in the order of the input
        ranks = ranks[order]
    shape = (graph.n_nodes, len(clusters))
    members = sp.csr_array((np.ones(len(ranks)), ranks, np.arange(len(ranks) + 1)), shape=shape)
    volume = np.bincount(ranks, weights=graph.degrees, minlength=len(clusters))
    if graph.is_resident:
        inside = (members.T @ (graph.matrix @ members)).diagonal()
    else:
        inside = _weight_inside(graph, ranks, len(clusters))
    leaving = volume - inside
    capacity = np.minimum(volume, volume.sum() - volume)
    # A difference of sums may be negative by rounding.
    shares = np.full(len(capacity), np.nan)
    np.divide(np.maximum(leaving, 0), capacity, out=shares, where=capacity > 0)
    return shares


def projection_distance(
    vectors: ArrayLike, layers: Sequence[ArrayLike], metric: ArrayLike | None = None
) -> float:
    """Squared projection distance from one subspace to several (Eq. 20).

    ``K S - sum_s Tr(U U' U_s U_s')``: 0 when all subspaces agree, ``K S`` when all are orthogonal to U.
    Any basis of a subspace gives the same value.

    Parameters
    ----------
    vectors : (N, K) array
        Basis of the subspace.
    layers : S arrays of shape (N, K)
        Bases of the other subspaces.
    metric : (N,) array, optional
        Positive diagonal B of the inner product ``u' B v``; None is the identity.
    """
    basis = _orthonormal(vectors, metric, "vectors")
    total = 0.0
    for index, layer in enumerate(layers):
        other = _orthonormal(layer, metric, f"layer {index}")
        if other.shape != basis.shape:
            raise ValueError(
                f"layer {index} has shape {other.shape}, the embedding {basis.shape}: they must agree"
            )
        # K - |U'V|^2 = |V - U U'V|^2: the right-hand side keeps its digits when the subspaces are close.
        total += float(np.sum((other - basis @ (basis.T @ other)) ** 2))
    return total


def largest_principal_angle(first: ArrayLike, second: ArrayLike, metric: ArrayLike | None = None) -> float:
    """Largest principal angle between two column spans, in radians, accurate for tiny angles too.

    Parameters
    ----------
    first, second : (N, K) and (N, L) arrays
        Bases of the subspaces.
    metric : (N,) array, optional
        Positive diagonal B of the inner product ``u' B v``; None is the identity.
    """
    from scipy.linalg import subspace_angles

    one = _scaled_rows(first, metric, "first")
    two = _scaled_rows(second, metric, "second")
    if len(one) != len(two):
        raise ValueError(f"the subspaces live in different spaces: {len(one)} rows and {len(two)} rows")
    # scipy takes the sine below 45 degrees: an arccos would round every angle under 1e-8 to zero.
    return float(subspace_angles(one, two).max())


def _label_pair(truth: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    classes = np.asarray(truth)
    clusters = np.asarray(labels)
    for name, array in (("truth", classes), ("labels", clusters)):
        if array.ndim != 1:
            raise ValueError(f"{name} has shape {array.shape}; one label per node is needed")
    if len(classes) != len(clusters):
        raise ValueError(f"{len(classes)} truth labels but {len(clusters)} cluster labels")
    if not len(classes):
        raise ValueError("no labels: both lists are empty")
    return classes, clusters


def _scaled_rows(vectors: ArrayLike, metric: ArrayLike | None, name: str) -> Array:
    """``B^1/2 U`` in float64, so that the plain inner product is the one of the metric."""
    matrix = np.asarray(vectors, dtype=np.float64)
    if matrix.ndim != 2 or not 1 <= matrix.shape[1] <= matrix.shape[0]:
        raise ValueError(f"{name} has shape {matrix.shape}; a basis has at least as many rows as columns")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} holds values that are not finite")
    if metric is None:
        return matrix
    diagonal = np.asarray(metric, dtype=np.float64)
    if diagonal.shape != (len(matrix),):
        raise ValueError(f"the metric has shape {diagonal.shape} for {len(matrix)} rows of {name}")
    if not np.all(diagonal > 0):
        raise ValueError("the metric must be positive everywhere")
    return np.asarray(np.sqrt(diagonal)[:, None] * matrix)


def _orthonormal(vectors: ArrayLike, metric: ArrayLike | None, name: str) -> Array:
    basis, triangle = np.linalg.qr(_scaled_rows(vectors, metric, name))
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= len(basis) * np.finfo(np.float64).eps * diagonal.max():
        raise ValueError(f"the columns of {name} are linearly dependent")
    return np.asarray(basis)


def _weight_inside(graph: Graph, ranks: Array, n_clusters: int) -> Array:
    """Weight of the entries between nodes of the same cluster, one number per cluster; one pass."""
    inside = np.zeros(n_clusters)
    for block in graph.blocks:
        rows = np.repeat(ranks[block.start : block.stop], np.diff(block.indptr))
        same = rows == ranks[block.indices]
        weights = None if block.weights is None else block.weights[same]
        inside += np.bincount(rows[same], weights, n_clusters)
    return inside
