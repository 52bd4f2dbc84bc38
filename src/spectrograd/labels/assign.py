"""Rows of an embedding to clusters: k-means, pivoted QR, or rotation to a discrete partition."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.engines.base import Engine, MultiVector
from spectrograd.labels.cluster_qr import cluster_qr
from spectrograd.labels.kmeans import kmeans
from spectrograd.labels.kmeans import unit_rows as as_unit_rows
from spectrograd.labels.matching import in_order
from spectrograd.labels.sampled_kmeans import (
    MAX_COPIED_ROWS,
    ChunkedAssignment,
    SampledCentres,
    assign_in_chunks,
    membership,
    sample_rows,
)
from spectrograd.system import one_thread
from spectrograd.typing import Array

EXCLUDED = -1


@dataclass(frozen=True, eq=False)
class Clustering:
    """A partition of the nodes and how it was found.

    ``membership`` is the confidence in each label, 0 to 1 (:mod:`spectrograd.labels.sampled_kmeans`; NaN for
    rows excluded, None where it was not measured). ``inertia`` is the sum of squared distances to the centres
    for k-means, None for the other methods.
    """

    labels: Array
    n_clusters: int
    method: str
    inertia: float | None
    seconds: float
    membership: Array | None = None


def assign(
    vectors: ArrayLike,
    n_clusters: int,
    *,
    method: str = "kmeans",
    n_init: int = 10,
    unit_rows: bool = False,
    norm_regularization: float = 0.0,
    excluded: ArrayLike = (),
    random_state: int | np.random.Generator | None = None,
    deadline: float = math.inf,
    start: Array | None = None,
) -> Clustering:
    """Cluster the rows of an embedding.

    Parameters
    ----------
    vectors
        N x K embedding; rows are nodes.
    n_clusters
        Number of clusters; ``cluster_qr`` needs at least as many columns, ``discretize`` exactly as many.
    method
        ``"kmeans"`` (a start from ``cluster_qr`` that is then improved), ``"cluster_qr"`` (Damle, Minden
        and Ying, arXiv 1609.08251: no iteration, no randomness) or ``"discretize"`` (Yu and Shi, 2003).
    n_init
        Most runs of k-means: one from ``cluster_qr``, then from the best centres with some added and as many
        taken away, until neither many nor few help. With 1, a single run from k-means++. Where there are many
        rows this happens on a sample of them; a last run on all rows begins from the best centres. With more
        than a million unit rows that run is on a sample too, and all rows are looked at once.
    unit_rows
        Scale rows to unit length first; zero rows stay zero.
    norm_regularization
        With ``unit_rows``, divide by ``sqrt(|row|^2 + norm_regularization median|row|^2)`` instead: rows much
        shorter than the median, which are mostly noise, stay short.
    excluded
        Row numbers that take no part; their label is -1.
    random_state
        Seed; the same seed gives the same labels.
    deadline
        A moment of ``time.perf_counter`` after which k-means begins no other run.
    start
        Labels of all rows that are nearly right; k-means begins with them and seeks no others. Not for more
        than a million unit rows.

    Examples
    --------
    >>> clustering = assign([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], 2, method="cluster_qr")
    >>> bool(clustering.labels[0] == clustering.labels[1] != clustering.labels[2])
    True
    """
    started = time.perf_counter()
    everything = np.asarray(vectors)
    out = np.asarray(excluded, dtype=np.int64)
    rng = np.random.default_rng(random_state)
    inertia: float | None
    if method == "kmeans" and unit_rows and len(everything) > MAX_COPIED_ROWS:
        rows = _check_rows(everything, n_clusters)
        all_labels, sure, inertia = assign_in_chunks(
            rows, out, n_clusters, n_init, rng, norm_regularization, deadline
        )
    else:
        part = np.delete(np.arange(len(everything)), out) if len(out) else slice(None)
        rows = _check_rows(everything[part], n_clusters)
        if unit_rows:
            rows = as_unit_rows(rows, norm_regularization)
        near = None if start is None else start[part]
        labels, inertia = _labels(
            rows, n_clusters, method, n_init, rng, near, centred=unit_rows, deadline=deadline
        )
        all_labels = np.full(len(everything), EXCLUDED, dtype=np.int64)
        all_labels[part] = labels
        sure = np.full(len(everything), np.nan, dtype=np.float32)
        sure[part] = membership(rows, labels, n_clusters)
    all_labels.flags.writeable = False
    return Clustering(all_labels, n_clusters, method, inertia, time.perf_counter() - started, sure)


def _labels(
    rows: Array,
    n_clusters: int,
    method: str,
    n_init: int,
    rng: np.random.Generator,
    start: Array | None,
    *,
    centred: bool,
    deadline: float,
) -> tuple[Array, float | None]:
    """The cluster of each row (n, k), and the sum of squares where the method has one."""
    if method == "kmeans":
        return _kmeans(rows, n_clusters, n_init, rng, start, centred, deadline)
    if method == "cluster_qr":
        return _cluster_qr(rows, n_clusters), None
    if method == "discretize":
        return _discretize(rows, n_clusters, rng), None
    raise ValueError(f"unknown method {method!r}; choose one of kmeans, cluster_qr, discretize")


def _check_rows(vectors: ArrayLike, n_clusters: int) -> Array:
    rows = np.ascontiguousarray(vectors)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"the embedding has shape {rows.shape}; one row of coordinates per node is needed")
    if not 1 <= n_clusters <= len(rows):
        raise ValueError(f"n_clusters is {n_clusters}; with {len(rows)} rows it must be in 1..{len(rows)}")
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum(dtype=np.float64)
    if not np.isfinite(total):  # or too large a sum of finite numbers
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} rows of the embedding are not finite (first: row {int(np.argmax(bad))})"
            )
    return rows


def _kmeans(
    rows: Array,
    n_clusters: int,
    n_init: int,
    rng: np.random.Generator,
    start: Array | None,
    centred: bool,
    deadline: float,
) -> tuple[Array, float]:
    if n_init < 1:
        raise ValueError(f"n_init is {n_init}; k-means needs at least one start")
    # Far from zero the expanded squares would lose digits.
    origin = 0.0 if centred else rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    with one_thread():
        near_zero = rows if centred else rows - origin
        labels, inertia = kmeans(near_zero, n_clusters, n_init, rng, origin, deadline=deadline, start=start)
    return in_order(labels, n_clusters), inertia


def _cluster_qr(rows: Array, n_clusters: int) -> Array:
    if rows.shape[1] < n_clusters:
        raise ValueError(
            f"cluster_qr needs at least one column per cluster: "
            f"{rows.shape[1]} columns, {n_clusters} clusters"
        )
    return cluster_qr(rows, n_clusters)[0]


def _discretize(
    rows: Array, n_clusters: int, rng: np.random.Generator, n_starts: int = 10, max_iter: int = 50
) -> Array:
    """Rotate the unit rows until each is close to an axis (Yu and Shi, 2003); the best of some starts."""
    if rows.shape[1] != n_clusters:
        raise ValueError(
            f"discretize needs one column per cluster: {rows.shape[1]} columns, {n_clusters} clusters"
        )
    rows = as_unit_rows(rows.astype(np.float64))
    best = np.zeros(len(rows), dtype=np.int64)
    best_fit = -np.inf
    for _ in range(n_starts):
        # alternate: labels by the largest coordinate, then the rotation that fits them best (Yu and Shi 2003)
        rotation = _spread_rows(rows, rng)
        fit = -np.inf
        for _ in range(max_iter):
            labels = np.argmax(rows @ rotation, axis=1)
            # (n_columns, n_clusters): its polar factor is the rotation
            overlap = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
            left, singular, right = np.linalg.svd(overlap)
            gain = singular.sum() - fit
            fit = singular.sum()
            if gain <= 1e-12 * max(fit, 1.0):
                break
            rotation = (left @ right).T
        if fit > best_fit:
            best = labels
            best_fit = fit
    return best


def _spread_rows(rows: Array, rng: np.random.Generator) -> Array:
    """Choose rows, one per column, each as orthogonal as possible to those before."""
    n_columns = rows.shape[1]
    chosen = np.empty((n_columns, n_columns))
    chosen[0] = rows[rng.integers(len(rows))]
    covered = np.zeros(len(rows))
    for column in range(1, n_columns):
        covered += np.abs(rows @ chosen[column - 1])
        chosen[column] = rows[np.argmin(covered)]
    return chosen.T


# --- Clusters of rows that stay where an engine has them: a sample of them comes to the host, and the labels.


def assign_distributed(
    engine: Engine,
    X: MultiVector,
    order: Array | None,
    n_clusters: int,
    *,
    n_init: int,
    norm_regularization: float,
    excluded: Array,
    random_state: int | np.random.Generator | None,
    deadline: float = math.inf,
) -> tuple[Clustering, MultiVector]:
    """k-means of rows of unit length, as :func:`~spectrograd.labels.assign` does it with very many rows.

    The rows of X (N x K) have the numbers ``order`` in the result (None: as they are) and in ``excluded``.
    The labels come back in the order of the result, and as a multivector (N x 1) in that of X.

    Parameters
    ----------
    engine
        Where X lives.
    X
        Multivector N x K.
    order : array of shape (N,) or None
        The number that each row of X has in the result; None: its own.
    n_clusters, n_init, norm_regularization, random_state, deadline
        As of :func:`~spectrograd.labels.assign`.
    excluded : array of int
        Numbers, in the result, of rows that take no part.
    """
    started = time.perf_counter()
    n = X.shape[0]
    rng = np.random.default_rng(random_state)
    if not 1 <= n_clusters <= n:
        raise ValueError(f"n_clusters is {n_clusters}; with {n} rows it must be in 1..{n}")
    if not engine.column_statistics(X).finite:
        raise ValueError("the embedding is not finite")
    places = np.arange(n) if order is None else np.asarray(order, np.int64)
    active = np.ones(n, np.int8)
    active[excluded] = 0
    row_of = np.empty_like(places)
    row_of[places] = np.arange(n)
    # 1. centres from a sample of the rows, which comes to the host
    few = engine.to_numpy(X, row_of[sample_rows(active > 0, n_clusters, rng)])
    centres = SampledCentres.fit(few, n_clusters, n_init, rng, norm_regularization, deadline)
    # 2. every row to its nearest centre, where it is
    where = engine.from_numpy(np.column_stack([places, active[places]]))
    seen = engine.map_blocks(partial(_assign_block, centres), X, where)
    # 3. clusters numbered as they first appear in the result's order
    sums = engine.gather_blocks(partial(_first_places, n_clusters, n), seen, where)
    first = np.min([part[0] for part in sums], axis=0)
    inertia = sum(part[1] for part in sums)
    number = np.append(np.argsort(np.argsort(first[:-1])), -1)
    found = engine.map_blocks(partial(_renumber_block, number), seen)
    labels = np.empty(n, np.int64)
    sure = np.empty(n, np.float32)
    # 4. labels and confidence come to the host
    labels[places] = engine.to_numpy(found)[:, 0]
    sure[places] = engine.to_numpy(engine.columns(seen, slice(1, 2)))[:, 0]
    labels.flags.writeable = False
    spent = time.perf_counter() - started
    return Clustering(labels, n_clusters, "kmeans", inertia, spent, sure), found


def _assign_block(centres: SampledCentres, start: int, rows: Array, where: Array) -> Array:
    """Cluster (-1 where a row takes no part), confidence, and the share of a row in the sum of squares."""
    found: ChunkedAssignment = centres.assign_rows(rows, where[:, 1] > 0)
    share = found.inertia / max(1, len(rows))
    return np.column_stack([found.labels, found.membership, np.full(len(rows), share)])


def _first_places(n_clusters: int, n: int, start: int, seen: Array, where: Array) -> tuple[Array, float]:
    """The first row of each cluster (the last place is that of -1), and the sum of squares."""
    first = np.full(n_clusters + 1, n)
    np.minimum.at(first, seen[:, 0].astype(np.int64), where[:, 0])
    return first, float(seen[:, 2].sum())


def _renumber_block(number: Array, start: int, seen: Array) -> Array:
    return np.asarray(number[seen[:, 0].astype(np.int64)][:, None])
