"""PyTorch Geometric's ``Data`` and ``HeteroData``, known by their attributes: PyTorch is never imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.node_names import as_objects
from spectrograd.graph.validation import from_tensor
from spectrograd.io.edge_table import unique_names
from spectrograd.io.interop.frames import edge_rows
from spectrograd.typing import Array


def from_pyg(data: Any) -> Graph | MultilayerGraph:
    """Make a graph of ``Data``, a multilayer graph of ``HeteroData`` with several edge types.

    Parameters
    ----------
    data : torch_geometric.data.Data or HeteroData, or anything with the same attributes
        ``edge_index`` (2 x E); ``edge_weight``, or an ``edge_attr`` of one column, is the weight;
        ``num_nodes`` counts nodes without edges too. Where not every edge has its reverse, directions are
        dropped (``W + W'``) with a warning; edges between two types of nodes have none.

    Returns
    -------
    Graph or MultilayerGraph
        Nodes of one type are row numbers. Where there are several types, a node is called
        ``(type, number)``, and each edge type is a layer over all nodes.
    """
    if not hasattr(data, "edge_types"):
        return _graph(data, _node_count(data, _edge_index(data)))
    kinds = list(data.edge_types)
    if not kinds:
        raise GraphError("the HeteroData has no edge types, so no edges")
    counts = {kind: _node_count(data[kind], None) for kind in data.node_types}
    offsets = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    total = sum(counts.values())
    names = None
    if len(counts) > 1:
        names = as_objects([(kind, number) for kind, count in counts.items() for number in range(count)])
    graphs = [_graph(data[kind], total, names, (offsets[kind[0]], offsets[kind[2]])) for kind in kinds]
    labels = unique_names(["-".join(kind) for kind in kinds])
    return graphs[0] if len(graphs) == 1 else MultilayerGraph(tuple(graphs), labels)


def to_edge_index(graph: Graph) -> tuple[Array, Array]:
    """Return ``edge_index`` (2 x 2E, both directions) and ``edge_weight``, ready for ``torch.from_numpy``."""
    rows, cols, weights = edge_rows(graph)
    both = np.stack([np.concatenate([rows, cols]), np.concatenate([cols, rows])]).astype(np.int64)
    return both, np.concatenate([weights, weights])


def is_pyg(thing: object) -> bool:
    """Whether a thing has the edges of PyTorch Geometric."""
    if isinstance(thing, type):
        return False
    hetero = hasattr(thing, "edge_types") and hasattr(thing, "node_types")
    return hetero or getattr(thing, "edge_index", None) is not None


def _graph(
    store: object, n_nodes: int, names: Array | None = None, offsets: tuple[int, int] = (0, 0)
) -> Graph:
    index = _edge_index(store)
    source = index[0] + offsets[0]
    target = index[1] + offsets[1]
    weights = _weights(store, index.shape[1])
    within = offsets[0] == offsets[1]  # edges of one type of nodes
    return Graph.from_edges(source, target, weights, names=names, n_nodes=n_nodes, directed=within)


def _edge_index(store: Any) -> Array:
    index = _to_numpy(store.edge_index)
    if index.ndim != 2 or index.shape[0] != 2:
        raise GraphError(f"edge_index has shape {index.shape}; two rows, sources and targets, are needed")
    return index


def _node_count(store: object, index: Array | None) -> int:
    count = getattr(store, "num_nodes", None)
    if count is not None:
        return int(count)
    if index is None:
        raise GraphError("a node type has no num_nodes; set it on the HeteroData")
    return int(index.max()) + 1 if index.size else 0


def _weights(store: object, n_edges: int) -> Array | None:
    for name in ("edge_weight", "edge_attr"):
        value = getattr(store, name, None)
        if value is None:
            continue
        weights = _to_numpy(value)
        if weights.size == n_edges and weights.dtype.kind in "biuf":
            return weights.reshape(-1)
    return None  # several columns are features, not a weight


def _to_numpy(tensor: object) -> Array:
    known = from_tensor(tensor)
    if known is tensor and hasattr(tensor, "detach"):  # of another library, with torch's manners
        known = tensor.detach().cpu().numpy()
    return np.asarray(known)
