"""Compile ahead of time what runs would compile on their way: for images, containers and shared machines.

Numba compiles a kernel when it is first called with arrays of a type, and keeps the machine code on disk. So
small runs of each kind, on sizes that take the compiled path, fill that cache.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spectrograd.datasets import make_block_model, make_gaussian_mixture, make_multilayer_gmm
from spectrograd.graph import Graph
from spectrograd.kernels.thresholds import USUAL
from spectrograd.pipeline.run import cluster, embed
from spectrograd.pipeline.settings import Settings

FEW_NODES = USUAL.small + 400  # beyond numpy's sizes, with too few entries for threads
MANY_NODES = USUAL.parallel_rows + 1000  # enough rows and entries for threads
K = 4
WIDE_K = 12  # more columns than a kernel holds in registers


class CompiledKind(NamedTuple):
    """One kind of run: kernels compiled for it now (0: all of them were there), and seconds of the runs."""

    kind: str
    description: str
    n_compiled: int
    seconds: float


class _Kind(NamedTuple):
    description: str
    run: Callable[[], None]


def warm_up(kinds: tuple[str, ...] = ()) -> Iterator[CompiledKind]:
    """Compile what runs of these kinds need (none given: all of :data:`KINDS`), one kind after the other.

    Examples
    --------
    >>> from spectrograd.pipeline.warm_up import KINDS
    >>> sorted(KINDS)
    ['files', 'geometric', 'graphs', 'layers', 'points', 'sgd']
    """
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"kind {unknown[0]!r}: expected some of {', '.join(KINDS)}")
    for name in kinds or tuple(KINDS):
        began = time.perf_counter()
        with _counted() as compiled, warnings.catch_warnings(action="ignore"):
            KINDS[name].run()
        spent = time.perf_counter() - began
        yield CompiledKind(name, KINDS[name].description, len(compiled), spent)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """The names of our kernels that are compiled within; those found on disk are none."""
    from numba.core import event

    from spectrograd.kernels.jit import EVENT, kind_of

    names: list[str] = []

    class Counter(event.Listener):  # type: ignore[misc]
        def on_start(self, event: event.Event) -> None:
            function = event.data["dispatcher"].py_func
            if kind_of(function.__module__) is not None:
                names.append(function.__name__)

        def on_end(self, event: event.Event) -> None:
            """Ignore the end of a compilation."""

    counter = Counter()
    event.register(EVENT, counter)
    try:
        yield names
    finally:
        event.unregister(EVENT, counter)


def _block_model(n_nodes: int, *, weighted: bool) -> Graph:
    graph = make_block_model(n_nodes, K, mean_degree=10, random_state=0).graph
    if not weighted:
        return graph
    matrix = graph.matrix.copy()
    matrix.data = 1.0 + (matrix.indices + np.repeat(np.arange(n_nodes), np.diff(matrix.indptr))) % 3
    return Graph.from_matrix(matrix)


def _graphs() -> None:
    """One graph, weighted and not, by the solvers that ``auto`` picks, and regularised."""
    for weighted in (False, True):
        for n_nodes in (FEW_NODES, MANY_NODES):
            graph = _block_model(n_nodes, weighted=weighted)
            cluster(graph, Settings(n_components=K, seed=0))
            embed(graph, Settings(n_components=WIDE_K, solver="chebyshev", max_iter=2, seed=0))
            embed(graph, Settings(n_components=WIDE_K, solver="lanczos", max_iter=2, seed=0))
            embed(graph, Settings(n_components=K, solver="chebyshev", regularization=0.1, max_iter=2, seed=0))


def _layers() -> None:
    """Several layers, merged by the default."""
    for n_nodes in (FEW_NODES, MANY_NODES):
        graph = make_multilayer_gmm(n_nodes, 2, K, random_state=0).graph
        cluster(graph, Settings(n_components=K, seed=0))


def _geometric() -> None:
    """Roads and k-NN graphs of few dimensions: the sparse factorisation and the hierarchy of graphs."""
    for n_nodes in (FEW_NODES, MANY_NODES):
        side = int(n_nodes**0.5)
        here = np.arange(side * side).reshape(side, side)
        heads = np.concatenate([here[:, :-1].ravel(), here[:-1].ravel()])
        tails = np.concatenate([here[:, 1:].ravel(), here[1:].ravel()])
        grid = Graph.from_edges(heads, tails, n_nodes=side * side)
        for solver in ("shift-invert", "multilevel"):
            embed(grid, Settings(n_components=K, solver=solver, max_iter=2, seed=0))


def _points() -> None:
    """Neighbours of points, exact and by an index, and the clusters of their graph."""
    from spectrograd.points.knn_graph import knn_graph

    for n_points, n_columns in ((FEW_NODES, 3), (MANY_NODES, 16)):
        points, _ = make_gaussian_mixture(n_points, K, n_features=n_columns, random_state=0)
        for dtype in (np.float32, np.float64):
            cluster(knn_graph(points.astype(dtype)), Settings(n_components=K, seed=0))


def _sgd() -> None:
    """Mini-batches of edges."""
    for n_nodes in (FEW_NODES, MANY_NODES):
        graph = _block_model(n_nodes, weighted=False)
        for solver in ("sgd", "sgd-paper"):
            embed(graph, Settings(n_components=K, solver=solver, max_iter=2, seed=0))


def _files() -> None:
    """Edge lists as text, by numbers and by names, and a store that is streamed."""
    from spectrograd.io import read_graph
    from spectrograd.io.convert import convert
    from spectrograd.store import open_store
    from spectrograd.store.edge_batches import IngestSettings

    half = _block_model(FEW_NODES, weighted=False).matrix.tocoo()
    upper = half.row < half.col
    ends = np.column_stack([half.row[upper], half.col[upper]])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {
            "numbers.csv": "\n".join(f"{a},{b}" for a, b in ends),
            "names.csv": "\n".join(f"n{a},n{b},{1 + (a + b) % 3}" for a, b in ends),
        }
        for file, text in texts.items():
            (folder / file).write_text(text + "\n")
            read_graph(folder / file)
            convert([str(folder / file)], str(folder / f"{file}.store"), IngestSettings())
        graph = open_store(folder / "numbers.csv.store")
        embed(graph, Settings(n_components=K, seed=0, max_iter=2))


KINDS: dict[str, _Kind] = {
    "graphs": _Kind("single graphs: products, blocks of vectors", _graphs),
    "layers": _Kind("multilayer graphs", _layers),
    "geometric": _Kind("roads and k-NN graphs: factorisation, coarsening", _geometric),
    "points": _Kind("points: nearest neighbours", _points),
    "sgd": _Kind("mini-batches of edges", _sgd),
    "files": _Kind("edge lists as text, stores", _files),
}
