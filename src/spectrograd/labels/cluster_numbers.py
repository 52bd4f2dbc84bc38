"""Which cluster is number 0, 1, 2 ..."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROWS_AT_ONCE = 1 << 16  # temporaries of so many rows stay in the cache


def in_order(labels: Array, n_clusters: int) -> Array:
    """Clusters numbered as they first appear: a rounding error elsewhere must not permute them. -1 stays."""
    first = np.full(n_clusters + 1, len(labels))  # the last place is that of -1
    blocks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(labels), ROWS_AT_ONCE)]
    for block in reversed(blocks):
        own = labels[block]
        first[own[::-1]] = block.start + np.arange(len(own))[::-1]  # the last to be written is the first row
    number = np.append(np.argsort(np.argsort(first[:-1])), -1)
    numbered = np.empty(len(labels), np.int64)
    for block in blocks:
        numbered[block] = number[labels[block]]
    return numbered
