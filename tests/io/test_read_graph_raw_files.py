"""Files of the field as their authors publish them: headers, numbers of columns, formats, .mat, labels."""

from __future__ import annotations

import gzip
import json
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.io

from spectrograd import open_store, read_graph, read_labels
from spectrograd.graph import GraphError, GraphWarning, MultilayerGraph
from spectrograd.io import columns as headers
from spectrograd.io import read_points
from spectrograd.io.columns import chosen_columns
from spectrograd.io.convert import convert
from spectrograd.notices import command_line_words
from spectrograd.store.edge_batches import IngestSettings

NAMES = ("ann,bob", "bob,cid", "cid,ann", "dan,eve", "eve,fay", "fay,dan", "ann,dan")
CAVES = nx.connected_caveman_graph(4, 6)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def streamed(path, **how):
    """The graph by way of a store; convert must agree with read_graph."""
    columns = chosen_columns(
        **{name: how.pop(name) for name in ("source", "target", "weight") if name in how}
    )
    convert([str(path)], "s.store", IngestSettings(order="none", force=True), columns=columns, **how)
    return open_store("s.store").in_memory()


@pytest.fixture(params=[read_graph, streamed], ids=["read_graph", "convert"])
def door(request):
    return request.param


def edges(graph):
    coo = graph.matrix.tocoo()
    pairs = zip(graph.node_names[coo.row].tolist(), graph.node_names[coo.col].tolist(), strict=True)
    return {tuple(sorted(map(str, pair))) for pair in pairs}


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize("header", ["sender,receiver", "customer,merchant", "node a,node b"])
def test_names_that_never_come_again_are_a_header_and_it_is_said(here, door, header):
    (here / "e.csv").write_text(lines(header, *NAMES))
    first, second = header.split(",")
    said = f"^e.csv, line 1: '{first}' and '{second}' are taken for the header, since they never come again"
    with pytest.warns(GraphWarning, match=said):
        graph = door("e.csv")
    assert edges(graph) == {tuple(sorted(pair.split(","))) for pair in NAMES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert door("e.csv", header=False).n_nodes == 8
        assert door("e.csv", header=True).n_nodes == 6
        assert door("e.csv", source=first, target=second).n_nodes == 6


def test_the_words_are_those_of_whoever_asked(here):
    (here / "e.csv").write_text(lines("sender,receiver", *NAMES))
    with pytest.warns(GraphWarning, match="say header=False$"):
        read_graph("e.csv")
    with command_line_words(), pytest.warns(GraphWarning, match="say --no-header$"):
        read_graph("e.csv")


def test_a_first_line_whose_names_come_again_is_an_edge(here, door):
    (here / "e.csv").write_text(lines(*NAMES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert door("e.csv").n_edges == 7


@pytest.mark.parametrize("block", [1 << 22, 7, 64])
def test_names_are_looked_for_in_the_whole_file(here, door, monkeypatch, block):
    monkeypatch.setattr(headers, "_BLOCK", block)
    many = [f"n{i},n{(i * 7 + 1) % 1500}" for i in range(1500)]
    (here / "e.csv").write_text(lines("sender,receiver", *many, "xsender,receivers"))
    with pytest.warns(GraphWarning, match="taken for the header"):
        assert "sender" not in door("e.csv").node_names
    (here / "e.csv").write_text(lines("sender,receiver", *many, "n3,sender"))
    assert "receiver" in door("e.csv").node_names


def test_where_no_name_comes_again_nothing_can_be_told(here, door):
    (here / "e.csv").write_text(lines("a,b", "c,d", "e,f"))
    with pytest.raises(GraphError, match=r"line 1: 'a' and 'b' may be a header or an edge.*header=True or "):
        door("e.csv")
    assert door("e.csv", header=False).n_edges == 3
    assert door("e.csv", header=True).n_edges == 2
    assert door("e.csv", source=1, target=2).n_edges == 3


@pytest.mark.parametrize(
    "header", ["id_1,id_2", "FromNodeId ToNodeId", "node_1 node_2", "alpha,beta", "a\tb", "user;item"]
)
def test_a_table_of_two_columns_needs_no_options(here, door, header):
    mark = next(mark for mark in ",;\t " if mark in header)
    (here / "e.txt").write_text(lines(header, *(f"{a}{mark}{b}" for a, b in CAVES.edges())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = door("e.txt")
    assert (graph.n_nodes, graph.n_edges) == (24, CAVES.number_of_edges())


def test_a_file_of_labels_is_no_graph(here):
    (here / "e.csv").write_text("node,label\n1,0\n2,0\n3,1\n")
    with pytest.raises(GraphError, match="this may be a file of labels"):
        read_graph("e.csv")


def test_headers_in_comments(here, door):
    rows = [f"{a}\t{b}\t{1 + a % 3}\t7" for a, b in CAVES.edges()]
    (here / "e.txt").write_text(lines("# Nodes: 24", "# FromNodeId\tToNodeId\tWeight\tTime", *rows))
    with pytest.warns(GraphWarning, match="the column 'Time' is not used"):
        graph = door("e.txt")
    assert sorted(set(graph.matrix.data)) == [1, 2, 3]
    (here / "k.txt").write_text(lines("% sym unweighted", *(f"{a} {b}" for a, b in CAVES.edges())))
    assert door("k.txt").n_edges == CAVES.number_of_edges()


def routes():
    return lines(*(f"2B,410,A{a},{a},A{b},{b},,0,CR2" for a, b in CAVES.edges()))


@pytest.mark.parametrize("name", ["routes.dat", "routes.data", "routes.dat.gz", "routes.data.gz"])
def test_columns_without_names_go_by_numbers(here, door, name):
    text = routes().encode()
    (here / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    graph = door(name, source=3, target="5")
    assert edges(graph) == {tuple(sorted((f"A{a}", f"A{b}"))) for a, b in CAVES.edges()}
    with pytest.raises(GraphError, match=r"2 or 3 columns expected, found 9; .*such as source=1, target=2"):
        door(name)
    with command_line_words(), pytest.raises(GraphError, match="such as --source 1 --target 2"):
        door(name)
    with pytest.raises(GraphError, match="no column 15: there are 9, counted from 1"):
        door(name, source=3, target=15)
    with pytest.raises(GraphError, match="no column 'from_here' among '2B'"):
        door(name, source="from_here", target=5)


def test_numbers_of_columns_below_a_header(here, door):
    (here / "e.csv").write_text(lines("who,whom,much", *(f"{a},{b},2" for a, b in CAVES.edges())))
    graph = door("e.csv", source=1, target=2, weight=3)
    assert (graph.n_nodes, set(graph.matrix.data)) == (24, {2.0})


def test_the_format_is_said_where_the_name_does_not_tell(here, door):
    (here / "e.bin").write_text(lines(*(f"{a},{b}" for a, b in CAVES.edges())))
    with pytest.raises(GraphError, match=r"unknown kind of file '\.bin'.*format='txt' reads it as a table"):
        read_graph("e.bin")
    assert door("e.bin", format="csv").n_nodes == 24
    nx.write_gml(CAVES, "g.xyz")
    assert door("g.xyz", format="gml").n_nodes == 24
    with pytest.raises(GraphError, match="unknown format 'magic'; known are csv, tsv"):
        door("e.bin", format="magic")


@pytest.mark.parametrize("delimiter", ["\t", " ", ","])
@pytest.mark.parametrize("name", ["g.csv.gz", "g.txt", "g.edgelist.gz"])
def test_attributes_in_braces_under_any_name(here, door, name, delimiter):
    nx.write_edgelist(CAVES, name, delimiter=delimiter)
    assert edges(door(name)) == {tuple(sorted(map(str, edge))) for edge in CAVES.edges()}
    weighted = CAVES.copy()
    nx.set_edge_attributes(weighted, {edge: {"weight": 2, "km": 5} for edge in CAVES.edges()})
    nx.write_edgelist(weighted, name, delimiter=delimiter)
    assert set(door(name).matrix.data) == {2.0}
    assert set(door(name, weight="km").matrix.data) == {5.0}
    assert set(door(name, weight="none").matrix.data) == {1.0}
    with pytest.raises(GraphError, match="line 1: no attribute 'miles' among 'weight', 'km'"):
        door(name, weight="miles")
    with pytest.raises(GraphError, match="the first two words are the ends"):
        door(name, source=3, target=5)


def test_tabs_in_a_file_called_csv(here, door):
    with gzip.open("e.csv.gz", "wt") as handle:
        handle.write(lines(*(f"node {a}\tnode {b}" for a, b in CAVES.edges())))
    assert "node 3" in door("e.csv.gz").node_names


@pytest.fixture
def mat(here):
    matrix = nx.to_scipy_sparse_array(CAVES).astype(float).tocsc()
    cells = np.empty((1, 2), object)
    cells[0, 0], cells[0, 1] = np.eye(24)[:, :5], np.eye(24)[:, :7]
    label = np.eye(4)[np.arange(24) // 6]
    content = {"PAP": matrix, "PLP": matrix * 2, "feature": np.ones((24, 9)), "label": label, "X": cells}
    scipy.io.savemat("d.mat", content)
    (here / "d.mat.gz").write_bytes(gzip.compress((here / "d.mat").read_bytes()))
    return here


@pytest.mark.parametrize("name", ["d.mat", "d.mat.gz"])
def test_variables_of_mat_files(mat, door, name):
    with pytest.raises(
        GraphError, match=r"several variables may be the graph: PAP \(24 x 24\), PLP .*key='PAP'"
    ):
        door(name)
    assert door(name, key=["PAP"]).n_edges == CAVES.number_of_edges()
    layers = read_graph(name, key=["PAP", "PLP"])
    assert isinstance(layers, MultilayerGraph)
    assert layers.layer_names == ("PAP", "PLP")
    with pytest.raises(GraphError, match=r"no variable 'PSP' in it; there are PAP \(24 x 24\)"):
        door(name, key=["PSP"])
    with pytest.raises(GraphError, match=r"the variable 'feature' \(24 x 9\) holds no graph"):
        door(name, key=["feature"])
    assert read_labels(name).tolist() == [i // 6 for i in range(24)]
    assert read_labels(name, column="label").tolist() == [i // 6 for i in range(24)]
    assert read_points(name, key="X:2").coordinates.shape == (24, 7)
    with pytest.raises(GraphError, match=r"several variables may be the points.*\(several are views\)"):
        read_points(name)


def test_mat_files_that_cannot_be_read(here):
    (here / "a.mat").write_bytes(b"junk")
    with pytest.raises(GraphError, match=r"^a\.mat: not a \.mat file that can be read"):
        read_graph("a.mat")
    (here / "h.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    with pytest.raises(GraphError, match=r"version 7\.3 \(HDF5\); save it with -v7"):
        read_graph("h.mat")
    scipy.io.savemat("t.mat", {"name": "text"})
    with pytest.raises(GraphError, match="no variable in it holds a square matrix; there are name"):
        read_graph("t.mat")
    scipy.io.savemat("s.mat", {"W": np.ones((3, 3)) - np.eye(3)})
    assert read_graph("s.mat").n_edges == 3
    with pytest.raises(GraphError, match=r"\.mat files have no columns to choose from; leave source="):
        read_graph("s.mat", source="W")
    (here / "e.csv").write_text("1,2\n2,3\n")
    with pytest.raises(GraphError, match=r"key= is for \.mat files"):
        read_graph("e.csv", key="W")


def test_labels_of_several_columns(here):
    rows = [f'{i},{10**9 + i},"The, {i}",{"wxyz"[i // 6]}' for i in range(24)]
    (here / "l.csv").write_text(lines("id,page_id,page_name,page_type", *rows))
    names, expected = np.arange(24), [i // 6 for i in range(24)]
    assert read_labels("l.csv", names, column="page_type").tolist() == expected
    assert read_labels("l.csv", names, column=4).tolist() == expected
    with pytest.raises(GraphError, match=r"4 columns need a header .* say which holds the labels: column="):
        read_labels("l.csv", names)
    with command_line_words(), pytest.raises(GraphError, match="holds the labels: --label-column"):
        read_labels("l.csv", names)
    with pytest.raises(GraphError, match="no column 'kind' among 'id', 'page_id'"):
        read_labels("l.csv", names, column="kind")
    (here / "bare.csv").write_text(lines(*rows))
    assert read_labels("bare.csv", names, column=4).tolist() == expected


def test_labels_as_communities(here):
    caves = [list(range(6 * i, 6 * i + 6)) for i in range(4)]
    (here / "l.json").write_text(json.dumps({"communities": caves, "algorithm": "lfr"}))
    expected = [i // 6 for i in range(24)]
    assert read_labels("l.json", np.arange(24)).tolist() == expected
    (here / "l.json").write_text(json.dumps({str(i): f"c{i // 6}" for i in range(24)}))
    assert read_labels("l.json", np.arange(24)).tolist() == expected
    (here / "l.json").write_text(json.dumps([[0, 1], [1, 2]]))
    with pytest.raises(GraphError, match="some nodes are in several communities"):
        read_labels("l.json", np.arange(24))
    (here / "l.json").write_text("3")
    with pytest.raises(GraphError, match="neither lists of nodes"):
        read_labels("l.json", np.arange(24))
    (here / "l.json").write_text("{")
    with pytest.raises(GraphError, match=r"l\.json: not JSON"):
        read_labels("l.json", np.arange(24))
    with pytest.raises(GraphError, match=r"\.json files have no columns; leave column= away"):
        read_labels("l.json", column="x")


@pytest.mark.parametrize("header", ["", "a,b"])
def test_points_of_whole_numbers_are_refused(here, door, header):
    points = np.random.default_rng(0).integers(0, 10**6, (2000, 2))
    np.savetxt("p.csv", points, fmt="%d", delimiter=",", header=header, comments="")
    with pytest.raises(GraphError, match="these look like points, not edges"):
        door("p.csv")
    assert door("p.csv", source=1, target=2).n_edges > 1900


def test_points_are_told_by_their_axes(here, door):
    points = np.random.default_rng(0).integers(0, 30, (500, 2))
    np.savetxt("p.csv", points, fmt="%d", delimiter=",", header="x,y", comments="")
    with pytest.raises(GraphError, match="these look like points, not edges"):
        door("p.csv")


def test_points_of_repeated_fractions_are_refused(here, door):
    from sklearn.datasets import load_iris

    iris = load_iris().data
    for columns in ([0, 1], [0, 2], [2, 3]):
        np.savetxt("p.csv", iris[:, columns], fmt="%.1f", delimiter=",")
        with pytest.raises(GraphError, match="these look like points, not edges"):
            door("p.csv")


@pytest.mark.parametrize("n_edges", [3000, 20000])
def test_edges_in_random_order_are_no_points(here, door, n_edges):
    rng = np.random.default_rng(0)
    ids = rng.choice(10**9, 2000, replace=False)  # as sparse as ids of users are
    np.savetxt("e.txt", ids[rng.integers(0, 2000, (n_edges, 2))], fmt="%d")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        assert door("e.txt").n_nodes > 1800
