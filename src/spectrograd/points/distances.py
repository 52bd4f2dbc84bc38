"""Nearest rows by blocks of matrix products, and exact distances of their candidates.

Products in single precision choose a few candidates more than are needed; differences rank them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrograd.kernels.jit import share_rows, side_by_side
from spectrograd.typing import Array, Matrix

Multiply = Callable[[Array, Array], Array]

# Rows and columns of a block of products: 8 MB in single precision, which a cache still holds in part.
ROWS = 512
COLUMNS = 4096
# Candidates beyond k: neighbours whose order single precision may have changed.
SPARE_CANDIDATES = 5
EXPONENTS = (-1022, 1022)  # of powers of two whose inverses are doubles too
SMALLEST_UNIT = 1e-30  # for scaling in single precision


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points (N x p) with the centre and unit by which they are scaled for single precision.

    The ``unit`` is a power of two: multiplying by ``1 / unit`` is exact.
    """

    points: Array
    centre: Array
    unit: float

    @classmethod
    def around(cls, points: Array) -> Cloud:
        """Points with the centre and the unit of their bounding box."""
        lowest = points.min(axis=0).astype(np.float64)
        highest = points.max(axis=0).astype(np.float64)
        centre = lowest / 2 + highest / 2
        exponent = np.frexp((highest / 2 - lowest / 2).max())[1]  # 0 for points all in one place
        return cls(points, centre, float(np.ldexp(1.0, np.clip(exponent, *EXPONENTS))))

    def single(self, rows: Matrix) -> Array:
        """The chosen rows in single precision, centred and scaled."""
        scale = 1 / self.unit
        narrow = self.points.dtype == np.float32 and SMALLEST_UNIT < self.unit < 1 / SMALLEST_UNIT
        number: Any = np.float32 if narrow else np.float64  # points already single need no detour
        scaled = np.multiply(self.points[rows], number(scale), dtype=number)
        scaled -= (self.centre * scale).astype(number)
        return np.asarray(scaled, dtype=np.float32)


def squares(rows: Array) -> Array:
    """Squared lengths of rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def multiply_by_blas(rows: Array, others: Array) -> Array:
    """``rows @ others.T`` by BLAS; the last bits of a row depend on the number of rows."""
    return np.asarray(rows @ others.T)


def multiply_by_rows(rows: Array, others: Array) -> Array:
    """``rows @ others.T``, padded by zero columns; the bits of a row do not depend on the other rows."""
    from spectrograd.kernels.multivector import STRIP, row_products

    n_columns = -(-len(others) // STRIP) * STRIP
    table = np.zeros((others.shape[1], n_columns), dtype=np.float32)
    table[:, : len(others)] = others.T
    products = np.empty((len(rows), n_columns), dtype=np.float32)
    row_products(np.ascontiguousarray(rows), table, products)
    return products


def find_nearest_rows(
    queries: Array, base: Array, n_kept: int, multiply: Multiply = multiply_by_blas
) -> Array:
    """Find the rows of ``base`` nearest to each query.

    Parameters
    ----------
    queries : array of shape (n_queries, p), float32
    base : array of shape (n_rows, p), float32
    n_kept : int
    multiply : callable
        The product of two blocks.

    Returns
    -------
    int32 array of shape (n_queries, n_kept)
        Row numbers, nearest first.
    """
    from spectrograd.kernels.nearest import keep_closest

    gaps, nearest = allocate_candidates(len(queries), n_kept)
    query_terms = squares(queries)
    base_terms = squares(base)
    ids = np.arange(len(base), dtype=np.int32)
    no_point = np.full(ROWS, -1, dtype=np.int32)

    def work(start: int) -> None:
        block = queries[start : start + ROWS]
        rows = np.arange(start, start + len(block), dtype=np.int32)
        for at in range(0, len(base), COLUMNS):
            there = slice(at, at + COLUMNS)
            keep_closest(
                multiply(block, base[there]),
                query_terms[rows],
                base_terms[there],
                ids[there],
                rows,
                no_point,
                gaps,
                nearest,
            )

    side_by_side(work, [(start,) for start in range(0, len(queries), ROWS)])
    return nearest


def allocate_candidates(n_rows: int, n_kept: int) -> tuple[Array, Array]:
    """Empty distances (infinity) and row numbers (-1) of candidates, which ``keep_closest`` fills."""
    return np.full((n_rows, n_kept), np.inf, dtype=np.float32), np.full((n_rows, n_kept), -1, dtype=np.int32)


def nearest_of_rows(cloud: Cloud, query_rows: Array, k: int) -> tuple[Array, Array]:
    """Find the exact neighbours of some of the points by comparing them with all: indices, distances (n x k).

    Each share of the points yields a few candidates more than k, so that rounding loses none before the
    distances are computed again from differences.
    """
    from spectrograd.kernels.nearest import keep_closest

    queries = cloud.single(query_rows)
    own = query_rows.astype(np.int32)
    terms = squares(queries)
    rows = np.arange(len(own), dtype=np.int32)
    n_points = len(cloud.points)

    def work(first: int, last: int) -> Array:
        gaps, nearest = allocate_candidates(len(own), k + SPARE_CANDIDATES)
        for at in range(first, last, COLUMNS):
            there = np.arange(at, min(last, at + COLUMNS), dtype=np.int32)
            block = cloud.single(slice(at, at + len(there)))
            keep_closest(queries @ block.T, terms, squares(block), there, rows, own, gaps, nearest)
        return nearest

    share = max(COLUMNS, -(-n_points // 8))
    shares = [(start, min(n_points, start + share)) for start in range(0, n_points, share)]
    candidates = np.concatenate(side_by_side(work, shares), axis=1)
    return rank_candidates(cloud, cloud.points[own], candidates, k)


def rank_candidates(cloud: Cloud, queries: Array, candidates: Array, k: int) -> tuple[Array, Array]:
    """Rank candidates by exact distances: indices and distances (n x k), nearest first.

    Parameters
    ----------
    cloud : Cloud
    queries : array of shape (n, p)
    candidates : int32 array of shape (n, n_candidates)
        Row numbers of points; -1 for none.
    k : int
        Where there are fewer candidates, the indices end with -1 and the distances with infinity.
    """
    from spectrograd.kernels.nearest import candidate_gaps

    gaps = np.empty(candidates.shape)
    share_rows(candidate_gaps, len(candidates), cloud.points, cloud.unit, queries, candidates, gaps)
    order = np.argsort(gaps, axis=1, kind="stable")[:, :k]
    distances = cloud.unit * np.sqrt(np.take_along_axis(gaps, order, axis=1))
    return np.take_along_axis(candidates, order, axis=1), distances
