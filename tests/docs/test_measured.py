"""Figures in the pages are those that a command measured and stored: nobody typed them."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.__main__ import succeeds
from benchmarks.blocks import ROOT, known_blocks, pages, places, shown_blocks, stored_blocks
from benchmarks.records import changed_since, code_lines, overview, read_records, stale_suites
from benchmarks.suites import LARGE, SUITES, suite_of

from spectrograd.solvers import REGISTRY

SHOWN = [(page, name) for page in pages() for name in shown_blocks(page)]


@pytest.mark.parametrize(("page", "name"), SHOWN, ids=lambda value: getattr(value, "name", value))
def test_a_page_shows_what_was_stored(page, name):
    assert shown_blocks(page)[name] == known_blocks()[name], "run: python -m benchmarks NAME --write"


def test_every_stored_block_is_shown():
    assert set(stored_blocks()) <= places()


@pytest.mark.parametrize("suite", [*SUITES, *LARGE], ids=lambda suite: suite.name)
def test_every_block_of_a_suite_has_a_place(suite):
    assert set(suite.block_names) <= places()


def test_every_solver_has_a_block_of_the_comparison():
    methods = next(suite for suite in SUITES if suite.name == "methods")
    assert set(methods.block_names) == {"methods", *(f"method-{name}" for name in REGISTRY)}


def test_blocks_that_belong_to_no_suite_fail_their_suite(monkeypatch, capsys):
    found = {"methods": "", "method-nobody": ""}
    monkeypatch.setitem(sys.modules, "benchmarks.methods", SimpleNamespace(run=lambda: found))
    monkeypatch.setattr("benchmarks.__main__.store", pytest.fail)
    methods = next(suite for suite in SUITES if suite.name == "methods")
    assert not succeeds(methods, {}, write=True)
    assert "['method-nobody']" in capsys.readouterr().out


def test_records_name_every_suite():
    text = overview()
    assert all(f"`{suite.command}`" in text for suite in (*SUITES, *LARGE))


def test_all_but_the_billion_edges_fit_into_four_hours():
    minutes = {suite.block_names[0]: suite.minutes for suite in (*SUITES, *LARGE)}
    assert minutes.pop("larger_than_memory-billion") >= 60
    assert sum(minutes.values()) <= 240


def test_what_was_never_measured_is_stale():
    stale = (*stale_suites(), *LARGE)
    assert all(suite_of()[name] in stale for name in places() - set(stored_blocks()))


@pytest.mark.parametrize("name", sorted(stored_blocks()))
def test_a_block_says_when_and_where(name):
    assert re.search(r"Measured \d{4}-\d{2}-\d{2}, \d+ cores .*python -m benchmarks", stored_blocks()[name])


def test_no_block_is_left_open():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- measured:") == text.count("<!-- /measured -->"), page


def test_every_block_has_one_command_that_writes_it_and_a_record():
    names = [name for suite in (*SUITES, *LARGE) for name in suite.block_names]
    assert len(names) == len(set(names))
    assert set(stored_blocks()) == set(read_records())
    assert set(stored_blocks()) <= set(names)


@pytest.mark.parametrize("suite", [*SUITES, *LARGE], ids=lambda suite: suite.name)
def test_a_suite_is_a_module_that_speaks_of_packages(suite):
    own = ROOT / "benchmarks" / suite.name
    assert own.with_suffix(".py").is_file() or (own / "__init__.py").is_file()
    assert all((ROOT / "src" / "spectrograd" / name).is_dir() for name in suite.packages)


def test_blocks_older_than_the_code_they_speak_of():
    stale = {name: changed_since(name) for name in stored_blocks()}
    stale = {name: changed for name, changed in stale.items() if changed}
    if stale:  # measured again before a release, not with every change
        suites = sorted({suite_of()[name].name for name in stale})
        warnings.warn(f"{len(stale)} blocks are stale: python -m benchmarks {' '.join(suites)}", stacklevel=1)


def test_words_about_code_do_not_make_a_block_stale():
    source = 'def half(x):\n    """Half."""\n    return x / 2\n'
    reworded = 'def half(x):\n    """Half of it."""\n\n    # not the floor\n    return x / 2  # exact\n'
    assert code_lines(source) == code_lines(reworded)
    assert code_lines(source) != code_lines(source.replace("2", "3"))
