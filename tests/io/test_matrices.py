"""Adjacency matrices from .npz and .mtx files."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.io import read_graph

PATH = sp.csr_array(np.array([[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
def test_npz_of_every_sparse_kind(tmp_path, kind, container):
    sp.save_npz(tmp_path / "a.npz", container(PATH).asformat(kind))
    graph = read_graph(tmp_path / "a.npz")
    assert isinstance(graph, Graph)
    assert graph.names is None
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH.toarray())


MTX = {
    "symmetric real": ("coordinate real symmetric\n3 3 2\n2 1 2\n3 2 0.5\n", PATH.toarray()),
    "general": ("coordinate real general\n% note\n3 3 4\n2 1 2\n1 2 2\n3 2 0.5\n2 3 0.5\n", PATH.toarray()),
    "pattern": ("coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n", (PATH.toarray() > 0) * 1.0),
    "integer": ("coordinate integer symmetric\n3 3 1\n2 1 7\n", [[0, 7, 0], [7, 0, 0], [0, 0, 0]]),
    "comments": ("coordinate real general\n3 3 4\n\n2 1 2\n%x\n 1 2 2\r\n3\t2 5e-1\n2 3 .5", PATH.toarray()),
    "lower triangle": ("array real symmetric\n3 3\n0\n2\n0\n0\n.5\n0\n", PATH.toarray()),
    "dense": ("array real general\n2 2\n0\n3\n3\n0\n", [[0, 3], [3, 0]]),
}


@pytest.mark.parametrize("kind", MTX)
@pytest.mark.parametrize("gzipped", [False, True])
def test_matrix_market_headers(tmp_path, kind, gzipped):
    body, wanted = MTX[kind]
    text = ("%%MatrixMarket matrix " + body).encode()
    path = tmp_path / ("a.mtx.gz" if gzipped else "a.mtx")
    path.write_bytes(gzip.compress(text) if gzipped else text)
    np.testing.assert_array_equal(read_graph(path).matrix.toarray(), wanted)


@settings(deadline=None)
@given(
    n_nodes=st.integers(2, 9),
    edges=st.dictionaries(st.tuples(st.integers(0, 8), st.integers(0, 8)), st.floats(1e-9, 1e9), max_size=20),
)
def test_random_graphs_come_back_from_npz_and_mtx(tmp_path_factory, n_nodes, edges):
    dense = np.zeros((n_nodes, n_nodes))
    for (i, j), weight in edges.items():
        if i != j and max(i, j) < n_nodes:
            dense[i, j] = dense[j, i] = weight
    folder = tmp_path_factory.mktemp("law")
    sp.save_npz(folder / "a.npz", sp.csr_array(dense))
    scipy.io.mmwrite(folder / "a.mtx", sp.coo_array(dense), precision=17)
    for name in ("a.npz", "a.mtx"):
        np.testing.assert_array_equal(read_graph(folder / name).matrix.toarray(), dense)


def test_several_matrices_are_layers(tmp_path):
    sp.save_npz(tmp_path / "a.npz", PATH)
    scipy.io.mmwrite(tmp_path / "b.mtx", sp.coo_array(2 * PATH))
    graph = read_graph(tmp_path / "a.npz", tmp_path / "b.mtx")
    assert isinstance(graph, MultilayerGraph)
    assert graph.layer_names == ("a", "b")
    np.testing.assert_array_equal(graph.layers[1].matrix.toarray(), 2 * PATH.toarray())


def test_layers_must_fit_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sp.save_npz("a.npz", PATH)
    sp.save_npz("b.npz", PATH[:2, :2])
    (tmp_path / "c.csv").write_text("1,2\n")
    with pytest.raises(GraphError, match=r"^b\.npz has 2 nodes, a\.npz has 3"):
        read_graph("a.npz", "b.npz")
    with pytest.raises(GraphError, match=r"^a\.npz is a matrix without node names, c\.csv is an edge list"):
        read_graph("c.csv", "a.npz")


def _save_bad_index(path):
    np.savez(
        path,
        format=b"csr",
        shape=[2, 2],
        data=[1.0, 1.0],
        indices=np.array([1, 99]),
        indptr=np.array([0, 1, 2]),
    )


COORDINATES, ARRAY = b"coordinate real general\n3 3 2\n1 2 1\n", b"array integer general\n"
BAD_MTX = [  # the first three crash scipy's reader, the next two it reads as something else
    (COORDINATES + b"3 2 4E-", ", line 4: '4E-' is not a number"),
    (COORDINATES + b"3 2 \0\0", r", line 4: '\x00\x00' is not a number"),
    (ARRAY + b"0 0\n", ": the graph is empty"),
    (COORDINATES + b"3 2 4&zz\n", ", line 4: '4&zz' is not a number"),
    (b"array real symmetric\n3 3\n0\n1\n0\n", ": line 2 claims 6 entries, 3 are there; the file was cut off"),
    (COORDINATES + b"3 2 4-5\n", ", line 4: '4-5' is not a number"),
    (COORDINATES + b"3 2\n4 5 6 7\n", ", line 4: 3 numbers expected, found 2"),
    (COORDINATES, ": line 2 claims 2 entries, 1 are there"),
    (COORDINATES + b"3 2 1\n\n% x\n1 3 1\n", ", line 7: more entries than the 2 of line 2"),
    (COORDINATES + b"3 4 1\n", ", line 4: column 4 is not one of 1..3"),
    (COORDINATES + b"1.5 3 1\n", ", line 4: row 1.5 is not one of 1..3"),
    (COORDINATES + b"1 3 -1\n", ": weight of edge (0, 2) is -1.0: negative"),
    (COORDINATES + b"1 3 nan\n", ": weight of edge (0, 2) is nan: not finite"),
    (
        b"coordinate real general\n3 3 1000000000000000\n1 2 1\n",
        ": line 2 claims 1,000,000,000,000,000 entries",
    ),
    (b"coordinate real general\n1000000000 1000000000 1\n1 2 1\n", ", line 2: claims 1,000,000,000 nodes"),
    (b"array real general\n10000000 10000000\n1\n", ": line 2 claims 100,000,000,000,000 entries"),
    (b"coordinate complex general\n", ", line 1: complex weights; real weights are needed"),
    (b"coordinate real skew-symmetric\n", ", line 1: skew-symmetric matrices have negative weights"),
    (b"coordinate real symmetric\n2 3 1\n", ", line 2: 2 x 3 is not square"),
    (b"coordinate real general\n-1 3 1\n", ", line 2: '-1 3 1' are no sizes"),
    (b"array pattern general\n1 1\n", ", line 1: an array cannot be a pattern"),
]

BAD = {
    "a.npz": [
        (
            lambda p: np.savez(p, x=[1], y=[2]),
            "a.npz: not a sparse matrix as saved by scipy.sparse.save_npz (it holds the arrays x, y)",
        ),
        (
            lambda p: p.write_bytes(b"junk"),
            "a.npz: not a sparse matrix as saved by scipy.sparse.save_npz (not an",
        ),
        (
            _save_bad_index,
            "a.npz: broken sparse matrix: column index 99 of entry 1 is outside 0..1",
        ),
        (lambda p: sp.save_npz(p, -PATH), "a.npz: weight of edge (0, 1) is -2.0: negative"),
        (lambda p: sp.save_npz(p, PATH[:2]), "a.npz: adjacency matrix has shape (2, 3)"),
        (lambda p: sp.save_npz(p, PATH * 1j), "a.npz: the matrix has type complex128"),
        (lambda p: None, "a.npz: no such file"),
    ],
    "a.mtx": [
        (lambda p: p.write_text("hello\n"), "a.mtx, line 1: not a MatrixMarket file; it begins with"),
        (
            lambda p: p.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 3\n"),
            "a.mtx, line 3: 'x' is not a number",
        ),
        (lambda p: p.write_text(""), "a.mtx, line 1: not a MatrixMarket file"),
        *(
            (lambda p, text=text: p.write_bytes(b"%%MatrixMarket matrix " + text), f"a.mtx{message}")
            for text, message in BAD_MTX
        ),
    ],
    "a.mtx.gz": [(lambda p: p.write_bytes(b"hello\n"), "a.mtx.gz: broken gzip file (")],
}


@pytest.mark.parametrize(
    ("name", "make", "message"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_errors_name_the_file(tmp_path, monkeypatch, name, make, message):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_graph(name)


def test_repairs_name_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sp.save_npz("a.npz", sp.csr_array(np.array([[0, 1.0], [3.0, 0]])))
    with pytest.warns(GraphWarning, match=r"^a\.npz: the adjacency matrix is not symmetric"):
        assert read_graph("a.npz").matrix[0, 1] == 2.0
