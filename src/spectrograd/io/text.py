"""Text files, plain or packed: how they are opened, their lines, delimiters, comments and rows of fields.

Lines have a maximal length: a few megabytes of gzip can unpack to gigabytes without a line end. Rows keep the
numbers of their lines, so that errors name them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from spectrograd.graph import GraphError
from spectrograd.system import need

MAX_LINE_BYTES = 1 << 24  # bytes: a point of a million coordinates fits


class LineLimit:
    """Measures lines as their bytes go by."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line = 1
        self._length = 0

    def feed(self, block: bytes) -> None:
        """Take the next bytes; a line that is longer than the limit is an error."""
        end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        # What begins and ends inside one block is in memory anyway: only what spans blocks can grow.
        if end < 0:
            self._length += len(block)
        else:
            self._line += block.count(b"\n")
            self._length = len(block) - end - 1
        if self._length > MAX_LINE_BYTES:
            raise GraphError(
                f"{self._name}, line {self._line}: longer than the limit of {MAX_LINE_BYTES // 2**20} MB; "
                "this is no table, or its lines do not end"
            )


def limit_lines(source: BinaryIO, name: str) -> io.BufferedReader:
    """The bytes of a reader, with an error where a line is longer than the limit."""
    return io.BufferedReader(_LimitedLines(source, name), buffer_size=1 << 16)


class _LimitedLines(io.RawIOBase):
    """Bytes of another reader, their lines measured."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        super().__init__()
        self._source = source
        self._limit = LineLimit(name)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the next bytes go."""
        block = self._source.read(len(buffer))
        self._limit.feed(block)
        buffer[: len(block)] = block
        return len(block)


# --- Hashes of files, by the bytes that readers read.


class FileHash:
    """SHA-256 of files, one after the other: ``digest`` is of the first ``n_passed``, as they were read.

    Only a file that is read from its first byte to its last counts, and only in the order of ``paths``.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self.n_passed = 0
        self.digest = hashlib.sha256()

    def expects(self, path: str) -> bool:
        """Whether the file is the next one."""
        return self.n_passed < len(self.paths) and self.paths[self.n_passed] == path


_ACTIVE_HASH: ContextVar[FileHash | None] = ContextVar("active_hash", default=None)


@contextmanager
def hashing_reads(paths: Sequence[str]) -> Iterator[FileHash]:
    """Hash plain and ``.gz`` files as the readers inside of this context read them."""
    active = FileHash(paths)
    token = _ACTIVE_HASH.set(active)
    try:
        yield active
    finally:
        _ACTIVE_HASH.reset(token)


class _HashedFile(io.RawIOBase):
    """A file whose bytes are hashed as they pass, in order only: it cannot seek."""

    def __init__(self, path: str, target: FileHash) -> None:
        super().__init__()
        self._file = io.FileIO(path)
        self._target = target
        self._digest = target.digest.copy()
        self._n_passed = target.n_passed

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the next bytes go; at the end of the file the hash is complete."""
        n = self._file.readinto(buffer) or 0
        if n:
            self._digest.update(memoryview(buffer)[:n])
        elif len(buffer) and self._target.n_passed == self._n_passed:
            self._target.digest = self._digest.copy()
            self._target.n_passed += 1
        return n

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _open_raw(path: str) -> BinaryIO:
    active = _ACTIVE_HASH.get()
    if active is None or not active.expects(path):
        return open(path, "rb")
    return io.BufferedReader(_HashedFile(path, active), buffer_size=1 << 16)


# --- Files that may be compressed: ``.gz`` by the standard library, ``.zst`` by pyarrow.

GZIP = ".gz"
ZSTD = ".zst"


def compression_of(path: str) -> str:
    """Return the final ``.gz`` or ``.zst`` of a path, or nothing."""
    return next((suffix for suffix in (GZIP, ZSTD) if path.lower().endswith(suffix)), "")


def without_compression(path: str) -> str:
    """Return the path without its final ``.gz`` or ``.zst``."""
    return path[: len(path) - len(compression_of(path))]


def data_suffix(path: str) -> str:
    """Return the lower-case suffix of a path, looking through a final ``.gz`` or ``.zst``."""
    return Path(without_compression(path.lower())).suffix


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open for reading, unpacked; every way in which that can fail is a GraphError with the file's name."""
    packing = compression_of(path)
    try:
        if packing == GZIP:
            with _open_raw(path) as raw, gzip.GzipFile(fileobj=raw) as handle:
                yield cast(BinaryIO, handle)
        elif packing == ZSTD:
            # pyarrow, unlike the zstandard package, notices a file that was cut off.
            arrow = need("pyarrow", f"{path}: a file packed by zstd")
            with arrow.input_stream(path, compression="zstd") as handle:
                yield handle
        else:
            with _open_raw(path) as handle:
                yield handle
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise GraphError(f"{path}: broken gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        if packing == ZSTD and error.errno is None:
            raise GraphError(f"{path}: broken zstd file ({error}); copy or compress it again") from None
        raise GraphError(f"{path}: {error.strerror or error}") from None


@contextmanager
def packed(handle: BinaryIO, path: str) -> Iterator[BinaryIO]:
    """Pack what is written as the path's suffix says; the handle itself stays open."""
    packing = compression_of(path)
    if packing == GZIP:
        with gzip.GzipFile(fileobj=handle, mode="wb", filename="", mtime=0) as gz:  # same data, same bytes
            yield cast(BinaryIO, gz)
    elif packing == ZSTD:
        arrow = need("pyarrow", f"{path}: a file packed by zstd")
        buffer = arrow.BufferOutputStream()
        with arrow.CompressedOutputStream(buffer, "zstd") as stream:
            yield stream
        handle.write(buffer.getvalue())
    else:
        yield handle


# --- Lines of text files: opening, comments, delimiters, and rows that remember their line numbers.

Row = tuple[str, ...]
STDIN = "-"
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".dat", ".data")
COMMENTS = ("#", "%")
ROWS_TO_SNIFF = 1000  # rows that decide what a column holds, where its name does not
HEAD_ROWS = 1 + ROWS_TO_SNIFF  # a header, or the first of them, comes before
INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")  # not int(): that takes "1_2", a likely node name, for 12
_WORDS = re.compile(r'"(?:[^"]|"")*"|\S+')
_QUOTED = re.compile(r'"([^"]*(?:""[^"]*)*)"')
_BLANKS = re.compile(" *")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class TextFile:
    """A text file, plain or packed, or standard input, that can be opened several times."""

    path: str
    format: str | None = None  # what its suffix would say, had it another name

    @property
    def name(self) -> str:
        """What error messages call it."""
        return "standard input" if self.path == STDIN else self.path

    @property
    def suffix(self) -> str:
        """The suffix that tells the format, without ``.gz`` or ``.zst``."""
        return data_suffix(self.path) if self.format is None else f".{self.format}"

    @cached_property
    def _typed(self) -> str:
        gauge = LineLimit(self.name)
        blocks = []
        while block := sys.stdin.read(_BLOCK):
            gauge.feed(block.encode("utf-8", "replace"))
            blocks.append(block)
        return "".join(blocks).removeprefix("\ufeff")

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Open for reading; every way in which that can fail is a GraphError with the file's name."""
        try:
            if self.path == STDIN:
                yield StringIO(self._typed)
            else:
                with open_bytes(self.path) as raw, limit_lines(raw, self.name) as lines:
                    yield TextIOWrapper(lines, encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise self._decoding_error(error) from None

    @cached_property
    def head(self) -> tuple[str, ...]:
        """The first lines, from which the layout is found, among them :data:`HEAD_ROWS` data lines."""
        lines: list[str] = []
        n_rows = 0
        with self.open() as handle:
            while n_rows < HEAD_ROWS and (line := handle.readline()):
                lines.append(line)
                n_rows += is_data_line(line)
        return tuple(lines)

    @property
    def first_line(self) -> str:
        """The first line that is neither blank nor a comment; empty where there is none."""
        return next(data_lines(self.head), (0, ""))[1]

    def decode(self, block: bytes) -> str:
        """Decode some bytes of the file; what is no UTF-8 is a GraphError."""
        try:
            return block.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._decoding_error(error) from None

    def _decoding_error(self, error: UnicodeDecodeError) -> GraphError:
        return GraphError(
            f"{self.name}: not UTF-8 text (byte {error.object[error.start]:#04x}); convert it first, "
            "for example with iconv"
        )

    @contextmanager
    def open_bytes(self) -> Iterator[BinaryIO]:
        """Open the bytes, unpacked, for a parser of its own."""
        if self.path == STDIN:
            yield BytesIO(self._typed.encode("utf-8"))
        else:
            with open_bytes(self.path) as raw, limit_lines(raw, self.name) as lines:
                yield lines

    @property
    def size(self) -> int:
        """Bytes of the file as it is stored."""
        return len(self._typed) if self.path == STDIN else os.path.getsize(self.path)

    def error(self, line: int, message: str) -> GraphError:
        """Make an error that points at a line."""
        return GraphError(f"{self.name}, line {line}: {message}")


def check_exists(path: str) -> None:
    """Refuse a path that is not a file, before anything is parsed."""
    if os.path.isdir(path):
        raise GraphError(f"{path}: is a folder; name the file inside it")
    if not os.path.exists(path):
        raise GraphError(f"{path}: no such file; check the spelling and the folder")


def is_number(word: str) -> bool:
    """Whether a word is a number, in Python's spelling."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def data_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is neither blank nor a comment."""
    for number, line in enumerate(lines, start=1):
        if is_data_line(line):
            yield number, line


def is_data_line(line: str) -> bool:
    """Whether a line is neither blank nor a comment."""
    text = line.strip()
    return bool(text) and not text.startswith(COMMENTS)


def sniff_delimiter(line: str, suffix: str, is_known: Callable[[str], bool]) -> str | None:
    """Guess the delimiter from the first data line; None means runs of whitespace.

    ``is_known`` says whether a word is surely a whole field (a number or a column name): a line of
    such words splits at whitespace even where it mixes tabs and blanks.
    """
    if suffix == ".tsv":
        return "\t"
    bare = re.sub(r'"(?:[^"]|"")*"', "", line.strip())
    # With decimal commas ("1;2;0,5") the semicolon is the one that makes more columns.
    marks = max(",;", key=bare.count)
    if suffix == ".csv" and marks in bare:
        return marks
    if all(is_known(word) for word in line.split()):
        return None
    if "\t" in bare:
        return "\t"
    return marks if marks in bare else None


def split_line(line: str, delimiter: str | None) -> list[str]:
    """Split one line into its fields, unquoted and stripped."""
    if delimiter is None:
        return _split_words(line)
    try:
        fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a quoted field beyond the limit of the csv module
        fields = _split_long_line(line.rstrip("\n"), delimiter, strict=False)
    return [field.strip() for field in fields]


def read_rows(file: TextFile, delimiter: str | None) -> tuple[list[Row], list[int]]:
    """Read all data rows with their line numbers: the slow way, which can say where an error is."""
    with file.open() as handle:
        text = handle.read()
    return split_rows(file, text, delimiter)


def split_rows(
    file: TextFile, text: str, delimiter: str | None, first_line: int = 1
) -> tuple[list[Row], list[int]]:
    """Split whole lines of a file into data rows, with the number of each row's line.

    Parameters
    ----------
    file : TextFile
        Named in errors.
    text : str
        Whole lines, each with its line feed.
    delimiter : str or None
        None: runs of white space.
    first_line : int
        Number of the first line of ``text``.
    """
    numbers: list[int] = []
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), start=first_line):
        start = line.lstrip()
        if start and start[0] not in COMMENTS:
            numbers.append(number)
            lines.append(line)
    binary = next((i for i, line in enumerate(lines) if "\0" in line), None) if "\0" in text else None
    if binary is not None:
        raise file.error(numbers[binary], "holds a NUL byte; this is not a plain UTF-8 text file")
    # Tuples of texts, unlike lists, cost the garbage collector nothing.
    if delimiter is None:
        return [tuple(_split_words(line)) for line in lines], numbers
    if '"' not in text:
        return [tuple(map(str.strip, line.split(delimiter))) for line in lines], numbers
    return _split_quoted_rows(file, delimiter, lines, numbers), numbers


def _split_quoted_rows(file: TextFile, delimiter: str, lines: list[str], numbers: list[int]) -> list[Row]:
    rows: list[Row] = []
    max_length = csv.field_size_limit()
    short_lines = (line if len(line) <= max_length else "" for line in lines)
    reader = csv.reader(short_lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    problem = ""
    try:
        for row in reader:
            if reader.line_num != len(rows) + 1:
                break
            line = lines[len(rows)]
            fields = row if len(line) <= max_length else _split_long_line(line, delimiter)
            rows.append(tuple(map(str.strip, fields)))
    except csv.Error as error:
        problem = str(error)
    if len(rows) == len(lines):
        return rows
    # An unclosed quote would swallow the lines that follow into one name.
    unclosed = reader.line_num != len(rows) + 1 or "end of data" in problem
    what = "a quoted name is not closed on its line" if unclosed else f"cannot be read: {problem}"
    raise file.error(numbers[len(rows)], what)


def _split_long_line(line: str, delimiter: str, *, strict: bool = True) -> list[str]:
    """Split as ``csv.reader`` does, without its limit on the length of a field.

    Examples
    --------
    >>> _split_long_line('a, "b,c",', ",")
    ['a', 'b,c', '']
    """
    fields: list[str] = []
    at = 0
    while True:
        begin = _BLANKS.match(line, at).end()  # type: ignore[union-attr]
        quoted = _QUOTED.match(line, begin)
        if quoted is None:
            if strict and line[begin : begin + 1] == '"':
                raise csv.Error("unexpected end of data")
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            fields.append(line[begin:end])
        else:
            end = quoted.end()
            fields.append(quoted[1].replace('""', '"'))
            if strict and line[end : end + 1] not in ("", delimiter):
                raise csv.Error(f"'{delimiter}' expected after '\"'")
        if end >= len(line):
            return fields
        at = end + 1


def _split_words(line: str) -> list[str]:
    if '"' not in line:
        return line.split()
    words = _WORDS.findall(line)
    return [
        word[1:-1].replace('""', '"') if len(word) > 1 and word[0] == word[-1] == '"' else word
        for word in words
    ]
