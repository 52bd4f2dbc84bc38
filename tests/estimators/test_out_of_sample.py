"""Nodes and points that came after ``fit``: transform, predict, outlier scores."""

from __future__ import annotations

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline

from spectrograd import (
    Graph,
    GraphError,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
    to_networkx,
)
from spectrograd.estimators.out_of_sample import TrainingData

N_OLD = 540


@pytest.fixture(scope="module")
def blocks():
    """A graph of 600 named nodes in 3 clusters: 540 to fit, 60 that come later."""
    data = datasets.make_block_model(600, 3, random_state=0)
    order = np.random.default_rng(1).permutation(600)
    matrix = data.graph.matrix[order][:, order]
    names = np.array([f"n{i}" for i in range(600)])
    return Graph.from_matrix(matrix, names=names), data.labels[order]


@pytest.fixture(scope="module")
def model(blocks):
    graph, _ = blocks
    old = Graph.from_matrix(graph.matrix[:N_OLD][:, :N_OLD], names=graph.names[:N_OLD])
    return SpectralClustering(3, random_state=0).fit(old)


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    centres = np.array([[0, 0, 0], [6, 0, 0], [0, 6, 0.0]])
    return centres[truth] + rng.standard_normal((400, 3)), truth


def table_of_new(graph, rows):
    entries = graph.matrix.tocoo()
    kept = np.isin(entries.row, rows) & ~(np.isin(entries.col, rows) & (entries.row > entries.col))
    return pd.DataFrame({"src": graph.names[entries.row[kept]], "dst": graph.names[entries.col[kept]]})


def test_new_nodes_by_rows_table_and_networkx(blocks, model):
    graph, truth = blocks
    new = np.arange(N_OLD, 600)
    by_table = model.predict(table_of_new(graph, new))
    names = model.new_names(table_of_new(graph, new))
    assert sorted(names.tolist()) == sorted(graph.names[new].tolist())
    classes = dict(zip(graph.names.tolist(), truth, strict=True))
    assert metrics.nmi([classes[name] for name in names], by_table) > 0.9
    by_networkx = model.predict(to_networkx(graph))
    of = dict(zip(model.new_names(to_networkx(graph)).tolist(), by_networkx.tolist(), strict=True))
    assert [of[name] for name in names] == by_table.tolist()
    by_rows = model.predict(graph.matrix[new][:, :N_OLD])
    assert metrics.nmi(truth[new], by_rows) > 0.9
    dense = model.predict(graph.matrix[new][:, :N_OLD].toarray())
    np.testing.assert_array_equal(dense, by_rows)


def test_numbers_beside_words_find_their_nodes():
    data = datasets.make_block_model(200, 2, mean_degree=12, random_state=0)
    model = SpectralClustering(2, random_state=0).fit(data.graph)
    friends = np.flatnonzero(data.labels == data.labels[7])[:5]
    table = pd.DataFrame({"src": ["newcomer"] * 5, "dst": [str(i) for i in friends]})
    assert model.predict(table)[0] == model.labels_[7]


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "rbf"])
@pytest.mark.parametrize("drop_first", [True, False])
def test_training_points_get_their_own_rows(clouds, affinity, drop_first):
    X, _ = clouds
    model = SpectralEmbedding(2, affinity=affinity, gamma=0.5, drop_first=drop_first, random_state=0).fit(X)
    np.testing.assert_array_equal(model.transform(X), model.embedding_)
    np.testing.assert_array_equal(model.transform(X[7:8])[0], model.embedding_[7])


@pytest.mark.parametrize(
    "options", [{}, {"metric": "manhattan"}, {"affinity": "rbf", "gamma": 0.5}, {"laplacian": "symmetric"}]
)
def test_new_points(clouds, options):
    X, truth = clouds
    model = SpectralClustering(3, random_state=0, **options).fit(X[:300])
    labels = model.predict(X[300:])
    assert metrics.nmi(truth[300:], labels) > 0.95
    whole = model.transform(X[300:])
    np.testing.assert_array_equal(whole[5], model.transform(X[305:306])[0])
    far = np.array([[60.0, 60.0, 60.0]])
    assert model.predict(far, outlier_quantile=1.0)[0] == -1


def test_sparse_points_are_as_dense_ones(clouds):
    X, _ = clouds
    dense = SpectralEmbedding(2, random_state=0).fit(X[:300]).transform(X[300:])
    sparse = SpectralEmbedding(2, random_state=0).fit(sp.csr_array(X[:300])).transform(sp.csr_array(X[300:]))
    np.testing.assert_allclose(sparse, dense, atol=1e-5)


def test_kernel_rows(clouds):
    X, truth = clouds
    kernel = rbf_kernel(X, X[:300], gamma=0.5)
    with pytest.warns(UserWarning, match="self loops"):
        model = SpectralClustering(3, affinity="precomputed", random_state=0).fit(kernel[:300])
    np.testing.assert_array_equal(model.transform(kernel[:300]), model.embedding_)
    np.testing.assert_array_equal(model.transform(sp.csr_array(kernel[:300])), model.embedding_)
    np.testing.assert_array_equal(model.predict(kernel[:300]), model.labels_)
    assert metrics.nmi(truth[300:], model.predict(kernel[300:])) > 0.95


def test_distance_rows(clouds):
    X, truth = clouds
    search = KNeighborsTransformer(n_neighbors=10, mode="distance").fit(X[:300])
    model = SpectralClustering(3, affinity="precomputed_nearest_neighbors", random_state=0)
    model.fit(search.transform(X[:300]))
    assert metrics.nmi(truth[300:], model.predict(search.transform(X[300:]))) > 0.95
    np.testing.assert_array_equal(model.predict(search.transform(X[:300])), model.labels_)


def test_in_a_pipeline_and_a_search(clouds):
    X, truth = clouds
    pipe = make_pipeline(SpectralEmbedding(3, random_state=0), LogisticRegression(C=1e4))
    search = GridSearchCV(pipe, {"spectralembedding__n_neighbors": [8, 12]}, cv=2, error_score="raise")
    assert search.fit(X, truth).best_score_ > 0.95
    framed = SpectralEmbedding(2, random_state=0).set_output(transform="pandas").fit(X[:300])
    assert framed.transform(X[300:]).columns.tolist() == ["spectralembedding0", "spectralembedding1"]


@pytest.mark.parametrize("aggregation", ["projection", "mean", "grassmann", "joint"])
def test_layers(aggregation):
    data = datasets.make_multilayer_gmm(400, 2, 3, random_state=0)
    layers = {name: g.matrix for name, g in zip(data.graph.layer_names, data.graph.layers, strict=True)}
    old = {name: matrix[:360][:, :360] for name, matrix in layers.items()}
    model = MultilayerSpectralClustering(3, aggregation=aggregation, random_state=0).fit(old)
    new = {name: matrix[360:][:, :360] for name, matrix in layers.items()}
    reference = MultilayerSpectralClustering(3, aggregation=aggregation, random_state=0).fit(layers)
    linked = np.asarray(sum(matrix.sum(axis=1) for matrix in new.values())).ravel() > 0
    found = model.predict({name: matrix[linked] for name, matrix in new.items()})
    assert metrics.nmi(reference.labels_[360:][linked], found) > 0.45  # by chance 0.05
    first = next(iter(new))
    known_here = np.asarray(new[first].sum(axis=1)).ravel() > 0
    assert model.predict({first: new[first][known_here]}).shape == (known_here.sum(),)


def test_views_of_new_points(clouds):
    X, _ = clouds
    views = [X[:, :2], X[:, 1:]]
    model = MultilayerSpectralEmbedding(2, affinity="nearest_neighbors", aggregation="mean", random_state=0)
    model.fit([view[:300] for view in views])
    np.testing.assert_array_equal(model.transform([view[:300] for view in views]), model.embedding_)
    assert model.transform([view[300:] for view in views]).shape == (100, 2)


def test_functions_of_layers_say_that_they_cannot(clouds):
    X, _ = clouds
    model = MultilayerSpectralEmbedding(2, affinity="nearest_neighbors", aggregation="power-mean")
    with pytest.raises(ValueError, match=r"power-mean.*no rows for new nodes"):
        model.fit([X[:200], X[:200, ::-1]]).transform([X[200:], X[200:, ::-1]])


def test_outlier_scores_of_ordinary_rows_are_uniform(clouds, blocks, model):
    X, _ = clouds
    points = SpectralClustering(3, random_state=0).fit(X[:300])
    for scores in (points.score_samples(X[300:]), _scores_of_new_nodes(blocks, model)):
        assert 0.35 < scores.mean() < 0.7
        assert 0 <= scores.min() <= scores.max() <= 1
        assert (scores > 0.9).mean() < 0.3


def _scores_of_new_nodes(blocks, model):
    graph, _ = blocks
    return model.score_samples(graph.matrix[N_OLD:][:, :N_OLD])


def test_a_node_with_friends_everywhere_is_an_outlier(blocks, model):
    stranger = np.zeros((1, N_OLD))
    stranger[0, np.random.default_rng(0).choice(N_OLD, 40, replace=False)] = 1
    assert model.predict(stranger, outlier_quantile=0.99)[0] == -1
    assert model.score_samples(stranger)[0] > 0.99
    assert model.predict(stranger)[0] >= 0


def test_before_a_question_there_is_no_answer(blocks):
    fresh = SpectralClustering(3, random_state=0)
    assert not hasattr(fresh, "outlier_score_")
    assert not hasattr(fresh.fit(blocks[0]), "outlier_score_")
    assert not hasattr(fresh, "new_names_")
    with pytest.raises(NotFittedError):
        SpectralClustering(3).new_names([[0.0]])


def test_scores_change_nothing_and_the_old_attribute_says_so(clouds):
    X, _ = clouds
    points = SpectralClustering(3, random_state=0).fit(X[:300])
    scores = points.score_samples(X[300:])
    assert not hasattr(points, "outlier_score_")
    points.predict(X[300:])
    with pytest.warns(FutureWarning, match=r"score_samples\(X\) returns the outlier scores"):
        np.testing.assert_array_equal(points.outlier_score_, scores)
    points.score_samples(X[300:302])
    with pytest.warns(FutureWarning):
        assert len(points.outlier_score_) == 100
    with pytest.warns(FutureWarning, match=r"new_names\(X\) returns the names of new nodes"):
        assert len(points.new_names_) == len(points.new_names(X[300:])) == 100


def test_predict_computes_no_scores_that_nobody_asks_for(blocks, monkeypatch):
    graph, _ = blocks
    old = Graph.from_matrix(graph.matrix[:N_OLD][:, :N_OLD])
    fitted = SpectralClustering(3, random_state=0).fit(old)
    monkeypatch.setattr(TrainingData, "outlier_scores", lambda *_: pytest.fail("nobody asked"))
    rows = graph.matrix[N_OLD:][:, :N_OLD]
    assert len(fitted.predict(rows)) == len(fitted.transform(rows)) == graph.n_nodes - N_OLD


def test_former_names_answer_with_a_warning(blocks):
    fitted = SpectralClustering(3, random_state=0).fit(blocks[0])
    with pytest.warns(FutureWarning, match="it is called excluded_"):
        assert fitted.set_aside_ is fitted.excluded_
    with pytest.warns(FutureWarning, match="it is called complete_below"):
        assert fitted.certificate_.sure == fitted.certificate_.complete_below
    assert not hasattr(SpectralClustering(3), "set_aside_")


BAD = {
    "no edge to a known node": lambda g: sp.csr_array((2, N_OLD)),
    "one column per known node": lambda g: np.ones((1, 7)),
    "negative": lambda g: -np.ones((1, N_OLD)),
    "not finite": lambda g: np.full((1, N_OLD), np.nan),
    "no node in it is known": lambda g: pd.DataFrame({"src": ["x"], "dst": ["y"]}),
    "every node in it is known": lambda g: pd.DataFrame({"src": ["n1"], "dst": ["n2"]}),
    "new node zed has no edge": lambda g: _with_lonely_node(),
}


def _with_lonely_node():
    graph = networkx.Graph([("n1", "newcomer")])
    graph.add_node("zed")
    return graph


@pytest.mark.parametrize("message", BAD)
def test_bad_questions(blocks, model, message):
    before = model.embedding_.copy()
    with pytest.raises(GraphError, match=message):
        model.predict(BAD[message](blocks[0]))
    np.testing.assert_array_equal(model.embedding_, before)


@pytest.mark.parametrize("quantile", [0, 1.5, "many"])
def test_bad_quantiles(model, quantile):
    with pytest.raises(ValueError, match="outlier_quantile"):
        model.predict(np.ones((1, N_OLD)), outlier_quantile=quantile)


def test_other_numbers_of_features(clouds):
    model = SpectralClustering(3, random_state=0).fit(clouds[0])
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.predict(clouds[0][:, :2])


@pytest.mark.parametrize("affinity", ["rbf", "polynomial", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_rows_have_the_same_bits_alone_and_among_others(affinity, dtype):
    """A BLAS multiplies one row, a few rows and the last rows of a block by other kernels than the rest."""
    X = np.abs(np.random.default_rng(0).standard_normal((400, 33))).astype(dtype)
    model = SpectralEmbedding(2, affinity=affinity, gamma=0.05, random_state=0).fit(X[:250])
    whole = model.transform(X[250:])
    for row in (0, 5, 63, 95, 96, 149):
        np.testing.assert_array_equal(model.transform(X[250 + row : 251 + row])[0], whole[row])
    np.testing.assert_array_equal(model.transform(X[257:352]), whole[7:102])
