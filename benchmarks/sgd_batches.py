"""What `sgd` makes of its edges: their order, how q_i is known, how weights enter, what an edge costs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import breadth_first_order

from benchmarks.harness import table
from benchmarks.sgd import CASES, HUBS, LARGEST, SIZE, quality
from spectrograd import datasets
from spectrograd.engines import LocalEngine
from spectrograd.kernels.sgd import PUSH
from spectrograd.labels.assign import assign
from spectrograd.metrics import nmi
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import SparseOperator as Operator
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, make_solver
from spectrograd.solvers.minibatch import EdgeChunk, ResidentEdges
from spectrograd.solvers.sgd import Descent

REPEATS = 3
LARGE = ((1_000_000, 3), (10_000_000, 4))  # nodes and passes, where SPECTROGRAD_LARGEST allows


def run() -> str:
    return "\n\n".join(part() for part in (orders, choices))


def in_order(edges: EdgeChunk, order: np.ndarray, size: int) -> Iterator[EdgeChunk]:
    for begin in range(0, len(order), size):
        yield edges.part(order[begin : begin + size])  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Ordered:
    """A source that gives the edges of a matrix, row by row, in runs or through a buffer."""

    edges: EdgeChunk
    counts: np.ndarray
    run: int = 1
    buffer: float = 0.0

    @property
    def n_edges(self) -> int:
        return len(self.edges.heads)

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        rng, n = np.random.default_rng(epoch), self.n_edges
        if self.buffer:  # shuffled within windows of that part of all edges
            window = int(self.buffer * n)
            parts = [b + rng.permutation(min(window, n - b)) for b in range(0, n, window)]
            return in_order(self.edges, np.concatenate(parts), size)
        starts = rng.permutation(-(-n // self.run)) * self.run
        order = (starts[:, None] + np.arange(self.run)).ravel()
        return in_order(self.edges, order[order < n], size)


def orders() -> str:
    case = CASES[1]
    operator, labels, exact = case.data(SIZE)
    W = operator.graph.matrix.tocoo()
    upper = W.row < W.col
    edges = EdgeChunk(W.row[upper].astype(np.int32), W.col[upper].astype(np.int32), None)
    counts = np.diff(operator.graph.matrix.indptr)
    sources = {"random order": Ordered(edges, counts)}
    sources |= {f"runs of {run:,} entries": Ordered(edges, counts, run=run) for run in (64, 1024, 4096)}
    sources |= {f"buffer of {b:.0%} of the edges": Ordered(edges, counts, buffer=b) for b in (0.1, 0.2, 0.5)}
    along = np.zeros(operator.n_nodes, np.int64)  # nodes by breadth-first search, edges row by row
    along[breadth_first_order(operator.graph.matrix, 0, directed=False)[0]] = np.arange(operator.n_nodes)
    ends = np.sort(np.stack([along[edges.heads], along[edges.tails]]), axis=0)
    sources["breadth-first order of the nodes"] = Ordered(
        edges.part(np.lexsort(ends[::-1])), counts, run=4096
    )  # type: ignore[arg-type]
    rows = []
    for name, source in sources.items():
        Q = descended(operator, source, case.k, 3)
        rows.append([name, *(f"{x:.3f}" for x in quality(operator, Q, exact, labels)[::-1])])
    return f"The order of the edges (K=8, {SIZE:,} nodes, 3 passes):\n\n" + table(
        ["order", "NMI", "sine"], rows
    )


def descended(
    operator: Operator, source: Any, k: int, epochs: int, push: np.ndarray | None = None
) -> np.ndarray:
    """The solver's own epochs on any source; ``push`` (N,) in place of that of the degrees."""
    solver = make_solver("sgd", epochs=epochs)
    problem = Problem(operator, k)
    state = solver.init(problem, np.random.default_rng(0))
    descent = Descent.of(problem.sparse_random_walk, source, 4000)
    if push is not None:
        descent.nodes[:, PUSH] = push
    state.descent = descent  # type: ignore[attr-defined]
    while not state.done:
        state = solver.step(problem, state)
    return solver.finish(problem, state)


def visits(source: ResidentEdges, batch_size: int) -> np.ndarray:
    """The share of the first epoch's batches that meet each node, (N,)."""
    met, n_batches = np.zeros(len(source.counts)), 0
    for chunk in source.chunks(0, 64 * batch_size):
        for first in range(0, len(chunk.heads), batch_size):
            part = chunk.part(slice(first, first + batch_size))
            met[np.unique(np.concatenate([part.heads, part.tails]))] += 1
            n_batches += 1
    return np.maximum(met, 1) / n_batches


@dataclass(frozen=True, eq=False)
class Drawn:
    """A source that draws as many edges as there are by their weight; all then weigh the same."""

    edges: EdgeChunk
    degrees: np.ndarray

    @property
    def n_edges(self) -> int:
        return len(self.edges.heads)

    @property
    def counts(self) -> np.ndarray:
        return self.degrees * (2 * self.n_edges / self.degrees.sum())  # expected visits

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        assert self.edges.weights is not None
        rng, weights = np.random.default_rng(epoch), self.edges.weights.astype(np.float64)
        order = rng.choice(self.n_edges, self.n_edges, p=weights / weights.sum())
        like = EdgeChunk(
            self.edges.heads, self.edges.tails, np.full(self.n_edges, weights.mean(), np.float32)
        )
        return in_order(like, order, size)


def choices() -> str:
    """What else was possible: q_i counted instead of calculated, edges drawn by weight."""
    rows = []
    for case in (CASES[1], HUBS):
        operator, labels, exact = case.data(SIZE)
        source = ResidentEdges.of(operator.graph, np.random.default_rng(0))
        counted = 1 / visits(source, Descent.of(operator, source, 4000).batch_size)
        for name, push in (("q_i from the degrees", None), ("q_i from the visits of an epoch", counted)):
            Q = descended(operator, source, case.k, 3, push)
            rows.append([case.name, name, *(f"{x:.3f}" for x in quality(operator, Q, exact, labels)[::-1])])
    data = datasets.make_multilayer_gmm(10_000, 3, 5, random_state=0)
    operator = merge(data.graph, 5, Settings(seed=0)).operator
    exact = embed(operator, 5, Settings(seed=0)).embedding.vectors
    ordered = ResidentEdges.of(operator.graph, np.random.default_rng(0))
    drawn = Drawn(ordered.edges, operator.graph.degrees)
    for name, source in (("in order, weighted steps", ordered), ("drawn by weight", drawn)):
        Q = descended(operator, source, 5, 3)
        cells = [f"{x:.3f}" for x in quality(operator, Q, exact, data.labels)[::-1]]
        rows.append(["three layers, 10,000", name, *cells])
    return "Three passes, one seed:\n\n" + table(["graph", "choice", "NMI", "sine"], rows)


def cost() -> str:
    """A pass of the solver's own: what it takes of a processor, and on the clock with all threads."""
    rows = []
    graph = datasets.make_block_model(SIZE, 8, mixing=0.3, random_state=0).graph
    for k in (8, 16, 32):
        row: list[Any] = [k]
        for n_threads, clock in ((1, time.process_time), (1, time.perf_counter), (None, time.perf_counter)):
            problem = Problem(laplacian(graph), k, LocalEngine(n_threads))
            solver = make_solver("sgd", epochs=100)
            state = solver.init(problem, np.random.default_rng(0))
            with problem.engine.threads():
                spent = [_seconds(clock, solver, problem, state) for _ in range(REPEATS)]
            row.append(f"{1e9 * min(spent) / graph.n_edges:.0f}")
        rows.append(row)
    head = ["K", "ns of a processor, one thread", "ns, one thread", f"ns, {os.cpu_count()} threads"]
    busy = f"on a machine whose load was {os.getloadavg()[0]:.0f}"
    text = f"Cost of a pass per edge, {SIZE:,} nodes of degree 20, best of {REPEATS}, {busy}:\n\n"
    text += table(head, rows)
    return text + "".join("\n\n" + large(n, epochs) for n, epochs in LARGE if n <= LARGEST)


def _seconds(clock: Callable[[], float], solver: Any, problem: Problem, state: Any) -> float:
    """Of one epoch."""
    began = clock()
    solver.step(problem, state)
    return clock() - began


def large(n_nodes: int, epochs: int) -> str:
    """One run at a size where one is enough: K=8, 70 % inside."""
    made = datasets.make_block_model(n_nodes, 8, mixing=0.3, random_state=0)
    problem = Problem(laplacian(made.graph), 8)
    began = time.perf_counter()
    solver = make_solver("sgd", epochs=epochs)
    state = solver.init(problem, np.random.default_rng(0))
    ready = time.perf_counter()
    with problem.engine.threads():
        while not state.done:
            state = solver.step(problem, state)
    spent = time.perf_counter() - ready
    score = nmi(made.labels, assign(solver.finish(problem, state), 8, unit_rows=True, random_state=0).labels)
    return (
        f"{n_nodes:,} nodes, {made.graph.n_edges:,} edges, K=8: {epochs} passes in {spent:.1f} s "
        f"(edges listed and shuffled: {ready - began:.1f} s), NMI {score:.3f}."
    )
