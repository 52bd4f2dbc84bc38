"""A text edge list is read alike into memory and into a store: the same graph, or the same refusal."""

from __future__ import annotations

import pytest

from spectrograd import GraphError, read_graph
from spectrograd.cli import main
from spectrograd.io.convert import convert
from spectrograd.store.edge_batches import IngestSettings

pytest.importorskip("duckdb")
pytestmark = pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")

EDGES = b"src,dst\na,b\nb,c\n"
LONG = b"x" * (1 << 20)
TEXTS = {
    "long.csv": EDGES + b"c," + LONG + b"\n" + LONG + b",a\n",
    "long_quoted.csv": EDGES + b'c,"' + LONG + b'"\n' + LONG + b",c\n",
    "long_with_delimiter.csv": EDGES + b'c, "' + LONG + b',""y"""\nd,a\n',
    "long_unclosed.csv": EDGES + b'c,"' + LONG + b"\nd,a\n",
    "long_overquoted.csv": EDGES + b'c,"' + LONG + b'"y\nd,a\n',
    "line_feed.csv": EDGES + b'c,"new\nline"\n"new\nline",a\n',
    "line_feed_first.csv": b'src,dst\n"new\nline",a\nb,c\na,b\n',
    "carriage_return.csv": EDGES + b'c,"new\rline"\n"new\rline",a\n',
    "unclosed.csv": EDGES + b'c,"new\nd,a\n',
    "text_after_quote.csv": EDGES + b'c,"new"x\nd,a\n',
    "quote_inside.csv": EDGES + b'c,ne"w\nne"w,a\n',
    "blank_before_quote.csv": EDGES + b'c, "d"\n"d",a\n',
    "quoted_blanks.txt": b'a b\nb c\nc "d e"\n"d e" a\n',
    "other_blanks.txt": "a b\nb c\nc d\u2003e\n".encode(),
    "formulas.csv": EDGES + b"c,'=cmd()\n'=cmd(),a\n",
    "nul.csv": EDGES + b"c,x\0y\nd,a\n",
    "not_utf8.csv": EDGES + b"c,\xff\n\xff,a\n",
    "ragged.csv": EDGES + b"c,d,e\nd,a\n",
    "empty_cell.csv": EDGES + b"c,\nd,a\n",
    "weights.csv": b"src,dst,weight\na,b,+1.5\nb,c,1_0\n",
    "bad_weight.csv": b"src,dst,weight\na,b,1\nb,c,heavy\n",
    "negative_weight.csv": b"src,dst,weight\na,b,1\nb,c,-1\n",
    "layers.csv": b'src,dst,layer\na,b,"x ""y"""\nb,c,\'=z\n',
}


def outcome(read):
    try:
        graph = read()
    except GraphError as error:
        return str(error)
    layers = getattr(graph, "layers", (graph,))
    return graph.node_names.tolist(), [layer.matrix.toarray().tolist() for layer in layers]


@pytest.mark.parametrize("name", TEXTS)
def test_memory_and_store_read_a_text_alike(tmp_path, name):
    path, store = tmp_path / name, tmp_path / "g.store"
    path.write_bytes(TEXTS[name])

    def through_a_store():
        convert([str(path)], str(store), IngestSettings())
        return read_graph(store)

    assert outcome(through_a_store) == outcome(lambda: read_graph(path))


@pytest.mark.parametrize("name", ["long_quoted.csv", "line_feed.csv"])
def test_commands_accept_and_refuse_alike(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(TEXTS[name])
    codes = [
        main(["convert", name, "-o", "g.store"]),
        main(["cluster", name, "-k", "2", "-o", "labels.csv"]),
    ]
    assert codes == ([0, 0] if "long" in name else [2, 2])
    errors = capsys.readouterr().err
    assert errors.count("line 4: a quoted name is not closed on its line") == (0 if "long" in name else 2)
