"""Estimates of the memory of a run before it begins, for comparison with ``memory_limit``."""

from __future__ import annotations

import math
import os

from spectrograd.certificate.block_probe import PROBE_COLUMNS
from spectrograd.engines import on_cluster
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.feature_rows import BLOCK_ENTRIES, ResidentFeatures
from spectrograd.graph.features import FeatureGraph
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers import solver_class
from spectrograd.solvers.base import Problem, filter_columns, usual_width
from spectrograd.solvers.chebyshev_by_parts import MIN_COLUMNS, columns_by_parts
from spectrograd.store import StoredGraph, is_store, open_store
from spectrograd.store.reader import N_BUFFERS
from spectrograd.system import as_bytes

BASE_BYTES = 220_000_000  # interpreter, libraries, compiled kernels
# Copies of an N x K block of float64 that solvers in memory hold at once, and the guard columns they add.
RESIDENT_BLOCKS = 6
GUARD_COLUMNS = 8
BY_PARTS = ("auto", "chebyshev")  # solvers that may take some columns at a time
# Of the certificate: Ritz vectors, their products, and each once more while they are rotated.
CERTIFICATE_BLOCKS = 4
BYTES_PER_NODE = 52  # degrees, diagonal, metric and regularisation in two types, components, labels, order


def resident_bytes(graph: Graph | MultilayerGraph, k: int, solver: str = "auto") -> int:
    """Bytes for K vectors of a graph that is loaded: its edges, and six blocks of K + 8 columns at most."""
    k = _result_columns(k, solver)
    edges = sum(_bytes_of_edges(layer) for layer in graph.layers)
    return BASE_BYTES + edges + graph.n_nodes * (BYTES_PER_NODE + 8 * RESIDENT_BLOCKS * (k + GUARD_COLUMNS))


def _bytes_of_edges(layer: Graph) -> int:
    """4 bytes of index per entry, and 8 of weight where there are weights; of features what is stored."""
    if not isinstance(layer, FeatureGraph):
        return layer.n_entries * (12 if layer.is_weighted else 4)
    rows = layer.features
    return 12 * rows.n_entries if isinstance(rows, ResidentFeatures) else 4 * BLOCK_ENTRIES


def streamed_bytes(
    graph: Graph | MultilayerGraph, k: int, solver: str = "auto", memory_limit: float = math.inf
) -> int:
    """Bytes for K vectors of a graph on disk: float32 blocks of the solver or of the certificate.

    Where these exceed the limit: of a filter and a certificate that take some columns at a time, if the
    solver may be that. With a limit of 0 it is the least that will do.
    """
    # float32; solver and certificate do not hold their blocks at the same time
    blocks = 4 * max(_columns(k, solver), CERTIFICATE_BLOCKS * _result_columns(k, solver))
    layers = [layer for layer in graph.layers if isinstance(layer, StoredGraph)]
    if len(layers) > 1:  # the subspaces of the layers are kept
        blocks += 8 * k * len(layers)
    usual = BASE_BYTES + _buffers(graph) + graph.n_nodes * (BYTES_PER_NODE + blocks)
    if usual <= memory_limit or len(layers) > 1 or solver not in BY_PARTS:
        return usual
    n_columns = columns_by_parts(k, _columns_within(graph, memory_limit))
    return min(usual, BASE_BYTES + _buffers(graph) + graph.n_nodes * (BYTES_PER_NODE + 4 * n_columns))


def max_columns(operator: Operator, memory_limit: int | None) -> int | None:
    """How many columns of float32 a limit leaves space for beside a graph on disk; None without a limit."""
    if memory_limit is None or not (isinstance(operator, SparseOperator) and operator.is_streamed):
        return None
    return _columns_within(operator.graph, memory_limit)


def _columns_within(graph: Graph | MultilayerGraph, memory_limit: float) -> int:
    budget = memory_limit - BASE_BYTES - _buffers(graph) - graph.n_nodes * BYTES_PER_NODE
    return max(0, int(budget // (4 * graph.n_nodes)))


def _columns(k: int, solver: str) -> int:
    """Columns of float32 that a solver holds at once."""
    own = None if solver == "auto" else solver_class(solver).streamed_columns(k)
    if own is not None:
        return own
    return filter_columns(k)


def _result_columns(k: int, solver: str) -> int:
    """Columns of the result of a solver that is asked for K vectors."""
    return k if solver == "auto" else solver_class(solver).result_columns(k)


def columns_that_fit(graph: Graph, n_columns: int, memory_limit: int | None) -> bool:
    """Whether so many columns of float32 fit beside a graph on disk."""
    needed = BASE_BYTES + _buffers(graph) + graph.n_nodes * (BYTES_PER_NODE + 4 * n_columns)
    return memory_limit is None or needed <= memory_limit


def doubles_fit(graph: Graph, k: int, memory_limit: int | None) -> bool:
    """Whether the certificate of a graph on disk may have its blocks in float64."""
    doubles = graph.n_nodes * (BYTES_PER_NODE + 8 * CERTIFICATE_BLOCKS * k)
    return memory_limit is None or BASE_BYTES + _buffers(graph) + doubles <= memory_limit


def columns_of_certificate(problem: Problem) -> int | None:
    """Columns that the certificate may multiply at once; None: all."""
    k = problem.n_components
    if problem.max_columns is None or problem.max_columns >= CERTIFICATE_BLOCKS * k:
        return None
    return max(MIN_COLUMNS, (problem.max_columns - k) // 2)


def _buffers(graph: Graph | MultilayerGraph) -> int:
    layers = [layer for layer in graph.layers if isinstance(layer, StoredGraph)]
    largest = max((block.n_bytes for layer in layers for block in layer.meta.blocks), default=0)
    changed = any(layer.meta.delta for layer in layers)  # merged blocks are arrays of their own
    return (N_BUFFERS + 3 * changed) * largest


def spare_bytes(graph: Graph, k: int, memory_limit: int | None) -> float:
    """Bytes that a limit leaves to a factor or a hierarchy of a graph in memory."""
    return math.inf if memory_limit is None else memory_limit - resident_bytes(graph, k)


def solver_bytes(graph: Graph, solver: str) -> int:
    """Bytes that a direct or a multilevel solver adds to :func:`resident_bytes`."""
    return 0 if solver == "auto" else solver_class(solver).extra_bytes(graph)


def largest_basis(graph: Graph, k: int, memory_limit: int | None) -> int | None:
    """Columns of a Krylov basis that a limit leaves budget for beside a stream; None without a limit."""
    if memory_limit is None:
        return None
    beside = (
        2 * (usual_width(k) + PROBE_COLUMNS) + 6 * k
    )  # a block and its product, and what was found before
    budget = memory_limit - BASE_BYTES - _buffers(graph) - graph.n_nodes * (BYTES_PER_NODE + 4 * beside)
    return max(0, budget // (4 * graph.n_nodes))


def open_within(
    path: str | os.PathLike[str],
    k: int,
    memory_limit: int | str | None,
    solver: str = "auto",
    engine: object = "auto",
) -> Graph | MultilayerGraph:
    """A store, in memory where that fits the limit (or there is none), else on disk; for a cluster, on disk.

    Parameters
    ----------
    path : path-like
        A store.
    k : int
        Eigenvectors that will be computed.
    memory_limit : int, str or None
        Bytes, or a text such as ``"2GB"``. What a stream leaves of it keeps the first blocks in memory.
    solver : str
        Which solver will run: they need different amounts.
    engine : str or Client
        Where it will run: workers of a cluster open the store for themselves.
    """
    limit = as_bytes(memory_limit)
    graph = open_store(path)
    if on_cluster(engine):
        return graph
    if limit is None or resident_bytes(graph, k, solver) <= limit:
        return _loaded(graph)
    # what is left keeps the first row blocks in memory (a fixed prefix: each pass reads the same blocks)
    spare = limit - streamed_bytes(graph, k, solver, limit)
    if spare < 0:
        raise GraphError(f"{path}: {too_little(limit, limit - spare, k)}")
    return open_store(path, memory_limit=spare + _buffers(graph))


def check_limit(
    graph: Graph | MultilayerGraph, k: int, memory_limit: int | str | None, solver: str = "auto"
) -> None:
    """Refuse a limit that a graph in memory does not fit, with the least that would do."""
    limit = as_bytes(memory_limit)
    if limit is None or not graph.is_resident:
        return
    least = resident_bytes(graph, k, solver)
    if least > limit:
        raise GraphError(f"{too_little(limit, least, k)}; a graph on disk takes less (spectrograd convert)")


def too_little(limit: int, least: int, k: int) -> str:
    """The text of an error on a limit."""
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
