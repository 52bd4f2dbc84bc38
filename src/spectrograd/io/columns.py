"""Which column of an edge table holds what: one rule for text, Parquet and data frames."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.io.text import COMMENTS, TextFile, is_number, read_rows, split_line
from spectrograd.notices import parameters, setting, warn

COLUMN_NAMES = {
    "src": (
        *("src", "source", "from", "node1", "u", "node_1", "id1", "id_1", "fromnodeid", "from_node_id"),
        *("from_id", "from_node", "source_id", "sourceid", "source_node", "src_id"),
    ),
    "dst": (
        *("dst", "target", "to", "node2", "v", "node_2", "id2", "id_2", "tonodeid", "to_node_id"),
        *("to_id", "to_node", "target_id", "targetid", "target_node", "dst_id"),
    ),
    "weight": ("weight", "w", "value", "amount", "count", "strength", "similarity", "score"),
    "layer": ("layer",),
}
NO_WEIGHT = "none"
_ROLE_OF = {name: role for role, names in COLUMN_NAMES.items() for name in names}
KEYWORD_OF = {"src": "source", "dst": "target", "weight": "weight", "layer": "layer"}
_LIKE_LAYERS = ("relation", "type", "edge_type")
# Names of columns in files of labels, which may be given as graphs by mistake.
NODE_COLUMNS = ("node", "id", "node_id", "name", "vertex")
LABEL_COLUMNS = ("label", "labels", "cluster", "class", "community", "group")

Chosen = Mapping[str, str]  # role -> the column that the user says has it


def role_of(column: str) -> str | None:
    """Say what a column of this name holds: ``src``, ``dst``, ``weight``, ``layer`` or None."""
    return _ROLE_OF.get(column.lower())


def chosen_columns(**columns: str | int | None) -> dict[str, str]:
    """The roles of the columns that were named by ``source=``, ``target=``, ``weight=`` and ``layer=``.

    Examples
    --------
    >>> chosen_columns(source="caller", weight=None)
    {'src': 'caller'}
    """
    roles = {keyword: role for role, keyword in KEYWORD_OF.items()}
    unknown = [keyword for keyword in columns if keyword not in roles]
    if unknown:
        raise TypeError(f"unknown keyword {unknown[0]!r}; columns are named by {', '.join(roles)}")
    return {roles[keyword]: str(name) for keyword, name in columns.items() if name is not None}


def assign_roles(
    where: str,
    names: Sequence[object],
    chosen: Chosen,
    is_numeric: Callable[[int], bool],
    *,
    numbered: bool = False,
    quiet: bool = False,
) -> tuple[str | None, ...]:
    """The role of each column, or None; those without one are named in a warning.

    The columns of a table of two are the ends, whatever their names.

    Parameters
    ----------
    where : str
        What messages begin with.
    names : sequence
        Of the columns, in their order.
    chosen : mapping
        What the user says; ``weight="none"`` says that there are no weights.
    is_numeric : callable
        Whether the column at a position holds numbers. A single column of numbers behind both ends is the
        weight, whatever its name, and a warning says so.
    numbered : bool
        Whether a chosen column may be a number, counted from 1; a column of that name goes before.
    quiet : bool
        Do not name the columns that are not used.
    """
    roles: list[str | None] = [None] * len(names)
    for role, column in chosen.items():
        if role == "weight" and is_no_weight(column, names):
            continue
        at = _place(where, names, column, numbered)
        if roles[at] is not None:
            raise GraphError(f"{where}: the column {column!r} cannot be both {roles[at]} and {role}")
        roles[at] = role
    for role in COLUMN_NAMES:
        if role not in chosen:
            _assign_by_name(where, names, roles, role)
    _assign_pair(names, roles)
    if not {"src", "dst"} <= set(roles):
        raise GraphError(without_ends(where, names))
    if "weight" not in roles and "weight" not in chosen:
        _assign_third(where, names, roles, is_numeric)
    if not quiet:
        _report_unused(where, names, roles)
    return tuple(roles)


def is_no_weight(column: str, names: Sequence[object]) -> bool:
    """Whether ``weight=`` says that there is none."""
    return column == NO_WEIGHT and NO_WEIGHT not in names


def without_ends(where: str, names: Sequence[object]) -> str:
    """What to say of a table in which the ends of edges are not found."""
    message = (
        f"{where}: no columns 'src' and 'dst' among {_listed(names)}; rename them, or say which they are: "
        f"{parameters('source', 'target')}"
    )
    return f"{message} (this may be a file of labels)" if _are_labels(names) else message


def _are_labels(names: Sequence[object]) -> bool:
    low = [str(name).lower() for name in names]
    return any(name in NODE_COLUMNS for name in low) and any(name in LABEL_COLUMNS for name in low)


def _assign_pair(names: Sequence[object], roles: list[str | None]) -> None:
    """Take the columns of a table of two for the ends: there is nothing else that they could be."""
    if len(names) != 2 or _are_labels(names) or not set(roles) <= {"src", "dst", None}:
        return
    for end in ("src", "dst"):
        if end not in roles and None in roles:
            roles[roles.index(None)] = end


def is_column_number(column: str) -> bool:
    """Whether a column is chosen by its number, counted from 1."""
    return column.isascii() and column.isdecimal() and int(column) > 0


def _place(where: str, names: Sequence[object], column: str, numbered: bool) -> int:
    places = [at for at, name in enumerate(names) if name == column or str(name) == column]
    if not places and numbered and is_column_number(column):
        if int(column) > len(names):
            raise GraphError(f"{where}: no column {column}: there are {len(names)}, counted from 1")
        return int(column) - 1
    if len(places) != 1:
        what = "no column" if not places else f"{len(places)} columns"
        raise GraphError(f"{where}: {what} {column!r} among {_listed(names)}")
    return places[0]


def _assign_by_name(where: str, names: Sequence[object], roles: list[str | None], role: str) -> None:
    places = [at for at, name in enumerate(names) if roles[at] is None and role_of(str(name)) == role]
    if role == "weight":  # the column of this very name goes before its synonyms
        places = [at for at in places if str(names[at]).lower() == role] or places
    if len(places) > 1:
        same = " and ".join(repr(str(names[at])) for at in places)
        keyword = KEYWORD_OF[role]
        raise GraphError(f"{where}: {same} both name the {role} column; choose by {parameters(keyword)}")
    if places:
        roles[places[0]] = role


def _assign_third(
    where: str, names: Sequence[object], roles: list[str | None], is_numeric: Callable[[int], bool]
) -> None:
    """Take the only column behind both ends for the weight if it holds numbers, with a word."""
    behind = max(roles.index("src"), roles.index("dst")) + 1
    left = [at for at in range(behind, len(names)) if roles[at] is None]
    if len(left) == 1 and str(names[left[0]]).lower() not in _LIKE_LAYERS and is_numeric(left[0]):
        roles[left[0]] = "weight"
        warn(
            f"{where}: the column {str(names[left[0]])!r} is taken for the weight, being the only one of "
            f"numbers beside the ends; {setting('weight', NO_WEIGHT)} leaves it out",
            GraphWarning,
        )


def _report_unused(where: str, names: Sequence[object], roles: Sequence[str | None]) -> None:
    unused = [name for name, role in zip(names, roles, strict=True) if role is None]
    if not unused:
        return
    what = f"the column {_listed(unused)} is" if len(unused) == 1 else f"the columns {_listed(unused)} are"
    warn(
        f"{where}: {what} not used; {parameters('weight', 'layer')} say what a column holds"
        + ("" if "layer" in roles else layer_offer(unused)),
        GraphWarning,
    )


def layer_offer(names: Iterable[object]) -> str:
    """What to say of a column that may tell layers apart, or nothing."""
    like = next((str(name) for name in names if str(name).lower() in _LIKE_LAYERS), None)
    return "" if like is None else f"; for a layer per {like}: {setting('layer', like)}"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(str(name)) for name in names)


def mostly_numbers(cells: Iterable[object]) -> bool:
    """Whether more than half of the cells that are not blank are numbers."""
    filled = [str(cell) for cell in cells if cell is not None and str(cell).strip()]
    return 2 * sum(_number(cell) is not None for cell in filled) > len(filled)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


# --- Whether the first line of a table names its columns or is its first edge.

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
    comes again nothing is certain: an error, unless the caller is ``sure`` that there are edges only.

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
    if any(name in cells for name in names) or _occur_below(file, number, names):
        return False
    what = f"{names[0]!r} and {names[1]!r}"
    if len(set(cells)) < len(cells):
        warn(
            f"{file.name}, line {number}: {what} are taken for the header, since they never come again; "
            f"if they are an edge, say {setting('header', False)}",
            GraphWarning,
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


def _occur_below(file: TextFile, number: int, names: Sequence[str]) -> bool:
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
