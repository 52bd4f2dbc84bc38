"""Gaussian numbers by row: the same for any engine and any cut into blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CHUNK = 4096  # rows of one generator: 20 microseconds to make it, against 100 for its numbers


def gaussian_rows(start: int, stop: int, n_columns: int, seed: int, dtype: DTypeLike) -> NDArray[Any]:
    """Rows start .. stop of a tall of standard normal numbers, (stop - start) x n_columns.

    Each chunk of 4,096 rows has a generator of its own, keyed by the seed and the number of the chunk.

    Examples
    --------
    >>> whole = gaussian_rows(0, 6000, 2, 7, np.float64)
    >>> bool((gaussian_rows(4000, 4500, 2, 7, np.float64) == whole[4000:4500]).all())
    True
    """
    out = np.empty((stop - start, n_columns), dtype)
    for chunk in range(start // CHUNK, -(-stop // CHUNK)):
        first = chunk * CHUNK
        last = min(first + CHUNK, stop)  # numbers are drawn row by row: later rows need not be drawn
        drawn = np.random.default_rng((seed, chunk)).standard_normal((last - first, n_columns), out.dtype)
        low = max(start, first)
        out[low - start : last - start] = drawn[low - first :]
    return out


def new_seed(rng: np.random.Generator) -> int:
    """A seed for :func:`gaussian_rows` from a generator, which moves on."""
    return int(rng.integers(2**62))
