"""Good files of every format, damaged: what comes out is a graph, or one clear error with the file's name."""

from __future__ import annotations

import gzip
import warnings
from functools import partial

import networkx
import numpy as np
import pyarrow.parquet
import pytest

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.io import read_graph, read_labels, read_points, write_embedding, write_graph, write_labels

PER_FILE = 60
RING = Graph.from_edges(range(12), [(i + 1) % 12 for i in range(12)], np.linspace(0.5, 3, 12))
NAMED = Graph.from_edges([f"n{i}" for i in range(12)], [f"n{(i + 5) % 12}" for i in range(12)])
LAYERS = MultilayerGraph((RING, RING), ("a", "b"))
INFOMAP = '*Vertices 3\n1 "ann"\n2 "bob"\n3 "cid"\n*Intra\n1 1 2 0.5\n1 2 3 1\n2 1 3 2\n'
MPX = "#TYPE multiplex\n#LAYERS\na,UNDIRECTED\n#EDGE ATTRIBUTES\nweight,NUMERIC\n#EDGES\nx,y,a,2\ny,z,a,1\n"


def _networkx_graphml(path):
    networkx.write_graphml(networkx.karate_club_graph(), path)


def _text(content, path):
    path.write_bytes(gzip.compress(content.encode(), mtime=0) if path.suffix == ".gz" else content.encode())


GRAPHS = {
    **{
        f"ring{kind}": partial(write_graph, graph=RING)
        for kind in (".csv", ".tsv.gz", ".csv.zst", ".parquet")
    },
    **{
        f"named{kind}": partial(write_graph, graph=NAMED) for kind in (".csv", ".npz", ".parquet", ".graphml")
    },
    **{f"layers{kind}": partial(write_graph, graph=LAYERS) for kind in (".csv", ".parquet")},
    **{f"matrix{kind}": partial(write_graph, graph=RING) for kind in (".npz", ".mtx", ".mtx.gz")},
    "karate.graphml": _networkx_graphml,
    "a.net": partial(_text, INFOMAP),
    "a.mpx": partial(_text, MPX),
    "b.mpx.gz": partial(_text, MPX),
    "dense.mtx": partial(_text, "%%MatrixMarket matrix array real symmetric\n3 3\n0\n2\n0\n0\n5E-1\n0\n"),
}
LABELS = {
    f"labels{kind}": partial(write_labels, labels=np.arange(12) % 3, names=RING.node_names)
    for kind in (".csv", ".npy", ".npz", ".parquet")
}
POINTS = {
    f"points{kind}": partial(write_embedding, vectors=np.linspace(-1, 1, 24).reshape(12, 2))
    for kind in (".csv", ".npy", ".npz", ".parquet")
}
CASES = [
    *((name, make, read_graph) for name, make in GRAPHS.items()),
    *((name, make, partial(read_labels, names=RING.node_names)) for name, make in LABELS.items()),
    *((name, make, read_points) for name, make in POINTS.items()),
]


def damaged(content, rng):
    """The bytes cut off, flipped, overwritten, repeated, and with larger numbers in them."""
    size = len(content)
    for cut in np.linspace(0, size - 1, PER_FILE // 4).astype(int):
        yield content[:cut]
    for _ in range(PER_FILE // 4):
        at, bit = int(rng.integers(size)), 1 << int(rng.integers(8))
        yield content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
    for filler in (
        b"\0\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"-",
        b"nan",
        b'"',
        b"\n",
        b"&zz",
        b"1e999",
    ):
        at = int(rng.integers(size))
        yield content[:at] + filler + content[at + len(filler) :]
        yield content[:at] + filler + content[at:]
    for digit in b"0123456789":
        yield content.replace(bytes([digit]), b"999999999999999", 1)
    yield content + content
    yield content[size // 2 :] + content[: size // 2]
    yield b"\0" * size
    yield b""


def check(read, path):
    """Read; 1 if there is an error, which must be ours and name the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
            return 0
        except GraphError as error:
            message = str(error)
    assert path.name in message
    assert "\n" not in message
    return 1


@pytest.mark.parametrize(("name", "make", "read"), CASES, ids=[case[0] for case in CASES])
def test_damage_is_an_error_with_the_name_of_the_file(tmp_path, name, make, read):
    path = tmp_path / name
    make(path)
    content = path.read_bytes()
    assert check(read, path) == 0
    errors = 0
    for bad in damaged(content, np.random.default_rng(0)):
        path.write_bytes(bad)
        errors += check(read, path)
    assert errors > PER_FILE // 4


def _huge(path, entries, **arrays):
    """An .npz whose first array claims so many entries, with two in it."""
    import io
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                stream, np.lib.format.header_data_from_array_1_0(array) | entries
            )
            archive.writestr(f"{name}.npy", stream.getvalue() + array.tobytes())


def test_headers_that_claim_more_than_is_there(tmp_path):
    path = tmp_path / "a.npz"
    _huge(path, {"shape": (10**15,)}, labels=np.arange(2), nodes=np.arange(2))
    with pytest.raises(
        GraphError, match=r"a\.npz: .*'nodes' claims 1,000,000,000,000,000 entries of 8 bytes, 16"
    ):
        read_labels(path)
    path = tmp_path / "a.npy"
    stream = path.open("wb")
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**8, 10**7)}
    )
    stream.close()
    with pytest.raises(GraphError, match=r"a\.npy: .* claims 1,000,000,000,000,000 entries"):
        read_points(path)


def test_pickles_are_never_opened_and_the_file_is_named(tmp_path):
    write_graph(tmp_path / "g.npz", RING)
    with np.load(tmp_path / "g.npz") as archive:
        arrays = {name: archive[name] for name in archive.files if name != "names"}
    np.savez(tmp_path / "g.npz", **arrays, names=np.array([{}] * 12, dtype=object))
    with pytest.raises(
        GraphError, match=r"g\.npz: the names .* holds Python objects \(a pickle\), which are never"
    ):
        read_graph(tmp_path / "g.npz")


def test_labels_shorter_than_nodes(tmp_path):
    np.savez(tmp_path / "l.npz", nodes=np.arange(12), labels=np.arange(5))
    with pytest.raises(GraphError, match=r"l\.npz: 5 labels for 12 nodes"):
        read_labels(tmp_path / "l.npz", RING.node_names)


def test_graphml_of_an_unknown_encoding(tmp_path):
    (tmp_path / "g.graphml").write_text('<?xml version="1.0" encoding="utf-77"?><graphml/>')
    with pytest.raises(GraphError, match=r"g\.graphml: not GraphML \("):
        read_graph(tmp_path / "g.graphml")


def test_parquet_columns_that_are_no_ids(tmp_path):
    table = pyarrow.table({"src": [[1], [2]], "dst": [[2], [3]]})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(GraphError, match=r"e\.parquet, row 0: .*'src' holds a ndarray"):
        read_graph(tmp_path / "e.parquet")


@pytest.mark.parametrize("name", ["e.csv.gz", "e.mtx.gz", "e.csv"])
def test_lines_without_end_are_refused_before_they_fill_the_memory(tmp_path, name):
    import tracemalloc

    header = b"%%MatrixMarket matrix coordinate real general\n3 3 2\n" if "mtx" in name else b"1,2\n"
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "wb") as handle:
        handle.write(header)
        for _ in range(20):
            handle.write(bytes(10_000_000))
    tracemalloc.start()
    with pytest.raises(GraphError, match=rf"{name}, line [23]: longer than the limit of 16 MB"):
        read_graph(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6
