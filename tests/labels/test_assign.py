"""Label assignment: known partitions come back, laws of each method hold, bad input is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from spectrograd.labels.assign import _discretize, assign
from spectrograd.labels.kmeans import unit_rows

METHODS = ["kmeans", "cluster_qr", "discretize"]


def indicator_embedding(truth, rng, noise=0.0):
    """Orthonormal cluster indicators, turned at random: what an ideal graph's eigenvectors look like."""
    k = truth.max() + 1
    indicator = np.eye(k)[truth] / np.sqrt(np.bincount(truth))
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
    return indicator @ turn + noise * rng.standard_normal((len(truth), k)) / np.sqrt(len(truth))


@pytest.mark.parametrize("method", METHODS)
@given(st.integers(2, 6), st.integers(0, 500))
@settings(deadline=None, max_examples=20)
def test_ideal_embeddings_are_recovered_exactly(method, k, seed):
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(k), rng.integers(k, size=40)])
    found = assign(indicator_embedding(truth, rng), k, method=method, random_state=0)
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.n_clusters == k
    assert found.method == method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noisy_embeddings_in_both_precisions(method, dtype):
    rng = np.random.default_rng(0)
    truth = rng.integers(5, size=2_000)
    vectors = indicator_embedding(truth, rng, noise=0.4).astype(dtype)
    copy = vectors.copy()
    found = assign(vectors, 5, method=method, random_state=0)
    assert adjusted_rand_score(truth, found.labels) > 0.95
    assert found.labels.dtype == np.int64
    assert found.seconds > 0
    np.testing.assert_array_equal(vectors, copy)


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_labels(method):
    vectors = np.random.default_rng(0).standard_normal((300, 4))
    one, two = (assign(vectors, 4, method=method, n_init=1, random_state=5).labels for _ in range(2))
    np.testing.assert_array_equal(one, two)
    generator = assign(vectors, 4, method=method, n_init=1, random_state=np.random.default_rng(5)).labels
    np.testing.assert_array_equal(one, generator)


def test_seed_matters_for_kmeans_and_starts_help():
    vectors = np.random.default_rng(0).standard_normal((400, 3))
    single = [assign(vectors, 12, n_init=1, random_state=seed) for seed in range(6)]
    assert len({clustering.labels.tobytes() for clustering in single}) > 1
    many = assign(vectors, 12, n_init=20, random_state=0)
    assert many.inertia <= np.median([clustering.inertia for clustering in single])


def test_inertia_is_the_squared_distance_to_the_centres():
    vectors = np.random.default_rng(1).standard_normal((60, 2))
    found = assign(vectors, 3, random_state=0)
    spread = sum(
        ((vectors[found.labels == c] - vectors[found.labels == c].mean(axis=0)) ** 2).sum() for c in range(3)
    )
    assert found.inertia == pytest.approx(spread)
    assert assign(vectors, 2, method="cluster_qr").inertia is None


def test_kmeans_takes_any_number_of_columns():
    truth = np.repeat([0, 1, 2], 30)
    column = truth[:, None] * 10.0 + np.random.default_rng(0).standard_normal((90, 1))
    assert adjusted_rand_score(truth, assign(column, 3, random_state=0).labels) == 1.0


def slow_cluster_qr(vectors, k):
    """Greedy pivoting with explicit deflation, polar factor from the inverse square root."""
    rest, pivots = vectors.T.copy(), []
    for _ in range(k):
        pivots.append(int(np.argmax((rest**2).sum(axis=0))))
        direction = rest[:, pivots[-1]] / np.linalg.norm(rest[:, pivots[-1]])
        rest -= np.outer(direction, direction @ rest)
    chosen = vectors[pivots].T
    values, basis = np.linalg.eigh(chosen.T @ chosen)
    polar = chosen @ basis @ np.diag(values**-0.5) @ basis.T
    return np.argmax(np.abs(vectors @ polar), axis=1)


@given(st.integers(0, 500), st.integers(0, 2))
@settings(deadline=None)
def test_cluster_qr_follows_its_definition(seed, extra_columns):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((40, 3 + extra_columns)))[0]
    found = assign(vectors, 3, method="cluster_qr").labels
    np.testing.assert_array_equal(found, slow_cluster_qr(vectors, 3))


@given(st.integers(0, 500))
@settings(deadline=None)
def test_cluster_qr_does_not_depend_on_the_basis(seed):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((50, 4)))[0]
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    one, two = (assign(x, 4, method="cluster_qr").labels for x in (vectors, vectors @ turn))
    np.testing.assert_array_equal(one, two)


def rotation_fit(vectors, labels):
    """What discretize maximises: the nuclear norm of (indicator)' (unit rows)."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.linalg.svd(np.eye(vectors.shape[1])[labels].T @ unit, compute_uv=False).sum()


def test_discretize_is_as_good_as_the_one_in_scikit_learn():
    module = pytest.importorskip("sklearn.cluster._spectral")
    rng = np.random.default_rng(4)
    vectors = indicator_embedding(rng.integers(4, size=500), rng, noise=0.8)

    ours = assign(vectors, 4, method="discretize", random_state=0).labels
    theirs = module.discretize(vectors, random_state=0)
    assert rotation_fit(vectors, ours) >= rotation_fit(vectors, theirs) * (1 - 1e-3)


def test_discretize_keeps_its_best_start():
    vectors = np.random.default_rng(6).standard_normal((200, 6))
    rng = np.random.default_rng(0)
    single = [rotation_fit(vectors, _discretize(vectors, 6, rng, n_starts=1)) for _ in range(10)]
    best = _discretize(vectors, 6, np.random.default_rng(0), n_starts=10)
    assert np.ptp(single) > 1e-3
    assert rotation_fit(vectors, best) == pytest.approx(max(single))


def test_unit_rows_ignore_lengths_and_keep_zero_rows():
    rng = np.random.default_rng(2)
    truth = np.repeat([0, 1], 50)
    lengths = 10.0 ** rng.uniform(-200, 3, size=(100, 1))
    rays = np.eye(2)[truth] + 0.05 * rng.standard_normal((100, 2))
    vectors = np.vstack([lengths * rays, np.zeros((1, 2))])
    found = assign(vectors, 2, unit_rows=True, random_state=0)
    assert adjusted_rand_score(truth, found.labels[:100]) == 1.0
    without = assign(vectors, 2, unit_rows=False, random_state=0)
    assert adjusted_rand_score(truth, without.labels[:100]) < 0.5
    # the inertia is that of unit rows and one zero row
    unit = np.vstack([rays / np.linalg.norm(rays, axis=1, keepdims=True), np.zeros((1, 2))])
    assert found.inertia == pytest.approx(assign(unit, 2, random_state=0).inertia)


@pytest.mark.parametrize("method", METHODS)
def test_one_cluster_and_frozen_result(method):
    found = assign(np.random.default_rng(0).standard_normal((6, 1)), 1, method=method)
    assert not found.labels.any()
    with pytest.raises(ValueError, match="read-only"):
        found.labels[0] = 1
    with pytest.raises(AttributeError):
        found.method = "other"


@pytest.mark.parametrize(
    ("vectors", "k", "arguments", "message"),
    [
        (np.eye(3), 2, {"method": "dbscan"}, "unknown method 'dbscan'; choose one of kmeans, cluster_qr"),
        (np.eye(3), 0, {}, "n_clusters is 0; with 3 rows"),
        (np.eye(3), 4, {}, "n_clusters is 4; with 3 rows it must be in 1..3"),
        (np.array([[1.0], [np.nan]]), 1, {}, "1 rows of the embedding are not finite .first: row 1"),
        (np.ones(3), 1, {}, r"shape \(3,\)"),
        (np.eye(3)[:, :1], 2, {"method": "cluster_qr"}, "1 columns, 2 clusters"),
        (np.eye(3), 2, {"method": "discretize"}, "3 columns, 2 clusters"),
        (np.eye(3), 2, {"n_init": 0}, "n_init is 0"),
    ],
)
def test_bad_input_is_refused_with_the_reason(vectors, k, arguments, message):
    with pytest.raises(ValueError, match=message):
        assign(vectors, k, **arguments)


def test_soft_rows_keep_short_rows_short():
    rows = np.array([[2.0, 0.0], [0.0, 2.0], [1e-9, 1e-9], [0.0, 0.0], [2e150, 0.0]])
    soft = unit_rows(rows, 1.0)
    half = np.sqrt(0.5)
    # the median length is 2: a row of that length becomes 1 / sqrt 2 long
    np.testing.assert_allclose(soft, [[half, 0], [0, half], [5e-10, 5e-10], [0, 0], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(unit_rows(rows * 7, 1.0), soft, atol=1e-9)
    np.testing.assert_array_equal(unit_rows(rows, 0.0), unit_rows(rows))
    np.testing.assert_array_equal(unit_rows(rows[3:4], 1.0), [[0, 0]])


def test_rows_set_aside_take_no_part():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 30)
    vectors = np.vstack([[[np.nan, np.nan]], indicator_embedding(truth, rng)])
    found = assign(vectors, 2, excluded=[0], unit_rows=True, norm_regularization=1.0, random_state=0)
    assert found.labels[0] == -1
    assert adjusted_rand_score(truth, found.labels[1:]) == 1.0


def test_clusters_are_numbered_as_they_appear():
    rng = np.random.default_rng(0)
    truth = np.array([2, 0, 0, 1] * 20)
    for _ in range(3):
        found = assign(indicator_embedding(truth, rng), 3, random_state=0).labels
        assert found[:4].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_out_of_the_range_of_squares(dtype):
    rows = np.array([[3, 4], [3e-30, 4e-30], [3e30, 4e30], [0, 0]], dtype=dtype)
    unit = unit_rows(np.vstack([rows, rows]), 0.0)
    assert unit.dtype == dtype
    np.testing.assert_allclose(unit[:4], [[0.6, 0.8]] * 3 + [[0, 0]], rtol=1e-6)
    tiny = unit_rows(np.array([[3e-310, 4e-310], [3e200, 4e200]]))
    np.testing.assert_allclose(tiny, [[0.6, 0.8]] * 2, rtol=1e-6)


def test_large_finite_numbers_are_finite():
    rows = np.full((4, 2), 8e307)
    assert assign(rows, 1, unit_rows=True).inertia == pytest.approx(0, abs=1e-12)
    rows[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"1 rows of the embedding are not finite .first: row 3"):
        assign(rows, 1)


def test_the_order_of_memory_does_not_matter():
    vectors = np.random.default_rng(0).standard_normal((5_000, 3))
    one, two = (assign(x, 3, random_state=0).labels for x in (vectors, np.asfortranarray(vectors)))
    np.testing.assert_array_equal(one, two)


def test_kmeans_begins_with_the_labels_given():
    rng = np.random.default_rng(0)
    truth = np.repeat(range(4), 50)
    rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[truth] + rng.normal(0, 0.05, (200, 2))
    # 1. nearly right: set right
    start = truth.copy()
    start[::9] = (start[::9] + 1) % 4
    assert adjusted_rand_score(truth, assign(rows, 4, start=start, random_state=0).labels) == 1
    # 2. it seeks no others: a split cluster and two in one are a local optimum
    split = np.minimum(truth, 2)
    split[:25] = 3
    assert adjusted_rand_score(truth, assign(rows, 4, start=split, random_state=0).labels) < 0.9
    # 3. an empty cluster is no start; rows that take no part have none
    assert adjusted_rand_score(truth, assign(rows, 4, start=truth % 3, random_state=0).labels) == 1
    start[:50:5] = -1
    found = assign(rows, 4, start=start, excluded=np.arange(0, 50, 5), random_state=0).labels
    assert adjusted_rand_score(truth[found >= 0], found[found >= 0]) == 1
    assert (found[:50:5] == -1).all()
