"""Components of a k-NN graph joined by their shortest links."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from spectrograd import SpectralClustering, metrics
from spectrograd.points.knn_graph import join_components, knn_graph
from spectrograd.points.query import SMALLEST_WEIGHT


def blobs(n_components, n_features, seed=0, size=25):
    rng = np.random.default_rng(seed)
    centres = 40 * rng.standard_normal((n_components, n_features))
    return np.repeat(centres, size, axis=0) + rng.standard_normal((n_components * size, n_features))


def slow_links(points, labels):
    """Total length of the minimum spanning tree of components, from all distances."""
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    components = range(labels.max() + 1)
    between = np.array(
        [[gaps[np.ix_(labels == a, labels == b)].min() for b in components] for a in components]
    )
    return minimum_spanning_tree(between).sum()


@pytest.mark.parametrize("n_features", [1, 2, 20])
@pytest.mark.parametrize("n_components", [2, 3, 9])
def test_links_are_the_shortest_that_join_all(n_features, n_components):
    points = blobs(n_components, n_features)
    apart = knn_graph(points, 5)
    found, labels = connected_components(apart.matrix)
    assert found >= n_components - (n_features == 1)  # on a line blobs may meet
    lengths = []

    def weigh(rows, cols, gaps):
        np.testing.assert_allclose(gaps, np.linalg.norm(points[rows] - points[cols], axis=1), rtol=1e-6)
        return gaps

    joined = join_components(apart.matrix, points, weigh)
    assert connected_components(joined)[0] == 1
    new = sp.triu(joined - apart.matrix)
    lengths = new.data[new.data != 0]
    assert len(lengths) == found - 1
    assert lengths.sum() == pytest.approx(slow_links(points, labels), rel=1e-6)


def test_connect_leaves_a_connected_graph_alone_and_changes_no_other_edge():
    line = np.arange(30.0)
    plain, joined = knn_graph(line, 2), knn_graph(line, 2, connect=True)
    assert (plain.matrix != joined.matrix).nnz == 0
    points = blobs(4, 2)
    apart, whole = knn_graph(points, 4).matrix, knn_graph(points, 4, connect=True).matrix
    assert connected_components(whole)[0] == 1
    assert (whole - apart).min() >= 0
    assert abs(whole - whole.T).max() == 0
    links = (whole - apart).data
    assert set(links[links > 0].tolist()) == {SMALLEST_WEIGHT}  # far apart: as weak as edges get


def test_samples_of_large_pieces_still_join_them():
    points = blobs(6, 20)
    apart = knn_graph(points, 5).matrix
    joined = join_components(apart, points, lambda rows, cols, gaps: np.ones(len(gaps)), compared=(30, 30))
    assert connected_components(apart)[0] > connected_components(joined)[0] == 1


def test_the_estimator_takes_points_in_pieces():
    points = blobs(3, 2)
    model = SpectralClustering(3, n_neighbors=5, random_state=0).fit(points)
    assert metrics.nmi(np.repeat(np.arange(3), 25), model.labels_) == pytest.approx(1)
    assert model.converged_
    assert 0 < model.eigenvalues_[1] < 1e-4  # joined, weakly: only the first is zero
