"""Edge lists that may be larger than memory, batch by batch: text by our scanner, Parquet and other ids by pyarrow."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.io.compressed import data_suffix, open_bytes
from spectrograd.io.join import unique
from spectrograd.io.parquet import PARQUET_SUFFIX
from spectrograd.io.tables import COLUMN_NAMES, as_integers, role_of
from spectrograd.io.text import COMMENTS, TEXT_SUFFIXES, is_number, sniff_delimiter, split_line
from spectrograd.store.batches import AT_ONCE, EdgeBatch, NotIntegers

Array = NDArray[Any]
CHUNK = 32 << 20  # bytes of text at once
STREAMED_SUFFIXES = (*TEXT_SUFFIXES, PARQUET_SUFFIX)
ROLES = tuple(COLUMN_NAMES)  # src, dst, weight, layer: as kernels.scan counts them
_COMMENT_LINE = re.compile(rb"(?m)^[ \t]*[#%][^\n]*\n")


@dataclass(eq=False)
class FileSource:
    """Edges of files with the same columns; each file is a layer, or has a layer column, or all are one graph.

    Parameters
    ----------
    paths : sequence of str
        Text (also packed) and Parquet files.
    columns : mapping
        Roles (``src``, ``dst``, ``weight``, ``layer``) to names of columns, where they are not the usual ones.
    layered : bool
        Whether every file is a layer of its own, named after it.
    n_nodes : int, optional
        Ids are row numbers below this one, and rows without edges are nodes, too.
    """

    paths: Sequence[str]
    columns: Mapping[str, str] = field(default_factory=dict)
    layered: bool = False
    n_nodes: int | None = None
    names: Array | None = None
    _codes: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def multilayer(self) -> bool:
        """Whether files are layers or have a layer column."""
        return self.layered or any(label for _, label in self._codes)

    def layers(self) -> list[tuple[int, str]]:
        """By file, then by label: as numbers where all labels are."""
        labels = [label for _, label in self._codes]
        numbers = as_integers([label for label in labels if label]) is not None

        def rank(key: tuple[int, str]) -> tuple[Any, ...]:
            return key[0], int(key[1] or 0) if numbers else 0, key[1]

        keys = sorted(self._codes, key=rank)
        texts = [":".join(filter(None, (self._stem(number), label))) or "graph" for number, label in keys]
        return [(self._codes[key], name) for key, name in zip(keys, unique(texts), strict=True)]

    def _stem(self, number: int) -> str:
        return Path(self.paths[number]).name.split(".")[0] if self.layered else ""

    def code(self, number: int, label: str) -> int:
        """The number of a layer."""
        return self._codes.setdefault((number if self.layered else 0, label), len(self._codes))

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """All edges of all files."""
        for number, path in enumerate(self.paths):
            is_table = data_suffix(path) == PARQUET_SUFFIX
            door = _ParquetDoor(path, self.columns) if is_table else _TextDoor(path, self.columns)
            found = False
            for source, target, weight, labels in door.texts() if texts else door.integers():
                found = True
                if labels is None:
                    yield EdgeBatch(source, target, weight, self.code(number, ""))
                else:
                    yield from self._by_layer(number, source, target, weight, labels)
            if not found:
                raise GraphError(f"{path}: empty, no edges in it")

    def _by_layer(self, number: int, source: Any, target: Any, weight: Array | None, labels: Any) -> Iterator[EdgeBatch]:
        codes, names = labels
        for at, name in enumerate(names):
            chosen = np.flatnonzero(codes == at)
            of_layer = None if weight is None else weight[chosen]
            yield EdgeBatch(_taken(source, chosen), _taken(target, chosen), of_layer, self.code(number, name))


def _taken(column: Any, chosen: Array) -> Any:
    return column[chosen] if isinstance(column, np.ndarray) else column.take(chosen)


@dataclass
class _TextDoor:
    """One text file: its layout, and its edges as integers or as texts."""

    path: str
    columns: Mapping[str, str]

    @cached_property
    def layout(self) -> tuple[int, bytes, list[str | None]]:
        """Lines before the first edge, delimiter (empty: runs of blanks) and the role of every column."""
        with open_bytes(self.path) as handle:
            head = io.TextIOWrapper(io.BytesIO(handle.read(1 << 20)), encoding="utf-8-sig", errors="replace")
            lines = enumerate(head, 1)
            number, line = next(((n, x) for n, x in lines if x.strip() and not x.strip().startswith(COMMENTS)), (0, ""))
        if not number:
            raise GraphError(f"{self.path}: empty, no edges in it; each line should be src,dst[,weight]")
        chosen = {name: role for role, name in self.columns.items()}
        delimiter = sniff_delimiter(
            line, data_suffix(self.path), lambda word: word in chosen or role_of(word) is not None or is_number(word)
        )
        fields = split_line(line, delimiter)
        taken = set(self.columns)
        roles = [chosen.get(name) or (None if role_of(name) in taken else role_of(name)) for name in fields]
        missing = [name for name in chosen if name not in fields]
        if missing:
            raise GraphError(f"{self.path}, line {number}: no column {missing[0]!r} among {', '.join(fields)}")
        mark = (delimiter or "").encode()
        if "src" in roles and "dst" in roles:
            twice = [role for role in roles if role and roles.count(role) > 1]
            if twice:
                raise GraphError(f"{self.path}, line {number}: two columns name the {twice[0]} column; keep one")
            return number, mark, roles
        if len(fields) not in (2, 3):
            raise GraphError(
                f"{self.path}, line {number}: 2 or 3 columns expected, found {len(fields)}; "
                "name the columns src,dst[,weight][,layer] in a header line or say which they are (--source, --target)"
            )
        return number - 1, mark, list(ROLES[: len(fields)])

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        from spectrograd.kernels import scan

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
        """What is wrong with a line, in words; a weight in a spelling only Python knows is left to the other door."""
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
        arrow, csv = need("pyarrow", "node ids that are texts"), need("pyarrow.csv", "node ids that are texts")
        skip, mark, roles = self.layout
        names = [f"{number}" for number in range(len(roles))]
        if not mark:
            raise GraphError(
                f"{self.path}: text ids need commas, semicolons or tabs between columns; "
                "read_graph takes blanks, in memory"
            )
        chunks = _Joined(_without_comments(_line_chunks(self.path, skip)))
        try:
            with csv.open_csv(
                chunks,
                csv.ReadOptions(column_names=names, block_size=CHUNK // 4, use_threads=False),
                csv.ParseOptions(delimiter=mark.decode(), newlines_in_values=False),
                csv.ConvertOptions(column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False),
            ) as reader:
                for batch in reader:
                    yield self._columns(batch, roles)
        except arrow.ArrowInvalid as error:
            raise GraphError(f"{self.path}: {' '.join(str(error).split())}") from None

    def _columns(self, batch: Any, roles: list[str | None]) -> tuple[Any, Any, Array | None, Any]:
        compute = need("pyarrow.compute", "node ids that are texts")
        column = {role: compute.utf8_trim_whitespace(batch.column(at)) for at, role in enumerate(roles) if role}
        for role in ("src", "dst", "layer"):
            if role in column and compute.any(compute.equal(column[role], "")).as_py():
                raise GraphError(f"{self.path}: the {role} column is empty in some line")
        weight = None
        if "weight" in column:
            try:
                weight = column["weight"].cast("float64").to_numpy(zero_copy_only=False).copy()
            except Exception as error:
                raise GraphError(f"{self.path}: weight is not a number ({str(error).splitlines()[0]})") from None
        labels = _arrow_labels(column["layer"]) if "layer" in column else None
        return column["src"], column["dst"], weight, labels


def _labels(text: bytes, layers: Array) -> tuple[Array, list[str]]:
    """The layer of every edge as a small number, and the names of these."""
    _, first, codes = np.unique(layers[0], return_index=True, return_inverse=True)
    spans = layers[1:, first].T.tolist()
    return codes, [text[begin : begin + size].decode("utf-8", "replace") for begin, size in spans]


def _arrow_labels(column: Any) -> tuple[Array, list[str]]:
    coded = column.dictionary_encode()
    return coded.indices.to_numpy(), [str(label) for label in coded.dictionary.to_pylist()]


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


def _without_comments(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for text in chunks:
        yield _COMMENT_LINE.sub(b"", text) if b"#" in text or b"%" in text else text


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


@dataclass
class _ParquetDoor:
    """One Parquet file."""

    path: str
    columns: Mapping[str, str]

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        for at, columns in self._batches():
            ends = [columns[end] for end in ("src", "dst")]
            if any(str(end.type) not in _INTEGERS for end in ends):
                raise NotIntegers
            source, target = (end.to_numpy().astype(np.int64, copy=False) for end in ends)
            yield source, target, self._weight(at, columns), self._layer(columns)

    def texts(self) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Batches of ids as texts."""
        for at, columns in self._batches():
            ends = [columns[end] for end in ("src", "dst")]
            if any(str(end.type) in ("float", "double", "halffloat") for end in ends):
                raise GraphError(f"{self.path}: ids are fractions; store them as integers or texts")
            try:
                source, target = (end.cast("string") for end in ends)
            except Exception as error:
                raise GraphError(f"{self.path}: ids that are no texts ({error})") from None
            yield source, target, self._weight(at, columns), self._layer(columns)

    def _batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        arrow, parquet = need("pyarrow", f"{self.path}: Parquet"), need("pyarrow.parquet", f"{self.path}: Parquet")
        try:
            with parquet.ParquetFile(self.path) as file:
                roles = self._roles(file.schema_arrow.names)
                at = 0
                for batch in file.iter_batches(AT_ONCE, columns=list(roles.values())):
                    columns = {role: batch.column(name) for role, name in roles.items()}
                    for role, column in columns.items():
                        if column.null_count:
                            row = at + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                            raise GraphError(f"{self.path}, row {row}: the column {roles[role]!r} is empty")
                    yield at, columns
                    at += len(batch)
        except (arrow.ArrowException, OSError) as error:
            raise GraphError(f"{self.path}: not a Parquet file ({' '.join(str(error).split())})") from None

    def _roles(self, names: list[str]) -> dict[str, str]:
        found = dict(self.columns)
        for name in names:
            role = role_of(name)
            if role and role not in self.columns and name not in self.columns.values():
                if role in found:
                    raise GraphError(f"{self.path}: {found[role]!r} and {name!r} both name the {role} column; drop one")
                found[role] = name
        missing = [name for name in found.values() if name not in names]
        if missing or not {"src", "dst"} <= set(found):
            what = f"no column {missing[0]!r}" if missing else "no columns 'src' and 'dst'"
            raise GraphError(f"{self.path}: {what} among {', '.join(names)}; say which they are (--source, --target)")
        return found

    def _weight(self, at: int, columns: dict[str, Any]) -> Array | None:
        if "weight" not in columns:
            return None
        weight = columns["weight"].cast("float64").to_numpy(zero_copy_only=False).copy()
        bad = ~np.isfinite(weight) | (weight < 0)
        if bad.any():
            row = int(np.argmax(bad))
            raise GraphError(f"{self.path}, row {at + row}: weight {weight[row]} must be finite and not negative")
        return weight

    def _layer(self, columns: dict[str, Any]) -> Any:
        return _arrow_labels(columns["layer"].cast("string")) if "layer" in columns else None


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def expanded(arguments: Sequence[str], layered: bool | None) -> list[str]:
    """Folders and patterns become the files that are in them."""
    import glob

    found: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument) and not os.path.exists(os.path.join(argument, "meta.json")):
            inside = sorted(os.path.join(argument, name) for name in os.listdir(argument) if not name.startswith("."))
            files = [path for path in inside if os.path.isfile(path)]
            if not files:
                raise GraphError(f"{argument}: a folder without files in it")
            found += files
        elif not os.path.exists(argument) and glob.has_magic(argument):
            matched = sorted(glob.glob(argument))
            if not matched:
                raise GraphError(f"{argument}: no file matches")
            found += matched
        else:
            found.append(argument)
    return found


def keep_stdin(target: BinaryIO) -> None:
    """Copy standard input to a file: it can be read only once."""
    shutil.copyfileobj(sys.stdin.buffer, target, 1 << 20)
