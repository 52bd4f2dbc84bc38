"""Whatever ``read_graph`` reads, a store made of it holds the same graph."""

from __future__ import annotations

import gzip
import io
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from spectrograd import Graph, GraphError, MultilayerGraph, open_store, read_graph, write_graph
from spectrograd.io.convert import convert
from spectrograd.io.edge_stream import FileSource
from spectrograd.store.edge_batches import IngestSettings

pytest.importorskip("duckdb")
pytestmark = pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")


def convert_to(target, *sources, settings=None, **options):
    convert([str(source) for source in sources], str(target), settings or IngestSettings(), **options)
    return read_graph(target)


def same(made, expected):
    assert type(made) is type(expected)
    if isinstance(made, MultilayerGraph):
        assert made.layer_names == expected.layer_names
        for one, other in zip(made.layers, expected.layers, strict=True):
            same(one, other)
        return
    np.testing.assert_array_equal(made.node_names, expected.node_names)
    assert made.node_names.dtype.kind == expected.node_names.dtype.kind
    assert made.n_edges == expected.n_edges
    np.testing.assert_allclose(made.matrix.toarray(), expected.matrix.toarray(), rtol=1e-7)


TABLES = {
    "plain.csv": "src,dst\n0,1\n1,2\n2,0\n",
    "headless.csv": "5,9\n9,7\n7,5\n7,11\n",
    "weights.tsv": "# made\nfrom\tto\tw\n0\t1\t0.25\n1\t2\t1e-3\n\n2\t0\t7\n",
    "blanks.txt": "0 1\n1   2\n 2\t0\n",
    "semicolons.csv": "src;dst;weight\n0;1;2\n1;2;3\n",
    "both.csv": "src,dst,weight\n0,1,2\n1,0,2\n1,2,3\n2,1,3\n",
    "repeated.csv": "src,dst,weight\n0,1,2\n0,1,2\n1,2,3\n2,1,3\n0,0,1\n",
    "layers.csv": "src,dst,layer\n0,1,b\n1,2,a\n0,2,b\n",
    "numbered.csv": "layer,src,dst,other\n10,0,1,x\n9,1,2,y\n",
    "texts.csv": "src,dst,weight\nann,bob,2\nbob,cid,1.5\n",
    "padded.csv": "src,dst\n007,7\n7,8\n",
    "late.csv": "src,dst\n1,2\n2,3\n3,end\n",
    "quoted.csv": 'src,dst\n"a, b",c\nc,"say ""hi"""\n',
    "words.txt": "ann bob\nbob   cid\n",
    "textlayers.csv": "src,dst,layer\nann,bob,home\nbob,cid,work\n",
    "sparse.csv": "src,dst\n9000000000000000000,3\n3,-4\n",
    "unicode.csv": "src,dst\nzoë,Ωmega\nΩmega,a\n",
    "windows.csv": "src,dst\r\n0,1\r\n1,2\r\n",
    "third.csv": "src,dst,strange\n0,1,5\n1,2,7\n",
    "synonym.csv": "source,target,amount,note\n0,1,5,a\n1,2,7,b\n",
    "noend.csv": "src,dst\n0,1\n1,2",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_give_the_same_graph(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(TABLES[name].encode())
    same(convert_to(tmp_path / "g", path), read_graph(path))


def test_packed_text_and_chunks_give_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("spectrograd.io.edge_stream.CHUNK", 4096)
    rng = np.random.default_rng(0)
    rows = "".join(
        f"{i},{j},{w:.3f}\n"
        for i, j, w in zip(*rng.integers(0, 300, (2, 3000)), rng.random(3000), strict=True)
    )
    path = tmp_path / "big.csv.gz"
    path.write_bytes(gzip.compress(b"src,dst,weight\n" + rows.encode()))
    same(convert_to(tmp_path / "g", path), read_graph(path))


@pytest.mark.parametrize("kind", ["integers", "texts", "layers", "small"])
def test_parquet_gives_the_same_graph(tmp_path, kind):
    columns = {"src": [0, 1, 2, 5], "dst": [1, 2, 0, 2], "weight": [1.0, 0.5, 2.0, 3.0]}
    if kind == "texts":
        columns |= {"src": ["a", "b", "c", "d"], "dst": ["b", "c", "a", "a"]}
    if kind == "layers":
        columns |= {"layer": ["x", "y", "x", "x"]}
    table = pyarrow.table(columns)
    if kind == "small":
        table = pyarrow.table(
            {
                name: pyarrow.array(table[name].to_pylist(), pyarrow.uint8())
                for name in columns
                if name != "weight"
            }
        )
    path = tmp_path / "g.parquet"
    pyarrow.parquet.write_table(table, path)
    same(convert_to(tmp_path / "g", path), read_graph(path))


@pytest.mark.parametrize("suffix", [".npz", ".mtx", ".graphml", ".store"])
def test_other_doors_go_by_way_of_memory(tmp_path, suffix):
    graph = Graph.from_edges([0, 1, 2, 4], [1, 2, 0, 0], [1.0, 2.0, 3.0, 4.0], n_nodes=6)
    path = tmp_path / f"g{suffix}"
    write_graph(path, graph)
    same(convert_to(tmp_path / "made", path), read_graph(path))


def test_several_files_are_layers_or_parts(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "one.csv").write_text("src,dst\n0,1\n1,2\n")
    (folder / "two.csv").write_text("src,dst\n2,3\n3,0\n")
    files = [folder / "one.csv", folder / "two.csv"]
    same(convert_to(tmp_path / "layers", *files), read_graph(*files))
    ring = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    for number, (sources, options) in enumerate(
        [([folder], {}), ([folder / "*.csv"], {}), (files, {"parts": True})]
    ):
        made = convert_to(tmp_path / f"parts{number}", *sources, **options)
        assert (made.matrix != ring.matrix).nnz == 0
    both = convert_to(tmp_path / "both", folder, folder / "one.csv")
    assert both.layer_names == ("parts", "one")


def test_columns_by_name_and_nodes_without_edges(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("when,a,b,src,much\n1,0,1,77,2\n2,1,3,78,4\n")
    columns = {"src": "a", "dst": "b", "weight": "much"}
    made = convert_to(tmp_path / "g", path, columns=columns, n_nodes=6)
    assert (made.n_nodes, made.n_edges, made.matrix[1, 3]) == (6, 2, 4)
    table = pyarrow.table({"a": [0, 1], "b": [1, 3], "much": [2.0, 4.0]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    made = convert_to(tmp_path / "h", tmp_path / "t.parquet", columns=columns)
    assert made.matrix[1, 2] == 4
    assert made.node_names.tolist() == [0, 1, 3]
    with pytest.raises(GraphError, match="no column 'nowhere' among"):
        convert_to(tmp_path / "i", path, columns={"src": "nowhere"})
    with pytest.raises(GraphError, match=r"id 3 is outside 0\.\.1"):
        convert_to(tmp_path / "i", path, columns=columns, n_nodes=2)


def test_standard_input(tmp_path, monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(b"0 1\n1 2\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert convert_to(tmp_path / "g", "-").n_edges == 2
    stdin.buffer = io.BytesIO(b"0,1,1\n1,2\n")
    with pytest.raises(GraphError, match=r"^standard input, line 2: 3 columns expected, found 2"):
        convert_to(tmp_path / "h", "-")
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("src,dst\n0,1\n2,", r"bad\.csv, line 3: a column is empty"),  # it ends in the middle of a row
        ("src,dst\n0,1\n2\n", r"bad\.csv, line 3: 2 columns expected, found 1"),
        ("src,dst,weight\n0,1,1\n\n1,2,-3\n", r"bad\.csv, line 4: weight -3 must be finite and not negative"),
        ("src,dst,weight\n0,1,nan\n", r"bad\.csv, line 2: weight nan"),
        ("src,dst,weight\n0,1,heavy\n", r"bad\.csv, line 2: 'heavy' is not a number"),
        ("src,dst,weight\n0,1,\n", r"bad\.csv, line 2: a column is empty"),
        ("", r"bad\.csv: empty"),
        ("src,dst\n", r"bad\.csv: empty, no edges"),
        ("1,2,3,4\n", r"bad\.csv, line 1: 2 or 3 columns expected, found 4"),
        ("src,dst\na,b\nc\n", r"bad\.csv, line 3: 2 columns expected, as in the header, found 1"),
        ("src,dst,weight\na,b,-1\n", r"bad\.csv, line 2: weight -1 is negative"),
        ("src,dst\na,\n", r"bad\.csv, line 2: the dst column is empty"),
    ],
)
def test_faults_are_named(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(GraphError, match=message):
        convert_to(tmp_path / "g", path)
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize("texts", [False, True])
def test_a_source_that_changes_while_it_is_read(tmp_path, texts):
    path = tmp_path / "grows.csv"
    path.write_text("src,dst\n0,1\n1,2\n")
    source = FileSource({"graph": [str(path)]})
    assert len(list(source.batches(texts=texts))) == 1
    batches = source.batches(texts=texts)
    next(batches)
    with open(path, "a") as handle:
        handle.write("2,3\n")
    with pytest.raises(GraphError, match=r"grows\.csv: changed while it was read"):
        list(batches)
    with pytest.raises(GraphError, match=r"grows\.csv: changed while it was read"):
        list(source.batches(texts=True))  # in the second pass it is another file than in the first


def test_faults_of_parquet_are_named(tmp_path):
    path = tmp_path / "bad.parquet"
    cases = [
        ({"src": [0, None], "dst": [1, 2]}, "row 1: the column 'src' is empty"),
        ({"src": [0], "dst": [1], "weight": [-1.0]}, "row 0: weight -1.0"),
        ({"a": [0], "b": [1], "c": [2]}, "no columns 'src' and 'dst'"),
        ({"src": [0.5], "dst": [1.5]}, "ids are fractions"),
    ]
    for columns, message in cases:
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(GraphError, match=message):
            convert_to(tmp_path / "g", path)
    path.write_text("no parquet")
    with pytest.raises(GraphError, match="not a Parquet file"):
        convert_to(tmp_path / "g", path)


def test_first_means_the_first_line_with_text_ids_too(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("src,dst,weight\n" + "".join(f"a,b,{w}\nb,c,{w + 1}\n" for w in range(1, 200)))
    made = convert_to(tmp_path / "g", path, settings=IngestSettings(duplicates="first"))
    assert (made.matrix[0, 1], made.matrix[1, 2]) == (1, 2)


def test_a_store_is_never_overwritten_unasked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("0,1\n")
    convert_to(tmp_path / "g", path)
    with pytest.raises(GraphError, match="--force"):
        convert_to(tmp_path / "g", path)
    assert open_store(tmp_path / "g").n_edges == 1
