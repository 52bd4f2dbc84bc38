"""Which eigenvectors of a merge of layers make the clusters: K of them, or half as many more.

What :mod:`spectrograd.pipeline.treatment` compares on one graph is compared here on the layers, by the same
rule: the second partition is taken where it tells more about the edges, and not only because it is more
even. What a partition tells about layers is the mean share of what the better of the two tells about each
(docs/adr/0056-layers-merged-by-choice.md).
"""

from __future__ import annotations

import numpy as np

from spectrograd.aggregation import Layers
from spectrograd.labels.kmeans import rough_labels, unit_rows
from spectrograd.labels.partition_criteria import information_scales, layer_information
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.rough_solve import rough_embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.treatment import (
    CLEAR_RATIO,
    MAX_CLUSTERS_FOR_WIDE,
    Candidate,
    Plan,
    Treatment,
    candidate_of_shares,
    name_of,
    wide_columns,
)
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array


def choose_vectors(
    operator: Operator,
    first: CertifiedEmbedding,
    labels: Array,
    layers: Layers,
    weights: Array,
    settings: Settings,
    context: RunContext,
) -> tuple[CertifiedEmbedding, Treatment | None]:
    """The vectors of a merge that make the clusters, with their treatment; None where nothing was compared.

    Parameters
    ----------
    operator, first, labels
        The merge, its first K vectors and their clusters.
    layers, weights
        The layers, and how much each counts.
    settings, context
        How more vectors are found.
    """
    k = first.embedding.n_components
    if not is_comparable(operator, k, layers, settings, context) or is_clear(first):
        return first, None
    # 1. half as many vectors more, by commute distance
    usual = Plan(name_of(k, 0.0, "soft unit"), k, 0.0, "soft unit")
    rival = Plan(name_of(wide_columns(k), 0.0, "commute"), wide_columns(k), 0.0, "commute")
    wide = rough_embed(operator, rival.n_columns, settings, context)
    found = wide.embedding
    columns = Treatment(rival.name, "", rival.rows).column_weights(found.eigenvalues)
    rows = unit_rows(found.vectors * columns)
    other = rough_labels(rows, k, settings.n_init, np.random.default_rng(settings.seed), labels)
    # 2. what both partitions tell about each layer: in nats, and beside the entropy of their volumes
    graphs = [layer.graph for layer in layers.sparse]
    information = np.array([[layer_information(graph, each) for graph in graphs] for each in (labels, other)])
    shares = np.array([one @ information_scales(one, weights) for one in np.moveaxis(information, 2, 0)])
    candidates = (
        candidate_of_shares(usual, shares[0, 0], shares[1, 0], labels),
        candidate_of_shares(rival, shares[0, 1], shares[1, 1], other),
    )
    # 3. the first stands unless the other is better by both
    better = candidates[1].is_better_than(candidates[0])
    plan = rival if better else usual
    treatment = Treatment(plan.name, _reason(candidates, better), plan.rows, 1, candidates)
    return (wide if better else first), treatment


def is_comparable(
    operator: Operator, k: int, layers: Layers, settings: Settings, context: RunContext
) -> bool:
    """Whether nothing was asked for that leaves no choice, and the merge is of one graph in one piece."""
    asked = (
        settings.n_clusters != k
        or settings.assign_labels != "kmeans"
        or settings.regularization != "auto"
        or settings.time_budget is not None
        or settings.memory_limit is not None
        or context.checkpoint is not None
    )
    if asked or not isinstance(operator, SparseOperator) or layers.tau or layers.operators[0].scale is None:
        return False
    fits = 2 <= k <= MAX_CLUSTERS_FOR_WIDE and wide_columns(k) < operator.n_nodes - 2
    return fits and operator.rank == 0 and int(operator.graph.components.max(initial=0)) == 0


def is_clear(first: CertifiedEmbedding) -> bool:
    """Whether the next eigenvalue is so far above the K-th that no more vectors are asked for."""
    beyond = first.evidence.beyond
    return beyond is not None and beyond > CLEAR_RATIO * float(first.embedding.eigenvalues[-1])


def _reason(candidates: tuple[Candidate, ...], better: bool) -> str:
    """The shares of the one chosen and of the other."""
    first, other = (candidates[1], candidates[0]) if better else candidates
    return (
        f"they reach {first.relative:.3g} of the information about the layers "
        f"({other.name}: {other.relative:.3g})"
    )
