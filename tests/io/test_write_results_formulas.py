"""Ids like ``=cmd()``: marked in CSV so that no spreadsheet runs them, and read back as they were."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrograd.graph import Graph, GraphWarning
from spectrograd.io import read_graph, read_labels, write_embedding, write_graph, write_labels
from spectrograd.io.edge_table import escape_formula, is_formula, unescape_formulas

IDS = ["=cmd()", "+x", "-y", "@ann", "'=1+1", "ann", "-5", "'tis"]


@given(st.text(alphabet="'=+-@a1. \t\r", max_size=6))
def test_marks_come_off_again(text):
    assert unescape_formulas([escape_formula(text)]) == [text]
    assert not is_formula(escape_formula(text)) or escape_formula(text).startswith("'")


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_outputs_are_marked_and_read_back(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    graph = Graph.from_edges(IDS[:-1], IDS[1:])
    with pytest.warns(GraphWarning, match=r"^5 ids begin as formulas of spreadsheets do.*--raw \(raw=True\)"):
        write_labels(path, range(len(IDS)), IDS)
    text = path.read_text()
    assert "\n'=cmd()" in text
    assert "\n-5" in text
    assert read_labels(path, IDS).tolist() == list(range(len(IDS)))
    with pytest.warns(GraphWarning, match="5 ids begin as formulas"):
        write_embedding(path, [[0.5]] * len(IDS), IDS)
    assert "\n'@ann" in path.read_text()
    with pytest.warns(GraphWarning, match="5 ids begin as formulas"):
        write_graph(path, graph)
    assert sorted(read_graph(path).node_names.tolist()) == sorted(IDS)


def test_raw_keeps_them_and_says_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_labels(tmp_path / "a.csv", [0, 1], ["=cmd()", "b"], raw=True)
        write_embedding(tmp_path / "b.csv", [[0.5], [1]], ["=cmd()", "b"], raw=True)
        write_graph(tmp_path / "c.csv", Graph.from_edges(["=cmd()"], ["b"]), raw=True)
    for name in ("a.csv", "b.csv", "c.csv"):
        assert "\n=cmd()" in (tmp_path / name).read_text()
