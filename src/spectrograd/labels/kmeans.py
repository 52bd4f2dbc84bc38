"""Lloyd's algorithm: rows to their nearest centres, centres to the means of their rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp

from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.labels.cluster_qr import pivot_centres
from spectrograd.system import one_thread
from spectrograd.typing import Array

MAX_STEPS = 300
CHUNK = 2048  # rows whose scores are formed together: they stay in a core's own cache
SUMMED = 1 << 16  # rows that are copied to float64 at a time
FEW_MEMBERS = 1 << 15  # numbers of an indicator matrix up to which it is as quick as a sparse one
WIDE = 32  # centres from which products take the time, half of it in float32
WORTH_THREADS = 5_000_000  # multiplications of one pass


@dataclass(frozen=True, eq=False)
class Assignment:
    """Labels of all rows by their nearest of some ``centres``; :attr:`gaps` and :attr:`use` on demand."""

    centres: Array
    labels: Array
    sums: Array
    sizes: Array
    measure_gaps: Callable[[], Array]
    measure_use: Callable[[], Array]

    @cached_property
    def gaps(self) -> Array:
        """Squared distances of the rows to their centres."""
        return self.measure_gaps()

    @cached_property
    def use(self) -> Array:
        """Growth of the squared distances without each centre."""
        return self.measure_use()

    @cached_property
    def inertia(self) -> float:
        """The sum of squared distances to the means of the clusters."""
        filled = self.sizes > 0
        means = self.sums[filled] / self.sizes[filled, None]
        # sum |x - mean|^2 = sum |x - centre|^2 - size |mean - centre|^2: the step is taken into account
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
    tolerance: float = 0.0,
    max_steps: int = MAX_STEPS,
    deadline: float = math.inf,
) -> Assignment:
    """The last look of Lloyd's algorithm, as soon as a step moves the centres by no more than ``tolerance``.

    The rows should be near the origin or the expanded squares lose digits. ``tolerance`` is a sum of squares.
    ``deadline`` is a moment of ``time.perf_counter``; the first look is taken whatever the time.

    Parameters
    ----------
    points : array of shape (n, k)
    centres : array of shape (n_clusters, k)
    tolerance
        Sum of squared moves of the centres that ends the run.
    max_steps
        Most steps.
    deadline
        A moment of ``time.perf_counter`` after which no step is made.

    Examples
    --------
    >>> points = np.array([[-2.6], [-2.5], [2.4], [2.6]])
    >>> found = descend(points, points[:2])
    >>> found.labels.tolist(), round(found.inertia, 3)
    ([0, 0, 1, 1], 0.025)
    """
    for _ in range(max_steps):
        # 1. rows to their nearest centres; 2. centres to the means of their rows (Lloyd 1982)
        found = assign_to_centers(points, centres)
        means = found.means(points)
        if ((means - centres) ** 2).sum() <= tolerance or time.perf_counter() >= deadline:
            return found
        centres = means
    return assign_to_centers(points, centres)


def assign_to_centers(points: Array, centres: Array, *, worth_threads: int = WORTH_THREADS) -> Assignment:
    """One pass over the rows, by BLAS in chunks of fixed size: the same bits for any number of threads.

    Rows in float32 meet centres in float32 from ``WIDE`` centres on; else all is in float64.
    """
    with one_thread():
        # one thread of BLAS: how it splits a product among threads would show in the bits
        parts = _by_chunks(partial(_nearest, centres), points, len(centres), worth_threads)
    labels = np.concatenate(parts)
    sizes = np.bincount(labels, minlength=len(centres))
    sums = _sums_by_label(points, labels, len(centres))
    measures = (
        partial(_gaps, points, centres, labels),
        partial(_use, points, centres, labels, worth_threads),
    )
    return Assignment(centres, labels, sums, sizes, *measures)


def _by_chunks(
    work: Callable[[Array], Array], points: Array, n_centres: int, worth_threads: int
) -> list[Array]:
    """Results of a function for all chunks of rows, in order."""
    chunks = [points[first : first + CHUNK] for first in range(0, len(points), CHUNK)]
    if len(chunks) == 1 or points.size * n_centres <= worth_threads:
        return [work(chunk) for chunk in chunks]
    from spectrograd.kernels.jit import side_by_side

    return side_by_side(work, [(chunk,) for chunk in chunks])


def _nearest(centres: Array, rows: Array) -> Array:
    return np.asarray(np.argmax(_scores(rows, centres), axis=1))


def _scores(rows: Array, centres: Array) -> Array:
    """A row is nearest to the centre of largest ``x'c - |c|^2 / 2``."""
    # |x - c|^2 = |x|^2 - 2 (x'c - |c|^2 / 2)
    half_squares = np.einsum("ij,ij->i", centres, centres) / 2
    if len(centres) >= WIDE and rows.dtype == np.float32:
        scores = rows @ centres.T.astype(np.float32)
        scores -= half_squares.astype(np.float32)
    else:
        scores = rows @ centres.T
        scores -= half_squares
    return np.asarray(scores)


def _sums_by_label(points: Array, labels: Array, n_labels: int) -> Array:
    """The sum of the rows of each label, in float64."""
    sums = np.zeros((n_labels, points.shape[1]))
    for first in range(0, len(points), SUMMED):
        part = labels[first : first + SUMMED]
        rows = points[first : first + SUMMED].astype(np.float64, copy=False)
        if len(part) * n_labels <= FEW_MEMBERS:  # a product with the indicators
            members = np.zeros((len(part), n_labels))
            members[np.arange(len(part)), part] = 1
            sums += members.T @ rows
        else:
            ones = np.ones(len(part))
            sums += sp.csr_array((ones, part, np.arange(len(part) + 1)), (len(part), n_labels)).T @ rows
    return sums


def _gaps(points: Array, centres: Array, labels: Array) -> Array:
    gaps = np.empty(len(points))
    for first in range(0, len(points), SUMMED):
        part = slice(first, first + SUMMED)
        own = points[part] - centres[labels[part]]
        gaps[part] = np.einsum("ij,ij->i", own, own)
    return gaps


def _use(points: Array, centres: Array, labels: Array, worth_threads: int) -> Array:
    with one_thread():
        parts = _by_chunks(partial(_lead, centres), points, len(centres), worth_threads)
    return np.bincount(labels, 2 * np.concatenate(parts), len(centres))


def _lead(centres: Array, rows: Array) -> Array:
    """Difference between the best and the second best score of each row."""
    scores = _scores(rows, centres)
    every = np.arange(len(rows))
    labels = np.argmax(scores, axis=1)
    best = scores[every, labels]
    scores[every, labels] = -np.inf
    return np.asarray(best - scores[every, np.argmax(scores, axis=1)])


# --- k-means that improves one run instead of starting many (docs/adr/0012).

# Rows that centres are sought on; more rows make a run dearer, not better.
SAMPLE = 2000
SAMPLE_PER_CLUSTER = 100  # up to ``ROWS_OF_SOME`` rows, then fewer
ROWS_OF_SOME = 4000
SAMPLE_PER_MANY = 20
WORTH_A_SAMPLE = 1.5  # times as many rows as a sample has
EXTRA = 8  # most centres that are taken in at once
PATIENCE = 2  # runs that may be in vain
CHEAP = 10_000  # multiplications of a Lloyd step for which all runs are made
MANY_CLUSTERS = 30  # from which pivots find nearly all of them, and runs take most of the time
MAX_RUNS_OF_MANY = 4
MOST_BY_SPREADING = 16  # clusters that k-means++ may find; of more it misses one
BREATH = 3  # Lloyd steps with more centres than wanted
POLISH = 10  # Lloyd steps on all rows after the sample has done the work
POLISH_MANY = 8  # the same where clusters are many
# Squared steps of the centres, in units of the variance, that end a run on the sample, and the last one.
STILL = 1e-2
DONE = 1e-4
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
    start: Array | None = None,
) -> tuple[Array, float]:
    """Labels and inertia: centres from a sample of the rows, then all rows from these centres.

    ``n_init`` is the most runs. The rows should be near zero; ``origin`` was subtracted to bring them there.
    After ``deadline``, a moment of ``time.perf_counter``, no other run is begun.

    Parameters
    ----------
    points : array of shape (n, k)
        Rows near zero.
    n_clusters
        Number of clusters.
    n_init
        Most runs.
    rng
        Source of the sample and the starts.
    origin : array of shape (k,) or number
        Subtracted from the rows before.
    thresholds
        Sizes from which a sample is taken.
    deadline
        A moment of ``time.perf_counter`` after which no other run is begun.
    start : array of shape (n,), optional
        Labels that are nearly right: their means are the centres, and none are sought.

    Examples
    --------
    >>> labels, inertia = kmeans(np.array([[-2.6], [-2.5], [2.4], [2.6]]), 2, 3, np.random.default_rng(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3]), round(inertia, 3)
    (True, 0.025)
    """
    centres = None if start is None else means_of(points, start, n_clusters)
    if centres is not None:
        found = descend(points, centres, tolerance=DONE * _variance(points), deadline=deadline)
        return found.labels, found.inertia
    found = best_assignment(points, n_clusters, n_init, rng, origin, thresholds, deadline)
    return found.labels, found.inertia


def best_assignment(
    points: Array,
    n_clusters: int,
    n_init: int,
    rng: np.random.Generator,
    origin: Array | float = 0.0,
    thresholds: Thresholds = USUAL,
    deadline: float = math.inf,
) -> Assignment:
    """The last look of :func:`kmeans`, which knows its centres."""
    searched_by = (time.perf_counter() + deadline) / 2  # half of what is left for runs over all rows
    dtype = np.float32 if n_clusters >= WIDE and len(points) > thresholds.small else np.float64
    if points.dtype != dtype and (dtype == np.float32 or len(points) <= thresholds.small):
        points = points.astype(dtype)
    size = sample_size(n_clusters)
    # 1. centres are sought on a sample of the rows
    is_sampled = len(points) > WORTH_A_SAMPLE * size
    sample = points[rng.choice(len(points), size, replace=False)] if is_sampled else points
    variance = _variance(sample)
    search = Search(sample, STILL * variance, rng, origin, searched_by)
    centres = search.best(n_clusters, n_init).centres
    # 2. Lloyd steps on all rows (Lloyd 1982); few after a sample, whose centres are nearly right
    steps = MAX_STEPS
    tolerance = 0.0
    if is_sampled:
        steps = POLISH_MANY if n_clusters >= MANY_CLUSTERS else POLISH
        tolerance = DONE * variance
    return descend(points, centres, tolerance=tolerance, max_steps=steps, deadline=deadline)


def _variance(points: Array) -> float:
    """Mean over the columns."""
    return float(points.var(axis=0, dtype=np.float64).mean())


def rough_labels(
    points: Array, n_clusters: int, n_init: int, rng: np.random.Generator, similar: Array | None = None
) -> Array:
    """Labels as of :func:`kmeans`, without the last steps on all rows.

    Parameters
    ----------
    points : array of shape (n, k)
        Rows near zero, with at least as many columns as there are clusters.
    n_clusters
        Number of clusters.
    n_init
        Most runs.
    rng
        Source of the sample and the starts.
    similar : array of shape (n,), optional
        Labels of the same rows by other coordinates: their means are another start.

    Examples
    --------
    >>> points = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> rough_labels(points, 2, 2, np.random.default_rng(0)).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    size = sample_size(n_clusters)
    is_sampled = len(points) > WORTH_A_SAMPLE * size
    part = rng.choice(len(points), size, replace=False) if is_sampled else slice(None)
    sample = points[part]
    search = Search(sample, STILL * _variance(sample), rng)
    # 1. pivots of the eigenvectors (Damle, Minden and Ying 2019), and breaths
    best = search.best(n_clusters, n_init)
    # 2. the means of similar labels
    if similar is not None:
        means = means_of(sample, np.asarray(similar)[part], n_clusters)
        if means is not None:
            best = min(best, search.settle(means), key=lambda each: each.inertia)
    return assign_to_centers(points, best.means(sample)).labels if is_sampled else best.labels


def means_of(points: Array, labels: Array, n_clusters: int) -> Array | None:
    """Means of the rows of each cluster; None where one is empty."""
    sizes = np.bincount(labels, minlength=n_clusters)
    return _sums_by_label(points, labels, n_clusters) / sizes[:, None] if sizes.all() else None


def sample_size(n_clusters: int) -> int:
    """Rows that centres are sought on."""
    few = min(ROWS_OF_SOME, SAMPLE_PER_CLUSTER * n_clusters)
    return max(SAMPLE, few, SAMPLE_PER_MANY * n_clusters)


@dataclass(frozen=True, eq=False)
class Search:
    """A search for centres: centres that move by no more than ``still`` are done, and all by ``deadline``."""

    points: Array
    still: float
    rng: np.random.Generator
    origin: Array | float = 0.0
    deadline: float = math.inf

    def best(self, n_clusters: int, n_init: int) -> Assignment:
        """Breathe until neither many nor few other centres help."""
        # 1. first centres: pivots of the eigenvectors (Damle, Minden and Ying 2019) or k-means++
        directed = n_init > 1 and self.points.shape[1] >= n_clusters
        if directed:
            best = self.settle(pivot_centres(self.points + self.origin, n_clusters) - self.origin)
        else:
            best = self.settle(spread_centres(self.points, n_clusters, self.rng))
        nothing = ROUNDING * float(np.einsum("ij,ij->", self.points, self.points))
        # 2. breathing k-means (Fritzke, arXiv 2006.15666): add centres, settle, remove as many
        extra = min(EXTRA, (n_clusters + 1) // 2, len(self.points) - n_clusters)
        many = n_clusters >= MANY_CLUSTERS
        is_cheap = self.points.size * n_clusters <= CHEAP
        patience = n_init if is_cheap else PATIENCE
        in_vain = 0 if n_clusters > 1 and extra > 0 else patience
        for _ in range(min(n_init, MAX_RUNS_OF_MANY if many else n_init) - 1):
            if in_vain == patience or best.inertia <= nothing or time.perf_counter() >= self.deadline:
                break
            # after a breath in vain a fresh start: breaths do not leave every local optimum
            if in_vain % 2 and n_clusters <= MOST_BY_SPREADING:
                other = self.settle(spread_centres(self.points, n_clusters, self.rng))
            else:
                other = self._breath(best, extra)
            # fewer centres at a time once many do not help
            if other.inertia >= best.inertia * (1 - AGREE):
                in_vain = in_vain + 1
                extra = max(1, extra // 3)
            if other.inertia < best.inertia:
                best = other
        return best

    def settle(self, centres: Array, max_steps: int = MAX_STEPS) -> Assignment:
        """Lloyd's algorithm from these centres, until they move by no more than ``still``."""
        return descend(
            self.points,
            centres,
            tolerance=self.still,
            max_steps=max_steps,
            deadline=self.deadline,
        )

    def _breath(self, best: Assignment, extra: int) -> Assignment:
        """Split the worst clusters, then do without the centres of least use (Fritzke, arXiv 2006.15666)."""
        more = self.settle(np.vstack([best.centres, self.points[self._rows_to_add(best, extra)]]), BREATH)
        return self.settle(np.delete(more.centres, _to_spare(more, extra), axis=0))

    def _rows_to_add(self, best: Assignment, count: int) -> list[int]:
        """A row of each cluster of large error, drawn by its squared distance."""
        # error of a cluster: the sum of the squared distances of its rows
        errors = np.bincount(best.labels, best.gaps, len(best.centres))
        worst = np.argsort(errors)[::-1][:count]
        return [int(_draw_rows(np.where(best.labels == c, best.gaps, 0), 1, self.rng)[0]) for c in worst]


def _to_spare(found: Assignment, count: int) -> list[int]:
    """Centres of least use; the nearest to one that goes will take its rows, so it stays while it can."""
    apart = _squares(found.centres, found.centres)
    np.fill_diagonal(apart, np.inf)
    use = found.use.copy()
    spared = []
    for _ in range(count):
        # the centre whose loss costs least, then its neighbour is protected
        last = int(np.argmin(use))
        spared.append(last)
        use[last] = np.inf
        apart[:, last] = np.inf
        # the neighbour takes over the rows of the one that goes, so it is of more use now
        use[np.argmin(apart[last])] += found.use.sum()
    return spared


def spread_centres(points: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii, 2007), each time the best of a few candidates."""
    n_trials = 2 + int(math.log(n_clusters))
    chosen = [int(rng.integers(len(points)))]
    gaps = _squares(points, points[chosen])[:, 0]
    while len(chosen) < n_clusters:
        # draw by squared distance (D^2 sampling), keep the candidate that lowers the sum most
        candidates = _draw_rows(gaps, n_trials, rng)
        after = np.minimum(gaps[:, None], _squares(points, points[candidates]))
        best = int(np.argmin(after.sum(axis=0)))
        chosen.append(int(candidates[best]))
        gaps = after[:, best]
    return points[chosen].astype(np.float64)


def _draw_rows(odds: Array, count: int, rng: np.random.Generator) -> Array:
    """Row numbers by their odds; where all are zero any row will do."""
    up_to = np.cumsum(odds)
    if up_to[-1] == 0:
        return rng.integers(len(odds), size=count)
    return np.asarray(np.searchsorted(up_to, rng.random(count) * up_to[-1], side="right"))


def _squares(points: Array, centres: Array) -> Array:
    """Squared distances, never below zero."""
    own, other = (np.einsum("ij,ij->i", rows, rows) for rows in (points, centres))
    return np.asarray(np.maximum(own[:, None] + other - 2 * points @ centres.T, 0))


# --- Rows of unit length, or nearly so.

TINY = 1e-200  # squares of lengths that are not trusted


def unit_rows(rows: Array, norm_regularization: float = 0.0) -> Array:
    """Rows (n, k) of unit length; see :func:`~spectrograd.labels.assign` for ``norm_regularization``."""
    lengths = row_lengths(rows)
    return _divide_rows(
        rows, lengths, float(np.median(lengths)) * norm_regularization**0.5 if norm_regularization else 0.0
    )


def soft_unit(rows: Array, length: float) -> Array:
    """Rows of softly unit length, relative to a known ``length``: rows much shorter stay short."""
    return _divide_rows(rows, row_lengths(rows), length)


def _divide_rows(rows: Array, lengths: Array, length: float) -> Array:
    lengths = np.hypot(lengths, length) if length else lengths
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths[:, None], dtype=rows.dtype)


def row_lengths(rows: Array) -> Array:
    """Lengths of rows (n, k), whatever their order of magnitude."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    lengths = np.sqrt(squares)
    odd = np.flatnonzero(~((squares > TINY) & (squares < 1 / TINY)))
    if len(odd):  # the squares have left the range of numbers, or are zero
        largest = np.abs(rows[odd]).max(axis=1).astype(np.float64)
        scaled = rows[odd] / np.where(largest == 0, 1, largest)[:, None]
        lengths[odd] = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return np.asarray(lengths)
