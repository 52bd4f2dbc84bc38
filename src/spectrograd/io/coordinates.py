"""Detection of points given as edges: two columns of coordinates instead of two columns of ids.

Coordinates are fractions, or their columns are named as axes, or they are whole numbers that are hardly ever
repeated. Ids are repeated: a graph whose rows mostly name new nodes would consist of single edges.
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
_MIN_POINTS = 5  # with fewer rows nothing is decided
_MIN_DECIMAL_SHARE = 0.8  # of the cells of a column of fractions
_MIN_DISTINCT_SHARE = 0.5  # of the cells, where they are coordinates
_MIN_SHARED_IDS = 0.75  # of the values of one column that the other has too, where both hold ids
_MIN_WHOLE_POINTS = 50  # rows of whole numbers, below which a graph of single edges is as likely
_MAX_COMPONENTS_PER_ROW = 0.1  # of a graph that is worth clustering
_MIN_RANGE_PER_ID = 3  # range of coordinates over their number


def refuse_points(where: str, path: str, first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse two columns of texts that are coordinates rather than ends of edges.

    Ids may be fractions (``1.10``), but then both columns hold the same ones; columns of coordinates share
    few values, or hardly a value is repeated, or some are negative.

    Parameters
    ----------
    where : str
        File or table, for the message.
    path : str
        As the command in the message is to spell it.
    first, second : sequence of str
        The cells of both columns.
    """
    if len(first) < _MIN_POINTS:
        return
    for column in (first, second):
        written = sum(map(_is_decimal, column))
        if written < _MIN_DECIMAL_SHARE * len(column) or 2 * sum(map(_is_fraction, column)) < len(column):
            return
    cells = [*first, *second]
    scattered = len(set(cells)) >= _MIN_DISTINCT_SHARE * len(cells)
    if (
        scattered
        or any(cell.startswith("-") for cell in cells)
        or _shared(set(first), set(second)) < _MIN_SHARED_IDS
    ):
        raise GraphError(points_message(where, path))


def refuse_axes(where: str, path: str, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Refuse a table of numbers whose first two columns are named as axes (``x,y``)."""
    numbers = all(_number(cell) is not None for column in columns[:2] for cell in column)
    if numbers and are_axes(names):
        raise GraphError(points_message(where, path))


def are_axes(names: Sequence[object]) -> bool:
    """Whether the first two columns are named as axes."""
    return len(names) > 1 and all(str(name).lower() in _AXES for name in names[:2])


def may_be_points(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether whole numbers in the first rows may be coordinates, since hardly one is repeated.

    A list of edges in random order begins like that too: :func:`refuse_whole_points` reads all rows.
    """
    if len(first) < _MIN_WHOLE_POINTS:
        return False
    cells = [*first, *second]
    return len(set(cells)) > 0.9 * len(cells) and all(_number(cell) is not None for cell in cells)


def refuse_whole_points(
    where: str, path: str, batches: Iterable[tuple[Array, Array]], *, sample: int = 1
) -> None:
    """Refuse whole numbers that are hardly ever repeated in all rows: coordinates rather than ids.

    M rows over N ids have at least N - M components. Where that is a tenth of the rows, the two columns share
    few values, and the range of the values is wide, the numbers are coordinates.

    Parameters
    ----------
    where, path : str
        For the message.
    batches : iterable of pairs of int arrays
        Both columns, in parts.
    sample : int
        One id in so many is counted, chosen by its hash.
    """
    n_rows = 0
    low = math.inf
    high = -math.inf
    sampled: tuple[list[Array], list[Array]] = ([], [])
    for ends in batches:
        n_rows += len(ends[0])
        for column, ids in zip(sampled, ends, strict=True):
            if len(ids):
                low = min(low, int(ids.min()))
                high = max(high, int(ids.max()))
            # Knuth's multiplicative hash: ids in steps are sampled evenly.
            hashes = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
            column.append(np.unique(ids[hashes % np.uint64(sample) == 0]))
    if n_rows < _MIN_WHOLE_POINTS:
        return
    first, second = (np.unique(np.concatenate(column)) for column in sampled)
    both = np.intersect1d(first, second, assume_unique=True)
    n_ids = sample * (len(first) + len(second) - len(both))
    shared = len(both) / max(1, min(len(first), len(second)))
    if (
        n_ids - n_rows > _MAX_COMPONENTS_PER_ROW * n_rows
        and shared < 0.5
        and high - low > _MIN_RANGE_PER_ID * n_ids
    ):
        raise GraphError(points_message(where, path))


def points_message(where: str, path: str) -> str:
    """The error message on points given as edges, with the way to cluster them."""
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
    """Whether a cell is written with a point or an exponent: no id is written ``5.0``."""
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
