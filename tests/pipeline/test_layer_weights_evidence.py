"""Layer weights on layers that are weak one by one; all forty sets run in benchmarks/layer_weights.py."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import MultilayerSpectralClustering, metrics
from spectrograd.aggregation import normalize_weights
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.layer_weights import confirmation, layer_significance, shuffled, weigh_layers
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed

N, K, DEGREE = 1_000, 5, 12
LABELS = np.arange(N) % K
SQUARE = np.arange(N) % 4


def block_layer(groups, random_share, seed, scale=1.0, degree=DEGREE):
    """A share of the edges between any two nodes, the rest inside a group."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(N, size=(2, N * degree * 4))
    random = rng.random(len(one)) < random_share
    # candidates outside a group are thrown away unless they may be random
    chosen = np.flatnonzero((one != other) & (random | (groups[one] == groups[other])))
    inside = chosen[~random[chosen]]
    outside = chosen[random[chosen]]
    n_outside = round(N * degree / 2 * random_share)
    chosen = np.concatenate([outside[:n_outside], inside[: N * degree // 2 - n_outside]])
    half = sp.coo_array((np.ones(len(chosen)), (one[chosen], other[chosen])), shape=(N, N)).tocsr()
    return sp.csr_array(((half + half.T) > 0) * scale)


@cache
def weak_layers(random_share=0.4):
    return [block_layer(LABELS, random_share, seed) for seed in range(3)]


def fitted(layers, weights="auto", k=K, **options):
    options = {"aggregation": "projection", "random_state": 0} | options
    return MultilayerSpectralClustering(k, layer_weights=weights, **options).fit(layers)


def nmi(layers, weights="auto", labels=LABELS, **options):
    return metrics.nmi(labels, fitted(layers, weights, labels.max() + 1, **options).labels_)


def inputs(layers, k=K):
    operators = [laplacian(Graph.from_matrix(layer), "symmetric", allow_isolated=True) for layer in layers]
    return operators, [embed(op, k, Settings(seed=0)).embedding.vectors for op in operators]


def test_weak_layers_keep_their_weight_beside_noise():
    layers = [*weak_layers(), block_layer(LABELS, 1.0, 9)]
    model = fitted(layers)
    assert model.layer_weights_[:3] == pytest.approx(np.full(3, 4 / 3), abs=0.2)
    assert model.layer_weights_[3] == 0
    assert model.layer_scores_.noise.tolist() == [False, False, False, True]
    assert metrics.nmi(LABELS, model.labels_) > nmi(layers, None) - 0.02


def test_hidden_layers_count_the_same():
    layers = [*weak_layers(0.85), block_layer(LABELS, 1.0, 9)]  # no test can tell these apart
    assert fitted(layers).layer_weights_ == pytest.approx(np.ones(4), abs=0.05)


def test_layers_that_barely_show_do_not_judge_each_other():
    scores = weigh_layers(*inputs([*weak_layers(0.65), block_layer(LABELS, 1.0, 9)]), seed=0)
    assert scores.structure[:3].max() > 0.01
    assert scores.weights == pytest.approx(np.ones(4), abs=0.05)


def test_a_layer_too_weak_to_show_is_found_by_what_it_confirms():
    layers = [block_layer(LABELS, 0.4, 0), block_layer(LABELS, 0.5, 1), block_layer(LABELS, 0.8, 2)]
    scores = weigh_layers(*inputs(layers), seed=0)
    assert scores.structure[2] < 0.02
    assert not scores.noise.any()
    assert 0.2 < scores.weights[2] / scores.weights[0] < 0.8


def test_weights_hardly_depend_on_the_seed():
    operators, embeddings = inputs([*weak_layers(), block_layer(LABELS, 1.0, 9)])
    weights = [normalize_weights(weigh_layers(operators, embeddings, seed).weights, 4) for seed in range(3)]
    assert np.ptp(weights, axis=0).max() < 0.05


@pytest.mark.parametrize("laplacian", ["unnormalized", "symmetric"])
def test_scales_of_weak_layers_are_brought_to_one(laplacian):
    scales = (1.0, 1e3, 1e4)
    layers = [block_layer(LABELS, 0.45, seed, scale) for seed, scale in enumerate(scales)]
    model = fitted(layers, laplacian=laplacian, aggregation="mean")
    relative = model.layer_weights_ * (scales if laplacian == "unnormalized" else 1.0)
    assert relative / relative[0] == pytest.approx(np.ones(3), abs=0.2)
    assert metrics.nmi(LABELS, model.labels_) > 0.9


def test_without_evidence_scales_are_brought_to_one_too():
    layers = [block_layer(LABELS, 1.0, seed, scale) for seed, scale in enumerate((1.0, 1e3))]
    weights = fitted(layers, laplacian="unnormalized").layer_weights_
    assert weights[0] / weights[1] == pytest.approx(1e3, rel=0.2)


def test_layers_that_complete_each_other_keep_their_weight():
    views = (SQUARE // 2, SQUARE % 2, (SQUARE // 2 + SQUARE) % 2)
    layers = [block_layer(view, 0.4, seed) for seed, view in enumerate(views)]
    noisy = [*layers, block_layer(SQUARE, 1.0, 9)]
    assert fitted(layers, k=4).layer_weights_ == pytest.approx(np.ones(3), abs=0.1)
    assert fitted(noisy, k=4).layer_weights_[3] == 0
    assert nmi(noisy, labels=SQUARE) > nmi(noisy, None, labels=SQUARE) + 0.05


def test_two_of_a_kind_do_not_outvote_a_layer_that_has_room():
    views = (SQUARE // 2, SQUARE // 2, SQUARE % 2)
    layers = [block_layer(view, 0.4, seed) for seed, view in enumerate(views)]
    assert fitted(layers, k=4).layer_weights_ == pytest.approx(np.ones(3), abs=0.1)


def test_no_node_is_left_with_less_than_equal_weights_give():
    layers = [*weak_layers(0.4), block_layer(LABELS, 1.0, 9)]
    only_in_noise = sp.diags_array((np.arange(N) >= 5).astype(float))
    layers = [sp.csr_array(only_in_noise @ layer @ only_in_noise) for layer in layers[:3]] + layers[3:]
    model = fitted(layers)
    assert model.layer_scores_.noise[3]
    assert model.layer_weights_ == pytest.approx(np.ones(4))


def test_confirmation_has_the_mean_and_deviation_of_shuffled_layers():
    weighted = weak_layers()[0].copy()
    half = sp.triu(weighted, format="csr")
    half.data = np.random.default_rng(0).exponential(size=half.nnz)
    graph = Graph.from_matrix(sp.csr_array(half + half.T))
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((N, 4)))[0]
    rng = np.random.default_rng(2)
    drawn = [confirmation(shuffled(graph, rng), V) for _ in range(60)]
    found, deviations = np.array(drawn).T
    assert abs(found.mean()) < 4 * found.std() / np.sqrt(60)
    assert found.std() == pytest.approx(np.mean(deviations), rel=0.3)  # a deviation of 60 is off by a tenth


def test_strength_is_that_of_the_blocks():
    operators, embeddings = inputs([block_layer(LABELS, 0.5, 0, degree=30)])
    found = layer_significance(operators[0], embeddings[0], np.random.default_rng(0))
    assert found.strength == pytest.approx(0.5, abs=0.04)
    noise, vectors = inputs([block_layer(LABELS, 1.0, 0)])
    assert layer_significance(noise[0], vectors[0], np.random.default_rng(0)).structure < 0.01
