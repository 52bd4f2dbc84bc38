"""Which column of an edge table holds what: one rule for text, Parquet and data frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.notices import warn

COLUMN_NAMES = {
    "src": ("src", "source", "from", "node1", "u"),
    "dst": ("dst", "target", "to", "node2", "v"),
    "weight": ("weight", "w", "value", "amount", "count", "strength", "similarity", "score"),
    "layer": ("layer",),
}
PEEK = 1000  # rows that decide what a column holds, where its name does not
NO_WEIGHT = "none"
_ROLE_OF = {name: role for role, names in COLUMN_NAMES.items() for name in names}
_KEYWORD_OF = {"src": "source", "dst": "target", "weight": "weight", "layer": "layer"}
_LIKE_LAYERS = ("relation", "type", "edge_type")
_FEWEST_POINTS = 5  # fewer rows tell nothing
_MOSTLY, _HARDLY_REPEATED = 0.8, 0.5  # shares of the cells that are fractions, and that are distinct

Chosen = Mapping[str, str]  # role -> the column that the user says has it


def role_of(column: str) -> str | None:
    """Say what a column of this name holds: ``src``, ``dst``, ``weight``, ``layer`` or None."""
    return _ROLE_OF.get(column.lower())


def chosen_columns(**columns: str | None) -> dict[str, str]:
    """The roles of the columns that were named by ``source=``, ``target=``, ``weight=`` and ``layer=``.

    Examples
    --------
    >>> chosen_columns(source="caller", weight=None)
    {'src': 'caller'}
    """
    roles = {keyword: role for role, keyword in _KEYWORD_OF.items()}
    unknown = [keyword for keyword in columns if keyword not in roles]
    if unknown:
        raise TypeError(f"unknown keyword {unknown[0]!r}; columns are named by {', '.join(roles)}")
    return {roles[keyword]: name for keyword, name in columns.items() if name is not None}


def assign_roles(
    where: str, names: Sequence[Any], chosen: Chosen, is_numeric: Callable[[int], bool]
) -> tuple[str | None, ...]:
    """The role of each column, or None; those without one are named in a warning.

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
    """
    roles: list[str | None] = [None] * len(names)
    for role, column in chosen.items():
        if role == "weight" and is_no_weight(column, names):
            continue
        at = _place(where, names, column)
        if roles[at] is not None:
            raise GraphError(f"{where}: the column {column!r} cannot be both {roles[at]} and {role}")
        roles[at] = role
    for role in COLUMN_NAMES:
        if role not in chosen:
            _assign_by_name(where, names, roles, role)
    if not {"src", "dst"} <= set(roles):
        raise GraphError(without_ends(where, names))
    if "weight" not in roles and "weight" not in chosen:
        _assign_third(where, names, roles, is_numeric)
    _tell_unused(where, names, roles)
    return tuple(roles)


def is_no_weight(column: str, names: Sequence[Any]) -> bool:
    """Whether ``weight=`` says that there is none."""
    return column == NO_WEIGHT and NO_WEIGHT not in names


def without_ends(where: str, names: Sequence[Any]) -> str:
    """What to say of a table in which the ends of edges are not found."""
    return (
        f"{where}: no columns 'src' and 'dst' among {_listed(names)}; rename them, or say which they are: "
        "--source, --target (source=, target=)"
    )


def _place(where: str, names: Sequence[Any], column: str) -> int:
    places = [at for at, name in enumerate(names) if name == column or str(name) == column]
    if len(places) != 1:
        what = "no column" if not places else f"{len(places)} columns"
        raise GraphError(f"{where}: {what} {column!r} among {_listed(names)}")
    return places[0]


def _assign_by_name(where: str, names: Sequence[Any], roles: list[str | None], role: str) -> None:
    places = [at for at, name in enumerate(names) if roles[at] is None and role_of(str(name)) == role]
    if role == "weight":  # the column of this very name goes before its synonyms
        places = [at for at in places if str(names[at]).lower() == role] or places
    if len(places) > 1:
        same = " and ".join(repr(str(names[at])) for at in places)
        keyword = _KEYWORD_OF[role]
        raise GraphError(f"{where}: {same} both name the {role} column; choose by --{keyword} ({keyword}=)")
    if places:
        roles[places[0]] = role


def _assign_third(
    where: str, names: Sequence[Any], roles: list[str | None], is_numeric: Callable[[int], bool]
) -> None:
    """Take the only column behind both ends for the weight if it holds numbers, with a word."""
    behind = max(roles.index("src"), roles.index("dst")) + 1
    left = [at for at in range(behind, len(names)) if roles[at] is None]
    if len(left) == 1 and str(names[left[0]]).lower() not in _LIKE_LAYERS and is_numeric(left[0]):
        roles[left[0]] = "weight"
        warn(
            f"{where}: the column {str(names[left[0]])!r} is taken for the weight, being the only one of "
            "numbers beside the ends; --weight none (weight='none') leaves it out",
            GraphWarning,
        )


def _tell_unused(where: str, names: Sequence[Any], roles: Sequence[str | None]) -> None:
    unused = [name for name, role in zip(names, roles, strict=True) if role is None]
    if not unused:
        return
    what = f"the column {_listed(unused)} is" if len(unused) == 1 else f"the columns {_listed(unused)} are"
    warn(
        f"{where}: {what} not used; --weight, --layer (weight=, layer=) say what a column holds"
        + ("" if "layer" in roles else layer_offer(unused)),
        GraphWarning,
    )


def layer_offer(names: Iterable[Any]) -> str:
    """What to say of a column that may tell layers apart, or nothing."""
    like = next((str(name) for name in names if str(name).lower() in _LIKE_LAYERS), None)
    return "" if like is None else f"; for a layer per {like}: --layer {like} (layer={like!r})"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)


def mostly_numbers(cells: Iterable[Any]) -> bool:
    """Whether more than half of the cells that are not blank are numbers."""
    filled = [str(cell) for cell in cells if cell is not None and str(cell).strip()]
    return 2 * sum(_number(cell) is not None for cell in filled) > len(filled)


def refuse_points(where: str, path: str, first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse two columns that are coordinates rather than ends of edges.

    Coordinates are mostly fractions, and hardly one comes twice, or some are negative; ids are not like that.
    """
    if len(first) < _FEWEST_POINTS:
        return
    for column in (first, second):
        if sum(map(_is_fraction, column)) < _MOSTLY * len(column):
            return
    cells = [*first, *second]
    if len(set(cells)) >= _HARDLY_REPEATED * len(cells) or any(cell.startswith("-") for cell in cells):
        raise GraphError(
            f"{where}: these look like points, not edges: make a graph of them by 'spectrograd knn {path} -o "
            "graph.npz' (knn_graph); if they are ids, name the columns: --source, --target (source=, target=)"
        )


def _is_fraction(cell: str) -> bool:
    number = _number(cell)
    return number is not None and math.isfinite(number) and number != math.floor(number)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
