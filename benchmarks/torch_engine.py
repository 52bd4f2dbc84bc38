"""The torch engine on its CPU device beside the local one, on block models of 20 edges per node.

Solves alternate between the two, so that whatever else a machine does meets both. Needs the extra `torch`.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from typing import Any, NamedTuple

from benchmarks.harness import table
from spectrograd import datasets
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.solvers import Problem, Stopping, make_solver, solve

K = 8
ENGINES = ("local", "torch:cpu")
CORES = os.cpu_count() or 1
# nodes, solver, its parameters, threads, rounds
CASES = (
    (100_000, "chebyshev", {}, 1, 2),
    (100_000, "lanczos", {}, 1, 2),
    (100_000, "sgd", {"epochs": 1}, 1, 1),
    (100_000, "chebyshev", {}, CORES, 2),
    (1_000_000, "chebyshev", {}, 1, 1),
    (1_000_000, "lanczos", {}, 1, 1),
)


class Cost(NamedTuple):
    """Seconds on the wall, and of all threads together."""

    wall: float
    processor: float


def run() -> str:
    _compile()
    operators: dict[int, Any] = {}
    rows = []
    for n_nodes, solver, params, threads, rounds in CASES:
        operators = {n_nodes: operators.get(n_nodes) or _operator(n_nodes)}  # one graph at a time
        local, device = _alternated(operators[n_nodes], make_solver(solver, **params), threads, rounds)
        seconds = (local.wall, device.wall, local.processor, device.processor)
        ratios = (device.wall / local.wall, device.processor / local.processor)
        rows.append((f"{n_nodes:,}", solver, threads, *(f"{x:.2f}" for x in (*seconds, *ratios))))
    head = (
        "nodes", "solver", "threads", "local s", "torch:cpu s", "local, processor s",
        "torch:cpu, processor s", "ratio", "ratio of processor s",
    )  # fmt: skip
    return (
        f"K = {K}, residual 1e-4 (`sgd`: one epoch), what is compiled is compiled, torch {version('torch')}; "
        f"load of the machine at the end: {os.getloadavg()[0]:.0f}.\n\n{table(head, rows)}"
    )


def _operator(n_nodes: int) -> Any:
    return regularized_laplacian(
        datasets.make_block_model(n_nodes, K, random_state=0).graph, "random_walk", 0.1
    )


def _compile() -> None:
    operator = _operator(20_000)
    for solver in ("chebyshev", "lanczos", "sgd"):
        _alternated(operator, make_solver(solver), 1, 1)


def _alternated(operator: Any, solver: Any, threads: int, rounds: int) -> list[Cost]:
    """The shortest run of each engine."""
    engines = [make_engine(name, n_jobs=threads) for name in ENGINES]
    costs = [[_cost(operator, solver, engine) for engine in engines] for _ in range(rounds)]
    return [min(of_engine) for of_engine in zip(*costs, strict=True)]


def _cost(operator: Any, solver: Any, engine: Any) -> Cost:
    problem = Problem(operator, K, engine)
    wall, processor = time.perf_counter(), time.process_time()
    solve(problem, solver, stopping=Stopping(tol=1e-4), seed=0)
    return Cost(time.perf_counter() - wall, time.process_time() - processor)


if __name__ == "__main__":
    print(run())
