"""Points in lists around centres, of which each query visits the nearest.

Points fall into about sqrt(N) lists, the cells of a rough k-means. A query is compared with the points of the
few lists whose centres are nearest to it, all points of a list at once in one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spectrograd.graph import Recall
from spectrograd.kernels.jit import N_SHARES, side_by_side
from spectrograd.points.distances import (
    SPARE,
    Cloud,
    Multiply,
    by_blas,
    closest,
    nearest_of_rows,
    nothing_yet,
    ranked,
    row_by_row,
    squares,
)
from spectrograd.points.search import measured_recall
from spectrograd.points.validation import place_hashes
from spectrograd.typing import Array

# InvertedLists per sqrt(N): with more, finding the nearest ones costs what shorter lists save (MNIST,
# mixtures).
LISTS_PER_SQRT_POINTS = 1.5
# Enough for centres that serve: points per list they are made from, and steps of k-means.
TRAINED_ON, STEPS = 32, 6
# Queries that visit lists together: more make larger products, fewer make more turns for threads to take.
FEWEST, TOGETHER = 1024, 8192


@dataclass(frozen=True, eq=False)
class InvertedLists:
    """Points sorted by the list they are in.

    ``centres`` (L x p); ``order``: row numbers of the points, list by list; ``begin`` (L + 1): where each
    list begins; ``offsets`` (N x p): the points in this order, each less its centre, for precision.
    """

    centres: Array
    order: Array
    begin: Array
    offsets: Array

    @classmethod
    def of(cls, points: Array, rng: np.random.Generator) -> InvertedLists:
        """InvertedLists of points (N x p, single precision)."""
        n_lists = max(1, int(LISTS_PER_SQRT_POINTS * np.sqrt(len(points))))
        return cls.around(_trained_centres(points, n_lists, rng), points)

    @classmethod
    def around(cls, centres: Array, points: Array) -> InvertedLists:
        """Each point in the list of its nearest centre."""
        member_of = closest(points, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable").astype(np.int32)
        begin = np.searchsorted(member_of[order], np.arange(len(centres) + 1))
        return cls(centres, order, begin, points[order] - centres[member_of[order]])

    def with_more(self, points: Array, first: int) -> tuple[InvertedLists, Array]:
        """The same with further points, numbered from ``first`` on; and where all of them were before."""
        added = closest(points, self.centres, 1, row_by_row)[:, 0]
        there = np.repeat(np.arange(len(self.centres)), np.diff(self.begin))
        place = np.argsort(np.concatenate([there, added]), kind="stable")
        order = np.concatenate([self.order, first + np.arange(len(points), dtype=np.int32)])[place]
        offsets = np.concatenate([self.offsets, points - self.centres[added]])[place]
        begin = self.begin + np.concatenate([[0], np.cumsum(np.bincount(added, minlength=len(self.centres)))])
        return InvertedLists(self.centres, order, begin, offsets), place

    @property
    def membership(self) -> Array:
        """The list of each point."""
        member_of = np.empty(len(self.order), dtype=np.int32)
        member_of[self.order] = np.repeat(np.arange(len(self.centres)), np.diff(self.begin))
        return member_of

    def needed(self, points: Array, asking: Array, neighbours: Array, share: float) -> int:
        """How many lists to visit so that this share of known neighbours (n x k) is met with."""
        by_distance = closest(points[asking], self.centres, len(self.centres))
        visit = np.argsort(by_distance, axis=1)  # when each list has its turn
        turns = np.sort(np.take_along_axis(visit, self.membership[neighbours], axis=1), axis=None)
        return int(turns[min(len(turns) - 1, int(np.ceil(share * len(turns))))]) + 1

    def visit(
        self, queries: Array, own: Array, n_visits: int, n_kept: int, multiply: Multiply = by_blas
    ) -> Array:
        """Row numbers of the ``n_kept`` nearest points to each query in its nearest lists; -1 where fewer.

        ``own`` (n, int32) is the point that a query is itself, and is passed over, or -1.
        """
        from spectrograd.kernels.nearest import keep_closest

        to_visit = closest(queries, self.centres, n_visits, multiply)
        gaps, found = nothing_yet(len(queries), n_kept)
        in_space = np.argsort(to_visit[:, 0], kind="stable").astype(np.int32)
        at_once = int(np.clip(len(queries) // N_SHARES, FEWEST, TOGETHER))

        def work(start: int) -> None:
            """Some queries, neighbours in space; no two threads share a query."""
            asking = in_space[start : start + at_once]
            for at, rows in self._visitors(to_visit, asking):
                there = slice(self.begin[at], self.begin[at + 1])
                moved = queries[rows] - self.centres[at]
                keep_closest(
                    multiply(moved, self.offsets[there]),
                    squares(moved),
                    self._lengths[there],
                    self.order[there],
                    rows,
                    own[rows],
                    gaps,
                    found,
                )

        side_by_side(work, [(start,) for start in range(0, len(queries), at_once)])
        return found

    @cached_property
    def _lengths(self) -> Array:
        return squares(self.offsets)

    def _visitors(self, to_visit: Array, asking: Array) -> Iterator[tuple[int, Array]]:
        """The lists that these queries visit, in order, each with its visitors."""
        visits = to_visit[asking].ravel()
        by_list = np.argsort(visits, kind="stable")
        turn = np.searchsorted(visits[by_list], np.arange(len(self.centres) + 1))
        visitors = asking[by_list // to_visit.shape[1]]
        for at in np.flatnonzero(np.diff(turn)):
            yield int(at), visitors[turn[at] : turn[at + 1]]


def _trained_centres(points: Array, n_lists: int, rng: np.random.Generator) -> Array:
    """Centres of a rough k-means on a sample (L x p); a centre that loses its points stays where it is."""
    sample = points[rng.choice(len(points), min(len(points), TRAINED_ON * n_lists), replace=False)]
    centres = sample[:n_lists].copy()
    for _ in range(STEPS):
        member_of = closest(sample, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable")
        filled, begin, sizes = np.unique(member_of[order], return_index=True, return_counts=True)
        centres[filled] = np.add.reduceat(sample[order], begin, axis=0) / sizes[:, None].astype(np.float32)
    return centres


# --- Fewer columns: the directions in which points differ most. Near points stay near; few others become so.

# On MNIST (784 columns) 64 keep the true neighbours among three times as many candidates; a wider table
# costs more products than the candidates it saves.
MOST_COLUMNS = 64
ROWS_TO_FIT = 8192  # the directions need no more
PROJECTED_TOGETHER = 1024  # rows per turn of a thread


def main_directions(cloud: Cloud, rng: np.random.Generator) -> Array | None:
    """At most 64 directions as rows (64 x p), by what a sample varies in; None for so few columns anyway."""
    n_points, n_columns = cloud.points.shape
    if n_columns <= MOST_COLUMNS:
        return None
    sample = cloud.single(rng.choice(n_points, min(n_points, ROWS_TO_FIT), replace=False))
    sample -= sample.mean(axis=0)
    return np.ascontiguousarray(np.linalg.eigh(sample.T @ sample)[1][:, : -MOST_COLUMNS - 1 : -1].T)


def projected(cloud: Cloud, directions: Array | None) -> Array:
    """The points (N x p) on these directions, or as they are, in single precision; each row by itself."""
    width = cloud.points.shape[1] if directions is None else len(directions)
    near = np.empty((len(cloud.points), width), dtype=np.float32)

    def work(start: int) -> None:
        rows = slice(start, start + PROJECTED_TOGETHER)
        plain = cloud.single(rows)
        near[rows] = plain if directions is None else row_by_row(plain, directions)[:, :width]

    side_by_side(work, [(start,) for start in range(0, len(near), PROJECTED_TOGETHER)])
    return near


# --- The search by lists: tuned on a sample, measured on another, and kept for questions about other points.

# Rows with known neighbours: some say how many lists to visit, others how well that went (to about half a
# per cent). Apart, or the second figure would flatter.
ROWS_TO_TUNE, RECALL_SAMPLE_ROWS = 200, 400
# Candidates kept per neighbour wanted where distances are those of projected points.
CANDIDATES_PROJECTED = 3
# A search that falls short visits more lists and keeps more candidates; after so many it has become exact.
ROUNDS = 5
# A point asked about may lie anywhere. Farther out than this, in units of the cloud, squares would leave the
# range of single precision, and who is nearest no longer depends on how far.
FARTHEST = 1e6


@dataclass(frozen=True, eq=False)
class IVFIndex:
    """InvertedLists that a search has tuned. A question gets the same answer to the last bit in any company.

    Attributes
    ----------
    centre, unit, directions
        How points (n x p) become rows of few columns in single precision: see :class:`Cloud` and
        :func:`projected`.
    lists
        The known points, so projected.
    keys : array of shape (n_points,)
        Hashes of the projected points in the order of the lists: twins are found whatever else is near.
    n_visits, n_kept
        InvertedLists to visit, and candidates to keep.
    """

    centre: Array
    unit: float
    directions: Array | None
    lists: InvertedLists
    keys: Array
    n_visits: int
    n_kept: int

    def of_rows(self, rows: Array) -> IVFIndex:
        """The same where point i of the lists is to be called ``rows[i]``."""
        return replace(self, lists=replace(self.lists, order=rows[self.lists.order].astype(np.int32)))

    def with_more(self, asked: Array, first: int) -> IVFIndex:
        """The same with further points (n x p), numbered from ``first`` on."""
        near = self._projected(asked)
        lists, place = self.lists.with_more(near, first)
        return replace(self, lists=lists, keys=np.concatenate([self.keys, place_hashes(near)])[place])

    def nearest(self, points: Array, asked: Array, k: int) -> tuple[Array, Array, Array]:
        """Of the known points (N x p) the k nearest to each of others (n x p).

        Returns indices and distances (n x k), nearest first, and the twin of each, the known point in the
        same place, or -1.
        """
        near = self._projected(asked.astype(points.dtype, copy=False))
        cloud, nobody = Cloud(points, self.centre, self.unit), np.full(len(near), -1, dtype=np.int32)
        candidates = self.lists.visit(near, nobody, self.n_visits, self.n_kept, row_by_row)
        indices, distances = ranked(cloud, asked, candidates, k)
        short = np.flatnonzero(indices[:, -1] < 0)
        if len(short):  # too few in all lists visited: visit all
            every = len(self.lists.centres)
            candidates = self.lists.visit(near[short], nobody[short], every, self.n_kept, row_by_row)
            indices[short], distances[short] = ranked(cloud, asked[short], candidates, k)
        twins = self._same_key(near)
        alike = np.flatnonzero(twins >= 0)
        twins[alike[(points[twins[alike]] != asked[alike]).any(axis=1)]] = -1
        return indices, distances, twins

    def _projected(self, asked: Array) -> Array:
        with np.errstate(over="ignore"):  # at the limits of doubles nothing lies farther
            reach = np.abs(self.centre).max() + FARTHEST * self.unit
        if len(asked) and max(-asked.min(), asked.max()) > reach:
            asked = np.clip(asked, -reach, reach).astype(asked.dtype, copy=False)
        return projected(Cloud(asked, self.centre, self.unit), self.directions)

    def _same_key(self, near: Array) -> Array:
        """The first known point with the same key as a row, or -1."""
        keys, rows = self._by_key
        asked = place_hashes(near)
        place = np.minimum(np.searchsorted(keys, asked), len(rows) - 1)
        return np.where(keys[place] == asked, rows[place], -1)

    @cached_property
    def _by_key(self) -> tuple[Array, Array]:
        place = np.lexsort((self.lists.order, self.keys))
        return self.keys[place], self.lists.order[place]


def search_ivf(points: Array, k: int, recall: float) -> tuple[Array, Array, Recall, IVFIndex] | None:
    """Nearly all of the k others closest to each point: indices, exact distances (N x k), measured recall.

    And the lists, for questions about other points. None where ``recall`` cannot be had for less than an
    exact search costs. The same on every call and for any number of threads.
    """
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    cloud = Cloud.around(points)
    sample = rng.choice(len(points), min(len(points), ROWS_TO_TUNE + RECALL_SAMPLE_ROWS), replace=False)
    known, true = nearest_of_rows(cloud, sample, k)
    tune, tell = slice(ROWS_TO_TUNE), slice(ROWS_TO_TUNE, None)
    directions = main_directions(cloud, rng)
    near = projected(cloud, directions)
    n_kept = k + SPARE if directions is None else CANDIDATES_PROJECTED * k
    lists, every = InvertedLists.of(near, rng), np.arange(len(points), dtype=np.int32)
    # the rest is for what projection and chance may lose
    missed = (1 - recall) * (3 / 4 if directions is None else 1 / 2)
    for _ in range(ROUNDS):
        n_visits = lists.needed(near, sample[tune], known[tune], 1 - missed)
        if 2 * n_visits > len(lists.centres):
            return None
        candidates = lists.visit(near, every, n_visits, min(n_kept, len(points) - 1))
        indices, distances = ranked(cloud, points, candidates, k)
        short = np.flatnonzero(indices[:, -1] < 0)
        if len(short):  # too few in all lists visited: look at all points
            indices[short], distances[short] = nearest_of_rows(cloud, short, k)
        found = measured_recall(distances[sample[tell]], true[tell])
        if found >= recall:
            keys = place_hashes(near)[lists.order]
            index = IVFIndex(cloud.centre, cloud.unit, directions, lists, keys, n_visits, n_kept)
            return indices, distances, found, index
        missed, n_kept = missed / 2, 2 * n_kept
    return None
