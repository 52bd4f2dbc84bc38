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
        ``"kmeans"`` (k-means++ starts), ``"cluster_qr"`` (Damle, Minden and Ying, arXiv 1609.08251: no
        iteration, no randomness) or ``"discretize"`` (Yu and Shi, 2003).
    n_init
        Starts of k-means, the best is kept.
    unit_rows
        Scale rows to unit length first; zero rows stay zero.
    random_state
        Seed; the same seed gives the same labels.

    Examples
    --------
    >>> clustering = assign([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], 2, method="cluster_qr")
    >>> bool(clustering.labels[0] == clustering.labels[1] != clustering.labels[2])
    True
    """
    started = time.perf_counter()
    rows = _checked_rows(vectors, n_clusters)
    if unit_rows:
        rows = _unit_rows(rows)
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
    labels = labels.astype(np.int64)
    labels.flags.writeable = False
    return Clustering(labels, n_clusters, method, inertia, time.perf_counter() - started)


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


def _unit_rows(rows: Array) -> Array:
    # Dividing by the largest entry first keeps the squares of tiny rows from underflowing.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0, 1, largest)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(norms == 0, 1, norms))


def _kmeans(rows: Array, n_clusters: int, n_init: int, rng: np.random.Generator) -> tuple[Array, float]:
    if n_init < 1:
        raise ValueError(f"n_init is {n_init}; k-means needs at least one start")
    if len(rows) <= FEW_ROWS:
        with one_thread(True):
            return lloyd(rows, n_clusters, n_init, rng)
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31 - 1))  # scikit-learn does not take numpy's Generator
    with one_thread(rows.size < WORTH_THREADS):
        model = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(rows)
    return np.asarray(model.labels_), float(model.inertia_)


def _cluster_qr(rows: Array, n_clusters: int) -> Array:
    """Clusters are directions: pivoting finds a typical node of each, the polar factor aligns the axes."""
    from scipy.linalg import qr, svd

    if rows.shape[1] < n_clusters:
        raise ValueError(
            f"cluster_qr needs at least one column per cluster: "
            f"{rows.shape[1]} columns, {n_clusters} clusters"
        )
    rows = rows.astype(np.float64)
    _, pivots = qr(rows.T, mode="r", pivoting=True)
    # Algorithm 1 of Damle et al., step 3: the orthogonal matrix nearest to the chosen rows.
    left, _, right = svd(rows[pivots[:n_clusters]].T, full_matrices=False)
    return np.asarray(np.argmax(np.abs(rows @ (left @ right)), axis=1))


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
