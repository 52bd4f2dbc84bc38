"""From the basis that a solver found to an embedding with its certificate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial

import numpy as np

from spectrograd.certificate import Certificate, certify, unmeasured_certificate
from spectrograd.certificate.certificate import (
    GOOD_ANGLE,
    MAX_GAP_FRACTION,
    MAX_MISS_ODDS,
    ComplementBound,
    before_the_bulk,
    certificate_of_leading,
    mixed_certificate,
    needed_cut,
    sine_bound,
)
from spectrograd.certificate.edge_insertion import EdgeInsertionBound
from spectrograd.certificate.lanczos_probe import Evidence, Guards, MeasuredRitz, run_lanczos_probe
from spectrograd.engines.base import Engine
from spectrograd.linalg.ldl import count_below
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.base import Operator
from spectrograd.operators.equilibration import equilibrate
from spectrograd.pipeline.checkpoints import load_result, save_result
from spectrograd.pipeline.localization_look import SpectrumLook
from spectrograd.pipeline.memory_estimate import columns_of_certificate, max_columns
from spectrograd.pipeline.null_vector import (
    deflated_rayleigh_ritz,
    insert_null_vector,
    measure_pairs,
    normalize_null,
)
from spectrograd.pipeline.plan import PlannedSolver, choices_for, last_resort, plan_after
from spectrograd.pipeline.result import Attempt, CertifiedEmbedding, embedding_of, in_units
from spectrograd.serialization.checkpoint_folder import CheckpointError
from spectrograd.serialization.codec import DamagedFileError
from spectrograd.solvers import choose_variant, make_solver, rename_parameters
from spectrograd.solvers.base import Problem, Progress, Solver, State
from spectrograd.solvers.checkpoint import SolveCheckpoint
from spectrograd.solvers.loop import (
    GIVEN_UP,
    INTERRUPTED,
    OUT_OF_TIME,
    Hook,
    Solution,
    Stopping,
    run_loop,
)
from spectrograd.solvers.settings import RunContext, SolverSettings
from spectrograd.system import one_thread
from spectrograd.typing import Array

# What a solver may meet on a problem that is none of the user's making: the next one may do better.
FAILURES = (ValueError, ArithmeticError, MemoryError, RuntimeError, AssertionError)


# Nobody waits for a probe after Ctrl-C or when the time is over: anything may lie outside.
UNPROBED = ComplementBound(float("nan"), complete_below=-np.inf)


CERTIFICATE_OUT_OF_TIME = "not certified, out of time"  # a run that is repeated measures it again


def certify_solution(
    operator: Operator,
    solution: Solution,
    settings: SolverSettings,
    context: RunContext | None = None,
    *,
    earlier: int = 0,
    null: Array | None = None,
) -> CertifiedEmbedding:
    """The basis of a solution as an embedding with its certificate.

    So many ``earlier`` attempts were probed in vain. ``null`` (N) is a null vector that is known of the
    operator; None: what it knows itself.
    """
    context = context or RunContext()
    null = operator.null_vector if null is None else null
    fit = equilibrate(operator)
    if fit is not None:
        engine = context.engine
        known = solution.evidence.in_units(1 / fit.unit)
        inside = replace(solution, Q=fit.transform_multivector(engine, solution.Q), evidence=known)
        entered = None if null is None else fit.transform(null[:, None])[:, 0]
        found = certify_solution(fit.operator, inside, settings, context, earlier=earlier, null=entered)
        return replace(found.left(fit, engine), history=solution.history)
    with context.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        return _certify(operator, solution, settings, context, earlier, normalize_null(operator, null))


def certify_first_columns(
    operator: Operator,
    wide: CertifiedEmbedding,
    k: int,
    settings: SolverSettings,
    context: RunContext | None = None,
) -> CertifiedEmbedding:
    """The first k columns of an embedding with a certificate of their own, by the columns after them."""
    context = context or RunContext()
    evidence = _evidence_of_first(wide, k, context.engine)
    first = context.engine.columns(wide.Q, slice(k))
    solution = replace(wide.as_solution(), Q=first, evidence=evidence)
    found = certify_solution(operator, solution, settings, context)
    return replace(found, total_seconds=wide.total_seconds, attempts=wide.attempts)


def _evidence_of_first(wide: CertifiedEmbedding, k: int, engine: Engine) -> Evidence:
    """What m Ritz pairs and their certificate tell of the first k of them.

    Nothing of what the solver knew of the rest of the spectrum holds: it spoke of what lies beyond all m. The
    pairs after the k-th, of residual r together, serve instead. To them belong m - k eigenvalues within r
    (Kahan; Parlett 1998, Theorem 11.5.1). If those lie below ``complete_below``, where there are m at most,
    no more than k are left below ``theta_k+1 - r``: this takes no product. Else the pairs are guards of a
    probe.
    """
    values = wide.embedding.eigenvalues
    known = wide.certificate
    beyond = float(values[k])
    Q = wide.Q
    solver = wide.evidence
    rest = float(np.linalg.norm(known.residuals[k:]))
    if not solver.complete and beyond - rest > values[k - 1] and values[-1] + rest < known.complete_below:
        odds = (
            0.0 if known.missed_probability == 0 else MAX_MISS_ODDS
        )  # at which ``complete_below`` was read off
        pairs = Ritz(values[:k], engine.columns(Q, slice(k)), None)
        last = MeasuredRitz(pairs, known.residuals[:k] - known.rounding, known.rounding)
        return Evidence(
            beyond, complement_bound=EdgeInsertionBound(beyond, 0, beyond - rest, odds), last=last
        )
    guards = Guards(engine.columns(Q, slice(k, None)), values[k:], known.residuals[k:])
    return Evidence(beyond, solver.complete, solver.countable, guards)


def _certify(
    operator: Operator,
    solution: Solution,
    settings: SolverSettings,
    context: RunContext,
    earlier: int,
    null: Array | None,
) -> CertifiedEmbedding:
    engine = context.engine
    columns = None if engine.is_distributed else max_columns(operator, settings.memory_limit)
    problem = Problem(operator, solution.Q.shape[1], engine, max_columns=columns)
    # 1. Without a pass, where the last product of the solver and its probe will do.
    known = _certify_by_last_product(problem, solution, settings, null)
    if known is not None:
        return _with_certificate(problem, solution, *known)
    # 2. Ritz pairs and their residuals in B^-1, with the known null vector exact.
    ritz, measured, rounding, guards = measure_pairs(problem, solution, settings, null)
    solution = replace(solution, evidence=replace(solution.evidence, guards=guards, pairs=None))
    if not (np.isfinite(ritz.values).all() and np.isfinite(measured).all()):
        raise FloatingPointError("the vectors left the range of numbers")
    try:
        # 3. Where K cuts through a bulk: the vectors before it.
        leading = _certify_before_bulk(
            problem, ritz, solution, measured, settings, context, rounding, earlier
        )
        if leading is not None:
            return _with_certificate(problem, solution, ritz, leading)
        # 4. A bound on the rest of the spectrum, and with it the angle.
        complement_bound = _bound_complement(
            problem, ritz, solution, measured, rounding, settings, context, earlier
        )
        cast = _sine_of_output_rounding(problem)
        certificate = certify(
            engine, operator, ritz, settings.tol, complement_bound, measured, rounding, cast
        )
        certificate = _object_out_of_time(certificate, solution, context)
    except KeyboardInterrupt:
        solution = replace(solution, stop_reason=INTERRUPTED)
        certificate = certify(engine, operator, ritz, settings.tol, UNPROBED, measured, rounding)
    except FAILURES as error:  # good vectors are worth keeping, but nobody vouches for them
        certificate = unmeasured_certificate(
            ritz.values, f"the certificate failed ({type(error).__name__}: {error})"
        )
    return _with_certificate(problem, solution, ritz, certificate)


def _certify_before_bulk(
    problem: Problem,
    ritz: Ritz,
    solution: Solution,
    measured: Array,
    settings: SolverSettings,
    context: RunContext,
    rounding: float,
    earlier: int,
) -> Certificate | None:
    """The certificate where K cuts through a bulk: of the vectors before it, the others as their guards."""
    known = solution.evidence
    k = problem.n_components
    if not isinstance(settings.tol, str) or known.beyond is None or known.complete or known.guards is None:
        return None
    first = before_the_bulk(np.append(ritz.values, known.beyond), k)
    half_way = (1 - MAX_GAP_FRACTION) * float(ritz.values[-1]) + MAX_GAP_FRACTION * known.beyond
    if first is None or sine_bound(ritz.values, measured, half_way) <= GOOD_ANGLE:
        return None
    engine = problem.engine
    inside = Ritz(ritz.values[:first], engine.columns(ritz.Q, slice(first)), None)
    rest = engine.columns(ritz.Q, slice(first, None))
    guards = Guards(rest, ritz.values[first:], measured[first:])
    evidence = Evidence(float(ritz.values[first]), guards=guards)
    part = replace(solution, Q=inside.Q, evidence=evidence)
    alone = replace(problem, n_components=first)
    error = measured[:first]
    complement_bound = _bound_complement(alone, inside, part, error, rounding, settings, context, earlier)
    found = certify(engine, problem.operator, inside, settings.tol, complement_bound, error, rounding)
    return certificate_of_leading(found, ritz, measured, known.beyond) if found.converged else None


def _certify_by_last_product(
    problem: Problem, solution: Solution, settings: SolverSettings, null: Array | None
) -> tuple[Ritz, Certificate] | None:
    """Ritz pairs and certificate without a pass, where the solver's last product and its probe will do."""
    last = solution.evidence.last
    complement_bound = solution.evidence.complement_bound
    if last is None or complement_bound is None:
        return None
    last = last if null is None else insert_null_vector(problem, last, null)
    rest = (complement_bound, last.residuals + last.rounding, last.rounding)
    certificate = certify(
        problem.engine,
        problem.operator,
        last.ritz,
        settings.tol,
        *rest,
        cast=_sine_of_output_rounding(problem),
    )
    return (last.ritz, certificate) if certificate.converged else None


def _sine_of_output_rounding(problem: Problem) -> float:
    """The sine by which the vectors of a graph on disk turn when they are returned in float32.

    Every entry moves by half a unit of its last digit at most, so each of K unit columns by half an eps.
    """
    eps = float(np.finfo(np.float32).eps)
    return eps * float(np.sqrt(problem.n_components)) if problem.operator.is_streamed else 0.0


def _with_certificate(
    problem: Problem, solution: Solution, ritz: Ritz, certificate: Certificate
) -> CertifiedEmbedding:
    """The solution as an embedding, with what is known of it; in float64 unless the graph is on disk."""
    engine = problem.engine
    Q = ritz.Q if problem.operator.is_streamed else engine.astype(ritz.Q, np.float64)
    embedding = embedding_of(engine, problem.operator, Q, ritz.values)
    return CertifiedEmbedding.of(replace(solution, Q=Q), embedding, certificate)


def _object_out_of_time(certificate: Certificate, solution: Solution, context: RunContext) -> Certificate:
    """The certificate; where the time was over before it could be met, that is why it is not."""
    late = solution.stop_reason == OUT_OF_TIME or time.perf_counter() >= context.certified_by
    if certificate.converged or certificate.objection or not late:
        return certificate
    return replace(certificate, objection=CERTIFICATE_OUT_OF_TIME)


def _bound_complement(
    problem: Problem,
    ritz: Ritz,
    solution: Solution,
    measured: Array,
    rounding: float,
    settings: SolverSettings,
    context: RunContext,
    earlier: int,
) -> ComplementBound:
    """What lies beyond the subspace: the solver knows it, a count tells, or a probe finds out."""
    known = solution.evidence
    top = float(ritz.values[-1])
    beyond = known.beyond
    complement_bound = known.complement_bound
    # 1. A dense solver knows the whole spectrum.
    if beyond is not None and known.complete:
        return ComplementBound(beyond)
    if (
        complement_bound is not None
        and complement_bound.odds_below(needed_cut(ritz.values, complement_bound.lowest, measured))
        <= MAX_MISS_ODDS
    ):
        return complement_bound
    # 2. Nobody waits for a probe when the time is over.
    late = time.perf_counter() >= context.certified_by
    if late or solution.stop_reason in (INTERRUPTED, OUT_OF_TIME):
        return UNPROBED
    # 3. Sylvester's law of inertia: a factorisation counts the eigenvalues below a cut.
    if beyond is not None and beyond > top and known.countable:
        # A little above the part of the gap that the certificate asks for: the cut itself is rounded.
        complete_below = top + (MAX_GAP_FRACTION + 0.01) * (beyond - top)
        count = count_below(problem.sparse, complete_below, problem.engine.thresholds)
        if count is not None:
            return ComplementBound(
                beyond if count == problem.n_components else top, complete_below=complete_below
            )
    # 4. A Lanczos probe of random vectors in the complement, which holds a copy of the vectors.
    if columns_of_certificate(problem) is not None:
        return UNPROBED if complement_bound is None else complement_bound
    seed = settings.seed
    until = context.certified_by
    rng = np.random.default_rng(None if seed is None else (seed, 1))  # not what the solver started from
    looks = 2.0 ** (earlier + 1)  # a half of the level for the first attempt, a quarter for the second, ...
    look = partial(
        run_lanczos_probe, problem.engine, problem.operator, ritz, rng, residuals=measured, deadline=until
    )
    return look(beyond=beyond, guards=known.guards, rounding=rounding, looks=looks)


# --- One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify, escalate.


class SolveError(ValueError):
    """Every solver of the plan failed; the message says how each of them did."""


def embed(
    operator: Operator,
    n_components: int,
    settings: SolverSettings,
    context: RunContext | None = None,
    *,
    start: Array | None = None,
    choices: Sequence[PlannedSolver] = (),
    look: SpectrumLook | None = None,
) -> CertifiedEmbedding:
    """Embed an operator: the step ``Operator -> CertifiedEmbedding`` of the pipeline.

    With ``solver="auto"`` the solvers of the plan (or of ``choices``) are tried in order, each from
    where the last one stopped, until the certificate is met. One that fails is an attempt like the
    others, with its error as outcome; only where all of them fail is there an error. The scale of the
    weights plays no part. The plan goes on with a ``look`` at the equilibrated operator.
    """
    context = context or RunContext()
    fit = equilibrate(operator)
    if fit is None:
        return _embed(operator, n_components, settings, context, start, choices, look)
    inside = replace(
        context,
        hooks=[partial(_report, hook, fit.unit) for hook in context.hooks],
        watch=context.watch if fit.is_uniform else None,  # it looks at vectors of the operator it knows
    )
    begin = None if start is None else fit.transform(start)
    found = _embed(fit.operator, n_components, settings, inside, begin, choices, look)
    return found.left(fit, context.engine)


def _report(hook: Hook, unit: float, progress: Progress) -> None:
    hook(in_units(progress, unit))


def _embed(
    operator: Operator,
    n_components: int,
    settings: SolverSettings,
    context: RunContext,
    start: Array | None,
    choices: Sequence[PlannedSolver],
    look: SpectrumLook | None,
) -> CertifiedEmbedding:
    began = time.perf_counter()
    context = context.start_clock(settings)
    columns = None if context.engine.is_distributed else max_columns(operator, settings.memory_limit)
    problem = Problem(operator, n_components, context.engine, start, max_columns=columns)
    result: CertifiedEmbedding | None = None
    attempts: list[Attempt] = []
    basis = None if look is None else look.take_basis()
    pending = list(choices or choices_for(replace(problem, basis=basis), settings))
    del basis  # large: whoever goes on with it has it now
    while pending:
        # 1. The next solver of the plan, from where the last one stopped, with the time that is left.
        # A basis that the plan begins it with is the solver's own: nobody else keeps it.
        choice = pending.pop(0)
        problem = replace(problem, basis=choice.basis)
        choice = choice._replace(basis=None)
        left = _remaining(context.solver_seconds, time.perf_counter() - began)
        try:
            latest = _attempt(problem, choice, settings, context, left, len(attempts))
        except KeyboardInterrupt:
            if result is None:
                raise
            result = replace(result, stop_reason=INTERRUPTED)
            break
        if isinstance(latest, Attempt):
            attempts.append(latest)
            if choice.by_size:
                pending = plan_after(choice, problem, settings.memory_limit)
            continue
        # 2. Join the attempts.
        attempts.extend(latest.attempts)
        result = latest if result is None else latest.after(result)
        # 3. Stop? Certified, interrupted, out of time, or no solver can help.
        stopped = latest.stop_reason in (INTERRUPTED, GIVEN_UP, OUT_OF_TIME)
        stopped = stopped or not context.certifies or left == 0 or time.perf_counter() >= context.deadline
        stopped = stopped or latest.certificate.mixed is not None  # fewer columns than another solver needs
        if result.certificate.converged or stopped or _lacks_gap(operator, latest):
            break
        # Localised vectors call for another problem: no further solver for this one.
        if context.watch is not None and context.watch(latest.Q):
            break
        problem = replace(problem, start=result.embedding.vectors, basis=None)
        if choice.by_size:
            pending = plan_after(choice, problem, settings.memory_limit)
    if result is None:
        result = _run_last_resort(problem, settings, context, attempts)
    return replace(result, attempts=tuple(attempts), total_seconds=time.perf_counter() - began)


def _run_last_resort(
    problem: Problem, settings: SolverSettings, context: RunContext, attempts: list[Attempt]
) -> CertifiedEmbedding:
    """Mutates attempts: one more solver where all of the plan have failed, and an error where it does too."""
    plain = replace(settings, params={})
    latest = _attempt(problem, last_resort(problem), plain, context, None, len(attempts))
    if isinstance(latest, CertifiedEmbedding):
        attempts.extend(latest.attempts)
        return latest
    outcomes = "; ".join(f"{attempt.solver} {attempt.outcome}" for attempt in (*attempts, latest))
    raise SolveError(f"no solver could embed this graph: {outcomes}")


def _attempt(
    problem: Problem,
    choice: PlannedSolver,
    settings: SolverSettings,
    context: RunContext,
    time_budget: float | None,
    earlier: int,
) -> CertifiedEmbedding | Attempt:
    """One solver's result with its certificate; or how it failed, which is an error if it was asked for.

    There were so many ``earlier`` attempts.
    """
    began = time.perf_counter()
    solver = _configure(choice, settings)  # wrong parameters are no failure of a solver
    kept = context.next_checkpoint()
    found = load_result(kept, problem)
    if found is not None:
        return found
    try:
        solution = _run(problem, solver, settings, context, time_budget, kept)
        solution = replace(solution, reason=choice.reason, predicted_seconds=choice.seconds)
        if settings.solver == "auto":
            solution = _announce(solution)
        # Localised vectors call for another problem: their certificate would be of no use.
        is_whole = solution.stop_reason not in (GIVEN_UP, INTERRUPTED, OUT_OF_TIME)
        watch = context.watch if is_whole and solver.localization_check_at > 0 else None
        if watch is not None and watch(solution.Q, finished=True):
            solution = replace(solution, stop_reason=GIVEN_UP)
        found = _certify_attempt(problem.operator, solution, settings, context, earlier)
        if kept is not None and found.certificate.objection != CERTIFICATE_OUT_OF_TIME:
            save_result(kept, problem, found)
        return found
    except (CheckpointError, DamagedFileError):  # no other solver would read another file
        raise
    except (*FAILURES, TypeError, AttributeError, LookupError) as error:
        damage = None if kept is None else kept.as_checkpoint_error(error)
        if damage is not None:  # numbers of a file: a state that fits in form may be none in fact
            raise damage from error
        if not isinstance(error, FAILURES):
            raise
        if settings.solver != "auto":
            raise
        return Attempt.failed(choice, error, time.perf_counter() - began)


def _lacks_gap(operator: Operator, result: CertifiedEmbedding) -> bool:
    """Whether the K-th eigenvalue is seen to be the next one as well, or lies in a bulk: no solver helps."""
    if result.certificate.determined is not None:
        return True
    tiny = 1e-9 * (operator.upper - operator.lower)
    beyond = result.evidence.beyond
    top = float(result.embedding.eigenvalues[-1])
    return beyond is not None and result.certificate.max_residual < tiny and beyond - top < tiny


def _certify_attempt(
    operator: Operator,
    solution: Solution,
    settings: SolverSettings,
    context: RunContext,
    earlier: int,
) -> CertifiedEmbedding:
    """The solution with its certificate; one that was given up is not worth measuring."""
    if solution.evidence.mixed is not None:
        return _state_mixed(Problem(operator, solution.Q.shape[1], context.engine), solution)
    if solution.stop_reason != GIVEN_UP and not context.certifies:
        return _without_certificate(operator, solution, context)
    if solution.stop_reason != GIVEN_UP:
        return certify_solution(operator, solution, settings, context, earlier=earlier)
    k = solution.Q.shape[1]
    certificate = unmeasured_certificate(np.full(k, np.nan), "given up for another problem")
    embedding = embedding_of(context.engine, operator, solution.Q, certificate.eigenvalues)
    return CertifiedEmbedding.of(solution, embedding, certificate)


def _without_certificate(operator: Operator, solution: Solution, context: RunContext) -> CertifiedEmbedding:
    """Ritz vectors in the basis of the solution, of which nothing is measured."""
    engine = context.engine
    with engine.threads(), one_thread():
        problem = Problem(operator, solution.Q.shape[1], engine)
        null = normalize_null(operator, operator.null_vector)
        Q = solution.Q if solution.Q.dtype == np.float64 else engine.astype(solution.Q, np.float64)
        ritz = deflated_rayleigh_ritz(problem, problem.orthonormalize(Q).Q, null)
        certificate = unmeasured_certificate(ritz.values, "not measured")
        return _with_certificate(problem, solution, ritz, certificate)


def _state_mixed(problem: Problem, solution: Solution) -> CertifiedEmbedding:
    """Columns that mix eigenvectors, by Rayleigh quotient, with the statement on them."""
    mixed = solution.evidence.mixed
    assert mixed is not None
    null = normalize_null(problem.operator, problem.operator.null_vector)
    ritz = deflated_rayleigh_ritz(problem, solution.Q, null)
    return _with_certificate(problem, solution, ritz, mixed_certificate(ritz.values, mixed))


def _announce(solution: Solution) -> Solution:
    """The solution with the choice of ``auto`` and its reason as the first event of the history."""
    first, *rest = solution.history
    event = f"auto picked {solution.solver}: {solution.reason}"
    return replace(solution, history=(replace(first, events=(event, *first.events)), *rest))


def _run(
    problem: Problem,
    solver: Solver[State],
    settings: SolverSettings,
    context: RunContext,
    time_budget: float | None,
    kept: SolveCheckpoint | None,
) -> Solution:
    width = problem.operator.upper - problem.operator.lower
    solver = choose_variant(problem, solver)
    return run_loop(
        problem,
        solver,
        stopping=Stopping(
            tol=0.0 if solver.has_stopping_rule else settings.tolerance * width,
            deadline=context.deadline,
            aborts_direct=context.aborts_direct,
        ),
        on_progress=context.hooks,
        seed=settings.seed,
        time_budget=time_budget,
        watch=context.watch,
        observer=context.observer,
        checkpoint=kept,
    )


def _configure(choice: PlannedSolver, settings: SolverSettings) -> Solver[State]:
    """The solver with the parameters of the choice or of the user, and the common ones where it has them."""
    params = rename_parameters(choice.name, settings.params)
    solver = make_solver(choice.name, **{**dict(choice.params), **params})
    known = {f.name for f in fields(solver)}  # type: ignore[arg-type]
    common: dict[str, object] = {}
    if settings.batch_size is not None and "batch_size" in known - set(params):
        common["batch_size"] = settings.batch_size
    if settings.tol == "auto" and "angle" in known - set(params):
        common["angle"] = GOOD_ANGLE / 3  # the certificate measures against half the gap
    if settings.tol != "auto" and "polish" in known - set(params):
        common["polish"] = True  # the solver's own epochs promise no accuracy; somebody asked for one
    if settings.max_iter is not None:
        common["max_iter"] = settings.max_iter
    return replace(solver, **common)  # type: ignore[type-var]


def _remaining(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)
