"""What the line leads to: one flat, frozen value for single and multilayer graphs alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from spectrograd.certificate import Certificate
from spectrograd.embedding import Embedding
from spectrograd.engines.protocol import Tall, Work
from spectrograd.graph.pieces import Connectivity
from spectrograd.labels.clustering import Clustering
from spectrograd.labels.eigengap import Eigengap
from spectrograd.metrics import score
from spectrograd.operators.protocol import Operator
from spectrograd.operators.regularized import Regularization
from spectrograd.pipeline.embedded import Attempt, Embedded
from spectrograd.solvers import Progress
from spectrograd.solvers.loop import INTERRUPTED

if TYPE_CHECKING:
    from spectrograd.pipeline.cluster_verdict import ClusterVerdict
    from spectrograd.pipeline.multilayer import Merged

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Result:
    """An embedding of all nodes, its evidence, its clusters, and what was decided on the way.

    Attributes
    ----------
    embedding
        Vectors (N x K; rows of nodes set aside are zero), eigenvalues and node names.
    certificate, solver, reason, attempts, history, stop_reason
        How good it is, who found it, why that one, and how.
    operator
        What was solved: the nodes that took part, in the order in which they were solved.
    rows
        The row numbers of those nodes, in that order.
    connectivity, regularization, eigengap
        Decisions before solving: pieces, tau, and the number of clusters where it was to be found.
    seconds
        By stage.
    labels, n_clusters
        One cluster per node, -1 for nodes set aside; None before labels were assigned.
    membership
        How sure each label is, 0 to 1: how much nearer its centre is than the next.
    cluster_verdict
        Whether the clusters are more than chance would give; None before labels were assigned.
    merged
        Of a multilayer graph: what is known of each layer.
    tall
        The vectors where the engine has them, for whoever asked (``Settings.keep_tall``).
    label_tall
        The labels (N x 1) in the order of the graph's rows, where these were left with an engine.
    sweeps, columns
        How often the run, with its certificate, walked over all entries of the graph, however many columns it
        multiplied on the way; and how many columns these were. Edges of mini-batches add up to sweeps.
        ``passes`` of histories, tables and attempts are columns over K instead, without the certificate.
    """

    embedding: Embedding
    certificate: Certificate
    solver: str
    reason: str
    attempts: tuple[Attempt, ...]
    history: tuple[Progress, ...]
    stop_reason: str
    solver_seconds: float
    operator: Operator
    connectivity: Connectivity
    regularization: Regularization
    eigengap: Eigengap | None
    rows: Array
    seconds: dict[str, float]
    merged: Merged | None = None
    labels: Array | None = None
    n_clusters: int | None = None
    membership: Array | None = None
    cluster_verdict: ClusterVerdict | None = None
    tall: Tall | None = None
    label_tall: Tall | None = None
    sweeps: float = 0.0
    columns: int = 0

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
        layers = () if self.merged is None else self.merged.layers
        return self.certificate.converged and all(layer.certificate.converged for layer in layers)

    @property
    def passes(self) -> float:
        """Columns multiplied by the solver, over K; single edges of mini-batches add up to passes too."""
        last = self.history[-1]
        return last.passes + last.edges_seen / max(1, self.operator.n_edges)

    @property
    def softness(self) -> float:
        """For :func:`~spectrograd.labels.assign`: only a random walk's rows compare in length too."""
        return 0.0 if self.operator.metric is None else 1.0

    def decisions(self) -> dict[str, Any]:
        """For ``--summary-json``: what was decided before solving, and why."""
        return {
            "regularization": self.regularization.summary(),
            "components": self.connectivity.summary(),
            "eigengap": None if self.eigengap is None else self.eigengap.summary(),
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
        return replace(self, sweeps=now.sweeps - before.sweeps + edges, columns=now.columns - before.columns)

    def stopped(self) -> Result:
        """The same, marked as interrupted."""
        return replace(self, stop_reason=INTERRUPTED)

    def labelled(self, clustering: Clustering) -> Result:
        """The same with clusters."""
        return replace(
            self,
            labels=clustering.labels,
            n_clusters=clustering.n_clusters,
            membership=clustering.membership,
            seconds=self.seconds | {"assign": clustering.seconds},
        )


def found(solved: Embedded, embedding: Embedding, operator: Operator, **decided: Any) -> Result:
    """A result from the certified solution of its operator and the decisions before it."""
    solution = solved.solution
    return Result(
        embedding,
        solved.certificate,
        solved.choice.name,
        solved.choice.reason,
        solved.attempts,
        solution.history,
        solution.stop_reason,
        solution.seconds,
        operator,
        **decided,
    )


@dataclass
class Stages:
    """A clock for the stages of the line; whoever watches is told when one begins."""

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
