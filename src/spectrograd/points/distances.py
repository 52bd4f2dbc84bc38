"""Distances by blocks of products: all pairs of two sets, and exact ones for a few candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrograd.kernels.jit import share_rows, side_by_side
from spectrograd.typing import Array

Multiply = Callable[[Array, Array], Array]

# Rows and columns of a block of products: 8 MB in single precision, which a cache still holds in part.
ROWS, COLUMNS = 512, 4096
# Candidates beyond the k that are wanted: neighbours whose order single precision may have changed.
SPARE = 5
# Powers of two whose inverses are doubles too, and the least unit that single precision has to spare.
EXPONENTS, SMALLEST_UNIT = (-1022, 1022), 1e-30


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points (N x p), and how to bring them near the origin and to unit size for single precision.

    The ``unit`` is a power of two: to multiply by ``1 / unit`` is exact, and quicker than to divide.
    """

    points: Array
    centre: Array
    unit: float

    @classmethod
    def around(cls, points: Array) -> Cloud:
        """Centre and unit of some points."""
        lowest, highest = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
        centre = lowest / 2 + highest / 2
        exponent = np.frexp((highest / 2 - lowest / 2).max())[1]  # 0 for points all in one place
        return cls(points, centre, float(np.ldexp(1.0, np.clip(exponent, *EXPONENTS))))

    def single(self, rows: Any) -> Array:
        """These rows in single precision, centred and scaled."""
        scale = 1 / self.unit
        narrow = self.points.dtype == np.float32 and SMALLEST_UNIT < self.unit < 1 / SMALLEST_UNIT
        number: Any = np.float32 if narrow else np.float64  # points already single need no detour
        scaled = np.multiply(self.points[rows], number(scale), dtype=number)
        scaled -= (self.centre * scale).astype(number)
        return np.asarray(scaled, dtype=np.float32)


def squares(rows: Array) -> Array:
    """Squared lengths of rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def by_blas(rows: Array, others: Array) -> Array:
    """``rows @ others.T``, quickest; the last digits of a row depend on how many rows there are."""
    return np.asarray(rows @ others.T)


def row_by_row(rows: Array, others: Array) -> Array:
    """``rows @ others.T``, each row to the last bit as if it were alone; padded by columns of zeros."""
    from spectrograd.kernels.multivector import STRIP, row_products

    n_columns = -(-len(others) // STRIP) * STRIP
    table = np.zeros((others.shape[1], n_columns), dtype=np.float32)
    table[:, : len(others)] = others.T
    products = np.empty((len(rows), n_columns), dtype=np.float32)
    row_products(np.ascontiguousarray(rows), table, products)
    return products


def closest(queries: Array, base: Array, n_kept: int, multiply: Multiply = by_blas) -> Array:
    """Row numbers of the ``n_kept`` rows of ``base`` nearest to each query, nearest first (int32)."""
    from spectrograd.kernels.nearest import keep_closest

    gaps, found = nothing_yet(len(queries), n_kept)
    query_terms, base_terms = squares(queries), squares(base)
    ids, nobody = np.arange(len(base), dtype=np.int32), np.full(ROWS, -1, dtype=np.int32)

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
                nobody,
                gaps,
                found,
            )

    side_by_side(work, [(start,) for start in range(0, len(queries), ROWS)])
    return found


def nothing_yet(n_rows: int, n_kept: int) -> tuple[Array, Array]:
    """Distances and row numbers of neighbours not yet found, for ``keep_closest`` to fill."""
    return np.full((n_rows, n_kept), np.inf, dtype=np.float32), np.full((n_rows, n_kept), -1, dtype=np.int32)


def nearest_of_rows(cloud: Cloud, asking: Array, k: int) -> tuple[Array, Array]:
    """Exact neighbours of some of the points: indices and distances (n x k), by comparing them with all.

    Each share of the points yields a few more than k, so that rounding loses none before the distances
    are measured again by differences.
    """
    from spectrograd.kernels.nearest import keep_closest

    queries, asking = cloud.single(asking), asking.astype(np.int32)
    terms, rows = squares(queries), np.arange(len(asking), dtype=np.int32)
    n_points = len(cloud.points)

    def work(first: int, last: int) -> Array:
        gaps, found = nothing_yet(len(asking), k + SPARE)
        for at in range(first, last, COLUMNS):
            there = np.arange(at, min(last, at + COLUMNS), dtype=np.int32)
            block = cloud.single(slice(at, at + len(there)))
            keep_closest(queries @ block.T, terms, squares(block), there, rows, asking, gaps, found)
        return found

    share = max(COLUMNS, -(-n_points // 8))
    shares = [(start, min(n_points, start + share)) for start in range(0, n_points, share)]
    candidates = np.concatenate(side_by_side(work, shares), axis=1)
    return ranked(cloud, cloud.points[asking], candidates, k)


def ranked(cloud: Cloud, asked: Array, candidates: Array, k: int) -> tuple[Array, Array]:
    """The k candidates nearest to each asked row by exact distances: indices and distances, nearest first.

    Where there are fewer than k, the indices end with -1 and the distances with infinity.
    """
    from spectrograd.kernels.nearest import candidate_gaps

    gaps = np.empty(candidates.shape)
    share_rows(candidate_gaps, len(candidates), cloud.points, cloud.unit, asked, candidates, gaps)
    order = np.argsort(gaps, axis=1, kind="stable")[:, :k]
    distances = cloud.unit * np.sqrt(np.take_along_axis(gaps, order, axis=1))
    return np.take_along_axis(candidates, order, axis=1), distances
