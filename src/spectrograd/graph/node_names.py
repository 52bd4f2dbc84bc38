"""Names of nodes: any hashable ids, unchanged, and their numbering by rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from spectrograd.typing import Array

_PLAIN_TYPES = (bool, int, float, str, bytes, np.generic)


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
    if len(kinds) == 1 and issubclass(kinds.pop(), _PLAIN_TYPES):
        packed = np.array(listed)
        if packed.dtype.kind not in "US" or packed.tolist() == listed:  # numpy cuts NULs off the end of texts
            return packed
    return as_objects(listed)


def as_objects(listed: Sequence[object]) -> Array:
    """Return a 1-D array of Python objects, tuples too."""
    return np.fromiter(listed, dtype=object, count=len(listed))


def number_nodes(columns: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Return the names of all nodes in the columns, sorted if they can be, and each column as row numbers."""
    if all(column.dtype.kind in "iu" for column in columns):
        return _number_integers(columns)
    return number_ids([column.tolist() for column in columns])


def number_ids(columns: Iterable[Iterable[Any]]) -> tuple[Array, list[Array]]:
    """Do the same for ids of any kind; ids that cannot be sorted keep the order they come in."""
    listed = [list(column) for column in columns]
    distinct = dict.fromkeys(node for column in listed for node in column)
    try:
        names = sorted(distinct)
    except TypeError:
        names = list(distinct)
    row_of = {name: row for row, name in enumerate(names)}
    return as_names(names), [
        np.fromiter(map(row_of.__getitem__, column), dtype=np.int64, count=len(column)) for column in listed
    ]


def number_distinct(texts: Sequence[str]) -> tuple[Array, Array]:
    """Do the same for distinct texts: names, sorted, and the row of each text (int32)."""
    packed = as_names(texts)
    # numpy sorts texts in Python's order, several times faster.
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
    """Convert numpy texts to Python's own, which print without a type; return other names unchanged.

    Examples
    --------
    >>> list(plain_texts(np.array(["ann", "bob"])))
    ['ann', 'bob']
    """
    return names.astype(object) if names.dtype.kind == "U" else names


def as_plain(names: object) -> Array:
    """Return names that any file can hold: numbers and texts as they are, other objects as their text."""
    array = as_names(names)
    return np.array(list(map(str, array.tolist()))) if array.dtype == object else array


class NodeRows:
    """The row of each node, by its name.

    Examples
    --------
    >>> NodeRows(np.array([10, 20])).rows(as_names(["20", "new"])).tolist()
    [1, -1]
    """

    def __init__(self, names: Array) -> None:
        self.names = names
        self._is_range = names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))

    def rows(self, names: Array) -> Array:
        """Return row numbers; -1 for unknown names."""
        if self._is_range and names.dtype.kind in "iu":
            return np.where((names >= 0) & (names < len(self.names)), names, -1).astype(np.int64)
        return np.fromiter((self._find(name) for name in names.tolist()), dtype=np.int64, count=len(names))

    @cached_property
    def _row_of(self) -> dict[Any, int]:
        return dict(zip(self.names.tolist(), range(len(self.names)), strict=True))

    @cached_property
    def _by_text(self) -> dict[str, int]:
        """Rows by the text of integer names: a table with one text among its numbers is read as texts."""
        if self.names.dtype.kind not in "iuO":
            return {}
        return {str(name): row for name, row in self._row_of.items() if isinstance(name, int)}

    def _find(self, name: object) -> int:
        row: int = self._row_of.get(name, -1)
        return self._by_text.get(name, -1) if row < 0 and isinstance(name, str) else row
