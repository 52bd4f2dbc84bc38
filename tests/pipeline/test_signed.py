"""Signed Laplacians: laws, kernels against their twins, solvers, stores, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import (
    Graph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    load,
    metrics,
    read_graph,
    write_graph,
)
from spectrograd.cli import main
from spectrograd.engines import make_engine
from spectrograd.graph import GraphError, MultilayerGraph
from spectrograd.kernels import sgd as sgd_kernels
from spectrograd.linalg import multigrid
from spectrograd.operators.laplacian import (
    SIGNED_FORMS,
    form_of,
    laplacian,
    masked_laplacian,
    regularized_laplacian,
)
from spectrograd.pipeline import RunContext, Settings, cluster, embed
from spectrograd.pipeline.compare import compare
from spectrograd.solvers.minibatch import BatchSource, rows_of
from spectrograd.solvers.sgd import group_batches
from spectrograd.store import open_store

KINDS = sorted(SIGNED_FORMS)


def signed_graph(n_nodes, seed=0, weighted=True):
    """A random signed graph and its dense weights."""
    rng = np.random.default_rng(seed)
    W = np.triu(rng.standard_normal((n_nodes, n_nodes)) * (rng.random((n_nodes, n_nodes)) < 0.2), 1)
    W[np.arange(n_nodes - 1), np.arange(1, n_nodes)] = 0.5  # connected
    W = W + W.T if weighted else np.sign(W + W.T)
    return Graph.from_matrix(sp.csr_array(W), signed=True), W


def dense_laplacian(W, kind, tau=0.0):
    """``diag(|W| 1) - W`` and its metric, in numpy."""
    degrees = np.abs(W).sum(axis=1)
    degrees = degrees + tau * degrees.mean()
    L = np.diag(degrees) - W
    if form_of(kind) == "symmetric":
        return L / np.sqrt(np.outer(degrees, degrees)), np.ones(len(W))
    return L, degrees if form_of(kind) == "random_walk" else np.ones(len(W))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_the_operator_is_that_of_kunegis(kind, tau):
    graph, W = signed_graph(40)
    A, B = dense_laplacian(W, kind, tau)
    operator = regularized_laplacian(graph, kind, tau)
    assert np.allclose(operator.to_dense(), A)
    assert np.allclose(1.0 if operator.metric is None else operator.metric, B)
    values = np.linalg.eigvalsh(A / np.sqrt(np.outer(B, B)))
    assert values[0] >= -1e-12
    assert values[-1] <= operator.upper + 1e-12
    assert operator.null_vector is None
    assert operator.low_rank is None


def test_the_quadratic_form_is_a_sum_over_edges():
    graph, W = signed_graph(30)
    u = np.random.default_rng(1).standard_normal(30)
    i, j = np.nonzero(np.triu(W))
    edges = np.sum(np.abs(W[i, j]) * (u[i] - np.sign(W[i, j]) * u[j]) ** 2)
    assert np.isclose(u @ (laplacian(graph, "signed_unnormalized") @ u), edges)
    assert np.allclose(laplacian(graph, "signed").row_term, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_balanced_components_are_the_null_space(kind):
    camps = np.array([1, -1, 1, -1, 1, 1, -1, 1])
    W = np.outer(camps, camps) * np.array([[1.0, 0], [0, 1]]).repeat(4, 0).repeat(4, 1)
    np.fill_diagonal(W, 0)
    broken = W.copy()
    broken[4, 5] = broken[5, 4] = -1  # one wrong sign unbalances the second component
    for weights, n_null in ((W, 2), (broken, 1)):
        A, B = dense_laplacian(weights, kind)
        values = np.linalg.eigvalsh(A / np.sqrt(np.outer(B, B)))
        graph = Graph.from_matrix(weights, signed=True)
        result = embed(graph, Settings(n_components=2, laplacian=kind, seed=0))
        assert int((values < 1e-9).sum()) == n_null == int((result.eigenvalues < 1e-9).sum())
        assert np.allclose(result.eigenvalues, values[:2], atol=1e-9)
    if kind == "signed":
        first = result.vectors[:4] @ np.linalg.lstsq(result.vectors[:4], camps[:4], rcond=None)[0]
        assert np.allclose(first, camps[:4])


def test_without_negative_weights_it_is_the_usual_laplacian():
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    for kind in KINDS:
        ours, usual = laplacian(graph, kind), laplacian(graph, form_of(kind))
        assert np.array_equal(ours.to_dense(), usual.to_dense())


def test_excluded_nodes_lie_at_the_upper_end():
    graph = Graph.from_edges([0, 1, 3], [1, 2, 4], [1.0, -1.0, 2.0], signed=True)
    A = masked_laplacian(graph, "signed_symmetric", 0.0, np.array([3, 4]))
    assert np.linalg.eigvalsh(A.to_dense()).round(3).tolist() == [0.0, 1.0, 2.0, 2.0, 2.0]


# --- Kernels


def test_mini_batches_sum_to_the_operator():
    """All edges together are A, in each kernel that walks over edges."""
    graph, W = signed_graph(60)
    operator = laplacian(graph, "signed_unnormalized")
    source = BatchSource.of(operator)
    indptr, indices = graph.pattern
    upper = np.flatnonzero(np.repeat(np.arange(60), np.diff(indptr)) < indices)
    batch = source.at(upper)
    U = np.random.default_rng(2).standard_normal((60, 3))
    G, H = source.gradient(batch, U, np.zeros((0, 3)), projected=True)
    expected = dense_laplacian(W, "signed_unnormalized")[0] @ U
    assert np.allclose(rows_of(G, len(batch.vertices)), expected[batch.vertices])
    assert np.allclose(H, U.T @ expected)
    heads, tails = np.nonzero(np.triu(W))
    rows = reference.batch_laplacian(heads, tails, W[heads, tails], 60) @ U
    assert np.allclose(rows, expected)


def test_a_step_of_sgd_follows_its_twin():
    rng = np.random.default_rng(3)
    graph, W = signed_graph(50, weighted=False)
    heads, tails = (ends.astype(np.int32) for ends in np.nonzero(np.triu(W)))
    values = W[heads, tails].astype(np.float32)
    order = rng.permutation(len(heads))
    edges = (heads[order], tails[order], values[order])
    nodes = np.zeros((50, 4), np.float32)
    nodes[:, sgd_kernels.METRIC] = graph.degrees
    nodes[:, sgd_kernels.PUSH] = 1.5
    nodes[:, sgd_kernels.SHARE] = 1 / np.maximum(np.diff(graph.pattern[0]), 1)
    low_rank = (np.zeros((50, 0), np.float32), np.zeros(0))
    U = np.zeros((50, 8), np.float32)
    U[:, :3] = rng.standard_normal((50, 3))
    M = (U.T @ (graph.degrees[:, None] * U))[:3, :3].astype(np.float64)
    Y = np.zeros((0, 3))
    steps = np.array([0.3, 0.2])
    size = -(-len(heads) // 2)
    rows = [nodes[:, c].astype(np.float64) for c in range(4)]
    expected, _, _ = reference.descend(
        *edges, rows, low_rank, size, steps, graph.degrees.sum(), U[:, :3], M, Y
    )
    groups = group_batches.serial(*edges, size)
    done = sgd_kernels.descend.serial(groups, nodes, low_rank, steps, float(graph.degrees.sum()), U, M, Y)
    assert done == 2
    assert np.allclose(U[:, :3], expected, rtol=1e-4, atol=1e-5)


def test_coarse_graphs_are_galerkin_products():
    graph, W = signed_graph(80)
    operator = laplacian(graph, "signed")
    level, coarse = multigrid.coarsen(operator)
    P = np.eye(coarse.n_nodes)[level.part]
    A, B = dense_laplacian(W, "signed")
    assert np.allclose(coarse.to_dense(), P.T @ A @ P)
    assert np.allclose(coarse.metric, P.T @ B)


# --- Solvers, engines and stores


@pytest.fixture(scope="module")
def model_data():
    return datasets.make_signed_block_model(1500, 2, noise=0.15, random_state=0)


@pytest.mark.parametrize("solver", ["auto", "chebyshev", "lobpcg", "multilevel", "shift-invert", "power"])
def test_solvers_agree_with_the_dense_one(model_data, solver):
    dense = np.linalg.eigvalsh(laplacian(model_data.graph, "signed_symmetric").to_dense())[0]
    result = cluster(model_data.graph, Settings(n_components=2, laplacian="signed", solver=solver, seed=0))
    assert result.vectors.shape == (1500, 1)
    assert np.isclose(result.eigenvalues[0], dense, atol=2e-2)
    assert metrics.nmi(model_data.labels, result.labels) > 0.95
    assert result.converged
    assert result.eigenvalues[0] >= dense - 1e-6


@pytest.mark.parametrize(
    "solver", ["sgd", "sgd-paper", "gradient-descent", "forward-backward", "stochastic-fb"]
)
def test_the_papers_methods_take_signs(model_data, solver):
    settings = Settings(n_components=2, laplacian="signed", solver=solver, seed=0)
    assert metrics.nmi(model_data.labels, cluster(model_data.graph, settings).labels) > 0.9


def test_sgd_needs_more_epochs_near_the_limit_of_detection():
    data = datasets.make_signed_block_model(2000, 2, mean_degree=20, noise=0.3, random_state=0)
    found = {}
    for name, params in {"auto": {}, "few": {}, "more": {"epochs": 20}, "polished": {"polish": True}}.items():
        solver = "auto" if name == "auto" else "sgd"
        settings = Settings(n_components=2, laplacian="signed", solver=solver, params=params, seed=0)
        result = cluster(data.graph, settings)
        assert result.converged == (name in ("auto", "polished"))
        found[name] = metrics.nmi(data.labels, result.labels)
    assert found["more"] > found["auto"] - 0.02
    assert found["polished"] == pytest.approx(found["auto"], abs=0.02)


@pytest.mark.parametrize("solver", ["auto", "sgd"])
def test_tensors_take_signs(model_data, solver):
    pytest.importorskip("torch")
    engine = make_engine("torch")
    settings = Settings(n_components=2, laplacian="signed", solver=solver, seed=0)
    labels = cluster(model_data.graph, settings, RunContext(engine)).labels
    assert metrics.nmi(model_data.labels, labels) > 0.9


def test_the_signs_beat_the_positive_part(model_data):
    model = SpectralClustering(2, laplacian="signed", random_state=0).fit(model_data.graph)
    positive = model_data.graph.matrix.maximum(0)
    alone = SpectralClustering(2, affinity="precomputed", random_state=0).fit(positive)
    assert (
        metrics.nmi(model_data.labels, model.labels_) > metrics.nmi(model_data.labels, alone.labels_) + 0.05
    )
    assert model.cluster_verdict_.verdict == "not judged"


def test_localised_vectors_are_regularised_by_degrees_alone():
    graph, W = signed_graph(120)
    result = embed(graph, Settings(n_components=3, laplacian="signed", regularization=0.5, seed=0))
    A, B = dense_laplacian(W, "signed", 0.5)
    values = np.linalg.eigvalsh(A / np.sqrt(np.outer(B, B)))[:3]
    assert np.allclose(result.eigenvalues, values, atol=1e-3)


def test_little_enmity_leaves_the_constant_among_the_vectors():
    rng = np.random.default_rng(0)
    W = datasets.make_block_model(600, 3, random_state=0).graph.matrix.tocoo()
    upper = W.row < W.col
    weight = np.where(rng.random(upper.sum()) < 0.03, -1.0, 1.0)
    graph = Graph.from_edges(W.row[upper], W.col[upper], weight, n_nodes=600, signed=True)
    assert cluster(graph, Settings(n_components=3, laplacian="signed", seed=0)).vectors.shape == (600, 3)


def test_embeddings_keep_all_columns_and_new_nodes_follow(model_data, tmp_path):
    graph = model_data.graph
    model = SpectralEmbedding(2, laplacian="signed", random_state=0, tol=1e-8).fit(graph.matrix)
    assert model.embedding_.shape == (1500, 2)
    rows = graph.matrix[:5]
    assert np.allclose(model.transform(rows), model.embedding_[:5], atol=1e-5)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(rows), model.transform(rows))


def test_partial_fit_takes_signed_edges(model_data):
    model = SpectralClustering(2, laplacian="signed", random_state=0).fit(model_data.graph)
    side = model_data.labels
    more = Graph.from_edges(
        [0, 1], [2, 3], [1.0 if side[a] == side[a + 2] else -1.0 for a in (0, 1)], n_nodes=1500, signed=True
    )
    model.partial_fit(more)
    assert metrics.nmi(side, model.labels_) > 0.95
    assert model.converged_


def test_a_store_keeps_signs(model_data, tmp_path, capsys):
    path = tmp_path / "votes.csv"
    edges = model_data.graph.matrix.tocoo()
    upper = edges.row < edges.col
    columns = np.column_stack([edges.row[upper], edges.col[upper], edges.data[upper]])
    np.savetxt(path, columns, "%d", delimiter=",", header="src,dst,weight", comments="")
    store = str(tmp_path / "votes.store")
    assert main(["convert", str(path), "-o", store]) == 2
    assert "--laplacian signed takes negative ones" in capsys.readouterr().err
    assert main(["convert", str(path), "-o", store, "--signed", "--edges"]) == 0
    stored = open_store(store)
    assert stored.is_signed
    assert np.array_equal(stored.degrees, model_data.graph.degrees)
    for solver in ("auto", "sgd"):
        result = cluster(stored, Settings(n_components=2, laplacian="signed", solver=solver, seed=0))
        assert metrics.nmi(model_data.labels, result.labels) > 0.9
    assert result.operator.is_streamed
    loaded = cluster(read_graph(store), Settings(n_components=2, laplacian="signed", seed=0))
    assert metrics.nmi(model_data.labels, loaded.labels) > 0.95
    with pytest.raises(GraphError, match=r"is -1\.0: negative, which laplacian='random_walk' cannot take"):
        cluster(stored, Settings(n_components=2, seed=0))


def test_a_signed_graph_in_memory_is_written_as_a_store(tmp_path):
    graph, W = signed_graph(30)
    write_graph(tmp_path / "g.store", graph)
    layers = MultilayerGraph.from_layers([graph, graph])
    write_graph(tmp_path / "layers.store", layers)
    for stored in (open_store(tmp_path / "g.store"), *open_store(tmp_path / "layers.store").layers):
        assert stored.is_signed
        assert np.allclose(stored.in_memory().matrix.toarray(), W, rtol=1e-6)


def test_the_command_end_to_end(tmp_path, capsys):
    path, out = tmp_path / "votes.csv", tmp_path / "labels.csv"
    path.write_text("src,dst,weight\na,b,1\nb,c,2\nc,a,1\nd,e,1\ne,f,1\nf,d,1\na,d,-1\nb,e,-2\nc,f,-1\n")
    command = ["cluster", str(path), "-k", "2", "-o", str(out)]
    assert main([*command, "--laplacian", "signed"]) == 0
    labels = dict(line.split(",") for line in out.read_text().splitlines()[1:])
    assert labels["a"] == labels["b"] == labels["c"] != labels["d"] == labels["e"] == labels["f"]
    capsys.readouterr()
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "line 8" in error
    assert "--laplacian signed" in error


def test_bad_input_is_refused_in_words():
    graph, W = signed_graph(20)
    with pytest.raises(GraphError, match="laplacian='signed' takes negative ones"):
        Graph.from_matrix(W)
    with pytest.raises(GraphError, match=r"not finite; weights must be finite"):
        Graph.from_edges([0, 1], [1, 2], [1.0, np.nan], signed=True)
    with pytest.raises(GraphError, match="laplacian='random_walk' cannot take; laplacian='signed' does"):
        SpectralEmbedding(2).fit(graph)
    with pytest.raises(ValueError, match="does not find the number of clusters"):
        SpectralClustering("auto", laplacian="signed").fit(graph)
    with pytest.raises(ValueError, match="ties components by positive weights"):
        SpectralClustering(2, laplacian="signed", disconnected="regularize").fit(graph)
    two = MultilayerGraph((graph, graph), ("a", "b"))
    with pytest.raises(ValueError, match="does not find the number of clusters"):
        embed(two, Settings(n_components="auto", laplacian="signed"))
    with pytest.raises(GraphError, match=r"negative, which .* cannot take; laplacian='signed' does"):
        embed(two, Settings(n_components=2))


def test_an_all_negative_graph_is_clustered():
    """Enemies everywhere: the two sides of a bipartite graph are the camps."""
    W = np.zeros((8, 8))
    W[:4, 4:] = -1
    labels = SpectralClustering(2, laplacian="signed", affinity="precomputed", random_state=0).fit_predict(
        W + W.T
    )
    assert len(set(labels[:4])) == len(set(labels[4:])) == 1
    assert labels[0] != labels[4]


# --- Several layers, and several solvers


@pytest.fixture(scope="module")
def votes():
    """Two sessions of the same three parties, each too noisy by itself, and the parties."""
    one, other = (
        datasets.make_signed_block_model(600, 3, mean_degree=24, noise=0.22, random_state=seed)
        for seed in (0, 1)
    )
    # the second graph's nodes in the order of the first one's groups
    order = np.empty(600, int)
    order[np.argsort(one.labels, kind="stable")] = np.argsort(other.labels, kind="stable")
    second = Graph.from_matrix(other.graph.matrix[order][:, order], signed=True)
    return one.graph, second, one.labels


@pytest.mark.parametrize("aggregation", ["auto", "projection", "mean", "grassmann", "coregularized"])
def test_layers_of_signs_are_better_than_each(votes, aggregation):
    *layers, labels = votes
    settings = Settings(n_components=3, n_clusters=3, laplacian="signed", aggregation=aggregation, seed=0)
    both = cluster(MultilayerGraph.from_layers(layers), settings)
    alone = [cluster(layer, settings) for layer in layers]
    assert both.vectors.shape == (600, 2)
    assert both.converged
    assert metrics.nmi(labels, both.labels) > max(metrics.nmi(labels, one.labels) for one in alone)


def test_the_mean_of_signed_layers_is_the_sum_of_their_laplacians(votes):
    *layers, _ = votes
    graph = MultilayerGraph.from_layers(layers)
    L = sum(laplacian(layer, "signed_symmetric").to_dense() for layer in layers)
    settings = Settings(n_components=3, laplacian="signed", aggregation="mean", tol=1e-8, seed=0)
    assert np.allclose(embed(graph, settings).eigenvalues, np.linalg.eigvalsh(L)[:3], atol=1e-6)


def test_the_estimator_of_layers_takes_signs(votes, tmp_path):
    one, other, labels = votes
    model = MultilayerSpectralClustering(3, laplacian="signed", random_state=0)
    model.fit({"first": one.matrix, "second": other.matrix})
    assert metrics.nmi(labels, model.labels_) > 0.7
    model.save(tmp_path / "votes")
    assert np.array_equal(load(tmp_path / "votes").labels_, model.labels_)
    # an unsigned layer beside it
    friends = Graph.from_matrix(one.matrix.maximum(0))
    mixed = model.fit([friends, other])
    assert mixed.converged_
    assert metrics.nmi(labels, mixed.labels_) > 0.6
    with pytest.raises(GraphError, match="takes negative ones"):
        MultilayerSpectralClustering(3).fit([one.matrix, other.matrix])


def test_solvers_are_compared_on_signed_graphs(votes, tmp_path, capsys):
    one, other, labels = votes
    settings = Settings(n_components=3, laplacian="signed", seed=0)
    names = ["auto", "chebyshev", "power"]
    for graph in (one, MultilayerGraph.from_layers([one, other])):
        rows, _ = compare(graph, settings, names, classes=labels)
        assert [row["error"] for row in rows] == [None] * 3
        expected = cluster(graph, replace(settings, n_clusters=3))
        assert rows[0]["nmi"] == pytest.approx(metrics.nmi(labels, expected.labels), abs=1e-9)
        assert rows[1]["angle"] < 1e-2
    write_graph(tmp_path / "votes.csv", one)
    command = [
        "compare",
        str(tmp_path / "votes.csv"),
        "-k",
        "3",
        "--laplacian",
        "signed",
        "--solvers",
        "auto",
    ]
    assert main([*command, "--seed", "0"]) == 0, capsys.readouterr().err
    assert "1 of 1 solvers reached" in capsys.readouterr().err
