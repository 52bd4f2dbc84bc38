"""From a graph to a certified embedding: components, regularisation by evidence, solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import exact
from spectrograd.embedding import Embedding
from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_order import near_order, reordered
from spectrograd.graph.pieces import (
    Connectivity,
    connect,
    indicators,
    on_all_rows,
    report_aside,
    subgraph,
)
from spectrograd.labels.eigengap import Eigengap, n_eigenvalues, widest_gap
from spectrograd.operators.laplacian import Kind, Operator, laplacian
from spectrograd.operators.regularized import MORE_TAU, TAU, Regularization, checked, judge, regularized
from spectrograd.pipeline.plan import Choice
from spectrograd.pipeline.solving import Attempt, Embedded, Settings, certified, choices_for, embed
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.protocol import Problem, Progress, State
from spectrograd.solvers.ritz import RitzState

Array = NDArray[Any]


@dataclass(frozen=True)
class Treatment:
    """How to treat a graph before it is solved: which Laplacian, tau, and what to do with pieces."""

    laplacian: Kind = "random_walk"
    regularization: float | str | None = "auto"
    disconnected: str = "components"


@dataclass(frozen=True, eq=False)
class GraphEmbedding:
    """An embedding of all nodes (rows of nodes set aside are zero), and what was decided on the way.

    ``operator`` has the nodes that took part, in the order in which they were solved.
    """

    result: Embedded
    operator: Operator
    regularization: Regularization
    connectivity: Connectivity
    eigengap: Eigengap | None = None

    @property
    def softness(self) -> float:
        """For :func:`~spectrograd.labels.assign`: only a random walk's rows compare in length too."""
        return 0.0 if self.operator.metric is None else 1.0


def embed_graph(
    graph: Graph,
    n_components: int | str,
    settings: Settings,
    treatment: Treatment | None = None,
    *,
    start: Array | None = None,
) -> GraphEmbedding:
    """Embed a graph, whatever its state.

    ``n_components="auto"`` keeps as many eigenvectors as the largest eigengap says there are clusters.
    """
    with settings.engine.threads():
        return _embed_graph(graph, n_components, settings, treatment, start)


def _embed_graph(
    graph: Graph,
    n_components: int | str,
    settings: Settings,
    treatment: Treatment | None,
    start: Array | None,
) -> GraphEmbedding:
    how = treatment or Treatment()
    wanted = checked(how.regularization)
    automatic = isinstance(n_components, str)
    connectivity = connect(graph, n_components, how.disconnected)
    report_aside(connectivity, graph.node_names)
    kept, groups = connectivity.kept, connectivity.groups
    part = subgraph(graph, kept)
    k = n_eigenvalues(part.n_nodes) if isinstance(n_components, str) else n_components
    if k >= part.n_nodes:
        raise GraphError(f"{k} eigenvectors asked of the {part.n_nodes} nodes that are left: choose fewer")
    if groups is not None:
        result, operator = _whole_components(part, groups[kept], how.laplacian, settings)
        decision = Regularization(0.0, "not needed: whole components make the clusters")
    else:
        order = near_order(part)
        if order is not None:
            part, kept = reordered(part, order), kept[order]
        pieces = connectivity.labels[kept]  # 0, 1, ...: components are set aside from the smallest on
        line = _Line(part, k, settings, how, pieces, None if start is None else start[kept])
        result, operator, decision = line.embedded(wanted)
    gap = None
    if automatic and groups is None:
        gap = widest_gap(result.embedding.eigenvalues)
        result = _narrowed(result, operator, gap.n_clusters, settings)
    result = with_all_nodes(result, graph.names, kept, graph.n_nodes)
    return GraphEmbedding(result, operator, decision, connectivity, gap)


Found = tuple[Embedded, Operator, Regularization]


@dataclass(frozen=True, eq=False)
class _Line:
    """The nodes that take part, on their way through the solver."""

    graph: Graph
    k: int
    settings: Settings
    how: Treatment
    pieces: Array  # component of every node
    start: Array | None

    def embedded(self, wanted: float | str | None) -> Found:
        tie = self.how.disconnected == "regularize" and self.n_pieces > 1
        if tie and wanted in ("auto", None, 0.0):
            reason = (
                f"{self.n_pieces} components: {TAU:g} mean degrees added to every degree tie them together"
            )
            return self.with_tau(Regularization(TAU, reason))
        if wanted == "auto" and self.how.laplacian == "unnormalized":
            reason = "not used: it does not change the eigenvectors of an unnormalised Laplacian"
            return self.with_tau(Regularization(0.0, reason))
        if isinstance(wanted, str):
            return self.by_evidence()
        return self.with_tau(Regularization(wanted or 0.0, "asked for" if wanted else "off"))

    @property
    def n_pieces(self) -> int:
        return int(self.pieces.max()) + 1

    def with_tau(self, decision: Regularization) -> Found:
        operator = regularized(self.graph, self.how.laplacian, decision.tau)
        start = self.start if decision.tau > 0 else self.first_guess(operator)
        return embed(operator, self.k, self.settings, start=start), operator, decision

    def by_evidence(self) -> Found:
        """Judge by rough vectors on the way, where the solver has them, and by the solution itself."""
        operator = laplacian(self.graph, self.how.laplacian)
        problem = Problem(operator, self.k, self.settings.engine, self.first_guess(operator))
        choices = choices_for(problem, self.settings)
        watch = _Watch(operator, self.n_pieces)
        settings = replace(self.settings, watch=watch)
        result = embed(operator, self.k, settings, start=problem.start, choices=choices)
        decision = watch.decision or judge(operator, result.embedding.vectors, self.n_pieces)
        if decision.tau == 0 or result.solution.stop_reason == "interrupted":
            return result, operator, decision
        return self.anew(decision, result, choices)

    def anew(self, decision: Regularization, before: Embedded, choices: Sequence[Choice]) -> Found:
        """Solve the regularised problem after all; localised vectors are no start for it."""
        operator = regularized(self.graph, self.how.laplacian, decision.tau)
        left = self.settings_after(before.solution)
        result = embed(operator, self.k, left, start=self.start, choices=choices)
        result = result.after(before.attempts, before.solution)
        more = judge(operator, result.embedding.vectors, tau=MORE_TAU)
        if more.tau <= decision.tau or result.solution.stop_reason == "interrupted":
            return result, operator, decision
        return self.anew(more, result, choices)

    def settings_after(self, earlier: Solution) -> Settings:
        budget = self.settings.time_budget
        left = None if budget is None else max(0.0, budget - earlier.seconds)
        return replace(self.settings, time_budget=left)

    def first_guess(self, operator: Operator) -> Array | None:
        """The warm start; else, of several components, their null vectors, which need not be found again."""
        if self.start is not None or self.n_pieces == 1:
            return self.start
        null = operator.from_walk(indicators(self.pieces, operator.walk_form().metric))
        rng = np.random.default_rng(self.settings.seed)
        rest = rng.standard_normal((self.graph.n_nodes, self.k - self.n_pieces))
        return np.hstack([null, rest / np.sqrt(self.graph.n_nodes)])


@dataclass(eq=False)
class _Watch:
    """Gives a run up when its rough vectors are already seen to be localised."""

    operator: Operator
    n_trivial: int
    decision: Regularization | None = None

    def __call__(self, state: State) -> bool:
        if not isinstance(state, RitzState) or state.iteration != state.telling:
            return False
        found = judge(self.operator, state.U, self.n_trivial, rough=True)
        if found.tau > 0:
            self.decision = found
        return found.tau > 0


def _whole_components(
    graph: Graph, groups: Array, kind: Kind, settings: Settings
) -> tuple[Embedded, Operator]:
    """No eigenproblem is left: null vectors that are constant on each cluster cut no edge."""
    operator = laplacian(graph, kind)
    vectors = operator.from_walk(indicators(groups, operator.walk_form().metric))
    k = vectors.shape[1]
    nothing = Progress(0, 0.0, 0, 0.0, 0.0, 0.0)
    solution = Solution(vectors, "components", (nothing,), "done", 0.0, settings.seed)
    certificate = exact(k, "clusters of whole components cut no edge")
    choice = Choice("components", f"the graph has at least {k} components: nothing to solve")
    attempt = Attempt.of(choice, solution, certificate.sentence)
    embedding = Embedding(vectors, np.zeros(k), graph.names)
    return Embedded(embedding, certificate, solution, choice, 0.0, (attempt,)), operator


def _narrowed(result: Embedded, operator: Operator, k: int, settings: Settings) -> Embedded:
    """The first k columns with a certificate of their own."""
    vectors, values = result.embedding.vectors, result.embedding.eigenvalues
    solution = replace(result.solution, Q=vectors[:, :k], beyond=float(values[k]))
    narrow = certified(operator, solution, settings, result.choice)
    return replace(narrow, seconds=result.seconds, attempts=result.attempts)


def with_all_nodes(result: Embedded, names: Array | None, kept: Array, n_nodes: int) -> Embedded:
    """The result with a row for every node."""
    embedding = result.embedding
    vectors = on_all_rows(embedding.vectors, kept, n_nodes)
    return replace(result, embedding=Embedding(vectors, embedding.eigenvalues, names))
