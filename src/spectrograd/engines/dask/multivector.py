"""Multivectors as row blocks on Dask workers, and the distributed graph that multiplies them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.engines.base import Engine, Statistics
from spectrograd.engines.dask import tasks
from spectrograd.engines.dask.partition import cut, even_bounds
from spectrograd.engines.dask.session import DaskMultiVector, DaskSession, Step, host_step, release
from spectrograd.graph import Graph, RowBlock
from spectrograd.graph.feature_rows import FeatureRows
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.typing import Array


class RowsOnWorkers(Engine):
    """The methods of an engine that use rows alone; ``bounds[n_rows]`` are the first rows of the blocks."""

    session: DaskSession
    bounds: dict[int, Array]
    frozen: WeakValueDictionary[Any, DaskMultiVector]  # of read-only arrays, by their address

    def from_numpy(self, rows: Array) -> DaskMultiVector:
        """Keep rows in the client and send them to the owners when they need them; read-only arrays once."""
        address = rows.__array_interface__["data"][0], rows.shape, rows.strides, rows.dtype
        cached = None if rows.flags.writeable else self.frozen.get(address)
        if cached is not None:
            return cached
        bounds = self.bounds_of(len(rows))
        blocks = (np.ascontiguousarray(rows[bounds[i] : bounds[i + 1]]) for i in range(len(bounds) - 1))
        steps = [host_step("put", block, i) for i, block in enumerate(blocks)]
        multivector = self.multivector(steps, bounds, rows.shape[1], rows.dtype, start=False)
        if not rows.flags.writeable:
            multivector.source = rows  # as long as it is alive nothing else is at this address
            self.frozen[address] = multivector
        return multivector

    def to_numpy(self, X: DaskMultiVector, indices: Array | None = None) -> Array:
        """Fetch only the rows with these numbers."""
        if indices is None:
            return np.concatenate(self.session.results(X.steps))
        indices = np.asarray(indices, dtype=np.int64)
        # the block of each row; only those blocks are asked
        at = np.searchsorted(X.bounds, indices, side="right") - 1
        blocks = [i for i in range(len(X.steps)) if (at == i).any()]
        steps = [
            Step("rows", tasks.take_rows, (X.steps[i], indices[at == i] - X.bounds[i]), i) for i in blocks
        ]
        out = np.empty((len(indices), X.shape[1]), X.dtype)
        for i, rows in zip(blocks, self.session.results(steps), strict=True):
            out[at == i] = rows
        return out

    def map_blocks(self, function: Callable[..., Array], *multivectors: DaskMultiVector) -> DaskMultiVector:
        """Send the function to the rows; one row of ones shows the width and type of its result."""
        with np.errstate(all="ignore"):
            sample = function(
                0, *(np.ones((1, multivector.shape[1]), multivector.dtype) for multivector in multivectors)
            )
        starts = [int(row) for row in multivectors[0].bounds[:-1]]
        steps = [
            Step(
                "map",
                tasks.map_block,
                (function, start, *(multivector.steps[i] for multivector in multivectors)),
                i,
            )
            for i, start in enumerate(starts)
        ]
        return self.multivector(steps, multivectors[0].bounds, sample.shape[1], sample.dtype)

    def gather_blocks(self, function: Callable[..., object], *multivectors: DaskMultiVector) -> list[Any]:
        """Return the function's results for slices of the blocks, in the order of the rows."""
        return list(
            chain.from_iterable(self._call_on_blocks("fold", tasks.map_slices, function, multivectors))
        )

    def each_block(
        self, name: str, function: Callable[..., object], *multivectors: DaskMultiVector
    ) -> list[Any]:
        """Run ``function(start, *blocks)`` on whole blocks where they are, and return its results.

        It may run again for the same block when a worker is lost. The tasks have the ``name``.
        """
        return self._call_on_blocks(name, tasks.call_on_block, function, multivectors)

    def _call_on_blocks(
        self, name: str, task: Any, function: object, multivectors: Sequence[DaskMultiVector]
    ) -> list[Any]:
        return self.session.results(
            [
                Step(
                    name,
                    task,
                    (function, int(start), *(multivector.steps[i] for multivector in multivectors)),
                    i,
                )
                for i, start in enumerate(multivectors[0].bounds[:-1])
            ]
        )

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> DaskMultiVector:
        """Draw numbers on the workers that own the rows."""
        bounds = self.bounds_of(n_rows)
        arguments = (n_columns, seed, np.dtype(dtype))
        steps = [
            Step("random", tasks.random, (int(bounds[i]), int(bounds[i + 1]), *arguments), i)
            for i in range(len(bounds) - 1)
        ]
        return self.multivector(steps, bounds, n_columns, dtype)

    def astype(self, X: DaskMultiVector, dtype: DTypeLike) -> DaskMultiVector:
        """X itself where it is of that type."""
        if X.dtype == dtype:
            return X
        return self.blockwise("cast", tasks.astype, (X, np.dtype(dtype)), X, dtype=dtype)

    def columns(self, X: DaskMultiVector, chosen: slice) -> DaskMultiVector:
        """Copy some columns, block by block."""
        n_columns = len(range(*chosen.indices(X.shape[1])))
        return self.blockwise("columns", tasks.columns, (X, chosen), X, n_columns)

    def hstack(self, *multivectors: DaskMultiVector) -> DaskMultiVector:
        """Put blocks side by side."""
        if len(multivectors) == 1:
            return multivectors[0]
        return self.blockwise(
            "stack", tasks.hstack, multivectors, multivectors[0], sum(t.shape[1] for t in multivectors)
        )

    def column_statistics(self, X: DaskMultiVector, metric: DaskMultiVector | None = None) -> Statistics:
        """Measure each block in units of its own peaks, in one round."""
        steps = [
            Step("statistics", tasks.column_statistics, (int(start), X.steps[i], block_of(metric, i)), i)
            for i, start in enumerate(X.bounds[:-1])
        ]
        return join_statistics(self.session.results(steps))

    # features

    def place_features(self, rows: FeatureRows) -> DaskMultiVector:
        """Rows of features as blocks on the workers, which keep them."""
        bounds = self.bounds_of(rows.shape[0])
        pairs = pairwise(int(bound) for bound in bounds)
        parts = [rows.between(*span) for span in pairs]
        steps = [host_step("put", part, i) for i, part in enumerate(parts)]
        return self.multivector(steps, bounds, rows.shape[1], parts[0].dtype, start=False)

    def project(self, rows: DaskMultiVector, X: DaskMultiVector) -> Array:
        """Add the blocks' shares in a fixed order."""
        steps = self.steps("project", tasks.project_features, (rows, X))
        return np.asarray(tasks.add_in_order(*self.session.results(steps)))

    def expand(self, rows: DaskMultiVector, C: Array, like: DaskMultiVector) -> DaskMultiVector:
        """Send the small factor to the blocks."""
        arguments = (rows, C.astype(like.dtype))
        return self.blockwise("expand", tasks.expand_features, arguments, like, C.shape[1])

    # blocks

    def bounds_of(self, n_rows: int) -> Array:
        """First rows of the blocks, the same for all multivectors of so many rows."""
        if n_rows not in self.bounds:
            self.bounds[n_rows] = even_bounds(n_rows, self.session.n_blocks)
        return self.bounds[n_rows]

    def steps(self, name: str, task: Callable[..., object], arguments: Sequence[object]) -> list[Step]:
        """One step per block; multivectors among the arguments stand for their blocks."""
        n_blocks = next(len(a.steps) for a in arguments if isinstance(a, DaskMultiVector))
        return [Step(name, task, tuple(block_of(a, i) for a in arguments), i) for i in range(n_blocks)]

    def blockwise(
        self,
        name: str,
        task: Callable[..., Array],
        arguments: Sequence[object],
        like: DaskMultiVector,
        n_columns: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> DaskMultiVector:
        """Make a multivector of the task's results for each block, with the row blocks of ``like``."""
        width = like.shape[1] if n_columns is None else n_columns
        return self.multivector(self.steps(name, task, arguments), like.bounds, width, dtype or like.dtype)

    def multivector(
        self, steps: Sequence[Step], bounds: Array, n_columns: int, dtype: DTypeLike, *, start: bool = True
    ) -> DaskMultiVector:
        """Make a multivector of these steps and submit them."""
        multivector = DaskMultiVector(steps, bounds, n_columns, dtype)
        self.session.multivectors.add(multivector)
        if start:
            self.session.start(*multivector.steps)
        return multivector


def block_of(argument: object, block: int) -> Any:
    """The step of one block where the argument is a multivector, else the argument itself."""
    return argument.steps[block] if isinstance(argument, DaskMultiVector) else argument


def join_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Join the statistics of blocks of rows to those of all rows."""
    column = np.arange(len(parts[0].peaks))
    peaks = np.array([part.peaks for part in parts])
    rows = np.array([part.peak_rows for part in parts])
    # sums are in units of each block's own peaks: bring them to the common peak
    highest = np.argmax(np.abs(peaks), axis=0)  # of several the first
    units = np.maximum(np.abs(peaks[highest, column]), 1e-300)  # columns of zeros
    ratio = np.abs(peaks) / units
    return Statistics(
        all(part.finite for part in parts),
        peaks[highest, column],
        rows[highest, column],
        (ratio**2 * [part.second for part in parts]).sum(axis=0),
        (ratio**4 * [part.fourth for part in parts]).sum(axis=0),
        sum(part.mass for part in parts),
    )


# --- Distributed graphs: row blocks sent by the client, or read by the workers from a store


@dataclass(frozen=True, eq=False)
class DistributedGraph(Graph):
    """A graph whose row blocks are on workers; ``rows[i]`` is the step that has those of block i.

    ``touched[i, j]`` has the numbers of block j's rows that block i needs, where they are few;
    ``n_sent[i, j]`` says how many travel, none where block i needs none. Where ``streamed``, workers read
    their rows from the store in every pass, and ``rows`` say where.
    """

    bounds: Array = None  # type: ignore[assignment]
    rows: tuple[Step, ...] = ()
    touched: dict[tuple[int, int], Step] = None  # type: ignore[assignment]
    n_sent: Array = None  # type: ignore[assignment]
    streamed: bool = False

    def bytes_per_pass(self, n_columns: int, dtype: DTypeLike) -> int:
        """Predict the bytes that move between workers when so many columns are multiplied."""
        between = int(self.n_sent.sum() - np.trace(self.n_sent))
        return between * n_columns * np.dtype(dtype).itemsize


def distribute_graph(
    graph: Graph, bounds: Array, results: Callable[[Sequence[Step]], list[Any]]
) -> DistributedGraph:
    """Send row blocks to their owners; the ``results`` of steps say which rows will have to travel."""
    n_blocks = len(bounds) - 1
    rows = tuple(_row_step(graph, bounds, i) for i in range(n_blocks))
    for step in rows:
        step.held = True
    # which rows travel between blocks: all of a block, or the few that are touched
    sizes = np.diff(bounds)
    n_sent = np.zeros((n_blocks, n_blocks), np.int64)
    touched = {}
    counts = results([Step("sent", tasks.count_sent_rows, (step,), step.block) for step in rows])
    for i, sent in enumerate(counts):
        for j, n_touched in sent.items():
            n_sent[i, j] = sizes[j] if n_touched is None else n_touched
            if n_touched is not None:
                touched[i, j] = Step("touched", tasks.touched_rows, (rows[i], j), i, held=True)
    placed = DistributedGraph(
        graph.blocks, graph.n_nodes, graph.names, bounds=bounds, rows=rows, touched=touched, n_sent=n_sent
    )
    weakref.finalize(placed, release, (*rows, *touched.values()))
    return placed


def streamed_graph(graph: StoredGraph, bounds: Array) -> DistributedGraph:
    """Make a graph of which no worker holds rows: all of X travels, and rows are read again in every pass."""
    rows = tuple(
        Step("place", tasks.identity, ((graph.place, int(start), int(stop)),), i, held=True)
        for i, (start, stop) in enumerate(pairwise(bounds))
    )
    n_sent = np.tile(np.diff(bounds), (len(rows), 1))
    placed = DistributedGraph(
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
    """Return the step of row block i: read by the worker from a store, or sent by the client."""
    if isinstance(graph, StoredGraph):
        return Step("rows", tasks.cut_from_store, (graph.place, bounds, i), i)
    whole = Step("send", partial(_rows_of, graph, bounds, i), (), i, on_host=True)
    return Step("rows", cut, (whole, bounds, i), i)


def _rows_of(graph: Graph, bounds: Array, i: int) -> list[RowBlock]:
    return graph.rows_between(int(bounds[i]), int(bounds[i + 1]))
