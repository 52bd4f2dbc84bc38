"""Scores against values worked out by hand and by counting pairs; angles against known rotations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrograd import Graph, metrics

SCORES = [metrics.purity, metrics.nmi, metrics.rand_index, metrics.adjusted_rand_index]
label_lists = st.integers(2, 25).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2)
)

# Two classes of four; clusters {0,1,2,4} and {3,5,6,7}: contingency [[3, 1], [1, 3]].
TRUTH = [0, 0, 0, 0, 1, 1, 1, 1]
FOUND = [0, 0, 0, 1, 0, 1, 1, 1]


def entropy(*probabilities):
    return -sum(p * np.log(p) for p in probabilities if p > 0)


def test_scores_of_a_table_worked_by_hand():
    information = 2 * np.log(2) - entropy(3 / 8, 1 / 8, 1 / 8, 3 / 8)
    assert metrics.purity(TRUTH, FOUND) == 6 / 8
    assert metrics.nmi(TRUTH, FOUND) == pytest.approx(information / np.log(2))
    # 28 pairs; together in both: 2 * C(3,2) = 6; together in truth 12, in found 12; apart in both 10.
    assert metrics.rand_index(TRUTH, FOUND) == pytest.approx(16 / 28)
    expected = 12 * 12 / 28
    assert metrics.adjusted_rand_index(TRUTH, FOUND) == pytest.approx((6 - expected) / (12 - expected))


def test_nmi_divides_by_the_arithmetic_mean_of_the_entropies():
    # labels refine truth: information = H(truth) = log 2, H(labels) = log 4
    value = metrics.nmi([0, 0, 1, 1], [0, 1, 2, 3])
    assert value == pytest.approx(np.log(2) / ((np.log(2) + np.log(4)) / 2))


def test_purity_counts_the_majority_of_each_cluster_not_of_each_class():
    assert metrics.purity([0, 0, 1, 1], [0, 1, 2, 3]) == 1.0
    assert metrics.purity([0, 1, 2, 3], [0, 0, 1, 1]) == 0.5


@given(label_lists)
def test_rand_index_is_the_share_of_agreeing_pairs(pair):
    truth, found = pair
    agree = [(truth[i] == truth[j]) == (found[i] == found[j]) for i, j in combinations(range(len(truth)), 2)]
    assert metrics.rand_index(truth, found) == pytest.approx(np.mean(agree))


@given(label_lists, st.permutations(range(4)), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_scores_ignore_the_names_of_clusters_and_the_order_of_nodes(pair, renamed, random):
    truth, found = map(np.array, pair)
    order = list(range(len(truth)))
    random.shuffle(order)
    for function in SCORES:
        plain = function(truth, found)
        assert function(truth, np.array(renamed)[found]) == pytest.approx(plain)
        assert function(truth[order], found[order]) == pytest.approx(plain)


@given(label_lists)
def test_every_score_is_one_for_the_same_partition_and_never_above(pair):
    truth, found = pair
    names = np.array(["a", "b", "c", "d"])[truth]
    for function in SCORES:
        assert function(names, truth) == pytest.approx(1.0)
        assert function(truth, found) <= 1.0 + 1e-12


def test_score_leaves_out_unlabelled_nodes():
    truth = [*TRUTH, -1, -1, -1]
    found = [*FOUND, 0, 1, 7]
    assert metrics.score(truth, found) == {
        "purity": metrics.purity(TRUTH, FOUND),
        "nmi": metrics.nmi(TRUTH, FOUND),
        "ri": metrics.rand_index(TRUTH, FOUND),
        "ari": metrics.adjusted_rand_index(TRUTH, FOUND),
    }
    assert metrics.score(np.array(truth, dtype=float), found)["purity"] == 0.75


def test_score_takes_class_names():
    assert metrics.score(["x", "x", "-1"], [0, 0, 0])["purity"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("function", [*SCORES, metrics.score])
def test_labels_that_do_not_match_are_refused(function):
    with pytest.raises(ValueError, match="3 truth labels but 2 cluster labels"):
        function([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match=r"labels has shape \(2, 1\)"):
        function([0, 1], [[0], [1]])
    with pytest.raises(ValueError, match="empty"):
        function([], [])


def test_score_without_a_single_label_is_refused():
    with pytest.raises(ValueError, match="no node is labelled"):
        metrics.score([-1, -1], [0, 1])


def random_basis(rng, n=12, k=3):
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


def test_projection_distance_is_equation_20():
    rng = np.random.default_rng(0)
    basis, layers = random_basis(rng), [random_basis(rng) for _ in range(4)]
    projector = basis @ basis.T
    expected = 3 * 4 - sum(np.trace(projector @ layer @ layer.T) for layer in layers)
    assert metrics.projection_distance(basis, layers) == pytest.approx(expected)


def test_projection_distance_of_equal_and_orthogonal_subspaces():
    axes = np.eye(6)
    assert metrics.projection_distance(axes[:, :2], [axes[:, :2]]) == 0.0
    assert metrics.projection_distance(axes[:, :2], [axes[:, 2:4], axes[:, 4:]]) == pytest.approx(4.0)


@given(st.integers(0, 1000))
def test_projection_distance_and_angle_do_not_depend_on_the_basis(seed):
    rng = np.random.default_rng(seed)
    one, two = random_basis(rng), random_basis(rng)
    mixing = rng.standard_normal((3, 3)) + 4 * np.eye(3)
    metric = rng.uniform(0.1, 10, 12)
    for weights in (None, metric):
        distance = metrics.projection_distance(one, [two], weights)
        assert metrics.projection_distance(one @ mixing, [two @ mixing], weights) == pytest.approx(distance)
        angle = metrics.largest_principal_angle(one, two, weights)
        assert metrics.largest_principal_angle(one @ mixing, two, weights) == pytest.approx(angle)
        assert metrics.largest_principal_angle(two, one, weights) == pytest.approx(angle)


def test_metric_is_the_inner_product_of_the_scaled_space():
    rng = np.random.default_rng(3)
    one, two, metric = rng.standard_normal((9, 2)), rng.standard_normal((9, 2)), rng.uniform(0.1, 5, 9)

    def oblique(basis):  # B-orthogonal projector U (U'BU)^-1 U'B
        return basis @ np.linalg.solve(basis.T @ (metric[:, None] * basis), (metric[:, None] * basis).T)

    expected = 2 - np.trace(oblique(one) @ oblique(two))
    assert metrics.projection_distance(one, [two], metric) == pytest.approx(expected)
    sine = np.sqrt(1 - np.linalg.eigvals(oblique(one) @ oblique(two)).real.clip(0).max())
    cosines = np.sqrt(np.sort(np.linalg.eigvals(oblique(one) @ oblique(two)).real)[-2:])
    angle = metrics.largest_principal_angle(one, two, metric)
    assert angle == pytest.approx(np.arccos(cosines[0]))
    assert np.sin(angle) > sine


@pytest.mark.parametrize("angle", [1e-12, 1e-9, 1e-4, 0.3, 1.0, 1.5, np.pi / 2])
def test_angle_of_a_known_rotation(angle):
    one = np.eye(5)[:, :2]
    two = one.copy()
    two[:, 1] = np.cos(angle) * np.eye(5)[1] + np.sin(angle) * np.eye(5)[3]
    assert metrics.largest_principal_angle(one, two) == pytest.approx(angle, rel=1e-3)
    assert metrics.projection_distance(one, [two]) == pytest.approx(np.sin(angle) ** 2, rel=1e-3)


def test_float32_bases_are_compared_in_double_precision():
    basis = random_basis(np.random.default_rng(1)).astype(np.float32)
    assert metrics.largest_principal_angle(basis, basis.copy()) < 1e-14


@pytest.mark.parametrize(
    "function", [metrics.largest_principal_angle, lambda a, b, m=None: metrics.projection_distance(a, [b], m)]
)
def test_bad_bases_are_refused(function):
    good = np.eye(4)[:, :2]
    with pytest.raises(ValueError, match="not finite"):
        function(good * np.nan, good)
    with pytest.raises(ValueError, match=r"shape \(2, 4\)"):
        function(good, good.T)
    with pytest.raises(ValueError, match=r"metric has shape \(3,\) for 4 rows"):
        function(good, good, np.ones(3))
    with pytest.raises(ValueError, match="positive"):
        function(good, good, np.array([1.0, 1.0, 0.0, 1.0]))


def test_subspaces_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="4 rows and 5 rows"):
        metrics.largest_principal_angle(np.eye(4)[:, :2], np.eye(5)[:, :2])
    with pytest.raises(ValueError, match=r"layer 1 has shape \(4, 3\)"):
        metrics.projection_distance(np.eye(4)[:, :2], [np.eye(4)[:, :2], np.eye(4)[:, :3]])
    with pytest.raises(ValueError, match="layer 0 are linearly dependent"):
        metrics.projection_distance(np.eye(4)[:, :2], [np.ones((4, 2))])


def test_conductance_is_the_share_of_weight_that_leaves():
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((30, 30)) * (rng.random((30, 30)) < 0.3), 1)
    dense += dense.T
    labels = rng.integers(0, 4, 30) * 7
    for value, label in zip(
        metrics.conductance(Graph.from_matrix(dense), labels), np.unique(labels), strict=True
    ):
        inside = labels == label
        leaving = dense[inside][:, ~inside].sum()
        assert value == pytest.approx(leaving / min(dense[inside].sum(), dense[~inside].sum()))


def test_conductance_at_the_ends():
    pairs = Graph.from_edges([0, 2], [1, 3])
    assert metrics.conductance(pairs, [0, 0, 1, 1]).tolist() == [0, 0]
    assert metrics.conductance(pairs, [0, 1, 0, 1]).tolist() == [1, 1]
    assert np.isnan(metrics.conductance(pairs, [5, 5, 5, 5])).all()
    with pytest.raises(ValueError, match=r"shape \(3,\) for 4 nodes"):
        metrics.conductance(pairs, [0, 0, 1])
