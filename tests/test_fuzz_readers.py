"""A sample of ``fuzz_readers.py``: damaged files of every format are read or refused, and say so clearly."""

from __future__ import annotations

import sys

import pytest

import fuzz_readers

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits of memory and time are those of Linux"
)


def test_damaged_files_are_read_or_refused_with_one_clear_error():
    ends = list(fuzz_readers.outcomes(0, 150))
    assert [number for number, *_ in ends] == list(range(150))
    assert [end for end in ends if end[2] in fuzz_readers.BAD] == []
    assert {outcome for _, _, outcome, _ in ends} == {fuzz_readers.READ, fuzz_readers.REFUSED}
