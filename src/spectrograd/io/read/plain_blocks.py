"""A table's bytes in blocks of whole lines, made so plain that a bulk parser cannot misread them.

Comments and blank lines are cut out; whatever a bulk parser might take otherwise than the careful scan of
lines does (:mod:`spectrograd.io.read.text`) is a :class:`Surprise`, and the careful scan has to look.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np

from spectrograd.io.read.text import TextFile

BLOCK = 1 << 20  # bytes at once: enough to hide the calls, and little beside what is kept of them
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n", re.MULTILINE)
_COMMENT_SIGNS = tuple(before + mark for before in (b"\n", b" ", b"\t") for mark in (b"#", b"%"))
# NUL, and what str.split takes for white space but no parser of tables does.
_ODD_BYTES = tuple(bytes([code]) for code in (0, 11, 12, 28, 29, 30, 31))
_QUOTE, _NEWLINE = ord('"'), ord("\n")


class Surprise(ValueError):
    """A bulk parser would have to guess."""


def plain_blocks(file: TextFile, skip: int, delimiter: str | None, size: int = BLOCK) -> Iterator[bytes]:
    """Yield whole lines, each ended by one newline, fields parted by ``delimiter`` (None: by one blank).

    Parameters
    ----------
    file : TextFile
    skip : int
        Lines at the beginning that are left out.
    delimiter : str or None
    size : int
        Bytes that are read at once.
    """
    for block in whole_lines(file, skip, size):
        yield plain_block(block, delimiter)


def whole_lines(file: TextFile, skip: int, size: int = BLOCK) -> Iterator[bytes]:
    """Yield the bytes behind the first ``skip`` lines, cut behind line ends; the last line gets one."""
    with file.open_bytes() as handle:
        for _ in itertools.repeat(None, skip):
            handle.readline()
        rest = b"" if skip else handle.read(len(_BOM)).removeprefix(_BOM)
        while text := handle.read(size):
            cut = text.rfind(b"\n") + 1
            if cut:
                yield b"".join((rest, memoryview(text)[:cut]))
                rest = text[cut:]
            else:
                rest += text
        if rest.strip():
            yield rest + b"\n"


def plain_block(block: bytes, delimiter: str | None) -> bytes:
    """Make whole lines plain, or raise :class:`Surprise`."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            raise Surprise("a carriage return of its own")
    if any(odd in block for odd in _ODD_BYTES):
        raise Surprise("control characters")
    marked = b"#" in block or b"%" in block  # single bytes are found many times faster than pairs
    if marked and (any(sign in block for sign in _COMMENT_SIGNS) or block[:1] in (b"#", b"%")):
        block = _COMMENT.sub(b"", block)
    if b'"' in block:
        _check_quotes(block, delimiter)
    if delimiter is None:
        block = _single_blanks(block)
    while b"\n\n" in block:
        block = block.replace(b"\n\n", b"\n")
    return block.removeprefix(b"\n")


def _single_blanks(block: bytes) -> bytes:
    block = block.replace(b"\t", b" ")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")


def _check_quotes(block: bytes, delimiter: str | None) -> None:
    """Accept only quotes that open and close a whole field of one line and are not doubled."""
    if delimiter is None:
        raise Surprise("quotes between blanks")
    letters = np.frombuffer(b"\n" + block, dtype=np.uint8)
    quotes = np.flatnonzero(letters == _QUOTE)
    newlines = np.flatnonzero(letters == _NEWLINE)
    opening, closing = quotes[::2], quotes[1::2]
    edges = (ord(delimiter), _NEWLINE)
    whole = len(opening) == len(closing) and np.isin(letters[opening - 1], edges).all()
    if not whole or not np.isin(letters[closing + 1], edges).all():
        raise Surprise("quotes inside a field")
    if np.any(np.searchsorted(newlines, opening) != np.searchsorted(newlines, closing)):
        raise Surprise("a quoted line end")
