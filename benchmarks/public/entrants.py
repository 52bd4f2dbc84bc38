"""Ours and the peers' best lines, by task: embedding, labels, layers, points to labels.

An entrant takes ``(data, k, tol, tau)`` and returns its vectors or labels and facts. ``tau`` is what our
regularisation chose (0 mostly): peers then embed the same operator, by products.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

Outcome = tuple[Any, dict[str, Any]]
TOLERANCES = (1e-2, 1e-3, 1e-4)
OURS = "spectrograd"


def ours_embedding(matrix: Any, k: int, tol: float | None = None, tau: float = 0.0) -> Outcome:
    """The estimator with its defaults, from the matrix to the certificate."""
    from spectrograd import SpectralEmbedding

    model = SpectralEmbedding(k, affinity="precomputed", drop_first=False, random_state=0).fit(matrix)
    return np.asarray(model.embedding_), facts_of(model)


def ours_labels(matrix: Any, k: int, tol: float | None = None, tau: float = 0.0) -> Outcome:
    """The estimator with its defaults."""
    from spectrograd import SpectralClustering

    model = SpectralClustering(k, affinity="precomputed", random_state=0).fit(matrix)
    return np.asarray(model.labels_), facts_of(model)


def ours_points(points: Any, k: int, tol: float | None = None, tau: float = 0.0) -> Outcome:
    """Points to labels by the estimator with its defaults."""
    from spectrograd import SpectralClustering

    model = SpectralClustering(k, affinity="nearest_neighbors", n_neighbors=10, random_state=0).fit(points)
    return np.asarray(model.labels_), facts_of(model)


def ours_layers(
    layers: Any, k: int, tol: float | None = None, tau: float = 0.0, *, aggregation: str
) -> Outcome:
    """The multilayer estimator with its defaults but for the aggregation."""
    from spectrograd import MultilayerSpectralClustering

    model = MultilayerSpectralClustering(k, aggregation=aggregation, random_state=0).fit(layers)
    return np.asarray(model.labels_), {"solver": str(model.solver_)}


def facts_of(model: Any) -> dict[str, Any]:
    """What a fitted model tells of its run."""
    attempts = model.attempts_
    return {
        "solver": " -> ".join(attempt.solver for attempt in attempts) or str(model.solver_),
        "converged": bool(model.certificate_.converged),
        "determined": model.certificate_.determined,
        "tau": float(model.regularization_.tau),
        "matvecs": float(sum(attempt.matvecs for attempt in attempts)),
        "predicted": attempts[0].predicted_seconds if attempts else None,
        "attempts": len(attempts),
    }


# --- Peers


def normalised(matrix: Any, tau: float) -> tuple[Any, Any]:
    """``D^-1/2 W D^-1/2`` and ``d^-1/2``, of a graph regularised by ``tau`` mean degrees (0: as it is)."""
    from scipy.sparse.linalg import LinearOperator

    degrees = np.asarray(matrix.sum(axis=1)).ravel()
    n = len(degrees)
    added = tau * degrees.mean()
    scale = 1 / np.sqrt(degrees + added)
    S = sp.csr_array(sp.diags_array(scale) @ matrix @ sp.diags_array(scale))
    if tau == 0:
        return S, scale

    def times(x: Any) -> Any:
        x = x.reshape(n, -1)
        return S @ x + added / n * scale[:, None] * (scale @ x)

    return LinearOperator((n, n), matvec=times, matmat=times, dtype=np.float64), scale


def eigsh_largest(matrix: Any, k: int, tol: float, tau: float) -> Outcome:
    """ARPACK's largest eigenvalues of I + S."""
    from scipy.sparse.linalg import eigsh

    S, scale = normalised(matrix, tau)
    _, vectors = eigsh(S, k, which="LA", tol=tol, v0=_start(len(scale)))
    return vectors * scale[:, None], {}


def shift_invert(matrix: Any, k: int, tol: float, tau: float) -> Outcome:
    """ARPACK on a sparse factor, minimum degree order."""
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    if tau > 0:
        raise ValueError("the regularised operator is not sparse")
    S, scale = normalised(matrix, 0.0)
    n = len(scale)
    shifted = sp.csc_array(sp.eye_array(n) * (1 + 1e-5) - S)
    factor = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options={"SymmetricMode": True})
    inverse = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    _, vectors = eigsh(inverse, k, which="LM", tol=tol, v0=_start(n))
    return vectors * scale[:, None], {}


def block_lobpcg(matrix: Any, k: int, tol: float, tau: float) -> Outcome:
    """Scipy's LOBPCG with two guard vectors and the known first one, no preconditioner."""
    from scipy.sparse.linalg import lobpcg

    S, scale = normalised(matrix, tau)
    X = np.random.default_rng(0).standard_normal((len(scale), k + 2))
    X[:, 0] = 1 / scale
    _, vectors = lobpcg(S, X, largest=True, tol=tol, maxiter=80)
    return vectors[:, :k] * scale[:, None], {}


def with_kmeans(embed: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """The labels of a peer: ten starts of scikit-learn's k-means on its rows of unit length."""

    def labelled(matrix: Any, k: int, tol: float, tau: float) -> Outcome:
        from sklearn.cluster import KMeans

        vectors, _ = embed(matrix, k, tol, tau)
        rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
        return KMeans(k, n_init=10, random_state=0).fit_predict(rows), {}

    return labelled


def scikit_points(points: Any, k: int, tol: float, tau: float) -> Outcome:
    """Scikit-learn's SpectralClustering on the same graph of neighbours."""
    from sklearn.cluster import SpectralClustering

    how = {"affinity": "nearest_neighbors", "n_neighbors": 10, "random_state": 0, "eigen_tol": tol}
    return SpectralClustering(k, **how).fit_predict(points), {}


def sc_ml(layers: Any, k: int, tol: float, tau: float) -> Outcome:
    """Dong et al. (2014): the Laplacians' sum less the projections of each layer's K vectors, and k-means."""
    from scipy.sparse.linalg import LinearOperator, eigsh
    from sklearn.cluster import KMeans

    alpha = 0.5
    n = layers[0].shape[0]
    adjacencies = [_safe_normalised(layer) for layer in layers]
    bases = [eigsh(S, k, which="LA", tol=tol, v0=_start(n))[1] for S in adjacencies]
    total = sp.csr_array(sum(adjacencies))
    U = np.hstack(bases)

    def times(x: Any) -> Any:
        return total @ x + alpha * (U @ (U.T @ x))

    merged = LinearOperator((n, n), matvec=times, dtype=np.float64)
    _, vectors = eigsh(merged, k, which="LA", tol=tol, v0=_start(n))
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    return KMeans(k, n_init=10, random_state=0).fit_predict(rows), {}


def mean_adjacency(layers: Any, k: int, tol: float, tau: float) -> Outcome:
    """The mean of the normalised adjacencies, eigsh, and k-means."""
    from scipy.sparse.linalg import eigsh
    from sklearn.cluster import KMeans

    total = sp.csr_array(sum(_safe_normalised(layer) for layer in layers))
    _, vectors = eigsh(total, k, which="LA", tol=tol, v0=_start(total.shape[0]))
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    return KMeans(k, n_init=10, random_state=0).fit_predict(rows), {}


def _safe_normalised(matrix: Any) -> Any:
    """``D^-1/2 W D^-1/2`` where some nodes have no edges."""
    degrees = np.asarray(matrix.sum(axis=1)).ravel()
    scale = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1e-300)), 0.0)
    return sp.csr_array(sp.diags_array(scale) @ matrix @ sp.diags_array(scale))


def _start(n: int) -> Any:
    return np.random.default_rng(0).standard_normal(n)


PEERS = {"eigsh": eigsh_largest, "shift-invert": shift_invert, "lobpcg": block_lobpcg}
EMBEDDING: dict[str, Callable[..., Outcome]] = {OURS: ours_embedding, **PEERS}
LABELS: dict[str, Callable[..., Outcome]] = {OURS: ours_labels} | {
    name: with_kmeans(run) for name, run in PEERS.items()
}
TASKS: dict[str, dict[str, Callable[..., Outcome]]] = {
    "embedding": EMBEDDING,
    "labels": LABELS,
    "projection": {OURS: partial(ours_layers, aggregation="projection"), "SC-ML of scipy": sc_ml},
    "mean": {OURS: partial(ours_layers, aggregation="mean"), "mean + eigsh": mean_adjacency},
    "auto": {
        OURS: partial(ours_layers, aggregation="auto"),
        "SC-ML of scipy": sc_ml,
        "mean + eigsh": mean_adjacency,
    },
    "points": {OURS: ours_points, "scikit-learn": scikit_points},
}


def run_entrant(task: str, name: str, data: Any, k: int, tol: float | None, tau: float) -> Outcome:
    """One run, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TASKS[task][name](data, k, tol, tau)
