"""One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify, escalate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import Certificate, certify, unmeasured
from spectrograd.certificate.evidence import GOOD_ANGLE, LIKELY_MISS, MOST_PART, Complement, needed_cut
from spectrograd.certificate.probe import look_outside
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines import Engine
from spectrograd.engines.threadpools import one_thread
from spectrograd.linalg.inertia import count_below
from spectrograd.linalg.subspace import Ritz, rayleigh_ritz, residuals
from spectrograd.operators.balanced import Balanced, balanced
from spectrograd.operators.protocol import Operator
from spectrograd.pipeline.plan import Choice, last_resort, plan
from spectrograd.solvers import REGISTRY, make_solver
from spectrograd.solvers.checkpoint import SolveCheckpoint
from spectrograd.solvers.loop import (
    GIVEN_UP,
    INTERRUPTED,
    OUT_OF_TIME,
    Hook,
    Solution,
    Stopping,
    after,
    solve,
)
from spectrograd.solvers.protocol import Problem, Progress, Solver
from spectrograd.solvers.settings import SolverSettings
from spectrograd.store.checkpoint_folder import CheckpointError

Array = NDArray[Any]
# What a solver may meet on a problem that is none of the user's making: the next one may do better.
FAILURES = (ValueError, ArithmeticError, MemoryError, RuntimeError, AssertionError)


# Nobody waits for a probe after Ctrl-C or when the time is over: anything may lie outside.
UNPROBED = Complement(float("nan"), sure=-np.inf)


class SolveError(ValueError):
    """Every solver of the plan failed; the message says how each of them did."""


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

    @classmethod
    def failed(cls, choice: Choice, error: Exception, seconds: float) -> Attempt:
        """The attempt of a solver that ended in an error, with that error as its outcome."""
        said = str(error).removeprefix(f"{choice.name}: ")
        return cls(choice.name, choice.reason, f"failed ({type(error).__name__}: {said})", 0, 0.0, seconds)


@dataclass(frozen=True, eq=False)
class Embedded:
    """An embedding with the evidence and the story of how it was found; ``seconds`` is all of it.

    ``solution.history`` runs through all ``attempts``; the last one that did not fail found the embedding.
    """

    embedding: Embedding
    certificate: Certificate
    solution: Solution
    choice: Choice
    seconds: float
    attempts: tuple[Attempt, ...] = ()

    def after(self, earlier: Solution, attempts: Sequence[Attempt] = ()) -> Embedded:
        """The same with what came before it: its history, and attempts."""
        joined = after(earlier, self.solution)
        return replace(self, solution=joined, attempts=(*attempts, *self.attempts))

    def interrupted(self) -> Embedded:
        """The same as the best that Ctrl-C left time for."""
        return replace(self, solution=replace(self.solution, stop_reason=INTERRUPTED))

    def left(self, fit: Balanced, engine: Engine) -> Embedded:
        """The same in the numbers of the operator that was given."""
        found, unit, run = self.embedding, fit.unit, self.solution
        history = tuple(_in_units(progress, unit) for progress in run.history)
        return replace(
            self,
            embedding=arrange(fit.leave(found.vectors), unit * found.eigenvalues, found.names),
            certificate=self.certificate.in_units(unit),
            solution=replace(
                run,
                Q=fit.leave_tall(engine, run.Q),
                history=history,
                evidence=run.evidence.in_units(unit),
            ),
        )


def embed(
    operator: Operator,
    n_components: int,
    settings: SolverSettings,
    *,
    start: Array | None = None,
    choices: Sequence[Choice] = (),
) -> Embedded:
    """Embed an operator: the arrow ``Operator -> Embedding`` of the house.

    With ``solver="auto"`` the solvers of the plan (or of ``choices``) are tried in order, each from
    where the last one stopped, until the certificate is met. One that fails is an attempt like the
    others, with its error as outcome; only where all of them fail is there an error. The scale of the
    weights plays no part.
    """
    fit = balanced(operator)
    if fit is None:
        return _embed(operator, n_components, settings, start, choices)
    settings = replace(
        settings,
        hooks=[partial(_tell, hook, fit.unit) for hook in settings.hooks],
        watch=settings.watch if fit.same_shape else None,  # it looks at vectors of the operator it knows
    )
    begin = None if start is None else fit.enter(start)
    return _embed(fit.operator, n_components, settings, begin, choices).left(fit, settings.engine)


def _in_units(progress: Progress, unit: float) -> Progress:
    return replace(progress, objective=unit * progress.objective, residual=unit * progress.residual)


def _tell(hook: Hook, unit: float, progress: Progress) -> None:
    hook(_in_units(progress, unit))


def _embed(
    operator: Operator,
    n_components: int,
    settings: SolverSettings,
    start: Array | None,
    choices: Sequence[Choice],
) -> Embedded:
    began = time.perf_counter()
    settings = (
        settings if settings.wrap is not None else settings.started()
    )  # scores of a comparison are free
    problem = Problem(operator, n_components, settings.engine, start)
    result: Embedded | None = None
    attempts: list[Attempt] = []
    for choice in choices or choices_for(problem, settings):
        left = _left(settings.time_budget, time.perf_counter() - began)
        try:
            latest = _attempted(problem, choice, settings, left)
        except KeyboardInterrupt:
            if result is None:
                raise
            result = result.interrupted()
            break
        if isinstance(latest, Attempt):
            attempts.append(latest)
            continue
        attempts.extend(latest.attempts)
        result = latest if result is None else latest.after(result.solution)
        stopped = latest.solution.stop_reason in (INTERRUPTED, GIVEN_UP, OUT_OF_TIME)
        stopped = stopped or left == 0 or time.perf_counter() >= settings.deadline
        if result.certificate.converged or stopped or _without_gap(operator, latest):
            break
        problem = replace(problem, start=result.embedding.vectors)
    if result is None:
        result = _resorted(problem, settings, attempts)
    return replace(result, attempts=tuple(attempts), seconds=time.perf_counter() - began)


def _resorted(problem: Problem, settings: SolverSettings, attempts: list[Attempt]) -> Embedded:
    """Mutates attempts: one more solver where all of the plan have failed, and an error where it does too."""
    latest = _attempted(problem, last_resort(problem), replace(settings, params={}), None)
    if isinstance(latest, Embedded):
        attempts.extend(latest.attempts)
        return latest
    told = "; ".join(f"{attempt.solver} {attempt.outcome}" for attempt in (*attempts, latest))
    raise SolveError(f"no solver could embed this graph: {told}")


def _attempted(
    problem: Problem, choice: Choice, settings: SolverSettings, time_budget: float | None
) -> Embedded | Attempt:
    """One solver's result with its certificate; or how it failed, which is an error if it was asked for."""
    began = time.perf_counter()
    solver = _configured(choice, settings)  # wrong parameters are no failure of a solver
    kept = settings.next_checkpoint()
    found = None if kept is None else kept_result(kept, problem)
    if found is not None:
        return found
    try:
        solution = _run(problem, solver, settings, time_budget, kept)
        if settings.solver == "auto":
            solution = told(solution, choice)
        found = _judged(problem.operator, solution, settings, choice)
        if kept is not None:
            keep_result(kept, problem, found)
        return found
    except CheckpointError:
        raise
    except FAILURES as error:
        if settings.solver != "auto":
            raise
        return Attempt.failed(choice, error, time.perf_counter() - began)


def _without_gap(operator: Operator, result: Embedded) -> bool:
    """Whether the K-th eigenvalue is seen to be the next one as well: no solver can tell them apart."""
    tiny = 1e-9 * (operator.upper - operator.lower)
    beyond, top = result.solution.evidence.beyond, float(result.embedding.eigenvalues[-1])
    return beyond is not None and result.certificate.max_residual < tiny and beyond - top < tiny


def choices_for(problem: Problem, settings: SolverSettings) -> tuple[Choice, ...]:
    """The plan of ``auto``, or the solver that was asked for."""
    return plan(problem) if settings.solver == "auto" else (Choice(settings.solver, "asked for"),)


def _judged(operator: Operator, solution: Solution, settings: SolverSettings, choice: Choice) -> Embedded:
    """The solution with its certificate; one that was given up is not worth measuring."""
    if solution.stop_reason != GIVEN_UP:
        return certified(operator, solution, settings, choice)
    k = solution.Q.shape[1]
    certificate = unmeasured(np.full(k, np.nan), "given up for another problem")
    embedding = Embedding(settings.engine.rows(solution.Q), certificate.eigenvalues, operator.names)
    attempt = Attempt.of(choice, solution, certificate.sentence)
    return Embedded(embedding, certificate, solution, choice, solution.seconds, (attempt,))


def certified(
    operator: Operator, solution: Solution, settings: SolverSettings, choice: Choice | None = None
) -> Embedded:
    """The basis of a solution as an embedding with its certificate."""
    fit = balanced(operator)
    if fit is not None:
        engine = settings.engine
        known = solution.evidence.in_units(1 / fit.unit)
        inside = replace(solution, Q=fit.enter_tall(engine, solution.Q), evidence=known)
        found = certified(fit.operator, inside, settings, choice).left(fit, engine)
        return replace(found, solution=replace(found.solution, history=solution.history))
    with settings.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        return _certified(operator, solution, settings, choice)


def _certified(
    operator: Operator, solution: Solution, settings: SolverSettings, choice: Choice | None
) -> Embedded:
    engine = settings.engine
    problem = Problem(operator, solution.Q.shape[1], engine)
    placed = problem.placed
    ritz = rayleigh_ritz(engine, placed, solution.Q)
    measured = residuals(engine, placed, ritz) + operator.rounding(ritz.Q.dtype)
    if not (np.isfinite(ritz.values).all() and np.isfinite(measured).all()):
        raise FloatingPointError("the vectors left the range of numbers")
    try:
        outside = _evidence(problem, ritz, solution, float(np.linalg.norm(measured)), settings.seed)
        certificate = certify(engine, operator, ritz, settings.tol, outside, measured)
    except KeyboardInterrupt:
        solution = replace(solution, stop_reason=INTERRUPTED)
        certificate = certify(engine, operator, ritz, settings.tol, UNPROBED, measured)
    except FAILURES as error:  # good vectors are worth keeping, but nobody vouches for them
        certificate = unmeasured(ritz.values, f"the certificate failed ({type(error).__name__}: {error})")
    embedding = arrange(engine.rows(ritz.Q), ritz.values, operator.names)
    chosen = choice or Choice(solution.solver, "asked for")
    attempt = Attempt.of(chosen, solution, certificate.sentence)
    return Embedded(embedding, certificate, solution, chosen, solution.seconds, (attempt,))


def keep_result(kept: SolveCheckpoint, problem: Problem, found: Embedded) -> None:
    """Keep what a solve has found for a run that is repeated; what was cut short is to go on instead."""
    if found.solution.stop_reason not in (INTERRUPTED, GIVEN_UP, OUT_OF_TIME):
        kept.finish(problem, replace(found, embedding=replace(found.embedding, names=None)))


def kept_result(kept: SolveCheckpoint, problem: Problem) -> Embedded | None:
    """What :func:`keep_result` has kept."""
    found: Embedded | None = kept.result(problem)
    if found is None:
        return None
    return replace(found, embedding=replace(found.embedding, names=problem.operator.names))


def told(solution: Solution, choice: Choice) -> Solution:
    """The choice of ``auto`` and its reason as the first event of the history."""
    first, *rest = solution.history
    event = f"auto picked {choice.name}: {choice.reason}"
    return replace(solution, history=(replace(first, events=(event, *first.events)), *rest))


def _run(
    problem: Problem,
    solver: Solver[Any],
    settings: SolverSettings,
    time_budget: float | None,
    kept: SolveCheckpoint | None,
) -> Solution:
    width = problem.operator.upper - problem.operator.lower
    return solve(
        problem,
        solver if settings.wrap is None else settings.wrap(solver),
        stopping=Stopping(
            tol=0.0 if solver.judges_itself else settings.tolerance * width, deadline=settings.deadline
        ),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=time_budget,
        watch=settings.watch,
        checkpoint=kept,
    )


def _configured(choice: Choice, settings: SolverSettings) -> Solver[Any]:
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
    if settings.max_iter is not None:
        common["max_iter"] = settings.max_iter
    return replace(solver, **common)  # type: ignore[type-var]


def _evidence(problem: Problem, ritz: Ritz, solution: Solution, error: float, seed: int | None) -> Complement:
    """What lies beyond the subspace: the solver knows it, a count tells, or a probe finds out."""
    known = solution.evidence
    top, beyond, outside = float(ritz.values[-1]), known.beyond, known.outside
    if beyond is not None and known.complete:
        return Complement(beyond)
    if outside is not None and outside.odds_below(needed_cut(top, outside.lowest, error)) <= LIKELY_MISS:
        return outside
    if solution.stop_reason in (INTERRUPTED, OUT_OF_TIME):
        return UNPROBED
    if beyond is not None and beyond > top and known.countable:
        sure = top + (MOST_PART + 0.01) * (beyond - top)
        count = count_below(problem.sparse, sure)
        if count is not None:
            return Complement(beyond if count == problem.n_components else top, sure=sure)
    rng = np.random.default_rng(None if seed is None else (seed, 1))  # not what the solver started from
    look = partial(look_outside, problem.engine, problem.operator, ritz, rng, residual=error)
    return look(beyond=beyond, guards=known.guards)


def _left(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def solver_names() -> tuple[str, ...]:
    """Every name that ``solver=`` accepts."""
    return ("auto", *REGISTRY)
