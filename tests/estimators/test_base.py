"""The four estimators: inputs, fitted names, scikit-learn's rules, and one clear error for each mistake."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import pairwise_distances
from threadpoolctl import threadpool_limits

import reference
from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
)
from spectrograd.graph import GraphWarning
from spectrograd.operators.laplacian import laplacian

SINGLE = [SpectralEmbedding, SpectralClustering]
MULTI = [MultilayerSpectralEmbedding, MultilayerSpectralClustering]
CLUSTERING = [SpectralClustering, MultilayerSpectralClustering]
ALL = SINGLE + MULTI


@pytest.fixture(autouse=True, scope="module")
def _one_blas_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def blocks():
    """Three clear clusters as a graph."""
    return datasets.make_block_model(240, 3, mean_degree=20, mixing=0.1, random_state=0)


@pytest.fixture(scope="module")
def points():
    """Three clear clusters as points."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 50)
    centres = np.array([[0, 0], [12, 0], [0, 12.0]])
    return centres[labels] + rng.standard_normal((150, 2)), labels


@pytest.fixture(scope="module")
def layers():
    """Two layers that show the same three clusters."""
    first = datasets.make_block_model(240, 3, mean_degree=20, mixing=0.1, random_state=0)
    order = np.argsort(first.labels, kind="stable")
    matrix = first.graph.matrix[order][:, order]
    again = datasets.make_block_model(240, 3, mean_degree=20, mixing=0.1, random_state=1)
    order = np.argsort(again.labels, kind="stable")
    other = again.graph.matrix[order][:, order]
    return [matrix, other], np.sort(first.labels)


def make(cls, k=3, **params):
    return cls(k, random_state=0, **params)


def data_for(cls, blocks, layers):
    return layers[0] if cls in MULTI else blocks.graph


# --- inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("affinity", "convert"),
    [
        ("nearest_neighbors", lambda graph: graph),
        ("precomputed", lambda graph: graph.matrix.toarray()),
        ("precomputed", lambda graph: graph.matrix),
        ("precomputed", lambda graph: sp.csr_matrix(graph.matrix)),
        ("precomputed", lambda graph: sp.coo_array(graph.matrix)),
        ("precomputed", lambda graph: graph.matrix.astype(np.float32)),
    ],
)
def test_a_graph_in_any_form_gives_the_same_clusters(blocks, affinity, convert):
    model = make(SpectralClustering, affinity=affinity).fit(convert(blocks.graph))
    assert metrics.nmi(blocks.labels, model.labels_) > 0.95
    expected = make(SpectralClustering).fit(blocks.graph)
    np.testing.assert_array_equal(model.labels_, expected.labels_)


@pytest.mark.parametrize(
    ("affinity", "convert"),
    [
        ("nearest_neighbors", lambda X: X),
        ("nearest_neighbors", lambda X: X.astype(np.float32)),
        ("nearest_neighbors", lambda X: X.tolist()),
        ("rbf", lambda X: X),
        ("precomputed_nearest_neighbors", pairwise_distances),
        ("precomputed", lambda X: np.exp(-(pairwise_distances(X) ** 2)) * (1 - np.eye(len(X)))),
    ],
)
def test_points_through_every_affinity(points, affinity, convert):
    X, labels = points
    found = make(SpectralClustering, affinity=affinity).fit_predict(convert(X))
    assert metrics.nmi(labels, found) > 0.95


def test_few_points_have_few_neighbours():
    model = SpectralEmbedding(1, n_neighbors=10, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]])
    assert model.embedding_.shape == (4, 1)


@pytest.mark.parametrize("cls", MULTI)
@pytest.mark.parametrize("aggregation", ["projection", "mean"])
def test_layers_in_any_form(layers, cls, aggregation):
    matrices, labels = layers
    inputs = [
        matrices,
        tuple(m.toarray() for m in matrices),
        {"a": matrices[0], "b": matrices[1]},
        MultilayerGraph.from_layers(matrices),
        [Graph.from_matrix(m) for m in matrices],
    ]
    models = [make(cls, aggregation=aggregation).fit(X) for X in inputs]
    for model in models[1:]:
        np.testing.assert_allclose(model.embedding_, models[0].embedding_, atol=1e-10)
    assert models[2].layer_names_ == ("a", "b")
    if cls is MultilayerSpectralClustering:
        assert metrics.nmi(labels, models[0].labels_) > 0.95


def test_layers_of_points(points):
    X, labels = points
    views = [X, X + 0.1]
    model = make(MultilayerSpectralClustering, affinity="nearest_neighbors").fit(views)
    assert metrics.nmi(labels, model.labels_) > 0.95


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("solver", ["auto", "eigen", "forward-backward", "sgd-paper"])
def test_every_laplacian_with_some_solvers(blocks, kind, solver):
    # Eq. 19 as printed counts a vertex once per edge of the batch, which is for batches that are small
    params = {"gram_update": "unique"} if solver == "sgd-paper" else None
    model = make(SpectralClustering, laplacian=kind, solver=solver, solver_params=params).fit(blocks.graph)
    assert metrics.nmi(blocks.labels, model.labels_) > 0.95
    assert solver in ("auto", model.solver_)


@pytest.mark.parametrize("assign_labels", ["kmeans", "cluster_qr", "discretize"])
@pytest.mark.parametrize("cls", CLUSTERING)
def test_every_assignment(blocks, layers, cls, assign_labels):
    X, truth = (layers[0], layers[1]) if cls in MULTI else (blocks.graph, blocks.labels)
    labels = make(cls, assign_labels=assign_labels).fit_predict(X)
    assert metrics.nmi(truth, labels) > 0.95
    assert set(labels.tolist()) == {0, 1, 2}


# --- what is fitted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_fitted_names(blocks, layers, cls):
    model = make(cls).fit(data_for(cls, blocks, layers))
    assert model.embedding_.shape == (240, 3)
    assert model.eigenvalues_.shape == (3,)
    assert (np.diff(model.eigenvalues_) >= 0).all()
    assert model.converged_ is True
    assert model.certificate_.converged
    assert model.certificate_.max_residual < 1e-2
    assert "converged" in model.certificate_.sentence
    assert model.history_[-1].iteration == model.n_iter_
    assert isinstance(model.solver_, str)
    assert len(model.names_) == 240
    if cls in CLUSTERING:
        assert model.labels_.shape == (240,)
    if cls in MULTI:
        assert len(model.layer_embeddings_) == 2
        assert model.layer_distances_.shape == (2, 2)
        np.testing.assert_allclose(model.layer_distances_.diagonal(), 0, atol=1e-8)
        np.testing.assert_array_equal(model.layer_weights_, [1, 1])


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("drop_first", [True, False])
def test_embedding_is_the_eigenvectors(blocks, kind, drop_first):
    model = make(SpectralEmbedding, laplacian=kind, drop_first=drop_first).fit(blocks.graph)
    operator = laplacian(blocks.graph, kind)
    values, vectors = reference.smallest(operator, 3 + drop_first)
    np.testing.assert_allclose(model.eigenvalues_, values[int(drop_first) :], atol=1e-8)
    angle = reference.largest_sine(model.embedding_, vectors[:, int(drop_first) :], operator.metric)
    assert angle < 1e-6
    peaks = model.embedding_[np.abs(model.embedding_).argmax(axis=0), np.arange(3)]
    assert (peaks > 0).all()  # the sign rule
    np.testing.assert_array_equal(model.fit_transform(blocks.graph), model.embedding_)


def test_clustering_keeps_the_trivial_vector(blocks):
    model = make(SpectralClustering).fit(blocks.graph)
    assert model.eigenvalues_[0] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("cls", MULTI)
def test_drop_first_and_alpha_of_layers(layers, cls):
    strong = make(cls, alpha=0.9, aggregation="projection").fit(layers[0])
    weak = make(cls, alpha=0.0).fit(layers[0])  # a number makes "auto" the projection as well
    mean = make(cls, aggregation="mean").fit(layers[0])
    np.testing.assert_allclose(
        weak.eigenvalues_, mean.eigenvalues_, atol=1e-8
    )  # Eq. 22 without its second part
    assert (strong.eigenvalues_ < weak.eigenvalues_ - 0.1).all()


def test_layer_weights_count(layers):
    noise = reference.random_graph(240, np.random.default_rng(0))
    views = [layers[0][0], noise]
    good = make(MultilayerSpectralClustering, aggregation="mean", layer_weights=[1.0, 0.0]).fit(views)
    assert metrics.nmi(layers[1], good.labels_) > 0.95
    np.testing.assert_allclose(good.layer_weights_, [2, 0])
    bad = make(MultilayerSpectralClustering, aggregation="mean", layer_weights=[0.0, 1.0]).fit(views)
    assert metrics.nmi(layers[1], bad.labels_) < 0.5


def test_names_come_back_with_the_rows():
    graph = Graph.from_edges(["ann", "bob", "cid", "dan"], ["bob", "cid", "dan", "ann"])
    model = SpectralEmbedding(1, random_state=0).fit(graph)
    assert model.names_.tolist() == ["ann", "bob", "cid", "dan"]
    layered = MultilayerSpectralEmbedding(1, random_state=0).fit([graph, graph])
    assert layered.names_.tolist() == ["ann", "bob", "cid", "dan"]


def test_a_node_may_miss_from_some_layers_but_not_from_all(layers):
    first, second = (m.tolil() for m in layers[0])
    first[239, :] = 0
    first[:, 239] = 0
    for solver in ("auto", "sgd", "sgd-paper"):
        model = make(MultilayerSpectralClustering, solver=solver).fit([first, second])
        assert np.isfinite(model.embedding_).all()
        if solver != "sgd-paper":  # which only moves the ends of edges: an absent node stays where it began
            assert np.abs(model.layer_embeddings_[0][239]).max() < 1e-8
            assert np.abs(model.layer_embeddings_[1][239]).max() > 1e-3
    second[239, :] = 0
    second[:, 239] = 0
    with pytest.warns(GraphWarning, match="1 of 240 nodes .*: 239;"):
        assert make(MultilayerSpectralClustering).fit([first, second]).labels_[239] == -1


# --- scikit-learn's rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_parameters_are_kept_as_given(blocks, layers, cls):
    solver_params = {"max_iter": 300}
    model = cls(3, solver="forward-backward", solver_params=solver_params, random_state=np.int64(3), tol=1e-3)
    before = model.get_params()
    model.fit(data_for(cls, blocks, layers))
    after = model.get_params()
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    assert solver_params == {"max_iter": 300}
    assert clone(model).get_params() == before
    assert not hasattr(clone(model), "embedding_")
    assert model.set_params(tol=1e-2).tol == 1e-2
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(nonsense=1)


@pytest.mark.parametrize("cls", ALL)
def test_defaults_follow_the_public_contract(cls):
    params = cls().get_params()
    expected = {
        "n_neighbors": 10,
        "metric": "euclidean",
        "recall": 0.98,
        "laplacian": "random_walk",
        "solver": "auto",
        "solver_params": None,
        "regularization": "auto",
        "disconnected": "components",
        "tol": "auto",
        "max_iter": None,
        "time_budget": None,
        "batch_size": 4000,
        "random_state": None,
        "n_jobs": None,
        "engine": "auto",
        "memory_limit": None,
        "checkpoint": None,
        "checkpoint_every": 300.0,
        "warm_start": False,
        "verbose": 0,
    }
    assert expected.items() <= params.items()
    assert params["n_clusters" if cls in CLUSTERING else "n_components"] == 8
    if cls in CLUSTERING:
        assert (params["assign_labels"], params["n_init"]) == ("kmeans", 10)
    else:
        assert params["drop_first"] is True
    if cls in MULTI:
        assert (params["aggregation"], params["alpha"], params["layer_weights"]) == (
            "auto",
            "auto",
            None,
        )
    else:
        assert params["affinity"] == "auto"


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("solver", ["auto", "sgd-paper"])
def test_same_seed_same_result(blocks, layers, cls, solver):
    X = data_for(cls, blocks, layers)
    options = {"solver": solver, "max_iter": 20 if solver == "sgd-paper" else None}
    for seed in (lambda: 5, lambda: np.random.RandomState(5)):
        runs = [cls(3, random_state=seed(), **options).fit(X) for _ in range(2)]
        np.testing.assert_array_equal(runs[0].embedding_, runs[1].embedding_)
        if cls in CLUSTERING:
            np.testing.assert_array_equal(runs[0].labels_, runs[1].labels_)
    if solver == "sgd-paper":
        other = cls(3, random_state=6, **options).fit(X)
        assert not np.array_equal(other.embedding_, runs[0].embedding_)


@pytest.mark.parametrize("cls", ALL)
def test_pickles(blocks, layers, cls):
    model = make(cls).fit(data_for(cls, blocks, layers))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    assert again.certificate_.converged == model.certificate_.converged


@pytest.mark.parametrize("cls", ALL)
def test_arrays_of_the_user_are_never_changed(blocks, layers, cls):
    if cls in MULTI:
        X = [m.toarray() for m in layers[0]]
        copies = [x.copy() for x in X]
        make(cls).fit(X)
        for x, copy in zip(X, copies, strict=True):
            np.testing.assert_array_equal(x, copy)
        return
    dense = blocks.graph.matrix.toarray()
    copy = dense.copy()
    make(cls, affinity="precomputed").fit(dense)
    np.testing.assert_array_equal(dense, copy)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    copy = X.copy()
    for affinity in ("nearest_neighbors", "rbf"):
        make(cls, affinity=affinity).fit(X)
        np.testing.assert_array_equal(X, copy)


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_goes_on_from_the_last_result(blocks, layers, cls):
    X = data_for(cls, blocks, layers)
    options = {"solver": "forward-backward", "max_iter": 10, "tol": 1e-12}
    cold = make(cls, **options).fit(X)
    residual = cold.history_[-1].residual
    cold.fit(X)
    assert cold.history_[-1].residual == residual  # fitting again is no warm start
    warm = make(cls, warm_start=True, **options).fit(X)
    warm.fit(X)
    assert warm.history_[0].residual < 10 * residual
    assert warm.history_[0].objective < cold.history_[0].objective
    assert warm.history_[-1].residual < residual
    if cls in SINGLE:  # another size cannot go on
        warm.fit(datasets.make_block_model(100, 3, random_state=0).graph)
        assert len(warm.embedding_) == 100


def test_time_budget_and_max_iter_reach_the_loop(blocks):
    short = make(SpectralEmbedding, solver="forward-backward", max_iter=3).fit(blocks.graph)
    assert short.n_iter_ == 3
    assert not short.converged_
    assert "NOT converged" in short.certificate_.sentence
    hurried = make(SpectralEmbedding, solver="stochastic-fb", max_iter=10**8, time_budget=0.05).fit(
        blocks.graph
    )
    assert np.isfinite(hurried.embedding_).all()


def test_batch_size_reaches_the_solver(blocks):
    model = make(SpectralEmbedding, solver="sgd-paper", max_iter=4, batch_size=7).fit(blocks.graph)
    assert model.history_[-1].edges_seen == 28
    model.set_params(solver_params={"batch_size": 9}).fit(blocks.graph)
    assert model.history_[-1].edges_seen == 36


def test_verbose_logs_and_quiet_does_not(blocks, caplog):
    with caplog.at_level("INFO", logger="spectrograd"):
        make(SpectralEmbedding).fit(blocks.graph)
        assert not caplog.records
        make(SpectralEmbedding, verbose=1).fit(blocks.graph)
    assert any("residual" in record.message for record in caplog.records)


def test_verbose_leaves_the_logging_of_the_process_alone():
    code = (
        "import logging; from spectrograd import SpectralEmbedding, datasets\n"
        "graph = datasets.make_block_model(300, 3, random_state=0).graph\n"
        "SpectralEmbedding(2, verbose=1, random_state=0).fit(graph)\n"
        "assert not logging.getLogger().handlers and not logging.getLogger('spectrograd').handlers"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "residual" in done.stderr
    assert not done.stdout


# --- mistakes ---------------------------------------------------------------------------------------


def k_of(cls):
    return "n_clusters" if cls in CLUSTERING else "n_components"


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("k", [0, -1, 2.5, "three", True, None])
def test_k_is_a_whole_number(blocks, layers, cls, k):
    with pytest.raises(ValueError, match=f"{k_of(cls)}={k!r}: expected a whole number of at least 1"):
        cls(k).fit(data_for(cls, blocks, layers))


@pytest.mark.parametrize("cls", ALL)
def test_k_is_below_the_number_of_nodes(blocks, layers, cls):
    with pytest.raises(ValueError, match=f"{k_of(cls)}=240 is too many for this graph: it must be below"):
        cls(240).fit(data_for(cls, blocks, layers))
    assert make(cls, np.int32(3)).fit(data_for(cls, blocks, layers)).embedding_.shape == (240, 3)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"laplacian": "signless"}, "laplacian='signless': expected one of random_walk, symmetric"),
        ({"solver": "magic"}, "solver='magic': expected one of auto, "),
        ({"solver": "eigen", "solver_params": {"stepsize": 1}}, "solver 'eigen' has no parameter 'stepsize'"),
        ({"tol": -1.0}, r"tol=-1.0: expected a .*number.* or 'auto'"),
        ({"tol": "tiny"}, r"tol='tiny': expected a .*number.* or 'auto'"),
        ({"engine": "quantum"}, "engine='quantum' is not available in this release"),
        ({"memory_limit": "1MB"}, "memory_limit=1MB is too little for . vectors: at least 22.MB are needed"),
        ({"checkpoint": "no/such/folder"}, "no such folder; create it first"),
        ({"regularization": -0.1}, "regularization=-0.1: expected 'auto', None or a number"),
        ({"disconnected": "drop"}, "disconnected='drop': expected one of components, regularize"),
        ({"max_iter": 0, "solver": "forward-backward"}, "max_iter=0"),
    ],
)
def test_bad_parameters_are_named(blocks, layers, cls, params, words):
    with pytest.raises(ValueError, match=words):
        make(cls, **params).fit(data_for(cls, blocks, layers))


@pytest.mark.parametrize("cls", CLUSTERING)
def test_unknown_assignment(blocks, layers, cls):
    with pytest.raises(ValueError, match=r"magic.*kmeans"):
        make(cls, assign_labels="magic").fit(data_for(cls, blocks, layers))


@pytest.mark.parametrize("cls", MULTI)
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"aggregation": "median"}, "aggregation='median': expected one of auto, projection, mean"),
        ({"alpha": -0.5}, "alpha=-0.5: expected a number >= 0 or 'auto'"),
        ({"alpha": np.nan}, "alpha=nan"),
        ({"layer_weights": [1.0]}, r"layer_weights has shape \(1,\) for 2 layers"),
        ({"layer_weights": [1.0, -1.0]}, "layer_weights must be finite, not negative"),
        ({"layer_weights": [0.0, 0.0]}, "not all zero"),
        ({"layer_weights": [1.0, np.nan]}, "layer_weights must be finite"),
    ],
)
def test_bad_parameters_of_layers_are_named(layers, cls, params, words):
    with pytest.raises(ValueError, match=words):
        make(cls, **params).fit(layers[0])


@pytest.mark.parametrize("cls", MULTI)
def test_bad_layers_are_refused(layers, cls):
    with pytest.raises(ValueError, match="layer '1' has 100 nodes, layer '0' has 240"):
        make(cls).fit([layers[0][0], layers[0][1][:100, :100]])
    with pytest.raises(ValueError, match="at least one layer"):
        make(cls).fit([])
    for single in (Graph.from_matrix(layers[0][0]), layers[0][0], layers[0][0].toarray()):
        with pytest.raises(ValueError, match="expected several layers"):
            make(cls).fit(single)


@pytest.mark.parametrize("cls", SINGLE)
def test_bad_inputs_are_refused(layers, cls):
    with pytest.raises(ValueError, match="use the Multilayer estimators"):
        make(cls).fit(MultilayerGraph.from_layers(layers[0]))
    with pytest.raises(ValueError, match="affinity='magic': expected one of nearest_neighbors, rbf"):
        make(cls, affinity="magic").fit(np.eye(5))
    bad = np.random.default_rng(0).standard_normal((30, 2))
    bad[3, 1] = np.nan
    for affinity in ("nearest_neighbors", "rbf"):
        with pytest.raises(ValueError, match="NaN"):
            make(cls, affinity=affinity).fit(bad)
    weights = np.ones((30, 30)) - np.eye(30)
    weights[3, 4] = weights[4, 3] = np.nan
    with pytest.raises(ValueError, match=r"edge \(3, 4\) is nan: not finite"):
        make(cls, affinity="precomputed").fit(weights)
    with pytest.raises(ValueError, match="must be square"):
        make(cls, affinity="precomputed").fit(np.ones((30, 20)))


@pytest.mark.parametrize("cls", SINGLE)
def test_isolated_nodes_are_named(blocks, cls):
    W = blocks.graph.matrix.toarray()
    W[7] = 0
    W[:, 7] = 0
    with pytest.raises(ValueError, match=r"1 nodes are outside the largest \(7\)"):
        make(cls, affinity="precomputed", disconnected="error").fit(W)
    with pytest.warns(GraphWarning, match=r"1 of 240 nodes .*: 7;"):
        make(cls, affinity="precomputed").fit(W)


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_budget": float("nan")},
        {"time_budget": float("inf")},
        {"time_budget": -1.0},
        {"n_jobs": 0},
        {"n_jobs": -(10**6)},
        {"n_init": 9223372036854775807},
        {"n_init": 0},
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_any_work(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}=.*: expected"):
        SpectralClustering(2, affinity="precomputed", **wrong).fit(np.ones((6, 6)) - np.eye(6))


# --- documentation ----------------------------------------------------------------------------------

BLOCKS = ("Parameters", "Graph parameters", "Solver parameters", "Resource parameters")
ESTIMATORS = (
    SpectralEmbedding,
    SpectralClustering,
    MultilayerSpectralEmbedding,
    MultilayerSpectralClustering,
)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_is_described_in_one_of_four_blocks(estimator):
    lines = inspect.getdoc(estimator).split("\n")
    starts = [lines.index(title) for title in BLOCKS]
    assert starts == sorted(starts)
    end = lines.index("Attributes")
    heads = [line for line in lines[starts[0] : end] if line and not line.startswith((" ", "-"))]
    named = [name.strip() for head in heads for name in head.split(" : ")[0].split(",")]
    assert sorted(set(named) - set(BLOCKS)) == sorted(estimator().get_params())
    assert len(named) == len(set(named))


def test_estimators_describe_a_parameter_in_the_same_words():
    texts = [inspect.getdoc(estimator) for estimator in ESTIMATORS]
    for title in BLOCKS[2:]:
        parts = {text.split(f"\n{title}\n")[1].split("\n\n")[0] for text in texts}
        assert len(parts) == 1


# --- shape of the classes ---------------------------------------------------------------------------


def test_only_the_mixins_of_scikit_learn():
    longest = {SpectralEmbedding: 11, SpectralClustering: 12}
    assert {cls: len(cls.__mro__) for cls in longest} == longest
    for cls in ESTIMATORS:
        mixins = [base for base in cls.__mro__ if base.__name__.endswith("Mixin")]
        assert all(base.__module__.startswith("sklearn.") for base in mixins)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_docstrings_have_no_place_left_to_fill(estimator):
    assert "{" not in inspect.getdoc(estimator).replace('{"', "").replace("{None", "")
