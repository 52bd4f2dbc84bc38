"""The registry of file formats, and the page that says how to add one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spectrograd
from spectrograd.cli import main
from spectrograd.io.read_graph import READERS, ReadOptions

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src" / "spectrograd").rglob("*.py"))
PAGE = (ROOT / "docs" / "add_a_reader.md").read_text()


@pytest.mark.parametrize("suffix", READERS)
def test_a_format_has_one_reader_and_a_docstring(suffix):
    reader = READERS[suffix]
    functions = [function for function in (reader.columns, reader.edges, reader.matrix) if function]
    assert len(functions) == 1
    assert functions[0].__doc__
    assert suffix in spectrograd.read_graph.__doc__
    assert suffix in (ROOT / "docs" / "formats.md").read_text()


def test_errors_and_options_list_the_registry(tmp_path):
    (tmp_path / "a.xyz").write_text("1 2\n")
    with pytest.raises(spectrograd.GraphError, match=re.escape(" ".join(READERS))):
        spectrograd.read_graph(tmp_path / "a.xyz")
    with pytest.raises(spectrograd.GraphError, match="unknown format 'xyz'; known are csv, tsv, txt"):
        ReadOptions(format="xyz")
    assert main(["info", str(tmp_path / "a.xyz"), "--format", "txt", "-q"]) == 0


def test_the_page_on_readers_names_what_exists():
    example = {"read_dimacs", "DIMACS_SUFFIX"}
    names = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\(\))?`", PAGE)) - example
    missing = [name for name in names if not re.search(rf"\b{name}\b", SOURCE) and name != "GRAPHS"]
    assert not missing
    for path in re.findall(r"`((?:src|tests|docs|io)/[\w/.]+)`", PAGE):
        if "my_format" not in path:
            assert any((ROOT / start / path).exists() for start in ("", "src/spectrograd")), path
