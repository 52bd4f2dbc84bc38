"""Graphs and features of the same nodes as layers: estimators, from_features, the command, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import cosine_similarity

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    datasets,
    load,
    metrics,
    write_graph,
)
from spectrograd.cli import main
from spectrograd.engines import make_engine
from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.features import FeatureGraph
from spectrograd.pipeline import RunContext, Settings, cluster, embed

DATA = datasets.make_block_model(300, 3, mean_degree=10, mixing=0.35, random_state=0)
RNG = np.random.default_rng(0)
PLACES = 1.5 * RNG.standard_normal((3, 4))[DATA.labels] + RNG.standard_normal((300, 4))
TOPICS = 0.05 + 0.3 * np.kron(np.eye(3), np.ones(10))[DATA.labels]
WORDS = sp.csr_array((RNG.random((300, 30)) < TOPICS).astype(float))


@pytest.mark.parametrize("features", [PLACES, WORDS])
@pytest.mark.parametrize("links", [DATA.graph, DATA.graph.matrix])
def test_graph_and_features_are_better_than_the_graph(features, links):
    model = MultilayerSpectralClustering(3, random_state=0).fit({"links": links, "features": features})
    assert model.layer_names_ == ("links", "features")
    assert metrics.nmi(DATA.labels, model.labels_) > 0.6
    assert np.array_equal(model.fit([links, features]).labels_.shape, (300,))


def test_from_features_joins_rows_to_their_neighbours():
    graph = MultilayerGraph.from_features(
        {"links": DATA.graph, "words": WORDS, "places": PLACES}, n_neighbors=8
    )
    assert graph.layer_names == ("links", "words", "places")
    assert graph.layers[0] is DATA.graph
    assert graph.layers[2].n_edges >= 8 * 300 / 2
    empty = WORDS.tolil()
    empty[5] = 0
    assert 5 in MultilayerGraph.from_features([DATA.graph, sp.csr_array(empty)]).layers[1].isolated


def test_names_match_rows_of_features_to_nodes():
    names = np.array([f"n{i:03}" for i in range(300)])
    coo = sp.triu(DATA.graph.matrix).tocoo()
    links = Graph.from_edges(names[coo.row], names[coo.col])
    order = RNG.permutation(300)
    graph = MultilayerGraph.from_features([links, PLACES[order]], names=names[order])
    assert np.array_equal(graph.node_names, names)
    straight = MultilayerGraph.from_features([DATA.graph, PLACES])
    assert abs(graph.layers[1].matrix - straight.layers[1].matrix).max() < 1e-12
    with pytest.raises(GraphError, match=r"300 of 300 rows of features have ids .* \(first: x0\)"):
        MultilayerGraph.from_features([links, PLACES], names=[f"x{i}" for i in range(300)])


def test_the_command_end_to_end(tmp_path, capsys):
    names = np.array([f"n{i:03}" for i in range(300)])
    coo = sp.triu(DATA.graph.matrix).tocoo()
    write_graph(tmp_path / "links.csv", Graph.from_edges(names[coo.row], names[coo.col]))
    places = [",".join(f"{x:.5f}" for x in place) for place in PLACES]
    rows = [f"{name},{place}" + chr(10) for name, place in zip(names, places, strict=True)]
    (tmp_path / "places.csv").write_text("node,a,b,c,d\n" + "".join(rows))
    files = [str(tmp_path / "links.csv"), str(tmp_path / "places.csv")]
    out = tmp_path / "labels.csv"
    command = ["cluster", *files, "--features", files[1], "-k", "3", "-o", str(out)]
    assert main(command) in (0, 1), capsys.readouterr().err
    labels = dict(line.split(",") for line in out.read_text().splitlines()[1:])
    found = np.array([int(labels[name]) for name in names])
    assert metrics.nmi(DATA.labels, found) > 0.6
    (tmp_path / "places.csv").write_text("node,a,b,c,d\n" + "".join(row.replace("n", "m") for row in rows))
    capsys.readouterr()
    assert main(command) == 2
    assert "rows of features have ids that the graph does not have" in capsys.readouterr().err


def test_bad_features_are_refused():
    with pytest.raises(GraphError, match="'b': 299 rows of features, but the graph has 300 nodes"):
        MultilayerSpectralEmbedding(2).fit({"a": DATA.graph, "b": PLACES[:299]})
    with pytest.raises(GraphError, match="NaN or infinity"):
        MultilayerGraph.from_features([DATA.graph, np.full((300, 2), np.nan)])
    with pytest.raises(GraphError, match="one row of numbers per node"):
        MultilayerGraph.from_features([DATA.graph, np.zeros(300)])
    with pytest.raises(GraphError, match="300 rows of features, 2 names"):
        MultilayerGraph.from_features([DATA.graph, PLACES], names=["a", "b"])


# --- Features by the cosine of all pairs, never formed


FILLED = sp.csr_array(np.hstack([WORDS.toarray(), np.full((300, 1), 0.1)]))  # no row without words


def dense_layers():
    """The normalised Laplacians of the graph and of the words."""
    W = FILLED.toarray()
    cosines = cosine_similarity(W)
    np.fill_diagonal(cosines, 0)
    parts = [DATA.graph.matrix.toarray(), cosines]
    return [np.eye(300) - part / np.sqrt(np.outer(part.sum(axis=0), part.sum(axis=0))) for part in parts]


def test_the_cosine_of_all_pairs_is_a_layer():
    graph = MultilayerGraph.from_features({"links": DATA.graph, "words": FILLED}, affinity="cosine")
    assert isinstance(graph.layers[1], FeatureGraph)
    first, second = dense_layers()
    settings = Settings(n_components=3, aggregation="mean", tol=1e-8, seed=0)
    found = embed(graph, settings)
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(first + second)[:3], atol=1e-7)
    # Eq. 22: the sum, less half a projector per layer
    merged = first + second
    for part in (first, second):
        vectors = np.linalg.eigh(part)[1][:, :3]
        merged = merged - 0.5 * vectors @ vectors.T
    found = embed(graph, replace(settings, aggregation="projection"))
    assert found.converged
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(merged)[:3], atol=0.02)


def test_torch_takes_the_cosine_as_a_layer():
    pytest.importorskip("torch")
    graph = MultilayerGraph.from_features([DATA.graph, FILLED], affinity="cosine")
    settings = Settings(n_components=3, tol=1e-6, seed=0)
    here, there = (embed(graph, settings, RunContext(make_engine(name))) for name in ("local", "torch"))
    assert there.converged
    assert np.allclose(here.eigenvalues, there.eigenvalues, atol=1e-5)


def test_estimators_take_the_cosine_as_a_layer(tmp_path):
    model = MultilayerSpectralClustering(3, affinity="cosine", random_state=0)
    model.fit({"links": DATA.graph, "words": WORDS})
    assert model.aggregation_ == "projection"
    assert model.converged_
    alone = SpectralClustering(3, random_state=0).fit(DATA.graph)
    assert metrics.nmi(DATA.labels, model.labels_) > metrics.nmi(DATA.labels, alone.labels_)
    assert model.cluster_verdict_.verdict == "not judged"
    assert model.layer_agreement_.shape == (300,)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").labels_, model.labels_)
    two_views = model.fit([WORDS[:, :15], WORDS[:, 15:]])
    assert two_views.labels_.shape == (300,)


def test_rows_without_words_follow_their_links():
    empty = FILLED.tolil()
    empty[5:8] = 0
    graph = MultilayerGraph.from_features([DATA.graph, sp.csr_array(empty)], affinity="cosine")
    assert graph.layers[1].isolated.tolist() == [5, 6, 7]
    result = cluster(graph, Settings(n_components=3, seed=0))
    assert result.converged
    assert (result.labels >= 0).all()
    # a node that no layer knows is excluded
    links = Graph.from_matrix(sp.csr_array(sp.block_diag([DATA.graph.matrix, sp.csr_array((1, 1))])))
    more = sp.csr_array(sp.vstack([WORDS, sp.csr_array((1, 30))]))
    with pytest.warns(GraphWarning, match="1 of 301 nodes are not connected"):
        found = cluster(
            MultilayerGraph.from_features([links, more], affinity="cosine"), Settings(n_components=3, seed=0)
        )
    assert found.labels[300] == -1
    assert (found.labels[:300] >= 0).all()


def test_many_sparse_rows_are_a_layer_by_the_cosine(monkeypatch):
    monkeypatch.setattr("spectrograd.points.mixed_layers.MAX_SEARCHED_ROWS", 100)
    layers = MultilayerGraph.from_features([DATA.graph, WORDS, PLACES]).layers
    assert [isinstance(layer, FeatureGraph) for layer in layers] == [False, True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"aggregation": "joint"},
        {"aggregation": "coregularized"},
        {"layer_weights": "auto"},
    ],
)
def test_what_needs_edges_is_refused(wrong):
    graph = MultilayerGraph.from_features([DATA.graph, WORDS], affinity="cosine")
    with pytest.raises(GraphError, match="similarities that are never formed has no edges"):
        embed(graph, Settings(n_components=3, seed=0, **wrong))
    with pytest.raises(GraphError, match="number of clusters is not found"):
        embed(graph, Settings(n_components="auto"))
    with pytest.raises(GraphError, match="laplacian='signed"):
        embed(graph, Settings(n_components=3, laplacian="signed"))
    with pytest.raises(GraphError, match="negative, which affinity='linear' cannot take"):
        MultilayerGraph.from_features([DATA.graph, PLACES], affinity="linear")
