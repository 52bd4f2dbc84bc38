"""Points in lists around centres, of which each query visits the nearest.

Points fall into about sqrt(N) lists, the cells of a rough k-means. A query is compared with the points of the
few lists whose centres are nearest to it, all points of a list at once in one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels.threads import N_SHARES, side_by_side
from spectrograd.points.search.blocks import Multiply, by_blas, closest, nothing_yet, row_by_row, squares

Array = NDArray[Any]

# Lists per sqrt(N): with more, finding the nearest ones costs what shorter lists save (MNIST, mixtures).
LISTS_PER_ROOT = 1.5
# Enough for centres that serve: points per list they are made from, and steps of k-means.
TRAINED_ON, STEPS = 32, 6
# Queries that visit lists together: more make larger products, fewer make more turns for threads to take.
FEWEST, TOGETHER = 1024, 8192


@dataclass(frozen=True, eq=False)
class Lists:
    """Points sorted by the list they are in.

    ``centres`` (L x p); ``order``: row numbers of the points, list by list; ``begin`` (L + 1): where each
    list begins; ``offsets`` (N x p): the points in this order, each less its centre, for precision.
    """

    centres: Array
    order: Array
    begin: Array
    offsets: Array

    @classmethod
    def of(cls, points: Array, rng: np.random.Generator) -> Lists:
        """Lists of points (N x p, single precision)."""
        n_lists = max(1, int(LISTS_PER_ROOT * np.sqrt(len(points))))
        return cls.around(_trained_centres(points, n_lists, rng), points)

    @classmethod
    def around(cls, centres: Array, points: Array) -> Lists:
        """Each point in the list of its nearest centre."""
        member_of = closest(points, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable").astype(np.int32)
        begin = np.searchsorted(member_of[order], np.arange(len(centres) + 1))
        return cls(centres, order, begin, points[order] - centres[member_of[order]])

    def with_more(self, points: Array, first: int) -> tuple[Lists, Array]:
        """The same with further points, numbered from ``first`` on; and where all of them were before."""
        added = closest(points, self.centres, 1, row_by_row)[:, 0]
        there = np.repeat(np.arange(len(self.centres)), np.diff(self.begin))
        place = np.argsort(np.concatenate([there, added]), kind="stable")
        order = np.concatenate([self.order, first + np.arange(len(points), dtype=np.int32)])[place]
        offsets = np.concatenate([self.offsets, points - self.centres[added]])[place]
        begin = self.begin + np.concatenate([[0], np.cumsum(np.bincount(added, minlength=len(self.centres)))])
        return Lists(self.centres, order, begin, offsets), place

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
        from spectrograd.kernels.dense.closest import keep_closest

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
