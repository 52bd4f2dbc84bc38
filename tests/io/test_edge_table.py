"""Edge lists: every way to write the same graph."""

from __future__ import annotations

import gzip
import io
import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.io import read_graph
from spectrograd.io.edge_table import read_table


def edges_of(graph):
    """The graph as {(name, name): weight}, each edge once."""
    coo = graph.matrix.tocoo()
    names = graph.node_names.tolist()
    return {(names[i], names[j]): w for i, j, w in zip(coo.row, coo.col, coo.data, strict=True) if i < j}


TRIANGLE = {(1, 2): 0.5, (2, 3): 2.0, (1, 30): 1.0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "1,2,0.5\n2,3,2\n1,30,1\n"),
        ("e.csv", "src,dst,weight\n1,2,0.5\n2,3,2\n1,30,1\n"),
        ("e.csv", "Weight,TO,From\n0.5,1,2\n2,2,3\n1,1,30\n"),
        ("e.csv", "source;target;value\r\n1;2;0.5\r\n2;3;2\r\n1;30;1\r\n"),
        ("e.csv", "u,v,w\n\n1, 2 ,0.5\n# note, with, commas\n2,3,2\n1,30,1"),
        ("e.csv", '"node1","node2","w"\n"1","2","0.5"\n"2","3","2"\n"1","30","1"\n'),
        ("e.csv", "id,source,target,kind,weight\nx,1,2,a b,0.5\ny,2,3,,2\nz,1,30,c,1\n"),
        ("e.csv", "\ufeffsrc,dst,weight\n1,2,0.5\n2,3,2\n1,30,1\n"),
        ("e.csv", "1 2 0.5\n2 3 2\n1 30 1\n"),
        ("e.tsv", "src\tdst\tweight\n1\t2\t0.5\n2\t3\t2\n1\t30\t1\n"),
        ("e.txt", "% a\n# b\n\n1 2 0.5\n2\t3  2\n 1 30 1 \n"),
        ("e.txt", "1 2\t0.5\n2 3\t2\n1 30\t1\n"),
        ("e.edges", "1 2 0.5\n% middle\n2 3 2\n   \n1 30 1\n"),
        ("e.el", "1\t2\t5e-1\n2\t3\t2\n+1\t30\t1\n"),
        ("E.CSV", "1,2,0.5\n2,3,2\n1,30,1\n"),
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_the_same_graph_in_every_spelling(tmp_path, name, text, gzipped):
    path = tmp_path / (name + ".gz" if gzipped else name)
    path.write_bytes(gzip.compress(text.encode()) if gzipped else text.encode())
    graph = read_graph(path)
    assert isinstance(graph, Graph)
    assert graph.node_names.dtype == np.int64
    assert edges_of(graph) == TRIANGLE


def test_two_columns_are_an_unweighted_graph(tmp_path):
    path = tmp_path / "e.txt"
    path.write_text("10 2\n2 3\n")
    graph = read_graph(str(path))
    assert not graph.is_weighted
    assert edges_of(graph) == {(2, 10): 1.0, (2, 3): 1.0}


def test_bulk_and_slow_parse_agree(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = [
        f"{a},{b},{w!r},{c}\n"
        for a, b, w, c in zip(
            rng.integers(-9, 9, 50),
            rng.integers(-9, 9, 50),
            rng.random(50).tolist(),
            rng.integers(8, 12, 50),
            strict=True,
        )
    ]
    quick, slow = tmp_path / "quick.csv", tmp_path / "slow.csv"
    quick.write_text("src,dst,weight,layer\n" + "".join(lines))
    slow.write_text("src,dst,weight,layer\n" + "".join(lines[:25]) + "\f\n" + "".join(lines[25:]))
    slowly = read_table(str(slow))
    monkeypatch.setattr("spectrograd.io.edge_table._read_slowly", None)
    quickly = read_table(str(quick))
    for column in ("source", "target", "weight", "layer"):
        np.testing.assert_array_equal(getattr(quickly, column), getattr(slowly, column))
        assert getattr(quickly, column).dtype == getattr(slowly, column).dtype
    with pytest.raises(TypeError):  # the form feed did send the other file through the slow scan
        read_table(str(slow))


@pytest.mark.parametrize("big", [10**6, 10**15])
def test_ids_far_apart_and_close_together(tmp_path, big):
    path = tmp_path / "e.csv"
    path.write_text(f"-5,{big}\n7,-5\n")
    graph = read_graph(path)
    assert graph.node_names.tolist() == [-5, 7, big]
    assert edges_of(graph) == {(-5, big): 1.0, (-5, 7): 1.0}


def test_names_with_commas_quotes_blanks_and_accents(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('src,dst\n"Doe, Ann","O""Hara"\nJosé Müller,"Doe, Ann"\n"#1",名前\n', encoding="utf-8")
    graph = read_graph(path)
    assert set(edges_of(graph)) == {
        ("Doe, Ann", 'O"Hara'),
        ("Doe, Ann", "José Müller"),
        ("#1", "名前"),
    }
    assert graph.node_names.tolist() == sorted(["Doe, Ann", 'O"Hara', "José Müller", "#1", "名前"])


def test_quoted_names_between_blanks_and_commas_between_tabs(tmp_path):
    words, tabs, text = tmp_path / "a.txt", tmp_path / "b.tsv", tmp_path / "c.txt"
    words.write_text('"ann lee" bob 2\nbob cid 1\n')
    tabs.write_text("Doe, Ann\tbob\n")
    text.write_text("Doe, Ann\tbob lee\n")
    assert edges_of(read_graph(words)) == {("ann lee", "bob"): 2.0, ("bob", "cid"): 1.0}
    assert edges_of(read_graph(tabs)) == {("Doe, Ann", "bob"): 1.0}
    assert edges_of(read_graph(text)) == {("Doe, Ann", "bob lee"): 1.0}
    tabs.write_text("1 2\t3 4\n")
    assert edges_of(read_graph(tabs)) == {("1 2", "3 4"): 1.0}


@pytest.mark.parametrize("odd", ["1_2", "1.0", "99999999999999999999", "x"])
def test_one_odd_id_makes_all_of_them_texts(tmp_path, odd):
    path = tmp_path / "e.csv"
    path.write_text(f"1,2\n007,{odd}\n")
    assert set(read_graph(path).node_names.tolist()) == {"1", "2", "007", odd}


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffann,bob,2\nbob,cid,1\n"))
    assert edges_of(read_graph("-")) == {("ann", "bob"): 2.0, ("bob", "cid"): 1.0}
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2 1\n3 4 -1\n"))
    with pytest.raises(GraphError, match=r"^standard input, line 2: weight -1 is negative"):
        read_graph("-")


def test_layer_column_makes_a_multilayer_graph(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("layer,src,dst,weight\n10,a,b,1\n9,b,c,2\n10,c,d,3\n")
    graph = read_graph(path)
    assert isinstance(graph, MultilayerGraph)
    assert graph.layer_names == ("9", "10")
    assert graph.node_names.tolist() == ["a", "b", "c", "d"]
    assert [edges_of(layer) for layer in graph.layers] == [
        {("b", "c"): 2.0},
        {("a", "b"): 1.0, ("c", "d"): 3.0},
    ]


def test_long_layer_names_are_not_cut(tmp_path):
    path = tmp_path / "e.csv"
    long = ["x" * 40 + "1", "x" * 40 + "2"]
    path.write_text(f"src,dst,layer\n1,2,{long[0]}\n2,3,{long[1]}\n")
    assert read_graph(path).layer_names == tuple(long)


def test_one_layer_in_the_column_is_still_multilayer(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("src,dst,layer\n1,2,only\n")
    graph = read_graph(path)
    assert isinstance(graph, MultilayerGraph)
    assert graph.layer_names == ("only",)


def test_layers_are_united_by_name(tmp_path):
    (tmp_path / "x").mkdir()
    first, second, third = tmp_path / "calls.csv", tmp_path / "x" / "calls.csv.gz", tmp_path / "mail.tsv"
    first.write_text("b,c\na,b\n")
    second.write_bytes(gzip.compress(b"src,dst,weight\nd,b,4\n"))
    third.write_text("src\tdst\tlayer\n1\ta\tday\n1\tb\tnight\n")
    graph = read_graph(first, second, third)
    assert graph.layer_names == ("calls", "calls-2", "mail:day", "mail:night")
    assert graph.node_names.tolist() == ["1", "a", "b", "c", "d"]
    assert [edges_of(layer) for layer in graph.layers] == [
        {("b", "c"): 1.0, ("a", "b"): 1.0},
        {("b", "d"): 4.0},
        {("1", "a"): 1.0},
        {("1", "b"): 1.0},
    ]
    assert graph.layers[1].isolated.tolist() == [0, 1, 3]


def test_integer_layers_stay_integers(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "b.csv").write_text("2,10\n")
    graph = read_graph(tmp_path / "a.csv", tmp_path / "b.csv")
    assert graph.node_names.tolist() == [1, 2, 10]
    assert graph.layer_names == ("a", "b")


def test_repairs_name_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("1,1\n1,2\n")
    (tmp_path / "b.csv").write_text("src,dst,layer\n1,2,x\n1,2,x\n")
    with pytest.warns(GraphWarning, match=r"^a\.csv: 1 self loops dropped") as caught:
        read_graph("a.csv")
    assert caught[0].filename == __file__
    with pytest.warns(GraphWarning, match=r"^b\.csv, layer 'x': 1 repeated edges"):
        read_graph("b.csv")


def test_a_header_that_could_be_an_edge_is_mentioned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text("u,v\nv,w\n")
    with pytest.warns(
        GraphWarning, match=r"^e\.csv, line 1: taken as the header, though 'v' is a node"
    ) as caught:
        assert edges_of(read_graph("e.csv")) == {("v", "w"): 1.0}
    assert caught[0].filename == __file__
    (tmp_path / "e.csv").write_text("u,v\n1,2\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_graph("e.csv")


ids = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9)).map(str) | st.text(
    st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), min_size=1, max_size=5
).filter(lambda text: text == text.strip() and text)


@given(
    edges=st.dictionaries(st.tuples(ids, ids), st.floats(1e-300, 1e300), min_size=1, max_size=12),
    delimiter=st.sampled_from([",", "\t", ";"]),
)
def test_random_edges_come_back_from_csv(tmp_path_factory, edges, delimiter):
    path = tmp_path_factory.mktemp("law") / "e.csv"
    quoted = ['"' + text.replace('"', '""') + '"' for edge in edges for text in edge]
    weights = list(edges.values())
    rows = [delimiter.join([*quoted[2 * i : 2 * i + 2], repr(w)]) for i, w in enumerate(weights)]
    path.write_text("\n".join([delimiter.join(["src", "dst", "weight"]), *rows]), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        texts = [text for edge in edges for text in edge]
        if all(re.fullmatch("[+-]?[0-9]+", text, re.ASCII) for text in texts):
            texts = list(map(int, texts))
        wanted = Graph.from_edges(texts[::2], texts[1::2], weights)
        graph = read_graph(path)
    assert graph.node_names.tolist() == wanted.node_names.tolist()
    assert edges_of(graph) == edges_of(wanted)


def test_characters_that_crash_the_bulk_parser_never_reach_it(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("1,2\n\U0010ffff,3\n", encoding="utf-8")  # np.loadtxt: segmentation fault
    assert read_graph(path).node_names.tolist() == ["1", "2", "3", "\U0010ffff"]
