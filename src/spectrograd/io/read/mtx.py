"""MatrixMarket text, read in blocks of lines: every number is checked, and an error names its line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Array, GraphError
from spectrograd.io.read.bulk import arrow_numbers
from spectrograd.io.read.compressed import open_bytes
from spectrograd.io.read.long_lines import gauged

BLOCK = 1 << 24  # bytes parsed at once: enough to hide the calls, little beside the matrix
_FORM = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.I
)
_MOST_NODES = 2**31 - 1  # columns are 32-bit integers
# A file whose header has thousands of nodes for each entry is broken; small ones may be as they like.
_MANY_NODES, _NODES_PER_ENTRY = 10**7, 1000


@dataclass(frozen=True)
class _Header:
    """What the first lines say."""

    dense: bool
    pattern: bool
    symmetric: bool
    shape: tuple[int, int]
    claimed: int  # lines of data that follow
    line: int  # of the sizes

    @property
    def width(self) -> int:
        """Numbers on each line of data."""
        return 1 if self.dense else 2 if self.pattern else 3


def read_mtx(path: str) -> sp.coo_array | Array:
    """Read a real MatrixMarket file, plain or packed; symmetric ones come back with both triangles."""
    with open_bytes(path) as raw, gauged(raw, path) as handle:
        header = _read_header(path, handle)
        blocks, found = [], 0
        for first_line, text in _blocks(handle, header.line + 1):
            quick = _quick_numbers(text, header, header.claimed - found)
            if quick is not None:
                found += len(quick)
                blocks.append(quick)
                continue
            numbers, lines = _numbers(path, text, first_line, header.width)
            found += len(numbers)
            if found > header.claimed:
                extra = lines[len(numbers) - (found - header.claimed)]
                raise _error(path, extra, f"more entries than the {header.claimed:,} of line {header.line}")
            if not header.dense:
                _check_places(path, numbers, lines, header.shape)
            blocks.append(numbers)
    if found < header.claimed:
        raise GraphError(
            f"{path}: line {header.line} claims {header.claimed:,} entries, {found:,} are there; "
            "the file was cut off"
        )
    rows = np.concatenate(blocks) if blocks else np.zeros((0, header.width))
    return _filled(rows[:, 0], header) if header.dense else _sparse(path, rows, header)


def _error(path: str, line: int, message: str) -> GraphError:
    return GraphError(f"{path}, line {line}: {message}")


def _read_header(path: str, handle: BinaryIO) -> _Header:
    first = handle.readline().decode("ascii", "replace").lower().split()
    if not first or first[0] != "%%matrixmarket":
        raise _error(path, 1, f"not a MatrixMarket file; it begins with {_FORM}")
    if len(first) != 5 or first[1] != "matrix" or first[2] not in ("coordinate", "array"):
        raise _error(path, 1, f"{' '.join(first)!r} cannot be read; expected {_FORM}")
    if first[3] not in ("real", "double", "integer", "unsigned-integer", "pattern"):
        raise _error(path, 1, f"{first[3]} weights; real weights are needed")
    if first[4] not in ("general", "symmetric"):
        raise _error(path, 1, f"{first[4]} matrices have negative weights; general or symmetric is needed")
    dense, pattern, symmetric = first[2] == "array", first[3] == "pattern", first[4] == "symmetric"
    if dense and pattern:
        raise _error(path, 1, "an array cannot be a pattern")
    line, text = 1, b"%"
    while text.startswith(b"%") or (text and not text.strip()):
        line, text = line + 1, handle.readline()
    sizes = text.split()
    wanted = "rows columns" if dense else "rows columns entries"
    if len(sizes) != len(wanted.split()) or not all(size.isdigit() and len(size) < 19 for size in sizes):
        raise _error(path, line, f"{_shown(text)} are no sizes; {wanted!r} are needed")
    n, m = int(sizes[0]), int(sizes[1])
    if symmetric and n != m:
        raise _error(path, line, f"{n} x {m} is not square, but symmetric")
    claimed = (n * (n + 1) // 2 if symmetric else n * m) if dense else int(sizes[2])
    if not dense and (max(n, m) > _MOST_NODES or max(n, m) > _MANY_NODES + _NODES_PER_ENTRY * claimed):
        raise _error(path, line, f"claims {max(n, m):,} nodes for {claimed:,} entries; the file is broken")
    return _Header(dense, pattern, symmetric, (n, m), claimed, line)


def _blocks(handle: BinaryIO, line: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the text of whole lines, about ``BLOCK`` bytes at once."""
    rest = b""
    while text := handle.read(BLOCK):
        whole, newline, rest = (rest + text).rpartition(b"\n")
        if newline:
            yield line, whole
            line += whole.count(b"\n") + 1
    if rest.strip():
        yield line, rest


def _quick_numbers(text: bytes, header: _Header, most: int) -> Array | None:
    """The numbers of a large block as pyarrow parses them; None where there may be an error to name."""
    numbers = None if b"#" in text else arrow_numbers(text, header.width)
    if numbers is None or len(numbers) > most:
        return None
    places = () if header.dense else zip(numbers.T, header.shape, strict=False)
    return numbers if all(_inside(column, size).all() for column, size in places) else None


def _numbers(path: str, text: bytes, first_line: int, width: int) -> tuple[Array, Array]:
    """The numbers of a block, one row of ``width`` per line that is not blank, and these lines' numbers."""
    if b"%" in text:
        text = b"\n".join(b"" if line.lstrip().startswith(b"%") else line for line in text.split(b"\n"))
    letters = np.frombuffer(text, dtype=np.uint8)
    blank = (letters == 32) | ((letters >= 9) & (letters <= 13))
    begins = ~blank
    begins[1:] &= blank[:-1]
    ends = np.append(np.flatnonzero(letters == 10), len(letters))
    words = np.diff(np.searchsorted(np.flatnonzero(begins), ends), prepend=0)
    lines = first_line + np.flatnonzero(words)
    words = words[words > 0]
    wrong = words != width
    if wrong.any():
        at = int(np.argmax(wrong))
        plural = "s" if width > 1 else ""
        raise _error(path, int(lines[at]), f"{width} number{plural} expected, found {words[at]}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(text.decode("ascii"), sep=" ") if len(words) else np.zeros(0)
        except (ValueError, DeprecationWarning):
            numbers = np.zeros(0)
    if len(numbers) != words.sum():  # a word that is no number, or one that reads as two ("1-2")
        numbers = _slowly(path, text, lines, width)
    return numbers.reshape(-1, width), lines


def _slowly(path: str, text: bytes, lines: Array, width: int) -> Array:
    words = text.split()
    bad = next((i for i, word in enumerate(words) if not _NUMBER.fullmatch(word)), None)
    if bad is not None:
        raise _error(path, int(lines[bad // width]), f"{_shown(words[bad])} is not a number")
    return np.array([float(word) for word in words])


def _shown(text: bytes) -> str:
    return repr(text.strip()[:40].decode("ascii", "backslashreplace"))


def _check_places(path: str, numbers: Array, lines: Array, shape: tuple[int, int]) -> None:
    for what, column, size in zip(("row", "column"), numbers.T, shape, strict=False):
        inside = _inside(column, size)
        if not inside.all():
            at = int(np.argmin(inside))
            raise _error(path, int(lines[at]), f"{what} {column[at]:.17g} is not one of 1..{size}")


def _inside(column: Array, size: int) -> Array:
    """Which numbers are places: whole, 1 to ``size``."""
    return np.asarray((column >= 1) & (column <= size) & (column == np.floor(column)))


def _sparse(path: str, rows: Array, header: _Header) -> sp.coo_array:
    i, j = (rows[:, at].astype(np.int32) - np.int32(1) for at in (0, 1))
    values = np.ones(len(rows)) if header.pattern else rows[:, 2]
    if header.symmetric:
        off = i != j
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        values = np.concatenate([values, values[off]])
    return sp.coo_array((values, (i, j)), shape=header.shape)


def _filled(values: Array, header: _Header) -> Array:
    """The dense matrix of a file that lists it, or its lower triangle, column by column."""
    n, m = header.shape
    if not header.symmetric:
        return values.reshape(m, n).T
    matrix = np.zeros((n, n))
    upper = np.triu_indices(n)  # row by row, so of the transpose column by column
    matrix[upper] = values
    matrix.T[upper] = values
    return matrix
