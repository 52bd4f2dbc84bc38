"""A graph after some of its edges have changed; what did not change stays the same to the last bit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.node_names import NodeRows, as_names
from spectrograd.serialization.folders import RemotePath
from spectrograd.store import StoredGraph, open_store
from spectrograd.store.node_ids import NewNames
from spectrograd.store.shuffled_edges import Changes
from spectrograd.store.update import NoSuchEdge, update_store
from spectrograd.typing import Array

Mode = Literal["add", "set"]
NewNodes = Literal["create", "refuse"]


@dataclass(frozen=True, eq=False)
class EdgeChanges:
    """Edges to add or to set, and edges to remove, as graphs of their own whose nodes have names.

    Attributes
    ----------
    edges
        ``mode="add"`` adds their weights to those that are there; ``"set"`` puts them in their place.
    removed
        Edges that are taken away, whatever their weight; each of them must be there.
    new_nodes
        Whether nodes that the graph does not know are created or refused.
    """

    edges: Graph | MultilayerGraph | None = None
    removed: Graph | MultilayerGraph | None = None
    mode: Mode = "add"
    new_nodes: NewNodes = "create"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, get_args(Mode)),
            ("new_nodes", self.new_nodes, get_args(NewNodes)),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r}: expected one of {', '.join(known)}")
        if self.edges is None and self.removed is None:
            raise ValueError("nothing to change: give edges to add or to remove")

    @cached_property
    def digest(self) -> str:
        """A hash (SHA-256) of edges, weights and mode: equal changes are recognised by it."""
        digest = hashlib.sha256(self.mode.encode())
        for part in (self.edges, self.removed):
            layers: tuple[Graph, ...] = ()
            if part is not None:
                layers = part.layers
            names = getattr(part, "layer_names", [""] * len(layers))
            digest.update(json.dumps([str(name) for name in names]).encode())
            for layer in layers:
                digest.update(json.dumps([str(name) for name in layer.node_names.tolist()]).encode())
                matrix = layer.matrix
                # fixed types and byte order: the digest is the same on every machine
                for array, kind in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f8")):
                    digest.update(np.ascontiguousarray(array, dtype=kind).data)
        return digest.hexdigest()


def changed_graph(graph: Graph, changes: EdgeChanges) -> Graph:
    """The graph with its changes; new nodes come after the old ones.

    Examples
    --------
    >>> path = Graph.from_edges(["a", "b"], ["b", "c"])
    >>> more = changed_graph(path, EdgeChanges(Graph.from_edges(["c"], ["d"])))
    >>> more.node_names.tolist(), more.n_edges
    (['a', 'b', 'c', 'd'], 3)
    """
    if isinstance(changes.edges, MultilayerGraph) or isinstance(changes.removed, MultilayerGraph):
        raise GraphError("the changes have layers, the model's graph has none")
    names = all_names(graph, [changes.edges], changes.new_nodes)
    row_of = NodeRows(graph.node_names if names is None else names)
    matrix = _enlarge(graph.matrix, len(row_of.names))
    if changes.removed is not None:
        matrix = _remove_edges(matrix, edges_by_row(changes.removed, row_of), row_of.names)
    if changes.edges is not None:
        matrix = _add_edges(matrix, edges_by_row(changes.edges, row_of), changes.mode)
    return Graph._from_clean_csr(matrix, graph.names if names is None else _names_or_none(graph, names))


def changed_layers(graph: MultilayerGraph, changes: EdgeChanges) -> MultilayerGraph:
    """The layers with their changes; a layer that the changes do not name stays as it is."""
    edges, removed = (by_layer(part, graph) for part in (changes.edges, changes.removed))
    names = all_names(graph, list(edges.values()), changes.new_nodes)
    every = graph.node_names if names is None else names
    row_of = NodeRows(every)
    layers = []
    for name, layer in zip(graph.layer_names, graph.layers, strict=True):
        matrix = _enlarge(layer.matrix, len(every))
        if name in removed:
            matrix = _remove_edges(matrix, edges_by_row(removed[name], row_of), every)
        if name in edges:
            matrix = _add_edges(matrix, edges_by_row(edges[name], row_of), changes.mode)
        own = graph.names if names is None else _names_or_none(graph, names)
        layers.append(Graph._from_clean_csr(matrix, own))
    return MultilayerGraph(tuple(layers), graph.layer_names)


def by_layer(part: Graph | MultilayerGraph | None, graph: MultilayerGraph) -> dict[str, Graph]:
    """Changes by the name of their layer; the graph must have it."""
    if part is None:
        return {}
    if isinstance(part, Graph):
        raise GraphError("the model has several layers: say in a column 'layer' to which a change belongs")
    unknown = sorted(set(part.layer_names) - set(graph.layer_names))
    if unknown:
        raise GraphError(f"layer {unknown[0]!r} is unknown; the model has {', '.join(graph.layer_names)}")
    return dict(zip(part.layer_names, part.layers, strict=True))


def all_names(graph: Graph | MultilayerGraph, parts: list[Any], policy: str) -> Array | None:
    """Names of old and new nodes; None where there are no new ones."""
    known = NodeRows(graph.node_names)
    new: dict[Any, None] = {}
    for part in parts:
        if part is not None:
            given = part.node_names
            new |= dict.fromkeys(given[known.rows(given) < 0].tolist())
    if not new:
        return None
    if policy == "refuse":
        raise GraphError(
            f"node {str(next(iter(new)))!r} is not in the graph; new_nodes='create' would add it"
        )
    return as_names([*graph.node_names.tolist(), *new])


def _names_or_none(graph: Graph | MultilayerGraph, names: Array) -> Array | None:
    """Row numbers need no names as long as new nodes go on counting."""
    counting = graph.names is None and names.dtype.kind in "iu"
    return None if counting and np.array_equal(names, np.arange(len(names))) else names


def _enlarge(matrix: sp.csr_array, n_nodes: int) -> sp.csr_array:
    if matrix.shape[0] == n_nodes:
        return matrix
    pointers = np.concatenate([matrix.indptr, np.full(n_nodes - matrix.shape[0], matrix.indptr[-1])])
    return sp.csr_array((matrix.data, matrix.indices, pointers), shape=(n_nodes, n_nodes))


def edges_by_row(part: Graph, row_of: NodeRows) -> sp.csr_array:
    """A graph of changes on the rows of the whole graph."""
    rows = row_of.rows(part.node_names)
    entries = part.matrix.tocoo()
    touched = np.unique(entries.row)
    # only removed edges can name an unknown node: names of added ones are in ``row_of``
    lost = touched[rows[touched] < 0]
    if len(lost):
        raise GraphError(f"edge to remove: node {str(part.node_names[lost[0]])!r} is not in the graph")
    size = len(row_of.names)
    placed = sp.coo_array((entries.data, (rows[entries.row], rows[entries.col])), shape=(size, size))
    return sp.csr_array(placed.tocsr())


def _add_edges(matrix: sp.csr_array, edges: sp.csr_array, mode: str) -> sp.csr_array:
    if mode == "set":
        # 1. set: take the old weights of these edges away
        there = matrix.multiply(edges != 0)
        matrix = sp.csr_array(matrix - there)  # w - w is zero, whatever w
        matrix.eliminate_zeros()
    return sp.csr_array(matrix + edges)


def _remove_edges(matrix: sp.csr_array, edges: sp.csr_array, names: Array) -> sp.csr_array:
    pattern = sp.csr_array(edges != 0)
    there = sp.csr_array(matrix.multiply(pattern))
    if there.nnz < pattern.nnz:
        missing = sp.coo_array(pattern.astype(np.int8) - (there != 0).astype(np.int8))
        at = int(np.flatnonzero(missing.data)[0])
        ends = names[missing.row[at]], names[missing.col[at]]
        raise GraphError(f"edge ({ends[0]}, {ends[1]}) to remove is not in the graph")
    left = sp.csr_array(matrix - there)
    left.eliminate_zeros()
    return left


# --- Changed edges of a graph on disk: by names, into the store, which is then opened again.

# Stretches of rows: quantiles to half a per cent, and few blocks to read.
N_STRETCHES = 32
STRETCH_ROWS = 1024


def changed_store(graph: Graph | MultilayerGraph, changes: EdgeChanges) -> StoredGraph | MultilayerGraph:
    """Put changes into the store of a graph; new nodes come after the old ones.

    Only blocks with changed rows are read. The graph that was given goes on as it was; the one that is
    returned has the changes. Weights are those of the store: float32.

    Parameters
    ----------
    graph
        As it was opened; where somebody else has changed the store since, that is an error.
    changes
        By the names of nodes.
    """
    one = graph.layers[0]
    assert isinstance(one, StoredGraph)
    edges, removed = (_parts(part, graph) for part in (changes.edges, changes.removed))
    names = all_names(graph, list(edges.values()), changes.new_nodes)
    row_of = NodeRows(graph.node_names if names is None else names)
    n_old = graph.n_nodes
    per_layer = {
        layer: Changes(
            *_keys(edges.get(layer), row_of), _keys(removed.get(layer), row_of)[0], changes.mode == "add"
        )
        for layer in {*edges, *removed}
    }
    new = None if names is None else NewNames(len(names) - n_old, as_names(names[n_old:].tolist()))
    if isinstance(one.store.path, RemotePath):
        raise GraphError(
            f"{one.store.path}: a store behind a URL is only read; change it where it is a folder"
        )
    try:
        update_store(one.store.path, one.store.meta.fingerprint, per_layer, new, digest=changes.digest)
    except NoSuchEdge as error:
        ends = [str(row_of.names[row]) for row in error.ends]
        raise GraphError(f"edge ({ends[0]}, {ends[1]}) to remove is not in the graph") from None
    return open_store(one.store.path)


def _parts(part: Graph | MultilayerGraph | None, graph: Graph | MultilayerGraph) -> dict[int, Graph]:
    """Changes by the number of their layer."""
    if isinstance(graph, MultilayerGraph):
        named = by_layer(part, graph)
        return {at: named[name] for at, name in enumerate(graph.layer_names) if name in named}
    if isinstance(part, MultilayerGraph):
        raise GraphError("the changes have layers, the store has none")
    return {} if part is None else {0: part}


def _keys(part: Graph | None, row_of: NodeRows) -> tuple[Array, Array]:
    """Edges as ``smaller row << 32 | larger row``, ascending, and their weights."""
    if part is None:
        return np.empty(0, np.int64), np.empty(0)
    rows = row_of.rows(part.node_names)
    entries = part.matrix.tocoo()
    heads = rows[entries.row]
    tails = rows[entries.col]
    lost = np.flatnonzero(heads < 0)
    if len(lost):
        name = str(part.node_names[entries.row[lost[0]]])
        raise GraphError(f"edge to remove: node {name!r} is not in the graph")
    once = heads < tails
    keys = (heads[once] << 32) | tails[once]
    weights = entries.data[once].astype(np.float64)
    order = np.argsort(keys)
    return keys[order], weights[order]


def last_rows(graph: Graph, start: int) -> sp.csr_array:
    """The rows from ``start`` on, (n, n_nodes), in the order of the input."""
    if not isinstance(graph, StoredGraph):
        return sp.csr_array(graph.matrix[start:])
    return rows_between(graph, start, graph.n_nodes)


def rows_between(graph: StoredGraph, start: int, end: int) -> sp.csr_array:
    """Rows of a store as columns of the input's order, (n, n_nodes); only their blocks are read."""
    blocks = graph.rows_between(start, end)
    columns = np.concatenate([block.indices for block in blocks])
    weights = np.concatenate(
        [
            block.weights_in(np.float64) if block.weights is not None else np.ones(len(block.indices))
            for block in blocks
        ]
    )
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    if graph.input_order is not None:  # rows that came later are the last ones there, too
        columns = graph.input_order[columns]
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((weights, columns, pointers), shape=(len(counts), graph.n_nodes))


def sampled_rows(graph: StoredGraph) -> sp.csr_array:
    """Stretches of rows from all over a store, as :func:`rows_between` has them: a sample of its nodes."""
    starts = np.linspace(0, graph.n_nodes, N_STRETCHES, endpoint=False).astype(int)
    ends = np.minimum(np.append(starts[1:], graph.n_nodes), starts + STRETCH_ROWS)
    return sp.csr_array(sp.vstack([rows_between(graph, *pair) for pair in zip(starts, ends, strict=True)]))
