"""Embeddings and labels: written whole, read back exactly."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrograd.graph import GraphError
from spectrograd.io import read_graph, read_labels, write_embedding, write_labels
from spectrograd.system import MissingExtra

ODD_NAMES = np.array(["Doe, Ann", 'O"Hara', "#tag", "%x", "José\tM", "名前"])
VECTORS = np.array([[0.1, -1 / 3, 1e-300], [np.pi, 0.0, 2.0]]).repeat(3, axis=0)


def read_csv(path, delimiter=","):
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.reader(handle, delimiter=delimiter))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_embedding_as_table(tmp_path, dtype, suffix, delimiter):
    vectors = VECTORS.astype(dtype)
    write_embedding(tmp_path / f"e{suffix}", vectors, ODD_NAMES)
    header, *rows = read_csv(tmp_path / f"e{suffix}", delimiter)
    assert header == ["node", "e0", "e1", "e2"]
    assert [row[0] for row in rows] == ODD_NAMES.tolist()
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], dtype=dtype), vectors)


def test_embedding_as_arrays(tmp_path):
    write_embedding(tmp_path / "e.npy", VECTORS)
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), VECTORS)
    for names in (ODD_NAMES, ODD_NAMES.astype(object), np.arange(10, 16), None):
        write_embedding(tmp_path / "e.npz", VECTORS, names)
        with np.load(tmp_path / "e.npz", allow_pickle=False) as archive:
            np.testing.assert_array_equal(archive["embedding"], VECTORS)
            assert archive["nodes"].tolist() == (list(range(6)) if names is None else names.tolist())


@pytest.mark.parametrize("suffix", [".w2v", ".vec"])
def test_embedding_as_word2vec(tmp_path, suffix):
    path = tmp_path / f"e{suffix}"
    write_embedding(path, VECTORS[2:4], ["né", "b"])
    first, *rows = path.read_text(encoding="utf-8").splitlines()
    assert first == "2 3"
    assert [row.split(" ")[0] for row in rows] == ["né", "b"]
    np.testing.assert_array_equal([list(map(float, row.split(" ")[1:])) for row in rows], VECTORS[2:4])
    with pytest.raises(ValueError, match="'a b' holds blanks"):
        write_embedding(path, VECTORS[2:4], ["a b", "c"])
    assert path.read_text(encoding="utf-8").startswith("2 3\nné")
    assert os.listdir(tmp_path) == [path.name]


def test_parquet_without_pyarrow_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for write, values in ((write_embedding, VECTORS), (write_labels, np.arange(6))):
        with pytest.raises(
            MissingExtra, match=r"Parquet needs the package 'pyarrow': pip install spectrograd\[interop\]"
        ):
            write(tmp_path / "x.parquet", values)
    assert os.listdir(tmp_path) == []


def test_parquet_with_pyarrow(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_embedding(tmp_path / "e.parquet", VECTORS, ODD_NAMES)
    write_labels(tmp_path / "l.parquet", np.arange(6))
    table = parquet.read_table(tmp_path / "e.parquet").to_pydict()
    assert list(table) == ["node", "e0", "e1", "e2"]
    assert table["node"] == ODD_NAMES.tolist()
    assert table["e1"] == VECTORS[:, 1].tolist()
    assert parquet.read_table(tmp_path / "l.parquet").to_pydict() == {
        "node": list(range(6)),
        "label": list(range(6)),
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz"])
@pytest.mark.parametrize("names", [ODD_NAMES, np.array([5, -3, 10**12, 7, 8, 9])])
def test_labels_come_back_in_any_order(tmp_path, suffix, names):
    labels = np.array([3, 0, 1, -1, 2, 0])
    path = tmp_path / f"l{suffix}"
    write_labels(path, labels, names)
    np.testing.assert_array_equal(read_labels(path, names), labels)
    np.testing.assert_array_equal(read_labels(path, names[::-1]), labels[::-1])
    np.testing.assert_array_equal(read_labels(path), labels)
    assert read_labels(path).dtype == np.int64


def test_label_table_header_and_stream(tmp_path):
    write_labels(str(tmp_path / "l.csv"), [1, 0], ["a", "b"])
    assert (tmp_path / "l.csv").read_bytes() == b"node,label\na,1\nb,0\n"
    stream = io.StringIO()
    write_labels(stream, np.array(["x, y", "z"]), ["a", "b"])
    assert stream.getvalue() == 'node,label\na,"x, y"\nb,z\n'


def test_labels_as_npy(tmp_path):
    write_labels(tmp_path / "l.npy", [1, 0, 2])
    assert np.load(tmp_path / "l.npy").tolist() == [1, 0, 2]
    assert read_labels(tmp_path / "l.npy", ["a", "b", "c"]).tolist() == [1, 0, 2]
    np.save(tmp_path / "s.npy", np.array(["red", "blue", "red"]))
    assert read_labels(tmp_path / "s.npy").tolist() == [1, 0, 1]
    np.save(tmp_path / "f.npy", np.array([1.0, 4.0]))
    assert read_labels(tmp_path / "f.npy").tolist() == [1, 4]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("l.csv", "node,label\nc,red\na,blue\n", [0, -1, 1]),
        ("l.csv", "Label,extra,ID\n7,x,c\n5,y,a\n", [5, -1, 7]),
        ("l.csv", "node,label\na,\nb,4\nc,-1\n", [-1, 4, -1]),
        ("l.csv", "# truth\nb,2\n\na,1\n", [1, 2, -1]),
        ("l.csv", "New York\nParis\nNew York\n", [0, 1, 0]),
        ("l.csv", "label\n3\n2\n1\n", [3, 2, 1]),
        ("l.txt", "3\n2\n1\n", [3, 2, 1]),
        ("l.txt", "b 10\na 9\n", [9, 10, -1]),
        ("l.tsv", "node\tcluster\nb\tx y\na\t\n", [-1, 0, -1]),
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_label_texts(tmp_path, name, text, wanted, gzipped):
    path = tmp_path / (name + ".gz" if gzipped else name)
    path.write_bytes(gzip.compress(text.encode()) if gzipped else text.encode())
    assert read_labels(path, np.array(["a", "b", "c"])).tolist() == wanted


def test_integers_match_as_numbers_and_texts_as_texts(tmp_path):
    (tmp_path / "l.csv").write_text("node,label\n007,1\n8,2\n")
    assert read_labels(tmp_path / "l.csv", np.array([8, 7])).tolist() == [2, 1]
    assert read_labels(tmp_path / "l.csv", np.array(["007", "7", "8"])).tolist() == [1, -1, 2]


def test_labels_from_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("node,label\n2,x\n1,y\n"))
    assert read_labels("-", np.array([1, 2, 3])).tolist() == [1, 0, -1]


NAMES = np.array(["a", "b", "c"])
BAD = [
    ("l.csv", "node,label\na,1\nzed,2\nyak,3\n", NAMES, "l.csv, line 3: node 'zed' is not in the graph"),
    ("l.csv", "node,label\n1,1\nx,2\n", np.array([1, 2]), "l.csv, line 3: node 'x' is not in the graph"),
    ("l.csv", "# t\nnode,label\na,1\na,1\n", NAMES, "l.csv, line 4: node 'a' is listed twice"),
    ("l.csv", "node,label\na,1\nb\n", NAMES, "l.csv, line 3: 2 columns expected, found 1"),
    ("l.csv", "1\n2\n", NAMES, "l.csv: 2 labels for 3 nodes"),
    ("l.csv", "a,b,c\n1,2,3\n", NAMES, "l.csv, line 1: 3 columns need a header with 'node' and 'label'"),
    ("l.csv", "node,label\n", NAMES, "l.csv: no labels in it"),
    ("l.csv", "", NAMES, "l.csv: no labels in it"),
    ("l.csv", "# \0\n", NAMES, "l.csv: no labels in it"),
    ("l.csv", "node,label\na,1\n", np.array(["a", "a"]), "the graph's node names are not unique"),
    ("l.doc", "", NAMES, "l.doc: unknown kind of label file"),
    ("none.csv", None, NAMES, "none.csv: no such file"),
    ("l.npy", "junk", NAMES, "l.npy: cannot be read as labels"),
]


@pytest.mark.parametrize(("name", "text", "names", "message"), BAD)
def test_label_errors(tmp_path, monkeypatch, name, text, names, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_labels(name, names)


def test_label_array_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.eye(2))
    with pytest.raises(GraphError, match=r"^a\.npy: labels have shape \(2, 2\)"):
        read_labels("a.npy")
    np.save("b.npy", np.array([0.5, np.nan]))
    with pytest.raises(GraphError, match=r"^b\.npy: labels must be whole numbers or texts, not float64"):
        read_labels("b.npy")
    np.savez("c.npz", x=[1])
    with pytest.raises(GraphError, match=r"^c\.npz: an \.npz file of labels holds the arrays"):
        read_labels("c.npz")
    write_labels("d.npz", [1, 2], ["a", "zed"])
    with pytest.raises(GraphError, match=r"^d\.npz: node 'zed' is not in the graph"):
        read_labels("d.npz", NAMES)


def test_refusals_to_write(tmp_path):
    with pytest.raises(
        ValueError, match=r"e\.xlsx: cannot write '\.xlsx' files; choose one of \.npy \.npz \.csv"
    ):
        write_embedding(tmp_path / "e.xlsx", VECTORS)
    with pytest.raises(
        ValueError, match=r"cannot write '\.vec' files; choose one of \.csv \.tsv \.npy \.npz \.parquet$"
    ):
        write_labels(tmp_path / "l.vec", [1])
    with pytest.raises(ValueError, match="2 node names for 6 rows"):
        write_embedding(tmp_path / "e.csv", VECTORS, ["a", "b"])
    with pytest.raises(ValueError, match=r"vectors have shape \(3,\)"):
        write_embedding(tmp_path / "e.csv", [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"labels have shape \(6, 3\)"):
        write_labels(tmp_path / "l.csv", VECTORS)
    with pytest.raises(FileNotFoundError, match=r"none.e\.csv: the folder .* does not exist"):
        write_embedding(tmp_path / "none" / "e.csv", VECTORS)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "l.csv"
    write_labels(path, [1])

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_labels(path, [2])
    assert path.read_text() == "node,label\n0,1\n"
    assert os.listdir(tmp_path) == ["l.csv"]


@pytest.mark.skipif(os.name != "posix", reason="links and permission bits")
def test_writing_goes_through_links_and_keeps_to_the_umask(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    old = os.umask(0o027)
    try:
        write_labels(tmp_path / "link.csv", [1])
    finally:
        os.umask(old)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").stat().st_mode & 0o777 == 0o640


def test_names_of_a_graph_fit_its_label_file(tmp_path):
    (tmp_path / "e.csv").write_text('src,dst\n"#a, b",c\nc,7\n')
    graph = read_graph(tmp_path / "e.csv")
    write_labels(tmp_path / "l.csv", [4, 5, 6], graph.node_names)
    assert read_labels(tmp_path / "l.csv", graph.node_names).tolist() == [4, 5, 6]


names_strategy = st.lists(
    st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), min_size=1, max_size=4)
    .map(str.strip)
    .filter(bool),
    min_size=1,
    max_size=8,
    unique=True,
)


@given(names=names_strategy, seed=st.integers(0, 2**32 - 1), suffix=st.sampled_from([".csv", ".tsv", ".npz"]))
def test_random_names_come_back(tmp_path_factory, names, seed, suffix):
    labels = np.random.default_rng(seed).integers(-(2**40), 2**40, len(names))
    path = tmp_path_factory.mktemp("law") / f"l{suffix}"
    write_labels(path, labels, names)
    np.testing.assert_array_equal(read_labels(path, names), labels)
