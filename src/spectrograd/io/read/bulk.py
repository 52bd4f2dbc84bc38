"""Columns of a text table parsed in bulk: large files by compiled code, others by splitting whole blocks.

Ids become numbers by hashing, so that later steps look at each distinct id once, not at each edge.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from spectrograd.extras import MissingExtra, need
from spectrograd.graph import Array
from spectrograd.io.read.layouts import BulkColumns, Coded, Layout
from spectrograd.io.read.plain_blocks import BLOCK, Surprise, plain_block, plain_blocks
from spectrograd.io.read.scanned import scan_columns
from spectrograd.io.read.text import TextFile

# Bytes of a file. Splitting fewer takes less than half a second, and nobody waits for a compiler.
WORTH_COMPILING = 1 << 23
WORTH_ARROW = 1 << 22  # below, importing pyarrow takes longer than it saves


def read_columns(file: TextFile, layout: Layout) -> BulkColumns | None:
    """The columns of a table, or None where the careful scan must look."""
    read = scan_columns if file.size >= WORTH_COMPILING else split_columns
    return read(file, layout)


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
