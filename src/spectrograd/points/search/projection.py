"""Fewer columns: the directions in which points differ most. Near points stay near; few others become so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels.threads import side_by_side
from spectrograd.points.search.blocks import Cloud, row_by_row

Array = NDArray[Any]

# On MNIST (784 columns) 64 keep the true neighbours among three times as many candidates; a wider table
# costs more products than the candidates it saves.
MOST_COLUMNS = 64
ROWS_TO_FIT = 8192  # the directions need no more
TOGETHER = 1024  # rows per turn of a thread


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
        rows = slice(start, start + TOGETHER)
        plain = cloud.single(rows)
        near[rows] = plain if directions is None else row_by_row(plain, directions)[:, :width]

    side_by_side(work, [(start,) for start in range(0, len(near), TOGETHER)])
    return near
