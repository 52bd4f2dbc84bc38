"""Rows of an embedding to clusters: k-means, pivoted QR, or rotation to a discrete partition."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spectrograd.engines.threadpools import one_thread
from spectrograd.lloyd import lloyd

Array = NDArray[Any]
WORTH_THREADS = 1_000_000  # numbers in the embedding
# Rows that starts of k-means are compared on; more rows make a start dearer, not better.
SAMPLE, SAMPLE_PER_CLUSTER = 4000, 200
CHEAP = 1000  # rows for which all starts are made
AGREE = 1e-4  # starts whose inertia differs by less found the same clusters
ROUNDING = 1e-9
POLISH = 10  # Lloyd steps on all rows after the sample has done the work
SET_ASIDE = -1
FEW_ROWS = 2_000  # clustered before scikit-learn would be loaded


@dataclass(frozen=True, eq=False)
class Clustering:
    """A partition of the nodes and how it was found.

    ``inertia`` is the sum of squared distances to the centres for k-means, None for the other methods.
    """

    labels: Array
    n_clusters: int
    method: str
    inertia: float | None
    seconds: float


def assign(
    vectors: ArrayLike,
    n_clusters: int,
    *,
    method: str = "kmeans",
    n_init: int = 10,
    unit_rows: bool = False,
    softness: float = 0.0,
    aside: ArrayLike = (),
    random_state: int | np.random.Generator | None = None,
) -> Clustering:
    """Cluster the rows of an embedding.

    Parameters
    ----------
    vectors
        N x K embedding; rows are nodes.
    n_clusters
        Number of clusters; ``cluster_qr`` needs at least as many columns, ``discretize`` exactly as many.
    method
        ``"kmeans"`` (one start from ``cluster_qr``, the others k-means++), ``"cluster_qr"`` (Damle, Minden
        and Ying, arXiv 1609.08251: no iteration, no randomness) or ``"discretize"`` (Yu and Shi, 2003).
    n_init
        Most starts of k-means. Beyond 1,000 rows they end when two agree on the best inertia, and run on a
        sample of the rows where there are many; a last run on all rows begins from the best centres.
    unit_rows
        Scale rows to unit length first; zero rows stay zero.
    softness
        With ``unit_rows``, divide by ``sqrt(|row|^2 + softness median|row|^2)`` instead: rows much shorter
        than the median, which are mostly noise, stay short.
    aside
        Row numbers that take no part; their label is -1.
    random_state
        Seed; the same seed gives the same labels.

    Examples
    --------
    >>> clustering = assign([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], 2, method="cluster_qr")
    >>> bool(clustering.labels[0] == clustering.labels[1] != clustering.labels[2])
    True
    """
    started = time.perf_counter()
    everything = np.asarray(vectors)
    part = np.delete(np.arange(len(everything)), np.asarray(aside, dtype=np.int64))
    rows = _checked_rows(everything[part] if len(part) < len(everything) else everything, n_clusters)
    if unit_rows:
        rows = _unit_rows(rows, softness)
    rng = np.random.default_rng(random_state)
    inertia = None
    if method == "kmeans":
        labels, inertia = _kmeans(rows, n_clusters, n_init, rng)
    elif method == "cluster_qr":
        labels = _cluster_qr(rows, n_clusters)
    elif method == "discretize":
        labels = _discretize(rows, n_clusters, rng)
    else:
        raise ValueError(f"unknown method {method!r}; choose one of kmeans, cluster_qr, discretize")
    all_labels = np.full(len(everything), SET_ASIDE, dtype=np.int64)
    all_labels[part] = labels
    all_labels.flags.writeable = False
    return Clustering(all_labels, n_clusters, method, inertia, time.perf_counter() - started)


def _in_order(labels: Array) -> Array:
    """Clusters numbered as they first appear: a rounding error elsewhere must not permute them."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[codes])


def _checked_rows(vectors: ArrayLike, n_clusters: int) -> Array:
    rows = np.asarray(vectors)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"the embedding has shape {rows.shape}; one row of coordinates per node is needed")
    if not 1 <= n_clusters <= len(rows):
        raise ValueError(f"n_clusters is {n_clusters}; with {len(rows)} rows it must be in 1..{len(rows)}")
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} rows of the embedding are not finite (first: row {int(np.argmax(bad))})"
        )
    return rows


def _unit_rows(rows: Array, softness: float = 0.0) -> Array:
    # Dividing by the largest entry first keeps the squares of tiny rows from underflowing.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0, 1, largest)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit = scaled / np.where(norms == 0, 1, norms)
    if softness == 0:
        return np.asarray(unit)
    lengths = largest * norms
    typical = float(np.median(lengths)) * softness**0.5
    if typical == 0:
        return np.asarray(unit)
    return np.asarray(unit * (lengths / np.hypot(lengths, typical)))


def _kmeans(rows: Array, n_clusters: int, n_init: int, rng: np.random.Generator) -> tuple[Array, float]:
    """The best of a few starts (docs/adr/0012): sampled rows, then all of them from the best centres."""
    if n_init < 1:
        raise ValueError(f"n_init is {n_init}; k-means needs at least one start")
    if len(rows) <= FEW_ROWS:
        with one_thread(True):
            labels, inertia = lloyd(rows, n_clusters, n_init, rng)
        return _in_order(labels), inertia
    from sklearn.cluster import KMeans

    size = max(SAMPLE, SAMPLE_PER_CLUSTER * n_clusters)
    sampled = len(rows) > size
    sample = rows[rng.choice(len(rows), size, replace=False)] if sampled else rows
    with one_thread(rows.size < WORTH_THREADS):
        best = _best_start(sample, n_clusters, n_init, rng)
        if sampled:
            best = KMeans(n_clusters, init=best.cluster_centers_, n_init=1, max_iter=POLISH).fit(rows)
    return _in_order(best.labels_), float(best.inertia_)


def _best_start(rows: Array, n_clusters: int, n_init: int, rng: np.random.Generator) -> Any:
    """The k-means run of least inertia, as soon as two agree on it."""
    from sklearn.cluster import KMeans

    best, agreeing = None, 0
    for turn in range(n_init):
        seed = int(rng.integers(2**31 - 1))  # scikit-learn does not take numpy's Generator
        directed = turn == 0 and n_init > 1 and rows.shape[1] >= n_clusters
        init = _qr_centres(rows, n_clusters) if directed else "k-means++"
        run = KMeans(n_clusters, init=init, n_init=1, random_state=seed).fit(rows)
        if best is None or run.inertia_ < best.inertia_ * (1 - AGREE):
            best, agreeing = run, 1
            continue
        agreeing += bool(run.inertia_ <= best.inertia_ * (1 + AGREE))
        if run.inertia_ < best.inertia_ * (1 - ROUNDING):  # else labels would be permuted by a rounding error
            best = run
        if agreeing == 2 and len(rows) > CHEAP:
            break
    return best


def _qr_centres(rows: Array, n_clusters: int) -> Array:
    """Means of the clusters of ``cluster_qr``; a pivot that won no row stands for its own cluster."""
    labels, pivots = _pivoted(rows, n_clusters)
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
    means = sums / np.maximum(sizes, 1)[:, None]
    return np.where((sizes > 0)[:, None], means, rows[pivots]).astype(rows.dtype)


def _cluster_qr(rows: Array, n_clusters: int) -> Array:
    if rows.shape[1] < n_clusters:
        raise ValueError(
            f"cluster_qr needs at least one column per cluster: "
            f"{rows.shape[1]} columns, {n_clusters} clusters"
        )
    return _pivoted(rows, n_clusters)[0]


def _pivoted(rows: Array, n_clusters: int) -> tuple[Array, Array]:
    """Clusters are directions: pivoting finds a typical node of each, the polar factor aligns the axes."""
    from scipy.linalg import qr, svd

    rows = rows.astype(np.float64)
    _, pivots = qr(rows.T, mode="r", pivoting=True)
    # Algorithm 1 of Damle et al., step 3: the orthogonal matrix nearest to the chosen rows.
    pivots = pivots[:n_clusters]
    left, _, right = svd(rows[pivots].T, full_matrices=False)
    return np.asarray(np.argmax(np.abs(rows @ (left @ right)), axis=1)), pivots


def _discretize(
    rows: Array, n_clusters: int, rng: np.random.Generator, n_starts: int = 10, max_iter: int = 50
) -> Array:
    """Rotate the unit rows until each is close to an axis (Yu and Shi, 2003); the best of some starts."""
    if rows.shape[1] != n_clusters:
        raise ValueError(
            f"discretize needs one column per cluster: {rows.shape[1]} columns, {n_clusters} clusters"
        )
    rows = _unit_rows(rows.astype(np.float64))
    best, best_fit = np.zeros(len(rows), dtype=np.int64), -np.inf
    for _ in range(n_starts):
        rotation, fit = _spread_rows(rows, rng), -np.inf
        for _ in range(max_iter):
            labels = np.argmax(rows @ rotation, axis=1)
            overlap = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
            left, singular, right = np.linalg.svd(overlap)
            gain, fit = singular.sum() - fit, singular.sum()
            if gain <= 1e-12 * max(fit, 1.0):
                break
            rotation = (left @ right).T
        if fit > best_fit:
            best, best_fit = labels, fit
    return best


def _spread_rows(rows: Array, rng: np.random.Generator) -> Array:
    """As many rows as columns, each as orthogonal as possible to those before: a start for the rotation."""
    n_columns = rows.shape[1]
    chosen = np.empty((n_columns, n_columns))
    chosen[0] = rows[rng.integers(len(rows))]
    covered = np.zeros(len(rows))
    for column in range(1, n_columns):
        covered += np.abs(rows @ chosen[column - 1])
        chosen[column] = rows[np.argmin(covered)]
    return chosen.T
