"""Bulk parsers of text tables read what the careful scan reads, or leave the file to it."""

import gzip
import hashlib
from functools import partial

import numpy as np
import pytest

from spectrograd import read_graph
from spectrograd.graph import Graph, GraphError
from spectrograd.io import edge_table as tables
from spectrograd.io.matrices import read_mtx
from spectrograd.io.text import hashing_reads, open_bytes
from spectrograd.io.text_scanner import scan_columns, split_columns

READERS = {"scan": scan_columns, "split": split_columns, "careful": lambda file, layout: None}
# Name: text, and whether the bulk parsers take it without the careful scan.
PLAIN = {
    "texts": "src,dst,weight\nann,bob,2\nbob,cid,.5\n",
    "integers": "src,dst\n3,4\n4,10\n-5,3\n",
    "signed": "src,dst\n+3,4\n4,3\n4,9\n",
    "mixed": "src,dst\n1,2\n2,x\nx,y\n1,z\n",
    "padded": "src,dst\n1,2\n007,2\n7,1\n",
    "huge integers": f"src,dst\n1,{10**25}\n{10**25},2\n",
    "comments": "# one\nsrc,dst\n% two, three\na,b\n  # a,b\n\nb,c\n",
    "blanks around": "src,dst\n a , b\nb,c \nc,a\n",
    "windows": "src,dst\r\na,b\r\nb,c\r\n\r\nc,d\r\n",
    "no last line end": "a b\nb c\nc d",
    "blanks between": "a  b\n b\tc\t\n\n  \nc d \ne a\n",
    "byte order mark": "\ufeffa,b\nb,c\nc,d\n",
    "letters": "src,dst\nä,ö\nö,漢\n",
    "formulas": "src,dst\n'=x,b\nb,''=x\nc,b\n",
    "layers": "src,dst,layer\na,b,one\nb,c, one\na,c,two\n",
    "unused": "src,dst,weight,when\na,b,1,now\nb,c,2,\n",
    "blanks inside": "src;dst;weight\nNew  York;Bern;1\n Bern ;New\tYork; 2 \n",
    "hard weights": "src,dst,weight\na,b,1e-300\nb,c,12345678901234567890123\nc,a,1_0\na,d, 4.2e40 \n",
}
CAREFUL = {
    "quotes": 'src,dst\n"a,1",b\nb,"c"\nd,b\n',  # the compiled scan takes these
    "all quoted": '"src","dst","weight"\n"1","2","0.5"\n"2","30","1.5e3"\n',
    "quoted words": '"a b" c\nc d\nd e\n',
    "doubled quotes": 'src,dst\n"a ""x""",b\nb,c\n',
    "lone return": "src,dst\na,b\rc,d\ne,f\n",
    "form feed": "src,dst\na\x0c,b\nb,c\n",
    "odd blank": "a\u3000b\nc d\nd a\n",
}
BROKEN = {
    "ragged": "src,dst,weight\na,b,1\nb,c\n",
    "empty id": "src,dst\na,b\n,c\n",
    "weight": "src,dst,weight\na,b,1\nb,c,x\n",
    "negative": "src,dst,weight\na,b,1\nb,c,-1\n",
    "NaN": "src,dst,weight\na,b,1\nb,c,nan\n",
    "NUL": "src,dst\na,b\nb,c\0\n",
    "unclosed": 'src,dst\na,b\n"b,c\nd,e\n',
    "header only": "src,dst\n",
    "unknown header": "one,two,three\n1,2,3\n2,3,4\n",
}


@pytest.fixture
def read_by(tmp_path, monkeypatch):
    """Read a text by one of the readers; the careful scan may be forbidden."""

    def read(reader, text, *, alone=False, **how):
        monkeypatch.setattr(tables, "read_columns", partial(READERS[reader], **how))
        if alone:
            monkeypatch.setattr(tables, "_read_slowly", None)
        path = tmp_path / "edges.csv"
        path.write_bytes(text.encode())
        return read_graph(path)

    return read


def described(graph):
    layers = [graph] if isinstance(graph, Graph) else graph.layers
    return [
        (layer.node_names.tolist(), layer.node_names.dtype.kind, layer.matrix.toarray().tolist())
        for layer in layers
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*PLAIN, *CAREFUL])
@pytest.mark.parametrize("reader", ["scan", "split"])
def test_the_same_graph_as_by_the_careful_scan(read_by, reader, name):
    text = (PLAIN | CAREFUL)[name]
    expected = described(read_by("careful", text))
    assert described(read_by(reader, text, alone=name in PLAIN)) == expected


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("reader", ["scan", "split"])
def test_the_same_error_as_by_the_careful_scan(read_by, reader, name):
    with pytest.raises(GraphError) as careful:
        read_by("careful", BROKEN[name])
    with pytest.raises(GraphError) as bulk:
        read_by(reader, BROKEN[name])
    assert str(bulk.value) == str(careful.value)


@pytest.mark.parametrize("reader", ["scan", "split"])
def test_several_blocks_are_one_table(read_by, reader):
    pairs = np.random.default_rng(0).integers(0, 40, (300, 2)).tolist()
    lines = [f"n{a},n{b},1\n" for a, b in pairs if a < b]
    text = "src,dst,weight\n" + "# a comment, or two\n".join(
        "".join(lines[i : i + 7]) for i in range(0, 140, 7)
    )
    with pytest.warns(match="repeated"):
        expected = described(read_by("careful", text))
    with pytest.warns(match="repeated"):
        assert described(read_by(reader, text, alone=True, size=50)) == expected


@pytest.mark.parametrize("name", ["quotes", "all quoted"])
def test_the_compiled_scan_reads_whole_fields_in_quotes(read_by, name):
    expected = described(read_by("careful", CAREFUL[name]))
    assert described(read_by("scan", CAREFUL[name], alone=True)) == expected


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_large_files_are_scanned_by_compiled_code(tmp_path, monkeypatch, packed):
    text = "src,dst\n" + "".join(f"node{i:07d},node{i + 1:07d}\n" for i in range(2000))
    path = tmp_path / f"edges.csv{packed}"
    path.write_bytes(gzip.compress(text.encode(), 0) if packed else text.encode())
    monkeypatch.setattr(tables, "_read_slowly", None)
    monkeypatch.setattr("spectrograd.io.text_scanner.split_columns", None)
    monkeypatch.setattr("spectrograd.io.text_scanner.MIN_BYTES_TO_COMPILE", 10_000)
    assert read_graph(path).n_nodes == 2001


MTX_LINES = [f"{i + 1} {i + 2} {i / 7:.6f}" for i in range(199_999)]
MTX_HEAD = "%%MatrixMarket matrix coordinate real general\n200000 200000 199999\n"


def written_mtx(tmp_path, lines):
    path = tmp_path / "large.mtx"
    path.write_text(MTX_HEAD + "\n".join(lines) + "\n")
    return str(path)


def test_large_matrices_are_parsed_in_bulk(tmp_path, monkeypatch):
    monkeypatch.setattr("spectrograd.io.matrices._numbers", None)
    lines = MTX_LINES.copy()
    lines[7] = "  8\t 9  1.5  "
    lines[9] += "\n% a comment\n"
    matrix = read_mtx(written_mtx(tmp_path, lines)).tocsr()
    assert matrix.nnz == 199_999
    assert matrix[7, 8] == 1.5
    assert matrix[199_998, 199_999] == float(MTX_LINES[-1].split()[2])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2", "3 numbers expected, found 2"),
        ("1 2 x", "'x' is not a number"),
        ("# 2 3", "'#' is not a number"),
        ("0 2 3", "row 0 is not one of"),
        ("1.5 2 3", "row 1.5 is not one of"),
        ("1 2 3\n1 2 3", "more entries than"),
    ],
)
def test_a_bad_line_of_a_large_matrix_is_named(tmp_path, line, message):
    lines = MTX_LINES.copy()
    lines[100_000] = line
    with pytest.raises(GraphError, match=message) as error:
        read_mtx(written_mtx(tmp_path, lines))
    assert ("line 100003" if "more" not in message else "line 200002") in str(error.value)


# --- hashes of what was read --------------------------------------------------------------------------


def sha256(*paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def test_files_are_hashed_as_they_are_read(tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv.gz"
    one.write_text(PLAIN["texts"] * 1)
    two.write_bytes(gzip.compress(PLAIN["layers"].encode()))
    paths = [str(one), str(two)]
    with hashing_reads(paths) as passed:
        for path in paths:
            read_graph(path)
    assert passed.n_passed == 2
    assert passed.digest.hexdigest() == sha256(one, two)
    with hashing_reads(paths[:1] * 2) as passed:  # the same file twice is hashed twice
        read_graph(paths[0])
        read_graph(paths[0])
    assert passed.digest.hexdigest() == sha256(one, one)


def test_only_whole_files_in_their_order_count(tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    for path in (one, two):
        path.write_text("src,dst\n" + "a,b\n" * 100_000)
    with hashing_reads([str(one), str(two)]) as passed:
        with open_bytes(str(one)) as handle:
            handle.read(100)
        with open_bytes(str(two)) as handle:
            handle.read()
        assert passed.n_passed == 0
        with open_bytes(str(one)) as handle:
            handle.read()
        assert passed.n_passed == 1
    assert passed.digest.hexdigest() == sha256(one)
