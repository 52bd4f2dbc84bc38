"""Similarities that are never formed: dense twins, forms, engines, files, new rows, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.metrics.pairwise import cosine_similarity, rbf_kernel

from spectrograd import Graph, SpectralClustering, SpectralEmbedding, load, metrics
from spectrograd.cli import main
from spectrograd.engines import make_engine
from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.feature_rows import FeatureRows
from spectrograd.graph.features import feature_graph
from spectrograd.io.features import NpzFeatures, ParquetFeatures, read_features
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.operators.similarity import similarity_laplacian
from spectrograd.pipeline import Settings, cluster
from spectrograd.points import fourier
from spectrograd.solvers.settings import RunContext

KINDS = ["random_walk", "symmetric", "unnormalized"]


def documents(n_rows=400, n_words=300, n_topics=3, seed=0, length=25):
    """Counts of words, by topics; sparse."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_rows) % n_topics
    words = rng.random((n_topics, n_words)) ** 6
    words = 0.7 * words / words.sum(axis=1, keepdims=True) + 0.3 / n_words
    counts = np.stack([rng.multinomial(length, words[topic]) for topic in labels])
    return sp.csr_array(counts.astype(np.float64)), labels


DATA, LABELS = documents()
SHIFTED = DATA.toarray() - 0.2
INPUTS = {
    "cosine": DATA,
    "linear": DATA,
    "signed cosine": SHIFTED,
    "dense": DATA.toarray().astype(np.float32),
}


def dense_weights(name):
    """The weights, formed."""
    X = INPUTS[name]
    dense = X.toarray() if sp.issparse(X) else X.astype(np.float64)
    W = dense @ dense.T if name == "linear" else cosine_similarity(dense)
    W = (1 + W) / 2 if name == "signed cosine" else W
    np.fill_diagonal(W, 0)
    return W


def graph_of(name):
    return feature_graph(INPUTS[name], "linear" if name == "linear" else "cosine")


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.2])
def test_the_operator_is_that_of_the_formed_matrix(name, kind, tau):
    graph, W = graph_of(name), dense_weights(name)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if name == "dense" else {}
    assert np.allclose(graph.degrees, W.sum(axis=1), **tolerance)
    assert np.allclose(graph.matrix.toarray(), W, **tolerance)
    ours, dense = (
        similarity_laplacian(graph, kind, tau),
        regularized_laplacian(Graph.from_matrix(W), kind, tau),
    )
    x = np.random.default_rng(1).standard_normal((400, 3))
    size = abs(dense @ x).max()
    for form in ("standard_form", "random_walk_form"):
        one, other = getattr(ours, form)() @ x, getattr(dense, form)() @ x
        assert np.allclose(one / size, other / size, atol=1e-5 if name == "dense" else 1e-12)
    assert np.allclose(ours @ x / size, dense @ x / size, atol=1e-5 if name == "dense" else 1e-12)
    assert abs(ours @ ours.null_vector).max() < 1e-5 * size if name == "dense" else 1e-10 * size


@pytest.mark.parametrize("name", INPUTS)
def test_clusters_are_those_of_the_formed_matrix(name):
    settings = Settings(n_components=3, seed=0)
    ours = cluster(graph_of(name), settings)
    dense = cluster(Graph.from_matrix(dense_weights(name)), settings)
    assert ours.converged
    assert np.allclose(ours.eigenvalues, dense.eigenvalues, atol=1e-4)
    assert metrics.nmi(ours.labels, dense.labels) > 0.95
    assert metrics.nmi(LABELS, ours.labels) > 0.8


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_torch_gives_the_same(form):
    pytest.importorskip("torch")
    X = form(DATA.toarray())
    here, there = (
        cluster(feature_graph(X), Settings(n_components=3, seed=0), RunContext(engine=make_engine(name)))
        for name in ("local", "torch")
    )
    assert np.allclose(here.eigenvalues, there.eigenvalues)
    assert np.array_equal(here.labels, there.labels)


def test_rows_of_zeros_are_isolated_and_named():
    X = DATA.copy().tolil()
    X[7] = 0
    names = np.array([f"doc {i}" for i in range(400)])
    for features in (sp.csr_array(X), sp.csr_array(X).toarray() * -1):  # cosine, and (1 + cosine) / 2
        graph = feature_graph(features, names=names)
        assert graph.degrees[7] == 0
        with pytest.warns(GraphWarning, match=r"1 of 400 nodes are not connected .* doc 7"):
            result = cluster(graph, Settings(n_components=3, seed=0))
        assert result.labels[7] == -1
        assert (np.delete(result.labels, 7) >= 0).all()


def test_documents_without_common_words_are_components():
    half, _ = documents(60, 40, 2)
    X = sp.csr_array(sp.block_diag([half, half]))
    graph = feature_graph(X)
    assert len(set(graph.components[:60])) == len(set(graph.components[60:])) == 1
    assert graph.components[0] != graph.components[60]
    result = cluster(graph, Settings(n_components=2, seed=0))
    assert len(set(result.labels[:60])) == 1
    assert result.labels[0] != result.labels[60]


@pytest.mark.parametrize("n_entries", [7, 1 << 18])
def test_components_join_across_blocks_of_rows(monkeypatch, tmp_path, n_entries):
    monkeypatch.setattr("spectrograd.graph.features.TIED_ENTRIES", n_entries)
    rng = np.random.default_rng(3)
    for density in (0.01, 0.02, 0.05):
        X = sp.random_array((80, 60), density=density, rng=rng, format="csr")
        X.data[::7] = 0  # stored zeros are no features
        dense = X.toarray()
        W = sp.csr_array(dense @ dense.T)
        expected = connected_components(W, directed=False)[1]
        sp.save_npz(tmp_path / "x.npz", X)
        stream, _ = read_features(tmp_path / "x.npz", memory_limit=1)
        for features in (X, dense, stream):
            assert np.array_equal(feature_graph(features).components, expected)


# --- Estimators


@pytest.mark.parametrize("affinity", ["cosine", "linear"])
def test_estimators_take_features_and_new_ones(affinity, tmp_path):
    model = SpectralClustering(3, affinity=affinity, random_state=0).fit(DATA[:300])
    assert model.converged_
    assert metrics.nmi(LABELS[:300], model.labels_) > 0.8
    assert metrics.nmi(LABELS[300:], model.predict(DATA[300:])) > 0.7
    assert np.array_equal(model.predict(DATA[:20]), model.labels_[:20])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict(DATA[300:]), model.predict(DATA[300:]))
    how = {"laplacian": "symmetric", "random_state": 0, "tol": 1e-7}
    embedding = SpectralEmbedding(2, affinity=affinity, **how)
    fitted = embedding.fit_transform(DATA)
    W = dense_weights(affinity)
    twin = SpectralEmbedding(2, affinity="precomputed", laplacian="symmetric", random_state=0, tol=1e-8).fit(
        W
    )
    assert np.allclose(np.abs(fitted), np.abs(twin.embedding_), atol=1e-5)
    new = DATA[:5] + 1.0 * DATA[5:10]
    weights = new @ DATA.T if affinity == "linear" else sp.csr_array(cosine_similarity(new, DATA))
    assert np.allclose(
        np.abs(embedding.transform(new)), np.abs(twin.transform(sp.csr_array(weights))), atol=1e-5
    )


def test_many_points_of_a_gaussian_kernel(monkeypatch):
    monkeypatch.setattr("spectrograd.estimators.inputs.MAX_KERNEL_POINTS", 500)
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    X = 4 * rng.standard_normal((3, 4))[labels] + rng.standard_normal((600, 4))
    with pytest.warns(GraphWarning, match=r"by 1,024 Fourier features, whose weights are off by 0\.0"):
        model = SpectralClustering(3, affinity="rbf", gamma=0.1, random_state=0).fit(X)
    graph = model.graph_
    error = graph.matrix.toarray() - rbf_kernel(X, gamma=0.1)
    np.fill_diagonal(error, 0)
    assert 0.5 < graph.kernel_error / np.sqrt(np.mean(error**2)) < 2
    assert metrics.nmi(labels, model.labels_) > 0.9
    assert metrics.nmi(labels, model.predict(X + 0.01)) > 0.9
    with pytest.raises(GraphError, match="take a smaller gamma"), pytest.warns(GraphWarning):
        SpectralClustering(3, affinity="rbf", gamma=1e4, random_state=0).fit(X)


def test_orthogonal_frequencies_have_the_right_kernel():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 3))
    features = fourier.FourierMap.draw(3, 0.5, seed=0, m=4000)(X)
    assert abs(features @ features.T - rbf_kernel(X, gamma=0.5)).max() < 0.06


# --- Files


@pytest.mark.parametrize("packed", [True, False])
def test_npz_is_streamed_in_blocks(tmp_path, monkeypatch, packed):
    monkeypatch.setattr("spectrograd.io.features.BLOCK_BYTES", 4096)
    path = tmp_path / "features.npz"
    sp.save_npz(path, DATA, compressed=packed)
    stream, names = read_features(path, memory_limit=1)
    assert isinstance(stream, NpzFeatures)
    assert names is None
    blocks = list(stream.blocks())
    assert len(blocks) > 10
    assert (sp.vstack([block for _, block in blocks]) != DATA).nnz == 0
    assert (stream.between(30, 90) != DATA[30:90]).nnz == 0
    rows = np.array([3, 77, 200])
    assert np.array_equal(stream.take(rows).project(np.ones((3, 1)))[:, 0], DATA[rows].sum(axis=0))
    ours = cluster(feature_graph(stream), Settings(n_components=3, seed=0))
    assert np.allclose(
        ours.eigenvalues, cluster(feature_graph(DATA), Settings(n_components=3, seed=0)).eigenvalues
    )
    model = SpectralClustering(3, affinity="cosine", memory_limit="400MB", random_state=0).fit(path)
    assert isinstance(model.graph_.features, FeatureRows)
    assert metrics.nmi(model.labels_, ours.labels) == pytest.approx(1)


def test_parquet_is_streamed_by_row_groups(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    dense = DATA.toarray()
    columns = {f"w{j}": dense[:, j] for j in range(50)} | {"node": [f"d{i}" for i in range(400)]}
    parquet.write_table(pa.table(columns), tmp_path / "f.parquet", row_group_size=100)
    stream, names = read_features(tmp_path / "f.parquet", memory_limit=1)
    assert isinstance(stream, ParquetFeatures)
    assert names[5] == "d5"
    assert stream.shape == (400, 50)
    assert np.array_equal(np.concatenate([block for _, block in stream.blocks()]), dense[:, :50])


def test_the_command_end_to_end(tmp_path, capsys):
    path, out = str(tmp_path / "features.npz"), tmp_path / "labels.csv"
    sp.save_npz(path, DATA)
    command = ["cluster", path, "--points", "--affinity", "cosine", "-k", "3", "-o", str(out)]
    assert main([*command, "--run", str(tmp_path / "run"), "--seed", "0"]) == 0, capsys.readouterr().err
    labels = np.array([int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]])
    assert metrics.nmi(LABELS, labels) > 0.8
    model = load(tmp_path / "run" / "model")
    assert np.array_equal(model.predict(DATA), labels)
    sp.save_npz(path, sp.csr_array(SHIFTED))
    command[4] = "linear"
    capsys.readouterr()
    assert main(command) == 2
    assert "negative, which affinity='linear' cannot take" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("X", "affinity", "message"),
    [
        ([[1.0, -2.0], [1.0, 0.0]], "linear", r"row 0, column 1 is -2\.0: negative, which affinity='linear'"),
        ([[1.0, np.nan], [1.0, 0.0]], "cosine", r"row 0, column 1 is nan: not finite"),
        (sp.csr_array([[0.0, 1.0], [np.inf, 0.0]]), "cosine", r"row 1, column 0 is inf: not finite"),
        (np.zeros((3, 2)), "cosine", "all features are zero"),
        (np.zeros((0, 2)), "cosine", r"shape \(0, 2\)"),
        ([["a", "b"]], "cosine", "real numbers are needed"),
    ],
)
def test_bad_features_are_refused_in_words(X, affinity, message):
    with pytest.raises(GraphError, match=message):
        feature_graph(X, affinity)


def test_other_refusals():
    with pytest.raises(GraphError, match="5 names for 400 rows"):
        feature_graph(DATA, names=list("abcde"))
    with pytest.raises(GraphError, match="needs the sizes of all weights"):
        SpectralClustering(3, affinity="cosine", laplacian="signed").fit(DATA)
    with pytest.raises(ValueError, match="one of cosine, linear"):
        feature_graph(DATA, "euclidean")
    wide = feature_graph(sp.csr_array(sp.vstack([DATA] * 11)))
    with pytest.raises(GraphError, match="are never formed"):
        _ = wide.matrix
