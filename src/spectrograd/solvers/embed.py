"""One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify, escalate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import GOOD_ANGLE, LIKELY_MISS, Certificate, certify, supported_cut
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.subspace import Ritz, rayleigh_ritz
from spectrograd.inertia import count_below
from spectrograd.laplacian import Operator
from spectrograd.probe import Complement, look_outside
from spectrograd.solvers import REGISTRY, make_solver
from spectrograd.solvers.auto import Choice, plan
from spectrograd.solvers.loop import Hook, Solution, Stopping, solve
from spectrograd.solvers.protocol import Problem, Solver

Array = NDArray[Any]
AUTO_RESIDUAL = 1e-4  # for solvers that cannot judge their own angle


@dataclass(frozen=True)
class Settings:
    """How to solve, whatever the graph: the estimators' and commands' solver options in one value."""

    solver: str = "auto"
    params: Mapping[str, Any] = field(default_factory=dict)
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int | None = None
    seed: int | None = None
    engine: Engine = field(default_factory=LocalEngine)
    hooks: Sequence[Hook] = ()

    def __post_init__(self) -> None:
        if self.tol != "auto" and not (isinstance(self.tol, int | float) and self.tol >= 0):
            raise ValueError(f"tol={self.tol!r}: expected a number that is not negative, or 'auto'")

    @property
    def tolerance(self) -> float:
        """Residual asked for, relative to the width of the spectrum."""
        return AUTO_RESIDUAL if isinstance(self.tol, str) else float(self.tol)


@dataclass(frozen=True, eq=False)
class Embedded:
    """An embedding with the evidence and the story of how it was found; ``seconds`` is all of it."""

    embedding: Embedding
    certificate: Certificate
    solution: Solution
    choice: Choice
    seconds: float
    tried: tuple[Choice, ...] = ()


def embed(
    operator: Operator, n_components: int, settings: Settings, *, start: Array | None = None
) -> Embedded:
    """Embed an operator: the arrow ``Operator -> Embedding`` of the house.

    With ``solver="auto"`` the solvers of the plan are tried in order, each from where the last one
    stopped, until the certificate is met.
    """
    began = time.perf_counter()
    problem = Problem(operator, n_components, settings.engine, start)
    choices = plan(problem) if settings.solver == "auto" else (Choice(settings.solver, "asked for"),)
    tried: list[Choice] = []
    for choice in choices:
        left = _left(settings.time_budget, time.perf_counter() - began)
        tried.append(choice)
        result = certified(operator, _run(problem, choice.name, settings, left), settings, choice)
        interrupted = result.solution.stop_reason == "interrupted"
        if result.certificate.converged or left == 0 or interrupted:
            break
        problem = replace(problem, start=result.embedding.vectors)
    return replace(result, seconds=time.perf_counter() - began, tried=tuple(tried))


def certified(
    operator: Operator, solution: Solution, settings: Settings, choice: Choice | None = None
) -> Embedded:
    """The basis of a solution as an embedding with its certificate."""
    problem = Problem(operator, solution.Q.shape[1], settings.engine)
    ritz = rayleigh_ritz(settings.engine, operator, solution.Q)
    outside = _evidence(problem, ritz, solution, settings.seed)
    certificate = certify(settings.engine, operator, ritz, settings.tol, outside)
    embedding = arrange(ritz.Q, ritz.values, operator.graph.names)
    chosen = choice or Choice(solution.solver, "asked for")
    return Embedded(embedding, certificate, solution, chosen, solution.seconds, (chosen,))


def _run(problem: Problem, name: str, settings: Settings, time_budget: float | None) -> Solution:
    width = problem.operator.upper - problem.operator.lower
    solver = _configured(name, settings)
    judges_itself = bool(getattr(solver, "angle", 0))
    return solve(
        problem,
        solver,
        stopping=Stopping(settings.max_iter, 0.0 if judges_itself else settings.tolerance * width),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=time_budget,
    )


def _configured(name: str, settings: Settings) -> Solver:
    """The solver with the user's parameters, and the common ones where it has them."""
    solver = make_solver(name, **settings.params)
    known = {f.name for f in fields(solver)}  # type: ignore[arg-type]
    common: dict[str, Any] = {}
    if settings.batch_size is not None and "batch_size" in known - set(settings.params):
        common["batch_size"] = settings.batch_size
    if settings.tol == "auto" and "angle" in known - set(settings.params):
        common["angle"] = GOOD_ANGLE / 3  # the certificate measures against half the gap
    return replace(solver, **common)  # type: ignore[type-var]


def _evidence(problem: Problem, ritz: Ritz, solution: Solution, seed: int | None) -> Complement:
    """What lies beyond the subspace: the solver knows it, a count tells, or a probe finds out."""
    top, beyond = float(ritz.values[-1]), solution.beyond
    if beyond is not None and solution.complete:
        return Complement(beyond, complete=True)
    if beyond is not None and beyond > top and solution.solver == "shift-invert":
        tau = (top + beyond) / 2
        count = count_below(problem.operator, tau)
        if count is not None:
            return Complement(beyond if count == problem.n_components else top, complete=True)
    if solution.outside is not None and supported_cut(top, solution.outside)[1] <= LIKELY_MISS:
        return solution.outside
    rng = np.random.default_rng(seed)
    return look_outside(problem.engine, problem.operator, ritz, rng, beyond=beyond)


def _left(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def solver_names() -> tuple[str, ...]:
    """Every name that ``solver=`` accepts."""
    return ("auto", *REGISTRY)
