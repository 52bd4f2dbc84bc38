"""Metrics under scikit-learn's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]
Metric = str | Callable[[Any, Any], float]

EUCLIDEAN = ("euclidean", "l2", "minkowski")
# scikit-learn's other metrics that need no parameters; they are searched exactly.
OTHERS = (
    "manhattan",
    "l1",
    "cityblock",
    "chebyshev",
    "canberra",
    "braycurtis",
    "correlation",
    "hamming",
    "jaccard",
    "haversine",
)
METRICS = (*EUCLIDEAN, "cosine", *OTHERS)


def check_metric(metric: Metric) -> None:
    """Refuse a name that stands for no metric here."""
    if not callable(metric) and metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}, or a function")


def in_metric(points: Any, metric: Metric) -> tuple[Any, Metric, Callable[[Array], Array]]:
    """Points and metric to search with, and how the distances found become those that were asked for.

    Cosine distances of rows are half the squared Euclidean ones of rows of length one.
    """
    if metric in EUCLIDEAN:
        return points, "euclidean", lambda distances: distances
    if metric == "cosine":
        return _unit_rows(points), "euclidean", lambda distances: distances**2 / 2
    return points, metric, lambda distances: distances


def _unit_rows(points: Any) -> Any:
    from sklearn.preprocessing import normalize

    # Lengths of rows near the limits of their type must not overflow: largest entries first.
    largest = abs(points).max(axis=1)
    largest = np.asarray(largest.todense() if sp.issparse(largest) else largest).ravel()
    if not largest.all():
        row = int(np.argmin(largest != 0))
        raise ValueError(
            f"row {row} of the points is zero and has no direction; drop it, or metric='euclidean'"
        )
    scaled = sp.diags_array(1 / largest) @ points if sp.issparse(points) else points / largest[:, None]
    return normalize(scaled, copy=False)
