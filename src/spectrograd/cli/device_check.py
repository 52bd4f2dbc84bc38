"""Does the torch engine work on this machine's device, and how long does it take: for whoever has a card."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from spectrograd import datasets, metrics
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.torch_engine import TorchEngine
from spectrograd.linalg.subspace import orthonormalize, rayleigh_ritz
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers import Problem, Stopping, make_solver, solve

SAME_SPAN = 1e-4  # sine of the angle between the subspaces of two engines, each solved to 1e-8
SMALL = 2_000
N_VECTORS = 4


class Check(NamedTuple):
    """One comparison with the host: ``error`` is what it found, at most ``allowed``."""

    name: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether the device agrees."""
        return bool(self.error <= self.allowed)


class Timing(NamedTuple):
    """Seconds of one solve on the host and on the device."""

    name: str
    n_nodes: int
    local: float
    device: float


def checks(engine: Engine) -> Iterator[Check]:
    """Every verb and solver of a device against the host's, on a small graph."""
    model = datasets.make_block_model(SMALL, N_VECTORS, random_state=0)
    operator = regularized_laplacian(model.graph, "random_walk", 0.1)
    rng = np.random.default_rng(0)
    rows, before = rng.standard_normal((2, SMALL, 5))
    placed = engine.load_operator(operator)
    X = engine.from_numpy(rows)
    Y = engine.from_numpy(before)
    product = operator @ rows
    yield _compared("product", engine.to_numpy(engine.apply(placed, X)), product)
    single = engine.to_numpy(engine.apply(placed, engine.astype(X, np.float32)))
    yield _compared("product in float32", single, product, 1e-5)
    mass = operator.metric[:, None]  # type: ignore[index]
    moved = engine.to_numpy(engine.recurrence(placed, X, Y, (0.5, -0.25, 2.0)))
    yield _compared("recurrence", moved, 0.5 * product / mass - 0.25 * rows + 2 * before)
    yield _compared("gram", engine.gram(X, Y, placed.metric), rows.T @ (mass * before))
    for name in ("lanczos", "chebyshev"):
        yield Check(name, _angle(operator, engine, name), SAME_SPAN)
    for name in ("sgd", "sgd-paper"):
        found = _labels(operator, engine, name)
        yield Check(f"{name} (1 - NMI)", 1 - metrics.score(model.labels, found)["nmi"], 0.05)


def timings(engine: Engine, n_nodes: int) -> Iterator[Timing]:
    """A solve on a block model of 20 edges per node, the second time each: what is compiled is compiled."""
    graph = datasets.make_block_model(n_nodes, 8, random_state=0).graph
    operator = regularized_laplacian(graph, "random_walk", 0.1)
    for name in ("chebyshev", "lanczos"):
        local, device = (_seconds(_solver(operator, place, name)) for place in (LocalEngine(), engine))
        yield Timing(name, n_nodes, local, device)


def report(device: str, n_nodes: int) -> tuple[str, bool]:
    """A block of text to paste, and whether all checks passed."""
    engine = TorchEngine(device.partition(":")[2] or None)
    torch = engine.torch
    card = engine.device.type == "cuda"
    lines = [
        f"spectrograd gpu-check: {device} on {platform.system()} {platform.machine()}",
        f"torch {torch.__version__}, device: {torch.cuda.get_device_name(engine.device) if card else 'CPU'}",
    ]
    found = list(checks(engine))
    lines += [
        f"{'ok  ' if check.passed else 'FAIL'} {check.name}: {check.error:.1e} (at most {check.allowed:.0e})"
        for check in found
    ]
    for t in timings(engine, n_nodes):
        lines.append(
            f"time {t.name}, {t.n_nodes:,} nodes: local {t.local:.2f} s, device {t.device:.2f} s "
            f"(ratio {t.device / t.local:.2f})"
        )
    if card:
        lines.append(
            f"most memory on the card: {torch.cuda.max_memory_allocated(engine.device) / 1e6:.0f} MB"
        )
    return "\n".join(lines), all(check.passed for check in found)


def _compared(name: str, found: object, expected: Any, allowed: float = 1e-11) -> Check:
    size = float(np.abs(expected).max())
    return Check(name, float(np.abs(found - expected).max()) / size, allowed)


def _angle(operator: SparseOperator, engine: Engine, name: str) -> float:
    """Sine of the largest angle between the subspaces found on the host and on the device."""
    spans = []
    for place in (LocalEngine(), engine):
        problem = Problem(operator, N_VECTORS, place)
        spans.append(place.to_numpy(solve(problem, make_solver(name), stopping=Stopping(tol=1e-8), seed=0).Q))
    local = LocalEngine()
    P, Q = (orthonormalize(local, span, operator.metric).Q for span in spans)
    rest = Q - P @ local.gram(P, Q, operator.metric)
    return float(np.sqrt(np.linalg.norm(local.gram(rest, rest, operator.metric), 2)))


def _labels(operator: SparseOperator, engine: Engine, name: str) -> Any:
    from spectrograd.labels import assign

    problem = Problem(operator, N_VECTORS, engine)
    params = {"step_size": 2e-3} if name == "sgd-paper" else {}
    solution = solve(problem, make_solver(name, **params), seed=0)
    rows = engine.to_numpy(rayleigh_ritz(engine, problem.engine_operator, solution.Q).Q)
    return assign(rows, N_VECTORS, unit_rows=True, norm_regularization=1.0, random_state=0).labels


def _solver(operator: SparseOperator, engine: Engine, name: str) -> Callable[[], object]:
    problem = Problem(operator, 8, engine)
    return lambda: solve(problem, make_solver(name), stopping=Stopping(tol=1e-4), seed=0)


def _seconds(run: Callable[[], object]) -> float:
    run()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
