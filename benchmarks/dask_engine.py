"""The Dask engine against the local one: a whole solve, where its time goes, and the model of bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import dask_model
from benchmarks.harness import table
from spectrograd import datasets, open_store
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.memory_estimate import open_within
from spectrograd.solvers import Problem, Stopping, make_solver, solve
from spectrograd.solvers.settings import RunContext

WORKERS, K = 2, 5


# Nodes and mean degree; SPECTROGRAD_STORE=folder adds a graph on disk, whatever its size.
SIZES = ((100_000, 20.0), (1_000_000, 20.0))
STORE_K = 16
ENGINES = {"local, 2 threads": "local", "dask, 2 workers of 1 thread": f"dask:{WORKERS}"}
Run = tuple[float, Any]  # seconds and the engine


def run() -> dict[str, str]:
    return {"dask_engine": _overhead(), "dask_model": dask_model.run()}


def _overhead() -> str:
    cells = []
    for n_nodes, mean_degree in SIZES:
        graph = datasets.make_block_model(n_nodes, K, mean_degree=mean_degree, random_state=0).graph
        for what, timed in {"solver": _solved, "embed": _embedded}.items():
            cells += _rows(what, graph, {name: _best(timed, graph, at) for name, at in ENGINES.items()})
    store = os.environ.get("SPECTROGRAD_STORE")
    if store:
        graph = open_store(store)
        cells += _rows("store", graph, {name: _from_store(store, at) for name, at in ENGINES.items()})
    head = (
        "what",
        "edges",
        "nodes",
        "engine",
        "s",
        "ratio",
        "passes",
        "tasks",
        "rounds",
        "MB moved per pass",
    )
    return (
        f"`chebyshev`, nodes in random order. *solver*: to a residual of 1e-5, K = {K}, edges in memory, "
        "sent to the workers included; best of two. *embed*: the same by `embed`, with components, order of "
        "the nodes, evidence for regularisation and certificate. *store*: `embed` of a store to the usual "
        f"accuracy, K = {STORE_K}, reading it included; once. The load of the machine was "
        f"{os.getloadavg()[0]:.0f} at the end.\n\n" + table(head, cells)
    )


def _rows(what: str, graph: Any, runs: dict[str, Run]) -> list[tuple[Any, ...]]:
    base = next(iter(runs.values()))[0]
    found = []
    for name, (seconds, engine) in runs.items():
        summary = engine.summary()
        moved = f"{summary.get('bytes_per_pass', 0.0) / 1e6:.1f}"
        counts = (summary["passes"], summary.get("tasks", 0), summary.get("rounds", 0), moved)
        sizes = (what, f"{graph.n_edges:,}", f"{graph.n_nodes:,}", name)
        found.append((*sizes, f"{seconds:.2f}", f"{seconds / base:.2f}", *counts))
    return found


def _best(timed: Callable[[Any, str], Run], graph: Any, name: str) -> Run:
    timed(graph, name)  # kernels compiled or loaded, on the workers too
    return min((timed(graph, name) for _ in range(2)), key=lambda pair: pair[0])


def _solved(graph: Any, name: str) -> Run:
    engine: Any = make_engine(name)
    began = time.perf_counter()
    problem = Problem(laplacian(graph), K, engine)
    solution = solve(problem, make_solver("chebyshev"), stopping=Stopping(tol=1e-5), seed=0)
    engine.to_numpy(solution.Q, np.arange(10))
    return time.perf_counter() - began, engine


def _embedded(graph: Any, name: str, k: int = K, tol: float | str = 1e-5) -> Run:
    engine: Any = make_engine(name)
    began = time.perf_counter()
    embed(graph, Settings(n_components=k, tol=tol, solver="chebyshev", seed=0), RunContext(engine))
    return time.perf_counter() - began, engine


def _from_store(path: str, name: str) -> Run:
    """In memory where that is local; the workers read for themselves."""
    began = time.perf_counter()
    graph = open_within(path, STORE_K, None, engine=name)
    reading = time.perf_counter() - began
    seconds, engine = _embedded(graph, name, STORE_K, "auto")
    return reading + seconds, engine
