"""Fewer columns: the directions in which points differ most. Near points stay near; few others become so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels.threads import side_by_side
from spectrograd.points.search.blocks import COLUMNS, Cloud

Array = NDArray[Any]

# On MNIST (784 columns) 64 keep the true neighbours among three times as many candidates; a wider table
# costs more products than the candidates it saves.
MOST_COLUMNS = 64
ROWS_TO_FIT = 8192  # the directions need no more


def projected(cloud: Cloud, rng: np.random.Generator) -> Array:
    """The points (N x p) in at most 64 columns, single precision: as they are, or their first components."""
    n_points, n_columns = cloud.points.shape
    starts = range(0, n_points, COLUMNS)
    if n_columns <= MOST_COLUMNS:
        directions = None
    else:
        sample = cloud.single(rng.choice(n_points, min(n_points, ROWS_TO_FIT), replace=False))
        sample -= sample.mean(axis=0)
        directions = np.linalg.eigh(sample.T @ sample)[1][:, : -MOST_COLUMNS - 1 : -1]
    near = np.empty((n_points, min(n_columns, MOST_COLUMNS)), dtype=np.float32)

    def work(start: int) -> None:
        rows = slice(start, start + COLUMNS)
        near[rows] = cloud.single(rows) if directions is None else cloud.single(rows) @ directions

    side_by_side(work, [(start,) for start in starts])
    return near
