"""A graph cut into row blocks for the workers, each split by columns, and the rows that have to travel."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.engines.cluster.steps import Step, kept, release
from spectrograd.engines.cluster.tasks import RowParts
from spectrograd.graph import Graph, RowBlock

Array = NDArray[Any]
PER_ROW = 16  # entries that a row without any costs in all the other verbs
HALO = 0.5  # of a block's rows, the share below which only those that are touched travel


def even_bounds(n_rows: int, n_blocks: int) -> Array:
    """First rows of blocks of one size, and the number of rows."""
    return np.linspace(0, n_rows, min(n_blocks, n_rows) + 1).astype(np.int64)


def balanced_bounds(graph: Graph, n_blocks: int) -> Array:
    """First rows of blocks that take equally long, and the number of rows."""
    counts = np.concatenate([np.diff(block.indptr) for block in graph.blocks])
    work = np.cumsum(counts + PER_ROW)
    n_blocks = min(n_blocks, graph.n_nodes)
    inner = np.searchsorted(work, work[-1] * np.arange(1, n_blocks) / n_blocks) + 1
    bounds = np.concatenate([[0], inner, [graph.n_nodes]])
    return bounds if (np.diff(bounds) > 0).all() else even_bounds(graph.n_nodes, n_blocks)


@dataclass(frozen=True, eq=False)
class PlacedGraph(Graph):
    """A graph whose row blocks are on workers; ``rows[i]`` is the step that has those of block i.

    ``touched[i, j]`` has the numbers of block j's rows that block i needs, as a step beside block j, where
    they are few; ``n_sent[i, j]`` says how many travel, none where block i needs none.
    """

    bounds: Array = None  # type: ignore[assignment]
    rows: tuple[Step, ...] = ()
    touched: dict[tuple[int, int], Step] = None  # type: ignore[assignment]
    n_sent: Array = None  # type: ignore[assignment]

    def bytes_per_sweep(self, n_columns: int, dtype: DTypeLike) -> int:
        """Bytes that move between workers when so many columns are multiplied, by the plan."""
        between = int(self.n_sent.sum() - np.trace(self.n_sent))
        return between * n_columns * np.dtype(dtype).itemsize

    @cached_property
    def block_bytes(self) -> int:
        """About as much memory as the largest row block takes."""
        per_entry = 8 if self.is_weighted else 4
        sizes = [_entries(self, *self.bounds[i : i + 2]) for i in range(len(self.rows))]
        return per_entry * max(sizes) + 8 * len(self.rows) * int(np.diff(self.bounds).max())


def placed_graph(graph: Graph, bounds: Array) -> PlacedGraph:
    """Look once through the graph for the rows each block touches; nothing is sent yet."""
    n_blocks = len(bounds) - 1
    touched, n_sent = {}, np.zeros((n_blocks, n_blocks), np.int64)
    few: dict[tuple[int, int], Array] = {}
    for i in range(n_blocks):
        seen = np.zeros(graph.n_nodes, bool)
        for block in _cut_out(graph, int(bounds[i]), int(bounds[i + 1])):
            seen[block.indices] = True
        for j in range(n_blocks):
            here = np.flatnonzero(seen[bounds[j] : bounds[j + 1]])
            size = int(bounds[j + 1] - bounds[j])
            n_sent[i, j] = 0 if len(here) == 0 else size
            if i != j and 0 < len(here) < HALO * size:
                few[i, j], n_sent[i, j] = here, len(here)
                touched[i, j] = kept("touched", here, j)
    rows = tuple(Step("rows", _Split(graph, bounds, i, few), (), i, on_host=True) for i in range(n_blocks))
    for step in (*rows, *touched.values()):
        step.held = True
    placed = PlacedGraph(
        graph.blocks, graph.n_nodes, graph.names, bounds=bounds, rows=rows, touched=touched, n_sent=n_sent
    )
    weakref.finalize(placed, release, (*rows, *touched.values()))
    return placed


@dataclass(frozen=True, eq=False)
class _Split:
    """Makes a row block when it is to be sent: the client keeps the graph and no copy of it."""

    graph: Graph
    bounds: Array
    at: int
    few: dict[tuple[int, int], Array]

    def __call__(self) -> RowParts:
        bounds = [int(row) for row in self.bounds]
        blocks, parts = _cut_out(self.graph, bounds[self.at], bounds[self.at + 1]), {}
        for j, (start, stop) in enumerate(pairwise(bounds)):
            part = _columns_of(blocks, start, stop, self.few.get((self.at, j)))
            if len(part.indices):
                parts[j] = part
        return RowParts(parts)


def _entries(graph: Graph, start: int, stop: int) -> int:
    return sum(len(block.indices) for block in _cut_out(graph, int(start), int(stop)))


def _cut_out(graph: Graph, start: int, stop: int) -> list[RowBlock]:
    """Rows start .. stop; of a stream a copy, since it forgets."""
    found = []
    for block in graph.blocks:
        first, last = max(start, block.start) - block.start, min(stop, block.stop) - block.start
        if first >= last:
            continue
        entries = slice(int(block.indptr[first]), int(block.indptr[last]))
        three = (
            block.indptr[first : last + 1] - block.indptr[first],
            block.indices[entries],
            None if block.weights is None else block.weights[entries],
        )
        if not graph.is_resident:
            three = tuple(None if array is None else array.copy() for array in three)  # type: ignore[assignment]
        found.append(RowBlock(block.start + first, *three))
    return found


def _columns_of(blocks: Sequence[RowBlock], start: int, stop: int, few: Array | None) -> RowBlock:
    """The entries of some columns, numbered from their first one on, or within the ``few``."""
    counts, indices, weights = [], [], []
    weighted = any(block.weights is not None for block in blocks)
    for block in blocks:
        inside = (block.indices >= start) & (block.indices < stop)
        before = np.concatenate([[0], np.cumsum(inside)])
        counts.append(np.diff(before[block.indptr]))
        indices.append(block.indices[inside] - start)
        if weighted:
            weights.append(np.ones(len(indices[-1])) if block.weights is None else block.weights[inside])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    columns = np.concatenate(indices)
    columns = columns if few is None else np.searchsorted(few, columns)
    given = np.concatenate(weights) if weights else None
    return RowBlock(0, indptr, columns.astype(np.int32, copy=False), given)
