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
from spectrograd.io.read.coordinates import refuse_whole_points
from spectrograd.io.read.layouts import Layout
from spectrograd.io.read.parquet_stream import arrow_labels
from spectrograd.io.read.plain_blocks import whole_lines
from spectrograd.io.read.scanned import BadWeight, Scanner
from spectrograd.io.read.tables import read_layout
from spectrograd.io.read.text import TextFile, split_line
from spectrograd.store.batches import NotIntegers

Array = NDArray[Any]
CHUNK = 32 << 20  # bytes of text at once
LARGE = 64 << 20  # bytes of a file whose ids are sampled, where only their number matters
BLANKS, OUTER_BLANKS = re.compile(rb"[ \t]+"), re.compile(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)")
COMMENT_LINE = re.compile(rb"(?m)^[ \t]*[#%][^\n]*\n")


@dataclass
class TextEdges:
    """One text file: its layout, and its edges as integers or as texts."""

    path: str
    columns: Mapping[str, str]
    header: bool | None = None
    format: str | None = None

    @cached_property
    def layout(self) -> Layout:
        """Where the columns are: as when the file is read into memory."""
        layout = read_layout(TextFile(self.path, self.format), self.columns, self.header)
        if layout.maybe_points:
            self._refuse_points(layout)
        return layout

    def _refuse_points(self, layout: Layout) -> None:
        """One look at all ids: whether whole numbers that hardly come again at first are coordinates."""
        large = TextFile(self.path).size > LARGE
        try:
            ends = ((batch[0], batch[1]) for batch in self._integers(layout))
            refuse_whole_points(self.path, self.path, ends, sample=16 if large else 1)
        except NotIntegers:
            return

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        return self._integers(self.layout)

    def _integers(self, layout: Layout) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        from spectrograd.kernels.ingest import scan

        scanner = Scanner(layout, integers=True)
        line = layout.skip
        for text in whole_lines(TextFile(self.path), layout.skip, CHUNK):
            block, n_lines, at, problem = scanner.look(text)
            if problem in (scan.NOT_INTEGER, scan.SURPRISE):
                raise NotIntegers
            if problem != scan.GOOD:
                raise self._wrong_width(layout, text, at, line + n_lines + 1)
            try:
                scanner.read_weights(text, block.weights)
            except BadWeight as error:
                number = line + text.count(b"\n", 0, error.args[0]) + 1
                raise GraphError(f"{self.path}, line {number}: {error}") from None
            line += n_lines
            labels = _labels(text, block.words[0]) if "layer" in layout.roles else None
            if block.ends.shape[1]:
                yield *block.ends, block.weights if "weight" in layout.roles else None, labels

    def _wrong_width(self, layout: Layout, text: bytes, at: int, line: int) -> GraphError:
        """What is wrong with a line, in words."""
        words = text[at : text.index(b"\n", at)].decode("utf-8", "replace")
        found, expected = len(split_line(words, layout.delimiter)), len(layout.roles)
        if found == expected:
            return GraphError(f"{self.path}, line {line}: a column is empty")
        return GraphError(f"{self.path}, line {line}: {expected} columns expected, found {found}")

    def texts(self) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Batches of ids as texts, by pyarrow."""
        arrow, csv = (
            need("pyarrow", "node ids that are texts"),
            need("pyarrow.csv", "node ids that are texts"),
        )
        skip, mark, roles = self.layout.skip, self.layout.delimiter, self.layout.roles
        names = [f"{number}" for number in range(len(roles))]
        chunks = _Joined(_plain_lines(whole_lines(TextFile(self.path), skip, CHUNK), tabs=not mark))
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
