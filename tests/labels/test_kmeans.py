"""k-means that improves one run: as good as ten starts of scikit-learn, and on a sample of many rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from spectrograd.kernels.thresholds import Thresholds
from spectrograd.labels import kmeans as module
from spectrograd.labels.assign import assign
from spectrograd.labels.cluster_qr import cluster_qr, pivot_centres
from spectrograd.labels.kmeans import Search, assign_to_centers, kmeans, spread_centres


def blobs(n_rows, n_blobs, rng, n_columns=3, noise=1.0):
    truth = rng.integers(n_blobs, size=n_rows)
    centres = 4 * rng.standard_normal((n_blobs, n_columns))
    return centres[truth] + noise * rng.standard_normal((n_rows, n_columns)), truth


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 20])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_as_good_as_ten_starts(n_clusters, offset):
    rows, _ = blobs(300, 7, np.random.default_rng(n_clusters))
    rows += offset
    found = assign(rows, n_clusters, random_state=0)
    labels, inertia = found.labels, found.inertia
    centres = np.stack([rows[labels == label].mean(axis=0) for label in range(n_clusters)])
    assert inertia == pytest.approx(((rows - centres[labels]) ** 2).sum(), rel=1e-6)
    gaps = np.linalg.norm(rows[:, None] - centres[None], axis=2)
    assert (gaps[np.arange(300), labels] <= gaps.min(axis=1) + 1e-6).all()  # a fixed point of the iteration
    assert inertia <= 1.005 * KMeans(n_clusters, n_init=10, random_state=0).fit(rows).inertia_


def test_breathing_mends_a_start_that_lloyd_cannot():
    rows, truth = blobs(600, 6, np.random.default_rng(3), noise=0.1)
    bad = np.vstack([rows[truth == 0][:5], rows[truth == 1][:1]])  # five centres in one blob
    search = Search(rows, 0.0, np.random.default_rng(0))
    stuck = search.settle(bad)
    best = stuck
    for extra in (3, 3, 1, 1):
        best = min(best, search._breath(best, extra), key=lambda run: run.inertia)
    assert stuck.inertia > 10 * best.inertia
    assert adjusted_rand_score(truth, best.labels) == 1.0


def test_the_neighbour_of_a_centre_that_goes_stays():
    rows = np.repeat([[0.0], [0.1], [5.0], [9.0]], [9, 9, 9, 60], axis=0)
    found = assign_to_centers(rows, np.array([[0.0], [0.1], [5.0], [9.0]]))
    assert module._to_spare(found, 2) in ([0, 2], [1, 2])
    assert sorted(module._to_spare(found, 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_init", [1, 2, 4])
def test_no_more_runs_than_wanted(monkeypatch, n_init):
    rows, _ = blobs(400, 12, np.random.default_rng(0), n_columns=12, noise=2.0)
    starts, descend = [], module.descend

    def counted(points, centres, **settings):
        starts.append(len(centres))
        return descend(points, centres, **settings)

    monkeypatch.setattr(module, "descend", counted)
    kmeans(rows, 12, n_init, np.random.default_rng(0))
    assert starts[-1] == 12  # the last run, on all rows
    assert starts[:-1].count(12) <= n_init
    assert starts[0] == 12
    assert (len(starts) > 2) == (n_init > 1)


def test_easy_clusters_take_few_runs(monkeypatch):
    rng = np.random.default_rng(2)
    truth = rng.integers(5, size=5_000)
    rows = np.eye(5)[truth] + 0.1 * rng.standard_normal((5_000, 5))
    breaths, breath = [], Search._breath
    monkeypatch.setattr(Search, "_breath", lambda *a: breaths.append(a[2]) or breath(*a))
    labels, _ = kmeans(rows, 5, 10, np.random.default_rng(0))
    assert breaths == [3]  # and a fresh start
    assert adjusted_rand_score(truth, labels) == 1.0


def test_many_rows_are_searched_on_a_sample(monkeypatch):
    rows, _ = blobs(30_000, 6, np.random.default_rng(0), n_columns=6, noise=2.0)
    seen, descend = [], module.descend

    def counted(points, centres, **settings):
        seen.append(len(points))
        return descend(points, centres, **settings)

    monkeypatch.setattr(module, "descend", counted)
    found = assign(rows, 6, random_state=0)
    assert set(seen[:-1]) == {2_000}
    assert seen[-1] == 30_000
    full = KMeans(6, n_init=10, random_state=0).fit(rows)
    assert found.inertia <= full.inertia_ * 1.001
    assert adjusted_rand_score(full.labels_, found.labels) > 0.98
    np.testing.assert_array_equal(found.labels, assign(rows, 6, random_state=0).labels)


def test_k_means_takes_either_way_by_size():
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(3), 40, axis=0) + 0.05 * rng.standard_normal((120, 3))
    few, many = (
        kmeans(rows, 3, 10, np.random.default_rng(0), thresholds=Thresholds(small=small))
        for small in (200, 10)
    )
    assert few[1] == pytest.approx(many[1], rel=1e-9)
    np.testing.assert_array_equal(few[0], many[0])


@pytest.mark.parametrize("small", [4096, 2])
@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 3), st.integers(0, 500))
@settings(deadline=None, max_examples=40)
def test_few_places(small, n_places, n_clusters, n_columns, seed):
    """Equal rows, zero rows, more clusters than places: equal rows share labels, all places are used."""
    rng = np.random.default_rng(seed)
    places = np.vstack([np.zeros((1, n_columns)), rng.standard_normal((n_places - 1, n_columns))])
    which = np.concatenate([np.arange(n_places), rng.integers(n_places, size=10)])
    labels, inertia = kmeans(places[which], n_clusters, 10, rng, thresholds=Thresholds(small=small))
    for place in range(n_places):
        assert len(set(labels[which == place])) == 1
    assert set(labels) <= set(range(n_clusters))
    if n_clusters >= n_places:
        assert len(set(labels)) == n_places
        assert inertia == pytest.approx(0, abs=1e-20)


def test_spread_centres_are_rows_apart():
    rows, truth = blobs(300, 5, np.random.default_rng(4), noise=0.01)
    chosen = spread_centres(rows, 5, np.random.default_rng(0))
    nearest = assign_to_centers(chosen, rows)
    assert nearest.gaps.max() == 0
    assert len(set(truth[nearest.labels])) == 5
    assert spread_centres(np.zeros((4, 2)), 3, np.random.default_rng(0)).shape == (3, 2)


def test_pivots_of_too_few_directions():
    rows = np.array([[2.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 1.0, 0.0]])
    labels, pivots = cluster_qr(rows, 3)
    assert pivots[:2].tolist() == [0, 2]
    assert len(set(pivots.tolist())) == 3
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert np.isfinite(pivot_centres(rows, 3)).all()


def test_a_pivot_that_won_no_row_stands_for_its_own_cluster():
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert pivot_centres(rows, 2).tolist() == [[1.0, 0.0], [1.0, 0.0]]
