from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import MultilayerSpectralClustering, datasets, metrics
from spectrograd.aggregation import Layers
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.pipeline.layer_weights import (
    layer_distances,
    node_agreement,
    pairwise_agreement,
    shuffled,
    weigh_layers,
)
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.multilayer import layer_influence
from spectrograd.pipeline.settings import Settings
from spectrograd.points.knn_graph import knn_graph

K = 5
N = 500


@cache
def data():
    return datasets.make_multilayer_gmm(N, 3, K, separation=2.6, random_state=0)


@cache
def noise():
    return shuffled(data().graph.layers[0], np.random.default_rng(0))


def model(layers, **options):
    options = {"aggregation": "projection", "layer_weights": "auto", **options}
    return MultilayerSpectralClustering(K, random_state=0, **options).fit(MultilayerGraph.from_layers(layers))


def quality(layers, **options):
    return metrics.nmi(data().labels, model(layers, **options).labels_)


def only(graph, nodes):
    """The graph with every edge outside ``nodes`` removed."""
    keep = sp.diags_array(np.isin(np.arange(graph.n_nodes), nodes).astype(float))
    return Graph.from_matrix(keep @ graph.matrix @ keep)


def test_shuffled_keeps_degrees_nearly():
    graph = data().graph.layers[0]
    assert noise().degrees.sum() == pytest.approx(graph.degrees.sum(), rel=0.01)
    assert np.corrcoef((graph.matrix > 0).sum(axis=1), (noise().matrix > 0).sum(axis=1))[0, 1] > 0.98


def test_noise_gets_no_weight_and_costs_nothing():
    layers = dict(zip("abc", data().graph.layers, strict=True))
    noisy = layers | {"noise": noise()}
    fitted = model(noisy)
    assert fitted.layer_names_ == ("a", "b", "c", "noise")
    assert fitted.layer_weights_[3] < 0.02
    assert fitted.layer_weights_.sum() == pytest.approx(4)
    assert fitted.layer_scores_.structure[3] < 0.05 < 0.9 < fitted.layer_scores_.structure[:3].min()
    for aggregation in ("projection", "mean"):
        clean = quality(layers, aggregation=aggregation, layer_weights=None)
        assert quality(noisy, aggregation=aggregation) > clean - 0.02
    assert quality(noisy, aggregation="mean", layer_weights=None) < clean - 0.02


def test_a_structured_layer_about_something_else_is_left_out():
    other = datasets.make_multilayer_gmm(N, 1, K, separation=4.0, random_state=9).graph.layers[0]
    fitted = model([*data().graph.layers, other])
    assert fitted.layer_scores_.structure[3] > 0.9
    assert fitted.layer_weights_[3] < 0.25


def test_layers_that_agree_keep_their_weights():
    assert model(data().graph.layers).layer_weights_ == pytest.approx(np.ones(3), abs=0.25)


def test_copies_share_one_vote():
    first, second, third = data().graph.layers
    fitted = model([first, first, second, third])
    assert fitted.layer_scores_.copies.tolist() == [2, 2, 1, 1]
    once = model([first, second, third]).layer_weights_
    ratio = fitted.layer_weights_[:2].sum() / fitted.layer_weights_[2]
    assert ratio == pytest.approx(once[0] / once[1], rel=0.05)
    assert fitted.layer_distances_[0, 1] == pytest.approx(0, abs=1e-9)
    alone = model([first, first])
    assert alone.layer_weights_ == pytest.approx(np.ones(2), rel=1e-3)


def test_scale_of_a_layer_does_not_buy_influence():
    first, second, third = data().graph.layers
    loud = Graph.from_matrix(1000 * first.matrix)
    # to the end, or a node between two clusters may fall either way
    exactly = {"laplacian": "unnormalized", "tol": 1e-10}
    plain, shouted = model([first, second, third], **exactly), model([loud, second, third], **exactly)
    assert metrics.largest_principal_angle(plain.embedding_, shouted.embedding_) < 1e-8


def test_empty_layers_are_left_out_with_a_warning():
    empty = sp.csr_array((N, N))
    for weights in (None, "auto"):
        with pytest.warns(GraphWarning, match=r"layers without any edge are left out: '3'"):
            fitted = model([*data().graph.layers, empty], layer_weights=weights)
        assert fitted.layer_weights_[3] == 0
        assert fitted.layer_embeddings_[3].shape[1] == 0
        assert metrics.nmi(data().labels, fitted.labels_) == pytest.approx(
            quality(data().graph.layers, layer_weights=weights), abs=0.02
        )
    with pytest.raises(GraphError, match="no layer with a positive weight has an edge"):
        model([data().graph.layers[0], empty], layer_weights=[0, 1])


@pytest.mark.parametrize(
    "aggregation", ["projection", "mean", "power-mean", "geometric", "grassmann", "joint"]
)
def test_nodes_missing_from_a_layer(aggregation):
    first, second, _ = data().graph.layers
    present = np.random.default_rng(0).choice(N, N * 3 // 4, replace=False)
    seen = knn_graph(data().points[2][present], 5).matrix.tocoo()
    shape = (N, N)
    partial = sp.coo_array((seen.data, (present[seen.row], present[seen.col])), shape=shape)
    layers = [first, second, partial]
    absent = np.setdiff1d(np.arange(N), present)
    fitted = model(layers, aggregation=aggregation)
    assert np.abs(fitted.layer_embeddings_[2][absent]).max() < 1e-6
    two = quality([first, second], aggregation=aggregation)
    # how much a partial layer adds depends on the data; it must not spoil what the others know
    assert metrics.nmi(data().labels, fitted.labels_) > two - 0.05


def test_a_layer_of_few_nodes_has_few_columns():
    tiny = only(
        data().graph.layers[0],
        [0, *np.flatnonzero(data().graph.layers[0].matrix[[0]].toarray()[0])[:2]],
    )
    fitted = model([*data().graph.layers, tiny], layer_weights=None)
    assert fitted.layer_embeddings_[3].shape[1] <= 2
    assert np.isfinite(fitted.layer_distances_).all()


def test_a_node_in_no_layer_is_set_aside_or_an_error():
    layers = [only(layer, np.arange(1, N)) for layer in data().graph.layers]
    with pytest.warns(GraphWarning, match="1 of .* nodes .*: 0;"):
        assert model(layers).labels_[0] == -1
    with pytest.raises(GraphError, match=r"outside the largest \(0\)"):
        model(layers, disconnected="error")
    with pytest.raises(GraphError, match="1 nodes have no edge in any layer: 0"):
        merge(MultilayerGraph.from_layers(layers), 3, Settings())


def test_distances_are_a_semimetric():
    distances = layer_distances(model(data().graph.layers).layer_embeddings_)
    np.testing.assert_array_equal(np.diag(distances), 0)
    np.testing.assert_allclose(distances, distances.T)
    assert (distances <= K).all()


def test_without_any_structure_all_layers_count_the_same():
    rng = np.random.default_rng(1)
    graphs = [shuffled(noise(), rng) for _ in range(2)]
    fitted = model(graphs)
    assert np.isfinite(fitted.layer_weights_).all()
    empty = np.zeros((N, 0))
    merged = merge(MultilayerGraph.from_layers(graphs), K, Settings(seed=0))
    scores = weigh_layers(merged.inputs.operators, (empty, merged.inputs.embeddings[1][:, :1]))
    assert scores.weights.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("best", "expected 'equal', 'auto' or one number per layer"),
        ([1, 2], r"shape \(2,\) for 3 layers"),
        ([1, -1, 1], "not negative"),
        ([0, 0, 0], "not all zero"),
        ([1, np.nan, 1], "must be finite"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        model(data().graph.layers, layer_weights=weights)


def test_equal_is_a_word_for_none():
    layers = data().graph.layers
    equal, none = (model(layers, layer_weights=word) for word in ("equal", None))
    assert equal.layer_weights_.tolist() == none.layer_weights_.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(equal.labels_, none.labels_)


def test_influence_of_copies_is_the_same_and_of_no_weight_none():
    first, second, third = data().graph.layers
    graph = MultilayerGraph.from_layers([first, first, second, third])
    merged = merge(graph, K, Settings(seed=0), layer_weights=[1, 1, 2, 0])
    influence = layer_influence(merged, K, Settings(seed=0))
    assert influence[0] == pytest.approx(influence[1], abs=1e-6)
    assert influence[2] > influence[0] > 0
    assert influence[3] == 0
    assert (influence <= 1).all()


def test_influence_says_what_is_missing():
    plain = merge(data().graph, K, Settings(seed=0), aggregation="mean")
    with pytest.raises(ValueError, match="no embeddings to reuse"):
        layer_influence(plain, K, aggregation="projection")
    merged = merge(data().graph, K, Settings(seed=0)).inputs
    single = Layers(merged.operators[:1], np.ones(1), merged.embeddings[:1])
    with pytest.raises(ValueError, match="at least two layers"):
        layer_influence(single, K)
    heavy = Layers(merged.operators[:2], np.array([2.0, 0.0]), merged.embeddings[:2])
    with pytest.raises(ValueError, match="only one layer has a weight"):
        layer_influence(heavy, K)


def test_estimators_score_their_layers_when_asked():
    fitted = model([*data().graph.layers, noise()], layer_weights=None)
    assert fitted._merged.scores is None  # not paid for unless wanted
    scores = fitted.layer_scores_
    assert scores.structure[3] < 0.05 < 0.9 < scores.structure[:3].min()
    assert fitted.layer_scores_ is scores
    np.testing.assert_array_equal(fitted.layer_weights_, np.ones(4))
    assert model(data().graph.layers, aggregation="mean", layer_weights=None).layer_scores_ is None


@pytest.mark.parametrize("aggregation", ["projection", "mean", "joint"])
def test_estimators_know_what_leaving_a_layer_out_does(aggregation):
    fitted = model(data().graph.layers, aggregation=aggregation, layer_weights=[1, 1, 0])
    moved = fitted.layer_influence()
    assert moved.shape == (3,)
    assert moved[2] == 0 < moved[:2].min() <= moved.max() <= 1


def test_influence_needs_a_fit():
    with pytest.raises(ValueError, match="not fitted"):
        MultilayerSpectralClustering(K).layer_influence()


def test_layers_in_many_pieces_are_told_and_do_not_cost_hours():
    components = sp.block_diag([np.ones((5, 5)) - np.eye(5)] * (N // 5), format="csr")
    layers = {"whole": data().graph.layers[0], "crumbs": Graph.from_matrix(components)}
    with pytest.warns(GraphWarning, match=rf"more than {K} connected components: 'crumbs' \({N // 5}\)"):
        fitted = model(layers, layer_weights=None)
    assert fitted.certificate_.converged
    assert fitted.layer_certificates_[1].known == f"the {K} largest of {N // 5} components: they cut no edge"
    assert fitted.converged_


def random_basis(seed, n_nodes=400, width=4):
    """Orthonormal, its first direction the constant one as in a Laplacian."""
    draws = np.random.default_rng(seed).standard_normal((n_nodes, width))
    draws[:, 0] = 1
    return np.linalg.qr(draws)[0]


def test_pairwise_agreement_is_one_for_the_same_subspace_and_chance_for_strangers():
    one, other = random_basis(0), random_basis(1)
    rotated = one @ np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    table = pairwise_agreement([one, rotated, other])
    assert table[0, 1] == pytest.approx(1)
    assert table[0, 2] < 0.02  # though both hold the constant vector
    assert table == pytest.approx(table.T)


def test_node_agreement_adds_up_to_the_overlap_and_tells_where_a_layer_fails():
    merged = random_basis(0)
    assert node_agreement(merged * 3, merged) == pytest.approx(np.ones(400))
    half = merged.copy()
    half[200:] = random_basis(1)[200:]  # right for the first half of the nodes only
    local = node_agreement(half, merged)
    assert local[:200].mean() > local[200:].mean() + 0.1
    assert (local >= 0).all()
    assert (local <= 1).all()
    assert not node_agreement(half[:, :0], merged).any()
