"""Approximate nearest neighbours by inverted lists (IVF, as in faiss), tuned to a measured recall.

Points fall into about sqrt(N) lists, the cells of a rough k-means. A query is compared with the points of the
few lists whose centres are nearest to it, all points of a list in one matrix product. Points of many columns
are projected on their principal directions first; exact distances rank the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from spectrograd.graph import GraphError, Recall
from spectrograd.kernels.jit import N_SHARES, side_by_side
from spectrograd.points.distances import (
    SPARE_CANDIDATES,
    Cloud,
    Multiply,
    allocate_candidates,
    find_nearest_rows,
    multiply_by_blas,
    multiply_by_rows,
    nearest_of_rows,
    rank_candidates,
    squares,
)
from spectrograd.points.search import estimate_recall
from spectrograd.points.validation import place_hashes
from spectrograd.typing import Array

# Lists per sqrt(N): with more, finding the nearest ones costs what shorter lists save (MNIST,
# mixtures).
LISTS_PER_SQRT_POINTS = 1.5
# Points per list that train the centres, and steps of k-means: more do not improve the recall.
TRAINING_POINTS_PER_LIST = 32
KMEANS_STEPS = 6
# Queries per task of a thread: more make larger products, fewer balance the threads better.
MIN_QUERIES_PER_TASK = 4096
MAX_QUERIES_PER_TASK = 8192


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

    def check_structure(self) -> None:
        """Refuse lists that compiled code would read beyond their ends: those of a damaged file."""
        order = self.order
        begin = self.begin
        n_points = len(order)
        fits = self.centres.ndim == self.offsets.ndim == 2
        fits = fits and self.offsets.shape == (n_points, self.centres.shape[1])
        fits = fits and begin.shape == (len(self.centres) + 1,) and begin[0] == 0 and begin[-1] == n_points
        if not (fits and (begin[1:] >= begin[:-1]).all() and order.dtype.kind == begin.dtype.kind == "i"):
            raise GraphError("lists of points that do not fit together")
        if n_points and order.min() < 0:
            raise GraphError("lists of points: a number is out of range")

    @classmethod
    def of(cls, points: Array, rng: np.random.Generator) -> InvertedLists:
        """Lists of points (N x p, float32) around centres trained on a sample of them."""
        n_lists = max(1, int(LISTS_PER_SQRT_POINTS * np.sqrt(len(points))))
        return cls.around(_train_centres(points, n_lists, rng), points)

    @classmethod
    def around(cls, centres: Array, points: Array) -> InvertedLists:
        """Lists of points (N x p), each in the list of its nearest centre (L x p)."""
        member_of = find_nearest_rows(points, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable").astype(np.int32)
        begin = np.searchsorted(member_of[order], np.arange(len(centres) + 1))
        return cls(centres, order, begin, points[order] - centres[member_of[order]])

    def with_more(self, points: Array, first: int) -> tuple[InvertedLists, Array]:
        """Lists with further points, numbered from ``first`` on; and the order of all points in them."""
        added = find_nearest_rows(points, self.centres, 1, multiply_by_rows)[:, 0]
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

    def visits_for_recall(self, points: Array, query_rows: Array, neighbours: Array, share: float) -> int:
        """Count the lists a query must visit so that this share of its true neighbours (n x k) is in them."""
        by_distance = find_nearest_rows(points[query_rows], self.centres, len(self.centres))
        rank = np.argsort(by_distance, axis=1)  # of each list, by its distance from the query
        ranks = np.sort(np.take_along_axis(rank, self.membership[neighbours], axis=1), axis=None)
        return int(ranks[min(len(ranks) - 1, int(np.ceil(share * len(ranks))))]) + 1

    def visit(
        self, queries: Array, own: Array, n_visits: int, n_kept: int, multiply: Multiply = multiply_by_blas
    ) -> Array:
        """Compare queries with the points of their nearest lists.

        Parameters
        ----------
        queries : array of shape (n, p), float32
        own : int32 array of shape (n,)
            The point that a query is itself, which is left out, or -1.
        n_visits : int
            Lists per query.
        n_kept : int
            Candidates per query.
        multiply : callable
            The product of two blocks.

        Returns
        -------
        int32 array of shape (n, n_kept)
            Row numbers of the nearest points; -1 where there are fewer.
        """
        from spectrograd.kernels.nearest import keep_closest

        to_visit = find_nearest_rows(queries, self.centres, n_visits, multiply)
        gaps, nearest = allocate_candidates(len(queries), n_kept)
        in_space = np.argsort(to_visit[:, 0], kind="stable").astype(np.int32)
        step = int(np.clip(len(queries) // N_SHARES, MIN_QUERIES_PER_TASK, MAX_QUERIES_PER_TASK))

        def work(start: int) -> None:
            """Visit the lists of some queries, near each other in space; no two threads share a query."""
            here = in_space[start : start + step]
            # the nearest list of all queries first: its points leave little to keep of the others
            nearest_first = chain(
                self._visitors(to_visit[:, :1], here), self._visitors(to_visit[:, 1:], here)
            )
            for at, rows in nearest_first:
                there = slice(self.begin[at], self.begin[at + 1])
                offsets = queries[rows] - self.centres[at]
                keep_closest(
                    multiply(offsets, self.offsets[there]),
                    squares(offsets),
                    self._lengths[there],
                    self.order[there],
                    rows,
                    own[rows],
                    gaps,
                    nearest,
                )

        side_by_side(work, [(start,) for start in range(0, len(queries), step)])
        return nearest

    @cached_property
    def _lengths(self) -> Array:
        return squares(self.offsets)

    def _visitors(self, to_visit: Array, queries: Array) -> Iterator[tuple[int, Array]]:
        """Yield each list that some of these queries visit, with the queries that do."""
        visits = to_visit[queries].ravel()
        by_list = np.argsort(visits, kind="stable")
        begin = np.searchsorted(visits[by_list], np.arange(len(self.centres) + 1))
        visitors = queries[by_list // to_visit.shape[1]]
        for at in np.flatnonzero(np.diff(begin)):
            yield int(at), visitors[begin[at] : begin[at + 1]]


def _train_centres(points: Array, n_lists: int, rng: np.random.Generator) -> Array:
    """Train centres (L x p) by a few steps of k-means on a sample; a centre without points stays in place."""
    n_sampled = min(len(points), TRAINING_POINTS_PER_LIST * n_lists)
    sample = points[rng.choice(len(points), n_sampled, replace=False)]
    centres = sample[:n_lists].copy()
    for _ in range(KMEANS_STEPS):
        member_of = find_nearest_rows(sample, centres, 1)[:, 0]
        order = np.argsort(member_of, kind="stable")
        filled, begin, sizes = np.unique(member_of[order], return_index=True, return_counts=True)
        centres[filled] = np.add.reduceat(sample[order], begin, axis=0) / sizes[:, None].astype(np.float32)
    return centres


# --- Projection on the principal directions: near points stay near, and few others become so.

# On MNIST (784 columns) 64 keep the true neighbours among three times as many candidates; a wider table
# costs more products than the candidates it saves.
MAX_PROJECTED_COLUMNS = 64
ROWS_TO_FIT = 8192  # more rows do not change the directions much
PROJECTED_ROWS_PER_TASK = 1024


def main_directions(cloud: Cloud, rng: np.random.Generator) -> Array | None:
    """Principal directions of a sample as rows (64 x p); None for points of at most 64 columns."""
    n_points, n_columns = cloud.points.shape
    if n_columns <= MAX_PROJECTED_COLUMNS:
        return None
    sample = cloud.single(rng.choice(n_points, min(n_points, ROWS_TO_FIT), replace=False))
    sample -= sample.mean(axis=0)
    return np.ascontiguousarray(np.linalg.eigh(sample.T @ sample)[1][:, : -MAX_PROJECTED_COLUMNS - 1 : -1].T)


def project(cloud: Cloud, directions: Array | None) -> Array:
    """Project points (N x p) on the directions, if any, in float32; the bits of a row depend on it alone."""
    width = cloud.points.shape[1] if directions is None else len(directions)
    near = np.empty((len(cloud.points), width), dtype=np.float32)

    def work(start: int) -> None:
        rows = slice(start, start + PROJECTED_ROWS_PER_TASK)
        plain = cloud.single(rows)
        near[rows] = plain if directions is None else multiply_by_rows(plain, directions)[:, :width]

    side_by_side(work, [(start,) for start in range(0, len(near), PROJECTED_ROWS_PER_TASK)])
    return near


# --- The search: tuned on a sample of rows, measured on another, and kept as an index for new points.

# Rows whose true neighbours are computed: some tune the number of visits, others measure the recall (to about
# half a per cent). Two samples, or the measured recall would be biased.
ROWS_TO_TUNE = 200
RECALL_SAMPLE_ROWS = 400
# Candidates per neighbour where distances are those of projected points.
PROJECTED_CANDIDATES_PER_NEIGHBOUR = 3
# A search below its recall visits more lists and keeps more candidates; after so many rounds it is exact.
MAX_TUNING_ROUNDS = 5
# In units of the cloud. The squares of farther queries would leave the range of single precision, and their
# nearest points no longer depend on how far they are.
MAX_QUERY_DISTANCE = 1e6


@dataclass(frozen=True, eq=False)
class IVFIndex:
    """Tuned inverted lists. The bits of a query's neighbours do not depend on the other queries.

    Attributes
    ----------
    centre, unit, directions
        How points (n x p) become rows of few columns in single precision: see :class:`Cloud` and
        :func:`projected`.
    lists
        The training points, so projected.
    keys : array of shape (n_points,)
        Hashes of the projected points in the order of the lists, which find coinciding points.
    n_visits, n_kept
        Lists to visit, and candidates to keep, per query.
    """

    centre: Array
    unit: float
    directions: Array | None
    lists: InvertedLists
    keys: Array
    n_visits: int
    n_kept: int

    def of_rows(self, rows: Array) -> IVFIndex:
        """The index in which point i is numbered ``rows[i]``."""
        return replace(self, lists=replace(self.lists, order=rows[self.lists.order].astype(np.int32)))

    def with_more(self, points: Array, first: int) -> IVFIndex:
        """The index with further points (n x p), numbered from ``first`` on."""
        near = self._project(points)
        lists, place = self.lists.with_more(near, first)
        return replace(self, lists=lists, keys=np.concatenate([self.keys, place_hashes(near)])[place])

    def nearest(self, points: Array, queries: Array, k: int) -> tuple[Array, Array, Array]:
        """Find the training points nearest to each query.

        Parameters
        ----------
        points : array of shape (n_points, p)
            The training points.
        queries : array of shape (n, p)
        k : int

        Returns
        -------
        indices, distances : array of shape (n, k)
            Nearest first.
        twins : array of shape (n,)
            The training point that coincides with the query, or -1.
        """
        single = queries.astype(points.dtype, copy=False)
        near = self._project(single)
        if np.array_equal(single, queries):  # numbers of one width
            queries = single
        cloud = Cloud(points, self.centre, self.unit)
        no_point = np.full(len(near), -1, dtype=np.int32)
        candidates = self.lists.visit(near, no_point, self.n_visits, self.n_kept, multiply_by_rows)
        indices, distances = rank_candidates(cloud, queries, candidates, k)
        short = np.flatnonzero(indices[:, -1] < 0)
        if len(short):  # too few in all lists visited: visit all
            n_lists = len(self.lists.centres)
            candidates = self.lists.visit(
                near[short], no_point[short], n_lists, self.n_kept, multiply_by_rows
            )
            indices[short], distances[short] = rank_candidates(cloud, queries[short], candidates, k)
        twins = self._same_key(near)
        alike = np.flatnonzero(twins >= 0)
        twins[alike[(points[twins[alike]] != queries[alike]).any(axis=1)]] = -1
        return indices, distances, twins

    def _project(self, queries: Array) -> Array:
        with np.errstate(over="ignore"):  # at the limits of doubles nothing lies farther
            reach = np.abs(self.centre).max() + MAX_QUERY_DISTANCE * self.unit
        if len(queries) and max(-queries.min(), queries.max()) > reach:
            queries = np.clip(queries, -reach, reach).astype(queries.dtype, copy=False)
        return project(Cloud(queries, self.centre, self.unit), self.directions)

    def _same_key(self, near: Array) -> Array:
        """The first training point with the same hash as a query, or -1."""
        keys, rows = self._by_key
        query_keys = place_hashes(near)
        place = np.minimum(np.searchsorted(keys, query_keys), len(rows) - 1)
        return np.where(keys[place] == query_keys, rows[place], -1)

    @cached_property
    def _by_key(self) -> tuple[Array, Array]:
        place = np.lexsort((self.lists.order, self.keys))
        return self.keys[place], self.lists.order[place]


def search_ivf(points: Array, k: int, recall: float) -> tuple[Array, Array, Recall, IVFIndex] | None:
    """Find nearly all of the k others nearest to each point, the same for any number of threads.

    Parameters
    ----------
    points : array of shape (n_points, p)
    k : int
    recall : float
        The share of the true neighbours to find.

    Returns
    -------
    indices, distances : array of shape (n_points, k)
        Nearest first; the distances are exact.
    recall : Recall
        Measured on a sample.
    index : IVFIndex
        For new points.

    None is returned where an exact search would cost less.
    """
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    cloud = Cloud.around(points)
    sample = rng.choice(len(points), min(len(points), ROWS_TO_TUNE + RECALL_SAMPLE_ROWS), replace=False)
    # 1. True neighbours of two samples of rows: one tunes, the other measures.
    true_indices, true_distances = nearest_of_rows(cloud, sample, k)
    tuning = slice(ROWS_TO_TUNE)
    measuring = slice(ROWS_TO_TUNE, None)
    # 2. Project, and sort the points into lists.
    directions = main_directions(cloud, rng)
    near = project(cloud, directions)
    n_kept = k + SPARE_CANDIDATES if directions is None else PROJECTED_CANDIDATES_PER_NEIGHBOUR * k
    lists = InvertedLists.of(near, rng)
    every_row = np.arange(len(points), dtype=np.int32)
    # Only this part of the loss is left to unvisited lists: projection and chance take theirs.
    missed = (1 - recall) * (3 / 4 if directions is None else 1 / 2)
    for _ in range(MAX_TUNING_ROUNDS):
        # 3. Visit as many lists as the sample needs; exact distances rank the candidates.
        n_visits = lists.visits_for_recall(near, sample[tuning], true_indices[tuning], 1 - missed)
        if 2 * n_visits > len(lists.centres):
            return None
        candidates = lists.visit(near, every_row, n_visits, min(n_kept, len(points) - 1))
        indices, distances = rank_candidates(cloud, points, candidates, k)
        short = np.flatnonzero(indices[:, -1] < 0)
        if len(short):  # too few in all lists visited: look at all points
            indices[short], distances[short] = nearest_of_rows(cloud, short, k)
        # 4. Measure the recall: stop, or search more.
        measured = estimate_recall(distances[sample[measuring]], true_distances[measuring])
        if measured >= recall:
            keys = place_hashes(near)[lists.order]
            index = IVFIndex(cloud.centre, cloud.unit, directions, lists, keys, n_visits, n_kept)
            return indices, distances, measured, index
        missed = missed / 2
        n_kept = 2 * n_kept
    return None
