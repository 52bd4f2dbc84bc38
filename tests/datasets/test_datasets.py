"""The generators keep their promises: sizes, mixing, degrees, seeds, and how hard the clusters are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, eigsh

from spectrograd.datasets import (
    make_block_model,
    make_gaussian_mixture,
    make_growing_graph,
    make_multilayer_gmm,
    make_partition_graph,
)
from spectrograd.labels.assign import assign
from spectrograd.metrics import score


def crossing_share(data):
    matrix = data.graph.matrix.tocoo()
    return float(np.mean(data.labels[matrix.row] != data.labels[matrix.col]))


def same_graph(one, two):
    return one.n_entries == two.n_entries and (one.matrix != two.matrix).nnz == 0


@given(
    st.integers(40, 400),
    st.integers(1, 5),
    st.floats(0, 1),
    st.sampled_from([None, 2.3, 3.0]),
    st.integers(0, 99),
)
@settings(deadline=None)
def test_block_model_is_a_simple_graph_without_lone_nodes(n_nodes, n_clusters, mixing, exponent, seed):
    data = make_block_model(
        n_nodes, n_clusters, mean_degree=3, mixing=mixing, degree_exponent=exponent, random_state=seed
    )
    matrix = data.graph.matrix
    assert (matrix != matrix.T).nnz == 0
    assert not matrix.diagonal().any()
    assert not data.graph.is_weighted
    assert len(data.graph.isolated) == 0
    entries = np.repeat(np.arange(n_nodes), np.diff(matrix.indptr)) * n_nodes + matrix.indices
    assert (np.diff(entries) > 0).all()  # sorted, and no edge twice
    assert np.ptp(np.bincount(data.labels, minlength=n_clusters)) <= 1


def test_block_model_has_the_degree_and_mixing_asked_for():
    data = make_block_model(5_000, 5, mean_degree=12.0, mixing=0.3, random_state=0)
    assert data.graph.n_edges == pytest.approx(30_000, abs=3)  # lone nodes add an edge each
    assert crossing_share(data) == pytest.approx(0.3, abs=1e-3)
    degrees = data.graph.degrees
    assert np.var(degrees) == pytest.approx(12.0, rel=0.15)  # Poisson


def test_block_model_spreads_its_edges_evenly():
    data = make_block_model(6_000, 3, mean_degree=20.0, mixing=0.4, random_state=1)
    indicator = np.eye(3)[data.labels]
    between = indicator.T @ (data.graph.matrix @ indicator)
    np.testing.assert_allclose(np.diag(between), 120_000 * 0.6 / 3, rtol=0.05)
    np.testing.assert_allclose(between[~np.eye(3, dtype=bool)], 120_000 * 0.4 / 6, rtol=0.05)


def test_dense_small_blocks_still_reach_their_degree():
    data = make_block_model(100, 5, mean_degree=11.0, mixing=0.2, random_state=0)
    assert data.graph.n_edges == 550
    assert crossing_share(data) == pytest.approx(0.2)


def test_degree_exponent_gives_a_power_law():
    plain = make_block_model(20_000, 4, random_state=0).graph.degrees
    heavy = make_block_model(20_000, 4, degree_exponent=2.5, random_state=0)
    degrees = heavy.graph.degrees
    assert degrees.max() > 10 * plain.max()
    assert degrees.mean() == pytest.approx(20.0, rel=0.02)
    tail = degrees[degrees >= 50]
    exponent = 1 + len(tail) / np.log(tail / 49.5).sum()  # maximum likelihood (Clauset et al. 2009)
    assert exponent == pytest.approx(2.5, abs=0.25)
    assert crossing_share(heavy) == pytest.approx(0.2, abs=0.01)


def test_lone_nodes_join_their_own_block():
    data = make_block_model(2_000, 4, mean_degree=0.0, mixing=0.0, random_state=0)
    assert len(data.graph.isolated) == 0
    assert crossing_share(data) == 0.0
    assert data.graph.n_edges <= 2_000


def test_nodes_come_in_random_order():
    for labels in (
        make_block_model(2_000, 4, random_state=0).labels,
        make_gaussian_mixture(2_000, 4, random_state=0)[1],
    ):
        assert np.mean(labels[1:] == labels[:-1]) == pytest.approx(0.25, abs=0.04)
        assert np.mean(np.diff(labels) % 4 == 1) == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_nodes": 5, "n_clusters": 3}, "5 nodes for 3 blocks"),
        ({"n_clusters": 0}, "0 blocks"),
        ({"mixing": 1.2}, "mixing is 1.2"),
        ({"mixing": float("nan")}, "mixing is nan"),
        ({"degree_exponent": 2.0}, "finite mean only above 2"),
        ({"n_nodes": 100, "mean_degree": 60.0}, "asks for 48 neighbours inside the blocks; 0..9.5"),
        ({"n_nodes": 100, "mean_degree": 60.0, "mixing": 1.0}, "60 neighbours across the blocks"),
        ({"mean_degree": -1.0}, "mean_degree -1"),
    ],
)
def test_impossible_block_models_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_block_model(**arguments)


@given(st.integers(2, 8), st.integers(1, 4), st.floats(0.5, 8.0), st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_mixture_has_the_separation_asked_for(n_clusters, n_features, separation, seed):
    points, labels = make_gaussian_mixture(
        n_clusters * 2_000, n_clusters, n_features=n_features, separation=separation, random_state=seed
    )
    assert points.shape == (n_clusters * 2_000, n_features)
    means = np.stack([points[labels == c].mean(axis=0) for c in range(n_clusters)])
    gaps = np.linalg.norm(means[:, None] - means, axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert gaps.min(axis=1).mean() == pytest.approx(separation, abs=0.15)  # means are known to 0.02 each
    assert (points - means[labels]).std() == pytest.approx(1.0, abs=0.05)


def test_one_cluster_is_a_plain_cloud():
    points, labels = make_gaussian_mixture(3_000, 1, random_state=0)
    assert not labels.any()
    assert points.std(axis=0).mean() == pytest.approx(1.0, abs=0.05)
    with pytest.raises(ValueError, match="n_clusters is 4; with 3 nodes"):
        make_gaussian_mixture(3, 4)


def test_layers_share_labels_but_not_layout():
    data = make_multilayer_gmm(1_500, 3, 5, n_neighbors=4, random_state=0)
    assert data.graph.n_layers == len(data.points) == 3
    means = [np.stack([x[data.labels == c].mean(axis=0) for c in range(5)]) for x in data.points]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        gaps = [
            np.linalg.norm(m[:, None] - m, axis=2)[np.triu_indices(5, 1)] for m in (means[one], means[two])
        ]
        assert np.corrcoef(*gaps)[0, 1] < 0.9
    for layer in data.graph.layers:
        assert layer.is_weighted
        assert np.diff(layer.matrix.indptr).min() >= 4
    with pytest.raises(ValueError, match="n_layers is 0"):
        make_multilayer_gmm(100, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_block_model(500, degree_exponent=2.5, random_state=seed).graph,
        lambda seed: make_multilayer_gmm(200, random_state=seed).graph.layers[2],
    ],
)
def test_seed_decides_everything(make):
    assert same_graph(make(7), make(7))
    assert not same_graph(make(7), make(8))
    assert same_graph(make(np.random.default_rng(7)), make(7))


def normalized_adjacency(graph):
    scale = sp.diags_array(1 / np.sqrt(graph.degrees))
    return sp.csr_array(scale @ graph.matrix @ scale)


def merged_embedding(layers, k):
    """Exact SC-ML: K smallest eigenvectors of ``sum_s L_s - 0.5 sum_s U_s U_s'``, and the layers' own."""
    adjacencies = [normalized_adjacency(layer) for layer in layers]
    n = adjacencies[0].shape[0]
    start = np.random.default_rng(0).standard_normal(n)
    own = [
        eigsh((sp.eye_array(n) - a).tocsc(), k, sigma=-1e-3, which="LM", v0=start, tol=1e-10)[1]
        for a in adjacencies
    ]
    stacked, total = np.hstack(own), sum(adjacencies[1:], adjacencies[0])
    merged = LinearOperator(
        (n, n), matvec=lambda x: total @ x + 0.5 * (stacked @ (stacked.T @ x)), dtype=float
    )
    return eigsh(merged, k, which="LA", v0=start, tol=1e-8)[1], own


def test_default_layers_are_ambiguous_alone_and_clear_together():
    data = make_multilayer_gmm(random_state=0)
    merged, own = merged_embedding(data.graph.layers, 5)

    def scores(vectors):
        return score(data.labels, assign(vectors, 5, unit_rows=True, n_init=4, random_state=0).labels)

    together, alone = scores(merged), [scores(vectors) for vectors in own]
    assert 0.92 <= together["purity"] <= 0.95  # the paper: .93
    assert 0.80 <= together["nmi"] <= 0.86  # the paper: .83
    assert max(layer["nmi"] for layer in alone) < together["nmi"] - 0.15


def test_partition_graphs_have_uneven_blocks_and_power_law_degrees():
    made = make_partition_graph(5000, random_state=0)
    graph, labels = made.graph, made.labels
    sizes = np.bincount(labels)
    assert len(sizes) == round(5000**0.35)
    assert sizes.max() > 1.5 * sizes.min()
    degrees = np.diff(graph.matrix.indptr)
    assert degrees.min() >= 10  # twice 10 were drawn
    assert 100 < degrees.max() <= 200
    assert 35 < degrees.mean() < 43
    heads, tails = graph.matrix.nonzero()
    inside = (labels[heads] == labels[tails]).mean()
    assert 5 / 6 - 0.02 < inside < 5 / 6 + 0.03  # those that leave may come back by chance
    again = make_partition_graph(5000, random_state=0)
    assert (again.graph.matrix != graph.matrix).nnz == 0


def test_partition_graphs_of_high_variation_have_larger_blocks():
    largest = []
    for evenness in (10, 10 / 3):
        made = [make_partition_graph(5000, evenness=evenness, random_state=seed) for seed in range(5)]
        largest.append(np.mean([np.bincount(one.labels).max() for one in made]))
    assert largest[1] > 1.3 * largest[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_clusters": 99}, "1..50"), ({"ratio": 0}, "ratio"), ({"evenness": 0}, "evenness")],
)
def test_partition_graphs_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        make_partition_graph(500, **options)


def test_a_growing_graph_loses_its_ties_and_gains_its_people():
    growing = make_growing_graph(200, 10, per_day=5, apart_from=4, random_state=0)
    added = np.vstack([day.added for day in growing.days])
    removed = np.vstack([day.removed for day in growing.days])
    assert growing.first.n_nodes == 200
    assert len(growing.labels) == 250
    for number, day in enumerate(growing.days, start=1):
        assert day.added.max() < 200 + 5 * number
        assert (day.added.max(axis=1) >= 200 + 5 * (number - 1)).all()  # each with somebody who is new
        assert (len(day.removed) > 0) == (number >= 4)
    there = growing.first.matrix[removed[:, 0], removed[:, 1]]
    assert np.asarray(there).sum() == len(removed)  # and none twice
    assert (np.sort(growing.labels[removed], axis=1) == [0, 1]).all()
    assert len(np.unique(np.sort(added, axis=1), axis=0)) == len(added)
