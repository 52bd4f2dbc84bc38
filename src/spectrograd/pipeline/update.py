"""The embedding of a graph after its edges have changed: a correction where that is enough, else a solve.

The old vectors fail the new equations only where edges changed, so their residual *is* the change, and says
how little a correction needs. In memory this is one filter, which costs little beside its products; over a
disk Rayleigh-Ritz steps, each of which makes the most of one pass. Both are in float32, which holds what a
correction can reach. The certificate then judges the result as it would any other, with the evidence on the
rest of the spectrum that outlives the change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from spectrograd.certificate import Certificate
from spectrograd.certificate.certificate import GOOD_ANGLE, MAX_GAP_FRACTION, MAX_MISS_ODDS
from spectrograd.certificate.edge_insertion import EdgeInsertionBound, PencilUpdate
from spectrograd.certificate.lanczos_probe import Evidence, MeasuredRitz
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.base import MultiVector
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.node_names import NodeRows
from spectrograd.linalg.chebyshev_filter import MIN_DAMPED_SHARE, Filter
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators import SparseOperator
from spectrograd.operators.base import Operator
from spectrograd.operators.equilibration import equilibrate
from spectrograd.operators.laplacian import Kind, Regularization, masked_laplacian
from spectrograd.pipeline.edge_changes import EdgeChanges, edges_by_row
from spectrograd.pipeline.memory_estimate import columns_that_fit
from spectrograd.pipeline.result import Result, make_result
from spectrograd.pipeline.run import embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import PreparedGraph, prepare_graph, with_all_nodes
from spectrograd.pipeline.solve import certify_solution
from spectrograd.solvers.base import Problem, Progress
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.settings import RunContext
from spectrograd.system import one_thread
from spectrograd.typing import Array

# Directions of which float32 knows a few digits, in squares: the products of others would be noise.
DISTINCT = 1e-6
# What takes a higher degree or more passes is work for a solver.
MOST_DEGREE = 16
MAX_PASSES = 5
SPREAD = 1e4  # by how much a filter may let the first vector outgrow the last in float32
# Blocks of a step: vectors, changes, their products, and all side by side; and so with the vectors before.
MIN_BLOCKS = 8
CONJUGATE_BLOCKS = 12
MARGIN = 0.95  # of what evidence from before allows, since the last eigenvalue still moves


class CorrectedVectors(NamedTuple):
    """Vectors (N x k), orthonormal in the metric, the matvecs they took, and the residual.

    ``last`` are Ritz pairs whose products may serve the certificate; without them the residual is that of the
    beginning.
    """

    vectors: MultiVector
    values: Array
    matvecs: float
    error: float
    last: MeasuredRitz | None = None


def filter_vectors(
    engine: Engine, operator: SparseOperator, start: Array, gap: float
) -> CorrectedVectors | None:
    """Correct vectors by one filter, whose degree follows from the residual and the gap before the change.

    None where that is too small for a filter of low degree: a solver looks how wide it is now.
    """
    problem = Problem(operator, start.shape[1], engine, start)
    walk = problem.random_walk.operator
    block = problem.random_walk.transform(problem.start_on_engine(np.float32))
    # 1. residuals of the old vectors in the new operator: the size of the change
    ritz = rayleigh_ritz(engine, walk, orthonormalize(engine, block, walk.metric).Q)
    error = _residual_norm(engine, walk, ritz)
    # 2. a filter that damps what lies beyond the old gap
    cut = min(float(ritz.values[-1]) + gap, walk.upper - MIN_DAMPED_SHARE * (walk.upper - walk.lower))
    # the angle is measured against half of the gap
    degree = _degree(ritz.values, cut, walk.upper, error / (GOOD_ANGLE / 3 * MAX_GAP_FRACTION * gap))
    if degree is None:
        return None
    # 3. one filter; the certificate makes the Rayleigh-Ritz
    block = problem.random_walk.inverse_transform(Filter(degree, cut, walk.upper).apply(engine, walk, ritz.Q))
    vectors = problem.orthonormalize(engine.astype(block, np.float64)).Q
    return CorrectedVectors(vectors, ritz.values, (1.0 + degree) * start.shape[1], error)


def _degree(values: Array, cut: float, upper: float, gain: float) -> int | None:
    """The degree that damps values above the cut by ``gain`` against the last value; None: too high."""
    # T_m grows like cosh(m acosh t) below the cut; the first vector must not outgrow the last beyond float32
    half = (upper - cut) / 2
    first, last = (np.arccosh(max(1.0, (upper - half - float(value)) / half)) for value in values[[0, -1]])
    most = min(MOST_DEGREE, np.log(SPREAD) / max(first - last, 1e-9))
    degree = np.ceil(np.arccosh(max(gain, 1.0)) / max(last, 1e-9))
    return max(1, int(degree)) if degree <= most else None


def _residual_norm(engine: Engine, operator: Operator, ritz: Ritz) -> float:
    return float(np.linalg.norm(residuals(engine, operator, ritz)))


@dataclass(eq=False)
class RayleighRitzSteps:
    """Rayleigh-Ritz steps, one pass each, until evidence from before the change is enough.

    ``gap`` is the one before the change, ``n_blocks`` how many blocks of k columns fit into memory; with
    twelve, steps are conjugate. Combinations may enlarge the rounding errors of the products they
    are made of; ``rounding_growth`` says by how much.
    """

    engine: Engine
    operator: SparseOperator
    gap: float
    complement_bound: EdgeInsertionBound
    n_blocks: int
    rounding_growth: float = 1.0
    _before: Ritz | None = field(default=None, repr=False)

    def run(self, start: Array) -> CorrectedVectors | None:
        """Take steps until the residual is small enough; None where they would be too many."""
        engine = self.engine
        operator = self.operator
        vectors = np.ascontiguousarray(start, dtype=np.float32)
        ritz = rayleigh_ritz(engine, operator, orthonormalize(engine, vectors, operator.metric).Q)
        error = _residual_norm(engine, operator, ritz)
        if (
            self._steps_needed(error, self._target_residual(ritz), operator.upper - float(ritz.values[-1]))
            > MAX_PASSES
        ):
            return None
        for step in range(1, MAX_PASSES + 1):
            # 1. one pass: a Rayleigh-Ritz on vectors, residuals and the vectors before
            ritz = self._step(ritz)
            larger = error
            error = _residual_norm(engine, operator, ritz)
            target = self._target_residual(ritz)
            # 2. small enough for the evidence from before the change?
            if error <= target:
                last = MeasuredRitz(
                    ritz, residuals(engine, operator, ritz), self.rounding_growth * self.floor
                )
                return CorrectedVectors(ritz.Q, ritz.values, (1.0 + step) * start.shape[1], error, last)
            # 3. at this rate, will it be within the passes that are left?
            if error * (error / larger) ** (MAX_PASSES - step) > target:
                return None
        return None

    @property
    def floor(self) -> float:
        """A bound on the move of an eigenvalue by rounding in float32."""
        return self.operator.rounding(np.float32, blocked=True)

    def _target_residual(self, ritz: Ritz) -> float:
        """The residual at which steps may end."""
        assert self.complement_bound.complete_below is not None
        # Davis and Kahan, with rounding on both sides: |R| + floor <=
        # GOOD_ANGLE (complete_below - theta_K - floor)
        floor = self.rounding_growth * self.floor
        distance = self.complement_bound.complete_below - float(ritz.values[-1])
        return float(MARGIN * GOOD_ANGLE * (distance - floor) - np.sqrt(len(ritz.values)) * floor)

    def _steps_needed(self, error: float, target: float, width: float) -> float:
        """An upper estimate of the steps: as with conjugate gradients on a spectrum of this width."""
        if not target > 0 or not self.gap > 0:
            return np.inf
        if not self.gap < width:
            return 1.0
        # conjugate gradients gain (1 + root) / (1 - root) per step on a
        # spectrum with this gap (Saad 2003, 6.11)
        root = np.sqrt(self.gap / width)
        return float(np.log(2 * error / target) / np.log((1 + root) / (1 - root)))

    def _step(self, ritz: Ritz) -> Ritz:
        """Mutates: the k lowest Ritz pairs in the span of ``[Q, B^-1 R, Q_before]`` (Knyazev 2001, LOBPCG).

        Only the residuals R are multiplied: the products of the others are combinations of known ones.
        """
        engine = self.engine
        operator = self.operator
        before = self._before
        # 1. S = [Q, B^-1 R, Q_before] and A S
        metric = 1.0 if operator.metric is None else operator.metric[:, None].astype(ritz.AQ.dtype)
        values = ritz.values.astype(ritz.AQ.dtype)
        change = ritz.AQ / metric - ritz.Q * values
        wide = [ritz.Q, change] if before is None else [ritz.Q, change, before.Q]
        products = [ritz.AQ, engine.apply(operator, change)] + ([] if before is None else [before.AQ])
        S = engine.hstack(*wide)
        AS = engine.hstack(*products)
        k = len(values)
        del change, wide, products
        # 2. Rayleigh-Ritz in the span of S
        M = engine.gram(S, S, operator.metric, symmetric=True)
        whitened, _ = inverse_factor(M, DISTINCT)
        H = whitened.T @ engine.gram(S, AS, symmetric=True) @ whitened
        ritz_values, rotation = la.eigh((H + H.T) / 2)
        lowest = whitened @ rotation[:, :k]
        # 3. by how much the combination enlarges rounding errors
        self.rounding_growth *= max(
            1.0, float((np.sqrt(np.diag(M))[:, None] * np.abs(lowest)).sum(axis=0).max())
        )
        self._before = ritz if self.n_blocks >= CONJUGATE_BLOCKS else None
        return Ritz(ritz_values[:k], engine.combine(S, lowest), engine.combine(AS, lowest))


# --- An embedding after its graph has changed: a small correction, or a solve.

MIN_KNOWN_SHARE = 0.9  # of the rows must be known: a component that has just joined is no small change
KEPT = "kept"
WARM = "warm start"
REFIT = "refit"
# What filters over a disk ask of themselves after a good start, which makes the gap look wider to them than
# it is: with a third of the certificate's angle, as usual, they end too early and the certificate fails.
STRICT_ANGLE = GOOD_ANGLE / 30
MAX_GAP_SHRINKAGE = 0.5  # of the gap at the last fit: a cluster more or less may be in the making
MAX_DRIFT = 0.5  # sine of the angle to the last fit beyond which its decisions are out of date


@dataclass(frozen=True, eq=False)
class Updated:
    """The new embedding and how it was computed.

    Attributes
    ----------
    action
        ``"kept"``: a correction was enough; ``"warm start"``: solved from there; ``"refit"``: solved anew,
        since the components of the graph changed or there was nothing to start from.
    drift
        Sine of the largest angle between the old and the new subspace; 1 where they do not compare.
    """

    result: Result
    action: str
    drift: float


@dataclass(frozen=True, eq=False)
class Before:
    """The state of the model before the change.

    Attributes
    ----------
    regularization
        That of the fit, which a correction keeps.
    gap
        After the last eigenvalue: where it is too small for a correction, none is tried.
    complement_bound
        A bound on the rest of the spectrum that holds after the change; None: there is none.
    """

    regularization: Regularization
    gap: float
    complement_bound: EdgeInsertionBound | None = None


def update(
    graph: Graph | MultilayerGraph,
    start: Array | None,
    settings: Settings,
    context: RunContext,
    before: Before,
) -> Updated:
    """Embed a graph that has changed since its vectors were found.

    Parameters
    ----------
    graph
        After the change.
    start : array of shape (n_nodes, k) or None
        The vectors before it, with rows for new nodes.
    settings
        Those of the fit, with as many components as ``start``.
    """
    if start is None or isinstance(graph, MultilayerGraph):
        result = embed(graph, settings, context, start=start)
        return Updated(result, REFIT if start is None else WARM, _drift(start, result))
    with context.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        prepared = prepare_graph(graph, settings, context)
        if prepared.connectivity.groups is None and start[prepared.kept].any(axis=1).mean() > MIN_KNOWN_SHARE:
            moved = correct_embedding(prepared, start, settings, context, before)
            if moved is not None and moved.certificate.converged:
                return Updated(moved, KEPT, _drift(start, moved))
            settings = replace(settings, regularization=before.regularization.tau or None)
            result = _solve_warm(prepared, settings, context.start_clock(settings), start)
            return Updated(result, WARM, _drift(start, result))
        result = prepared.solve(settings, context.start_clock(settings))
    return Updated(result, REFIT, _drift(start, result))


def _solve_warm(prepared: PreparedGraph, settings: Settings, context: RunContext, start: Array) -> Result:
    """Solve from the vectors before, by the solver of the plan; over a disk by filters that are strict."""
    strict = not prepared.graph.is_resident and settings.solver == settings.tol == "auto"
    if not strict:
        return prepared.solve(settings, context, start)
    strict_filter = replace(settings, solver="chebyshev", params={"angle": STRICT_ANGLE})
    result = prepared.solve(strict_filter, context, start)
    return result if result.certificate.converged else prepared.solve(settings, context)


def correct_embedding(
    prepared: PreparedGraph, start: Array, settings: Settings, context: RunContext, before: Before
) -> Result | None:
    """The corrected vectors with their certificate; None where a correction is not enough."""
    began = time.perf_counter()
    decided = before.regularization
    operator = masked_laplacian(prepared.part, settings.laplacian, decided.tau, prepared.masked)
    complement_bound = None if len(prepared.connectivity.excluded) else before.complement_bound
    moved = _correct_vectors(
        settings,
        context.engine,
        operator,
        start[prepared.kept],
        replace(before, complement_bound=complement_bound),
    )
    if moved is None:
        return None
    seconds = time.perf_counter() - began
    done = Progress(1, moved.matvecs, 0, float(moved.values.sum()), moved.error, 0.0, seconds)
    evidence = Evidence(complement_bound=complement_bound, last=moved.last)
    reason = "the last embedding, corrected for the edges that changed"
    solution = Solution(moved.vectors, "update", (done,), "done", seconds, evidence=evidence, reason=reason)
    solved = certify_solution(operator, solution, settings, context)
    return make_result(
        solved,
        embedding=with_all_nodes(solved, prepared.graph, prepared.kept, prepared.masked),
        operator=operator,
        connectivity=prepared.connectivity,
        regularization=replace(decided, reason=f"as at the last fit ({decided.reason})"),
        eigengap=None,
        rows=prepared.kept,
        seconds={"solve": time.perf_counter() - began},
    )


def _correct_vectors(
    settings: Settings, engine: Engine, operator: SparseOperator, start: Array, before: Before
) -> CorrectedVectors | None:
    """Correct the vectors; over a disk only with evidence from before, since a probe would cost a filter.

    That evidence is in units of the operator, which therefore must not be equilibrated first.
    """
    k = start.shape[1]
    if not before.gap > 0:  # K cut through equal eigenvalues, or nothing was measured
        return None
    if not operator.is_streamed:
        return filter_vectors(engine, operator, start, before.gap)
    if (
        before.complement_bound is None
        or not engine.has_blocked_summation
        or equilibrate(operator) is not None
    ):
        return None
    sizes = (n for n in (CONJUGATE_BLOCKS, MIN_BLOCKS) if _fits(operator, n * k, settings))
    n_blocks = next(sizes, None)
    return (
        None
        if n_blocks is None
        else RayleighRitzSteps(engine, operator, before.gap, before.complement_bound, n_blocks).run(start)
    )


def _fits(operator: SparseOperator, n_columns: int, settings: Settings) -> bool:
    return columns_that_fit(operator.graph, n_columns, settings.memory_limit)


def _outside(vectors: Array, basis: Array, metric: Array | None) -> Array:
    """The part of vectors (N x k) that is orthogonal to an orthonormal basis."""
    weighed = vectors if metric is None else vectors * metric[:, None]
    return np.asarray(vectors - basis @ (basis.T @ weighed))


def _drift(start: Array | None, result: Result) -> float:
    """Sine of the angle by the part of the old subspace outside the new one: a cosine loses digits."""
    if start is None or start.shape[1] != result.vectors.shape[1]:
        return 1.0
    kind = result.vectors.dtype  # of a graph on disk float32: its vectors are large
    metric = result.operator.metric
    old = np.asarray(start[result.rows], dtype=kind)
    metric = None if metric is None else metric.astype(kind)
    basis = orthonormalize(LocalEngine(), np.ascontiguousarray(old), metric, np.random.default_rng(0))
    if basis.repaired:  # the old vectors are no basis any more
        return 1.0
    rest = _outside(basis.Q, result.vectors[result.rows].astype(kind, copy=False), metric)
    # largest singular value of the part outside: the sine, accurate where the cosine is one up to rounding
    weighed = rest if metric is None else rest * metric[:, None]
    return float(np.sqrt(np.clip(np.linalg.eigvalsh(rest.T @ weighed)[-1], 0, 1)))


def refit_reason(result: Result, gap_at_fit: float, drift: float) -> str:
    """Why the decisions of the last fit (clusters, regularisation) should be made anew; empty where not."""
    if not result.converged:
        return f"the accuracy asked for was not reached: {result.certificate.sentence}"
    if drift > MAX_DRIFT:
        return f"the embedding has turned away from that of the last fit (sine {drift:.2g})"
    gap = result.certificate.gap
    if gap_at_fit > 0 and gap < MAX_GAP_SHRINKAGE * gap_at_fit:
        return (
            f"the gap after the last eigenvalue has shrunk from {gap_at_fit:.2g} to {gap:.2g}: "
            "the number of clusters may have changed"
        )
    return ""


# --- The evidence of a certificate after edges changed (:mod:`spectrograd.certificate.edge_insertion`).


def bound_after_insertion(
    certificate: Certificate,
    before: Graph | MultilayerGraph,
    after: Graph | MultilayerGraph,
    changes: EdgeChanges,
    problem: tuple[Kind, float],
) -> EdgeInsertionBound | None:
    """Evidence about the rest of the spectrum after edges came or went; None where nothing can be said.

    Parameters
    ----------
    certificate
        From before.
    before, after, changes
        The graph and its changes. An edge that is set counts as one that went and one that came.
    problem
        The kind of the Laplacian, and tau in mean degrees.
    """
    edges = changes.edges
    if before.is_signed or after.is_signed:  # an edge of either sign may lower an eigenvalue
        return None
    if not (isinstance(before, Graph) and isinstance(after, Graph)) or isinstance(edges, MultilayerGraph):
        return None
    if not np.isfinite(certificate.complete_below):
        return None
    growth = _pencil_update(before, after, changes, problem)
    top = float(certificate.eigenvalues[-1])
    cut = None if growth is None else growth.bound_after(certificate.complete_below, top)
    # the odds at which ``complete_below`` was read off
    odds = 0.0 if certificate.missed_probability == 0 else MAX_MISS_ODDS
    return None if cut is None else EdgeInsertionBound(top + certificate.gap, 0, cut, odds)


def _pencil_update(
    before: Graph, after: Graph, changes: EdgeChanges, problem: tuple[Kind, float]
) -> PencilUpdate | None:
    kind, tau = problem
    n_new = after.n_nodes - before.n_nodes
    if n_new and tau:  # the part of rank one changes its size
        return None
    # old and new degrees on the rows of the new graph
    degrees = np.concatenate([before.degrees, np.zeros(n_new)])
    more = after.degrees - degrees
    added = sp.csr_array((after.n_nodes, after.n_nodes))
    if changes.edges is not None:
        assert isinstance(changes.edges, Graph)
        added = edges_by_row(changes.edges, NodeRows(after.node_names))
    lost = None
    if changes.removed is not None or changes.mode == "set":  # their old weights are what the degrees lack
        lost = np.maximum(np.asarray(added.sum(axis=1)).reshape(-1) - more, 0.0)
    if kind == "unnormalized":
        new = np.arange(after.n_nodes) >= before.n_nodes
        less = min(tau * float(after.degrees.mean() - before.degrees.mean()), 0.0)
        return PencilUpdate(1.0 - new, 1.0 * new, more + less, added, lost)
    # What is added to all degrees follows their mean: B by that much, A by no less than that if it falls.
    ties = tau * float(before.degrees.mean())
    drift = tau * float(after.degrees.mean()) - ties
    return PencilUpdate(degrees + ties, more + drift, more + min(drift, 0.0), added, lost)
