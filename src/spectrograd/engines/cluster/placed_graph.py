"""A graph whose row blocks are with the workers: sent by the client, or read by themselves from a store."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.engines.cluster import tasks
from spectrograd.engines.cluster.cutting import cut
from spectrograd.engines.cluster.steps import Step, release
from spectrograd.graph import Graph, RowBlock
from spectrograd.store.stored import StoredGraph

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class PlacedGraph(Graph):
    """A graph whose row blocks are on workers; ``rows[i]`` is the step that has those of block i.

    ``touched[i, j]`` has the numbers of block j's rows that block i needs, where they are few;
    ``n_sent[i, j]`` says how many travel, none where block i needs none. Where ``streamed``, workers read
    their rows from the store in every sweep, and ``rows`` say where.
    """

    bounds: Array = None  # type: ignore[assignment]
    rows: tuple[Step, ...] = ()
    touched: dict[tuple[int, int], Step] = None  # type: ignore[assignment]
    n_sent: Array = None  # type: ignore[assignment]
    streamed: bool = False

    def bytes_per_sweep(self, n_columns: int, dtype: DTypeLike) -> int:
        """Bytes that move between workers when so many columns are multiplied, by the plan."""
        between = int(self.n_sent.sum() - np.trace(self.n_sent))
        return between * n_columns * np.dtype(dtype).itemsize


def placed_graph(graph: Graph, bounds: Array, results: Callable[[Sequence[Step]], list[Any]]) -> PlacedGraph:
    """Row blocks to their owners; ``results`` of the steps say which rows will have to travel."""
    n_blocks = len(bounds) - 1
    rows = tuple(_row_step(graph, bounds, i) for i in range(n_blocks))
    for step in rows:
        step.held = True
    sizes = np.diff(bounds)
    n_sent = np.zeros((n_blocks, n_blocks), np.int64)
    touched = {}
    for i, found in enumerate(results([Step("sent", tasks.sent, (step,), step.block) for step in rows])):
        for j, few in found.items():
            n_sent[i, j] = sizes[j] if few is None else few
            if few is not None:
                touched[i, j] = Step("touched", tasks.touched, (rows[i], j), i, held=True)
    placed = PlacedGraph(
        graph.blocks, graph.n_nodes, graph.names, bounds=bounds, rows=rows, touched=touched, n_sent=n_sent
    )
    weakref.finalize(placed, release, (*rows, *touched.values()))
    return placed


def streamed_graph(graph: StoredGraph, bounds: Array) -> PlacedGraph:
    """Nobody keeps any row: all of X travels, and the rows are read again in every sweep."""
    rows = tuple(
        Step("place", tasks.given, ((graph.place, int(start), int(stop)),), i, held=True)
        for i, (start, stop) in enumerate(pairwise(bounds))
    )
    n_sent = np.tile(np.diff(bounds), (len(rows), 1))
    placed = PlacedGraph(
        graph.blocks,
        graph.n_nodes,
        graph.names,
        bounds=bounds,
        rows=rows,
        touched={},
        n_sent=n_sent,
        streamed=True,
    )
    weakref.finalize(placed, release, rows)
    return placed


def _row_step(graph: Graph, bounds: Array, i: int) -> Step:
    """From a store the worker reads for itself; the client sends rows of another graph; workers cut them."""
    if isinstance(graph, StoredGraph):
        return Step("rows", tasks.cut_from_store, (graph.place, bounds, i), i)
    whole = Step("send", partial(_rows_of, graph, bounds, i), (), i, on_host=True)
    return Step("rows", cut, (whole, bounds, i), i)


def _rows_of(graph: Graph, bounds: Array, i: int) -> list[RowBlock]:
    return graph.rows_between(int(bounds[i]), int(bounds[i + 1]))
