"""From the rows that were solved to rows of the result: one for every node, in the order of the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from spectrograd.certificate import exact_certificate
from spectrograd.certificate.localization import decide_regularization
from spectrograd.embedding import Embedding, row_slices
from spectrograd.engines.base import MultiVector
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.components import (
    Connectivity,
    connect,
    indicators,
    on_all_rows,
    report_excluded,
    subgraph,
)
from spectrograd.graph.features import FeatureGraph
from spectrograd.graph.ordering import length_order, near_order, reordered
from spectrograd.labels.eigengap import Eigengap, bulk_edge, n_eigenvalues, n_more_eigenvalues, widest_gap
from spectrograd.operators.laplacian import (
    MORE_TAU,
    TAU,
    Kind,
    Regularization,
    check_regularization,
    form_of,
    is_signed_kind,
    masked_laplacian,
)
from spectrograd.operators.similarity import SimilarityOperator, similarity_laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.localization_look import SpectrumLook, begin_look
from spectrograd.pipeline.memory_estimate import resident_bytes
from spectrograd.pipeline.result import (
    CertifiedEmbedding,
    DistributedEmbedding,
    Result,
    Stages,
    make_result,
)
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import certify_first_columns, embed
from spectrograd.solvers.base import Progress
from spectrograd.solvers.loop import INTERRUPTED, Solution
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

GraphOperator = SparseOperator | SimilarityOperator


def _laplacian(graph: Graph, kind: Kind, tau: float, excluded: Array) -> GraphOperator:
    """The Laplacian of a graph, of stored edges or of implicit similarities, which have excluded nothing."""
    if isinstance(graph, FeatureGraph):
        return similarity_laplacian(graph, kind, tau)
    return masked_laplacian(graph, kind, tau, excluded)


def result_names(graph: Graph) -> Array | None:
    """The names of the rows of the result; None where they are the row numbers."""
    if graph.names is None or getattr(graph, "ids_are_rows", False):
        return None
    return graph.input_names


def with_all_nodes(
    solved: CertifiedEmbedding, graph: Graph | MultilayerGraph, kept: Array, masked: Array
) -> Embedding:
    """The embedding with a row for every node, in the order of the input; masked rows are zero.

    Of a graph on disk it is in float32: it may be as large as memory, and its digits end there anyway.
    """
    one = graph.layers[0]
    if isinstance(solved.embedding, DistributedEmbedding):
        return solved.embedding.of_nodes(kept, masked, result_names(one))
    vectors = solved.embedding.vectors
    if graph.is_resident:
        rows = on_all_rows(vectors, kept, graph.n_nodes)
    else:
        rows = np.zeros((graph.n_nodes, vectors.shape[1]), np.float32)
        for part in row_slices(vectors):
            rows[kept[part]] = vectors[part]
        rows[kept[masked]] = 0
    return Embedding(rows, solved.embedding.eigenvalues, result_names(one))


def multivector_of_all_nodes(
    solved: CertifiedEmbedding, context: RunContext, n_nodes: int, kept: Array, masked: Array
) -> MultiVector | None:
    """As :func:`with_all_nodes`, on the engine and without a look at the host; None unless asked for."""
    if not context.keep_multivector:
        return None
    engine = context.engine
    Q = solved.Q
    Q = (
        engine.from_numpy(Q) if isinstance(Q, np.ndarray) else Q
    )  # of whole components, which nobody solved for
    Q = engine.combine(Q, np.diag(np.where(engine.column_statistics(Q).peaks < 0, -1.0, 1.0)))
    if len(masked):
        active = np.ones((len(kept), 1))
        active[masked] = 0
        Q = engine.scale_rows(Q, engine.from_numpy(active))
    return engine.scatter_rows(Q, kept, n_nodes)


# --- From a graph to a certified embedding: components, regularisation by evidence, solver.


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A graph whose components are sorted out: what is left to do is to solve, by whatever solver.

    ``part`` has the nodes ``kept`` (row numbers of the result) in an order that is good for passes. Where a
    graph is on disk it is all of it, and ``masked`` are its rows that take no part.
    """

    graph: Graph
    part: Graph
    kept: Array
    connectivity: Connectivity
    masked: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def solve(
        self, settings: Settings, context: RunContext | None = None, start: Array | None = None
    ) -> Result:
        """The certified embedding of all nodes; ``start`` (N x K) is a guess for a warm start."""
        context = (context or RunContext()).start_clock(settings)
        stages = Stages(context.on_stage)
        with stages("solve"):
            solved, operator, regularization, gap = self.solve_part(settings, context, start)
        found = self.result_of(solved, operator, regularization, context, stages.seconds)
        return replace(found, eigengap=gap)

    def result_of(
        self,
        solved: CertifiedEmbedding,
        operator: GraphOperator,
        regularization: Regularization,
        context: RunContext,
        seconds: dict[str, float],
    ) -> Result:
        """What was solved on the part, as a result with all nodes; ``seconds`` are by stage."""
        embedding = with_all_nodes(solved, self.graph, self.kept, self.masked)
        return make_result(
            solved,
            embedding=embedding,
            operator=operator,
            connectivity=self.connectivity,
            regularization=regularization,
            eigengap=None,
            rows=self.kept,
            seconds=seconds,
            multivector=multivector_of_all_nodes(solved, context, self.graph.n_nodes, self.kept, self.masked),
        )

    def solve_part(
        self, settings: Settings, context: RunContext, start: Array | None = None
    ) -> tuple[CertifiedEmbedding, GraphOperator, Regularization, Eigengap | None]:
        """The nodes that take part alone: their embedding, its operator, and what was decided."""
        wanted = check_regularization(settings.regularization)
        groups = self.connectivity.groups
        if groups is not None:
            operator = _laplacian(self.part, settings.laplacian, 0.0, self.masked)
            solved = _whole_components(operator, groups[self.kept])
            none_needed = Regularization(0.0, "not needed: whole components make the clusters")
            return solved, operator, none_needed, None
        components = self.connectivity.labels[self.kept]  # 0, 1, ...: excluded from the smallest on
        guess = None if start is None else start[self.kept]
        n_active = self.part.n_nodes - len(self.masked)
        components[self.masked] = -1
        # excluded rows have no eigenvectors of their own: K must fit the others
        k = n_columns(n_active, settings)
        nodes = _ActiveProblem(self.part, k, settings, context, components, guess, self.masked)
        solved, operator, decision = nodes.embed_active(wanted)
        gap = None
        if isinstance(settings.n_components, str):
            solved, gap = self._counted(nodes, solved, operator, decision)
            gap.warn()
            solved = certify_first_columns(operator, solved, gap.n_clusters, settings, context)
        return solved, operator, decision, gap

    def _counted(
        self,
        nodes: _ActiveProblem,
        solved: CertifiedEmbedding,
        operator: GraphOperator,
        decision: Regularization,
    ) -> tuple[CertifiedEmbedding, Eigengap]:
        """The number of clusters; where the first eigenvalues do not decide, more of them are asked for.

        The second look takes the place of the first only where it finds a clear number.
        """
        # 1. the gap among the first eigenvalues
        edge = bulk_edge([self.part], nodes.settings.laplacian, decision.tau)
        n_trivial = nodes.n_trivial if decision.tau == 0 else 1
        gap = nodes.judged(widest_gap(solved.embedding.eigenvalues, edge), operator, n_trivial, solved)
        more = n_more_eigenvalues(self.part.n_nodes)
        if not (gap.asks_for_more and more > nodes.k and self._has_means(nodes, solved, more)):
            return solved, gap
        # 2. more eigenvalues, with what is left of the time
        wide = replace(nodes, k=more, context=nodes.context_after(solved))
        # (the regularisation is decided: a second look does not change it)
        further = wide.with_tau(decision)[0]
        second = widest_gap(further.embedding.eigenvalues, edge)
        second = nodes.judged(second, operator, n_trivial, further)
        # 3. accept the second look only if it is clear, complete and not localised
        localized = nodes.decide_by_result(operator, n_trivial, further).tau > 0
        if further.stop_reason == INTERRUPTED or localized or not second.clear:
            return solved, gap
        return further.after(solved), second

    def _has_means(self, nodes: _ActiveProblem, solved: CertifiedEmbedding, more: int) -> bool:
        """Whether a second look fits into memory and time, and nobody has asked to stop."""
        if not self.graph.is_resident or solved.stop_reason == INTERRUPTED:
            return False
        limit = nodes.settings.memory_limit
        budget = nodes.context.seconds_left(nodes.settings)
        fits = limit is None or resident_bytes(self.graph, 2 * more) <= limit
        width = len(solved.embedding.eigenvalues)
        return fits and (budget is None or 2 * more / width * solved.total_seconds < budget)


def prepare_graph(graph: Graph, settings: Settings, context: RunContext) -> PreparedGraph:
    """Sort out the components of a graph; whatever is excluded is named in a warning."""
    check_regularization(settings.regularization)
    # 1. components: tiny ones are excluded, or all become clusters of their own
    connectivity = connect(graph, settings.n_components, settings.disconnected)
    if is_signed_kind(settings.laplacian):  # a component may hold several groups: it is no cluster by itself
        connectivity = replace(connectivity, groups=None)
    report_excluded(connectivity, graph.node_names)
    kept = connectivity.kept
    n_columns(len(kept), settings)  # too many are refused before any work
    if isinstance(graph, FeatureGraph):
        return PreparedGraph(graph, graph.subgraph(kept), kept, connectivity)
    if not graph.is_resident:
        return _prepare_stored(graph, connectivity)
    # 2. the active nodes alone, numbered such that neighbours are near each other in memory and rows of
    # equal length side by side
    part = subgraph(graph, kept)
    order = None
    if connectivity.groups is None:
        sizes = context.engine.thresholds
        order = length_order(part, near_order(part, sizes), sizes)
    if order is not None:
        part = reordered(part, order)
        kept = kept[order]
    return PreparedGraph(graph, part, kept, connectivity)


def _prepare_stored(graph: Graph, connectivity: Connectivity) -> PreparedGraph:
    """A graph on disk, whose rows stay where they are; the result is in the order of the input."""
    order = input_order(graph)
    return PreparedGraph(graph, graph, order, connectivity.moved(order), connectivity.excluded)


def input_order(graph: Graph) -> Array:
    """Which row of the result each row of a graph is."""
    order = getattr(graph, "input_order", None)
    return np.arange(graph.n_nodes, dtype=np.int32) if order is None else np.asarray(order)


def n_columns(n: int, settings: Settings) -> int:
    """Eigenvectors to compute, or an error where n nodes have not as many."""
    k = settings.n_components
    k = n_eigenvalues(n) if isinstance(k, str) else k
    if k >= n:
        raise GraphError(f"{k} eigenvectors asked of the {n} nodes that are left: choose fewer")
    return k


Found = tuple[CertifiedEmbedding, GraphOperator, Regularization]


@dataclass(frozen=True, eq=False)
class _ActiveProblem:
    """The nodes that take part, on their way through the solver."""

    graph: Graph
    k: int
    settings: Settings
    context: RunContext
    components: Array  # component of every node, -1 for those that are masked
    start: Array | None
    masked: Array

    def embed_active(self, wanted: float | str | None) -> Found:
        tie = self.settings.disconnected == "regularize" and self.components.max() > 0
        if tie and wanted in ("auto", None, 0.0):
            reason = (
                f"{int(self.components.max()) + 1} components: {TAU:g} mean degrees added to every degree "
                "tie them together"
            )
            return self.with_tau(Regularization(TAU, reason))
        if wanted == "auto" and form_of(self.settings.laplacian) == "unnormalized":
            reason = "not used: it does not change the eigenvectors of an unnormalised Laplacian"
            return self.with_tau(Regularization(0.0, reason))
        if isinstance(wanted, str):
            return self.by_evidence()
        return self.with_tau(Regularization(wanted or 0.0, "asked for" if wanted else "off"))

    @property
    def n_trivial(self) -> int:
        """Null vectors that are constant on components: one each; of a signed graph nobody knows any."""
        return 0 if is_signed_kind(self.settings.laplacian) else int(self.components.max()) + 1

    def operator(self, tau: float = 0.0) -> GraphOperator:
        return _laplacian(self.graph, self.settings.laplacian, tau, self.masked)

    def decide_by_vectors(
        self, operator: GraphOperator, n_trivial: int, vectors: MultiVector, **how: Any
    ) -> Regularization:
        """What the vectors tell, on the part of the volume that is not masked."""
        metric = operator.random_walk_form().metric
        share = 1.0
        if len(self.masked) and metric is not None:
            share = 1 - float(metric[self.masked].sum() / metric.sum())
        return decide_regularization(operator, vectors, n_trivial, volume=share, **how)

    def decide_by_result(
        self, operator: GraphOperator, n_trivial: int, found: CertifiedEmbedding, **how: object
    ) -> Regularization:
        """What the vectors found tell, wherever they are."""
        if isinstance(found.embedding, DistributedEmbedding):
            how |= {"engine": found.embedding.engine}
            return self.decide_by_vectors(operator, n_trivial, found.embedding.multivector, **how)
        return self.decide_by_vectors(operator, n_trivial, found.embedding.vectors, **how)

    def judged(
        self, gap: Eigengap, operator: GraphOperator, n_trivial: int, found: CertifiedEmbedding
    ) -> Eigengap:
        """The gap, which is not clear where a vector before it is localised."""
        how: dict[str, Any] = {}
        vectors: MultiVector
        if isinstance(found.embedding, DistributedEmbedding):
            how = {"engine": found.embedding.engine}
            vectors = found.embedding.engine.columns(found.embedding.multivector, slice(0, gap.n_clusters))
        else:
            vectors = found.embedding.vectors[:, : gap.n_clusters]
        decision = self.decide_by_vectors(operator, n_trivial, vectors, **how)
        return replace(gap, has_pieces=bool(decision.localized))

    def with_tau(self, decision: Regularization) -> Found:
        operator = self.operator(decision.tau)
        start = self.start if decision.tau > 0 else self.first_guess(operator)
        return embed(operator, self.k, self.settings, self.context, start=start), operator, decision

    def by_evidence(self) -> Found:
        """Solve with tau of 0, then ``TAU``, then ``MORE_TAU``, until the eigenvectors are not localised.

        A regularised problem has another spectrum, so another plan. A solve is given up as soon as its rough
        vectors are seen to be localised, or not begun: only the last one runs to its end.
        """
        decision = Regularization(0.0, "not needed")
        before: CertifiedEmbedding | None = None
        while True:
            is_plain = decision.tau == 0
            next_tau = TAU if is_plain else MORE_TAU if decision.tau < MORE_TAU else None
            # 1. The operator; localised vectors of the solve before are no start for it.
            operator = self.operator(decision.tau)
            start = self.first_guess(operator) if is_plain else self.start
            context = self.context if before is None else self.context_after(before)
            # 2. Localised as the plan's look at the spectrum shows? Then there is nothing to solve.
            n_trivial = self.n_trivial if is_plain else min(1, self.n_trivial)
            decide = partial(self.decide_by_vectors, operator, n_trivial, engine=context.engine, tau=next_tau)
            look = self.begin_look(operator, start, next_tau)
            seen = None if look is None else look.decide(partial(decide, rough=True))
            if seen is not None:
                decision = seen
                continue
            # 3. Solve, under the eyes of a watch where there is a larger tau to go to.
            watch = _Watch(decide)
            context = context if next_tau is None else replace(context, watch=watch)
            result = embed(operator, self.k, self.settings, context, start=start, look=look)
            if before is not None:
                result = result.after(before)
            if next_tau is None:
                return result, operator, decision
            # 4. Localised? The watch has seen it, or the solution shows it.
            found = watch.decision or self.decide_by_result(operator, n_trivial, result, tau=next_tau)
            if found.tau <= decision.tau:
                return result, operator, found if is_plain else decision
            if result.stop_reason == INTERRUPTED:
                if is_plain:
                    decision = replace(found, tau=0.0, reason="not used: interrupted before")
                return result, operator, decision
            decision = found
            before = result.without_vectors()
            del result, operator, watch, context, start, look  # large, and the next solve needs none of it

    def begin_look(
        self, operator: GraphOperator, start: Array | None, next_tau: float | None
    ) -> SpectrumLook | None:
        """The plan's look at the spectrum, where ``auto`` plans and there is a larger tau to go to."""
        if next_tau is None or start is not None or self.n_trivial > 1 or self.settings.solver != "auto":
            return None
        return begin_look(operator, self.k, self.context.engine)

    def context_after(self, earlier: CertifiedEmbedding) -> RunContext:
        """The context of a solve that follows: what is left of the time budget, and the same moments."""
        budget = self.context.seconds_left(self.settings)
        if budget is None:
            return self.context
        left = max(1e-9, budget - earlier.solver_seconds)  # the first step is taken anyway
        return replace(self.context, solver_seconds=left)

    def first_guess(self, operator: GraphOperator) -> Array | None:
        """The warm start; else, of several components, their null vectors, which need not be found again."""
        if self.start is not None or self.n_trivial < 2:
            return self.start
        # one exact null vector per component; the rest random, of about unit length
        null = null_vectors(operator, self.components)
        rng = np.random.default_rng(self.settings.seed)
        rest = rng.standard_normal((self.graph.n_nodes, self.k - self.n_trivial))
        return np.hstack([null, rest / np.sqrt(self.graph.n_nodes)])


@dataclass(eq=False)
class _Watch:
    """Gives a run up when its vectors are seen to be localised: rough ones, or finished ones uncertified."""

    decide: Callable[..., Regularization]
    decision: Regularization | None = None

    def __call__(self, vectors: MultiVector, *, finished: bool = False) -> bool:
        found = self.decide(vectors, rough=not finished)
        if finished or found.tau > 0:
            self.decision = found
        return found.tau > 0


def null_vectors(operator: GraphOperator, components: Array) -> Array:
    """One per component, N x components, orthonormal in the metric; rows whose component is -1 are zero."""
    metric = operator.random_walk_form().metric
    outside = components < 0
    if not outside.any():
        return operator.from_random_walk(indicators(components, metric))
    mass = np.where(outside, 0.0, 1.0 if metric is None else metric)
    vectors = operator.from_random_walk(indicators(np.where(outside, 0, components), mass))
    vectors[outside] = 0
    return vectors


def _whole_components(operator: GraphOperator, groups: Array) -> CertifiedEmbedding:
    """No eigenproblem is left: null vectors that are constant on each cluster cut no edge."""
    vectors = null_vectors(operator, groups)
    k = vectors.shape[1]
    nothing = Progress(0, 0.0, 0, 0.0, 0.0, 0.0)
    reason = f"the graph has at least {k} components: nothing to solve"
    solution = Solution(vectors, "components", (nothing,), "done", 0.0, reason=reason)
    certificate = exact_certificate(k, "clusters of whole components cut no edge")
    embedding = Embedding(vectors, np.zeros(k), operator.names)
    return CertifiedEmbedding.of(solution, embedding, certificate)
