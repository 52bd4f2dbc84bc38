"""Text edge lists that may be larger than memory: integer ids by our scanner, others by pyarrow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.io.read.compressed import data_suffix, open_bytes
from spectrograd.io.read.parquet_stream import arrow_labels
from spectrograd.io.read.tables import COLUMN_NAMES, role_of
from spectrograd.io.read.text import COMMENTS, is_number, sniff_delimiter, split_line
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
    def layout(self) -> tuple[int, bytes, list[str | None]]:
        """Lines before the first edge, delimiter (empty: runs of blanks) and the role of every column."""
        with open_bytes(self.path) as handle:
            head = io.TextIOWrapper(io.BytesIO(handle.read(1 << 20)), encoding="utf-8-sig", errors="replace")
            lines = enumerate(head, 1)
            edges = ((n, x) for n, x in lines if x.strip() and not x.strip().startswith(COMMENTS))
            number, line = next(edges, (0, ""))
        if not number:
            raise GraphError(f"{self.path}: empty, no edges in it; each line should be src,dst[,weight]")
        chosen = {name: role for role, name in self.columns.items()}

        def is_field(word: str) -> bool:
            return word in chosen or role_of(word) is not None or is_number(word)

        delimiter = sniff_delimiter(line, data_suffix(self.path), is_field)
        fields = split_line(line, delimiter)
        taken = set(self.columns)
        roles = [chosen.get(name) or (None if role_of(name) in taken else role_of(name)) for name in fields]
        missing = [name for name in chosen if name not in fields]
        if missing:
            raise GraphError(
                f"{self.path}, line {number}: no column {missing[0]!r} among {', '.join(fields)}"
            )
        mark = (delimiter or "").encode()
        if "src" in roles and "dst" in roles:
            twice = [role for role in roles if role and roles.count(role) > 1]
            if twice:
                raise GraphError(
                    f"{self.path}, line {number}: two columns name the {twice[0]} column; keep one"
                )
            return number, mark, roles
        if len(fields) not in (2, 3):
            raise GraphError(
                f"{self.path}, line {number}: 2 or 3 columns expected, found {len(fields)}; "
                "name the columns src,dst[,weight][,layer] in a header line, or use --source and --target"
            )
        return number - 1, mark, list(ROLES[: len(fields)])

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        from spectrograd.kernels.ingest import scan

        skip, mark, roles = self.layout
        kinds = np.array([ROLES.index(role) if role else scan.IGNORED for role in roles], np.int64)
        line = skip
        for text in _line_chunks(self.path, skip):
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

    def _error(self, text: bytes, at: int, line: int, roles: list[str | None], width: bool) -> Exception:
        """What is wrong with a line, in words; a weight only Python can read is left to the other door."""
        words = text[at : text.index(b"\n", at)].decode("utf-8", "replace")
        fields = split_line(words, self.layout[1].decode() or None)
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
        skip, mark, roles = self.layout
        names = [f"{number}" for number in range(len(roles))]
        chunks = _Joined(_plain_lines(_line_chunks(self.path, skip), tabs=not mark))
        try:
            with csv.open_csv(
                chunks,
                csv.ReadOptions(column_names=names, block_size=CHUNK // 4, use_threads=False),
                csv.ParseOptions(delimiter=mark.decode() or "\t", newlines_in_values=False),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False
                ),
            ) as reader:
                for batch in reader:
                    yield self._columns(batch, roles)
        except arrow.ArrowInvalid as error:
            raise GraphError(f"{self.path}: {' '.join(str(error).split())}") from None

    def _columns(self, batch: Any, roles: list[str | None]) -> tuple[Any, Any, Array | None, Any]:
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
