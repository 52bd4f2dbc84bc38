"""Products of wide blocks by BLAS, in row chunks of fixed size.

From some 48 columns on BLAS is faster than kernels of our own (30,000 x 512, one thread: a Gram matrix .17 s
for .26, a general one .27 for .52, a combination .13 for .48). Its bits may follow the number of its own
threads and how it splits a product among them. So whoever calls these functions holds BLAS to one thread
(``system.one_thread``); our threads share the chunks, whose sums are added in order: the bits do
not depend on the number of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CHUNK = 2048  # rows; a multiple of it is cut the same way, wherever the cut begins
STRIP = 128  # columns of a symmetric product of two blocks that are formed together
IN_FLIGHT = 1 << 26  # bytes of the sums of chunks that wait to be added


def gram(
    U: np.ndarray, V: np.ndarray, metric: np.ndarray | None, symmetric: bool, threaded: bool
) -> np.ndarray:
    """``U' diag(metric) V`` in float64, whatever the blocks are.

    Chunks are made float64 before they are multiplied: the products of float32 numbers are then exact, and a
    sum is as good as that of the compiled kernel. Of a product that is ``symmetric`` only the upper half is
    formed, and mirrored.
    """
    square = U is V and (metric is None or bool((metric >= 0).all()))
    roots = np.sqrt(metric, dtype=np.float64) if square and metric is not None else None

    def products_of(first: int) -> np.ndarray:
        rows = slice(first, first + CHUNK)
        left = U[rows].astype(np.float64, copy=False)
        if square:  # a matrix times itself: BLAS forms one half (syrk)
            left = left if roots is None else roots[rows, None] * left
            return np.asarray(left.T @ left)
        right = V[rows].astype(np.float64, copy=False)
        if metric is not None:
            right = metric[rows, None] * right
        return _upper(left, right) if symmetric else np.asarray(left.T @ right)

    total = np.zeros((U.shape[1], V.shape[1]))
    for part in _by_chunks(products_of, len(U), max(1, IN_FLIGHT // max(1, total.nbytes)), threaded):
        total += part
    if symmetric and not square:
        lower = np.tril_indices(len(total), -1)
        total[lower] = total.T[lower]
    return total


def _upper(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left' right`` where a column is not above the diagonal only within its strip; zeros elsewhere."""
    out = np.zeros((left.shape[1], right.shape[1]))
    for start in range(0, out.shape[1], STRIP):
        end = min(start + STRIP, out.shape[1])
        out[:end, start:end] = left[:, :end].T @ right[:, start:end]
    return out


def combine(
    U: np.ndarray, C: np.ndarray, V: np.ndarray | None, E: np.ndarray | None, threaded: bool
) -> np.ndarray:
    """``U C + V E`` in the type of U; V and E may be None."""
    out = np.empty((len(U), C.shape[1]), U.dtype)

    def fill(first: int) -> None:
        rows = slice(first, first + CHUNK)
        np.matmul(U[rows], C, out=out[rows])
        if V is not None and E is not None:
            out[rows] += V[rows] @ E

    for _ in _by_chunks(fill, len(U), len(U), threaded):
        pass
    return out


def _by_chunks(work: Callable[[int], Any], n_rows: int, at_once: int, threaded: bool) -> Iterator[Any]:
    """Results for the first rows of all chunks, in order; so many are made before the next are begun."""
    firsts = range(0, n_rows, CHUNK)
    if not threaded:
        yield from map(work, firsts)
        return
    from spectrograd.kernels.jit import side_by_side

    for start in range(0, len(firsts), at_once):
        yield from side_by_side(work, [(first,) for first in firsts[start : start + at_once]])
