"""How much memory a run needs, before it begins: what ``memory_limit`` is held against."""

from __future__ import annotations

import os

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.memory import as_bytes
from spectrograd.store import StoredGraph, is_store, open_store
from spectrograd.store.reader import N_BUFFERS

BASE = 300_000_000  # interpreter, libraries, compiled kernels
RIDERS = 8  # columns of the probe that rides along
# Copies of an N x K block of float64 that solvers in memory hold at once, and the guard columns they add.
BLOCKS, GUARDS = 6, 8
# Of a filter over a stream: three blocks of float32 and one that they are stacked from.
STREAM_BLOCKS = 4
# Of the certificate: Ritz vectors and their products in float64, each once more while they are rotated.
CERTIFICATE_BLOCKS = 4
PER_NODE = 40  # degrees, metric, components, labels


def layers_of(graph: Graph | MultilayerGraph) -> tuple[Graph, ...]:
    """The layers, or the one graph."""
    return graph.layers if isinstance(graph, MultilayerGraph) else (graph,)


def resident_bytes(graph: Graph | MultilayerGraph, k: int) -> int:
    """For K vectors of a graph that is loaded: its edges and six blocks of K + 8 columns."""
    edges = sum(layer.n_entries * (12 if layer.is_weighted else 4) for layer in layers_of(graph))
    return BASE + edges + graph.n_nodes * (PER_NODE + 8 * BLOCKS * (k + GUARDS))


def streamed_bytes(graph: Graph | MultilayerGraph, k: int) -> int:
    """For K vectors of a graph that stays on disk: four blocks of float32, or four of float64 at the end."""
    width = k + max(3, k // 5)
    width += -width % 4 + RIDERS
    blocks = max(4 * STREAM_BLOCKS * width, 8 * CERTIFICATE_BLOCKS * k)
    layers = [layer for layer in layers_of(graph) if isinstance(layer, StoredGraph)]
    if len(layers) > 1:  # the subspaces of the layers are kept
        blocks += 8 * k * len(layers)
    buffers = N_BUFFERS * max(block.n_bytes for layer in layers for block in layer.meta.blocks)
    return BASE + buffers + graph.n_nodes * (PER_NODE + blocks)


def open_within(
    path: str | os.PathLike[str], k: int, memory_limit: int | str | None
) -> Graph | MultilayerGraph:
    """A store, in memory where that fits the limit (or there is none), else on disk.

    Parameters
    ----------
    path : path-like
        A store.
    k : int
        Eigenvectors that will be computed.
    memory_limit : int, str or None
        Bytes, or a text such as ``"2GB"``. What a stream leaves of it keeps the first blocks in memory.
    """
    limit, graph = as_bytes(memory_limit), open_store(path)
    if limit is None or resident_bytes(graph, k) <= limit:
        return _loaded(graph)
    spare = limit - streamed_bytes(graph, k)
    if spare < 0:
        raise GraphError(f"{path}: {too_little(limit, limit - spare, k)}")
    buffers = N_BUFFERS * max(
        block.n_bytes
        for layer in layers_of(graph)
        if isinstance(layer, StoredGraph)
        for block in layer.meta.blocks
    )
    return open_store(path, memory_limit=spare + buffers)


def check_limit(graph: Graph | MultilayerGraph, k: int, memory_limit: int | str | None) -> None:
    """Refuse a limit that a graph in memory does not fit, with the least that would do."""
    limit = as_bytes(memory_limit)
    if limit is None or not graph.is_resident:
        return
    least = resident_bytes(graph, k)
    if least > limit:
        raise GraphError(f"{too_little(limit, least, k)}; a graph on disk takes less (spectrograd convert)")


def too_little(limit: int, least: int, k: int) -> str:
    """What to say of a limit."""
    return (
        f"memory_limit={limit / 1e6:,.0f}MB is too little for {k} vectors: at least "
        f"{least // 1_000_000 + 1}MB are needed"
    )


def is_stored(thing: object) -> bool:
    """Whether something is the path of a store."""
    return isinstance(thing, str | os.PathLike) and is_store(thing)


def _loaded(graph: Graph | MultilayerGraph) -> Graph | MultilayerGraph:
    if isinstance(graph, StoredGraph):
        return graph.in_memory()
    assert isinstance(graph, MultilayerGraph)
    layers = tuple(layer.in_memory() for layer in graph.layers if isinstance(layer, StoredGraph))
    return MultilayerGraph(layers, graph.layer_names)
