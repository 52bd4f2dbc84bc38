"""Parsing of text tables in blocks of whole lines: by compiled code, or by ``str.split`` for small files.

Comments and blank lines are cut out. What a parser of blocks might read otherwise than the parser of single
lines (:mod:`spectrograd.io.text`) is an :class:`AmbiguousText`, and the latter reads the table.
:func:`scan_blocks` feeds the graph in memory and the store on disk.
"""

from __future__ import annotations

import io
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.text import TextFile, is_number
from spectrograd.system import MissingExtra, need
from spectrograd.typing import Array

BLOCK = 1 << 20  # bytes at once: enough to hide the calls, and little beside what is kept of them
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n", re.MULTILINE)
_COMMENT_SIGNS = tuple(before + mark for before in (b"\n", b" ", b"\t") for mark in (b"#", b"%"))
# NUL, and what str.split takes for white space but no parser of tables does.
_ODD_BYTES = tuple(bytes([code]) for code in (0, 11, 12, 28, 29, 30, 31))
_QUOTE = ord('"')
_NEWLINE = ord("\n")


class AmbiguousText(ValueError):
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
    """Make whole lines plain, or raise :class:`AmbiguousText`."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            raise AmbiguousText("a carriage return of its own")
    if any(odd in block for odd in _ODD_BYTES):
        raise AmbiguousText("control characters")
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
        raise AmbiguousText("quotes between blanks")
    letters = np.frombuffer(b"\n" + block, dtype=np.uint8)
    quotes = np.flatnonzero(letters == _QUOTE)
    newlines = np.flatnonzero(letters == _NEWLINE)
    opening = quotes[::2]
    closing = quotes[1::2]
    edges = (ord(delimiter), _NEWLINE)
    whole = len(opening) == len(closing) and np.isin(letters[opening - 1], edges).all()
    if not whole or not np.isin(letters[closing + 1], edges).all():
        raise AmbiguousText("quotes inside a field")
    if np.any(np.searchsorted(newlines, opening) != np.searchsorted(newlines, closing)):
        raise AmbiguousText("a quoted line end")


# --- What a text table is, and what its columns become.

ENDS = ("src", "dst")


@dataclass(frozen=True)
class Layout:
    """What the first data line tells: where the columns are and how they are parted."""

    delimiter: str | None
    roles: tuple[str | None, ...]
    skip: int  # lines before the first that may hold an edge
    header: tuple[str, ...] = ()
    integers: bool = False  # both ends of the first edge are
    maybe_points: bool = False  # whole numbers of which hardly one comes again in the first lines


@dataclass(frozen=True, eq=False)
class CodedTexts:
    """A column, or several of the same kind: the distinct ``texts`` and each cell's place among them."""

    texts: list[str]
    codes: tuple[Array, ...]  # one array per column


@dataclass(frozen=True, eq=False)
class BulkColumns:
    """The columns with a role; ``ends`` are integers, or texts with their codes."""

    ends: tuple[Array, Array] | CodedTexts
    weight: Array | None = None
    layer: CodedTexts | None = None


# --- Columns of a large text table by compiled code: all threads scan blocks, ids are numbered as they come.


class ScannedBlock(NamedTuple):
    """Edges of the whole lines ``text``: integer ends (2, n) or words (columns, 3, n), and weights."""

    text: Array
    n_lines: int
    ends: Array
    weights: Array
    words: Array


def scan_columns(file: TextFile, layout: Layout, size: int = BLOCK) -> BulkColumns | None:
    """The columns of a table, or None where the careful scan must look."""
    for integers in (True, False) if layout.integers else (False,):
        try:
            return _gather_columns(file, layout, integers, size)
        except ValueError:  # a surprise, no UTF-8, or a weight that is no number
            continue
    return None


def _gather_columns(file: TextFile, layout: Layout, integers: bool, size: int) -> BulkColumns | None:
    """The columns of all blocks."""
    nodes = Vocabulary()
    layers = Vocabulary()
    parts: dict[str, list[Array]] = {role: [] for role in layout.roles if role}
    for block in scan_blocks(file, layout, integers, size):
        words: Iterator[Array] = iter(block.words)
        for at, end in enumerate(("src", "dst")):
            found = _narrow(block.ends[at]) if integers else nodes.codes(block.text, next(words))
            parts[end].append(found)
        if "weight" in parts:
            parts["weight"].append(block.weights)
        if "layer" in parts:
            parts["layer"].append(layers.codes(block.text, next(words)))
    if not any(map(len, parts["src"])):
        return None
    source, target = (np.concatenate(parts.pop(end)) for end in ("src", "dst"))
    weight = np.concatenate(parts.pop("weight")) if "weight" in parts else None
    layer = CodedTexts(layers.texts(), (np.concatenate(parts["layer"]),)) if "layer" in parts else None
    return BulkColumns(
        (source, target) if integers else CodedTexts(nodes.texts(), (source, target)), weight, layer
    )


def scan_blocks(
    file: TextFile, layout: Layout, integers: bool, size: int = BLOCK, *, parallel: bool = True
) -> Iterator[ScannedBlock]:
    """Yield the edges of a file by compiled code; a line that is not plainly an edge is a :class:`BadLine`.

    Parameters
    ----------
    file : TextFile
    layout : Layout
    integers : bool
        Whether the ends are integers; else they are words.
    size : int
        Bytes of a block.
    parallel : bool
        Scan a block on each thread; else one block is in memory at a time.
    """
    from spectrograd.kernels.jit import in_order

    scanner = Scanner(layout, integers)
    texts = whole_lines(file, layout.skip, size)
    n_lines = layout.skip
    try:
        for block in in_order(scanner.scan, texts) if parallel else map(scanner.scan, texts):
            yield block
            n_lines += block.n_lines
    except BadLine as error:
        error.line += n_lines
        raise


def _narrow(numbers: Array) -> Array:
    """Integers in half the memory where they fit, else as they are."""
    narrow = numbers.astype(np.int32)
    return narrow if np.array_equal(narrow, numbers) else numbers.copy()


class Scanner:
    """Reads blocks of whole lines: one layout, several threads."""

    def __init__(self, layout: Layout, integers: bool) -> None:
        from spectrograd.kernels import text as scan

        meanings = {"src": scan.SOURCE, "dst": scan.TARGET, "weight": scan.WEIGHT, None: scan.IGNORED}
        words = [role for role in ("src", "dst", "layer") if role in layout.roles]
        words = words[2:] if integers else words
        meanings |= {role: scan.WORD + at for at, role in enumerate(words)}
        self._roles = np.array([meanings[role] for role in layout.roles], np.int64)
        self._classes = scan.byte_classes(layout.delimiter)
        self._weighted = "weight" in layout.roles
        self._n_words = len(words)
        end = re.escape(layout.delimiter) if layout.delimiter else " \t"
        self._field = re.compile(rb'[^\r\n"' + end.encode() + rb"]*")

    def scan(self, text: bytes) -> ScannedBlock:
        """Scan the edges of whole lines; raise :class:`BadLine` for the first line that is no edge."""
        from spectrograd.kernels import text as kernels

        letters = np.frombuffer(text, np.uint8)
        capacity = text.count(b"\n")
        ends = np.empty((2, capacity), np.int64)
        weights = np.empty(capacity if self._weighted else 0)
        words = np.empty((self._n_words, 3, capacity), np.int64)
        n, n_lines, at, problem = kernels.scan_edges(
            letters, self._classes, self._roles, ends, weights, words
        )
        if problem != kernels.GOOD:
            is_integer = problem not in (kernels.NOT_INTEGER, kernels.SURPRISE)
            raise BadLine("no edge, or not plainly one", text, at, n_lines + 1, is_integer=is_integer)
        self.read_weights(text, weights[:n])
        return ScannedBlock(letters, n_lines, ends[:, :n], weights[:n], words[:, :, :n])

    def read_weights(self, text: bytes, weights: Array) -> None:
        """Mutates: weights that the compiled code could not read exactly are read by Python."""
        for edge in np.flatnonzero(weights < 0).tolist():
            begin = int(-1 - weights[edge])
            match = self._field.match(text, begin)
            word = match[0].decode("utf-8", "replace").strip() if match else ""
            problem = ""
            if not is_number(word):
                problem = f"{word!r} is not a number (weight)"
            elif is_invalid(float(word)):
                problem = f"weight {word} {explain_weight(float(word))}"
            if problem:
                raise BadWeight(problem, text, begin, text.count(b"\n", 0, begin) + 1)
            weights[edge] = float(word)


class BadLine(AmbiguousText):
    """The first line that is not plainly an edge: its text from the byte ``at`` on, its number ``line``.

    ``is_integer`` is false where an id is no integer, or might be none.
    """

    def __init__(self, problem: str, text: bytes, at: int, line: int, *, is_integer: bool = True) -> None:
        super().__init__(problem)
        self.text = text
        self.at = at
        self.line = line
        self.is_integer = is_integer


class BadWeight(BadLine):
    """A weight is no number, or one that a weight may not be."""


@dataclass
class Vocabulary:
    """Words numbered in the order they are first met, whatever block they stand in."""

    _slots: Array = field(default_factory=lambda: np.zeros(1 << 12, np.uint64))
    _starts: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    _letters: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    _n_known: int = 0

    def codes(self, text: Array, words: Array) -> Array:
        """Numbers of words (3, n) in a text, new ones at the end: int32, (n,)."""
        from spectrograd.kernels.text import number_words

        codes = np.empty(words.shape[1], np.int32)
        self._reserve(words)
        table = self._slots, self._starts, self._letters
        self._n_known = number_words(text, words, *table, self._n_known, codes)
        return codes

    def texts(self) -> list[str]:
        """The words; an error where one is no UTF-8."""
        return self._letters[: self._starts[self._n_known]].tobytes().decode("utf-8").split("\n")[:-1]

    def _reserve(self, words: Array) -> None:
        """Grow the table until all the words could be new."""
        from spectrograd.kernels.text import spread_slots

        most = self._n_known + words.shape[1]
        self._starts = _enlarge(self._starts, most + 1)
        size = int(self._starts[self._n_known] + words[2].sum() + words.shape[1])
        self._letters = _enlarge(self._letters, size)
        if 2 * most > len(self._slots):
            old = self._slots
            self._slots = np.zeros(1 << (2 * most).bit_length(), np.uint64)
            spread_slots(old, self._slots)


def _enlarge(array: Array, size: int) -> Array:
    """The array, or a longer one that begins with it: twice as long at least, so that few are copied."""
    if size <= len(array):
        return array
    longer: Array = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


# --- Columns of a text table parsed in bulk: large files by compiled code, others by splitting whole blocks.

# Bytes of a file. Splitting fewer takes less than half a second, and nobody waits for a compiler.
MIN_BYTES_TO_COMPILE = 1 << 23
MIN_BYTES_FOR_ARROW = 1 << 22  # below, importing pyarrow takes longer than it saves


def read_columns(file: TextFile, layout: Layout) -> BulkColumns | None:
    """The columns of a table, or None where the careful scan must look."""
    read = scan_columns if file.size >= MIN_BYTES_TO_COMPILE else split_columns
    return read(file, layout)


def arrow_numbers(text: bytes, width: int) -> Array | None:
    """Lines of ``width`` numbers between blanks: float64, (lines, width); None where one is odd.

    Also None where the text is short or pyarrow is missing.
    """
    if len(text) < MIN_BYTES_FOR_ARROW:
        return None
    try:
        arrow = need("pyarrow", "numbers in bulk")
        csv = need("pyarrow.csv", "numbers in bulk")
        names = [str(at) for at in range(width)]
        table = csv.read_csv(
            io.BytesIO(plain_block(text + b"\n", None)),
            read_options=csv.ReadOptions(column_names=names, block_size=BLOCK),
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.float64()), null_values=[]
            ),
        )
    except (MissingExtra, ValueError):  # a surprise, or what pyarrow refuses
        return None
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


@dataclass
class _Numbering:
    """Texts numbered in the order they are first met."""

    place_of: defaultdict[str, int] = field(default_factory=defaultdict)

    def __post_init__(self) -> None:
        self.place_of.default_factory = self.place_of.__len__

    def codes(self, texts: Sequence[str]) -> Array:
        """Places of texts, new ones at the end: int32, (n,)."""
        return np.fromiter(map(self.place_of.__getitem__, texts), dtype=np.int32, count=len(texts))


def split_columns(file: TextFile, layout: Layout, size: int = BLOCK) -> BulkColumns | None:
    """The columns by one ``str.split`` per block; needs nothing but numpy."""
    nodes = _Numbering()
    layers = _Numbering()
    place = {role: at for at, role in enumerate(layout.roles) if role}
    parts: dict[str, list[Array]] = {role: [] for role in place}
    try:
        for block in plain_blocks(file, layout.skip, layout.delimiter, size):
            columns = _split(block, layout.delimiter or " ", len(layout.roles))
            for role, at in place.items():
                texts = columns[at]
                if role == "weight":
                    part = np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
                else:
                    part = (layers if role == "layer" else nodes).codes(texts)
                parts[role].append(part)
    except ValueError:  # a surprise, no UTF-8, or a weight that is no number
        return None
    if not parts["src"]:
        return None
    whole = {role: np.concatenate(arrays) for role, arrays in parts.items()}
    layer = CodedTexts(list(layers.place_of), (whole["layer"],)) if "layer" in whole else None
    ends = CodedTexts(list(nodes.place_of), (whole["src"], whole["dst"]))
    return BulkColumns(ends, whole.get("weight"), layer)


def _split(block: bytes, delimiter: str, width: int) -> list[list[str]]:
    """The columns of a block whose lines all have ``width`` fields."""
    if b'"' in block:
        raise AmbiguousText("quotes")
    letters = np.frombuffer(block, dtype=np.uint8)
    marks = letters[(letters == ord(delimiter)) | (letters == ord("\n"))]
    if len(marks) % width or np.any(
        (marks.reshape(-1, width) == ord("\n")) != (np.arange(width) == width - 1)
    ):
        raise AmbiguousText("lines of several widths")
    fields = block.decode("utf-8").replace("\n", delimiter).split(delimiter)
    fields.pop()  # behind the last line end
    return [fields[at::width] for at in range(width)]
