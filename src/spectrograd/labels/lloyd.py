"""Lloyd's algorithm: rows to their nearest centres, centres to the means of their rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels import LANES

Array = NDArray[Any]
MAX_STEPS = 300
WORTH_THREADS = 5_000_000  # multiplications of one pass


@dataclass(frozen=True, eq=False)
class Look:
    """Where every row belongs, seen from some ``centres``; ``measure`` finds :attr:`gaps` and :attr:`use`."""

    centres: Array
    labels: Array
    sums: Array
    sizes: Array
    measure: Callable[[], tuple[Array, Array]]

    @cached_property
    def _measured(self) -> tuple[Array, Array]:
        return self.measure()

    @property
    def gaps(self) -> Array:
        """Squared distances of the rows to their centres."""
        return self._measured[0]

    @property
    def use(self) -> Array:
        """By how much the squared distances would grow without each centre."""
        return self._measured[1]

    @cached_property
    def inertia(self) -> float:
        """The sum of squared distances to the means of the clusters."""
        filled = self.sizes > 0
        means = self.sums[filled] / self.sizes[filled, None]
        moved = ((means - self.centres[filled]) ** 2).sum(axis=1)
        return max(0.0, float(self.gaps.sum() - self.sizes[filled] @ moved))

    def means(self, points: Array) -> Array:
        """The next centres. Those without rows move to the rows that are worst off, as in scikit-learn."""
        means = self.sums / np.maximum(self.sizes, 1)[:, None]
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            means[empty] = points[np.argsort(self.gaps)[::-1][: len(empty)]]
        return means


def descend(
    points: Array,
    centres: Array,
    *,
    compiled: bool,
    tolerance: float = 0.0,
    max_steps: int = MAX_STEPS,
    deadline: float = math.inf,
) -> Look:
    """The last look of Lloyd's algorithm, as soon as a step moves the centres by no more than ``tolerance``.

    The rows should be near the origin or the expanded squares lose digits. ``tolerance`` is a sum of squares.
    ``deadline`` is a moment of ``time.perf_counter``; the first look is taken whatever the time.

    Examples
    --------
    >>> points = np.array([[-2.6], [-2.5], [2.4], [2.6]])
    >>> found = descend(points, points[:2], compiled=False)
    >>> found.labels.tolist(), round(found.inertia, 3)
    ([0, 0, 1, 1], 0.025)
    """
    for _ in range(max_steps):
        found = look(points, centres, compiled=compiled)
        means = found.means(points)
        if ((means - centres) ** 2).sum() <= tolerance or time.perf_counter() >= deadline:
            return found
        centres = means
    return look(points, centres, compiled=compiled)


def look(points: Array, centres: Array, *, compiled: bool, worth_threads: int = WORTH_THREADS) -> Look:
    """One pass over the rows; where it is compiled, the same bits for any number of threads."""
    return _compiled_look(points, centres, worth_threads) if compiled else _plain_look(points, centres)


def _plain_look(points: Array, centres: Array) -> Look:
    scores = _scores(points, centres)
    labels = np.argmax(scores, axis=1)
    members = scores  # its memory is warm
    members.fill(0)
    members[np.arange(len(points)), labels] = 1
    sizes = np.bincount(labels, minlength=len(centres))
    return Look(centres, labels, members.T @ points, sizes, partial(_measure, points, centres, labels))


def _measure(points: Array, centres: Array, labels: Array) -> tuple[Array, Array]:
    scores, every = _scores(points, centres), np.arange(len(points))
    best = scores[every, labels]
    scores[every, labels] = -np.inf
    use = np.bincount(labels, 2 * (best - scores.max(axis=1)), len(centres))
    own = points - centres[labels]
    return np.einsum("ij,ij->i", own, own), use


def _scores(points: Array, centres: Array) -> Array:
    """A row is nearest to the centre of largest ``x'c - |c|^2 / 2``."""
    scores = points @ centres.T
    scores -= np.einsum("ij,ij->i", centres, centres) / 2
    return np.asarray(scores)


def _compiled_look(points: Array, centres: Array, worth_threads: int) -> Look:
    from spectrograd.kernels.dense.nearest import CHUNK, assign_rows

    n_chunks = -(-len(points) // CHUNK)
    labels, gaps = np.empty(len(points), dtype=np.int64), np.empty(len(points))
    tallies = np.zeros((n_chunks, len(centres), points.shape[1] + 2))
    given = (points, centres, centre_table(centres), labels, gaps, tallies)
    if points.size * len(centres) > worth_threads:
        from spectrograd.kernels.threads import share_rows

        share_rows(assign_rows, n_chunks, *given)
    else:
        assign_rows(0, n_chunks, *given)
    total = tallies.sum(axis=0)
    sums, sizes, use = total[:, :-2], total[:, -2], total[:, -1]
    return Look(centres, labels, sums, sizes, lambda: (gaps, use))


def centre_table(centres: Array) -> Array:
    """Centres as columns with ``-|c|^2 / 2`` below, padded to whole lanes."""
    n_centres, n_columns = centres.shape
    table = np.zeros((n_columns + 1, -(-n_centres // LANES) * LANES))
    table[:-1, :n_centres] = centres.T
    table[-1, :n_centres] = -np.einsum("ij,ij->i", centres, centres) / 2
    return table
