"""Figures in the pages are those that a command measured and stored: nobody typed them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.blocks import pages, shown_blocks, stored_blocks

SHOWN = [(page, name) for page in pages() for name in shown_blocks(page)]


@pytest.mark.parametrize(("page", "name"), SHOWN, ids=lambda value: getattr(value, "name", value))
def test_a_page_shows_what_was_stored(page, name):
    assert shown_blocks(page)[name] == stored_blocks()[name], "run: python -m benchmarks NAME --write"


def test_every_stored_block_is_shown():
    assert set(stored_blocks()) == {name for _, name in SHOWN}


@pytest.mark.parametrize("name", sorted(stored_blocks()))
def test_a_block_says_when_and_where(name):
    assert re.search(r"Measured \d{4}-\d{2}-\d{2}, \d+ cores .*python -m benchmarks", stored_blocks()[name])


def test_no_block_is_left_open():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- measured:") == text.count("<!-- /measured -->"), page
