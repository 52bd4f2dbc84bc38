"""From the basis that a solver found to an embedding with its certificate."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import Certificate, certify, unmeasured
from spectrograd.certificate.carried import Carried
from spectrograd.certificate.certificate import before_the_bulk, of_the_leading
from spectrograd.certificate.evidence import GOOD_ANGLE, LIKELY_MISS, MOST_PART, Complement, needed_cut
from spectrograd.certificate.probe import Evidence, Guards, MeasuredRitz, look_outside
from spectrograd.engines.protocol import Tall
from spectrograd.engines.threadpools import one_thread
from spectrograd.linalg.inertia import count_below
from spectrograd.linalg.subspace import Ritz, deflated_ritz, rayleigh_ritz, residuals
from spectrograd.operators.balanced import balanced
from spectrograd.operators.protocol import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.embedded import Attempt, Embedded
from spectrograd.pipeline.left_embedding import embedding_of
from spectrograd.pipeline.needs import room_for_doubles
from spectrograd.pipeline.plan import Choice
from spectrograd.solvers.loop import (
    INTERRUPTED,
    OUT_OF_TIME,
    Solution,
)
from spectrograd.solvers.protocol import Problem
from spectrograd.solvers.settings import SolverSettings

Array = NDArray[Any]

# What a solver may meet on a problem that is none of the user's making: the next one may do better.
FAILURES = (ValueError, ArithmeticError, MemoryError, RuntimeError, AssertionError)


# What a null vector that takes the place of a column may differ from it, in squares.
NEARLY_PARALLEL = 1e-4
# Nobody waits for a probe after Ctrl-C or when the time is over: anything may lie outside.
UNPROBED = Complement(float("nan"), sure=-np.inf)


def certified(
    operator: Operator,
    solution: Solution,
    settings: SolverSettings,
    choice: Choice | None = None,
    *,
    earlier: int = 0,
    null: Array | None = None,
) -> Embedded:
    """The basis of a solution as an embedding with its certificate.

    So many ``earlier`` attempts were probed in vain. ``null`` (N) is a null vector that is known of the
    operator; None: what it knows itself.
    """
    fit, null = balanced(operator), operator.null_vector if null is None else null
    if fit is not None:
        engine = settings.engine
        known = solution.evidence.in_units(1 / fit.unit)
        inside = replace(solution, Q=fit.enter_tall(engine, solution.Q), evidence=known)
        entered = None if null is None else fit.enter(null[:, None])[:, 0]
        found = certified(fit.operator, inside, settings, choice, earlier=earlier, null=entered)
        found = found.left(fit, engine)
        return replace(found, solution=replace(found.solution, history=solution.history))
    with settings.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        return _certified(operator, solution, settings, choice, earlier, _unit(operator, null))


def _unit(operator: Operator, null: Array | None) -> Array | None:
    """A null vector, of length one in the metric."""
    if null is None:
        return None
    mass = 1.0 if operator.metric is None else operator.metric
    return np.asarray(null / np.sqrt(null @ (mass * null)))


def narrowed(operator: Operator, wide: Embedded, k: int, settings: SolverSettings) -> Embedded:
    """The first k columns of an embedding with a certificate of their own, by the columns after them."""
    evidence = _evidence_of_first(wide, k, settings)
    first = settings.engine.columns(wide.solution.Q, slice(k))
    solution = replace(wide.solution, Q=first, evidence=evidence)
    found = certified(operator, solution, settings, wide.choice)
    return replace(found, seconds=wide.seconds, attempts=wide.attempts)


def _evidence_of_first(wide: Embedded, k: int, settings: SolverSettings) -> Evidence:
    """What m Ritz pairs and their certificate tell of the first k of them.

    Nothing of what the solver knew of the rest of the spectrum holds: it spoke of what lies beyond all m. The
    pairs after the k-th, of residual r together, serve instead. To them belong m - k eigenvalues within r
    (Kahan; Parlett 1998, Theorem 11.5.1). If those lie below ``sure``, where there are m at most, no more
    than k are left below ``theta_k+1 - r``: this takes no product. Else the pairs are guards of a probe.
    """
    values, known, engine = wide.embedding.eigenvalues, wide.certificate, settings.engine
    beyond, Q = float(values[k]), wide.solution.Q
    solver = wide.solution.evidence
    rest = float(np.linalg.norm(known.residuals[k:]))
    if not solver.complete and beyond - rest > values[k - 1] and values[-1] + rest < known.sure:
        odds = 0.0 if known.missed_probability == 0 else LIKELY_MISS  # at which ``sure`` was read off
        pairs = Ritz(values[:k], engine.columns(Q, slice(k)), None)
        last = MeasuredRitz(pairs, known.residuals[:k] - known.rounding, known.rounding)
        return Evidence(beyond, outside=Carried(beyond, 0, beyond - rest, odds), last=last)
    guards = Guards(engine.columns(Q, slice(k, None)), values[k:], known.residuals[k:])
    return Evidence(beyond, solver.complete, solver.countable, guards)


def _certified(
    operator: Operator,
    solution: Solution,
    settings: SolverSettings,
    choice: Choice | None,
    earlier: int,
    null: Array | None,
) -> Embedded:
    engine = settings.engine
    problem = Problem(operator, solution.Q.shape[1], engine)
    known = _by_last_product(problem, solution, settings, null)
    if known is not None:
        return _with_certificate(problem, solution, choice, *known)
    placed, Q = problem.placed, solution.Q
    if Q.dtype != np.float64 and not _single_will_do(problem, settings):
        Q = problem.orthonormalize(engine.cast(Q, np.float64)).Q
    ritz = _ritz(problem, Q, null)
    del Q
    rounding = operator.rounding(ritz.Q.dtype)
    if ritz.Q.dtype != np.float64:
        rounding = problem.sparse.rounding(ritz.Q.dtype, pieced=True)
    measured = residuals(engine, placed, ritz) + rounding
    if not (np.isfinite(ritz.values).all() and np.isfinite(measured).all()):
        raise FloatingPointError("the vectors left the range of numbers")
    try:
        leading = _before_a_bulk(problem, ritz, solution, measured, settings, rounding, earlier)
        if leading is not None:
            return _with_certificate(problem, solution, choice, ritz, leading)
        error = float(np.linalg.norm(measured))
        outside = _evidence(problem, ritz, solution, error, rounding, settings, earlier)
        cast = _turned_by_output(problem)
        certificate = certify(engine, operator, ritz, settings.tol, outside, measured, rounding, cast)
        certificate = _or_out_of_time(certificate, solution, settings)
    except KeyboardInterrupt:
        solution = replace(solution, stop_reason=INTERRUPTED)
        certificate = certify(engine, operator, ritz, settings.tol, UNPROBED, measured, rounding)
    except FAILURES as error:  # good vectors are worth keeping, but nobody vouches for them
        certificate = unmeasured(ritz.values, f"the certificate failed ({type(error).__name__}: {error})")
    return _with_certificate(problem, solution, choice, ritz, certificate)


def _before_a_bulk(
    problem: Problem,
    ritz: Ritz,
    solution: Solution,
    measured: Array,
    settings: SolverSettings,
    rounding: float,
    earlier: int,
) -> Certificate | None:
    """The certificate where K cuts through a bulk: of the vectors before it, the others as their guards."""
    known, k = solution.evidence, problem.n_components
    if not isinstance(settings.tol, str) or known.beyond is None or known.complete or known.guards is None:
        return None
    first = before_the_bulk(np.append(ritz.values, known.beyond), k)
    distance = MOST_PART * (known.beyond - float(ritz.values[-1]))
    if first is None or np.linalg.norm(measured) <= GOOD_ANGLE * distance:
        return None
    engine = problem.engine
    inside = Ritz(
        ritz.values[:first], engine.columns(ritz.Q, slice(first)), engine.columns(ritz.AQ, slice(first))
    )
    rest = engine.columns(ritz.Q, slice(first, None))
    guards = Guards(rest, ritz.values[first:], measured[first:])
    evidence = Evidence(float(ritz.values[first]), guards=guards)
    part, alone = replace(solution, Q=inside.Q, evidence=evidence), replace(problem, n_components=first)
    error = float(np.linalg.norm(measured[:first]))
    outside = _evidence(alone, inside, part, error, rounding, settings, earlier)
    found = certify(engine, problem.operator, inside, settings.tol, outside, measured[:first], rounding)
    return of_the_leading(found, ritz, measured, known.beyond) if found.converged else None


def _ritz(problem: Problem, Q: Tall, null: Array | None) -> Ritz:
    """Ritz pairs of the span of Q, in which a known null vector is exact; it stays the first of them."""
    engine = problem.engine
    if null is None:
        return rayleigh_ritz(engine, problem.placed, Q)
    ritz = deflated_ritz(engine, problem.placed, Q, engine.put(null[:, None].astype(Q.dtype)))
    rounded = np.abs(ritz.values) <= problem.operator.rounding(Q.dtype)
    return ritz._replace(values=np.where(rounded, np.maximum(ritz.values, 0.0), ritz.values))


def _with_null(problem: Problem, known: MeasuredRitz, null: Array) -> MeasuredRitz:
    """The same without a product: a null vector n for the first column, the others orthogonal to it.

    ``A (q - n n'Bq) = A q``, and the residual of what is left is that of q without its part along ``B n``:
    none grows but by the length that q loses. Not where the first column is another vector.
    """
    engine, metric, Q = problem.engine, problem.placed.metric, known.ritz.Q
    unit = engine.put(null[:, None].astype(Q.dtype))
    across = engine.gram(unit, Q, metric)[0]
    lost = float(np.square(across[1:]).sum())
    if abs(across[0]) < 1 - NEARLY_PARALLEL or lost > NEARLY_PARALLEL:
        return known
    first = np.zeros(len(across))
    first[0] = 1.0
    kept = np.diag(1 - first)
    Q = engine.combine(Q, kept, unit, np.where(first > 0, 1.0, -across)[None])
    left = (1 - first) * known.residuals / np.sqrt(1 - lost)
    return replace(known, ritz=Ritz((1 - first) * known.ritz.values, Q, None), residuals=left)


def _single_will_do(problem: Problem, settings: SolverSettings) -> bool:
    """Whether there is no room for float64, and float32 is exact enough: for an angle, not for a residual."""
    operator = problem.operator
    if not (isinstance(operator, SparseOperator) and operator.is_streamed and isinstance(settings.tol, str)):
        return False
    room = room_for_doubles(operator.graph, problem.n_components, settings.memory_limit)
    return problem.engine.sums_in_pieces and not room


def _by_last_product(
    problem: Problem, solution: Solution, settings: SolverSettings, null: Array | None
) -> tuple[Ritz, Certificate] | None:
    """Ritz pairs and certificate without a sweep, where the solver's last product and its probe will do."""
    last, outside = solution.evidence.last, solution.evidence.outside
    if last is None or outside is None:
        return None
    last = last if null is None else _with_null(problem, last, null)
    rest = (outside, last.residuals + last.rounding, last.rounding)
    certificate = certify(
        problem.engine, problem.operator, last.ritz, settings.tol, *rest, cast=_turned_by_output(problem)
    )
    return (last.ritz, certificate) if certificate.converged else None


def _turned_by_output(problem: Problem) -> float:
    """The sine by which the vectors of a graph on disk turn when they are returned in float32.

    Every entry moves by half a unit of its last digit at most, so each of K unit columns by half an eps.
    """
    eps = float(np.finfo(np.float32).eps)
    return eps * float(np.sqrt(problem.n_components)) if problem.operator.is_streamed else 0.0


def _with_certificate(
    problem: Problem, solution: Solution, choice: Choice | None, ritz: Ritz, certificate: Certificate
) -> Embedded:
    """The solution as an embedding, with what is known of it; in float64 unless the graph is on disk."""
    engine = problem.engine
    Q = ritz.Q if problem.operator.is_streamed else engine.cast(ritz.Q, np.float64)
    embedding = embedding_of(engine, problem.operator, Q, ritz.values)
    chosen = choice or Choice(solution.solver, "asked for")
    attempt = Attempt.of(chosen, solution, certificate.sentence)
    solution = replace(solution, Q=Q)  # the columns of the embedding but for their signs
    return Embedded(embedding, certificate, solution, chosen, solution.seconds, (attempt,))


def _or_out_of_time(certificate: Certificate, solution: Solution, settings: SolverSettings) -> Certificate:
    """The certificate; where the time was over before it could be met, that is why it is not."""
    late = solution.stop_reason == OUT_OF_TIME or time.perf_counter() >= settings.certified_by
    if certificate.converged or certificate.objection or not late:
        return certificate
    return replace(certificate, objection="not certified, out of time")


def _evidence(
    problem: Problem,
    ritz: Ritz,
    solution: Solution,
    error: float,
    rounding: float,
    settings: SolverSettings,
    earlier: int,
) -> Complement:
    """What lies beyond the subspace: the solver knows it, a count tells, or a probe finds out."""
    known = solution.evidence
    top, beyond, outside = float(ritz.values[-1]), known.beyond, known.outside
    if beyond is not None and known.complete:
        return Complement(beyond)
    if outside is not None and outside.odds_below(needed_cut(top, outside.lowest, error)) <= LIKELY_MISS:
        return outside
    late = time.perf_counter() >= settings.certified_by
    if late or solution.stop_reason in (INTERRUPTED, OUT_OF_TIME):
        return UNPROBED
    if beyond is not None and beyond > top and known.countable:
        sure = top + (MOST_PART + 0.01) * (beyond - top)
        count = count_below(problem.sparse, sure, problem.engine.thresholds)
        if count is not None:
            return Complement(beyond if count == problem.n_components else top, sure=sure)
    seed, until = settings.seed, settings.certified_by
    rng = np.random.default_rng(None if seed is None else (seed, 1))  # not what the solver started from
    looks = 2.0 ** (earlier + 1)  # a half of the level for the first attempt, a quarter for the second, ...
    look = partial(look_outside, problem.engine, problem.operator, ritz, rng, residual=error, deadline=until)
    return look(beyond=beyond, guards=known.guards, rounding=rounding, looks=looks)
