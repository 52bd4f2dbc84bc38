"""Row blocks of a graph, each split by columns; cut by the client or by the worker that has the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, RowBlock
from spectrograd.typing import Array

ENTRIES_PER_ROW = 16  # cost of a row in the other methods of an engine, in entries
HALO_SHARE = 0.5  # of a block's rows that are touched: below it only those travel


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
    """First rows of blocks of equal size, and the number of rows."""
    return np.linspace(0, n_rows, min(n_blocks, n_rows) + 1).astype(np.int64)


def balanced_bounds(graph: Graph, n_blocks: int) -> Array:
    """First rows of blocks of equal work, and the number of rows."""
    rows, entries = graph.entries_before
    # the cost of rows before each row; bounds are where it passes equal shares
    work = entries + ENTRIES_PER_ROW * rows
    n_blocks = min(n_blocks, graph.n_nodes)
    inner = np.interp(work[-1] * np.arange(1, n_blocks) / n_blocks, work, rows)
    bounds = np.concatenate([[0], np.ceil(inner), [graph.n_nodes]]).astype(np.int64)
    return bounds if (np.diff(bounds) > 0).all() else even_bounds(graph.n_nodes, n_blocks)


def block_bytes(graph: Graph, bounds: Array) -> int:
    """Estimate the bytes of the largest row block."""
    most_entries = np.diff(np.interp(bounds, *graph.entries_before)).max()
    rows = int(np.diff(bounds).max())
    return int((8 if graph.is_weighted else 4) * most_entries) + 8 * (len(bounds) - 1) * rows


def cut(blocks: Sequence[RowBlock], bounds: Array, at: int) -> RowParts:
    """Cut row block ``at`` of a graph, with the rows of others that it touches where these are few.

    ``blocks`` are its rows, ``bounds[at]`` to ``bounds[at + 1]``; nothing of them is changed or kept.
    """
    is_column = np.zeros(int(bounds[-1]), bool)  # columns with an entry in this block
    parts = {}
    touched = {}
    for block in blocks:
        # which rows of other blocks this block's entries touch
        is_column[block.indices] = True
    for j, (start, stop) in enumerate(pairwise(bounds.tolist())):
        # few rows of block j are touched: only those are sent, and columns are numbered among them
        here = np.flatnonzero(is_column[start:stop]).astype(np.int32)
        if j != at and 0 < len(here) < HALO_SHARE * (stop - start):
            touched[j] = here
        if len(here):
            parts[j] = _columns_of(blocks, int(bounds[-1]), slice(start, stop), touched.get(j))
    return RowParts(parts, touched)


def _columns_of(blocks: Sequence[RowBlock], n_columns: int, chosen: slice, few: Array | None) -> RowBlock:
    """Select the entries of some columns, numbered from their first one on, or within the ``few``."""
    weighted = any(block.weights is not None for block in blocks)
    selected = []
    for block in blocks:
        weights = block.weights
        if weights is None:  # scipy wants some: a byte each where all are one
            weights = np.ones(len(block.indices), np.float64 if weighted else np.int8)
        rows = sp.csr_array((weights, block.indices, block.indptr), shape=(block.n_rows, n_columns))
        selected.append(rows[:, chosen])
    counts = np.concatenate([np.diff(rows.indptr) for rows in selected])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    columns = np.concatenate([rows.indices for rows in selected])
    columns = columns if few is None else np.searchsorted(few, columns)
    values = np.concatenate([rows.data for rows in selected]) if weighted else None
    return RowBlock(0, indptr, columns.astype(np.int32, copy=False), values)
