"""Talls as rows on the workers: how they come there, what is done block by block, and how they come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.engines.base import BaseEngine
from spectrograd.engines.cluster import tasks
from spectrograd.engines.cluster.cutting import even_bounds
from spectrograd.engines.cluster.session import Session
from spectrograd.engines.cluster.steps import DaskTall, Step, kept
from spectrograd.engines.protocol import Statistics

Array = NDArray[Any]


class RowsOnWorkers(BaseEngine):
    """The verbs that need nothing but rows; ``bounds`` has the cut of talls by their number of rows."""

    session: Session
    bounds: dict[int, Array]
    frozen: WeakValueDictionary[Any, DaskTall]  # what was put, by where it is in memory

    def put(self, rows: Array) -> DaskTall:
        """Kept by the client, sent to the owners when they need it; what nobody can change, once."""
        where = rows.__array_interface__["data"][0], rows.shape, rows.strides, rows.dtype
        known = None if rows.flags.writeable else self.frozen.get(where)
        if known is not None:
            return known
        bounds = self.bounds_of(len(rows))
        blocks = (np.ascontiguousarray(rows[bounds[i] : bounds[i + 1]]) for i in range(len(bounds) - 1))
        steps = [kept("put", block, i) for i, block in enumerate(blocks)]
        tall = self.tall(steps, bounds, rows.shape[1], rows.dtype, start=False)
        if not rows.flags.writeable:
            tall.source, self.frozen[where] = rows, tall  # as long as it is alive nothing else is there
        return tall

    def rows(self, X: DaskTall, indices: Array | None = None) -> Array:
        """Only what is asked for travels."""
        if indices is None:
            return np.concatenate(self.session.results(X.steps))
        indices = np.asarray(indices, dtype=np.int64)
        at = np.searchsorted(X.bounds, indices, side="right") - 1
        asked = [i for i in range(len(X.steps)) if (at == i).any()]
        steps = [Step("rows", tasks.take, (X.steps[i], indices[at == i] - X.bounds[i]), i) for i in asked]
        out = np.empty((len(indices), X.shape[1]), X.dtype)
        for i, found in zip(asked, self.session.results(steps), strict=True):
            out[at == i] = found
        return out

    def map(self, function: Callable[..., Array], *talls: DaskTall) -> DaskTall:
        """The function goes to the rows; one row of ones tells what it makes of them."""
        with np.errstate(all="ignore"):
            sample = function(0, *(np.ones((1, tall.shape[1]), tall.dtype) for tall in talls))
        starts = [int(row) for row in talls[0].bounds[:-1]]
        steps = [
            Step("map", tasks.mapped, (function, start, *(tall.steps[i] for tall in talls)), i)
            for i, start in enumerate(starts)
        ]
        return self.tall(steps, talls[0].bounds, sample.shape[1], sample.dtype)

    def fold(self, function: Callable[..., Any], *talls: DaskTall) -> list[Any]:
        """What the function makes of slices of the blocks, in the order of the rows."""
        return list(chain.from_iterable(self._of_blocks("fold", tasks.folded, function, talls)))

    def each_block(self, name: str, function: Callable[..., Any], *talls: DaskTall) -> list[Any]:
        """``function(start, *blocks)`` of whole blocks, run where they are; what it returns comes here.

        It may run again for the same block when a worker is lost. The tasks have the ``name``.
        """
        return self._of_blocks(name, tasks.whole, function, talls)

    def _of_blocks(self, name: str, task: Any, function: Any, talls: Sequence[DaskTall]) -> list[Any]:
        return self.session.results(
            [
                Step(name, task, (function, int(start), *(tall.steps[i] for tall in talls)), i)
                for i, start in enumerate(talls[0].bounds[:-1])
            ]
        )

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> DaskTall:
        """Made where the rows are."""
        bounds = self.bounds_of(n_rows)
        given = (n_columns, seed, np.dtype(dtype))
        steps = [
            Step("random", tasks.random, (int(bounds[i]), int(bounds[i + 1]), *given), i)
            for i in range(len(bounds) - 1)
        ]
        return self.tall(steps, bounds, n_columns, dtype)

    def zeros(self, n_rows: int, n_columns: int, dtype: DTypeLike) -> DaskTall:
        """Made where the rows are."""
        bounds = self.bounds_of(n_rows)
        sizes = np.diff(bounds)
        steps = [
            Step("zeros", tasks.zeros, (int(n), n_columns, np.dtype(dtype)), i) for i, n in enumerate(sizes)
        ]
        return self.tall(steps, bounds, n_columns, dtype)

    def cast(self, X: DaskTall, dtype: DTypeLike) -> DaskTall:
        """X itself where it is of that type."""
        if X.dtype == dtype:
            return X
        return self.blockwise("cast", tasks.cast, (X, np.dtype(dtype)), X, dtype=dtype)

    def columns(self, X: DaskTall, chosen: slice) -> DaskTall:
        """Copies."""
        n_columns = len(range(*chosen.indices(X.shape[1])))
        return self.blockwise("columns", tasks.columns, (X, chosen), X, n_columns)

    def stack(self, *talls: DaskTall) -> DaskTall:
        """Side by side."""
        if len(talls) == 1:
            return talls[0]
        return self.blockwise("stack", tasks.stack, talls, talls[0], sum(t.shape[1] for t in talls))

    def statistics(self, X: DaskTall, metric: DaskTall | None = None) -> Statistics:
        """By the blocks, each in units of its own peaks: one round."""
        steps = [
            Step("statistics", tasks.statistics, (int(start), X.steps[i], block_of(metric, i)), i)
            for i, start in enumerate(X.bounds[:-1])
        ]
        return joined_statistics(self.session.results(steps))

    # blocks

    def bounds_of(self, n_rows: int) -> Array:
        """One cut for all talls of so many rows."""
        if n_rows not in self.bounds:
            self.bounds[n_rows] = even_bounds(n_rows, self.session.n_blocks)
        return self.bounds[n_rows]

    def steps(self, name: str, task: Callable[..., Any], arguments: Sequence[Any]) -> list[Step]:
        """One step per block; talls among the arguments stand for their blocks."""
        n_blocks = next(len(a.steps) for a in arguments if isinstance(a, DaskTall))
        return [Step(name, task, tuple(block_of(a, i) for a in arguments), i) for i in range(n_blocks)]

    def blockwise(
        self,
        name: str,
        task: Callable[..., Array],
        arguments: Sequence[Any],
        like: DaskTall,
        n_columns: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> DaskTall:
        """A tall of what the task makes of each block, with the cut of ``like``."""
        width = like.shape[1] if n_columns is None else n_columns
        return self.tall(self.steps(name, task, arguments), like.bounds, width, dtype or like.dtype)

    def tall(
        self, steps: Sequence[Step], bounds: Array, n_columns: int, dtype: DTypeLike, *, start: bool = True
    ) -> DaskTall:
        """A tall of these steps, which are submitted."""
        tall = DaskTall(steps, bounds, n_columns, dtype)
        self.session.talls.add(tall)
        if start:
            self.session.start(*tall.steps)
        return tall


def block_of(argument: Any, block: int) -> Any:
    """The step of one block where the argument is a tall, else the argument itself."""
    return argument.steps[block] if isinstance(argument, DaskTall) else argument


def joined_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Of all rows, from those of blocks of rows."""
    column = np.arange(len(parts[0].peaks))
    peaks, rows = np.array([part.peaks for part in parts]), np.array([part.peak_rows for part in parts])
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
