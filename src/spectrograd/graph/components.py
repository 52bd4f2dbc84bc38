"""Connected components: which nodes take part in the eigenproblem under a policy, and which are excluded."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.features import FeatureGraph
from spectrograd.notices import parameter, warn
from spectrograd.typing import Array, JsonObject

Policy = Literal["components", "regularize", "largest", "error"]
# A component below this share of a cluster's fair share of the nodes (or of the largest component, if that is
# less) is tiny: it gets no eigenvector.
TINY_COMPONENT_SHARE = 0.05
# With n_clusters="auto", components beyond this number are the clusters.
MAX_COMPONENTS_BELOW_AUTO = 20
MAX_NAMES_IN_MESSAGE = 5
MANY_EXCLUDED_SHARE = 0.02  # of the nodes: above, the warning says how to keep them


@dataclass(frozen=True, eq=False)
class Connectivity:
    """The components of a graph and the nodes that a policy excludes.

    Attributes
    ----------
    policy : str
        See :func:`connect`.
    labels : (N,) array of int
        Component of every node; 0 is the largest.
    sizes : (n_components,) array of int
        Nodes per component, descending.
    excluded : array of int
        Rows that take no part in the eigenproblem: their rows of the embedding are zero, their cluster is
        -1.
    groups : (N,) array of int, or None
        The cluster of every node, where the components that are not tiny are at least as many as the
        clusters: whole components are joined and none is split.
    """

    policy: str
    labels: Array
    sizes: Array
    excluded: Array
    groups: Array | None = None

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.sizes)

    @property
    def kept(self) -> Array:
        """Rows that take part in the eigenproblem, ascending."""
        active = np.ones(len(self.labels), bool)
        active[self.excluded] = False
        return np.flatnonzero(active)

    def moved(self, order: Array) -> Connectivity:
        """Renumber the nodes: row i becomes row ``order[i]``."""
        labels = np.empty_like(self.labels)
        labels[order] = self.labels
        groups = None if self.groups is None else np.empty_like(self.groups)
        if groups is not None:
            groups[order] = self.groups
        return replace(self, labels=labels, excluded=np.sort(order[self.excluded]), groups=groups)

    @property
    def sentence(self) -> str:
        """The components and their treatment in one sentence."""
        if self.n_components == 1:
            return "the graph is connected"
        components = f"{self.n_components} components, the largest with {self.sizes[0]:,} nodes"
        if self.policy == "regularize":
            return f"{components}; regularisation ties them together"
        treatment = f"{len(self.excluded):,} nodes excluded" if len(self.excluded) else "all take part"
        if self.groups is not None:
            treatment += "; whole components make the clusters"
        return f"{components}; {treatment}"

    def summary(self) -> JsonObject:
        """The entry of ``--summary-json``."""
        return {
            "policy": self.policy,
            "n_components": self.n_components,
            "largest": int(self.sizes[0]),
            "n_excluded": len(self.excluded),
            "sentence": self.sentence,
        }


def connect(
    graph: Graph | MultilayerGraph, n_clusters: int | str, policy: str = "components"
) -> Connectivity:
    """Find the components and apply a policy.

    Parameters
    ----------
    graph : Graph or MultilayerGraph
        Of layers, their union counts.
    n_clusters : int or "auto"
        Number of eigenvectors (or clusters), which decides how small a component is tiny. "auto" stands for
        two, unless more than 20 components are not tiny.
    policy : str
        ``"components"``: components are embedded together; tiny ones (isolated nodes, and components below
        a twentieth of a cluster's fair share) are excluded. ``"largest"``: all but the largest component is
        excluded. ``"regularize"``: nothing is excluded; the caller adds ``tau / N`` to every pair.
        ``"error"``: a graph in several components is an error.

    Examples
    --------
    >>> path = Graph.from_edges(["ann", "bob", "dan"], ["bob", "cid", "eve"])
    >>> connect(path, 2).sizes.tolist(), connect(path, 2).groups.tolist()
    ([3, 2], [0, 0, 0, 1, 1])
    """
    if policy not in get_args(Policy):
        policies = ", ".join(get_args(Policy))
        raise ValueError(f"{parameter('disconnected', policy)}: expected one of {policies}")
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    labels, sizes = _sort_by_size(graph.components)
    if len(sizes) == 1 or policy == "regularize":
        return Connectivity(policy, labels, sizes, excluded=np.empty(0, dtype=np.int64))
    if policy == "error":
        raise GraphError(_describe_components(graph, labels, sizes))
    if policy == "largest":
        return Connectivity(policy, labels, sizes, np.flatnonzero(labels > 0))
    # 1. Exclude tiny components.
    fair_share = graph.n_nodes / (2 if isinstance(n_clusters, str) else n_clusters)
    is_large = sizes >= max(2.0, TINY_COMPONENT_SHARE * min(fair_share, float(sizes[0])))
    excluded = np.flatnonzero(~is_large[labels])
    # 2. As many large components as clusters, or more: the components are the answer.
    n_large = int(is_large.sum())
    n_groups = max(n_large, MAX_COMPONENTS_BELOW_AUTO + 1) if isinstance(n_clusters, str) else n_clusters
    if n_large < n_groups or n_large == 1:  # an eigenproblem remains
        return Connectivity(policy, labels, sizes, excluded)
    groups = _join_components(labels, sizes[is_large], n_groups)
    return Connectivity(policy, labels, sizes, excluded, groups)


def report_excluded(connectivity: Connectivity, names: Array) -> None:
    """Warn by name of the nodes excluded; where they are many, with their share and how to keep them."""
    excluded = connectivity.excluded
    n_nodes = len(connectivity.labels)
    if not len(excluded):
        return
    share = len(excluded) / n_nodes
    many = f" ({share:.1%})" if share > MANY_EXCLUDED_SHARE else ""
    keep = f"{parameter('disconnected', 'regularize')} labels them too"
    if many:
        keep = f"to keep them, {parameter('disconnected', 'regularize')} ties all components together"
    warn(
        f"{len(excluded)} of {n_nodes} nodes{many} are not connected to the rest and were excluded "
        f"(cluster -1): {_list_names(names[excluded])}; {keep}",
        GraphWarning,
    )


def subgraph(graph: Graph, rows: Array) -> Graph:
    """Return the subgraph induced by some nodes."""
    if len(rows) == graph.n_nodes:
        return graph
    if isinstance(graph, FeatureGraph):
        return graph.subgraph(rows)
    names = None if graph.names is None else graph.names[rows]
    return Graph._from_clean_csr(sp.csr_array(graph.matrix[rows][:, rows]), names)


def on_all_rows(vectors: Array, active: Array, n_nodes: int) -> Array:
    """Scatter the rows of the nodes that took part to the rows of all nodes; others are zero."""
    if len(active) == n_nodes and np.array_equal(active, np.arange(n_nodes)):
        return vectors
    rows = np.zeros((n_nodes, vectors.shape[1]), vectors.dtype)
    rows[active] = vectors
    return rows


def sublayers(graph: MultilayerGraph, rows: Array) -> MultilayerGraph:
    """Return the multilayer graph induced by some nodes."""
    if len(rows) == graph.n_nodes:
        return graph
    layers = [subgraph(layer, rows) for layer in graph.layers]
    if graph.names is None:  # rows are numbered anew: the old numbers become names
        layers = [replace(layer, names=rows, recall=None) for layer in layers]
    return MultilayerGraph(tuple(layers), graph.layer_names)


def indicators(labels: Array, metric: Array | None) -> Array:
    """Return null vectors of a Laplacian (N x labels), orthonormal in the metric; the first is constant."""
    n_labels = int(labels.max()) + 1
    mass = np.ones(len(labels)) if metric is None else metric
    root = np.sqrt(np.bincount(labels, mass, n_labels))
    # In the basis of scaled indicators the constant has coordinates ``root``: a reflection puts it first.
    basis, _ = np.linalg.qr(np.column_stack([root, np.eye(n_labels)[:, : n_labels - 1]]))
    return np.asarray((basis / root[:, None])[labels])


def _sort_by_size(components: Array) -> tuple[Array, Array]:
    """Renumber components, the largest first; labels of the nodes and sizes."""
    sizes = np.bincount(components)
    if len(sizes) == 1:
        return components, sizes
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(order), components.dtype)
    rank[order] = np.arange(len(order))
    return rank[components], sizes[order]


def _join_components(labels: Array, sizes: Array, n_clusters: int) -> Array:
    """Assign components to clusters, the largest first, each to the smallest cluster; -1: tiny components."""
    clusters = [(0, c) for c in range(n_clusters)]
    cluster_of = np.full(int(labels.max()) + 1, -1)
    for component, size in enumerate(sizes):
        total, c = heapq.heappop(clusters)
        cluster_of[component] = c
        heapq.heappush(clusters, (total + int(size), c))
    return np.asarray(cluster_of[labels])


def _describe_components(graph: Graph | MultilayerGraph, labels: Array, sizes: Array) -> str:
    outside = graph.node_names[labels > 0]
    return (
        f"the graph has {len(sizes)} components; {len(outside)} nodes are outside the largest "
        f"({_list_names(outside)}): join or remove them, or choose another policy than "
        f"{parameter('disconnected', 'error')}"
    )


def _list_names(names: Array) -> str:
    shown = ", ".join(str(name) for name in names[:MAX_NAMES_IN_MESSAGE])
    return shown + (", ..." if len(names) > MAX_NAMES_IN_MESSAGE else "")
