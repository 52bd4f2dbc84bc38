"""Regularisation: the implicit matrix is the explicit one, and ``auto`` acts on evidence only."""

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

from spectrograd import (
    Graph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
)
from spectrograd.certificate.localization import decide_regularization, participation
from spectrograd.operators.laplacian import (
    MORE_TAU,
    TAU,
    check_regularization,
    laplacian,
    regularized_laplacian,
)
from spectrograd.pipeline.plan import plan
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.base import Problem

KINDS = ("random_walk", "symmetric", "unnormalized")


def whiskered(n_whiskers=40, length=6, n_nodes=400, mixing=0.1, seed=0):
    """Two dense blocks with paths hanging from them: the smallest eigenvectors are the paths."""
    data = datasets.make_block_model(n_nodes, 2, mean_degree=20, mixing=mixing, random_state=seed)
    rng = np.random.default_rng(seed)
    size = n_nodes + n_whiskers * length
    rows, cols, labels = [], [], np.concatenate([data.labels, np.zeros(n_whiskers * length, int)])
    for w, foot in enumerate(rng.choice(n_nodes, n_whiskers, replace=False)):
        chain = [foot, *range(n_nodes + w * length, n_nodes + (w + 1) * length)]
        rows += chain[:-1]
        cols += chain[1:]
        labels[chain] = data.labels[foot]
    block = data.graph.matrix.tocoo()
    once = block.row < block.col
    ends = np.concatenate([block.row[once], rows]), np.concatenate([block.col[once], cols])
    return Graph.from_edges(*ends, n_nodes=size), labels


@pytest.fixture(scope="module")
def dangling():
    return whiskered()


def explicit(graph, kind, tau):
    W = graph.matrix.toarray()
    W = W + tau * W.sum() / len(W) / len(W)
    d = W.sum(axis=1)
    if kind == "unnormalized":
        return np.diag(d) - W, np.eye(len(W))
    if kind == "symmetric":
        return np.eye(len(W)) - W / np.sqrt(np.outer(d, d)), np.eye(len(W))
    return np.diag(d) - W, np.diag(d)


@pytest.mark.parametrize("kind", KINDS)
def test_the_implicit_matrix_is_the_explicit_one(kind):
    graph = Graph.from_edges([0, 1, 2, 4, 0], [1, 2, 3, 5, 2], n_nodes=7)  # two pieces and a lone node
    operator = regularized_laplacian(graph, kind, 0.3)
    A, B = explicit(graph, kind, 0.3)
    np.testing.assert_allclose(operator.to_dense(), A, atol=1e-12)
    if kind == "random_walk":
        np.testing.assert_allclose(operator.metric, np.diag(B))
    values = la.eigh(A, B, eigvals_only=True)
    assert values[1] > 1e-3  # one piece now
    assert operator.lower - 1e-9 <= values[0]
    assert values[-1] <= operator.upper + 1e-9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_both_precisions_and_with_many_columns(dtype):
    graph = datasets.make_block_model(5000, 3, random_state=0).graph  # beyond SMALL: the compiled path
    operator = regularized_laplacian(graph, "random_walk", 0.5)
    U = np.random.default_rng(0).standard_normal((5000, 3)).astype(dtype)
    t = 0.5 * graph.degrees.mean()
    expected = (graph.degrees + t)[:, None] * U - graph.matrix @ U - t / 5000 * U.sum(axis=0)
    tolerance = 1e-3 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(operator @ U, expected, atol=tolerance)
    assert (operator @ U).dtype == dtype


def test_tau_zero_is_the_plain_laplacian():
    graph = datasets.make_block_model(300, 3, random_state=0).graph
    assert regularized_laplacian(graph, "random_walk", 0).low_rank is None


@pytest.mark.parametrize("solver", ["chebyshev", "lanczos", "shift-invert", "lobpcg"])
def test_solvers_agree_on_a_regularised_graph(solver):
    graph = datasets.make_block_model(600, 3, mean_degree=12, random_state=0).graph
    operator = regularized_laplacian(graph, "random_walk", TAU)
    exact = embed(operator, 3, Settings(solver="eigen", seed=0))
    found = embed(operator, 3, Settings(solver=solver, seed=0))
    assert found.certificate.converged
    np.testing.assert_allclose(found.embedding.eigenvalues, exact.embedding.eigenvalues, atol=1e-3)


def test_a_rank_one_part_does_not_change_the_plan():
    data = datasets.make_block_model(5000, 5, random_state=0)
    plain, lifted = (regularized_laplacian(data.graph, "random_walk", tau) for tau in (0.0, 0.1))
    names = [[choice.name for choice in plan(Problem(operator, 5))] for operator in (plain, lifted)]
    assert names[0] == names[1]
    assert names[0][0] == "lanczos"


def test_participation_is_the_share_of_the_volume():
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    operator = laplacian(graph)
    vectors = np.array([[1.0, 1e-200], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(participation(operator, vectors), [1.0, 0.25])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_participation_in_slices_is_that_of_the_whole(kind, dtype):
    n = 20_000  # several slices
    operator = laplacian(Graph.from_edges(np.arange(n), np.roll(np.arange(n), 1)), kind)
    vectors = np.random.default_rng(0).standard_normal((n, 5)).astype(dtype)
    vectors[100:, 3] = 0
    u = operator.to_random_walk(vectors.astype(np.float64))
    mass = np.ones(n) if operator.random_walk_form().metric is None else operator.random_walk_form().metric
    expected = (mass @ u**2) ** 2 / (mass.sum() * (mass @ u**4))
    np.testing.assert_allclose(participation(operator, vectors), expected, rtol=1e-6)


def test_auto_finds_the_clusters_behind_the_whiskers(dangling):
    graph, labels = dangling
    plain = SpectralClustering(2, regularization=None, random_state=0).fit(graph)
    model = SpectralClustering(2, random_state=0).fit(graph)
    assert plain.regularization_.reason == "off"
    assert metrics.nmi(labels[:400], plain.labels_[:400]) < 0.3
    assert metrics.nmi(labels[:400], model.labels_[:400]) > 0.8
    assert model.regularization_.tau == TAU
    assert model.regularization_.localized == 1.0
    assert model.regularization_.reason.startswith("1 of 1 eigenvectors live on less than a tenth")
    assert model.converged_
    assert len(model.attempts_) == 1  # rough vectors chose the treatment: one solve is certified


@pytest.mark.parametrize("n_whiskers", [2000])
def test_a_rough_look_is_enough_on_larger_expanders(n_whiskers):
    graph, labels = whiskered(n_whiskers, 4, 6000)
    model = SpectralClustering(2, random_state=0).fit(graph)
    assert model.regularization_.tau == TAU
    assert metrics.nmi(labels, model.labels_) > 0.7
    assert len(model.attempts_) == 1  # no solve was given up for another problem
    assert model.attempts_[0].reason == "goes on with the rough vectors that chose the treatment"
    passes = [progress.matvecs for progress in model.history_]
    assert passes == sorted(passes)


def test_more_is_added_where_a_tenth_is_not_enough():
    graph, labels = whiskered(2, 20, mixing=0.25)
    model = SpectralClustering(2, random_state=0).fit(graph)
    assert model.regularization_.tau == MORE_TAU
    assert metrics.nmi(labels[:400], model.labels_[:400]) > 0.8
    assert [attempt.solver for attempt in model.attempts_] == ["lanczos"]  # none given up, none escalated


@pytest.mark.parametrize("n_features", [2, 8])
@pytest.mark.parametrize("n_nodes", [800, 5000])
def test_auto_leaves_neighbour_graphs_alone(n_nodes, n_features):
    X, _ = datasets.make_gaussian_mixture(n_nodes, 5, n_features=n_features, random_state=0)
    model = SpectralEmbedding(5, random_state=0).fit(knn_graph(X, 10))
    assert model.regularization_.tau == 0
    assert model.regularization_.localized < 0.2
    assert model.regularization_.reason.startswith("not needed")


def test_auto_leaves_grids_and_dense_block_models_alone():
    side = sp.diags_array([np.ones(39), np.ones(39)], offsets=[-1, 1])
    grid = sp.kron(side, sp.eye_array(40)) + sp.kron(sp.eye_array(40), side)
    for graph in (Graph.from_matrix(grid), datasets.make_block_model(2000, 5, random_state=0).graph):
        assert SpectralEmbedding(4, random_state=0).fit(graph).regularization_.tau == 0


def test_auto_repairs_sparse_degree_corrected_models():
    data = datasets.make_block_model(3000, 3, mean_degree=4, degree_exponent=2.5, random_state=0)
    plain, model = (
        SpectralClustering(3, regularization=tau, random_state=0).fit(data.graph) for tau in (None, "auto")
    )
    assert model.regularization_.tau in (TAU, MORE_TAU)
    scores = [metrics.nmi(data.labels, m.labels_) for m in (plain, model)]
    assert scores[1] > scores[0] + 0.2


def test_unnormalised_laplacians_gain_nothing(dangling):
    graph, _ = dangling
    model = SpectralClustering(2, laplacian="unnormalized", random_state=0).fit(graph)
    assert "does not change the eigenvectors" in model.regularization_.reason
    exact = Settings("eigen", seed=0)
    plain, lifted = (embed(regularized_laplacian(graph, "unnormalized", t), 3, exact) for t in (0, 0.5))
    shift = 0.5 * graph.degrees.mean()
    np.testing.assert_allclose(
        lifted.embedding.eigenvalues[1:], plain.embedding.eigenvalues[1:] + shift, atol=1e-8
    )


def test_a_number_is_used_as_it_is(dangling):
    model = SpectralClustering(2, regularization=0.5, random_state=0).fit(dangling[0])
    assert (model.regularization_.tau, model.regularization_.reason) == (0.5, "asked for")
    expected = embed(regularized_laplacian(dangling[0], "random_walk", 0.5), 2, Settings(seed=0))
    np.testing.assert_allclose(model.eigenvalues_, expected.embedding.eigenvalues)


@pytest.mark.parametrize("value", ["yes", -0.1, True, float("nan"), [0.1]])
def test_what_regularization_may_be(value):
    with pytest.raises(ValueError, match="expected 'auto', None or a number that is not negative"):
        check_regularization(value)


def test_no_direction_no_judgement():
    operator = laplacian(Graph.from_edges([0, 1], [1, 2]))
    assert decide_regularization(operator, np.ones((3, 1))).tau == 0


def test_layers_take_a_number():
    data = datasets.make_multilayer_gmm(300, 2, 3, random_state=0)
    for aggregation in ("projection", "mean", "power-mean", "grassmann"):
        model = MultilayerSpectralClustering(
            3, regularization=0.1, aggregation=aggregation, random_state=0
        ).fit(data.graph)
        assert model.regularization_.tau == 0.1
        assert metrics.nmi(data.labels, model.labels_) > 0.5
    with pytest.raises(ValueError, match="'joint' does not take regularised layers"):
        MultilayerSpectralClustering(3, regularization=0.1, aggregation="joint").fit(data.graph)
    assert "several layers" in MultilayerSpectralClustering(3).fit(data.graph).regularization_.reason


def test_the_sum_of_regularised_layers_is_the_explicit_one():
    from spectrograd import MultilayerGraph
    from spectrograd.aggregation import Layers, layer_operators, mean

    data = datasets.make_multilayer_gmm(60, 2, 3, random_state=0)
    operators = layer_operators(data.graph, "symmetric", 0.2)
    summed = mean.aggregate(Layers(operators, np.array([0.5, 1.5])))
    expected = sum(
        w * explicit(layer, "symmetric", 0.2)[0]
        for w, layer in zip((0.5, 1.5), data.graph.layers, strict=True)
    )
    np.testing.assert_allclose(summed.to_dense(), expected, atol=1e-12)
    assert isinstance(data.graph, MultilayerGraph)


def test_a_tie_counts_only_among_rough_vectors():
    operator = laplacian(Graph.from_edges(np.arange(200), (np.arange(200) + 1) % 200))
    spike, wave = np.eye(200)[0], np.cos(np.arange(200) * np.pi / 100)
    vectors = np.column_stack([np.ones(200), spike, wave])
    assert decide_regularization(operator, vectors).tau == 0
    assert decide_regularization(operator, vectors, rough=True).tau == TAU
    assert decide_regularization(operator, np.column_stack([vectors, np.eye(200)[9]])).tau == TAU
