"""Checks of points and metrics, and groups of points that coincide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from spectrograd.graph.validation import check_structure
from spectrograd.typing import Array, Matrix

# The columns of largest variance over a sample of rows distinguish nearly all points.
SAMPLED_ROWS = 1000
SAMPLED_COLUMNS = 8
# Types in which points are kept as given: integers held by single precision take half the space of doubles.
POINT_TYPES = (np.float64, np.float32, np.uint8, np.int8, np.uint16, np.int16)
VALUES_PER_CHUNK = 1 << 22  # coordinates processed together, so that temporaries stay small


def check_points(points: ArrayLike, n_neighbors: int) -> Matrix:
    """Check points and return them as finite coordinates, without a copy where the form is right.

    Parameters
    ----------
    points : array-like or sparse array of shape (n_points, n_features)
        A 1-D array is one column.
    n_neighbors : int
        At least 1, and fewer than there are points.

    Returns
    -------
    array or sparse array of shape (n_points, n_features)
        float32 where that type holds the input exactly, else float64.
    """
    coordinates: Matrix = points if sp.issparse(points) else np.asarray(points)
    if coordinates.dtype.kind not in "biuf":
        raise ValueError(f"points have type {coordinates.dtype}; numbers are needed")
    if coordinates.ndim == 1:
        coordinates = coordinates[:, None]
    if coordinates.ndim != 2 or coordinates.shape[1] == 0:
        raise ValueError(f"points have shape {coordinates.shape}; one row of coordinates per point is needed")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors}; it must be at least 1")
    others = coordinates.shape[0] - 1
    if n_neighbors > others:
        raise ValueError(f"n_neighbors is {n_neighbors}, but a point has only {others} others to choose from")
    if sp.issparse(coordinates):
        check_structure(coordinates)
        return _check_finite_sparse(sp.csr_array(coordinates.astype(np.float64)))
    may_be_infinite = coordinates.dtype.kind == "f"
    is_single = np.can_cast(coordinates.dtype, np.float32)
    coordinates = np.ascontiguousarray(coordinates, dtype=np.float32 if is_single else np.float64)
    if may_be_infinite:
        _refuse_infinite(coordinates)
    return coordinates


def single_where_exact(points: Array) -> Array:
    """Points in single precision where that holds every number exactly (counts, grey levels)."""
    if points.dtype != np.float64:
        return points
    sample = points[:: max(1, len(points) // SAMPLED_ROWS)]
    with np.errstate(over="ignore"):
        exact = all(
            (block.astype(np.float32) == block).all() for part in (sample, points) for block in _blocks(part)
        )
    return points.astype(np.float32) if exact else points


def _refuse_infinite(points: Array) -> None:
    bad = np.concatenate([~np.isfinite(block).all(axis=1) for block in _blocks(points)])
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} points are not finite (first in row {int(np.argmax(bad))}); drop or fill them"
        )


def _check_finite_sparse(points: sp.csr_array) -> sp.csr_array:
    bad = ~np.isfinite(points.data)
    if bad.any():
        row = int(np.searchsorted(points.indptr, np.argmax(bad), side="right")) - 1
        raise ValueError(f"points are not finite (first in row {row}); drop or fill them")
    return points


def crowded_places(points: Array, k: int) -> list[Array]:
    """Return, for each place that holds more than k points, the row numbers of these points."""
    # 1. Candidates: rows that agree in the columns of largest variance.
    with np.errstate(over="ignore", invalid="ignore"):  # of huge numbers any order will do
        spread = points[:: max(1, len(points) // SAMPLED_ROWS)].std(axis=0)
    columns = np.argsort(spread, kind="stable")[-SAMPLED_COLUMNS:]
    candidates = _group_by_hash(points[:, columns], np.arange(len(points)), k)
    # 2. Of these, rows that agree in all columns.
    groups = _group_by_hash(points, np.sort(np.concatenate(candidates)), k) if candidates else []
    # 3. Exclude collisions of the hash.
    same = (group[(points[group] == points[group[0]]).all(axis=1)] for group in groups)
    return [group for group in same if len(group) > k]


def _group_by_hash(points: Array, rows: Array, k: int) -> list[Array]:
    """Return the groups of more than k rows with one hash, each in the order of the rows."""
    step = max(1, VALUES_PER_CHUNK // points.shape[1])
    keys = [place_hashes(points[rows[start : start + step]]) for start in range(0, len(rows), step)]
    _, place, count = np.unique(np.concatenate(keys), return_inverse=True, return_counts=True)
    often = np.flatnonzero(count > k)
    if not len(often):
        return []
    order = np.argsort(place, kind="stable")
    begin = np.concatenate([[0], np.cumsum(count)])
    return [rows[order[begin[at] : begin[at + 1]]] for at in often]


def place_hashes(rows: Array) -> Array:
    """Hash each row (n_rows, n_features) to 64 bits; equal points have equal hashes."""
    bits = (rows + 0.0).view(
        np.uint32 if rows.dtype == np.float32 else np.uint64
    )  # -0.0 and 0.0 are one place
    factors = (
        np.random.default_rng(0).integers(2**64, size=rows.shape[1], dtype=np.uint64, endpoint=False) | 1
    )
    mixed = (bits.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * factors
    return np.asarray((mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64))


def _blocks(points: Array) -> Iterator[Array]:
    rows = max(1, VALUES_PER_CHUNK // points.shape[1])
    return (points[start : start + rows] for start in range(0, len(points), rows))


# --- Metrics: those of scikit-learn, under its names.

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
    """Refuse a metric that is neither a known name nor a function."""
    if not callable(metric) and metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}, or a function")


def in_metric(points: object, metric: Metric) -> tuple[Matrix, Metric, Callable[[Array], Array]]:
    """Reduce a metric to the one that is searched: points, its name, and the map of distances back.

    The cosine distance of two rows is half the squared Euclidean distance of the rows scaled to unit norm.
    """
    if metric in EUCLIDEAN:
        return points, "euclidean", lambda distances: distances
    if metric == "cosine":
        return _unit_rows(points), "euclidean", lambda distances: distances**2 / 2
    return points, metric, lambda distances: distances


def _unit_rows(points: Matrix) -> Matrix:
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
