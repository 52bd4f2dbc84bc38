"""Which eigenvectors make the clusters: K of them, more of them, or those of the regularised graph.

The first K eigenvectors are the textbook's choice. On real graphs it is often a bad one: vectors that live on
tiny pieces crowd out the clusters, or the gap after the K-th is no gap, and the next vectors hold half of
what there is to see. So, with ``regularization="auto"``, partitions by several treatments are made and
compared by how much they tell about the edges (:func:`spectrograd.labels.partition_criteria`), as it is and
beside the entropy of their volumes: the first stands unless another is better by both. Where the first
partition is beyond doubt no other is made (docs/adr/0054-treatment-by-evidence.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from spectrograd.graph import Graph, GraphWarning
from spectrograd.labels.eigengap import bulk_edge
from spectrograd.labels.partition_criteria import cluster_shares, edge_information, relative_information
from spectrograd.notices import warn
from spectrograd.operators.laplacian import TAU, Regularization
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.memory_estimate import resident_bytes
from spectrograd.pipeline.plan import MAX_COMPACT_LEVELS
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.trial import Trial, run_trial
from spectrograd.solvers.settings import RunContext, ignore_stage
from spectrograd.typing import Array, JsonObject

if TYPE_CHECKING:
    from spectrograd.pipeline.result import Result
    from spectrograd.pipeline.single import PreparedGraph

RowForm = Literal["soft unit", "unit", "commute"]

# Beyond doubt: the next eigenvalue is so many times the K-th, and no vector is localised. On the choosing
# half of the bench nothing is lost above 1.2.
CLEAR_RATIO = 1.25
# Or it is so large a part of the value at which noise begins (:func:`spectrograd.labels.eigengap.bulk_edge`):
# of what comes next nothing is gained. On the choosing half K vectors are as good from .9 on.
BULK_SHARE = 0.9
# A partition that tells hardly more is as good as the first, and its vectors are dearer.
MARGIN = 0.005
# Clusters up to which half as many vectors more are computed: beyond, they and their k-means cost several
# times the rest, and gain nothing on the bench. There exact unit rows are the rival: no other solve.
MAX_CLUSTERS_FOR_WIDE = 50
MIN_MORE_VECTORS = 2
# Regularisation is for what dangles. Neighbours of points have none of it, and are harmed: a candidate only
# where more than this share of the nodes has at most two neighbours.
MIN_DANGLING_SHARE = 0.01
MAX_DANGLING_NEIGHBOURS = 2
# Components whose clusters are to be found by splitting one: the largest has so many fair shares of nodes.
MIN_SPLIT_SHARES = 2.0
LOPSIDED_SHARE = 0.95  # of the nodes in one cluster: the result is said to be that


@dataclass(frozen=True)
class Candidate:
    """A treatment that was tried.

    ``criterion`` is the information, in nats per edge, of its partition about the edges, ``relative`` the
    same over the root of the entropy of its volumes; ``largest_share`` is the part of the nodes in its
    largest cluster.
    """

    name: str
    n_vectors: int
    tau: float
    rows: RowForm
    criterion: float
    largest_share: float
    relative: float = 0.0

    def is_better_than(self, first: Candidate) -> bool:
        """Whether its partition tells more than the first one, and not only because it is more even."""
        tells_more = self.criterion > (1 + MARGIN) * first.criterion
        return tells_more and self.relative > (1 + MARGIN) * first.relative


@dataclass(frozen=True)
class Treatment:
    """What made the clusters, and why that.

    Attributes
    ----------
    name
        Of the candidate chosen.
    reason
        Why it was, or why nothing was compared.
    rows
        How rows of vectors become points for k-means. "soft unit": of unit length, but for rows much shorter
        than the median. "unit": of unit length. "commute": columns are divided by the roots of their
        eigenvalues, null vectors left out, then as "soft unit"; distances are then those of commute times
        before rows are scaled (Fouss et al. 2007; Qiu and Hancock 2007).
    n_null
        Vectors of eigenvalue zero, which "commute" leaves out.
    candidates
        All that were tried, the one chosen among them; empty where nothing was compared.
    largest_share
        Part of the nodes in the largest cluster.
    """

    name: str
    reason: str
    rows: RowForm = "soft unit"
    n_null: int = 1
    candidates: tuple[Candidate, ...] = ()
    largest_share: float | None = None

    def column_weights(self, eigenvalues: Array) -> Array | None:
        """What columns are multiplied with before rows are scaled; None where that is one for all."""
        if self.rows != "commute":
            return None
        values = np.asarray(eigenvalues, dtype=np.float64)
        least = values[self.n_null]  # so that weights are at most one
        weights = np.sqrt(least / np.maximum(values, least))
        weights[: self.n_null] = 0.0
        return np.asarray(weights)

    @property
    def is_lopsided(self) -> bool:
        """Whether one cluster holds nearly everything."""
        return self.largest_share is not None and self.largest_share >= LOPSIDED_SHARE

    @property
    def sentence(self) -> str:
        """What made the clusters and why, in words."""
        text = f"clusters by {self.name}: {self.reason}"
        return f"{text}; {self.lopsided_sentence}" if self.is_lopsided else text

    @property
    def lopsided_sentence(self) -> str:
        """That one cluster holds nearly everything, with what to try."""
        return (
            f"one cluster holds {self.largest_share:.1%} of the nodes: try regularization=0.3, more "
            "clusters, or a graph without its dangling parts"
        )

    def summary(self) -> JsonObject:
        """What ``--summary-json`` holds."""
        lopsided = self.lopsided_sentence if self.is_lopsided else ""
        return {**asdict(self), "lopsided": lopsided, "sentence": self.sentence}


# --- Candidates: what to solve for, and how its rows become points.


@dataclass(frozen=True)
class Plan:
    """One candidate before it is made; ``n_columns`` counts null vectors."""

    name: str
    n_columns: int
    tau: float
    rows: RowForm


def plan_rivals(k: int, n_nodes: int, n_null: int, tau: float, n_first: int, dangling: float) -> list[Plan]:
    """The treatments to try after the first, each only where the one before it was better.

    Parameters
    ----------
    k
        Number of clusters.
    n_nodes
        Nodes that take part: fewer than there are vectors to compute.
    n_null
        Vectors of value zero: they do not count, but for the constant.
    tau
        That of the first treatment, by localised vectors.
    n_first
        Vectors of the first treatment.
    dangling
        Share of the nodes with hardly a neighbour.
    """
    if k > MAX_CLUSTERS_FOR_WIDE:
        plans = [Plan(name_of(k, tau, "unit"), n_first, tau, "unit")]
        if tau == 0 and dangling > MIN_DANGLING_SHARE:
            # where unit rows are better, clusters are full of short rows, which regularisation mends
            plans.append(Plan(name_of(k, TAU, "unit"), k, TAU, "unit"))
        return plans
    wide = min(wide_columns(k) + n_null - 1, n_nodes - 2)
    if wide <= max(k, n_null):
        return []
    return [Plan(name_of(wide_columns(k), tau, "commute"), wide, tau, "commute")]


def wide_columns(k: int) -> int:
    """Vectors of the candidates with more than K."""
    return k + max(MIN_MORE_VECTORS, k // 2)


def name_of(n_vectors: int, tau: float, rows: RowForm) -> str:
    """A treatment in words."""
    how = {"soft unit": "", "unit": " as unit rows", "commute": " by commute distance"}[rows]
    return f"{n_vectors} vectors{how}" + (f" of the graph regularised with tau = {tau:g}" if tau else "")


def after_update(treatment: Treatment | None, result: Result) -> Treatment | None:
    """The treatment of the last fit for the vectors of a graph that has changed since."""
    if treatment is None:
        return None
    n_null = count_null_vectors(result)
    if treatment.rows == "commute" and n_null >= result.embedding.n_components:
        return replace(treatment, rows="soft unit")  # so many components that no other vector is left
    again = "as at the last fit"
    reason = treatment.reason if treatment.reason.startswith(again) else f"{again} ({treatment.reason})"
    return replace(treatment, n_null=n_null, reason=reason)


def count_null_vectors(result: Result) -> int:
    """Eigenvectors of value zero: one per component that takes part, unless regularisation ties them."""
    if result.regularization.tau:
        return 1
    components = result.connectivity.labels[result.connectivity.kept]
    return len(np.unique(components))


def dangling_share(graph: Graph) -> float:
    """Share of the nodes that have at most two neighbours."""
    counts = np.concatenate([np.diff(block.indptr) for block in graph.blocks])
    return float((counts <= MAX_DANGLING_NEIGHBOURS).mean())


# --- Selection: is there doubt, which candidates, which of them.


def select_treatment(
    first: Result,
    prepared: PreparedGraph,
    settings: Settings,
    context: RunContext,
    solve: Callable[[PreparedGraph, Settings, RunContext], Result],
    label: Callable[[Result, Settings, RunContext], Result],
) -> Result:
    """The clusters that tell most about the edges, by the first treatment or by another.

    Parameters
    ----------
    first
        The usual solve with its clusters.
    prepared, settings, context
        What it was made from.
    solve, label
        Stages of the pipeline: embed a prepared graph; cluster the rows of a result by its treatment.
    """
    k = int(first.n_clusters or 0)
    if first.treatment is not None:  # chosen before the solve, by rough vectors
        return _warn_if_lopsided(_with_treatment(first, first.treatment))
    usual = name_of(first.embedding.n_components, first.regularization.tau, "soft unit")
    why_not = _reason_not_to_compare(first, prepared, settings, context, k)
    if why_not:
        return _warn_if_lopsided(_with_treatment(first, Treatment(usual, why_not)))
    if first.connectivity.groups is not None:
        usual = "whole components"
    settings = replace(settings, n_clusters=k)
    context = replace(context, hooks=(), observer=None, on_stage=ignore_stage)
    usual_plan = Plan(usual, first.embedding.n_components, first.regularization.tau, "soft unit")
    n_null = count_null_vectors(first)
    split = replace(prepared, connectivity=replace(prepared.connectivity, groups=None))
    contest = _Contest(split, settings, context, solve, label, usual_plan, n_null, first)
    part = prepared.part
    best, plan, candidates, spent = contest.run(
        plan_rivals(k, part.n_nodes, n_null, usual_plan.tau, usual_plan.n_columns, dangling_share(part))
    )
    reason = reason_for(plan, candidates)
    chosen = Treatment(plan.name, reason, plan.rows, 1 if plan.tau else n_null, tuple(candidates))
    if plan is not usual_plan:
        best = replace(best, regularization=_regularization_of(best, first), eigengap=first.eigengap)
    return _warn_if_lopsided(_with_treatment(_costs_of(best, spent), chosen))


@dataclass(frozen=True, eq=False)
class _Contest:
    """The first treatment against its rivals: a certificate for the one that is taken."""

    prepared: PreparedGraph
    settings: Settings
    context: RunContext
    solve: Callable[[PreparedGraph, Settings, RunContext], Result]
    label: Callable[[Result, Settings, RunContext], Result]
    usual: Plan
    n_null: int
    first: Result

    def run(self, rivals: list[Plan]) -> tuple[Result, Plan, list[Candidate], Result]:
        """The best result with its plan, all candidates, and a result that holds the costs of all."""
        best = spent = self.first
        plan = self.usual
        best_candidate = _measured(self.usual, self.first, self.prepared.part)
        candidates = [best_candidate]
        for rival in rivals:
            if time.perf_counter() >= self.context.labelled_by:
                break
            # 1. vectors of the rival, where the first does not have them
            vectors = self.first
            trial: Trial | None = None
            if not self.has_vectors_of_first(rival):
                trial = run_trial(self.prepared, self.asked(rival), self.context)
                spent = _with_costs(spent, trial.cost)
                if trial.cost.interrupted:
                    best = replace(best, stop_reason=trial.cost.stop_reason)
                    break
                vectors = trial.cost
            # 2. its partition: better than the best so far?
            labelled = self.labelled(rival, replace(vectors, seconds={}, passes=0.0, matvecs=0))
            spent = _with_costs(spent, labelled)
            candidate = _measured(rival, labelled, self.prepared.part)
            candidates.append(candidate)
            if not candidate.is_better_than(best_candidate):
                break
            # 3. certified?
            if trial is not None:
                labelled = self.certified(rival, labelled, trial)
                spent = _with_costs(spent, labelled)
            if not labelled.certificate.converged:
                break
            best = labelled
            plan = rival
            best_candidate = candidate
        return best, plan, candidates, spent

    def has_vectors_of_first(self, plan: Plan) -> bool:
        """Whether a plan asks for nothing but other rows of the vectors that are there."""
        return plan.n_columns == self.usual.n_columns and plan.tau == self.usual.tau

    def asked(self, plan: Plan) -> Settings:
        """The settings of a solve for a plan."""
        return replace(self.settings, n_components=plan.n_columns, regularization=plan.tau or None)

    def labelled(self, plan: Plan, vectors: Result) -> Result:
        """The clusters of a plan in its vectors."""
        treatment = Treatment(plan.name, "", plan.rows, 1 if plan.tau else self.n_null)
        return self.label(replace(vectors, treatment=treatment), self.settings, self.context)

    def certified(self, plan: Plan, labelled: Result, trial: Trial) -> Result:
        """A partition with the certificate of its vectors; these are solved for by all means if need be."""
        vectors = trial.certified(plan.n_columns)
        if vectors.certificate.converged or time.perf_counter() >= self.context.certified_by:
            return replace(
                vectors,
                treatment=labelled.treatment,
                labels=labelled.labels,
                n_clusters=labelled.n_clusters,
                membership=labelled.membership,
                judge=labelled.judge,
            )
        with self.context.engine.threads():
            again = self.solve(self.prepared, self.asked(plan), self.context)
        return self.labelled(plan, again)


def _regularization_of(best: Result, first: Result) -> Regularization:
    """The tau of a candidate that was taken in place of the first, and why."""
    tau = best.regularization.tau
    if tau == first.regularization.tau:
        return first.regularization
    how = f"{tau:g} mean degrees added to every degree: its clusters tell more about the edges"
    return Regularization(tau, how, first.regularization.localized)


def _reason_not_to_compare(
    first: Result, prepared: PreparedGraph, settings: Settings, context: RunContext, k: int
) -> str:
    """Why the first treatment stands without a comparison; empty where it does not."""
    reason = reason_by_settings(prepared, settings, context)
    if reason:
        return reason
    if k < 2 or first.interrupted or prepared.part.n_nodes < 2 * k + 3:
        return "there is nothing to compare"
    connectivity = first.connectivity
    if connectivity.groups is not None:
        share = float(connectivity.sizes[0]) * k / len(connectivity.labels)
        return "" if share > MIN_SPLIT_SHARES else "the clusters are whole components, and none is large"
    if not isinstance(first.operator, SparseOperator):
        return "other treatments are not tried on a graph without edges of its own"
    limit = settings.memory_limit
    if limit is not None and resident_bytes(first.operator.graph, 2 * k) > limit:
        return "other treatments do not fit into the memory limit"
    if settings.time_budget is not None and first.seconds.get("solve", 0.0) > settings.time_budget / 8:
        return "other treatments do not fit into the time budget"
    if connectivity.n_components > 1:
        return ""
    last = float(first.eigenvalues[-1])
    return reason_beyond_doubt(first.regularization, last, last + first.certificate.gap, k, prepared.part)


def reason_by_settings(prepared: PreparedGraph, settings: Settings, context: RunContext) -> str:
    """What was asked for that leaves no choice of a treatment; empty where nothing was."""
    if settings.regularization != "auto":
        return "regularization was given, so nothing else was tried"
    if isinstance(settings.n_components, int) and settings.n_clusters not in (None, settings.n_components):
        return "the number of vectors was given, so nothing else was tried"
    if settings.solver != "auto" or settings.assign_labels != "kmeans":
        return "the solver or the rule for labels was given, so nothing else was tried"
    if settings.laplacian not in ("random_walk", "symmetric"):
        return f"other treatments are not tried with the {settings.laplacian} Laplacian"
    if not prepared.graph.is_resident or context.engine.is_distributed:
        return "other treatments are not tried where passes over the edges are expensive"
    if context.checkpoint is not None:
        return "other treatments are not tried in a run that keeps checkpoints"
    return ""


def reason_beyond_doubt(decision: Regularization, last: float, following: float, k: int, graph: Graph) -> str:
    """Why K vectors are beyond doubt, by the K-th eigenvalue and the one ``following``; empty where not."""
    if not decision.tau and decision.localized:
        return ""
    # 1. the next vectors are noise: their values lie where those of a random graph begin
    edge = bulk_edge([graph], tau=decision.tau) if k <= MAX_CLUSTERS_FOR_WIDE else None
    if edge is not None and following > BULK_SHARE * edge:
        return (
            f"the next eigenvalue is {following / edge:.2g} times the one at which those of a random graph "
            "begin, so nothing else was tried"
        )
    # 2. a gap
    clear = CLEAR_RATIO
    if len(graph.search.first.widths) > MAX_COMPACT_LEVELS:
        # A chain without clusters has such a ratio: its eigenvalues grow as the squares of their number.
        clear *= (k / (k - 1)) ** 2
    ratio = following / last if last > 0 else np.inf
    if decision.tau or not ratio > clear:
        return ""
    return (
        f"the next eigenvalue is {ratio:.2g} times the last one and no vector is localised, so nothing "
        "else was tried"
    )


def _measured(plan: Plan, result: Result, graph: Graph) -> Candidate:
    """A candidate with its criterion."""
    assert result.labels is not None
    labels = result.labels[result.rows]
    return candidate_of(plan, cluster_shares(graph, labels, result.n_clusters), labels)


def candidate_of(plan: Plan, shares: Array, labels: Array) -> Candidate:
    """A candidate with the criteria of its partition, whose clusters share the edges like that."""
    return candidate_of_shares(plan, edge_information(shares), relative_information(shares), labels)


def candidate_of_shares(plan: Plan, criterion: float, relative: float, labels: Array) -> Candidate:
    """A candidate whose criteria are known, of several layers for instance."""
    return Candidate(
        plan.name,
        plan.n_columns,
        plan.tau,
        plan.rows,
        float(criterion),
        _largest_share(labels),
        float(relative),
    )


def _largest_share(labels: Array) -> float:
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    return float(sizes.max() / max(1, sizes.sum()))


def reason_for(plan: Plan, candidates: list[Candidate]) -> str:
    """The figures of the one chosen and of the others."""
    chosen = next(each for each in candidates if each.name == plan.name)
    others = [each for each in candidates if each is not chosen]
    text = f"they tell {chosen.criterion:.3f} nats about an edge"
    if not others:
        return text
    text += f" ({', '.join(f'{each.name}: {each.criterion:.3f}' for each in others)})"
    if chosen is candidates[0] and max(each.criterion for each in others) > chosen.criterion:
        text += "; no other tells more beside the entropy of its clusters"
    return text


def _with_costs(before: Result, found: Result) -> Result:
    """The result before with the costs of another candidate."""
    seconds: Mapping[str, float] = before.seconds
    names = (*seconds, *(name for name in found.seconds if name not in seconds))
    total = {name: seconds.get(name, 0.0) + found.seconds.get(name, 0.0) for name in names}
    return replace(
        before, seconds=total, passes=before.passes + found.passes, matvecs=before.matvecs + found.matvecs
    )


def _costs_of(best: Result, total: Result) -> Result:
    """The best candidate with the costs of all."""
    return replace(best, seconds=total.seconds, passes=total.passes, matvecs=total.matvecs)


def _with_treatment(result: Result, treatment: Treatment) -> Result:
    return replace(
        result, treatment=replace(treatment, largest_share=_largest_share(np.asarray(result.labels)))
    )


def _warn_if_lopsided(result: Result) -> Result:
    """Warn where one cluster holds nearly everything."""
    if result.treatment is not None and result.treatment.is_lopsided and (result.n_clusters or 0) > 1:
        warn(result.treatment.lopsided_sentence, GraphWarning)
    return result
