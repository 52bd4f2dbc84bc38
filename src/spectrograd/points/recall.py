"""How many of the true neighbours a search has found: measured on a sample of exact rows, never assumed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Recall

Array = NDArray[Any]

EXACT = Recall(1.0)


def measured_recall(found: Array, true: Array) -> Recall:
    """Recall of a search on a sample, from distances (n x k) it found and the true ones, nearest first.

    Neighbours count as found when they are as near as the k-th true one: among ties, any will do. A row is
    drawn as a whole, so the error is that of a mean over rows.

    Examples
    --------
    >>> float(measured_recall(np.array([[1.0, 2.0], [1.0, 4.0]]), np.array([[1.0, 2.0], [1.0, 3.0]])))
    0.75
    """
    share = (found <= true[:, -1:] * (1 + 1e-9)).mean(axis=1)  # the same sums may round differently
    error = share.std(ddof=1) / np.sqrt(len(share)) if len(share) > 1 else 0.0
    return Recall(share.mean(), error, len(share))
