"""Edge lists that cannot be read: each error names the file, the line and what is wrong."""

from __future__ import annotations

import gzip
import re

import pytest

from spectrograd.graph import GraphError
from spectrograd.io import read_graph

LINES = "".join(f"{i},{i + 1},1\n" for i in range(16))
BAD = [
    ("e.csv", LINES + "5,6,x\n", "e.csv, line 17: 'x' is not a number (weight)"),
    ("e.csv", LINES + "5,6,\n", "e.csv, line 17: '' is not a number (weight)"),
    ("e.csv", LINES + "5,6,7,8,9\n", "e.csv, line 17: 2 or 3 columns expected, found 5"),
    ("e.csv", LINES + "5\n", "e.csv, line 17: 2 or 3 columns expected, found 1"),
    ("e.csv", LINES + "5,6\n", "e.csv, line 17: 3 columns expected, as in the lines before, found 2"),
    ("e.csv", LINES + "5,6,-1\n", "e.csv, line 17: weight -1 is negative"),
    ("e.csv", LINES + "5,6,nan\n", "e.csv, line 17: weight nan is not finite"),
    ("e.csv", LINES + "5,6,inf\n", "e.csv, line 17: weight inf is not finite"),
    ("e.csv", LINES + "5,6,-inf\n", "e.csv, line 17: weight -inf is not finite"),
    ("e.csv", "# a\n\nsrc,dst,weight\n1,2,3\n%\n1,2,-3\n", "e.csv, line 6: weight -3 is negative"),
    ("e.csv", "src,dst,weight\n1,2\n", "e.csv, line 2: 3 columns expected, as in the header, found 2"),
    ("e.csv", "src,dst,note\n1,2,a\n3,4\n", "e.csv, line 3: 3 columns expected, as in the header, found 2"),
    ("e.csv", "src,dst\n1,2\n,4\n", "e.csv, line 3: the src column is empty"),
    ("e.csv", "src,dst,layer\n1,2,a\n3,4,\n", "e.csv, line 3: the layer column is empty"),
    ("e.csv", "src,from,to\n1,2,3\n", "e.csv, line 1: 'src' and 'from' both name the src column"),
    ("e.csv", "id_a,id_b\na,b\nc,d\n", "e.csv, line 1: 'id_a' and 'id_b' may be a header or an edge"),
    (
        "e.csv",
        "a,b,strength\nx,y,3\n",
        "e.csv, line 1: no columns 'src' and 'dst' among 'a', 'b', 'strength'",
    ),
    ("e.csv", "1;2;0,5\n", "e.csv, line 1: '0,5' is not a number (weight)"),
    (
        "e.csv",
        "1,2,3,4\n",
        "e.csv, line 1: 2 or 3 columns expected, found 4; say which hold the ends by their numbers",
    ),
    ("e.csv", 'a,b\n"c,d\ne,f\ng,h\n', "e.csv, line 2: a quoted name is not closed on its line"),
    ("e.csv", 'a,b\n"c,d\n"e,f\n', "e.csv, line 2: a quoted name is not closed on its line"),
    ("e.csv", 'a,b\n"c\nd",e\n', "e.csv, line 2: a quoted name is not closed on its line"),
    ("e.csv", 'a,b\ng,"c\n', "e.csv, line 2: a quoted name is not closed on its line"),
    ("e.csv", 'a,b\n"c"d,e\nf,g\n', "e.csv, line 2: cannot be read"),
    ("e.csv", "a,b\nc\0,d\n", "e.csv, line 2: holds a NUL byte"),
    ("e.txt", "1 2\n\n3 4 5 6\n", "e.txt, line 3: 2 or 3 columns expected, found 4"),
    ("e.csv", "", "e.csv: empty, no edges in it"),
    ("e.csv", "# nothing\n\n", "e.csv: empty, no edges in it"),
    ("e.csv", "src,dst\n", "e.csv: a header but no edges"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
@pytest.mark.parametrize("gzipped", [False, True])
def test_errors_name_file_and_line(tmp_path, monkeypatch, name, text, message, gzipped):
    monkeypatch.chdir(tmp_path)
    if gzipped:
        (tmp_path / (name + ".gz")).write_bytes(gzip.compress(text.encode()))
        name, message = name + ".gz", message.replace(name, name + ".gz")
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_graph(name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "none.csv: no such file"),
        ("e.xlsx", b"", "e.xlsx: unknown kind of file '.xlsx'; known are .csv .tsv"),
        ("e", b"", "e: unknown kind of file ''"),
        ("e.csv", "1,2\né,3\n".encode("latin-1"), "e.csv: not UTF-8 text (byte 0xe9)"),
        ("e.csv.gz", b"1,2\n", "e.csv.gz: broken gzip file"),
        ("e.csv.gz", gzip.compress(b"1,2\n" * 100, mtime=0)[:-12], "e.csv.gz: broken gzip file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        read_graph(name)


def test_folder_no_file_and_two_standard_inputs(tmp_path):
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(GraphError, match=r"d\.csv: is a folder"):
        read_graph(tmp_path / "d.csv")
    with pytest.raises(GraphError, match="no file given"):
        read_graph()
    with pytest.raises(GraphError, match="only one of the layers"):
        read_graph("-", "-")
