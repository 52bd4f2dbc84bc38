"""The Dask engine against the local one: a whole solve, where its time goes, and the model of bytes."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness import table
from spectrograd import datasets
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, Stopping, make_solver, solve

WORKERS, K = 2, 5
# Of the prototype's runs (2e8 entries, 12 float32 columns, random node order): seconds of a thread per entry.
PER_ENTRY = 1.7e-8
NETWORK = 1.2e9  # bytes per second that a worker receives: 10 GbE
COLUMNS, DEGREE, THREADS = 12, 20, 16


def run(n_nodes: int = 100_000, mean_degree: float = 20.0) -> dict[str, str]:
    return {"dask_engine": _overhead(n_nodes, mean_degree), "dask_model": _model()}


def _overhead(n_nodes: int, mean_degree: float) -> str:
    graph = datasets.make_block_model(n_nodes, K, mean_degree=mean_degree, random_state=0).graph
    engines = {"local, 2 threads": "local", "dask, 2 workers of 1 thread": f"dask:{WORKERS}"}
    rows = []
    for name, engine in engines.items():
        _solved(graph, engine)  # kernels compiled or loaded, on the workers too
        seconds, used = min((_solved(graph, engine) for _ in range(2)), key=lambda pair: pair[0])
        moved = used.summary().get("bytes_per_sweep", 0.0)
        rows.append((name, seconds, used.work.sweeps, moved))
    base = rows[0][1]
    cells = [
        (name, f"{seconds:.2f}", f"{seconds / base:.2f}", sweeps, f"{moved / 1e6:.1f}")
        for name, seconds, sweeps, moved in rows
    ]
    head = ("engine", "s", "ratio", "sweeps", "MB moved per sweep")
    return (
        f"`chebyshev` to a residual of 1e-5, {graph.n_edges:,} edges, {n_nodes:,} nodes in random order, "
        f"K = {K}; best of two, edges sent to the workers included.\n\n" + table(head, cells)
    )


def _solved(graph: Any, name: str) -> tuple[float, Any]:
    engine: Any = make_engine(name)
    began = time.perf_counter()
    problem = Problem(laplacian(graph), K, engine)
    solution = solve(problem, make_solver("chebyshev"), stopping=Stopping(tol=1e-5), seed=0)
    engine.rows(solution.Q, np.arange(10))
    return time.perf_counter() - began, engine


def _model() -> str:
    rows = []
    for edges in (1e10, 1e11):
        for workers in (16, 64, 256):
            n_nodes = 2 * edges / DEGREE
            for share in (1.0, 0.1):
                block = 4 * 2 * edges / workers + 8 * n_nodes
                talls = 5 * 4 * COLUMNS * n_nodes / workers
                got = (workers - 1) / workers * 4 * COLUMNS * n_nodes * share
                computing = 2 * edges / workers / THREADS * PER_ENTRY
                rows.append(
                    (
                        f"{edges:.0e}".replace("+", ""),
                        workers,
                        f"{share:.0%}",
                        f"{got * workers / 1e9:,.0f}",
                        f"{got / 1e9:,.1f}",
                        f"{(block + talls + got) / 1e9:,.0f}",
                        f"{computing:,.1f}",
                        f"{got / NETWORK:,.0f}",
                    )
                )
    head = (
        *("edges", "workers", "halo share", "GB moved per pass", "GB received by a worker"),
        *("GB of memory of a worker, at most", "s computing", "s receiving"),
    )
    return table(head, rows)


if __name__ == "__main__":
    print(_overhead(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, 20.0))
