"""``aggregation="auto"``: candidates that are cheap once the layers are embedded, and how one is chosen.

The criterion is the information that clusters tell about the ends of an edge, beside the entropy of their
volumes (:func:`~spectrograd.labels.partition_criteria.partition_criterion`): a block model per layer that
shares the clusters and nothing else (Paul and Chen 2016). Every layer may have its own pattern between
clusters. Layers of different kinds differ in how much there is to tell: neighbours of points are clustered
wherever one cuts, links of a network are not. So each layer counts by the share of what the best candidate
tells about it, and the mean over the layers decides. A random layer hardly adds to it
(:data:`~spectrograd.labels.partition_criteria.MIN_INFORMATION`), nor does a giant cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from spectrograd.aggregation import Layers, make_aggregation, without_absent
from spectrograd.graph import Graph
from spectrograd.labels import assign
from spectrograd.labels.cluster_qr import pivot_centres
from spectrograd.labels.kmeans import descend, unit_rows
from spectrograd.labels.partition_criteria import information_scales, layer_information
from spectrograd.operators.base import Operator
from spectrograd.pipeline.layer_embeddings import n_linked_components
from spectrograd.pipeline.layer_treatment import choose_vectors
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.rough_solve import rough_embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.treatment import Treatment
from spectrograd.solvers.settings import RunContext
from spectrograd.system import one_thread
from spectrograd.typing import Array, JsonObject

# Merges that are compared, with their options. On the choosing half of the bench these three, with single
# layers, choose as well as any eight: the others cost solves and seldom win (docs/adr/0056).
MERGES: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("mean", {}),
    ("sum", {}),
    ("geometric", {"method": "truncated"}),
)
# Starts of k-means for a candidate where QR cannot cluster it.
CANDIDATE_STARTS = 2
MAX_STEPS = 20  # of that descent
# Share of the information by which clusters may fall behind the next best candidate of the last fit before
# a refit is advised: some labels move with every change.
MAX_EVIDENCE_LOSS = 0.1

Criterion = Callable[[Array], Array]  # of labels: the relative information about each layer


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to merge the layers.

    Attributes
    ----------
    aggregation, params
        Name and options; a single layer is the ``mean`` with one weight.
    layer
        The number of that layer, or None.
    operator, embedding
        What was solved, and its vectors, which need not be certified.
    labels
        Clusters of its rows.
    information : array of shape (n_layers,)
        The clusters' relative information about the edges of each layer.
    layer
        The number of a layer alone, or None.
    treatment
        Which vectors make the clusters, where that was compared.
    """

    aggregation: str
    params: Mapping[str, object]
    operator: Operator
    embedding: CertifiedEmbedding
    labels: Array
    information: Array
    layer: int | None = None
    treatment: Treatment | None = None

    def name(self, layer_names: Sequence[str]) -> str:
        """Name for messages."""
        if self.layer is not None:
            return f"layer {layer_names[self.layer]!r} alone"
        return f"{self.aggregation} (truncated)" if self.params else self.aggregation


@dataclass(frozen=True, eq=False)
class AggregationChoice:
    """The choice of ``auto`` among the aggregations, with its reason.

    Attributes
    ----------
    aggregation, params
        The aggregation and its options.
    reason
        One sentence.
    information
        Share of the relative information that every candidate reaches, by name; empty where nothing was
        compared.
    layer
        The number of the layer that was chosen alone, or None.
    scales
        What each layer's relative information is multiplied by to count as a share; empty where nothing was
        compared.
    """

    aggregation: str
    reason: str
    params: Mapping[str, object] = field(default_factory=dict)
    information: Mapping[str, float] = field(default_factory=dict)
    layer: int | None = None
    scales: tuple[float, ...] = ()

    def kept(self) -> AggregationChoice:
        """The same after the graph has changed."""
        again = "as at the last fit"
        reason = self.reason if self.reason.startswith(again) else f"{again} ({self.reason})"
        return replace(self, reason=reason)

    def as_settings(self, settings: Settings, n_layers: int) -> Settings:
        """Settings that ask for this aggregation by name; one layer alone has all the weight."""
        weights = settings.layer_weights
        if self.layer is not None:
            weights = tuple(np.eye(n_layers)[self.layer].tolist())
        return replace(
            settings, aggregation=self.aggregation, aggregation_params=self.params, layer_weights=weights
        )

    def doubt(self, layers: Layers, labels: Array) -> str:
        """Why the candidates should be compared anew, now that the graph has changed; empty where not.

        ``labels`` are the present clusters of the layers' rows. At the fit no rival's had more information;
        one may have now, where they have less than the next best had then.
        """
        if len(self.information) < 2 or len(self.scales) != len(layers.operators):
            return ""
        now = float(
            _information_by_layer([operator.graph for operator in layers.sparse], labels) @ self.scales
        )
        then, rival = sorted(self.information.values(), reverse=True)[:2]
        if now >= rival - MAX_EVIDENCE_LOSS * then:
            return ""
        return (
            "the share of what clusters can tell about the layers has fallen since the aggregation was "
            f"chosen, from {then:.3g} to {now:.3g}: another one may tell more"
        )

    @property
    def sentence(self) -> str:
        """The aggregation and why, in one sentence."""
        name = "one layer alone" if self.layer is not None else repr(self.aggregation)
        return f"{name}: {self.reason}"

    def summary(self) -> JsonObject:
        """The entry of ``--summary-json``."""
        return {
            "name": self.aggregation,
            "params": dict(self.params),
            "reason": self.reason,
            "sentence": self.sentence,
            "relative_information": dict(self.information),
        }


def choose_candidate(
    layers: Layers,
    layer_names: Sequence[str],
    embedded: Sequence[CertifiedEmbedding],
    n_components: int,
    settings: Settings,
    context: RunContext,
    *,
    with_edges: bool = False,
) -> tuple[AggregationChoice, Candidate]:
    """Compare the candidates and choose one, by quick solves: the chosen one is solved as was asked.

    Parameters
    ----------
    layers
        Operators, weights, and embeddings of the layers.
    layer_names
        For the reason.
    embedded
        The layers' embeddings with what else is known of them.
    n_components
        Columns of the merged embedding; as many clusters are compared unless the settings say another number.
    settings
        ``alpha``, ``layer_weights``, solver and seed.
    context
        The engine.
    with_edges
        Whether the chosen operator must have edges, since a solver was asked for that may need them.
    """
    graphs = [operator.graph for operator in layers.sparse]
    # A layer counts by the share of nodes that it links: a few nodes do not decide for all of them.
    shares = layers.weights * np.array([(graph.degrees > 0).mean() for graph in graphs])
    criterion = partial(_information_by_layer, graphs)
    candidates = [
        _compare(layers, name, params, n_components, settings, context, criterion)
        for name, params in _merges(layers, with_edges)
    ]
    candidates += _single_layers(layers, embedded, n_components, settings, criterion)
    found = np.array([candidate.information for candidate in candidates])
    scales = information_scales(found, shares)
    reached = found @ scales
    best = candidates[int(np.argmax(reached))]  # merges come first in a tie
    names = [candidate.name(layer_names) for candidate in candidates]
    information = dict(zip(names, reached.tolist(), strict=True))
    reason = _reason(best.name(layer_names), information)
    choice = AggregationChoice(
        best.aggregation, reason, best.params, information, best.layer, tuple(scales.tolist())
    )
    if with_edges or best.layer is not None:
        return choice, best
    vectors, treatment = choose_vectors(
        best.operator, best.embedding, best.labels, layers, shares, settings, context
    )
    return choice, replace(best, embedding=vectors, treatment=treatment)


def _information_by_layer(graphs: Sequence[Graph], labels: Array) -> Array:
    return np.array([layer_information(graph, labels)[1] for graph in graphs])


def _merges(layers: Layers, with_edges: bool) -> list[tuple[str, Mapping[str, object]]]:
    """The merges to compare; the sum of unnormalised layers is their mean."""
    return [
        (name, params)
        for name, params in MERGES
        if not (with_edges and make_aggregation(name).embeds_layers(params))
        and not (name == "sum" and layers.operators[0].scale is None)
    ]


def _reason(chosen: str, information: Mapping[str, float]) -> str:
    """The chosen candidate and the next best, by the share of the information that they reach."""
    others = sorted(((share, name) for name, share in information.items() if name != chosen), reverse=True)
    reason = (
        f"the clusters of {chosen} tell {information[chosen]:.3g} of what clusters can tell about the edges "
        "of a layer, mean over the layers"
    )
    return f"{reason} (next: {others[0][1]} {others[0][0]:.3g})" if others else reason


def _compare(
    layers: Layers,
    name: str,
    params: Mapping[str, object],
    n_components: int,
    settings: Settings,
    context: RunContext,
    criterion: Criterion,
) -> Candidate:
    operator = make_aggregation(name).aggregate(layers, **params)
    found = rough_embed(operator, n_components, settings, context)
    labels = _cluster(found.embedding.vectors, n_components, settings)
    return Candidate(name, params, operator, found, labels, criterion(labels))


def _single_layers(
    layers: Layers,
    embedded: Sequence[CertifiedEmbedding],
    n_components: int,
    settings: Settings,
    criterion: Criterion,
) -> list[Candidate]:
    """Layers alone, where they know every node and hang together, and nobody gave them weights."""
    equal = settings.layer_weights is None or settings.layer_weights == "equal"
    if not equal or len(embedded) < 2:
        return []
    found = []
    for at, (operator, own) in enumerate(zip(layers.sparse, embedded, strict=True)):
        complete = bool((operator.diagonal > 0).all()) and own.embedding.n_components == n_components
        if not complete or layers.weights[at] == 0 or n_linked_components(operator.graph) >= n_components:
            continue
        labels = _cluster(own.embedding.vectors, n_components, settings)
        whole = without_absent(operator)
        found.append(Candidate("mean", {}, whole, own, labels, criterion(labels), at))
    return found


def _cluster(vectors: Array, n_components: int, settings: Settings) -> Array:
    """Clusters of a candidate: one descent of k-means from pivoted QR, where the columns suffice for that."""
    k = settings.n_clusters or n_components
    if vectors.shape[1] < k:
        seed = settings.seed
        return assign(vectors, k, n_init=CANDIDATE_STARTS, unit_rows=True, random_state=seed).labels
    rows = unit_rows(vectors)
    centres = pivot_centres(rows, k)
    with one_thread():
        return descend(rows, centres, max_steps=MAX_STEPS).labels
