import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg as la

from spectrograd import (
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    datasets,
    metrics,
    read_graph,
)
from spectrograd.aggregation import REGISTRY, Layers, layer_operators, make_aggregation
from spectrograd.aggregation.geometric import karcher_mean
from spectrograd.aggregation.joint import JointPasses, JointState
from spectrograd.aggregation.projection import resolve_alpha
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.kernels import SMALL
from spectrograd.labels.assign import assign
from spectrograd.operators.base import ALL
from spectrograd.operators.composite import chebyshev_series, function_of_layers
from spectrograd.operators.laplacian import laplacian, masked_laplacian
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import REGISTRY as SOLVERS
from spectrograd.solvers import make_solver

K = 3


@cache
def data():
    return datasets.make_multilayer_gmm(240, 3, K, separation=3.0, random_state=0)


@cache
def layers(kind="symmetric"):
    operators = layer_operators(data().graph, kind)
    embeddings = tuple(embed(op, K, Settings(seed=0)).embedding.vectors for op in operators)
    return Layers(operators, np.array([1.0, 1.5, 0.5]), embeddings)


def dense_function(operator, function):
    values, vectors = la.eigh(operator.to_dense())
    return (vectors * function(np.maximum(values, 0))) @ vectors.T


def smallest(matrix, k=K):
    return la.eigh(matrix, subset_by_index=(0, k - 1))[1]


def found(operator, k=K):
    result = embed(operator, k, Settings(seed=0))
    assert result.certificate.converged
    return result.embedding.vectors


@pytest.mark.parametrize("name", REGISTRY)
def test_every_aggregation_clusters_easy_data(name):
    model = MultilayerSpectralClustering(K, aggregation=name, random_state=0).fit(data().graph)
    assert metrics.nmi(data().labels, model.labels_) > 0.8
    assert model.embedding_.shape == (240, K)
    assert model.layer_names_ == ("0", "1", "2")


@pytest.mark.parametrize("name", REGISTRY)
def test_bounds_hold_the_spectrum(name):
    operator = make_aggregation(name).aggregate(layers())
    values = la.eigvalsh(operator.to_dense())
    width = operator.upper - operator.lower
    assert operator.lower - 1e-8 * width <= values[0]
    assert values[-1] <= operator.upper + 1e-8 * width


@pytest.mark.parametrize("name", REGISTRY)
def test_single_precision_products_agree(name):
    operator = make_aggregation(name).aggregate(layers())
    U = np.random.default_rng(0).standard_normal((240, 4))
    single = operator @ U.astype(np.float32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, operator @ U, atol=2e-4 * np.abs(operator @ U).max())


def test_grassmann_is_the_svd_of_all_bases():
    given = layers()
    Z = np.hstack([np.sqrt(c) * U for c, U in zip(given.weights, given.embeddings, strict=True)])
    expected = la.svd(Z, full_matrices=False)[0][:, :K]
    operator = make_aggregation("grassmann").aggregate(given)
    assert operator.n_edges == 0
    assert metrics.largest_principal_angle(found(operator), expected) < 1e-5


@pytest.mark.parametrize(("p", "shift"), [(-1, "auto"), (-10, "auto"), (-2, 0.3), (2, "auto"), (0.5, 0.1)])
@pytest.mark.parametrize("kind", ["symmetric", "unnormalized"])
def test_power_mean_is_the_dense_one(p, shift, kind):
    given = layers(kind)
    scale = max(op.upper for op in given.operators) / 2
    delta = shift if shift != "auto" else (np.log1p(abs(p)) + 1 if p < 0 else 0)
    powers = [dense_function(op, lambda x: (x / scale + delta) ** p) for op in given.operators]
    expected = np.sign(p) * sum(c * P for c, P in zip(given.weights, powers, strict=True))
    operator = make_aggregation("power-mean").aggregate(given, p=p, shift=shift)
    np.testing.assert_allclose(operator.to_dense(), expected, atol=1e-7 * np.abs(expected).max())
    assert metrics.largest_principal_angle(found(operator), smallest(expected)) < 1e-4


def test_power_one_is_the_mean():
    given = layers()
    power = make_aggregation("power-mean").aggregate(given, p=1)
    mean = make_aggregation("mean").aggregate(given)
    np.testing.assert_allclose(power.to_dense(), mean.to_dense(), atol=1e-9)
    assert max(map(len, power.series)) == 2  # a polynomial of degree one


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_sum_is_the_laplacian_of_the_summed_graph(tau):
    graph = data().graph
    weights = (1.0, 1.5, 0.5)
    summed = Graph.from_matrix(sum(c * layer.matrix for c, layer in zip(weights, graph.layers, strict=True)))
    merged = merge(graph, K, Settings(seed=0), aggregation="sum", layer_weights=weights, tau=tau)
    expected = masked_laplacian(summed, "symmetric", tau, np.empty(0, int)).to_dense()
    np.testing.assert_allclose(merged.operator.to_dense(), expected, atol=1e-12)


def test_sum_of_unnormalized_layers_is_their_mean():
    summed, mean = (make_aggregation(name).aggregate(layers("unnormalized")) for name in ("sum", "mean"))
    np.testing.assert_allclose(summed.to_dense(), mean.to_dense(), atol=1e-12)


def test_karcher_mean_of_two_is_the_closed_form():
    rng = np.random.default_rng(0)
    A, B = (M @ M.T + np.eye(6) for M in rng.standard_normal((2, 6, 6)))
    root = la.sqrtm(A)
    inverse = la.inv(root)
    expected = root @ la.sqrtm(inverse @ B @ inverse) @ root
    np.testing.assert_allclose(karcher_mean([A, B], np.array([0.5, 0.5])), expected, atol=1e-8)


def test_scalable_geometric_mean_is_close_to_the_exact_one():
    aggregate = make_aggregation("geometric").aggregate
    exact, log = (aggregate(layers(), method=method) for method in ("auto", "log"))
    assert exact.n_edges == log.n_edges == 0
    assert not hasattr(exact, "series")
    assert metrics.projection_distance(found(exact), [found(log)]) < 0.05 * K


def test_geometric_mean_of_equal_layers_is_the_layer():
    one = layers().operators[0]
    same = Layers((one, one), np.ones(2))
    for method in ("exact", "log"):
        operator = make_aggregation("geometric").aggregate(same, method=method)
        assert metrics.largest_principal_angle(found(operator), smallest(one.to_dense())) < 1e-4


def test_small_power_tends_to_the_log_mean():
    aggregate = make_aggregation("power-mean").aggregate
    log = found(make_aggregation("geometric").aggregate(layers(), shift=1.0, method="log"))
    gaps = [
        metrics.largest_principal_angle(found(aggregate(layers(), p=p, shift=1.0)), log) for p in (-1, -0.01)
    ]
    assert gaps[1] < 1e-2 < gaps[0]


def test_series_that_do_not_converge_say_so():
    with pytest.raises(ValueError, match="choose a larger shift"):
        chebyshev_series(lambda x: 1 / (x + 1e-9), 0.0, 2.0)


def test_layers_without_weight_are_not_read():
    given = Layers(layers().operators, np.array([1.0, 0.0, 1.0]))
    assert len(function_of_layers(given.operators, given.weights, np.exp).operators) == 2


@pytest.mark.parametrize("name", ["grassmann", "power-mean"])
def test_stochastic_solvers_need_edges(name):
    model = MultilayerSpectralClustering(K, aggregation=name, solver="sgd-paper", max_iter=2, random_state=0)
    with pytest.raises(ValueError, match="solver 'sgd-paper' needs edges, pattern"):
        model.fit(data().graph)


@cache
def function_and_its_eigenvectors(name):
    """Made once: a geometric mean of 240 nodes takes a hundred dense eigendecompositions."""
    operator = make_aggregation(name).aggregate(layers())
    return operator, smallest(operator.to_dense())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["power-mean", "geometric"])
def test_every_solver_multiplies_by_a_function_of_layers_or_refuses(name, solver):
    """None may look for entries where there are none: that would solve another problem without a word."""
    operator, exact = function_and_its_eigenvectors(name)
    if make_solver(solver).requires == ALL:
        with pytest.raises(
            ValueError,
            match=f"solver '{solver}' needs edges, pattern, but",
        ):
            embed(operator, K, Settings(solver=solver, seed=0))
    else:
        found = embed(operator, K, Settings(solver=solver, seed=0, max_iter=2000))
        if found.certificate.mixed is not None:  # mixtures of eigenvectors, and no claim that they were any
            assert not found.certificate.converged
            return
        assert metrics.largest_principal_angle(found.embedding.vectors, exact) < 0.05


def test_a_preconditioner_needs_edges():
    operator = make_aggregation("power-mean").aggregate(layers())
    with pytest.raises(ValueError, match="solver 'lobpcg' needs edges"):
        embed(operator, K, Settings(solver="lobpcg", params={"preconditioner": "amg"}))


@pytest.mark.parametrize("name", ["power-mean", "geometric", "grassmann"])
def test_a_filter_applies_functions_of_layers_of_any_size(name):
    """Above 4,096 nodes recurrences are compiled, and read the edges of operators that have some."""
    graphs = [
        datasets.make_block_model(SMALL + 100, K, mean_degree=8, random_state=s).graph for s in range(2)
    ]
    operators = layer_operators(MultilayerGraph(tuple(graphs), ("a", "b")), "symmetric")
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((SMALL + 100, K)))[0]
    operator = make_aggregation(name).aggregate(Layers(operators, np.ones(2), (U, U)))
    found = LocalEngine().recurrence(operator, U, 2 * U, (0.5, 0.25, 2.0))
    np.testing.assert_allclose(found, 0.5 * (operator @ U) + 0.25 * U + 4.0 * U, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("median", {}, "expected one of auto, projection, mean, sum, power-mean"),
        ("power-mean", {"q": 1}, "has no parameter 'q'; it has p, shift"),
        ("mean", {"p": 1}, "has no parameter 'p'; it has none"),
        ("power-mean", {"p": 0}, "use aggregation='geometric'"),
        ("power-mean", {"p": float("nan")}, "expected a finite number"),
        ("power-mean", {"shift": 0}, "expected 'auto' or a number > 0"),
        ("geometric", {"shift": 0}, "expected a number > 0"),
        ("geometric", {"method": "fast"}, "expected 'auto', 'exact', 'log' or 'truncated'"),
    ],
)
def test_bad_options_say_what_is_expected(name, params, message):
    with pytest.raises(ValueError, match=message):
        merge(data().graph, K, Settings(seed=0), aggregation=name, aggregation_params=params)


@pytest.mark.parametrize("alpha", [-1, float("inf"), "half", None])
def test_bad_alpha(alpha):
    with pytest.raises(ValueError, match="expected a number >= 0 or 'auto'"):
        resolve_alpha(alpha, layers())


def test_auto_alpha_does_not_depend_on_weights_or_hubs():
    assert resolve_alpha("auto", layers()).tolist() == [0.5] * 3
    plain = layer_operators(data().graph, "unnormalized")[0]
    heavy = laplacian(Graph.from_matrix(1000 * plain.graph.matrix), "unnormalized")
    hub = plain.graph.matrix.tolil()
    hub[0, 1] = hub[1, 0] = 1e9
    hubby = laplacian(Graph.from_matrix(hub.tocsr()), "unnormalized")
    alphas = resolve_alpha("auto", Layers((plain, heavy, hubby), np.ones(3)))
    assert alphas[1] == pytest.approx(1000 * alphas[0])
    assert alphas[2] == pytest.approx(alphas[0], rel=0.1)


def test_auto_alpha_makes_the_merge_blind_to_scale():
    scaled = MultilayerGraph.from_layers([1e4 * layer.matrix for layer in data().graph.layers])
    one, two = (
        MultilayerSpectralEmbedding(2, laplacian="unnormalized", random_state=0).fit(graph).embedding_
        for graph in (data().graph, scaled)
    )
    assert metrics.largest_principal_angle(one, two) < 1e-4


def test_joint_equals_layer_by_layer_then_merge():
    two_stage, joint = (
        merge(data().graph, K, Settings(seed=0, tol=1e-7), aggregation=name)
        for name in ("projection", "joint")
    )
    for first, second in zip(two_stage.layers, joint.layers, strict=True):
        assert metrics.largest_principal_angle(first.embedding.vectors, second.embedding.vectors) < 1e-2
    assert joint.result is not None
    expected = two_stage.embed(K, Settings(seed=0)).embedding.vectors
    assert metrics.largest_principal_angle(expected, joint.result.embedding.vectors) < 1e-2
    assert joint.result.stop_reason == "converged"


def test_joint_is_repeatable():
    first, second = (merge(data().graph, K, Settings(seed=3), aggregation="joint").result for _ in range(2))
    np.testing.assert_array_equal(first.embedding.vectors, second.embedding.vectors)


def by_sgd(graph, n_clusters, **options):
    params = {"steps": "sgd", **options}
    return merge(graph, n_clusters, Settings(seed=0), aggregation="joint", aggregation_params=params)


def test_joint_by_mini_batches_finds_layers_and_clusters():
    """k-NN layers teach such steps nothing alone; drawn to the merged block first, they are learnt."""
    made = datasets.make_multilayer_gmm(2000, 3, 5, random_state=0)
    found = by_sgd(made.graph, 5)
    exact = merge(made.graph, 5, Settings(seed=0))
    expected = exact.embed(5, Settings(seed=0))
    together, apart = (
        metrics.nmi(made.labels, assign(result.embedding.vectors, 5, unit_rows=True, random_state=0).labels)
        for result in (found.result, expected)
    )
    assert together > apart - 0.05
    for one, other in zip(found.layers, exact.layers, strict=True):
        own, true = (
            metrics.nmi(made.labels, assign(x.embedding.vectors, 5, unit_rows=True, random_state=0).labels)
            for x in (one, other)
        )
        assert own > true - 0.05
    last = found.result.last
    read = sum(layer.n_edges for layer in made.graph.layers)
    assert last.iteration == 22
    assert last.matvecs == pytest.approx(5 * last.edges_seen / read)
    assert 22 * 1.5 < last.matvecs / 5 <= 44
    assert not found.result.certificate.converged  # and says so


def test_joint_by_mini_batches_draws_layers_along_at_first(monkeypatch):
    made = datasets.make_multilayer_gmm(2000, 3, 5, random_state=0)
    drawn = by_sgd(made.graph, 5, epochs=10)
    monkeypatch.setattr("spectrograd.aggregation.joint.FIRST_COUPLING", 0.0)
    alone = by_sgd(made.graph, 5, epochs=10)
    first, second = (
        np.mean([
            metrics.nmi(made.labels, assign(x.embedding.vectors, 5, unit_rows=True, random_state=0).labels)
            for x in found.layers
        ])
        for found in (drawn, alone)
    )  # fmt: skip
    assert first > second + 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": "leaps"}, "steps='leaps': expected 'passes' or 'sgd'"),
        ({"steps": "sgd", "degree": 3}, "takes 'degree' only without steps='sgd'"),
        ({"epochs": 3}, "takes 'epochs' only without steps='passes'"),
        ({"steps": "sgd", "epochs": 0}, "epochs=0: expected at least one pass"),
    ],
)
def test_joint_refuses_what_its_way_does_not_take(options, words):
    with pytest.raises(ValueError, match=words):
        merge(data().graph, K, Settings(seed=0), aggregation="joint", aggregation_params=options)


def test_coupling_draws_the_layers_together():
    def spread(coupling):
        options = {"coupling": coupling}
        return merge(
            data().graph, K, Settings(seed=0), aggregation="joint", aggregation_params=options
        ).distances

    assert spread(1.0).sum() < 0.8 * spread(0.0).sum()


def test_joint_reads_the_edges_less_often_than_two_stages():
    larger = datasets.make_multilayer_gmm(800, 3, K, separation=2.6, random_state=0)
    apart = Settings("lanczos", tol=1e-4, seed=0)
    stages = merge(larger.graph, K, apart)
    merged = stages.embed(K, apart)
    matvecs = np.mean([layer.last.matvecs for layer in stages.layers]) + merged.last.matvecs
    passes = matvecs / K  # at best: blocks of K columns
    together = merge(larger.graph, K, Settings(tol=1e-4, seed=0), aggregation="joint").result
    n_edges = sum(layer.n_edges for layer in larger.graph.layers)
    assert together.last.edges_seen / n_edges < 0.8 * passes
    first, second = (
        metrics.nmi(larger.labels, assign(found.embedding.vectors, K, unit_rows=True, random_state=0).labels)
        for found in (merged, together)
    )
    assert abs(first - second) <= 0.01


def test_a_settled_layer_is_read_no_more():
    solver = JointPasses(layers(), np.full(3, 0.5))
    state = JointState(np.zeros((240, 1)), np.random.default_rng(0), settled=np.array([True, False, True]))
    blocks = [np.ones((240, 2))] * 4
    own, total = solver._products(state, blocks, None)
    edges = [operator.graph.n_edges for operator in layers().operators]
    assert [product.shape[1] for product in own] == [0, 2, 0]
    assert total.shape[1] == 0
    assert state.matvecs == pytest.approx(2 * edges[1] / sum(edges))


def test_joint_takes_more_candidates_than_there_are_nodes():
    """Five layers of 60 nodes, each without some of them: 6 blocks of K + 15 columns span everything."""
    rng, k = np.random.default_rng(0), 6
    sizes = np.repeat(np.arange(k), 10)
    graphs = []
    for absent in (0, 1, 5, 12, 25):
        near = np.triu(rng.random((60, 60)) < np.where(sizes[:, None] == sizes, 0.7, 0.05), 1)
        near[-absent or 60 :], near[:, -absent or 60 :] = False, False
        graphs.append(Graph.from_edges(*np.nonzero(near), n_nodes=60))
    model = MultilayerSpectralClustering(k, aggregation="joint", random_state=0)
    model.fit(MultilayerGraph(tuple(graphs), tuple("abcde")))
    assert model.certificate_.converged
    assert metrics.nmi(sizes, model.labels_) > 0.9


def test_joint_embeds_the_aucs_layers():
    """61 people, five relations, nodes missing from four of them."""
    folder = Path(os.environ.get("SPECTROGRAD_AUCS", "../shared/data/aucs"))
    files = sorted(folder.glob("layer_*.npz"))
    if len(files) != 5:
        pytest.skip(f"the AUCS layers are not in {folder}: set SPECTROGRAD_AUCS to their folder")
    model = MultilayerSpectralClustering(8, aggregation="joint", random_state=0).fit(read_graph(*files))
    assert model.converged_
    assert len(np.unique(model.labels_)) == 8
