"""Whether the first line of a table names its columns or is its first edge."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Sequence

from spectrograd.graph import GraphWarning
from spectrograd.io.read.columns import role_of
from spectrograd.io.read.text import COMMENTS, TextFile, is_number, read_rows, split_line
from spectrograd.notices import parameters, setting

_BLOCK = 1 << 22  # bytes searched at once
_MARKS = rb"[\s,;\"']"  # what a name may stand between


def is_header(
    file: TextFile,
    number: int,
    fields: Sequence[str],
    columns: Sequence[Sequence[str]],
    ends: tuple[int, int],
    delimiter: str | None,
    *,
    sure: bool,
) -> bool:
    """Whether the first line is a header whose names we do not know.

    Names over columns of numbers are one. Over texts they are one if they never come again in the whole file
    while other names do, which is said in a warning; a name that comes again is a node. Where no name at all
    comes again nothing can be told: an error, unless the caller is ``sure`` that there are edges only.

    Parameters
    ----------
    file : TextFile
    number : int
        Of the line.
    fields : sequence of str
        Its cells.
    columns : sequence of sequences of str
        The cells of the lines below, by column, as far as they were looked at.
    ends : tuple of int
        Which columns hold the ends of edges.
    delimiter : str or None
        Between the cells.
    sure : bool
        Whether doubt speaks for an edge.
    """
    names = [fields[at] for at in ends]
    below = [columns[at] for at in ends]
    if not below[0] or "" in names or any(map(is_number, fields)):
        return False
    if any(column and all(map(_is_number_or_blank, column)) for column in columns):
        return True
    cells = [cell for column in below for cell in column]
    if any(name in cells for name in names) or _come_again(file, number, names):
        return False
    what = f"{names[0]!r} and {names[1]!r}"
    if len(set(cells)) < len(cells):
        warnings.warn(
            f"{file.name}, line {number}: {what} are taken for the header, since they never come again; "
            f"if they are an edge, say {setting('header', False)}",
            GraphWarning,
            stacklevel=7,
        )
        return True
    if sure:
        return False
    read_rows(file, delimiter)  # a broken line is the worse fault
    raise file.error(
        number,
        f"{what} may be a header or an edge, for no name comes again; say {setting('header', True)} or "
        f"{setting('header', False)}, or name the columns: {parameters('source', 'target')}",
    )


def _is_number_or_blank(cell: str) -> bool:
    return not cell or is_number(cell)


def _come_again(file: TextFile, number: int, names: Sequence[str]) -> bool:
    """Whether one of the names stands in a line behind the first: one look at the bytes of the file."""
    words = b"|".join(re.escape(name.encode("utf-8")) for name in names)
    alone = re.compile(rb"(?<![^\s,;\"'])(?:" + words + rb")(?=" + _MARKS + rb"|\Z)")
    longest = max(len(name.encode("utf-8")) for name in names) + 2
    with file.open_bytes() as handle:
        for _ in itertools.repeat(None, number):
            handle.readline()
        rest = b"\n"
        while block := handle.read(_BLOCK):
            text = rest + block
            # A name at the very end may go on in the next block, where it is looked at again.
            found = alone.search(text, 1)  # the byte before tells whether a name begins there
            if found and (found.end() < len(text) or len(block) < _BLOCK):
                return True
            rest = text[-longest:]
    return False


def comment_header(comments: Sequence[str], width: int) -> list[str] | None:
    """Names of columns in the last comment before the data, as in ``# FromNodeId ToNodeId`` of SNAP.

    Only a comment of as many words as there are columns, among them both ends, names columns.
    """
    if not comments:
        return None
    text = comments[-1].strip().lstrip("".join(COMMENTS)).strip()
    for delimiter in (None, ",", "\t", ";"):
        names = split_line(text, delimiter)
        if len(names) == width and {"src", "dst"} <= set(map(role_of, names)):
            return names
    return None
