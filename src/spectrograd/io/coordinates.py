"""Tables of points that were given as tables of edges: how they are told apart.

Coordinates are fractions, or have the names of axes, or are whole numbers that hardly ever come again. Ids
come again: a graph whose rows mostly name new nodes would be nothing but pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.notices import on_command_line, parameters
from spectrograd.typing import Array

_AXES = frozenset(
    ("x", "y", "z", "x0", "x1", "x2", "y0", "y1", "lat", "lon", "lng", "latitude", "longitude", "pc1", "pc2")
)
_FEWEST_POINTS = 5  # fewer rows tell nothing
_MOSTLY, _HARDLY_REPEATED = 0.8, 0.5  # shares of the cells that are fractions, and that are distinct
_SHARED = 0.75  # of the values of one column that the other has too, where both hold ids
_FEWEST_WHOLE_POINTS = 50  # rows of whole numbers, below which a few pairs are as likely
_LONE_PAIRS = 0.1  # components per row that no graph anybody clusters has
_SPREAD = 3  # how much wider a range of coordinates is than their number


def refuse_points(where: str, path: str, first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse two columns of texts that are coordinates rather than ends of edges.

    Ids may be fractions (``1.10``), but then both columns hold the same ones; columns of coordinates have
    ranges of their own, or hardly one value comes twice, or some are negative.
    """
    if len(first) < _FEWEST_POINTS:
        return
    for column in (first, second):
        written = sum(map(_is_decimal, column))
        if written < _MOSTLY * len(column) or 2 * sum(map(_is_fraction, column)) < len(column):
            return
    cells = [*first, *second]
    scattered = len(set(cells)) >= _HARDLY_REPEATED * len(cells)
    if scattered or any(cell.startswith("-") for cell in cells) or _shared(set(first), set(second)) < _SHARED:
        raise GraphError(points_message(where, path))


def refuse_axes(where: str, path: str, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Refuse a table of numbers whose first two columns are called as axes are (``x,y``)."""
    numbers = all(_number(cell) is not None for column in columns[:2] for cell in column)
    if numbers and are_axes(names):
        raise GraphError(points_message(where, path))


def are_axes(names: Sequence[object]) -> bool:
    """Whether the first two columns have the names of axes."""
    return len(names) > 1 and all(str(name).lower() in _AXES for name in names[:2])


def may_be_points(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first rows of whole numbers leave it open: hardly one comes again.

    A list of edges in random order begins like that too: all rows have to be looked at.
    """
    if len(first) < _FEWEST_WHOLE_POINTS:
        return False
    cells = [*first, *second]
    return len(set(cells)) > 0.9 * len(cells) and all(_number(cell) is not None for cell in cells)


def refuse_whole_points(
    where: str, path: str, batches: Iterable[tuple[Array, Array]], *, sample: int = 1
) -> None:
    """Refuse whole numbers that hardly ever come again in all rows: no graph, but pairs without end.

    M rows over N ids have at least N - M components. Where that is a tenth of the rows, the two columns hold
    different values, and these are spread widely, the numbers are coordinates. One id in ``sample`` is
    counted, wherever it stands.
    """
    n_rows, low, high = 0, math.inf, -math.inf
    kept: tuple[list[Array], list[Array]] = ([], [])
    for ends in batches:
        n_rows += len(ends[0])
        for column, ids in zip(kept, ends, strict=True):
            if len(ids):
                low, high = min(low, int(ids.min())), max(high, int(ids.max()))
            # Multiplied, so that ids in steps are sampled evenly (Knuth's multiplicative hash).
            chosen = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
            column.append(np.unique(ids[chosen % np.uint64(sample) == 0]))
    if n_rows < _FEWEST_WHOLE_POINTS:
        return
    first, second = (np.unique(np.concatenate(column)) for column in kept)
    both = np.intersect1d(first, second, assume_unique=True)
    n_ids = sample * (len(first) + len(second) - len(both))
    shared = len(both) / max(1, min(len(first), len(second)))
    if n_ids - n_rows > _LONE_PAIRS * n_rows and shared < 0.5 and high - low > _SPREAD * n_ids:
        raise GraphError(points_message(where, path))


def points_message(where: str, path: str) -> str:
    """What to say of points that were given as edges."""
    if on_command_line():
        way = f"'spectrograd cluster {path} --points' joins them to their neighbours (and 'spectrograd knn')"
    else:
        way = (
            "knn_graph(read_points(path).coordinates) joins them to their neighbours, or fit them as an array"
        )
    ends = parameters("source", "target")
    return f"{where}: these look like points, not edges: {way}; if they are ids, name the columns: {ends}"


def _shared(first: set[str], second: set[str]) -> float:
    return len(first & second) / max(1, min(len(first), len(second)))


def _is_decimal(cell: str) -> bool:
    """Written with a point or an exponent: no id is spelt ``5.0``."""
    number = _number(cell)
    return number is not None and math.isfinite(number) and any(mark in cell for mark in ".eE")


def _is_fraction(cell: str) -> bool:
    number = _number(cell)
    return number is not None and math.isfinite(number) and number != math.floor(number)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
