"""The search by lists: tuned on a sample, measured on another, and kept for questions about other points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Recall
from spectrograd.points.places import place_hashes
from spectrograd.points.recall import measured_recall
from spectrograd.points.search.blocks import SPARE, Cloud, nearest_of_rows, ranked, row_by_row
from spectrograd.points.search.lists import Lists
from spectrograd.points.search.projection import main_directions, projected

Array = NDArray[Any]

# Rows with known neighbours: some say how many lists to visit, others how well that went (to about half a
# per cent). Apart, or the second figure would flatter.
ROWS_TO_TUNE, ROWS_TO_TELL = 200, 400
# Candidates kept per neighbour wanted where distances are those of projected points.
CANDIDATES_PROJECTED = 3
# A search that falls short visits more lists and keeps more candidates; after so many it has become exact.
ROUNDS = 5
# A point asked about may lie anywhere. Farther out than this, in units of the cloud, squares would leave the
# range of single precision, and who is nearest no longer depends on how far.
FARTHEST = 1e6


@dataclass(frozen=True, eq=False)
class ListIndex:
    """Lists that a search has tuned. A question gets the same answer to the last bit in any company.

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
        Lists to visit, and candidates to keep.
    """

    centre: Array
    unit: float
    directions: Array | None
    lists: Lists
    keys: Array
    n_visits: int
    n_kept: int

    def of_rows(self, rows: Array) -> ListIndex:
        """The same where point i of the lists is to be called ``rows[i]``."""
        return replace(self, lists=replace(self.lists, order=rows[self.lists.order].astype(np.int32)))

    def with_more(self, asked: Array, first: int) -> ListIndex:
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


def search_lists(points: Array, k: int, recall: float) -> tuple[Array, Array, Recall, ListIndex] | None:
    """Nearly all of the k others closest to each point: indices, exact distances (N x k), measured recall.

    And the lists, for questions about other points. None where ``recall`` cannot be had for less than an
    exact search costs. The same on every call and for any number of threads.
    """
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    cloud = Cloud.around(points)
    sample = rng.choice(len(points), min(len(points), ROWS_TO_TUNE + ROWS_TO_TELL), replace=False)
    known, true = nearest_of_rows(cloud, sample, k)
    tune, tell = slice(ROWS_TO_TUNE), slice(ROWS_TO_TUNE, None)
    directions = main_directions(cloud, rng)
    near = projected(cloud, directions)
    n_kept = k + SPARE if directions is None else CANDIDATES_PROJECTED * k
    lists, every = Lists.of(near, rng), np.arange(len(points), dtype=np.int32)
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
            index = ListIndex(cloud.centre, cloud.unit, directions, lists, keys, n_visits, n_kept)
            return indices, distances, found, index
        missed, n_kept = missed / 2, 2 * n_kept
    return None
