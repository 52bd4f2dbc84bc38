"""The Dask engine against the local one: a whole solve, where its time goes, and the model of bytes."""

from __future__ import annotations

import os
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


# Nodes and mean degree; SPECTROGRAD_LARGEST=100000000 adds 1e8 edges, which take 20 GB and many minutes.
SIZES = {1_000_000: (100_000, 20.0), 10_000_000: (1_000_000, 20.0), 100_000_000: (5_000_000, 40.0)}
LARGEST = int(float(os.environ.get("SPECTROGRAD_LARGEST", 10_000_000)))


def run() -> dict[str, str]:
    return {"dask_engine": _overhead(), "dask_model": _model()}


def _overhead() -> str:
    engines = {"local, 2 threads": "local", "dask, 2 workers of 1 thread": f"dask:{WORKERS}"}
    cells = []
    for n_nodes, mean_degree in (size for n_edges, size in SIZES.items() if n_edges <= LARGEST):
        graph = datasets.make_block_model(n_nodes, K, mean_degree=mean_degree, random_state=0).graph
        base = 0.0
        for name, engine in engines.items():
            _solved(graph, engine)  # kernels compiled or loaded, on the workers too
            seconds, used = min((_solved(graph, engine) for _ in range(2)), key=lambda pair: pair[0])
            base, moved = base or seconds, used.summary().get("bytes_per_sweep", 0.0)
            figures = (f"{seconds:.2f}", f"{seconds / base:.2f}", used.work.sweeps, f"{moved / 1e6:.1f}")
            cells.append((f"{graph.n_edges:,}", f"{n_nodes:,}", name, *figures))
    head = ("edges", "nodes", "engine", "s", "ratio", "sweeps", "MB moved per sweep")
    return (
        f"`chebyshev` to a residual of 1e-5, nodes in random order, K = {K}; best of two, edges sent to the "
        f"workers included. The load of the machine was {os.getloadavg()[0]:.0f} at the end.\n\n"
        + table(head, cells)
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
