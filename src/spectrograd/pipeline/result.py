"""An embedding of one operator with its evidence, and the attempts that led to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrograd.certificate import Certificate
from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines.base import Engine, MultiVector, Work
from spectrograd.graph.components import Connectivity
from spectrograd.labels.assign import Clustering
from spectrograd.labels.eigengap import Eigengap
from spectrograd.metrics import score
from spectrograd.operators.base import Operator
from spectrograd.operators.equilibration import Equilibration
from spectrograd.operators.laplacian import Regularization
from spectrograd.pipeline.plan import PlannedSolver
from spectrograd.solvers.base import Progress
from spectrograd.solvers.loop import INTERRUPTED, Solution, join_histories
from spectrograd.typing import Array, JsonObject

if TYPE_CHECKING:
    from spectrograd.pipeline.cluster_verdict import ClusterVerdict
    from spectrograd.pipeline.merge import Merged
    from spectrograd.pipeline.treatment import Treatment


@dataclass(frozen=True)
class Attempt:
    """One solver's turn: why it was picked, what it cost and how it ended."""

    solver: str
    reason: str
    outcome: str
    iterations: int
    matvecs: float
    seconds: float
    predicted_seconds: float | None = None

    @classmethod
    def of(cls, solution: Solution, outcome: str) -> Attempt:
        """The attempt behind a solution."""
        last = solution.last
        return cls(
            solver=solution.solver,
            reason=solution.reason,
            outcome=outcome,
            iterations=last.iteration,
            matvecs=last.matvecs,
            seconds=solution.seconds,
            predicted_seconds=solution.predicted_seconds,
        )

    @classmethod
    def failed(cls, choice: PlannedSolver, error: Exception, seconds: float) -> Attempt:
        """The attempt of a solver that ended in an error, with that error as its outcome."""
        said = str(error).removeprefix(f"{choice.name}: ")
        outcome = f"failed ({type(error).__name__}: {said})"
        return cls(choice.name, choice.reason, outcome, 0, 0.0, seconds, choice.seconds)


@dataclass(frozen=True, eq=False, kw_only=True)
class CertifiedEmbedding:
    """An embedding with its evidence, and how it was found.

    Attributes
    ----------
    embedding, certificate
        Vectors and eigenvalues, and how good they are.
    solver, reason, predicted_seconds
        The solver that found it, why the plan chose that one, and what the plan expected it to take.
    attempts
        All solvers that were tried; the last one that did not fail found the embedding.
    history
        Measurements of all attempts, one after the other.
    stop_reason
        Why the last solver stopped.
    solver_seconds, total_seconds
        Time in the solvers' steps, and with measuring and certificates.
    multivector
        The columns of the embedding but for their signs, where the engine has them; None where it was not
        kept.
    evidence
        What the solver knows of the rest of the spectrum.
    """

    embedding: Embedding
    certificate: Certificate
    solver: str
    reason: str
    attempts: tuple[Attempt, ...]
    history: tuple[Progress, ...]
    stop_reason: str
    solver_seconds: float
    total_seconds: float
    predicted_seconds: float | None = None
    multivector: MultiVector | None = None
    evidence: Evidence = field(default_factory=Evidence)

    @classmethod
    def of(
        cls, solution: Solution, embedding: Embedding, certificate: Certificate, outcome: str | None = None
    ) -> CertifiedEmbedding:
        """The embedding of one solver; ``outcome`` of its attempt: by default the certificate in words."""
        said = certificate.sentence if outcome is None else outcome
        return cls(
            embedding=embedding,
            certificate=certificate,
            solver=solution.solver,
            reason=solution.reason,
            attempts=(Attempt.of(solution, said),),
            history=solution.history,
            stop_reason=solution.stop_reason,
            solver_seconds=solution.seconds,
            total_seconds=solution.seconds,
            predicted_seconds=solution.predicted_seconds,
            multivector=solution.Q,
            evidence=solution.evidence,
        )

    @property
    def Q(self) -> MultiVector:
        """The basis on the engine, for those who go on from it."""
        if self.multivector is None:
            raise ValueError("the vectors of this embedding were not kept on the engine")
        return self.multivector

    @property
    def last(self) -> Progress:
        """The last measurement."""
        return self.history[-1]

    def as_solution(self) -> Solution:
        """The solution that the embedding was made of: another certificate begins with it."""
        return Solution(
            Q=self.Q,
            solver=self.solver,
            history=self.history,
            stop_reason=self.stop_reason,
            seconds=self.solver_seconds,
            evidence=self.evidence,
            reason=self.reason,
            predicted_seconds=self.predicted_seconds,
        )

    def after(self, earlier: CertifiedEmbedding) -> CertifiedEmbedding:
        """The same with the history, the seconds of solvers and the attempts of what came before it."""
        return replace(
            self,
            attempts=(*earlier.attempts, *self.attempts),
            history=join_histories(earlier.history, self.history, earlier.solver_seconds),
            solver_seconds=earlier.solver_seconds + self.solver_seconds,
        )

    def without_vectors(self) -> CertifiedEmbedding:
        """The same without its vectors: those of another solve take their place."""
        own = self.embedding
        nothing = Embedding(np.empty((0, 0)), own.eigenvalues, own.names)
        return replace(self, embedding=nothing, multivector=None, evidence=Evidence())

    def left(self, fit: Equilibration, engine: Engine) -> CertifiedEmbedding:
        """The same in the numbers of the operator that was given."""
        found = self.embedding
        unit = fit.unit
        return replace(
            self,
            embedding=arrange(fit.inverse_transform(found.vectors), unit * found.eigenvalues, found.names),
            certificate=self.certificate.in_units(unit),
            history=tuple(in_units(progress, unit) for progress in self.history),
            multivector=fit.inverse_transform_multivector(engine, self.Q),
            evidence=self.evidence.in_units(unit),
        )


def in_units(progress: Progress, unit: float) -> Progress:
    """The measurement for numbers of the operator ``unit`` times as large."""
    return replace(progress, objective=unit * progress.objective, residual=unit * progress.residual)


# --- What the line leads to: one flat, frozen value for single and multilayer graphs alike.


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(CertifiedEmbedding):
    """The certified embedding of all nodes, its clusters, and what was decided on the way.

    Rows of excluded nodes are zero. ``multivector`` has rows for all nodes as well, and is there only where
    somebody asked for it (``RunContext.keep_multivector``).

    Attributes
    ----------
    operator
        What was solved: the nodes that took part, in the order in which they were solved.
    rows
        The row numbers of those nodes, in that order.
    connectivity, regularization, eigengap
        Decisions before solving: pieces, tau, and the number of clusters where it was to be found.
    seconds
        By stage.
    labels, n_clusters
        One cluster per node, -1 for nodes excluded; None before labels were assigned.
    membership
        How sure each label is, 0 to 1: how much nearer its centre is than the next.
    start_labels
        Clusters that k-means is to begin with, one per node; None: it finds its own.
    judge
        Judges the clusters for :attr:`cluster_verdict`; None before labels were assigned.
    merged
        Of a multilayer graph: what is known of each layer.
    treatment
        How rows of the embedding became points for k-means, and which treatments it was chosen among; None
        where nothing was labelled, and for layers.
    label_multivector
        The labels (N x 1) in the order of the graph's rows, where these were left with an engine.
    passes, matvecs
        How often the run, with its certificate, read all entries of the graph, however many columns it
        multiplied on the way; and how many columns these were. Edges of mini-batches add up to passes.
    """

    operator: Operator
    connectivity: Connectivity
    regularization: Regularization
    eigengap: Eigengap | None
    rows: Array
    seconds: dict[str, float]
    merged: Merged | None = None
    treatment: Treatment | None = None
    start_labels: Array | None = None
    labels: Array | None = None
    n_clusters: int | None = None
    membership: Array | None = None
    judge: Callable[[], ClusterVerdict] | None = None
    label_multivector: MultiVector | None = None
    passes: float = 0.0
    matvecs: int = 0

    @cached_property
    def cluster_verdict(self) -> ClusterVerdict | None:
        """Whether the clusters are more than chance; judged when it is first asked for."""
        return None if self.judge is None else self.judge()

    @property
    def vectors(self) -> Array:
        """N x K."""
        return self.embedding.vectors

    @property
    def eigenvalues(self) -> Array:
        """Ascending, one per column."""
        return self.embedding.eigenvalues

    @property
    def interrupted(self) -> bool:
        """Whether somebody pressed Ctrl-C: this is the best so far."""
        return self.stop_reason == INTERRUPTED

    @property
    def converged(self) -> bool:
        """Whether the accuracy asked for was reached, by the layers behind a merge as well."""
        layers_are = self.merged is None or not self.merged.uncertified_layers
        return self.certificate.converged and layers_are

    @property
    def norm_regularization(self) -> float:
        """For :func:`~spectrograd.labels.assign`: only a random walk's rows compare in length too."""
        exact = self.treatment is not None and self.treatment.rows == "unit"
        return 0.0 if exact or self.operator.metric is None else 1.0

    @property
    def column_weights(self) -> Array | None:
        """What columns are multiplied with before rows become points for k-means; None: one for all."""
        return None if self.treatment is None else self.treatment.column_weights(self.eigenvalues)

    @property
    def weighted_vectors(self) -> Array:
        """The vectors, N x K, with columns weighted as k-means sees them."""
        weights = self.column_weights
        return self.vectors if weights is None else self.vectors * weights

    def decisions(self) -> JsonObject:
        """For ``--summary-json``: what was decided before solving, and why."""
        return {
            "regularization": self.regularization.summary(),
            "components": self.connectivity.summary(),
            "eigengap": None if self.eigengap is None else self.eigengap.summary(),
            "treatment": None if self.treatment is None else self.treatment.summary(),
            "cluster_verdict": None if self.cluster_verdict is None else self.cluster_verdict.summary(),
        }

    def scores(self, classes: Array) -> dict[str, float]:
        """Purity, NMI, RI and ARI of the clusters against known classes (-1 unknown)."""
        if self.labels is None:
            raise ValueError("there are no labels to score: this is an embedding only")
        return score(classes, self.labels)

    def counted(self, before: Work, now: Work) -> Result:
        """The same with what an engine did meanwhile, and what mini-batches read."""
        edges = self.history[-1].edges_seen / max(1, self.operator.n_edges)
        return replace(self, passes=now.passes - before.passes + edges, matvecs=now.matvecs - before.matvecs)

    def stopped(self) -> Result:
        """The same, marked as interrupted."""
        return replace(self, stop_reason=INTERRUPTED)

    def labelled(self, clustering: Clustering) -> Result:
        """The same with clusters."""
        return replace(
            self,
            start_labels=None,
            labels=clustering.labels,
            n_clusters=clustering.n_clusters,
            membership=clustering.membership,
            seconds=self.seconds | {"assign": clustering.seconds},
        )


def make_result(solved: CertifiedEmbedding, *, embedding: Embedding, **decided: Any) -> Result:
    """The certified solution of an operator as a result: rows for all nodes, and the decisions before it.

    What only another solve could use stays behind: the basis of the nodes that took part, and the evidence.
    """
    known = {item.name: getattr(solved, item.name) for item in fields(CertifiedEmbedding)}
    known |= {"embedding": embedding, "multivector": None, "evidence": Evidence()}
    return Result(**(known | decided))


@dataclass
class Stages:
    """A clock for the stages of the pipeline; a callback hears the name of each when it begins."""

    on_stage: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside."""
        self.on_stage(name)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


# --- An embedding that is left with the workers that found it, until somebody asks for its rows.


class DistributedEmbedding(Embedding):
    """Rows on the workers of an engine, ``multivector`` (N x K) in the order of the graph's rows.

    ``order`` says which row of the result each of them is; None where that is the same.
    """

    engine: Engine
    multivector: MultiVector
    order: Array | None

    def __init__(
        self,
        engine: Engine,
        multivector: MultiVector,
        eigenvalues: Array,
        names: Array | None = None,
        order: Array | None = None,
    ) -> None:
        self.__dict__.update(  # past the dataclass: it would want the vectors now
            engine=engine, multivector=multivector, eigenvalues=eigenvalues, names=names, order=order
        )

    @cached_property
    def vectors(self) -> Array:
        """N x K, gathered when first asked for."""
        rows = self.engine.to_numpy(self.multivector)
        if self.order is None:
            return rows
        found = np.empty_like(rows)
        found[self.order] = rows
        return found

    @property
    def n_components(self) -> int:
        """Number of columns."""
        return int(self.multivector.shape[1])

    def without_first(self) -> DistributedEmbedding:
        """Drop the trivial vector."""
        rest = self.engine.columns(self.multivector, slice(1, None))
        return DistributedEmbedding(self.engine, rest, self.eigenvalues[1:], self.names, self.order)

    def of_nodes(self, order: Array, masked: Array, names: Array | None) -> DistributedEmbedding:
        """In float32, as rows of the result; those that are masked are zero."""
        multivector = self.engine.astype(self.multivector, np.float32)
        if len(masked):
            active = np.ones((multivector.shape[0], 1), np.float32)
            active[masked] = 0
            multivector = self.engine.scale_rows(multivector, self.engine.from_numpy(active))
        same = np.array_equal(order, np.arange(len(order)))
        return DistributedEmbedding(
            self.engine, multivector, self.eigenvalues, names, None if same else order
        )


def embedding_of(engine: Engine, operator: Operator, Q: MultiVector, values: Array) -> Embedding:
    """The columns of Q in order and with their signs; on the host, unless the edges are not there either.

    May mutate Q where the graph is on disk: there is no memory for a copy.
    """
    if not operator.is_streamed:
        return arrange(engine.to_numpy(Q), values, operator.names)
    order = np.argsort(values, kind="stable")
    signs = np.where(engine.column_statistics(Q).peaks < 0, -1.0, 1.0)
    multivector = engine.combine_inplace(Q, np.diag(signs)[:, order])
    if engine.is_distributed:
        return DistributedEmbedding(engine, multivector, values[order], operator.names)
    return Embedding(engine.to_numpy(multivector), values[order], operator.names)
