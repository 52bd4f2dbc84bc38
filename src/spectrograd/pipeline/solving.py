"""One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify, escalate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import unmeasured
from spectrograd.certificate.evidence import GOOD_ANGLE
from spectrograd.operators.balanced import balanced
from spectrograd.operators.protocol import Operator
from spectrograd.pipeline.certifying import FAILURES, certified
from spectrograd.pipeline.checkpoints import keep_result, kept_result
from spectrograd.pipeline.embedded import Attempt, Embedded, in_units
from spectrograd.pipeline.left_embedding import embedding_of
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
    solve,
)
from spectrograd.solvers.protocol import Problem, Progress, Solver
from spectrograd.solvers.settings import SolverSettings
from spectrograd.store.checkpoint_folder import CheckpointError
from spectrograd.store.value_file import DamagedFileError

Array = NDArray[Any]


class SolveError(ValueError):
    """Every solver of the plan failed; the message says how each of them did."""


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


def _tell(hook: Hook, unit: float, progress: Progress) -> None:
    hook(in_units(progress, unit))


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
            latest = _attempted(problem, choice, settings, left, len(attempts))
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
    latest = _attempted(problem, last_resort(problem), replace(settings, params={}), None, len(attempts))
    if isinstance(latest, Embedded):
        attempts.extend(latest.attempts)
        return latest
    told = "; ".join(f"{attempt.solver} {attempt.outcome}" for attempt in (*attempts, latest))
    raise SolveError(f"no solver could embed this graph: {told}")


def _attempted(
    problem: Problem, choice: Choice, settings: SolverSettings, time_budget: float | None, earlier: int
) -> Embedded | Attempt:
    """One solver's result with its certificate; or how it failed, which is an error if it was asked for.

    There were so many ``earlier`` attempts.
    """
    began = time.perf_counter()
    solver = _configured(choice, settings)  # wrong parameters are no failure of a solver
    kept = settings.next_checkpoint()
    found = kept_result(kept, problem)
    if found is not None:
        return found
    try:
        solution = _run(problem, solver, settings, time_budget, kept)
        if settings.solver == "auto":
            solution = _with_reason(solution, choice)
        found = _judged(problem.operator, solution, settings, choice, earlier)
        if kept is not None:
            keep_result(kept, problem, found)
        return found
    except (CheckpointError, DamagedFileError):  # no other solver would read another file
        raise
    except (*FAILURES, TypeError, AttributeError, LookupError) as error:
        blamed = None if kept is None else kept.blamed(error)
        if blamed is not None:  # numbers of a file: a state that fits in form may be none in fact
            raise blamed from error
        if not isinstance(error, FAILURES):
            raise
        if settings.solver != "auto":
            raise
        return Attempt.failed(choice, error, time.perf_counter() - began)


def _without_gap(operator: Operator, result: Embedded) -> bool:
    """Whether the K-th eigenvalue is seen to be the next one as well, or lies in a bulk: no solver helps."""
    if result.certificate.determined is not None:
        return True
    tiny = 1e-9 * (operator.upper - operator.lower)
    beyond, top = result.solution.evidence.beyond, float(result.embedding.eigenvalues[-1])
    return beyond is not None and result.certificate.max_residual < tiny and beyond - top < tiny


def choices_for(problem: Problem, settings: SolverSettings) -> tuple[Choice, ...]:
    """The plan of ``auto``, or the solver that was asked for."""
    asked = (Choice(settings.solver, "asked for"),)
    return plan(problem, settings.memory_limit) if settings.solver == "auto" else asked


def _judged(
    operator: Operator, solution: Solution, settings: SolverSettings, choice: Choice, earlier: int
) -> Embedded:
    """The solution with its certificate; one that was given up is not worth measuring."""
    if solution.stop_reason != GIVEN_UP:
        return certified(operator, solution, settings, choice, earlier=earlier)
    k = solution.Q.shape[1]
    certificate = unmeasured(np.full(k, np.nan), "given up for another problem")
    embedding = embedding_of(settings.engine, operator, solution.Q, certificate.eigenvalues)
    attempt = Attempt.of(choice, solution, certificate.sentence)
    return Embedded(embedding, certificate, solution, choice, solution.seconds, (attempt,))


def _with_reason(solution: Solution, choice: Choice) -> Solution:
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


def _left(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def solver_names() -> tuple[str, ...]:
    """Every name that ``solver=`` accepts."""
    return ("auto", *REGISTRY)
