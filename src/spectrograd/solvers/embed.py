"""One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify, escalate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import Certificate, certify, unmeasured
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.subspace import Ritz, rayleigh_ritz, residuals
from spectrograd.engines.threadpools import one_thread
from spectrograd.evidence import GOOD_ANGLE, LIKELY_MISS, MOST_PART, Complement, needed_cut
from spectrograd.inertia import count_below
from spectrograd.laplacian import Operator
from spectrograd.probe import look_outside
from spectrograd.solvers import REGISTRY, make_solver
from spectrograd.solvers.auto import Choice, plan
from spectrograd.solvers.loop import GIVEN_UP, Hook, Solution, Stopping, Watch, after, solve
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
    watch: Watch | None = None

    def __post_init__(self) -> None:
        if self.tol != "auto" and not (isinstance(self.tol, int | float) and self.tol >= 0):
            raise ValueError(f"tol={self.tol!r}: expected a number that is not negative, or 'auto'")

    @property
    def tolerance(self) -> float:
        """Residual asked for, relative to the width of the spectrum."""
        return AUTO_RESIDUAL if isinstance(self.tol, str) else float(self.tol)


@dataclass(frozen=True)
class Attempt:
    """One solver's turn: why it was picked, what it cost and how it ended."""

    solver: str
    reason: str
    outcome: str
    iterations: int
    passes: float
    seconds: float

    @classmethod
    def of(cls, choice: Choice, solution: Solution, outcome: str) -> Attempt:
        """The attempt behind a solution."""
        last = solution.last
        return cls(choice.name, choice.reason, outcome, last.iteration, last.passes, solution.seconds)


@dataclass(frozen=True, eq=False)
class Embedded:
    """An embedding with the evidence and the story of how it was found; ``seconds`` is all of it.

    ``solution.history`` runs through all ``attempts``, the last of which found the embedding.
    """

    embedding: Embedding
    certificate: Certificate
    solution: Solution
    choice: Choice
    seconds: float
    attempts: tuple[Attempt, ...] = ()

    def after(self, attempts: Sequence[Attempt], earlier: Solution) -> Embedded:
        """The same with what came before it: attempts, and their history."""
        joined = after(earlier, self.solution)
        return replace(self, solution=joined, attempts=(*attempts, *self.attempts))


def embed(
    operator: Operator,
    n_components: int,
    settings: Settings,
    *,
    start: Array | None = None,
    choices: Sequence[Choice] = (),
) -> Embedded:
    """Embed an operator: the arrow ``Operator -> Embedding`` of the house.

    With ``solver="auto"`` the solvers of the plan (or of ``choices``) are tried in order, each from
    where the last one stopped, until the certificate is met.
    """
    began = time.perf_counter()
    problem = Problem(operator, n_components, settings.engine, start)
    result: Embedded | None = None
    for choice in choices or choices_for(problem, settings):
        left = _left(settings.time_budget, time.perf_counter() - began)
        solution = _run(problem, choice, settings, left)
        if settings.solver == "auto":
            solution = told(solution, choice)
        latest = _judged(operator, solution, settings, choice)
        result = latest if result is None else latest.after(result.attempts, result.solution)
        stopped = solution.stop_reason in ("interrupted", GIVEN_UP)
        if result.certificate.converged or left == 0 or stopped or _without_gap(operator, latest):
            break
        problem = replace(problem, start=result.embedding.vectors)
    assert result is not None
    return replace(result, seconds=time.perf_counter() - began)


def _without_gap(operator: Operator, result: Embedded) -> bool:
    """Whether the K-th eigenvalue is seen to be the next one as well: no solver can tell them apart."""
    tiny = 1e-9 * (operator.upper - operator.lower)
    beyond, top = result.solution.beyond, float(result.embedding.eigenvalues[-1])
    return beyond is not None and result.certificate.max_residual < tiny and beyond - top < tiny


def choices_for(problem: Problem, settings: Settings) -> tuple[Choice, ...]:
    """The plan of ``auto``, or the solver that was asked for."""
    return plan(problem) if settings.solver == "auto" else (Choice(settings.solver, "asked for"),)


def _judged(operator: Operator, solution: Solution, settings: Settings, choice: Choice) -> Embedded:
    """The solution with its certificate; one that was given up is not worth measuring."""
    if solution.stop_reason != GIVEN_UP:
        return certified(operator, solution, settings, choice)
    k = solution.Q.shape[1]
    certificate = unmeasured(np.full(k, np.nan), "given up for another problem")
    embedding = Embedding(solution.Q, certificate.eigenvalues, operator.graph.names)
    attempt = Attempt.of(choice, solution, certificate.sentence)
    return Embedded(embedding, certificate, solution, choice, solution.seconds, (attempt,))


def certified(
    operator: Operator, solution: Solution, settings: Settings, choice: Choice | None = None
) -> Embedded:
    """The basis of a solution as an embedding with its certificate."""
    with settings.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        return _certified(operator, solution, settings, choice)


def _certified(operator: Operator, solution: Solution, settings: Settings, choice: Choice | None) -> Embedded:
    problem = Problem(operator, solution.Q.shape[1], settings.engine)
    ritz = rayleigh_ritz(settings.engine, operator, solution.Q)
    measured = residuals(settings.engine, operator, ritz)
    outside = _evidence(problem, ritz, solution, float(np.linalg.norm(measured)), settings.seed)
    certificate = certify(settings.engine, operator, ritz, settings.tol, outside, measured)
    embedding = arrange(ritz.Q, ritz.values, operator.graph.names)
    chosen = choice or Choice(solution.solver, "asked for")
    attempt = Attempt.of(chosen, solution, certificate.sentence)
    return Embedded(embedding, certificate, solution, chosen, solution.seconds, (attempt,))


def told(solution: Solution, choice: Choice) -> Solution:
    """The choice of ``auto`` and its reason as the first event of the history."""
    first, *rest = solution.history
    event = f"auto picked {choice.name}: {choice.reason}"
    return replace(solution, history=(replace(first, events=(event, *first.events)), *rest))


def _run(problem: Problem, choice: Choice, settings: Settings, time_budget: float | None) -> Solution:
    width = problem.operator.upper - problem.operator.lower
    solver = _configured(choice, settings)
    judges_itself = bool(getattr(solver, "angle", 0))
    return solve(
        problem,
        solver,
        stopping=Stopping(settings.max_iter, 0.0 if judges_itself else settings.tolerance * width),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=time_budget,
        watch=settings.watch,
    )


def _configured(choice: Choice, settings: Settings) -> Solver:
    """The solver with the parameters of the choice or of the user, and the common ones where it has them."""
    solver = make_solver(choice.name, **{**dict(choice.params), **settings.params})
    known = {f.name for f in fields(solver)}  # type: ignore[arg-type]
    common: dict[str, Any] = {}
    if settings.batch_size is not None and "batch_size" in known - set(settings.params):
        common["batch_size"] = settings.batch_size
    if settings.tol == "auto" and "angle" in known - set(settings.params):
        common["angle"] = GOOD_ANGLE / 3  # the certificate measures against half the gap
    if settings.tol != "auto" and "hand_over" in known - set(settings.params):
        common["hand_over"] = True  # the solver's own epochs promise no accuracy; somebody asked for one
    return replace(solver, **common)  # type: ignore[type-var]


def _evidence(problem: Problem, ritz: Ritz, solution: Solution, error: float, seed: int | None) -> Complement:
    """What lies beyond the subspace: the solver knows it, a count tells, or a probe finds out."""
    top, beyond, outside = float(ritz.values[-1]), solution.beyond, solution.outside
    if beyond is not None and solution.complete:
        return Complement(beyond)
    if outside is not None and outside.odds_below(needed_cut(top, outside.lowest, error)) <= LIKELY_MISS:
        return outside
    if beyond is not None and beyond > top and solution.solver == "shift-invert":
        sure = top + (MOST_PART + 0.01) * (beyond - top)
        count = count_below(problem.operator, sure)
        if count is not None:
            return Complement(beyond if count == problem.n_components else top, sure=sure)
    rng = np.random.default_rng(None if seed is None else (seed, 1))  # not what the solver started from
    look = partial(look_outside, problem.engine, problem.operator, ritz, rng, residual=error)
    return look(beyond=beyond, guards=solution.guards)


def _left(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def solver_names() -> tuple[str, ...]:
    """Every name that ``solver=`` accepts."""
    return ("auto", *REGISTRY)
