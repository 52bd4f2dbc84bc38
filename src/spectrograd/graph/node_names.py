"""Names of nodes: any hashable ids, kept as they are, and their numbering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from spectrograd.typing import Array

_PACKED = (bool, int, float, str, bytes, np.generic)


def as_names(ids: Any) -> Array:
    """Return the ids as a 1-D array: packed where all are of one plain type, else objects.

    Examples
    --------
    >>> as_names([3, 1]).dtype, as_names([(0, 1), (0, 2)]).tolist(), as_names(["a", 1]).tolist()
    (dtype('int64'), [(0, 1), (0, 2)], ['a', 1])
    """
    if hasattr(ids, "__array__"):
        array = np.asarray(ids).ravel()
        if array.dtype != object:
            return array
        ids = array.tolist()
    listed = list(ids)
    kinds = set(map(type, listed))
    if len(kinds) == 1 and issubclass(kinds.pop(), _PACKED):
        packed = np.array(listed)
        if packed.dtype.kind not in "US" or packed.tolist() == listed:  # numpy cuts NULs off the end of texts
            return packed
    return as_objects(listed)


def as_objects(listed: Sequence[Any]) -> Array:
    """Return a 1-D array that holds the things themselves, tuples too."""
    return np.fromiter(listed, dtype=object, count=len(listed))


def number_nodes(columns: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Names of all nodes in the columns, sorted where they have an order, and each column as row numbers."""
    if all(column.dtype.kind in "iu" for column in columns):
        return _number_integers(columns)
    return number_ids([column.tolist() for column in columns])


def number_ids(columns: Iterable[Iterable[Any]]) -> tuple[Array, list[Array]]:
    """Do the same for ids of any kind; those that cannot be sorted stand in the order they are first met."""
    listed = [list(column) for column in columns]
    met = dict.fromkeys(node for column in listed for node in column)
    try:
        names = sorted(met)
    except TypeError:
        names = list(met)
    row_of = {name: row for row, name in enumerate(names)}
    return as_names(names), [
        np.fromiter(map(row_of.__getitem__, column), dtype=np.int64, count=len(column)) for column in listed
    ]


def number_distinct(texts: Sequence[str]) -> tuple[Array, Array]:
    """Do the same for texts of which none is there twice: names, sorted, and the row of each text (int32)."""
    packed = as_names(texts)
    # Packed texts have Python's order, and sort several times faster than Python's.
    order = (
        np.argsort(packed) if packed.dtype.kind == "U" else sorted(range(len(texts)), key=texts.__getitem__)
    )
    rows = np.empty(len(packed), np.int32)
    rows[order] = np.arange(len(packed), dtype=np.int32)
    return packed[order], rows


def _number_integers(columns: Sequence[Array]) -> tuple[Array, list[Array]]:
    filled = [column for column in columns if len(column)]
    if not filled:
        return np.zeros(0, dtype=np.int64), [column.astype(np.int64) for column in columns]
    low = min(int(column.min()) for column in filled)
    span = max(int(column.max()) for column in filled) - low + 1
    if span > 4 * sum(map(len, columns)):
        names, codes = np.unique(np.concatenate(columns), return_inverse=True)
        return names, np.split(codes, np.cumsum([len(column) for column in columns])[:-1])
    # Ids close together: a table of those present is many times faster than a sort.
    present = np.zeros(span, dtype=bool)
    for column in columns:
        present[np.subtract(column, low, dtype=np.int64)] = True
    row_of = np.cumsum(present, dtype=np.int32 if span < 2**31 else np.int64) - 1
    rows = [row_of[np.subtract(column, low, dtype=np.int64)] for column in columns]
    return np.flatnonzero(present) + low, rows


def plain_texts(names: Array) -> Array:
    """Names in which texts are Python's own, which print as they are; others are left alone.

    Examples
    --------
    >>> list(plain_texts(np.array(["ann", "bob"])))
    ['ann', 'bob']
    """
    return names.astype(object) if names.dtype.kind == "U" else names


def as_plain(names: Any) -> Array:
    """Return names that any file can hold: numbers and texts as they are, other objects as their text."""
    array = as_names(names)
    return np.array(list(map(str, array.tolist()))) if array.dtype == object else array


class NodeRows:
    """Which row of a graph a node has, by its name.

    Examples
    --------
    >>> NodeRows(np.array([10, 20])).rows(as_names(["20", "new"])).tolist()
    [1, -1]
    """

    def __init__(self, names: Array) -> None:
        self.names = names
        self._counting = names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))

    def rows(self, asked: Array) -> Array:
        """Row numbers; -1 for unknown names."""
        if self._counting and asked.dtype.kind in "iu":
            return np.where((asked >= 0) & (asked < len(self.names)), asked, -1).astype(np.int64)
        return np.fromiter((self._find(name) for name in asked.tolist()), dtype=np.int64, count=len(asked))

    @cached_property
    def _row_of(self) -> dict[Any, int]:
        return dict(zip(self.names.tolist(), range(len(self.names)), strict=True))

    @cached_property
    def _by_text(self) -> dict[str, int]:
        """A table with one word among its numbers is read as words."""
        if self.names.dtype.kind not in "iuO":
            return {}
        return {str(name): row for name, row in self._row_of.items() if isinstance(name, int)}

    def _find(self, name: Any) -> int:
        row: int = self._row_of.get(name, -1)
        return self._by_text.get(name, -1) if row < 0 and isinstance(name, str) else row
