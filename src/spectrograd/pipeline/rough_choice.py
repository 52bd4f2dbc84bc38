"""The choice of a treatment by rough vectors, before anything is certified.

Candidates differ by more than the last digits of their vectors. So one Krylov space per operator, of a single
vector, is expanded until its Ritz vectors are good enough for clusters; the treatment is chosen among
partitions of these; and ``lanczos`` goes on with the basis of the one chosen, so that only one embedding is
solved for to the end and certified. Neighbours of points in few dimensions, whose eigenvalues crowd at zero,
and tiny graphs are solved for once, with the columns of the widest candidate. Where neither will do, the
usual solve comes first (:mod:`spectrograd.pipeline.treatment`, docs/adr/0054-treatment-by-evidence.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from spectrograd.certificate.localization import decide_regularization
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.krylov_basis import RowBasis
from spectrograd.graph import Graph
from spectrograd.labels.assign import EXCLUDED
from spectrograd.labels.kmeans import rough_labels, unit_rows
from spectrograd.labels.neighbor_labels import follow_neighbours
from spectrograd.labels.partition_criteria import cluster_shares
from spectrograd.linalg.subspace import Basis, RitzValues
from spectrograd.operators.equilibration import Equilibration, equilibrate
from spectrograd.operators.laplacian import MORE_TAU, TAU, Kind, Regularization, masked_laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.plan import MAX_COMPACT_LEVELS, ONE_VECTOR, PlannedSolver
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import PreparedGraph
from spectrograd.pipeline.solve import embed
from spectrograd.pipeline.treatment import (
    MAX_CLUSTERS_FOR_WIDE,
    MIN_DANGLING_SHARE,
    Candidate,
    Plan,
    Treatment,
    candidate_of,
    dangling_share,
    name_of,
    plan_rivals,
    reason_beyond_doubt,
    reason_by_settings,
    reason_for,
    wide_columns,
)
from spectrograd.pipeline.trial import run_trial
from spectrograd.solvers.base import Problem
from spectrograd.solvers.lanczos import usual_basis_size
from spectrograd.solvers.loop import INTERRUPTED
from spectrograd.solvers.settings import RunContext, ignore_stage
from spectrograd.typing import Array

MAX_BASIS_BYTES = 1 << 26  # beyond, orthogonalisation takes longer than products
# Steps of one vector until the basis is given up, per column; k-NN graphs of hundreds of points take eight.
MAX_STEPS_PER_COLUMN = 10
MORE_STEPS = 1.2  # times as many before the next look
MAX_LEVELS = 20  # of a breadth-first search; where there are more, eigenvalues crowd at zero
# Residuals up to which labels are those of the eigenvectors but for single nodes: over the eigenvalue, and
# over the width of the spectrum, since vectors at the edge of a bulk mix with those inside.
ROUGH_RELATIVE = 0.15
ROUGH = 0.0075
# Share of localised vectors that is believed of vectors that are not good yet.
CLEARLY_LOCALIZED = 0.75
# Runs of k-means for the first candidate: beside a start in the partition of its rival, two find what ten do.
FIRST_RUNS = 2
SEED = 28  # of the starting vector: the choice is the same whatever the seed of the run


@dataclass(frozen=True, eq=False)
class RoughVectors:
    """Ritz vectors of a Krylov space: ``vectors`` (N x m) in the coordinates that k-means sees.

    The first ``n_good`` Ritz pairs are good enough for clusters.
    """

    ritz: RitzValues
    vectors: Array
    n_good: int


@dataclass(frozen=True, eq=False)
class KrylovSpace:
    """The Krylov space of one vector and the operator with a certain tau, on the engine of ``problem``.

    ``fit`` scales the weights, as the solver's own scaling does, so that it can go on with the ``basis``.
    """

    operator: SparseOperator
    tau: float
    fit: Equilibration | None
    problem: Problem
    basis: Basis

    @classmethod
    def of_graph(cls, graph: Graph, kind: Kind, tau: float, k: int, engine: Engine) -> KrylovSpace:
        """The space before its first product."""
        operator = masked_laplacian(graph, kind, tau, np.empty(0, np.int64))
        fit = equilibrate(operator)
        problem = Problem(operator if fit is None else fit.operator, k, engine)
        x = engine.random(graph.n_nodes, 1, SEED, np.float32)
        start = engine.combine(x, 1 / np.sqrt(engine.gram(x, x)))
        limit = max_steps(k, graph.n_nodes)
        return cls(operator, tau, fit, problem, Basis(engine, problem.standard.operator, start, limit))

    def rough_vectors(
        self, n_columns: int, n_good: int, stop: Callable[[RoughVectors], bool] | None = None
    ) -> RoughVectors:
        """Mutates: the basis, expanded until ``n_good`` Ritz vectors are good, or ``stop``, or it is full."""
        rng = np.random.default_rng(SEED)
        basis = self.basis
        engine = self.problem.engine
        assert isinstance(basis.vectors, RowBasis)  # that of an engine in memory
        width = self.problem.operator.upper - self.problem.operator.lower
        steps = max(basis.done, usual_basis_size(n_columns, 1))
        while True:
            # 1. products of one vector
            while basis.done < steps and not basis.full:
                basis.expand(rng)
            # 2. Rayleigh-Ritz; vectors in the coordinates of the result
            ritz = basis.ritz()
            X = basis.vectors.combinations(ritz.Y[:, :n_columns])
            vectors = engine.to_numpy(self.problem.standard.inverse_transform(X))
            vectors = vectors if self.fit is None else self.fit.inverse_transform(vectors)
            # 3. good enough?
            allowed = np.minimum(ROUGH * width, ROUGH_RELATIVE * ritz.values)
            is_bad = ritz.residuals > allowed
            if stop is not None:
                # one vector finds near copies of an eigenvalue late: then all values after it still move
                m = int(basis.done / MORE_STEPS)
                before = np.linalg.eigvalsh(basis.T[:m, :m], UPLO="U")
                is_bad[:m] |= before - ritz.values[:m] > allowed[:m]
                is_bad[m:] = True
            is_bad[0] = False  # the null vector is known
            rough = RoughVectors(ritz, vectors, int(np.argmax(np.append(is_bad, True))))
            if rough.n_good >= n_good or basis.full or (stop is not None and stop(rough)):
                return rough
            steps = math.ceil(MORE_STEPS * basis.done)


def choose_by_rough_vectors(
    prepared: PreparedGraph, settings: Settings, context: RunContext
) -> Result | None:
    """The certified embedding of the treatment chosen by rough vectors; None where these are no use.

    Parameters
    ----------
    prepared
        The graph with its components sorted out.
    settings, context
        Of the run; ``settings.n_clusters`` is known.
    """
    k = settings.n_clusters or 0
    if not _is_suitable(prepared, settings, context, k):
        return None
    choice = _Choice(prepared, settings, context, k)
    context.on_stage("solve")
    try:
        return choice.by_wide_solve() if choice.is_for_wide_solve() else choice.by_krylov_spaces()
    except (FloatingPointError, np.linalg.LinAlgError):  # weights that no single precision holds
        return None


def _is_suitable(prepared: PreparedGraph, settings: Settings, context: RunContext, k: int) -> bool:
    """Whether nothing was asked for that leaves no choice, and the graph is in memory."""
    if not 2 <= k <= MAX_CLUSTERS_FOR_WIDE or settings.n_components != k:
        return False
    if reason_by_settings(prepared, settings, context) or prepared.connectivity.groups is not None:
        return False
    if settings.time_budget is not None or settings.memory_limit is not None or settings.tol != "auto":
        return False
    if not isinstance(context.engine, LocalEngine) or type(prepared.part) is not Graph:
        return False
    return prepared.part.n_nodes >= wide_columns(k) + 3


def max_steps(k: int, n_nodes: int) -> int:
    """Vectors of a basis for k clusters."""
    return min(MAX_STEPS_PER_COLUMN * wide_columns(k) + 40, n_nodes // 2)


@dataclass(frozen=True, eq=False)
class _Chosen:
    """A treatment, what to solve for, and the partition by rough vectors, where there is one."""

    treatment: Treatment
    plan: Plan
    labels: Array | None = None


@dataclass(frozen=True, eq=False)
class _Choice:
    """Candidates by rough vectors, and which of them is the best."""

    prepared: PreparedGraph
    settings: Settings
    context: RunContext
    k: int

    @property
    def n_null(self) -> int:
        """Components that take part, each with a null vector."""
        return int(self.prepared.connectivity.labels[self.prepared.kept].max()) + 1

    def is_for_wide_solve(self) -> bool:
        """Whether one solve with all columns serves all candidates, hardly longer than one with K."""
        part = self.prepared.part
        crowded = len(part.search.first.widths) > MAX_COMPACT_LEVELS
        is_tiny = part.n_nodes <= self.context.engine.thresholds.all_vectors
        return (crowded or is_tiny) and dangling_share(part) <= MIN_DANGLING_SHARE

    def by_wide_solve(self) -> Result | None:
        """The treatment chosen by the eigenvectors of one solve, of which the ones chosen are certified."""
        k = self.k
        usual = Plan(name_of(k, 0.0, "soft unit"), k, 0.0, "soft unit")
        rivals = plan_rivals(k, self.prepared.part.n_nodes, self.n_null, 0.0, k, 0.0)
        if self.n_null >= k or not rivals:
            return None
        wide = rivals[0]
        # 1. all columns, without a certificate
        asked = replace(self.settings, n_components=wide.n_columns, regularization=None)
        trial = run_trial(self.prepared, asked, replace(self.context, on_stage=ignore_stage))
        vectors = trial.solved.embedding.vectors
        values = trial.solved.embedding.eigenvalues
        decision = decide_regularization(trial.operator, vectors[:, :k], self.n_null)
        if decision.tau or trial.cost.interrupted:
            return None
        # 2. beyond doubt? Else the better partition
        reason = ""
        if self.n_null == 1:
            last, following = map(float, values[k - 1 : k + 1])
            reason = reason_beyond_doubt(decision, last, following, k, self.prepared.part)
        chosen = _Chosen(Treatment(usual.name, reason), usual)
        if not reason:
            chosen = self.better(usual, wide, values, vectors)
        # 3. a certificate for the columns chosen
        result = trial.certified(chosen.plan.n_columns)
        if not result.certificate.converged:
            return None
        seconds = {"solve": trial.cost.seconds["solve"] + result.seconds["solve"]}
        return self.result_of(replace(result, regularization=decision, seconds=seconds), chosen)

    def by_krylov_spaces(self) -> Result | None:
        """The treatment chosen by rough vectors, with the certified embedding that goes on with them."""
        if self.n_null > 1:  # of which a single vector finds one
            return None
        n = self.prepared.part.n_nodes
        limit = max_steps(self.k, n)
        if limit < 2 * usual_basis_size(wide_columns(self.k), 1) or 4 * n * limit > MAX_BASIS_BYTES:
            return None
        if len(self.prepared.part.search.first.widths) > MAX_LEVELS:
            return None
        began = time.perf_counter()
        found = self.among_krylov_spaces()
        if found is None:
            return None
        chosen, space, regularization = found
        # the winner alone is solved for to the end, from its basis
        reason = "goes on with the rough vectors that chose the treatment"
        choice = PlannedSolver("lanczos", reason, ONE_VECTOR, by_size=True, basis=space.basis)
        solved = embed(space.operator, chosen.plan.n_columns, self.settings, self.context, choices=(choice,))
        if not solved.certificate.converged and solved.stop_reason != INTERRUPTED:
            return None
        seconds = {"solve": time.perf_counter() - began}
        result = self.prepared.result_of(solved, space.operator, regularization, self.context, seconds)
        return self.result_of(result, chosen)

    def result_of(self, result: Result, chosen: _Chosen) -> Result:
        """The result with its treatment, and the partition that its clusters begin with."""
        start = None
        if chosen.labels is not None and self.settings.n_init > 1:
            start = np.full(len(result.connectivity.labels), EXCLUDED)
            start[result.rows] = chosen.labels
        return replace(result, treatment=chosen.treatment, start_labels=start)

    def among_krylov_spaces(self) -> tuple[_Chosen, KrylovSpace, Regularization] | None:
        """The treatment with Krylov space and regularisation; None where vectors are too rough."""
        k = self.k
        # 1. K vectors, of the graph or, where these are localised, of the regularised graph
        space, rough, decision = self.first()
        if rough.n_good < k:
            return None
        usual = Plan(name_of(k, space.tau, "soft unit"), k, space.tau, "soft unit")
        # 2. beyond doubt?
        reason = self.reason_beyond_doubt(rough, decision)
        if reason:
            return _Chosen(Treatment(usual.name, reason), usual), space, decision
        # 3. partitions by K vectors and by more of them
        plan = plan_rivals(k, self.prepared.part.n_nodes, 1, space.tau, k, 0.0)[0]
        wide = space.rough_vectors(plan.n_columns, plan.n_columns)
        if wide.n_good < k:
            return None
        return self.better(usual, plan, wide.ritz.values, wide.vectors), space, decision

    def better(self, usual: Plan, rival: Plan, values: Array, vectors: Array) -> _Chosen:
        """The better of two candidates by their partitions: that of the rival helps to find the first."""
        other, rival_labels = self.measured(rival, values, vectors, None)
        first, first_labels = self.measured(usual, values, vectors, rival_labels)
        plan, labels = (rival, rival_labels) if other.is_better_than(first) else (usual, first_labels)
        n_null = 1 if plan.tau else self.n_null
        candidates = (first, other)
        treatment = Treatment(plan.name, reason_for(plan, [*candidates]), plan.rows, n_null, candidates)
        return _Chosen(treatment, plan, labels)

    def first(self) -> tuple[KrylovSpace, RoughVectors, Regularization]:
        """K rough vectors with the tau that they took: the least at which they are not localised."""
        decision = Regularization(0.0, "not needed")
        for tau, next_tau in ((0.0, TAU), (TAU, MORE_TAU)):
            space = self.space(tau)
            stop = partial(self.decides, space, next_tau)
            rough = space.rough_vectors(self.k, self.k + 1, stop)
            found = self.decide(space, next_tau, rough)
            if found.tau == 0:
                return space, rough, found if tau == 0 else decision
            decision = found
        space = self.space(MORE_TAU)
        return space, space.rough_vectors(self.k, self.k + 1), decision

    def space(self, tau: float) -> KrylovSpace:
        """The Krylov space of the operator with a certain tau."""
        return KrylovSpace.of_graph(
            self.prepared.part, self.settings.laplacian, tau, self.k, self.context.engine
        )

    def decide(self, space: KrylovSpace, tau: float, rough: RoughVectors) -> Regularization:
        """Whether K rough vectors are localised, and ``tau`` is called for."""
        found = decide_regularization(space.operator, rough.vectors[:, : self.k], tau=tau)
        if rough.n_good < self.k and (found.localized or 0.0) <= CLEARLY_LOCALIZED:
            return replace(found, tau=0.0)
        return found

    def decides(self, space: KrylovSpace, tau: float, rough: RoughVectors) -> bool:
        """Whether rough vectors are good enough to see that they are localised, or that there is no doubt."""
        found = self.decide(space, tau, rough)
        return found.tau > 0 or bool(self.reason_beyond_doubt(rough, replace(found, tau=space.tau)))

    def reason_beyond_doubt(self, rough: RoughVectors, decision: Regularization) -> str:
        """Why K vectors are beyond doubt; empty where there is doubt, or vectors are too rough to tell."""
        k = self.k
        if rough.n_good < k:
            return ""
        # a Ritz value that is not good yet is within its residual of an eigenvalue (Parlett 1998, 4.5.1)
        slack = 0.0 if rough.n_good > k else rough.ritz.residuals[k]
        last = float(rough.ritz.values[k - 1])
        following = float(rough.ritz.values[k] - slack)
        return reason_beyond_doubt(decision, last, following, k, self.prepared.part)

    def measured(
        self, plan: Plan, values: Array, vectors: Array, similar: Array | None
    ) -> tuple[Candidate, Array]:
        """A candidate with its criterion, by a partition of rough vectors, and that partition."""
        graph = self.prepared.part
        columns = vectors[:, : plan.n_columns]
        weights = Treatment(plan.name, "", plan.rows, self.n_null).column_weights(values[: plan.n_columns])
        softly = 0.0 if self.settings.laplacian == "symmetric" else 1.0
        rows = unit_rows(columns if weights is None else columns * weights, softly)
        n_init = self.settings.n_init if similar is None else FIRST_RUNS
        labels = rough_labels(rows, self.k, n_init, np.random.default_rng(SEED), similar)
        follows = labels
        if plan.tau:
            follows = follow_neighbours([graph], labels, [plan.tau * float(graph.degrees.mean())]).labels
        return candidate_of(plan, cluster_shares(graph, follows, self.k), follows), labels
