"""A graph cut into row blocks, each split by columns: done by whoever has the rows, client or worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, RowBlock
from spectrograd.typing import Array

PER_ROW = 16  # entries that a row without any costs in all the other verbs
HALO = 0.5  # of a block's rows, the share below which only those that are touched travel


@dataclass(frozen=True, eq=False)
class RowParts:
    """A row block of a graph, split by columns: ``parts[j]`` multiplies what comes of the rows of block j.

    Columns count from the first row of block j, or, where few of its rows are sent, within these:
    ``touched[j]`` has their numbers.
    """

    parts: dict[int, RowBlock]
    touched: dict[int, Array] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = [array for p in self.parts.values() for array in (p.indptr, p.indices, p.weights)]
        return sum(array.nbytes for array in (*arrays, *self.touched.values()) if array is not None)

    def __sizeof__(self) -> int:
        return self.nbytes


def even_bounds(n_rows: int, n_blocks: int) -> Array:
    """First rows of blocks of one size, and the number of rows."""
    return np.linspace(0, n_rows, min(n_blocks, n_rows) + 1).astype(np.int64)


def balanced_bounds(graph: Graph, n_blocks: int) -> Array:
    """First rows of blocks that take equally long, and the number of rows."""
    rows, entries = graph.entries_before
    work = entries + PER_ROW * rows
    n_blocks = min(n_blocks, graph.n_nodes)
    inner = np.interp(work[-1] * np.arange(1, n_blocks) / n_blocks, work, rows)
    bounds = np.concatenate([[0], np.ceil(inner), [graph.n_nodes]]).astype(np.int64)
    return bounds if (np.diff(bounds) > 0).all() else even_bounds(graph.n_nodes, n_blocks)


def block_bytes(graph: Graph, bounds: Array) -> int:
    """About as much memory as the largest row block takes."""
    most_entries = np.diff(np.interp(bounds, *graph.entries_before)).max()
    rows = int(np.diff(bounds).max())
    return int((8 if graph.is_weighted else 4) * most_entries) + 8 * (len(bounds) - 1) * rows


def cut(blocks: Sequence[RowBlock], bounds: Array, at: int) -> RowParts:
    """Row block ``at`` of a graph, with the rows of others that it touches where these are few.

    ``blocks`` are its rows, ``bounds[at]`` to ``bounds[at + 1]``; nothing of them is changed or kept.
    """
    seen, parts, touched = np.zeros(int(bounds[-1]), bool), {}, {}
    for block in blocks:
        seen[block.indices] = True
    for j, (start, stop) in enumerate(pairwise(bounds.tolist())):
        here = np.flatnonzero(seen[start:stop]).astype(np.int32)
        if j != at and 0 < len(here) < HALO * (stop - start):
            touched[j] = here
        if len(here):
            parts[j] = _columns_of(blocks, int(bounds[-1]), slice(start, stop), touched.get(j))
    return RowParts(parts, touched)


def _columns_of(blocks: Sequence[RowBlock], n_columns: int, chosen: slice, few: Array | None) -> RowBlock:
    """The entries of some columns, numbered from their first one on, or within the ``few``."""
    weighted = any(block.weights is not None for block in blocks)
    found = []
    for block in blocks:
        weights = block.weights
        if weights is None:  # scipy wants some: a byte each where all are one
            weights = np.ones(len(block.indices), np.float64 if weighted else np.int8)
        rows = sp.csr_array((weights, block.indices, block.indptr), shape=(block.n_rows, n_columns))
        found.append(rows[:, chosen])
    counts = np.concatenate([np.diff(rows.indptr) for rows in found])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    columns = np.concatenate([rows.indices for rows in found])
    columns = columns if few is None else np.searchsorted(few, columns)
    given = np.concatenate([rows.data for rows in found]) if weighted else None
    return RowBlock(0, indptr, columns.astype(np.int32, copy=False), given)
