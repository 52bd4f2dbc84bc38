"""Edge tables ``src,dst[,weight][,layer]``: text in columns is read, tables become graphs, ids become rows.

The layout of a text (delimiter, header, roles of columns) is found from its first lines. Then whole blocks
of it are parsed; only where they are ambiguous are its lines parsed one by one, which also finds the line
of an error. Ids that a spreadsheet would run as a formula are marked when they are written, and unmarked
when they are read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.node_names import number_distinct, number_ids, number_nodes
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import (
    Chosen,
    assign_roles,
    comment_header,
    is_column_number,
    is_header,
    is_no_weight,
    mostly_numbers,
    role_of,
)
from spectrograd.io.coordinates import may_be_points, refuse_axes, refuse_points, refuse_whole_points
from spectrograd.io.text import (
    COMMENTS,
    INTEGER,
    Row,
    TextFile,
    data_lines,
    is_number,
    read_rows,
    sniff_delimiter,
    split_line,
)
from spectrograd.io.text_scanner import ENDS, CodedTexts, Layout, read_columns
from spectrograd.notices import parameters, setting, settings, warn
from spectrograd.typing import Array

MARK = "'"  # what spreadsheets themselves put before a text
_FORMULA = re.compile(rf"{MARK}*[=+\-@\t\r]")


def escape_formula(text: str) -> str:
    """Put the mark before what looks like a formula, or like one already marked; numbers are left alone.

    Examples
    --------
    >>> [escape_formula(text) for text in ("=cmd()", "-5", "@ann", "'=x", "ann")]
    ["'=cmd()", '-5', "'@ann", "''=x", 'ann']
    """
    return MARK + text if is_formula(text) else text


def is_formula(text: str) -> bool:
    """Whether a text begins as formulas do and is no number."""
    return _FORMULA.match(text) is not None and not is_number(text)


def unescape_formulas(texts: Iterable[str]) -> list[str]:
    """The texts as they were before :func:`escape_formula`.

    Examples
    --------
    >>> unescape_formulas(["'=cmd()", "''=x", "'tis", "ann"])
    ['=cmd()', "'=x", "'tis", 'ann']
    """
    return [text[1:] if text[:1] == MARK and is_formula(text[1:]) else text for text in texts]


# --- Edge lists as text: ``src,dst[,weight][,layer]`` in CSV, TSV or whitespace columns, any ids.

_PADDED = re.compile(r"0[0-9]")


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The columns of an edge list; ``nodes`` names those that may have no edge.

    Where there are ``ids``, distinct and sorted, ``source`` and ``target`` are places among them. Where rows
    are ``directed``, what is lost by dropping directions is reported.
    """

    name: str
    source: Array
    target: Array
    weight: Array | None = None
    layer: Array | None = None
    nodes: Array | None = None
    directed: bool = False
    ids: Array | None = None


def read_table(path: str | TextFile, chosen: Chosen | None = None, header: bool | None = None) -> EdgeTable:
    """Read an edge list from a file, a gzipped file or (``-``) standard input.

    Parameters
    ----------
    path : str or TextFile
        Columns are found by the names in the header (:mod:`spectrograd.io.columns`). Without a header
        there are two or three: ends and weight. Blank lines and lines starting with ``#`` or ``%`` are
        skipped; blanks around ids are dropped.
    chosen : mapping of role to column, optional
        Columns that go by other names, or their numbers counted from 1.
    header : bool, optional
        Whether the first line names the columns, where that is not to be found out.

    Returns
    -------
    EdgeTable
        With weights checked: finite, not negative.
    """
    file = path if isinstance(path, TextFile) else TextFile(path)
    layout = read_layout(file, chosen or {}, header)
    # Lines are parsed one by one only where blocks are ambiguous, or for the text of an error.
    table = _read_bulk(file, layout) or _read_slowly(file, layout)
    if layout.maybe_points and table.ids is None and table.source.dtype.kind in "iu":
        refuse_whole_points(file.name, file.path, [(table.source, table.target)])
    return table


def read_layout(file: TextFile, chosen: Chosen, header: bool | None = None) -> Layout:
    """Find the columns of a text by its first lines; where a name may be a header, by all of them."""
    first = list(data_lines(file.head))
    if not first:
        raise GraphError(f"{file.name}: empty, no edges in it; each line should be src,dst[,weight]")
    # 1. The delimiter, from the first line.
    number, line = first[0]
    delimiter = sniff_delimiter(line, file.suffix, partial(_is_whole_field, chosen))
    fields = split_line(line, delimiter)
    below = [split_line(text, delimiter) for _, text in first[1:]]
    columns = list(zip(*(row for row in below if len(row) == len(fields)), strict=True)) or [()] * len(fields)
    # 2. Whether the first line, or a comment above, names the columns.
    names, said = _names(file, number, fields, columns, delimiter, chosen, header)
    # 3. The roles of the columns; coordinates of points are refused.
    where = f"{file.name}, line {number}"
    if said:
        if not set(ENDS) & set(chosen):
            refuse_axes(file.name, file.path, fields, columns)
            if not set(ENDS) <= set(map(role_of, fields)) and len(fields) > 1:
                refuse_points(file.name, file.path, columns[0], columns[1])
        roles = assign_roles(where, fields, chosen, lambda at: mostly_numbers(columns[at]), numbered=True)
        _refuse_points(file, chosen, roles, columns)
        integers = _begins_with_integers(roles, below)
        doubtful = _may_be_points(chosen, roles, columns)
        return Layout(delimiter, roles, number, tuple(fields), integers, doubtful)
    columns = [(cell, *column) for cell, column in zip(fields, columns, strict=True)]
    roles = _roles_without_header(file, number, names, chosen, columns)
    integers = _begins_with_integers(roles, [fields])
    doubtful = _may_be_points(chosen, roles, columns)
    return Layout(delimiter, roles, number - 1, integers=integers, maybe_points=doubtful)


def _names(
    file: TextFile,
    number: int,
    fields: list[str],
    columns: Sequence[Sequence[str]],
    delimiter: str | None,
    chosen: Chosen,
    header: bool | None,
) -> tuple[list[str] | None, bool]:
    """Names of the columns where a comment tells them, and whether the first line is a header."""
    comments = [line for line in file.head[: number - 1] if line.strip().startswith(COMMENTS)]
    names = comment_header(comments, len(fields))
    if header is not None:
        return names, header
    named = [name for role, name in chosen.items() if not (role == "weight" and is_no_weight(name, fields))]
    if any(name in (names or ()) for name in named):
        return names, False
    if any(not is_column_number(name) for name in named) or {"src", "dst"} <= set(map(role_of, fields)):
        return None, True
    if names is not None or len(fields) < 2:
        return names, False
    ends = [int(chosen.get(end, at)) - 1 for at, end in enumerate(ENDS, start=1)]
    if max(ends) >= len(fields):
        return names, False
    # Numbers are what columns without names are chosen by: in doubt there is no header.
    sure = bool(named) or len(fields) > 3
    return names, is_header(file, number, fields, columns, (ends[0], ends[1]), delimiter, sure=sure)


def _roles_without_header(
    file: TextFile, number: int, names: list[str] | None, chosen: Chosen, columns: Sequence[Sequence[str]]
) -> tuple[str | None, ...]:
    """What the columns of a table hold whose first line is an edge."""
    where = f"{file.name}, line {number}"
    width = len(columns)
    if names is not None:
        roles = assign_roles(where, names, chosen, lambda at: mostly_numbers(columns[at]), numbered=True)
        _refuse_points(file, chosen, roles, columns)
        return roles
    numbers = [str(at) for at in range(1, width + 1)]
    if {"src", "dst"} & set(chosen):
        both = {"src": "1", "dst": "2"} | dict(chosen)
        return assign_roles(
            where, numbers, both, lambda at: mostly_numbers(columns[at]), numbered=True, quiet=True
        )
    if width > 1:
        refuse_points(file.name, file.path, columns[0], columns[1])
    if width not in (2, 3):
        example = settings(source=1, target=2)
        raise file.error(
            number,
            f"2 or 3 columns expected, found {width}; say which hold the ends by their numbers from 1 "
            f"(such as {example}), or name the columns src,dst[,weight][,layer] in a header line",
        )
    if "weight" in chosen and not is_no_weight(chosen["weight"], ()):
        return assign_roles(
            where,
            numbers,
            {"src": "1", "dst": "2"} | dict(chosen),
            lambda at: True,
            numbered=True,
            quiet=True,
        )
    return ("src", "dst", None if "weight" in chosen else "weight")[:width]


def _refuse_points(
    file: TextFile, chosen: Chosen, roles: tuple[str | None, ...], columns: Sequence[Sequence[str]]
) -> None:
    """Refuse coordinates, unless the user has named the ends."""
    if not set(ENDS) & set(chosen):
        ends = [columns[roles.index(end)] for end in ENDS]
        refuse_points(file.name, file.path, ends[0], ends[1])


def _may_be_points(chosen: Chosen, roles: tuple[str | None, ...], columns: Sequence[Sequence[str]]) -> bool:
    """Whether whole numbers have to be looked at once more when all are there."""
    first, second = (columns[roles.index(end)] for end in ENDS)
    return not set(ENDS) & set(chosen) and "weight" not in roles and may_be_points(first, second)


def _begins_with_integers(roles: tuple[str | None, ...], rows: list[list[str]]) -> bool:
    first = rows[0] if rows and len(rows[0]) == len(roles) else [""] * len(roles)
    return all(INTEGER.fullmatch(first[roles.index(end)]) for end in ENDS)


def _is_whole_field(chosen: Chosen, word: str) -> bool:
    return role_of(word) is not None or word in chosen.values() or is_number(word)


def _read_bulk(file: TextFile, layout: Layout) -> EdgeTable | None:
    """Make a table of columns parsed in bulk, or return None where the careful scan must look."""
    columns = read_columns(file, layout)
    if columns is None:
        return None
    weight = columns.weight
    layer = None
    if weight is not None and is_invalid(weight).any():
        return None
    if columns.layer is not None:
        labels = _distinct_texts(columns.layer.texts, layout)
        if labels is None:
            return None
        layer = np.array(labels, dtype=object)[columns.layer.codes[0]]
    if not isinstance(columns.ends, CodedTexts):
        return EdgeTable(file.name, *columns.ends, weight, layer)
    texts = _distinct_texts(columns.ends.texts, layout)
    if texts is None or _is_doubtful_header(layout, texts):
        return None
    source, target = columns.ends.codes
    numbers = as_integers(texts)
    if numbers is not None:
        return EdgeTable(file.name, numbers[source], numbers[target], weight, layer)
    if len(set(texts)) < len(texts):  # without the blanks around them some are the same
        names, (rows,) = number_ids([texts])
    else:
        names, rows = number_distinct(texts)
    return EdgeTable(file.name, rows[source], rows[target], weight, layer, ids=names)


def _distinct_texts(cells: Sequence[str], layout: Layout) -> list[str] | None:
    """The texts as the careful scan gives them; None where it would cut or refuse one."""
    texts = [cell.strip() for cell in cells]
    if "" in texts or any('"' in text for text in texts):
        return None
    if layout.delimiter is None and any(len(text.split()) > 1 for text in texts):
        return None
    return unescape_formulas(texts)


def _is_doubtful_header(layout: Layout, texts: list[str]) -> bool:
    """Whether the header may be an edge."""
    return len(layout.header) == 2 and any(name in texts for name in layout.header)


def _read_slowly(file: TextFile, layout: Layout) -> EdgeTable:
    rows, lines = read_rows(file, layout.delimiter)
    if layout.header:
        rows = rows[1:]
        lines = lines[1:]
    if not rows:
        raise GraphError(f"{file.name}: a header but no edges; each further line should hold one edge")
    columns, weight = columns_of_rows(file, layout, rows, lines)
    if layout.header:
        _warn_of_edge_like_header(file, layout, columns["src"], columns["dst"])
    layer = np.array(columns["layer"], dtype=object) if "layer" in columns else None
    source, target = ids_of_texts(columns["src"], columns["dst"])
    return EdgeTable(file.name, source, target, weight, layer)


def columns_of_rows(
    file: TextFile, layout: Layout, rows: list[Row], lines: list[int]
) -> tuple[dict[str, list[str]], Array | None]:
    """Check rows of cells and return the texts of each role's column, and the weights (n_rows,).

    Parameters
    ----------
    file : TextFile
        Named in errors.
    layout : Layout
    rows : list of tuples of str
    lines : list of int
        The line of each row, named in errors.
    """
    _check_widths(file, layout, rows, lines)
    columns = {
        role: unescape_formulas(row[at] for row in rows) for at, role in enumerate(layout.roles) if role
    }
    for role in ("src", "dst", "layer"):
        if role in columns and "" in columns[role]:
            raise file.error(lines[columns[role].index("")], f"the {role} column is empty")
    weight = _parse_weights(file, columns["weight"], lines) if "weight" in columns else None
    return columns, weight


def ids_of_texts(*columns: Sequence[str]) -> list[Array]:
    """Turn columns of texts into integers where all of them are, else into objects holding str."""
    numbers = [as_integers(column) for column in columns]
    if any(column is None for column in numbers):
        return [np.array(column, dtype=object) for column in columns]
    return [column for column in numbers if column is not None]


def as_integers(texts: Sequence[str]) -> Array | None:
    """Turn texts into int64, or return None when one of them is not an integer of that size.

    Neither is 007, which would come back as 7.
    """
    if not all(map(INTEGER.fullmatch, texts)) or any(map(_PADDED.match, texts)):
        return None
    try:
        return np.fromiter(map(int, texts), dtype=np.int64, count=len(texts))
    except OverflowError:
        return None


def _check_widths(file: TextFile, layout: Layout, rows: list[Row], lines: list[int]) -> None:
    width = len(layout.roles)
    for row, line in zip(rows, lines, strict=True):
        if len(row) == width:
            continue
        if layout.header:
            raise file.error(line, f"{width} columns expected, as in the header, found {len(row)}")
        if len(row) in (2, 3):
            raise file.error(line, f"{width} columns expected, as in the lines before, found {len(row)}")
        raise file.error(line, f"2 or 3 columns expected, found {len(row)}")


def _warn_of_edge_like_header(file: TextFile, layout: Layout, sources: list[str], targets: list[str]) -> None:
    """Say that a first line ``u,v`` could be an edge, when nodes have such names."""
    taken = [name for name in layout.header if name in sources or name in targets]
    if taken and len(layout.header) == 2:
        warn(
            f"{file.name}, line {layout.skip}: taken as the header, though {taken[0]!r} is a node; "
            f"if it is an edge, say {setting('header', False)}",
            GraphWarning,
        )


def _parse_weights(file: TextFile, texts: list[str], lines: list[int]) -> Array:
    try:
        weight = np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        at = next(i for i, text in enumerate(texts) if not is_number(text))
        hint = f"; if it is a header, name the ends: {parameters('source', 'target')}" if at == 0 else ""
        raise file.error(lines[at], f"{texts[at]!r} is not a number (weight){hint}") from None
    for bad, what in ((~np.isfinite(weight), "not finite"), (is_invalid(weight), "negative")):
        if bad.any():
            at = int(np.argmax(bad))
            reason = f"weight {texts[at]} is {what}; weights {explain_weight(weight[at])}"
            raise file.error(lines[at], reason)
    return weight


# --- Tables of one or more layers, united by the names of their nodes.


def join_tables(
    tables: Sequence[EdgeTable], stems: Sequence[str], *, typed: bool = False
) -> Graph | MultilayerGraph:
    """Make a graph of a table without layers, a multilayer graph of several tables or of layers in one.

    Files have no types, so where some ids are texts all are; ``typed`` ids are kept as they are.
    """
    names, columns = _unite_nodes(tables, typed)
    graphs: list[Graph] = []
    labels: list[str] = []
    for table, (rows, cols), stem in zip(tables, columns, stems, strict=True):
        for label, chosen in _layers_of(table):
            weight = None if table.weight is None else table.weight[chosen]
            with name_in_messages(table.name if label is None else f"{table.name}, layer {label!r}"):
                ends = (rows[chosen], cols[chosen])
                graphs.append(Graph.from_edges(*ends, weight, names=names, directed=table.directed))
            parts = [stem] if len(tables) > 1 or label is None else []
            labels.append(":".join(parts if label is None else [*parts, label]))
    if len(tables) == 1 and tables[0].layer is None:
        return graphs[0]
    return MultilayerGraph(tuple(graphs), unique_names(labels))


@contextmanager
def name_in_messages(what: str) -> Iterator[None]:
    """Put a file's name in front of the errors and warnings of the graph built from it."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from None
    for warning in caught:
        if issubclass(warning.category, GraphWarning):
            warn(f"{what}: {warning.message}", warning.category)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def unique_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Put ``-2``, ``-3`` ... after the labels already taken."""
    taken: list[str] = []
    for label in labels:
        fresh = label
        copy = 2
        while fresh in taken:
            fresh = f"{label}-{copy}"
            copy = copy + 1
        taken.append(fresh)
    return tuple(taken)


def _layers_of(table: EdgeTable) -> Iterator[tuple[str | None, Array | slice]]:
    """Each layer of a table with the rows it takes, in the order of the layers' names."""
    if table.layer is None:
        yield None, slice(None)
        return
    labels = set(table.layer.tolist())
    order = sorted(labels) if as_integers(list(labels)) is None else sorted(labels, key=lambda x: (int(x), x))
    code = {label: i for i, label in enumerate(order)}
    codes = np.fromiter(map(code.__getitem__, table.layer), dtype=np.int64, count=len(table.layer))
    for i, label in enumerate(order):
        yield label, np.flatnonzero(codes == i)


def _unite_nodes(tables: Sequence[EdgeTable], typed: bool) -> tuple[Array, list[tuple[Array, Array]]]:
    """Names of all nodes in the tables, and each table's ends as row numbers."""
    first = tables[0]
    if len(tables) == 1 and first.ids is not None and first.nodes is None and not typed:
        return first.ids, [(first.source, first.target)]
    columns = [column for table in tables for column in _id_columns(table)]
    if typed or all(column.dtype.kind in "iu" for column in columns):
        names, codes = number_nodes(columns)
    else:
        names, codes = number_ids(map(str, column.tolist()) for column in columns)
    ends = []
    at = 0
    for table in tables:
        own = codes[at:]
        at = at + len(_id_columns(table))
        coded = table.ids is not None
        ends.append((own[0][table.source], own[0][table.target]) if coded else (own[0], own[1]))
    return names, ends


def _id_columns(table: EdgeTable) -> list[Array]:
    """The columns that name nodes; the ends come first."""
    columns = [table.source, table.target] if table.ids is None else [table.ids]
    return columns if table.nodes is None else [*columns, table.nodes]
