"""The approximate search: against exact neighbours, its recall against what it says, threads and forks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

import reference
from spectrograd import SpectralClustering, knn_graph, read_graph
from spectrograd.graph import Recall
from spectrograd.io import write_graph
from spectrograd.kernels.nearest import candidate_gaps, keep_closest
from spectrograd.points.distances import Cloud, nearest_of_rows
from spectrograd.points.ivf_index import InvertedLists, search_ivf
from spectrograd.points.knn_graph import nearest, neighbour_graph
from spectrograd.points.search import Wanted, estimate_recall, prefers_ivf, search_all_pairs


def mixture(n_points, n_features, seed=0):
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((10, n_features))
    return centres[rng.integers(10, size=n_points)] + rng.standard_normal((n_points, n_features))


def true_neighbours(points, k):
    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points).kneighbors()


@pytest.mark.parametrize("n_columns", [5, 32, 70])
def test_keep_closest(n_columns):
    rng = np.random.default_rng(n_columns)
    queries, base = (rng.standard_normal((n, 4)).astype(np.float32) for n in (6, n_columns))
    rows, own = np.array([7, 1, 3, 0, 5, 2], dtype=np.int32), np.full(6, 104, dtype=np.int32)
    ids = np.arange(100, 100 + n_columns, dtype=np.int32)
    terms = [(x**2).sum(axis=1) for x in (queries, base)]
    gaps, found = np.full((8, 3), np.inf, dtype=np.float32), np.full((8, 3), -1, dtype=np.int32)
    for half in (slice(0, 20), slice(20, None)):  # what was found before is kept or replaced
        products = queries @ base[half].T
        arguments = (products, terms[0], terms[1][half], ids[half], rows, own, gaps, found)
        expected = reference.keep_closest(*arguments)
        keep_closest(*arguments)
        np.testing.assert_allclose(gaps, expected[0], rtol=1e-6)
        np.testing.assert_array_equal(found, expected[1])
    assert 104 not in found
    assert (found[[4, 6]] == -1).all()  # no query of theirs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_candidate_gaps(dtype):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((20, 7)).astype(dtype)
    asked = rng.standard_normal((3, 7)).astype(dtype)
    candidates = rng.integers(-1, 20, (3, 8)).astype(np.int32)
    candidates[0, 0] = -1
    gaps = np.full((3, 8), 5.0)
    candidate_gaps(0, 2, points, 2.0, asked, candidates, gaps)
    expected = reference.candidate_gaps(points, 2.0, asked, candidates)
    np.testing.assert_allclose(gaps[:2], expected[:2], rtol=1e-12)
    assert (gaps[2] == 5).all()


@pytest.mark.parametrize("n_features", [3, 100])  # as they are, and projected
def test_found_neighbours_are_true_ones_at_exact_distances(n_features):
    points = mixture(3000, n_features) + 1e4
    indices, distances, recall, _ = search_ivf(points, 6, 0.95)
    true, _ = true_neighbours(points - 1e4, 6)
    gaps = np.linalg.norm(points[indices] - points[:, None], axis=2)
    np.testing.assert_allclose(distances, gaps, rtol=1e-9)
    assert (np.diff(distances, axis=1) >= 0).all()
    assert not (indices == np.arange(3000)[:, None]).any()
    share = (distances <= true[:, -1:] * (1 + 1e-6)).mean()
    assert recall >= 0.95
    assert abs(share - recall) < 4 * recall.error + 1e-9  # what it says of itself is so
    assert recall.n_rows == 400


def test_the_search_goes_on_until_the_recall_is_met():
    points = mixture(4000, 20)
    low, high = (search_ivf(points, 5, recall) for recall in (0.5, 0.99))
    assert 0.5 <= low[2] < 0.9  # it does no more than it is asked for
    assert high[2] >= 0.99


def test_a_recall_that_lists_cannot_give_is_had_exactly():
    points = np.random.default_rng(0).standard_normal((1500, 60))  # neighbours are everywhere
    assert search_ivf(points, 5, 0.999) is None
    found = nearest(points, Wanted(5, search="approximate", recall=0.999))
    assert found.recall == 1
    np.testing.assert_allclose(found.distances, true_neighbours(points, 5)[0], rtol=1e-6)


def test_lists_too_short_for_k_neighbours_are_made_up_for():
    # most lists are a few points far from all others, the rest of their neighbours are nowhere near
    points = np.concatenate([mixture(3000, 4), 1e3 * np.random.default_rng(1).standard_normal((40, 4))])
    indices, distances, _, _ = search_ivf(points, 30, 0.9)
    assert (indices >= 0).all()
    assert np.isfinite(distances).all()
    assert all(len(set(row)) == 30 for row in indices.tolist())


def test_units_and_origins_do_not_matter():
    points = mixture(2000, 12)
    plain = search_ivf(points, 4, 0.9)
    for moved, unit in ((points * 2.0**600, 2.0**600), (points * 2.0**-600, 2.0**-600)):
        indices, distances, _, _ = search_ivf(moved, 4, 0.9)
        np.testing.assert_array_equal(indices, plain[0])
        np.testing.assert_allclose(distances, plain[1] * unit)


def test_visits_needed_are_those_that_meet_the_known_neighbours():
    points = mixture(2000, 6).astype(np.float32)
    lists = InvertedLists.of(points, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(lists.order), np.arange(2000))
    asking = np.arange(0, 2000, 10)
    known, _ = nearest_of_rows(Cloud.around(points), asking, 5)
    assert (
        lists.visits_for_recall(points, asking, known, 1.0)
        >= lists.visits_for_recall(points, asking, known, 0.9)
        >= 1
    )
    for share in (0.8, 0.95):
        n_visits = lists.visits_for_recall(points, asking, known, share)
        found = lists.visit(points[asking], asking.astype(np.int32), n_visits, 30)
        met = np.mean([np.isin(own, others).mean() for own, others in zip(known, found, strict=True)])
        assert share - 0.02 <= met <= share + 0.1


def test_recall_counts_ties_and_knows_its_error():
    true = np.array([[1.0, 2, 2], [1, 1, 1], [0, 0, 0]])
    found = np.array([[1.0, 2, 2], [1, 1, 3], [0, 0, 0]])
    recall = estimate_recall(found, true)
    assert recall == pytest.approx(8 / 9)
    assert recall.error == pytest.approx(np.std([1, 2 / 3, 1], ddof=1) / np.sqrt(3))
    again = pickle.loads(pickle.dumps(recall))
    assert (again, again.error, again.n_rows) == (recall, recall.error, 3)
    assert str(Recall(0.9871, 0.004, 400)) == "98.7 % of the true neighbours, +- .4"
    assert Recall.from_summary(recall.summary()).error == recall.error


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((20_001, 9), Wanted(5), True),
        ((20_000, 9), Wanted(5), False),
        ((20_001, 8), Wanted(5), False),
        ((20_001, 9), Wanted(5, recall=1.0), False),
        ((20_001, 9), Wanted(5, search="exact"), False),
        ((50, 2), Wanted(5, search="approximate"), True),
    ],
)
def test_which_search_is_for_what(shape, wanted, expected):
    assert prefers_ivf(*shape, wanted) is expected


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_cosine_is_that_of_scikit_learn(search):
    points = mixture(1500, 12) + 3
    found = knn_graph(points, 4, metric="cosine", weights="distance-kernel", search=search, recall=0.99)
    distances, indices = NearestNeighbors(n_neighbors=4, metric="cosine").fit(points).kneighbors()
    kernel = np.exp(-((distances / np.median(distances[:, -1])) ** 2)).ravel()
    rows = np.repeat(np.arange(1500), 4)
    ours = found.matrix[rows, indices.ravel()]
    assert np.mean(ours > 0) >= 0.98
    tolerance = 1e-4 if search == "exact" else 0.05  # the median distance, of a few other neighbours
    np.testing.assert_allclose(ours[ours > 0], np.maximum(kernel, 1e-6)[ours > 0], rtol=tolerance)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "correlation"])
@pytest.mark.parametrize("connect", [False, True])
def test_other_metrics_are_searched_exactly(metric, connect):
    points = np.concatenate([mixture(60, 4), mixture(60, 4) + 500])
    graph = knn_graph(points, 5, metric=metric, weights="binary", connect=connect)
    near = NearestNeighbors(n_neighbors=5, metric=metric, algorithm="brute").fit(points).kneighbors_graph()
    missing = sp.csr_array(near.maximum(near.T)) - graph.matrix
    assert missing.max() <= 0
    assert graph.recall == 1


def test_sparse_points_take_cosine_too():
    points = sp.random_array((200, 50), density=0.3, rng=np.random.default_rng(0), format="csr")
    dense, sparse = (knn_graph(x, 3, metric="cosine") for x in (points.toarray(), points))
    np.testing.assert_allclose(sparse.matrix.toarray(), dense.matrix.toarray(), atol=1e-6)


def test_the_recall_stays_with_the_graph_and_the_model(tmp_path):
    points = mixture(2500, 12)
    graph = knn_graph(points, 5, search="approximate", recall=0.9)
    assert graph.recall.n_rows == 400
    assert "of the true neighbours, +- " in repr(graph)
    write_graph(tmp_path / "g.npz", graph)
    again = read_graph(tmp_path / "g.npz").recall
    assert (again, again.error, again.n_rows) == (graph.recall, graph.recall.error, 400)
    model = SpectralClustering(3, random_state=0).fit(graph)
    assert model.knn_recall_ == graph.recall
    assert SpectralClustering(3, random_state=0).fit(points[:100]).knn_recall_ == 1
    assert SpectralClustering(3, affinity="rbf", random_state=0).fit(points[:100]).knn_recall_ is None


def test_the_estimator_hands_metric_and_recall_on(monkeypatch):
    seen = {}

    def spy(points, wanted, **given):
        seen.update(asdict(wanted))
        return neighbour_graph(points, wanted, **given)

    monkeypatch.setattr("spectrograd.estimators.inputs.neighbour_graph", spy)
    SpectralClustering(2, metric="cosine", recall=0.9, n_jobs=1, random_state=0).fit(mixture(80, 3))
    assert (seen["metric"], seen["recall"], seen["n_jobs"]) == ("cosine", 0.9, 1)


def test_the_same_graph_on_every_call_in_threads_and_after_a_fork():
    script = """
    import os, sys
    from concurrent.futures import ThreadPoolExecutor
    import numpy as np
    from spectrograd import SpectralClustering, knn_graph
    points = np.random.default_rng(0).standard_normal((4000, 12))
    def bits(n_jobs):
        graph = knn_graph(points, 5, search="approximate", recall=0.9, n_jobs=n_jobs)
        return graph.matrix.indices.tobytes() + graph.matrix.data.tobytes()
    first = bits(None)
    SpectralClustering(2, solver="lanczos", random_state=0).fit(knn_graph(points, 5))  # numba's own threads
    with ThreadPoolExecutor(2) as pool:
        assert all(other == first for other in pool.map(bits, (1, 2, None, 1)))
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0:
        same = bits(2) == first
        if not hasattr(os, "fork"):
            sys.exit(0 if same else 1)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_ties_do_not_depend_on_threads():
    """Grey levels of few pixels: some points have several neighbours at the distance of the last."""
    pixels = load_digits().data[:, np.arange(64) % 8 < 3]
    points = pixels / np.maximum(pixels.std(axis=0), 1e-9)
    found = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads, user_api="openmp"):
            found.append(search_all_pairs(points, 10, None))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
