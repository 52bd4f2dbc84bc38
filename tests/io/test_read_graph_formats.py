"""Files of every kind: what was written is read back, with the same ids; what is broken says so."""

from __future__ import annotations

import gzip
import re
import sys

import igraph
import networkx
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from test_interop import ENDS, IDS, WEIGHTS, edges_of, expected

from spectrograd import (
    Graph,
    GraphError,
    GraphWarning,
    MultilayerGraph,
    read_graph,
    read_labels,
    read_points,
    write_embedding,
    write_graph,
    write_labels,
)
from spectrograd.io import check_graph_path
from spectrograd.io.edge_table import read_table
from spectrograd.system import MissingExtra

ODD = ["#a", 'q"', "a,b", "t", "<b>&", "é"]
IDS_OF_FILES = {"texts": IDS["texts"], "integers": IDS["integers"], "odd": ODD}
TABLES = [".csv", ".tsv", ".csv.gz", ".tsv.zst", ".parquet"]


def make(ids, weights=WEIGHTS):
    source, target = ([ids[edge[side]] for edge in ENDS] for side in (0, 1))
    return Graph.from_edges(source, target, weights)


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", IDS_OF_FILES)
@pytest.mark.parametrize("suffix", [*TABLES, ".npz", ".graphml", ".graphml.gz"])
def test_graphs_come_back_with_their_ids(tmp_path, kind, suffix):
    ids = IDS_OF_FILES[kind]
    write_graph(tmp_path / f"g{suffix}", make(ids))
    graph = read_graph(tmp_path / f"g{suffix}")
    assert edges_of(graph) == expected(ids)
    assert [p.name for p in tmp_path.iterdir()] == [f"g{suffix}"]
    write_graph(tmp_path / f"u{suffix}", make(ids, None))
    assert not read_graph(tmp_path / f"u{suffix}").is_weighted


@pytest.mark.parametrize("suffix", TABLES)
def test_layers_come_back(tmp_path, suffix):
    first = make(IDS["texts"])
    second = Graph.from_edges([0, 1], [1, 2], names=first.names)
    write_graph(tmp_path / f"g{suffix}", MultilayerGraph((first, second), ("a, b", "c")))
    graph = read_graph(tmp_path / f"g{suffix}")
    assert graph.layer_names == ("a, b", "c")
    assert edges_of(graph.layers[0]) == expected(IDS["texts"])
    assert [layer.n_edges for layer in graph.layers] == [7, 2]


def test_matrices_keep_lone_nodes_tables_say_they_do_not(tmp_path):
    graph = Graph.from_edges([0, 1], [1, 2], names=["a", "b", "c", "alone"])
    for name in ("g.npz", "g.graphml"):
        write_graph(tmp_path / name, graph)
        assert set(read_graph(tmp_path / name).node_names.tolist()) == {"a", "b", "c", "alone"}
    with pytest.warns(GraphWarning, match="1 nodes without edges are not in a table"):
        write_graph(tmp_path / "g.csv", graph)
    with pytest.warns(GraphWarning, match=r"g\.mtx: \.mtx files have no room for node names"):
        write_graph(tmp_path / "g.mtx", graph)
    np.testing.assert_array_equal(read_graph(tmp_path / "g.mtx").matrix.toarray(), graph.matrix.toarray())
    assert sp.load_npz(tmp_path / "g.npz").shape == (4, 4)  # scipy reads it too


def test_named_matrices_are_united_by_name(tmp_path):
    write_graph(tmp_path / "a.npz", Graph.from_edges(["x", "y"], ["y", "z"]))
    write_graph(tmp_path / "b.npz", Graph.from_edges(["w"], ["y"]))
    graph = read_graph(tmp_path / "a.npz", tmp_path / "b.npz")
    assert graph.node_names.tolist() == ["w", "x", "y", "z"]
    assert edges_of(graph.layers[1]) == {frozenset("wy"): 1}


def test_other_objects_are_written_as_their_text(tmp_path):
    ids = IDS["tuples"]
    texts = list(map(str, ids))
    graph = Graph.from_edges([i for i, _ in ENDS], [j for _, j in ENDS], WEIGHTS, names=ids)
    for suffix in (".csv", ".parquet", ".npz", ".graphml"):
        write_graph(tmp_path / f"g{suffix}", graph)
        assert edges_of(read_graph(tmp_path / f"g{suffix}")) == expected(texts)
    write_labels(tmp_path / "l.csv", range(6), ids)
    assert read_labels(tmp_path / "l.csv", graph.node_names).tolist() == list(range(6))
    write_embedding(tmp_path / "e.npz", np.eye(6), ids)
    with np.load(tmp_path / "e.npz") as saved:
        assert saved["nodes"].tolist() == texts
    write_embedding(tmp_path / "e.w2v", np.eye(3), [(1,), (2,), "x"])
    lines = (tmp_path / "e.w2v").read_text().splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["(1,)", "(2,)", "x"]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv.zst", ".npz", ".parquet"])
@pytest.mark.parametrize("kind", ["texts", "integers"])
def test_labels_come_back_by_name(tmp_path, suffix, kind):
    names = np.array(IDS[kind])
    write_labels(tmp_path / f"l{suffix}", [3, 1, 2, 0, 5, 4], names)
    assert read_labels(tmp_path / f"l{suffix}", names[::-1]).tolist() == [4, 5, 0, 2, 1, 3]


def test_packed_outputs_are_refused_where_they_make_no_sense(tmp_path):
    for write, values in ((write_embedding, np.eye(2)), (write_labels, [0, 1])):
        with pytest.raises(ValueError, match=r"x\.npz\.gz: \.npz files are not packed; leave \.gz away"):
            write(tmp_path / "x.npz.gz", values)
    for name, message in (("g.xyz", "cannot write '.xyz' files; choose"), ("g.npz.gz", "packed already")):
        with pytest.raises(GraphError, match=re.escape(message)):
            check_graph_path(name)
    layers = MultilayerGraph((make(IDS["texts"]),), ("a",))
    with pytest.raises(GraphError, match=r"g\.npz: \.npz files hold one layer; choose \.csv"):
        write_graph("g.npz", layers)


def test_the_same_data_packs_to_the_same_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_graph(tmp_path / name, make(IDS["texts"]))
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize("text", ["007,010\n010,12\n", '"007","010"\n"010","12"\n', "007 010\n010 12\n"])
def test_padded_numbers_are_names(tmp_path, text):
    (tmp_path / "z.csv").write_text(text)
    assert read_graph(tmp_path / "z.csv").node_names.tolist() == ["007", "010", "12"]


def test_zeros_in_weights_keep_integers(tmp_path):
    (tmp_path / "z.csv").write_text("10,0,0.5\n0,100,1e05\n")
    assert read_table(str(tmp_path / "z.csv")).source.tolist() == [10, 0]


@pytest.mark.parametrize("pack", ["gz", "zst"])
def test_packed_infomap_mpx_and_mtx(tmp_path, pack):
    squeeze = gzip.compress if pack == "gz" else zstd
    texts = {
        "a.net": "*Intra\n1 1 2\n2 2 3\n",
        "a.mpx": "#EDGES\n1,2,x\n2,3,y\n",
        "a.mtx": "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.{pack}").write_bytes(squeeze(text.encode()))
        graph = read_graph(tmp_path / f"{name}.{pack}")
        assert (graph.n_nodes, graph.n_edges) == (3, 2)


@pytest.mark.parametrize("cut", [False, True])
def test_broken_zstd(tmp_path, monkeypatch, cut):
    monkeypatch.chdir(tmp_path)
    whole = zstd("".join(f"{i},{i * 7919 % 1000}\n" for i in range(1, 900)).encode())
    (tmp_path / "e.csv.zst").write_bytes(whole[: len(whole) // 2] if cut else b"not zstd at all")
    with pytest.raises(GraphError, match=r"^e\.csv\.zst: broken zstd file"):
        read_graph("e.csv.zst")


def test_without_pyarrow_zstd_and_parquet_say_what_to_install(tmp_path, monkeypatch):
    write_graph(tmp_path / "g.parquet", make(IDS["texts"]))
    (tmp_path / "g.csv.zst").write_bytes(zstd(b"1,2\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("g.parquet", "g.csv.zst"):
        with pytest.raises(MissingExtra, match=rf"{name}: .* needs .*'pyarrow': pip .*\[interop\]"):
            read_graph(tmp_path / name)
        with pytest.raises(MissingExtra, match=r"pip install spectrograd\[interop\]"):
            write_graph(tmp_path / f"new{name}", make(IDS["texts"]))
    assert len(list(tmp_path.iterdir())) == 2


def test_graphml_of_networkx_and_igraph(tmp_path):
    graph = networkx.Graph()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 0.5)])
    graph.add_node("lone")
    graph.nodes["a"]["colour"] = "red"
    networkx.write_graphml(graph, tmp_path / "n.graphml")
    assert edges_of(read_graph(tmp_path / "n.graphml")) == {frozenset("ab"): 2.0, frozenset("bc"): 0.5}
    assert read_graph(tmp_path / "n.graphml").n_nodes == 4
    made = igraph.Graph(n=3, edges=[(0, 1), (1, 2)], vertex_attrs={"name": ["x", "y", "<z>"]})
    made.write_graphml(str(tmp_path / "i.graphml"))
    assert read_graph(tmp_path / "i.graphml").node_names.tolist() == ["<z>", "x", "y"]
    write_graph(tmp_path / "o.graphml", make(IDS["texts"]))
    back = networkx.read_graphml(tmp_path / "o.graphml")
    assert {frozenset(e[:2]): e[2] for e in back.edges(data="weight")} == expected(IDS["texts"])


GRAPHML = '<graphml><key id="w" for="edge" attr.name="weight"/><graph>{}</graph></graphml>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml><graph>", "a.graphml: not GraphML (no element found"),
        (GRAPHML.format('<node id="a"/>'), "a.graphml: no edges in it"),
        (GRAPHML.format('<edge source="a"/>'), "a.graphml, edge 0: it has no source or no target"),
        (
            GRAPHML.format('<edge source="a" target="b"><data key="w">x</data></edge>'),
            "a.graphml, edge 0: 'x' is not a number (weight)",
        ),
        (
            GRAPHML.format('<edge source="a" target="b"><data key="w">-1</data></edge>'),
            "a.graphml, edge 0: weight -1 must be finite and not negative",
        ),
    ],
)
def test_broken_graphml(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.graphml").write_text(text)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_graph("a.graphml")


def test_broken_parquet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_text("junk")
    with pytest.raises(GraphError, match=r"^a\.parquet: not a Parquet file"):
        read_graph("a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": [2], "c": [3]}), "b.parquet")
    with pytest.raises(GraphError, match=r"^b\.parquet: no columns 'src' and 'dst' among 'a', 'b', 'c'"):
        read_graph("b.parquet")
    with pytest.raises(
        GraphError, match=r"^b\.parquet: columns 'node' and 'label' are needed, found a, b, c"
    ):
        read_labels("b.parquet")


POINTS = np.array([[0.5, 1], [2, 3], [4, -5e-3]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "x,y\n0.5,1\n2,3\n4,-5e-3\n"),
        ("p.csv", "0.5,1\n2,3\n4,-5e-3\n"),
        ("p.txt", "# two\n0.5 1\n2 3\n4 -5e-3\n"),
        ("p.tsv", "a\tb\n0.5\t1\n2\t3\n4\t-5e-3\n"),
    ],
)
def test_points_as_text(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    points = read_points(tmp_path / name)
    np.testing.assert_array_equal(points.coordinates, POINTS)
    assert points.names is None


def test_points_with_names_and_other_columns(tmp_path):
    columns = {"kind": ["a", "b", "c"], "ID": ["p", "q", "r"], "x": POINTS[:, 0], "y": POINTS[:, 1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "p.parquet")
    rows = zip(*columns.values(), strict=True)
    (tmp_path / "p.csv").write_text("kind,ID,x,y\n" + "".join(f"{a},{b},{x},{y}\n" for a, b, x, y in rows))
    for name in ("p.csv", "p.parquet"):
        points = read_points(tmp_path / name, ignore=["kind"])
        np.testing.assert_array_equal(points.coordinates, POINTS)
        assert points.names.tolist() == ["p", "q", "r"]
        with pytest.raises(GraphError, match=r"column 'kind' .*number.* ignore=\['kind'\]"):
            read_points(tmp_path / name)
        with pytest.raises(GraphError, match="no column 'species' to ignore; there are kind, ID, x, y"):
            read_points(tmp_path / name, ignore=["species"])
        with pytest.raises(GraphError, match="no column of coordinates is left"):
            read_points(tmp_path / name, ignore=["kind", "x", "y"])


def test_points_as_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("p.npy", POINTS)
    np.testing.assert_array_equal(read_points("p.npy").coordinates, POINTS)
    write_embedding("e.npz", POINTS, ["a", "b", "c"])
    assert read_points("e.npz").names.tolist() == ["a", "b", "c"]
    np.save("s.npy", np.array(["a"]))
    with pytest.raises(GraphError, match=r"^s\.npy: an array of type <U1 and shape \(1,\)"):
        read_points("s.npy")
    (tmp_path / "j.npy").write_text("junk")
    with pytest.raises(GraphError, match=r"^j\.npy: cannot be read as an array"):
        read_points("j.npy")
    with pytest.raises(GraphError, match=r"^p\.doc: unknown kind of file '\.doc' for points"):
        read_points("p.doc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3\n", "p.csv, line 3: 2 columns expected, found 1"),
        ("x,y\n1,2\n3,?\n", "p.csv, line 3: '?' in column 'y' is not a number; fill it, or ignore=['y']"),
        ("x,y\n", "p.csv: no points in it"),
    ],
)
def test_bad_points(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_points("p.csv")
