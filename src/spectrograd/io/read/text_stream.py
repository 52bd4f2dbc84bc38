"""Text edge lists that may be larger than memory: integer ids by our scanner, others by pyarrow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.io.read.bulk import Layout
from spectrograd.io.read.columns import COLUMN_NAMES
from spectrograd.io.read.compressed import open_bytes
from spectrograd.io.read.parquet_stream import arrow_labels
from spectrograd.io.read.tables import read_layout
from spectrograd.io.read.text import TextFile, is_number, split_line
from spectrograd.store.batches import NotIntegers

Array = NDArray[Any]
CHUNK = 32 << 20  # bytes of text at once
ROLES = tuple(COLUMN_NAMES)  # src, dst, weight, layer: as kernels.ingest.scan counts them
BLANKS, OUTER_BLANKS = re.compile(rb"[ \t]+"), re.compile(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)")
COMMENT_LINE = re.compile(rb"(?m)^[ \t]*[#%][^\n]*\n")


@dataclass
class TextEdges:
    """One text file: its layout, and its edges as integers or as texts."""

    path: str
    columns: Mapping[str, str]

    @cached_property
    def layout(self) -> Layout:
        """Where the columns are: as when the file is read into memory."""
        return read_layout(TextFile(self.path), self.columns)

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        from spectrograd.kernels.ingest import scan

        layout = self.layout
        roles, mark, line = layout.roles, layout.delimiter, layout.skip
        kinds = np.array([ROLES.index(role) if role else scan.IGNORED for role in roles], np.int64)
        for text in _line_chunks(self.path, layout.skip):
            data = np.frombuffer(text, np.uint8)
            capacity = text.count(b"\n")
            ends = np.empty((2, capacity), np.int64)
            weights = np.empty(capacity if "weight" in roles else 0)
            layers = np.empty((3, capacity if "layer" in roles else 0), np.int64)
            given = (data, ord(mark) if mark else 0, kinds, ends, weights, layers)
            n_edges, n_lines, at, problem = scan.scan_edges(*given)
            if problem == scan.NOT_INTEGER:
                raise NotIntegers
            if problem != scan.GOOD:
                raise self._error(text, at, line + n_lines + 1, roles, problem == scan.WRONG_WIDTH)
            line += n_lines
            labels = _labels(text, layers[:, :n_edges]) if "layer" in roles else None
            weight = weights[:n_edges] if "weight" in roles else None
            if n_edges:
                yield ends[0, :n_edges], ends[1, :n_edges], weight, labels

    def _error(self, text: bytes, at: int, line: int, roles: Sequence[str | None], width: bool) -> Exception:
        """What is wrong with a line, in words; a weight only Python can read is left to the other door."""
        words = text[at : text.index(b"\n", at)].decode("utf-8", "replace")
        fields = split_line(words, self.layout.delimiter)
        if width or len(fields) != len(roles):
            if len(fields) == len(roles):
                return GraphError(f"{self.path}, line {line}: a column is empty")
            return GraphError(f"{self.path}, line {line}: {len(roles)} columns expected, found {len(fields)}")
        value = fields[roles.index("weight")]
        if not is_number(value):
            return GraphError(f"{self.path}, line {line}: {value!r} is not a number (weight)")
        if not np.isfinite(float(value)) or float(value) < 0:
            return GraphError(f"{self.path}, line {line}: weight {value} must be finite and not negative")
        return NotIntegers()

    def texts(self) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Batches of ids as texts, by pyarrow."""
        arrow, csv = (
            need("pyarrow", "node ids that are texts"),
            need("pyarrow.csv", "node ids that are texts"),
        )
        skip, mark, roles = self.layout.skip, self.layout.delimiter, self.layout.roles
        names = [f"{number}" for number in range(len(roles))]
        chunks = _Joined(_plain_lines(_line_chunks(self.path, skip), tabs=not mark))
        try:
            with csv.open_csv(
                chunks,
                csv.ReadOptions(column_names=names, block_size=CHUNK // 4, use_threads=False),
                csv.ParseOptions(delimiter=mark or "\t", newlines_in_values=False),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False
                ),
            ) as reader:
                for batch in reader:
                    yield self._columns(batch, roles)
        except arrow.ArrowInvalid as error:
            raise GraphError(f"{self.path}: {' '.join(str(error).split())}") from None

    def _columns(self, batch: Any, roles: Sequence[str | None]) -> tuple[Any, Any, Array | None, Any]:
        compute = need("pyarrow.compute", "node ids that are texts")
        column = {
            role: compute.utf8_trim_whitespace(batch.column(at)) for at, role in enumerate(roles) if role
        }
        for role in ("src", "dst", "layer"):
            if role in column and compute.any(compute.equal(column[role], "")).as_py():
                raise GraphError(f"{self.path}: the {role} column is empty in some line")
        weight = None
        if "weight" in column:
            try:
                weight = column["weight"].cast("float64").to_numpy(zero_copy_only=False).copy()
            except Exception as error:
                raise GraphError(
                    f"{self.path}: weight is not a number ({str(error).splitlines()[0]})"
                ) from None
        labels = arrow_labels(column["layer"]) if "layer" in column else None
        return column["src"], column["dst"], weight, labels


def _labels(text: bytes, layers: Array) -> tuple[Array, list[str]]:
    """The layer of every edge as a small number, and the names of these."""
    _, first, codes = np.unique(layers[0], return_index=True, return_inverse=True)
    spans = layers[1:, first].T.tolist()
    return codes, [text[begin : begin + size].decode("utf-8", "replace") for begin, size in spans]


def _line_chunks(path: str, skip: int) -> Iterator[bytes]:
    """The file in pieces of whole lines, without its first ones; the last line gets the end it may lack."""
    rest, left = b"", skip
    with open_bytes(path) as handle:
        first = True
        while piece := handle.read(CHUNK):
            if first:
                piece, first = piece.removeprefix(b"\xef\xbb\xbf"), False
            text = rest + piece
            cut = text.rfind(b"\n") + 1
            rest, text = text[cut:], text[:cut]
            while left and text:
                end = text.find(b"\n") + 1
                text, left = text[end:], left - 1
            if text:
                yield text
    if rest.strip() and not left:
        yield rest + b"\n"


def _plain_lines(chunks: Iterator[bytes], *, tabs: bool) -> Iterator[bytes]:
    """Without comments; with ``tabs`` in place of runs of blanks."""
    for text in chunks:
        if b"#" in text or b"%" in text:
            text = COMMENT_LINE.sub(b"", text)
        yield BLANKS.sub(b"\t", OUTER_BLANKS.sub(b"", text)) if tabs else text


class _Joined(io.RawIOBase):
    """Pieces as one file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not len(self._rest):
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
