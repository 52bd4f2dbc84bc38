"""k-means that improves one run instead of starting many (docs/adr/0012)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.labels.lloyd import MAX_STEPS, Look, descend
from spectrograd.labels.pivots import pivot_centres

Array = NDArray[Any]
# Rows that centres are sought on; more rows make a run dearer, not better.
SAMPLE, SAMPLE_PER_CLUSTER = 4000, 200
EXTRA = 8  # most centres that are taken in at once
PATIENCE = 3  # runs that may be in vain
CHEAP = 50_000  # multiplications of a Lloyd step for which all runs are made
MOST_BY_SPREADING = 16  # clusters that k-means++ may find; of more it misses one
BREATH = 3  # Lloyd steps with more centres than wanted
POLISH = 10  # Lloyd steps on all rows after the sample has done the work
# Squared steps of the centres, in units of the variance, that end a run on the sample, and the last one.
STILL, DONE = 1e-2, 1e-4
AGREE = 1e-3  # a breath that lowers the inertia by less found the same clusters
ROUNDING = 1e-14


def kmeans(
    points: Array,
    n_clusters: int,
    n_init: int,
    rng: np.random.Generator,
    origin: Array | float = 0.0,
    thresholds: Thresholds = USUAL,
    deadline: float = math.inf,
) -> tuple[Array, float]:
    """Labels and inertia: centres from a sample of the rows, then all rows from these centres.

    ``n_init`` is the most runs. The rows should be near zero; ``origin`` was subtracted to bring them there.
    After ``deadline``, a moment of ``time.perf_counter``, no other run is begun.

    Examples
    --------
    >>> labels, inertia = kmeans(np.array([[-2.6], [-2.5], [2.4], [2.6]]), 2, 3, np.random.default_rng(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3]), round(inertia, 3)
    (True, 0.025)
    """
    found = best_look(points, n_clusters, n_init, rng, origin, thresholds, deadline)
    return found.labels, found.inertia


def best_look(
    points: Array,
    n_clusters: int,
    n_init: int,
    rng: np.random.Generator,
    origin: Array | float = 0.0,
    thresholds: Thresholds = USUAL,
    deadline: float = math.inf,
) -> Look:
    """The last look of :func:`kmeans`, which knows its centres."""
    searched_by = (time.perf_counter() + deadline) / 2  # half of what is left for runs over all rows
    compiled = len(points) > thresholds.small
    points = points if compiled else points.astype(np.float64)
    size = sample_size(n_clusters)
    sampled = compiled and len(points) > size
    sample = points[rng.choice(len(points), size, replace=False)] if sampled else points
    variance = float(sample.var(axis=0, dtype=np.float64).mean())
    search = Search(sample, STILL * variance, compiled, rng, origin, searched_by)
    centres = search.best(n_clusters, n_init).centres
    steps, tolerance = (POLISH, DONE * variance) if sampled else (MAX_STEPS, 0.0)
    return descend(
        points, centres, compiled=compiled, tolerance=tolerance, max_steps=steps, deadline=deadline
    )


def sample_size(n_clusters: int) -> int:
    """Rows that centres are sought on."""
    return max(SAMPLE, SAMPLE_PER_CLUSTER * n_clusters)


@dataclass(frozen=True, eq=False)
class Search:
    """A search for centres: centres that move by no more than ``still`` are done, and all by ``deadline``."""

    points: Array
    still: float
    compiled: bool
    rng: np.random.Generator
    origin: Array | float = 0.0
    deadline: float = math.inf

    def best(self, n_clusters: int, n_init: int) -> Look:
        """Breathe until neither many nor few other centres help."""
        directed = n_init > 1 and self.points.shape[1] >= n_clusters
        if directed:
            best = self._settled(pivot_centres(self.points + self.origin, n_clusters) - self.origin)
        else:
            best = self._settled(spread_centres(self.points, n_clusters, self.rng))
        nothing = ROUNDING * float(np.einsum("ij,ij->", self.points, self.points))
        extra = min(EXTRA, (n_clusters + 1) // 2, len(self.points) - n_clusters)
        patience = n_init if self.points.size * n_clusters <= CHEAP else PATIENCE
        in_vain = 0 if n_clusters > 1 and extra > 0 else patience
        for _ in range(n_init - 1):
            if in_vain == patience or best.inertia <= nothing or time.perf_counter() >= self.deadline:
                break
            if in_vain % 2 and n_clusters <= MOST_BY_SPREADING:
                other = self._settled(spread_centres(self.points, n_clusters, self.rng))
            else:
                other = self._breath(best, extra)
            if other.inertia >= best.inertia * (1 - AGREE):
                in_vain, extra = in_vain + 1, max(1, extra // 3)
            if other.inertia < best.inertia:
                best = other
        return best

    def _settled(self, centres: Array, max_steps: int = MAX_STEPS) -> Look:
        return descend(
            self.points,
            centres,
            compiled=self.compiled,
            tolerance=self.still,
            max_steps=max_steps,
            deadline=self.deadline,
        )

    def _breath(self, best: Look, extra: int) -> Look:
        """Split the worst clusters, then do without the centres of least use (Fritzke, arXiv 2006.15666)."""
        more = self._settled(np.vstack([best.centres, self.points[self._rows_to_add(best, extra)]]), BREATH)
        return self._settled(np.delete(more.centres, _to_spare(more, extra), axis=0))

    def _rows_to_add(self, best: Look, count: int) -> list[int]:
        """A row of each cluster of large error, drawn by its squared distance."""
        errors = np.bincount(best.labels, best.gaps, len(best.centres))
        worst = np.argsort(errors)[::-1][:count]
        return [int(_drawn(np.where(best.labels == c, best.gaps, 0), 1, self.rng)[0]) for c in worst]


def _to_spare(found: Look, count: int) -> list[int]:
    """Centres of least use; the nearest to one that goes will take its rows, so it stays while it can."""
    apart = _squares(found.centres, found.centres)
    np.fill_diagonal(apart, np.inf)
    use, spared = found.use.copy(), []
    for _ in range(count):
        last = int(np.argmin(use))
        spared.append(last)
        use[last] = np.inf
        apart[:, last] = np.inf
        use[np.argmin(apart[last])] += found.use.sum()
    return spared


def spread_centres(points: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii, 2007), each time the best of a few candidates."""
    n_trials = 2 + int(math.log(n_clusters))
    chosen = [int(rng.integers(len(points)))]
    gaps = _squares(points, points[chosen])[:, 0]
    while len(chosen) < n_clusters:
        candidates = _drawn(gaps, n_trials, rng)
        after = np.minimum(gaps[:, None], _squares(points, points[candidates]))
        best = int(np.argmin(after.sum(axis=0)))
        chosen.append(int(candidates[best]))
        gaps = after[:, best]
    return points[chosen].astype(np.float64)


def _drawn(odds: Array, count: int, rng: np.random.Generator) -> Array:
    """Row numbers by their odds; where all are zero any row will do."""
    up_to = np.cumsum(odds)
    if up_to[-1] == 0:
        return rng.integers(len(odds), size=count)
    return np.asarray(np.searchsorted(up_to, rng.random(count) * up_to[-1], side="right"))


def _squares(points: Array, centres: Array) -> Array:
    """Squared distances, never below zero."""
    own, other = (np.einsum("ij,ij->i", rows, rows) for rows in (points, centres))
    return np.asarray(np.maximum(own[:, None] + other - 2 * points @ centres.T, 0))
