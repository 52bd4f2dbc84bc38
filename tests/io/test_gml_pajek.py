"""networkx's edge lists, GML, Pajek, attributes of GraphML as labels; what notebooks show."""

import networkx as nx
import numpy as np
import pytest

from spectrograd import SpectralClustering, read_graph, read_labels
from spectrograd.graph import Graph, GraphError
from spectrograd.io import from_networkx

WRITERS = {"g.edgelist": nx.write_edgelist, "g.gml": nx.write_gml, "g.net": nx.write_pajek}


def same(one, other):
    assert sorted(map(str, one.node_names)) == sorted(map(str, other.node_names))
    order = [np.argsort(list(map(str, graph.node_names))) for graph in (one, other)]
    matrices = [
        graph.matrix.toarray()[np.ix_(rows, rows)] for graph, rows in zip((one, other), order, strict=True)
    ]
    np.testing.assert_allclose(*matrices)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_what_networkx_writes(tmp_path, name, weighted):
    graph = nx.relabel_nodes(nx.karate_club_graph(), lambda node: f"member {node}".replace(" ", "_"))
    if not weighted:
        nx.set_edge_attributes(graph, 1, "weight")
    WRITERS[name](graph, tmp_path / name)
    same(read_graph(tmp_path / name), from_networkx(graph))


def test_edge_lists_without_attributes_are_tables(tmp_path):
    path = tmp_path / "g.edgelist"
    path.write_text("# a comment\n1 2 0.5\n2 3 2\n")
    assert read_graph(path).matrix.toarray()[1].tolist() == [0.5, 0, 2]
    path.write_text("a b {}\nb c {'weight': 3, 'since': 1999}\n")
    assert read_graph(path).matrix.toarray()[1].tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.edgelist", "a b {}\nb c\n", "line 2: expected two ends and attributes"),
        ("g.edgelist", "a b {}\nb c {'weight': -1}\n", "line 2: weight -1.0 must be"),
        ("g.edgelist", "a b {}\nb c {weight}\n", "line 2: .* are no attributes"),
        ("g.gml", "graph [ node [ id 1 ] ]", "no edges"),
        ("g.gml", "graph [\n node [ id 1 ]\n edge [ source 1 target 2 ] ]", "edge 0: its target '2' is none"),
        ("g.gml", "graph [\n node [ id 1 ]\n", "line 2: a bracket is not closed"),
        ("g.gml", 'graph [ label "x\n', "line 1: a quote is not closed"),
        ("g.gml", "nothing here", "not GML"),
        ("g.gml", "graph [ node [ id 1 ] node [ id 1 ] ]", "two nodes have the id 1"),
        ("g.gml", "a [ " * 60, "more than 50 lists"),
        (
            "g.gml",
            "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 weight x ] ]",
            "edge 0: 'x' is",
        ),
        ("g.net", "*Vertices 2\n*Edges\n1 2 x\n", "line 3: 'x' is not a number"),
        ("g.net", "*Vertices 2\n*Edges\n1\n", "line 3: two ends"),
        ("g.net", "*Vertices 2\n*Edges\n1 2 -3\n", "line 3: weight -3 must be"),
        ("g.net", "*Vertices 2\n*Edges\n", "no edges in it"),
        ("g.net", "*Vertices 2\n*Matrix\n0 1\n*Edges\n1 2\n", "line 2: section '\\*matrix' cannot be read"),
    ],
)
def test_errors_say_where(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(GraphError, match=message):
        read_graph(path)


def test_pajek_has_names_lists_and_arcs(tmp_path):
    path = tmp_path / "g.net"
    path.write_text('*Vertices 4\n1 "ann bell" 0.1 0.2\n2 "bob"\n3 "cid"\n4 "dan"\n*Edgeslist\n1 2 3\n')
    graph = read_graph(path)
    assert graph.node_names.tolist() == ["ann bell", "bob", "cid", "dan"]
    assert (graph.n_edges, len(graph.isolated)) == (2, 1)
    path.write_text("*Vertices 3\n*Arcs\n1 2 2.5\n2 3 1\n")
    with pytest.warns(match="directed edges were made undirected"):
        assert read_graph(path).n_edges == 2


def test_gml_says_when_it_was_directed(tmp_path):
    nx.write_gml(nx.DiGraph([("a", "b"), ("b", "c")]), tmp_path / "g.gml")
    with pytest.warns(match="directed edges were made undirected"):
        read_graph(tmp_path / "g.gml")


def test_attributes_of_graphml_are_labels(tmp_path):
    graph = nx.karate_club_graph()
    for _, data in graph.nodes(data=True):
        data["community"] = data.pop("club")
    nx.write_graphml(graph, tmp_path / "g.graphml")
    names = read_graph(tmp_path / "g.graphml").node_names
    labels = read_labels(tmp_path / "g.graphml", names)
    clubs = [graph.nodes[int(name)]["community"] for name in names]
    assert labels.tolist() == [["Mr. Hi", "Officer"].index(club) for club in clubs]
    nx.write_graphml(nx.path_graph(3), tmp_path / "bare.graphml")
    with pytest.raises(GraphError, match="no attribute for labels"):
        read_labels(tmp_path / "bare.graphml")


def test_notebooks_show_a_graph_and_names_are_plain_texts():
    graph = Graph.from_edges(["<b>", "b", "c"], ["b", "c", "d"])
    shown = graph._repr_html_()
    assert "<td>4</td>" in shown
    assert "&lt;b&gt;, b, c, d" in shown
    names = SpectralClustering(2, random_state=0).fit(graph).names_
    assert {type(name) for name in names} == {str}
