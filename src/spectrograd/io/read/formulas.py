"""Ids that a spreadsheet would run as a formula: marked when written as text, unmarked when read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spectrograd.io.read.text import is_number

MARK = "'"  # what spreadsheets themselves put before a text
_FORMULA = re.compile(rf"{MARK}*[=+\-@\t\r]")


def escaped(text: str) -> str:
    """Put the mark before what looks like a formula, or like one already marked; numbers are left alone.

    Examples
    --------
    >>> [escaped(text) for text in ("=cmd()", "-5", "@ann", "'=x", "ann")]
    ["'=cmd()", '-5', "'@ann", "''=x", 'ann']
    """
    return MARK + text if is_formula(text) else text


def is_formula(text: str) -> bool:
    """Whether a text begins as formulas do and is no number."""
    return _FORMULA.match(text) is not None and not is_number(text)


def unescaped(texts: Iterable[str]) -> list[str]:
    """The texts as they were before :func:`escaped`.

    Examples
    --------
    >>> unescaped(["'=cmd()", "''=x", "'tis", "ann"])
    ['=cmd()', "'=x", "'tis", 'ann']
    """
    return [text[1:] if text[:1] == MARK and is_formula(text[1:]) else text for text in texts]
