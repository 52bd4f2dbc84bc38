"""Connected components: what a policy keeps for the eigenproblem, what it excludes, and why."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.notices import parameter, warn
from spectrograd.typing import Array

Policy = Literal["components", "regularize", "largest", "error"]
# Of a cluster's fair share of the nodes (or of the largest component, if that is less), what a component
# must have to be worth an eigenvector.
TINY_COMPONENT_SHARE = 0.05
MOST = 20  # components beyond which their number is taken for the number of clusters, where none is given
SHOWN = 5
MANY_EXCLUDED = 0.02  # share of the nodes excluded above which the warning says how to keep them


@dataclass(frozen=True, eq=False)
class Connectivity:
    """The components of a graph as a policy sees them.

    Attributes
    ----------
    labels
        Component of every node, largest first.
    sizes
        Nodes per component, descending.
    excluded
        Row numbers that take no part in the eigenproblem: their rows of the embedding are zero, their
        cluster is -1.
    groups
        Per node the cluster it must get, where the components that count are at least as many as the
        clusters: whole components are joined and none is split. None otherwise.
    """

    policy: str
    labels: Array
    sizes: Array
    excluded: Array
    groups: Array | None = None

    @property
    def n_components(self) -> int:
        """How many components the graph has."""
        return len(self.sizes)

    @property
    def kept(self) -> Array:
        """Row numbers that take part."""
        active = np.ones(len(self.labels), bool)
        active[self.excluded] = False
        return np.flatnonzero(active)

    def moved(self, order: Array) -> Connectivity:
        """The same for nodes in another order: row i becomes row ``order[i]``."""
        labels = np.empty_like(self.labels)
        labels[order] = self.labels
        groups = None if self.groups is None else np.empty_like(self.groups)
        if groups is not None:
            groups[order] = self.groups
        return replace(self, labels=labels, excluded=np.sort(order[self.excluded]), groups=groups)

    @property
    def sentence(self) -> str:
        """What was found and done, in plain words."""
        if self.n_components == 1:
            return "the graph is connected"
        found = f"{self.n_components} components, the largest with {self.sizes[0]:,} nodes"
        if self.policy == "regularize":
            return f"{found}; regularisation ties them together"
        done = f"{len(self.excluded):,} nodes excluded" if len(self.excluded) else "all take part"
        return f"{found}; {done}" + (
            "; whole components make the clusters" if self.groups is not None else ""
        )

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
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
    n_clusters
        Eigenvectors (or clusters) asked for: they say how small a component is too small. "auto" is as few
        as two, unless there are more than 20 components that count.
    policy
        ``"components"``: components that count are embedded together; tiny components (isolated nodes, and
        components below a twentieth of a cluster's fair share) are excluded. ``"largest"``: all but the
        largest component is excluded. ``"regularize"``: nothing is excluded; the caller adds
        ``tau / N`` to every pair. ``"error"``: a graph in components is an error.

    Examples
    --------
    >>> path = Graph.from_edges(["ann", "bob", "dan"], ["bob", "cid", "eve"])
    >>> connect(path, 2).sizes.tolist(), connect(path, 2).groups.tolist()
    ([3, 2], [0, 0, 0, 1, 1])
    """
    if policy not in get_args(Policy):
        known = ", ".join(get_args(Policy))
        raise ValueError(f"{parameter('disconnected', policy)}: expected one of {known}")
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    labels, sizes = _by_size(graph.components)
    nothing = np.empty(0, dtype=np.int64)
    if len(sizes) == 1 or policy == "regularize":
        return Connectivity(policy, labels, sizes, nothing)
    if policy == "error":
        raise GraphError(_component_labels(graph, labels, sizes))
    if policy == "largest":
        return Connectivity(policy, labels, sizes, np.flatnonzero(labels > 0))
    share = graph.n_nodes / (2 if isinstance(n_clusters, str) else n_clusters)
    counts = sizes >= max(2.0, TINY_COMPONENT_SHARE * min(share, float(sizes[0])))
    excluded = np.flatnonzero(~counts[labels])
    n_counting = int(counts.sum())
    enough = max(n_counting, MOST + 1) if isinstance(n_clusters, str) else n_clusters
    if n_counting < enough or n_counting == 1:  # an eigenproblem is left
        return Connectivity(policy, labels, sizes, excluded)
    return Connectivity(policy, labels, sizes, excluded, _whole_components(labels, sizes[counts], enough))


def report_excluded(connectivity: Connectivity, names: Array) -> None:
    """Warn by name of the nodes excluded; where they are many, with their share and how to keep them."""
    excluded, n_nodes = connectivity.excluded, len(connectivity.labels)
    if not len(excluded):
        return
    share = len(excluded) / n_nodes
    many = f" ({share:.1%})" if share > MANY_EXCLUDED else ""
    keep = f"{parameter('disconnected', 'regularize')} labels them too"
    if many:
        keep = f"to keep them, {parameter('disconnected', 'regularize')} ties all components together"
    warn(
        f"{len(excluded)} of {n_nodes} nodes{many} are not connected to the rest and were excluded "
        f"(cluster -1): {_some(names[excluded])}; {keep}",
        GraphWarning,
    )


def subgraph(graph: Graph, kept: Array) -> Graph:
    """The graph on some of its nodes."""
    if len(kept) == graph.n_nodes:
        return graph
    names = None if graph.names is None else graph.names[kept]
    return Graph._from_clean_csr(sp.csr_array(graph.matrix[kept][:, kept]), names)


def on_all_rows(vectors: Array, kept: Array, n_nodes: int) -> Array:
    """Rows for all nodes, in their order: zero where a node took no part."""
    if len(kept) == n_nodes and np.array_equal(kept, np.arange(n_nodes)):
        return vectors
    rows = np.zeros((n_nodes, vectors.shape[1]), vectors.dtype)
    rows[kept] = vectors
    return rows


def sublayers(graph: MultilayerGraph, kept: Array) -> MultilayerGraph:
    """The multilayer graph on some of its nodes."""
    if len(kept) == graph.n_nodes:
        return graph
    layers = [subgraph(layer, kept) for layer in graph.layers]
    if graph.names is None:  # row numbers would begin anew: keep the old ones as names
        layers = [Graph(layer.blocks, layer.n_nodes, kept) for layer in layers]
    return MultilayerGraph(tuple(layers), graph.layer_names)


def indicators(labels: Array, metric: Array | None) -> Array:
    """Null vectors of a Laplacian, one per label, orthonormal in the metric; the first is constant."""
    n_labels = int(labels.max()) + 1
    mass = np.ones(len(labels)) if metric is None else metric
    root = np.sqrt(np.bincount(labels, mass, n_labels))
    # In the basis of scaled indicators the constant has coordinates ``root``: a reflection puts it first.
    basis, _ = np.linalg.qr(np.column_stack([root, np.eye(n_labels)[:, : n_labels - 1]]))
    return np.asarray((basis / root[:, None])[labels])


def _by_size(found: Array) -> tuple[Array, Array]:
    """Components renumbered, the largest first, and their sizes."""
    sizes = np.bincount(found)
    if len(sizes) == 1:
        return found, sizes
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(order), found.dtype)
    rank[order] = np.arange(len(order))
    return rank[found], sizes[order]


def _whole_components(labels: Array, sizes: Array, n_clusters: int) -> Array:
    """Components to clusters, the largest first, each into the smallest cluster; -1: tiny components."""
    clusters = [(0, c) for c in range(n_clusters)]
    cluster_of = np.full(int(labels.max()) + 1, -1)
    for component, size in enumerate(sizes):
        total, c = heapq.heappop(clusters)
        cluster_of[component] = c
        heapq.heappush(clusters, (total + int(size), c))
    return np.asarray(cluster_of[labels])


def _component_labels(graph: Graph | MultilayerGraph, labels: Array, sizes: Array) -> str:
    outside = graph.node_names[labels > 0]
    return (
        f"the graph has {len(sizes)} components; {len(outside)} nodes are outside the largest "
        f"({_some(outside)}): join or remove them, or choose another policy than "
        f"{parameter('disconnected', 'error')}"
    )


def _some(names: Array) -> str:
    return ", ".join(str(name) for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
