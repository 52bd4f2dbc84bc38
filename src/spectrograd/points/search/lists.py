"""Nearly all nearest neighbours of many points: lists around centres, of which each point visits the nearest.

Points fall into about sqrt(N) lists, the cells of a rough k-means. A point is compared with those of the few
lists whose centres are nearest to it, all points of a list at once in one product of matrices. How many lists
it takes is not guessed: for a sample of points the true neighbours are known, and so are their lists. What
was found is ranked by exact distances, and what was missed is measured on a second sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Recall
from spectrograd.kernels.threads import side_by_side
from spectrograd.points.recall import measured_recall
from spectrograd.points.search.blocks import (
    SPARE,
    Cloud,
    closest,
    nearest_of_rows,
    nothing_yet,
    ranked,
    squares,
)
from spectrograd.points.search.projection import projected

Array = NDArray[Any]

# Rows with known neighbours: some say how many lists to visit, others how well that went (to about half a
# per cent). Apart, or the second figure would flatter.
ROWS_TO_TUNE, ROWS_TO_TELL = 200, 400
# Lists per sqrt(N): with more, finding the nearest ones costs what shorter lists save (MNIST, mixtures).
LISTS_PER_ROOT = 1.5
# Enough for centres that serve: points per list they are made from, and steps of k-means.
TRAINED_ON, STEPS = 32, 6
# Candidates kept per neighbour wanted where distances are those of projected points.
CANDIDATES_PROJECTED = 3
# Queries that visit lists together: more make larger products, fewer make more turns for threads to take.
TOGETHER = 8192
# A search that falls short visits more lists and keeps more candidates; after so many it has become exact.
ROUNDS = 5


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
        centres = _trained_centres(points, n_lists, rng)
        member_of = closest(points, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable").astype(np.int32)
        begin = np.searchsorted(member_of[order], np.arange(n_lists + 1))
        return cls(centres, order, begin, points[order] - centres[member_of[order]])

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

    def visit(self, points: Array, n_visits: int, n_kept: int) -> Array:
        """Row numbers of the ``n_kept`` nearest others of each point in its nearest lists; -1 where fewer."""
        to_visit = closest(points, self.centres, n_visits)
        gaps, found = nothing_yet(len(points), n_kept)
        lengths = squares(self.offsets)
        jobs = [(points, to_visit, start, lengths, gaps, found) for start in range(0, len(points), TOGETHER)]
        side_by_side(self._visit_together, jobs)
        return found

    def _visit_together(
        self, points: Array, to_visit: Array, start: int, lengths: Array, gaps: Array, found: Array
    ) -> None:
        """Mutates: ``gaps`` and ``found`` of some queries, neighbours in space; no two jobs share a query."""
        from spectrograd.kernels.dense.closest import keep_closest

        asking = self.order[start : start + TOGETHER]
        visits = to_visit[asking].ravel()
        by_list = np.argsort(visits, kind="stable")
        turn = np.searchsorted(visits[by_list], np.arange(len(self.centres) + 1))
        visitors = asking[by_list // to_visit.shape[1]]
        for at in np.flatnonzero(np.diff(turn)):
            there = slice(self.begin[at], self.begin[at + 1])
            rows = visitors[turn[at] : turn[at + 1]]
            queries = points[rows] - self.centres[at]
            products = queries @ self.offsets[there].T
            keep_closest(
                products, squares(queries), lengths[there], self.order[there], rows, rows, gaps, found
            )


def search_lists(points: Array, k: int, recall: float) -> tuple[Array, Array, Recall] | None:
    """Nearly all of the k others closest to each point: indices, exact distances (N x k), measured recall.

    None where ``recall`` cannot be had for less than an exact search costs. The same on every call and for
    any number of threads.
    """
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    cloud = Cloud.around(points)
    sample = rng.choice(len(points), min(len(points), ROWS_TO_TUNE + ROWS_TO_TELL), replace=False)
    known, true = nearest_of_rows(cloud, sample, k)
    tune, tell = slice(ROWS_TO_TUNE), slice(ROWS_TO_TUNE, None)
    near = projected(cloud, rng)
    whole = near.shape[1] == points.shape[1]
    n_kept = k + SPARE if whole else CANDIDATES_PROJECTED * k
    lists = Lists.of(near, rng)
    missed = (1 - recall) * (3 / 4 if whole else 1 / 2)  # the rest is for what projection and chance may lose
    for _ in range(ROUNDS):
        n_visits = lists.needed(near, sample[tune], known[tune], 1 - missed)
        if 2 * n_visits > len(lists.centres):
            return None
        candidates = lists.visit(near, n_visits, min(n_kept, len(points) - 1))
        indices, distances = ranked(cloud, np.arange(len(points), dtype=np.int32), candidates, k)
        short = np.flatnonzero(indices[:, -1] < 0)
        if len(short):  # too few in all lists visited: look at all points
            indices[short], distances[short] = nearest_of_rows(cloud, short, k)
        found = measured_recall(distances[sample[tell]], true[tell])
        if found >= recall:
            return indices, distances, found
        missed, n_kept = missed / 2, 2 * n_kept
    return None


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
