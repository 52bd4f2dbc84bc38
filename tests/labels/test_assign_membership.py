"""Confidence in labels: high inside clusters, none half-way between them, undefined for nodes excluded."""

import numpy as np
import pytest

from spectrograd import SpectralClustering, datasets
from spectrograd.labels import assign
from spectrograd.labels.sampled_kmeans import membership


def test_as_by_the_definition():
    rng = np.random.default_rng(0)
    rows, labels = rng.random((70, 3)).astype(np.float32), rng.integers(0, 4, 70)
    centres = np.stack([rows[labels == label].mean(axis=0) for label in range(4)])
    distances = np.linalg.norm(rows[:, None] - centres, axis=2)
    expected = []
    for row, label in zip(distances, labels, strict=True):
        expected.append(max(0, 1 - row[label] / np.delete(row, label).min()))
    np.testing.assert_allclose(membership(rows, labels, 4), expected, atol=1e-5)


def test_one_cluster_and_an_empty_one():
    rows = np.random.default_rng(0).random((5, 2))
    assert membership(rows, np.zeros(5, dtype=int), 1).tolist() == [1] * 5
    assert membership(rows, np.zeros(5, dtype=int), 2).tolist() == [1] * 5


def test_rows_set_aside_have_none():
    clustering = assign(np.eye(4)[[0, 0, 1, 1, 2]], 2, excluded=[4])
    assert np.isnan(clustering.membership[4])
    assert clustering.membership[:4] == pytest.approx(1)


def test_a_node_between_two_clusters_is_uncertain():
    data = datasets.make_block_model(200, 2, random_state=0)
    matrix = data.graph.matrix.tolil()
    matrix[0, :] = matrix[:, 0] = 0
    ends = [*np.flatnonzero(data.labels == 0)[1:11], *np.flatnonzero(data.labels == 1)[1:11]]
    for end in ends:
        matrix[0, end] = matrix[end, 0] = 1
    model = SpectralClustering(2, affinity="precomputed", random_state=0).fit(matrix.tocsr())
    assert model.membership_.shape == (200,)
    assert model.membership_[0] < 0.1 < np.quantile(model.membership_, 0.1)
