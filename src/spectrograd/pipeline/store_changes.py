"""Changed edges of a graph on disk: by names, into the store, which is then opened again."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.names import NodeRows, as_names
from spectrograd.pipeline.graph_changes import EdgeChanges, all_names, by_layer
from spectrograd.store import StoredGraph, open_store
from spectrograd.store.changes import Changes
from spectrograd.store.nodes import NewNames
from spectrograd.store.update import NoSuchEdge, update_store
from spectrograd.store.urls import RemotePath

Array = NDArray[Any]
STRETCHES, STRETCH = 32, 1024  # of rows: quantiles to half a per cent, and few blocks to read


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
    one = graph.layers[0] if isinstance(graph, MultilayerGraph) else graph
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
    rows, entries = row_of.rows(part.node_names), part.matrix.tocoo()
    heads, tails = rows[entries.row], rows[entries.col]
    lost = np.flatnonzero(heads < 0)
    if len(lost):
        name = str(part.node_names[entries.row[lost[0]]])
        raise GraphError(f"edge to remove: node {name!r} is not in the graph")
    once = heads < tails
    keys, weights = (heads[once] << 32) | tails[once], entries.data[once].astype(np.float64)
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
    starts = np.linspace(0, graph.n_nodes, STRETCHES, endpoint=False).astype(int)
    ends = np.minimum(np.append(starts[1:], graph.n_nodes), starts + STRETCH)
    return sp.csr_array(sp.vstack([rows_between(graph, *pair) for pair in zip(starts, ends, strict=True)]))
