"""Multilayer graphs: several graphs on the same nodes, each with a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from spectrograd.graph.graph import Graph, Recall, facts_table
from spectrograd.graph.node_names import as_names, number_nodes
from spectrograd.graph.validation import GraphError
from spectrograd.typing import Array


@dataclass(frozen=True, eq=False)
class MultilayerGraph:
    """Several graphs ("layers") on the same nodes, each layer with a name."""

    layers: tuple[Graph, ...]
    layer_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise GraphError("a multilayer graph needs at least one layer")
        if len(self.layers) != len(self.layer_names):
            raise GraphError(f"{len(self.layer_names)} layer names for {len(self.layers)} layers")
        first = self.layers[0]
        for name, layer in zip(self.layer_names, self.layers, strict=True):
            if layer.n_nodes != first.n_nodes:
                raise GraphError(
                    f"layer {name!r} has {layer.n_nodes} nodes, layer {self.layer_names[0]!r} has "
                    f"{first.n_nodes}: rows are matched by number, so all layers must have as many; "
                    "give graphs with node names to from_layers to match them by name"
                )
            if not layer.shares_nodes(first):
                raise GraphError(f"layer {name!r} names its nodes differently from {self.layer_names[0]!r}")

    @classmethod
    def from_layers(
        cls, layers: Sequence[object] | Mapping[str, object], *, names: ArrayLike | None = None
    ) -> MultilayerGraph:
        """Build from a list or a dict of graphs or adjacency matrices.

        Graphs that name their nodes are united by name: a node that a layer lacks is isolated there.
        Without names rows are matched by number, so all layers must have as many.
        """
        named = layers if isinstance(layers, Mapping) else {str(i): x for i, x in enumerate(layers)}
        graphs = []
        for layer_name, layer in named.items():
            try:
                graphs.append(layer if isinstance(layer, Graph) else Graph.from_matrix(layer, names=names))
            except GraphError as error:
                raise GraphError(f"layer {layer_name!r}: {error}") from None
        return cls(_unite_by_name(graphs), tuple(str(name) for name in named))

    @classmethod
    def from_features(
        cls,
        layers: Sequence[object] | Mapping[str, object],
        *,
        n_neighbors: int = 10,
        metric: str = "auto",
        affinity: str = "auto",
        names: ArrayLike | None = None,
    ) -> MultilayerGraph:
        """Build from a list or a dict that mixes graphs and feature matrices of the same nodes.

        Rows of features are joined to their ``n_neighbors`` nearest ones; ``metric="auto"`` is the cosine for
        sparse features that are not negative, else Euclidean. ``affinity="cosine"`` and ``"linear"`` take all
        pairs of rows instead, which are never formed; ``"auto"`` takes the cosine so for sparse features that
        are not negative of more than 20,000 rows. Rows are the nodes of the graphs, in their
        order, unless they have ``names``.

        Examples
        --------
        >>> path = Graph.from_edges([0, 1, 2], [1, 2, 3])
        >>> places = [[0.0], [1.0], [5.0], [6.0]]
        >>> both = MultilayerGraph.from_features({"path": path, "place": places}, n_neighbors=1)
        >>> both.layer_names, both.n_nodes
        (('path', 'place'), 4)
        """
        named = layers if isinstance(layers, Mapping) else {str(i): x for i, x in enumerate(layers)}
        module = import_module("spectrograd.points.mixed_layers")  # by name: points stand above graphs
        rows = None if names is None else as_names(names)
        options = module.FeatureOptions(n_neighbors, metric, affinity=affinity)
        made = module.mixed_layers(dict(named), options, names=rows)
        return cls(made.layers, made.layer_names)

    @property
    def is_signed(self) -> bool:
        """Whether any weight of any layer is negative."""
        return any(layer.is_signed for layer in self.layers)

    @property
    def n_nodes(self) -> int:
        """Number of nodes, which all layers share."""
        return self.layers[0].n_nodes

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def recall(self) -> Recall | None:
        """Lowest recall of the layers made from points; None where there is no such layer."""
        return min((layer.recall for layer in self.layers if layer.recall is not None), default=None)

    @property
    def n_edges(self) -> int:
        """Number of edges of all layers together."""
        return sum(layer.n_edges for layer in self.layers)

    @property
    def node_names(self) -> Array:
        """The names, or the row numbers where the input had none."""
        return self.layers[0].node_names

    @property
    def input_names(self) -> Array:
        """The names in the order of the input, which is that of all results."""
        return self.layers[0].input_names

    @property
    def components(self) -> Array:
        """The component of every node in the union of all layers, numbered as their first nodes come."""
        from scipy.sparse.csgraph import connected_components  # loads much of scipy

        # A bipartite graph: every node is tied to its component in each layer.
        rows = np.arange(self.n_nodes)
        size = self.n_nodes
        ends = []
        for layer in self.layers:
            components = layer.components.astype(np.int64)
            if not components.any():  # connected, and so is every union with it
                return np.zeros(self.n_nodes, np.int32)
            ends.append(size + components)
            size += int(components.max()) + 1
        ties = (np.tile(rows, self.n_layers), np.concatenate(ends))
        joined = sp.coo_array((np.ones(len(ties[0]), np.int8), ties), shape=(size, size))
        return np.asarray(connected_components(joined, directed=False)[1][: self.n_nodes])

    @property
    def is_resident(self) -> bool:
        """Whether all layers are in memory."""
        return all(layer.is_resident for layer in self.layers)

    @property
    def names(self) -> Array | None:
        """The names of the nodes, or None."""
        return self.layers[0].names

    def __repr__(self) -> str:
        return (
            f"MultilayerGraph(n_nodes={self.n_nodes:,}, n_layers={self.n_layers}, n_edges={self.n_edges:,})"
        )

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: the nodes, and the edges of each layer."""
        pairs = zip(self.layer_names, self.layers, strict=True)
        layers = {f"edges of {name}": f"{layer.n_edges:,}" for name, layer in pairs}
        return facts_table("MultilayerGraph", {"nodes": f"{self.n_nodes:,}", **layers})


def _unite_by_name(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Extend graphs to the sorted union of their nodes, where all have names and not all the same."""
    names = [graph.names for graph in graphs if graph.names is not None]
    if len(names) < len(graphs) or all(np.array_equal(own, names[0]) for own in names):
        return tuple(graphs)
    union, rows = number_nodes(names)
    extended = []
    for graph, row_of in zip(graphs, rows, strict=True):
        if len(np.unique(row_of)) < len(row_of):
            raise GraphError("a node name occurs twice in one layer: layers cannot be matched by name")
        coo = graph.matrix.tocoo()
        matrix = sp.coo_array((coo.data, (row_of[coo.row], row_of[coo.col])), shape=(len(union),) * 2)
        extended.append(Graph._from_clean_csr(matrix.tocsr(), union))
    return tuple(extended)
