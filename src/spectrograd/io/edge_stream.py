"""Text edge lists that may be larger than memory: integer ids by our scanner, others by pyarrow."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.graph.validation import is_invalid
from spectrograd.io.coordinates import refuse_whole_points
from spectrograd.io.edge_table import (
    MARK,
    as_integers,
    columns_of_rows,
    read_layout,
    unescape_formulas,
    unique_names,
)
from spectrograd.io.parquet import PARQUET_SUFFIX, ParquetEdges, arrow_labels
from spectrograd.io.text import TEXT_SUFFIXES, TextFile, data_suffix, split_line, split_rows
from spectrograd.io.text_scanner import (
    BLOCK,
    BadLine,
    BadWeight,
    Layout,
    plain_block,
    scan_blocks,
    whole_lines,
)
from spectrograd.store import is_store
from spectrograd.store.edge_batches import EdgeBatch, NotIntegers
from spectrograd.system import need
from spectrograd.typing import Array

CHUNK = 32 << 20  # bytes of integer ids parsed together
TEXT_CHUNK = 8 << 20  # bytes of other ids, which take more memory than their text
MIN_BYTES_TO_SAMPLE = 64 << 20  # bytes of a file whose ids are sampled, where only their number matters
_OTHER_BLANKS = re.compile(r"[^\S \n]")  # white space of Unicode, at which str.split cuts too


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
        large = TextFile(self.path).size > MIN_BYTES_TO_SAMPLE
        try:
            ends = ((batch[0], batch[1]) for batch in self._integers(layout))
            refuse_whole_points(self.path, self.path, ends, sample=16 if large else 1)
        except NotIntegers:
            return

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        return self._integers(self.layout)

    def _integers(self, layout: Layout) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        file = TextFile(self.path)
        try:
            for block in scan_blocks(file, layout, integers=True, size=CHUNK, parallel=False):
                labels = _labels(block.text, block.words[0]) if "layer" in layout.roles else None
                if block.ends.shape[1]:
                    yield *block.ends, block.weights if "weight" in layout.roles else None, labels
        except BadWeight as error:
            raise GraphError(f"{self.path}, line {error.line}: {error}") from None
        except BadLine as error:
            if not error.is_integer:
                raise NotIntegers from None
            raise self._wrong_width(layout, error.text, error.at, error.line) from None

    def _wrong_width(self, layout: Layout, text: bytes, at: int, line: int) -> GraphError:
        """What is wrong with a line, in words."""
        words = text[at : text.index(b"\n", at)].decode("utf-8", "replace")
        found = len(split_line(words, layout.delimiter))
        expected = len(layout.roles)
        if found == expected:
            return GraphError(f"{self.path}, line {line}: a column is empty")
        return GraphError(f"{self.path}, line {line}: {expected} columns expected, found {found}")

    def texts(self) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Batches of ids as texts: parsed by pyarrow where that cannot misread them, else row by row."""
        need("pyarrow.csv", "node ids that are texts")
        layout = self.layout
        line = layout.skip + 1
        for text in whole_lines(TextFile(self.path, self.format), layout.skip, TEXT_CHUNK):
            batch = _parse_by_arrow(text, layout)
            if batch is None:
                yield from self._parse_rows(text, line)
            elif len(batch[0]):
                yield batch
            line += text.count(b"\n")

    def _parse_rows(self, text: bytes, line: int) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Parse as :func:`spectrograd.io.edge_table.read_table` does what a bulk parser might misread.

        ``line`` is the number of the first line, so that errors name theirs.
        """
        arrow = need("pyarrow", "node ids that are texts")
        file = TextFile(self.path, self.format)
        layout = self.layout
        for block in _cut_at_lines(text, BLOCK):
            # Line ends as in text mode: a carriage return of its own ends a line too.
            lines = file.decode(block).replace("\r\n", "\n").replace("\r", "\n")
            rows, numbers = split_rows(file, lines, layout.delimiter, line)
            line += lines.count("\n")
            if rows:
                columns, weight = columns_of_rows(file, layout, rows, numbers)
                labels = arrow_labels(arrow.array(columns["layer"])) if "layer" in columns else None
                yield arrow.array(columns["src"]), arrow.array(columns["dst"]), weight, labels


def _parse_by_arrow(text: bytes, layout: Layout) -> tuple[Any, Any, Array | None, Any] | None:
    """One batch of whole lines; None where a line may be wrong, or might be read in two ways."""
    arrow = need("pyarrow", "node ids that are texts")
    csv = need("pyarrow.csv", "node ids that are texts")
    names = [str(at) for at in range(len(layout.roles))]
    try:
        plain = plain_block(text, layout.delimiter)
        if layout.delimiter is None and not plain.isascii() and _OTHER_BLANKS.search(plain.decode("utf-8")):
            return None
        table = csv.read_csv(
            arrow.BufferReader(plain),
            # One block: a line of any length fits.
            csv.ReadOptions(column_names=names, block_size=len(plain) + 1, use_threads=False),
            csv.ParseOptions(delimiter=layout.delimiter or " ", newlines_in_values=False),
            csv.ConvertOptions(column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False),
        )
        cells = {role: _trim(table.column(at)) for at, role in enumerate(layout.roles) if role}
        weight = np.array(cells["weight"].cast("float64")) if "weight" in cells else None
    except ValueError:  # a surprise, no UTF-8, or a line that pyarrow refuses (ArrowInvalid)
        return None
    compute = need("pyarrow.compute", "node ids that are texts")
    ids = [column for role, column in cells.items() if role != "weight"]
    if any(compute.any(compute.equal(column, "")).as_py() for column in ids):
        return None
    if weight is not None and is_invalid(weight).any():
        return None
    labels = arrow_labels(cells["layer"]) if "layer" in cells else None
    return cells["src"], cells["dst"], weight, labels


def _trim(column: Any) -> Any:
    """A column of texts in one array, without outer blanks and without the marks before formulas."""
    arrow = need("pyarrow", "node ids that are texts")
    compute = need("pyarrow.compute", "node ids that are texts")
    texts = compute.utf8_trim_whitespace(column.combine_chunks())
    if compute.any(compute.starts_with(texts, MARK)).as_py():
        texts = arrow.array(unescape_formulas(texts.to_pylist()))
    return texts


def _cut_at_lines(text: bytes, size: int) -> Iterator[bytes]:
    """Parts of at least ``size`` bytes, each cut behind a line end."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + size) + 1
        end = end if end else len(text)
        yield text[begin:end]
        begin = end


def _labels(text: Array, layers: Array) -> tuple[Array, list[str]]:
    """The layer of every edge as a small number, and the names of these."""
    _, first, codes = np.unique(layers[0], return_index=True, return_inverse=True)
    spans = layers[1:, first].T.tolist()
    return codes, [text[begin : begin + size].tobytes().decode("utf-8", "replace") for begin, size in spans]


# --- Edges of files, listed batch by batch: what a store is made of.

STREAMED_SUFFIXES = (*TEXT_SUFFIXES, PARQUET_SUFFIX)


@dataclass(eq=False)
class FileSource:
    """Edges of files; the files of one group are parts of one layer, or share a layer column.

    Parameters
    ----------
    groups : mapping
        Names of layers to their files, text (also packed) or Parquet. A single group is no layer by itself.
    columns : mapping
        Roles (``src``, ``dst``, ``weight``, ``layer``) to columns with names that are not the usual ones.
    n_nodes : int, optional
        Ids are row numbers below this one, and rows without edges are nodes, too.
    header : bool, optional
        Whether the first line of a text names the columns; None finds out.
    format : str, optional
        What the suffix of the files would say, had they other names.
    """

    groups: Mapping[str, Sequence[str]]
    columns: Mapping[str, str] = field(default_factory=dict)
    n_nodes: int | None = None
    header: bool | None = None
    format: str | None = None
    names: Array | None = None
    _codes: dict[tuple[int, str], int] = field(default_factory=dict)
    _readers: dict[str, TextEdges | ParquetEdges] = field(default_factory=dict)
    _versions: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and time of every file

    @property
    def multilayer(self) -> bool:
        """Whether there are several groups, or a layer column."""
        return len(self.groups) > 1 or any(label for _, label in self._codes)

    def layers(self) -> list[tuple[int, str]]:
        """By group, then by label: as numbers where all labels are."""
        numbers = as_integers([label for _, label in self._codes if label]) is not None
        keys = sorted(self._codes, key=lambda key: (key[0], int(key[1] or 0) if numbers else 0, key[1]))
        stems = list(self.groups) if len(self.groups) > 1 else [""]
        texts = [":".join(filter(None, (stems[group], label))) or "graph" for group, label in keys]
        return [(self._codes[key], name) for key, name in zip(keys, unique_names(texts), strict=True)]

    def _code(self, group: int, label: str) -> int:
        return self._codes.setdefault((group, label), len(self._codes))

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """All edges of all files."""
        for group, paths in enumerate(self.groups.values()):
            for path in paths:
                yield from self._file(group, path, texts)

    def _file(self, group: int, path: str, texts: bool) -> Iterator[EdgeBatch]:
        if path not in self._readers:  # kept: what it finds out about columns it says once
            suffix = data_suffix(path) if self.format is None else f".{self.format}"
            if suffix == PARQUET_SUFFIX:
                self._readers[path] = ParquetEdges(path, self.columns)
            else:
                self._readers[path] = TextEdges(path, self.columns, self.header, self.format)
        reader = self._readers[path]
        found = False
        seen = self._versions.setdefault(path, _version(path))
        for source, target, weight, labels in reader.texts() if texts else reader.integers():
            found = True
            if labels is None:
                yield EdgeBatch(source, target, weight, self._code(group, ""))
                continue
            for at, name in enumerate(labels[1]):
                chosen = np.flatnonzero(labels[0] == at)
                ends = _take(source, chosen), _take(target, chosen)
                yield EdgeBatch(*ends, None if weight is None else weight[chosen], self._code(group, name))
        if _version(path) != seen:
            raise GraphError(f"{path}: changed while it was read; convert it again when it is whole")
        if not found:
            raise GraphError(f"{path}: empty, no edges in it")


def _version(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _take(column: Any, chosen: Array) -> Any:
    return column[chosen] if isinstance(column, np.ndarray) else column.take(chosen)


def files_of(argument: str) -> list[str]:
    """The files that a folder, a pattern or a path stands for."""
    if os.path.isdir(argument) and not is_store(argument):
        inside = sorted(path for path in Path(argument).iterdir() if not path.name.startswith("."))
        files = [str(path) for path in inside if path.is_file()]
        if not files:
            raise GraphError(f"{argument}: a folder without files in it")
        return files
    if not os.path.exists(argument) and glob.has_magic(argument):
        matched = sorted(glob.glob(argument))
        if not matched:
            raise GraphError(f"{argument}: no file matches")
        return matched
    return [argument]
