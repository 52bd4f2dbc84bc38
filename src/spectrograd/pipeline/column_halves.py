"""Whether two halves of random columns lead to the same clusters: the second part of a statement on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.labels import assign
from spectrograd.metrics import adjusted_rand_index
from spectrograd.pipeline.result import DistributedEmbedding, Result
from spectrograd.pipeline.settings import Settings
from spectrograd.typing import Array

# Nodes that are clustered twice, and per cluster: an ARI of so many is exact to a hundredth.
MAX_COMPARED_NODES = 20_000
COMPARED_NODES_PER_CLUSTER = 50
MIN_COLUMNS = 4  # two in each half


def with_agreement(result: Result, settings: Settings) -> Result:
    """The result with the agreement of two halves of its columns; as it is where it has eigenvectors.

    Columns are ordered by Rayleigh quotient, so every other one makes a half. A half has half of the columns
    that made the labels: the labels themselves are better than the agreement.
    """
    mixed = result.certificate.mixed
    n_clusters = result.n_clusters
    if mixed is None or n_clusters is None or mixed.n_columns < MIN_COLUMNS:
        return result
    rows = _sample_rows(result, max(MAX_COMPARED_NODES, COMPARED_NODES_PER_CLUSTER * n_clusters), settings)
    if len(rows) <= n_clusters:
        return result
    labels = [
        assign(
            rows[:, half::2],
            n_clusters,
            n_init=settings.n_init,
            unit_rows=True,
            norm_regularization=result.norm_regularization,
            random_state=settings.seed,
        ).labels
        for half in (0, 1)
    ]
    stated = replace(mixed, agreement=float(adjusted_rand_index(*labels)))
    return replace(result, certificate=replace(result.certificate, mixed=stated))


def _sample_rows(result: Result, size: int, settings: Settings) -> Array:
    """Some rows of the embedding, on the host, but for those of excluded nodes, which are zero."""
    rng = np.random.default_rng(settings.seed)
    embedding = result.embedding
    n_nodes = len(result.connectivity.labels)
    numbers = np.sort(rng.choice(n_nodes, min(size, n_nodes), replace=False, shuffle=False))
    if isinstance(embedding, DistributedEmbedding):
        rows = embedding.engine.to_numpy(embedding.multivector, numbers)
    else:
        rows = embedding.vectors[numbers]
    return np.asarray(rows[np.abs(rows).max(axis=1) > 0])
