"""A model of passes on 10 to 1,000 workers, its constants fitted on 2 and 4 real ones."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.harness import table
from spectrograd import datasets
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, Stopping, make_solver, solve

FITTED_WORKERS = (2, 4)
FITTED_NODES = (20_000, 100_000, 300_000)  # of mean degree 20
MODEL_WORKERS = (10, 100, 1_000)
MODEL_EDGES = (1e9, 1e10, 1e11, 1e12)
HALO_SHARES = (1.0, 0.1)
K = 5
COLUMNS = 12  # K = 8 and its guards, float32
MULTIVECTORS = 5  # that a solver holds
DEGREE = 20
THREADS = 16  # of a worker
NETWORK = 1.2e9  # bytes per second that a worker receives: 10 GbE


class Costs(NamedTuple):
    """CPU seconds: of a worker per entry and column, and per task; of client and scheduler per task.

    ``tasks`` are those of a pass per row block, all steps of the solver included; ``misfit`` is the median of
    the relative errors of the fit.
    """

    per_product: float
    per_task: float
    per_task_at_client: float
    tasks: float
    misfit: float


def fit() -> Costs:
    """Fit the costs on real runs of `chebyshev` by least squares, none below zero."""
    runs = [_run(n, workers) for workers in FITTED_WORKERS for n in FITTED_NODES]
    products, tasks, blocks, at_workers, at_client = np.array(runs).T
    columns = np.column_stack([products, tasks])
    # rows in units of what was measured: relative errors count, not those of the largest run alone
    (per_product, per_task), _ = nnls(columns / at_workers[:, None], np.ones(len(runs)))
    per_task_at_client = float(np.median(at_client / tasks))
    expected = columns @ (per_product, per_task)
    misfit = float(np.median(np.abs(expected / at_workers - 1)))
    return Costs(per_product, per_task, per_task_at_client, float(np.median(tasks / blocks)), misfit)


def _run(n_nodes: int, workers: int) -> tuple[float, float, float, float, float]:
    """Products, tasks, passes times blocks, and CPU seconds of the workers and of client and scheduler."""
    graph = datasets.make_block_model(n_nodes, K, mean_degree=DEGREE, random_state=0).graph
    name = f"dask:{workers}"
    for _ in range(2):  # the first one compiles
        engine: Any = make_engine(name)
        before = sum(engine.client.run(time.process_time).values())
        began = time.process_time()
        problem = Problem(laplacian(graph), K, engine)
        solve(problem, make_solver("chebyshev"), stopping=Stopping(tol=1e-5), seed=0)
        at_client = time.process_time() - began
        at_workers = sum(engine.client.run(time.process_time).values()) - before
    done = engine.summary()
    products = float(graph.n_entries) * done["matvecs"]
    return products, float(done["tasks"]), float(done["passes"] * workers), at_workers, at_client


def run() -> str:
    """The model as a table, with its assumptions."""
    costs = fit()
    rows = [
        _row(costs, edges, workers, share)
        for edges in MODEL_EDGES
        for workers in MODEL_WORKERS
        for share in HALO_SHARES
    ]
    head = (
        *("edges", "workers", "halo share", "GB received by a worker", "GB of memory of a worker, at most"),
        *("s computing", "s receiving", "s of scheduling", "s per pass"),
    )
    sizes = ", ".join(f"{n * DEGREE // 2:,}" for n in FITTED_NODES)
    return (
        f"A model, not a measurement. Fitted on `chebyshev` with {' and '.join(map(str, FITTED_WORKERS))} "
        f"workers of one machine, graphs of {sizes} edges: {costs.per_product * 1e9:.2g} ns of a worker's "
        f"CPU per entry and column, {costs.per_task * 1e3:.1f} ms per task, {costs.tasks:.0f} tasks per pass "
        f"and block; client and scheduler {costs.per_task_at_client * 1e3:.1f} ms per task (median error of "
        f"the fit {costs.misfit:.0%}). Assumed: mean degree {DEGREE}, weights of one, {COLUMNS} columns of "
        f"float32, {THREADS} threads per worker that compute as fast as one each, {NETWORK / 1e9:g} GB/s "
        "received by every worker at the same time, computing and receiving side by side, one task more per "
        "block for every other block where only a part of its rows travels, and a scheduler that takes as "
        "long per task with a thousand workers as with four.\n\n" + table(head, rows)
    )


def _row(costs: Costs, edges: float, workers: int, share: float) -> tuple[str, ...]:
    n_nodes = 2 * edges / DEGREE
    received = (workers - 1) / workers * 4 * COLUMNS * n_nodes * share
    block = 4 * 2 * edges / workers + 8 * n_nodes
    memory = block + MULTIVECTORS * 4 * COLUMNS * n_nodes / workers + received
    halos = workers - 1 if share < 1 else 0
    tasks = workers * (costs.tasks + halos)
    computing = 2 * edges / workers * COLUMNS * costs.per_product / THREADS
    computing += tasks / workers * costs.per_task
    scheduling = tasks * costs.per_task_at_client
    receiving = received / NETWORK
    cells = (received / 1e9, memory / 1e9, computing, receiving, scheduling)
    total = max(computing, receiving, scheduling)
    size = f"{edges:.0e}".replace("+", "")
    return size, f"{workers:,}", f"{share:.0%}", *(_short(cell) for cell in (*cells, total))


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
