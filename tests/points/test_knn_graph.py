"""k-NN graphs against a slow search over all pairs, and the hard cases: twins, crowds, far origins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from spectrograd.points import search as trees
from spectrograd.points.knn_graph import knn_graph, nearest
from spectrograd.points.query import SMALLEST_WEIGHT
from spectrograd.points.search import Wanted


def distances_between(points):
    points = np.asarray(points, dtype=float).reshape(len(points), -1)
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))


def slow_graph(points, k):
    """Self-tuned union k-NN graph by sorting every row of the distance matrix; no ties allowed."""
    gap = distances_between(points)
    np.fill_diagonal(gap, np.inf)
    nearest = np.argsort(gap, axis=1)[:, :k]
    chosen = np.zeros(gap.shape, dtype=bool)
    np.put_along_axis(chosen, nearest, True, axis=1)
    scale = np.sort(gap, axis=1)[:, k - 1]
    weights = np.maximum(np.exp(-(gap**2) / np.outer(scale, scale)), 1e-6)
    return np.where(chosen | chosen.T, weights, 0.0)


@pytest.mark.parametrize("n_features", [1, 2, 7, 30])
@pytest.mark.parametrize("k", [1, 4])
def test_same_as_a_search_over_all_pairs(n_features, k):
    points = np.random.default_rng(n_features).standard_normal((150, n_features))
    np.testing.assert_allclose(knn_graph(points, k).matrix.toarray(), slow_graph(points, k), atol=1e-12)


def test_line_worked_by_hand():
    # scales (distance to the nearest): 1, 1, 2, 7
    graph = knn_graph([0.0, 1.0, 3.0, 10.0], n_neighbors=1).matrix.toarray()
    expected = np.zeros((4, 4))
    expected[0, 1] = np.exp(-1)
    expected[1, 2] = np.exp(-4 / 2)
    expected[2, 3] = np.exp(-49 / 14)
    np.testing.assert_allclose(graph, expected + expected.T)


def test_binary_and_kernel_weights():
    points = [0.0, 1.0, 3.0, 10.0]
    binary = knn_graph(points, 1, weights="binary")
    assert not binary.is_weighted
    assert binary.n_edges == 3
    kernel = knn_graph(points, 1, weights="distance-kernel").matrix.toarray()
    assert kernel[0, 1] == pytest.approx(np.exp(-1 / 1.5**2))  # median of 1, 1, 2, 7
    assert kernel[2, 3] == SMALLEST_WEIGHT  # exp(-49 / 2.25) would be 3e-10


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=40),
    st.integers(1, 6),
    st.sampled_from([1, 2, 20]),
)
@settings(deadline=None)
def test_every_point_chooses_k_nearest_others_among_twins(grid, k, n_features):
    """Points on a coarse grid: ties and twins everywhere, for all three searches."""
    k = min(k, len(grid) - 1)
    points = np.array(grid, dtype=float)
    points = points[:, :1] if n_features == 1 else np.tile(points, n_features // 2)
    found = nearest(points, Wanted(k))
    indices, distances = found.indices, found.distances
    gap = distances_between(points)
    np.fill_diagonal(gap, np.inf)
    for row, (chosen, measured) in enumerate(zip(indices, distances, strict=True)):
        assert row not in chosen
        assert len(set(chosen)) == k
        np.testing.assert_allclose(measured, gap[row, chosen], atol=1e-12)
        np.testing.assert_allclose(measured, np.sort(gap[row])[:k], atol=1e-12)


@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=40), st.sampled_from(["self-tuned", "distance-kernel"])
)
def test_graph_of_twins_is_symmetric_without_loops_or_lone_nodes(values, weights):
    graph = knn_graph(np.array(values), 3, weights=weights)
    matrix = graph.matrix.toarray()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert not np.diag(matrix).any()
    assert matrix.max() <= 1.0
    assert (np.count_nonzero(matrix, axis=1) >= 3).all()
    twins = (matrix > 0) & (np.subtract.outer(values, values) == 0)
    assert (matrix[twins] == 1.0).all()


def test_a_crowd_in_one_place_holds_together():
    points = np.concatenate([np.zeros(1000), np.linspace(1, 2, 50)])
    graph = knn_graph(points, 5)
    crowd = graph.matrix[:1000, :1000]
    assert connected_components(crowd)[0] == 1
    degree = np.asarray(crowd.sum(axis=1)).ravel()
    walk = crowd.toarray() / np.sqrt(np.outer(degree, degree))
    second = np.linalg.eigvalsh(walk)[-2]
    assert second < 0.95  # a path of 1000 twins would have 0.9999
    assert len(graph.isolated) == 0


def test_the_search_sees_few_of_many_twins(monkeypatch):
    # a tree compares all twins with each other: minutes for the points below
    searched, original = [], trees.search_tree
    monkeypatch.setattr(
        trees, "search_tree", lambda points, *rest: searched.append(len(points)) or original(points, *rest)
    )
    points = np.random.default_rng(0).standard_normal((201_000, 2))
    points[:200_000] = 0.25
    assert knn_graph(points, 5).n_edges >= 201_000 * 5 / 2
    assert searched == [1_005]


def test_both_zeros_are_one_place():
    signs = np.where(np.arange(100) % 2, 0.0, -0.0)
    graph = knn_graph(np.stack([signs, np.ones(100)], axis=1), 4)
    assert connected_components(graph.matrix)[0] == 1


def test_a_point_whose_neighbours_are_twins_keeps_its_edges():
    points = np.array([0.0, 0, 0, 0, 5.0])
    weights = knn_graph(points, 3).matrix.toarray()[4, :4]
    np.testing.assert_allclose(weights[weights > 0], np.exp(-1))
    assert np.count_nonzero(weights) == 3


def test_weights_never_underflow():
    # The far pair is dense, the single point sparse: exp(-d^2 / (s_i s_j)) would be exp(-1e12).
    graph = knn_graph(np.array([[0.0, 0], [1e-12, 0], [1.0, 0]]), 1)
    assert graph.matrix[[2], :].max() == SMALLEST_WEIGHT


@pytest.mark.parametrize("weights", ["self-tuned", "distance-kernel"])
def test_weights_do_not_depend_on_the_unit_of_length(weights):
    points = np.random.default_rng(5).standard_normal(30)
    plain = knn_graph(points, 3, weights=weights).matrix.toarray()
    for unit in (1e-200, 1e200):  # squares of these leave the range of doubles
        np.testing.assert_allclose(knn_graph(points * unit, 3, weights=weights).matrix.toarray(), plain)


def test_far_from_the_origin_nothing_is_lost():
    points = np.random.default_rng(1).standard_normal((80, 20))
    near, far = knn_graph(points, 3), knn_graph(points + 1e7, 3)
    np.testing.assert_allclose(far.matrix.toarray(), near.matrix.toarray(), atol=1e-6)


def test_moving_turning_and_scaling_points_changes_nothing():
    rng = np.random.default_rng(2)
    points = rng.standard_normal((200, 3))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    order = rng.permutation(200)
    plain = knn_graph(points, 6).matrix.toarray()
    moved = knn_graph((7 * points @ turn + 3)[order], 6, n_jobs=2).matrix.toarray()
    np.testing.assert_allclose(moved, plain[np.ix_(order, order)], rtol=1e-9)


def test_types_and_column_vectors_are_accepted_and_not_changed():
    column = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    copy = column.copy()
    as_line, as_column = knn_graph(column, 2), knn_graph(column[:, None].astype(np.float32), 2)
    np.testing.assert_array_equal(as_line.matrix.toarray(), as_column.matrix.toarray())
    np.testing.assert_array_equal(column, copy)
    assert knn_graph(np.asfortranarray(np.random.default_rng(0).random((9, 2))), 2).n_nodes == 9


@pytest.mark.parametrize(
    ("points", "arguments", "message"),
    [
        (np.zeros((4, 2)), {"n_neighbors": 4}, "only 3 others"),
        (np.zeros((4, 2)), {"n_neighbors": 0}, "at least 1"),
        ([[0.0, 1], [np.nan, 1], [2, 2]], {"n_neighbors": 1}, "not finite .first in row 1."),
        ([0.0, 1, np.inf], {"n_neighbors": 1}, "first in row 2"),
        (np.zeros((4, 2, 2)), {"n_neighbors": 1}, r"shape \(4, 2, 2\)"),
        (np.zeros((4, 0)), {"n_neighbors": 1}, r"shape \(4, 0\)"),
        (["a", "b", "c"], {"n_neighbors": 1}, "numbers are needed"),
        (np.arange(4.0), {"n_neighbors": 1, "weights": "rbf"}, "unknown weights 'rbf'"),
        (
            np.arange(4.0),
            {"n_neighbors": 1, "search": "fast"},
            "unknown search 'fast'; choose one of auto, exact",
        ),
        (np.arange(4.0), {"n_neighbors": 1, "recall": 98}, "recall is 98; it is a share above 0"),
        (
            np.arange(4.0),
            {"n_neighbors": 1, "metric": "far"},
            "unknown metric 'far'; choose one of euclidean",
        ),
        (np.eye(4) - np.eye(4)[1], {"n_neighbors": 1, "metric": "cosine"}, "row 1 of the points is zero"),
    ],
)
def test_bad_input_is_refused_with_the_reason(points, arguments, message):
    with pytest.raises(ValueError, match=message):
        knn_graph(points, **arguments)
