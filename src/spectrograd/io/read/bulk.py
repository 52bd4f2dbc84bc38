"""Columns of a text table parsed in bulk: by pyarrow where it is installed, else by splitting whole blocks.

Ids become numbers by hashing, so that later steps look at each distinct id once, not at each edge.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spectrograd.extras import MissingExtra, need
from spectrograd.graph import Array
from spectrograd.io.read.plain_blocks import BLOCK, Surprise, plain_block, plain_blocks
from spectrograd.io.read.text import TextFile, has_padded_number

WORTH_ARROW = 1 << 22  # bytes of a file: below, importing pyarrow takes longer than it saves
ENDS = ("src", "dst")


@dataclass(frozen=True)
class Layout:
    """What the first data line tells: where the columns are and how they are parted."""

    delimiter: str | None
    roles: tuple[str | None, ...]
    skip: int  # lines before the first that may hold an edge
    header: tuple[str, ...] = ()
    integers: bool = False  # both ends of the first edge are


@dataclass(frozen=True, eq=False)
class Coded:
    """A column, or several of the same kind: the distinct ``texts`` and each cell's place among them."""

    texts: list[str]
    codes: tuple[Array, ...]  # one array per column


@dataclass(frozen=True, eq=False)
class BulkColumns:
    """The columns with a role; ``ends`` are integers, or texts with their codes."""

    ends: tuple[Array, Array] | Coded
    weight: Array | None = None
    layer: Coded | None = None


def read_columns(file: TextFile, layout: Layout) -> BulkColumns | None:
    """The columns of a table, or None where the careful scan must look."""
    if file.size >= WORTH_ARROW:
        try:
            return arrow_columns(file, layout)
        except MissingExtra:
            pass
    return split_columns(file, layout)


def arrow_columns(file: TextFile, layout: Layout, size: int = BLOCK) -> BulkColumns | None:
    """The columns as pyarrow parses them, on all cores."""
    arrow, csv = need("pyarrow", "a table in bulk"), need("pyarrow.csv", "a table in bulk")
    for integers in (True, False) if layout.integers else (False,):
        try:
            blocks = plain_blocks(file, layout.skip, layout.delimiter, size)
            stream = _BlockReader(_unpadded(blocks) if integers else blocks)
            table = _parsed(csv, stream, layout, integers, size)
        except (Surprise, arrow.ArrowInvalid):
            continue
        if table.num_rows == 0:
            return None
        weight = table["weight"].to_numpy() if "weight" in layout.roles else None
        layer = _coded(table["layer"]) if "layer" in layout.roles else None
        ends = tuple(table[end].to_numpy() for end in ENDS) if integers else _coded(*(table[x] for x in ENDS))
        return BulkColumns(ends, weight, layer)
    return None


def _parsed(csv: Any, stream: _BlockReader, layout: Layout, integers: bool, size: int) -> Any:
    arrow = need("pyarrow", "a table in bulk")
    names = [role or f"unused{at}" for at, role in enumerate(layout.roles)]
    kinds = dict.fromkeys(ENDS, arrow.int64() if integers else arrow.string())
    kinds |= {"weight": arrow.float64(), "layer": arrow.string()}
    used = [role for role in layout.roles if role is not None]
    return csv.read_csv(
        arrow.PythonFile(stream, mode="r"),
        read_options=csv.ReadOptions(column_names=names, block_size=size),
        parse_options=csv.ParseOptions(delimiter=layout.delimiter or " "),
        convert_options=csv.ConvertOptions(
            column_types={role: kinds[role] for role in used}, include_columns=used, null_values=[]
        ),
    )


def arrow_numbers(text: bytes, width: int) -> Array | None:
    """Lines of ``width`` numbers between blanks: float64, (lines, width); None where one is odd.

    Also None where the text is short or pyarrow is missing.
    """
    if len(text) < WORTH_ARROW:
        return None
    try:
        arrow, csv = need("pyarrow", "numbers in bulk"), need("pyarrow.csv", "numbers in bulk")
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


def _coded(*columns: Any) -> Coded:
    """Columns of texts as one list of the distinct ones and their places."""
    arrow = need("pyarrow", "a table in bulk")
    # One table of hashes for all: dictionaries made block by block take twice as long, and must be united.
    encoded = arrow.chunked_array(
        [chunk for column in columns for chunk in column.chunks]
    ).dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return Coded(encoded.chunk(0).dictionary.to_pylist(), tuple(np.split(codes, ends)))


def _unpadded(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Pass the blocks on while no number begins with a zero: 007 would come back as 7."""
    for block in blocks:
        if has_padded_number(block):
            raise Surprise("an id with leading zeros")
        yield block


class _BlockReader(io.RawIOBase):
    """A file made of blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks, self._rest = blocks, b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``."""
        if not self._rest:
            self._rest = next(self._blocks, b"")
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return taken


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
    nodes, layers = _Numbering(), _Numbering()
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
    layer = Coded(list(layers.place_of), (whole["layer"],)) if "layer" in whole else None
    ends = Coded(list(nodes.place_of), (whole["src"], whole["dst"]))
    return BulkColumns(ends, whole.get("weight"), layer)


def _split(block: bytes, delimiter: str, width: int) -> list[list[str]]:
    """The columns of a block whose lines all have ``width`` fields."""
    if b'"' in block:
        raise Surprise("quotes")
    letters = np.frombuffer(block, dtype=np.uint8)
    marks = letters[(letters == ord(delimiter)) | (letters == ord("\n"))]
    if len(marks) % width or np.any(
        (marks.reshape(-1, width) == ord("\n")) != (np.arange(width) == width - 1)
    ):
        raise Surprise("lines of several widths")
    fields = block.decode("utf-8").replace("\n", delimiter).split(delimiter)
    fields.pop()  # behind the last line end
    return [fields[at::width] for at in range(width)]
