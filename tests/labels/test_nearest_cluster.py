"""The rule by which new rows join clusters, and clusters of rows that have moved."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.labels.nearest_cluster import follow_clusters, nearest_cluster

RNG = np.random.default_rng(0)
TRUTH = np.repeat([0, 1, 2], 30)
DIRECTIONS = np.array([[1.0, 0, 0], [0, 1, 0], [0.5, 0.5, 2]])
ROWS = DIRECTIONS[TRUTH] * RNG.uniform(0.2, 5, (90, 1)) + 0.02 * RNG.standard_normal((90, 3))


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.5])])
@pytest.mark.parametrize("regularization", [0.0, 0.3])
def test_centres_are_means_of_scaled_rows_and_rows_go_to_the_nearest(weights, regularization):
    rule = nearest_cluster(ROWS, TRUTH, regularization, weights)
    weighed = ROWS if weights is None else ROWS * weights
    lengths = np.linalg.norm(weighed, axis=1)
    length = np.median(lengths) * np.sqrt(regularization)
    scaled = weighed / np.sqrt(lengths**2 + length**2)[:, None]
    centres = np.array([scaled[c == TRUTH].mean(axis=0) for c in range(3)])
    assert rule.length == pytest.approx(length)
    assert np.allclose(rule.scale(ROWS), scaled)
    assert np.allclose(rule.centres, centres)
    gaps = ((scaled[:, None] - centres) ** 2).sum(axis=2)
    assert np.array_equal(rule.labels(ROWS), gaps.argmin(axis=1))
    assert (rule.labels(ROWS) == TRUTH).mean() > 0.9


def test_rows_without_a_cluster_take_no_part_and_empty_clusters_get_nobody():
    labels = np.where(TRUTH == 1, -1, TRUTH)
    rule = nearest_cluster(ROWS, labels, 0.0)
    assert np.isnan(rule.centres[1]).all()
    assert set(rule.labels(ROWS)) == {0, 2}
    assert np.allclose(rule.centres[0], nearest_cluster(ROWS[:30], TRUTH[:30], 0.0).centres[0])


def test_rows_of_zeros_stay_zeros():
    rule = nearest_cluster(ROWS, TRUTH, 0.0)
    assert np.array_equal(rule.scale(np.zeros((1, 3))), np.zeros((1, 3)))


@pytest.mark.parametrize("excluded", [[], [4, 40]])
def test_clusters_follow_rows_that_moved(excluded):
    """A few labels are wrong, some unknown; the numbers of the clusters stay, also those without rows."""
    before = TRUTH.copy()
    before[[0, 31, 62]] = [1, 2, 0]
    before[[5, 35]] = -1
    before[before == 2] = 5
    expected = np.where(TRUTH == 2, 5, TRUTH)
    expected[excluded] = -1
    assert np.array_equal(follow_clusters(ROWS, before, 0.0, np.array(excluded, int)), expected)
