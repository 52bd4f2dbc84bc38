"""Graphs and features of the same nodes as layers: estimators, from_features, the command, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    datasets,
    metrics,
    write_graph,
)
from spectrograd.cli import main
from spectrograd.graph import GraphError

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
