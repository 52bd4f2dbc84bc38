"""Who runs: one function per entrant, from an adjacency matrix to K vectors of ``L u = lambda D u``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.shootout.graphs import normalised

OURS, DEFAULT = "spectrograd", "scikit-learn arpack"


def spectrograd(matrix: Any, k: int, tol: float | None = None) -> tuple[Any, dict[str, Any]]:
    """The defaults of the library, from the matrix to the certificate."""
    from spectrograd import Graph
    from spectrograd.pipeline import embed
    from spectrograd.pipeline.settings import Settings

    found = embed(Graph.from_matrix(matrix), Settings(n_components=k, seed=0))
    facts = {
        "solver": " -> ".join(attempt.solver for attempt in found.attempts),
        "converged": found.certificate.converged,
        "tau": found.regularization.tau,
        "passes_counted": found.passes,
    }
    return found.vectors, facts


def scikit_learn(matrix: Any, k: int, tol: float, *, solver: str) -> tuple[Any, dict[str, Any]]:
    """What ``SpectralClustering(eigen_solver=...)`` calls."""
    from sklearn.manifold import spectral_embedding

    how = {"eigen_solver": solver, "eigen_tol": tol, "random_state": 0, "drop_first": False}
    vectors = spectral_embedding(matrix, n_components=k, **how)
    return vectors, {}


def eigsh_largest(matrix: Any, k: int, tol: float) -> tuple[Any, dict[str, Any]]:
    """The expert's line for expanders: the largest eigenvalues of the normalised adjacency."""
    from scipy.sparse.linalg import eigsh

    S, scale = normalised(matrix)
    _, vectors = eigsh(S, k, which="LA", tol=tol, v0=_start(len(scale)))
    return vectors * scale[:, None], {}


def shift_invert(matrix: Any, k: int, tol: float) -> tuple[Any, dict[str, Any]]:
    """The expert's line for planar graphs: a sparse factor, minimum degree order."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    S, scale = normalised(matrix)
    n = len(scale)
    shifted = sp.csc_array(sp.eye_array(n) * (1 + 1e-5) - S)
    factor = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options={"SymmetricMode": True})
    inverse = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    _, vectors = eigsh(inverse, k, which="LM", tol=tol, v0=_start(n))
    return vectors * scale[:, None], {}


def lobpcg_amg(matrix: Any, k: int, tol: float) -> tuple[Any, dict[str, Any]]:
    """Scipy's LOBPCG, preconditioned by pyamg, with a tolerance that does not grow with N."""
    import scipy.sparse as sp
    from pyamg import smoothed_aggregation_solver
    from scipy.sparse.linalg import lobpcg

    S, scale = normalised(matrix)
    n = len(scale)
    L = sp.csr_matrix(sp.eye_array(n) - S)
    hierarchy = smoothed_aggregation_solver(L + 1e-5 * sp.eye(n, format="csr"))
    X = np.random.default_rng(0).standard_normal((n, k + 2))
    X[:, 0] = 1 / scale
    _, vectors = lobpcg(L, X, M=hierarchy.aspreconditioner(), largest=False, tol=tol, maxiter=60)
    return vectors[:, :k] * scale[:, None], {}


def scikit_network(matrix: Any, k: int, tol: float | None = None) -> tuple[Any, dict[str, Any]]:
    """Its spectral embedding leaves out the trivial vector, which is added."""
    import scipy.sparse as sp
    from sknetwork.embedding import Spectral

    found = Spectral(k - 1, regularization=0, normalized=False).fit_transform(sp.csr_matrix(matrix))
    return np.hstack([np.ones((matrix.shape[0], 1)), found]), {}


def primme(matrix: Any, k: int, tol: float) -> tuple[Any, dict[str, Any]]:
    """PRIMME's default method on the normalised adjacency."""
    from primme import eigsh

    S, scale = normalised(matrix)
    _, vectors = eigsh(S, k, which="LA", tol=tol, v0=_start(len(scale))[:, None])
    return vectors * scale[:, None], {}


def _start(n: int) -> Any:
    return np.random.default_rng(0).standard_normal(n)


@dataclass(frozen=True)
class Entrant:
    """A way to the vectors, and the tolerances it is tried with, loosest first (None: it has none)."""

    run: Callable[..., tuple[Any, dict[str, Any]]]
    tolerances: tuple[float | None, ...] = (None,)


ENTRANTS: dict[str, Entrant] = {
    OURS: Entrant(spectrograd),
    DEFAULT: Entrant(partial(scikit_learn, solver="arpack"), (1e-1, 1e-3, 0.0)),
    "scikit-learn lobpcg": Entrant(partial(scikit_learn, solver="lobpcg"), (1e-2, 1e-3, 1e-5)),
    "scikit-learn amg": Entrant(partial(scikit_learn, solver="amg"), (1e-2, 1e-3, 1e-5)),
    "eigsh LA": Entrant(eigsh_largest, (1e-2, 1e-3, 1e-4)),
    "shift-invert": Entrant(shift_invert, (1e-1, 1e-3, 0.0)),
    "lobpcg + pyamg": Entrant(lobpcg_amg, (1e-2, 1e-3, 1e-4)),
    "PRIMME": Entrant(primme, (1e-2, 1e-3, 1e-4)),
    "scikit-network": Entrant(scikit_network),
}


def trace(matrix: Any, vectors: Any) -> float:
    """``Tr(V'LV)`` over a D-orthonormal basis of the span: what all of them minimise."""
    S, scale = normalised(matrix)
    Q, _ = np.linalg.qr(np.asarray(vectors, dtype=np.float64) / scale[:, None])
    return float(Q.shape[1] - np.einsum("ij,ij->", Q, S @ Q))


def labels_of(name: str, vectors: Any, k: int) -> Any:
    """Clusters as the library itself would make them: ten restarts of k-means, or ours."""
    if name == OURS:
        from spectrograd.labels.assign import assign

        excluded = np.flatnonzero(~vectors.any(axis=1))
        return assign(
            vectors, k, unit_rows=True, norm_regularization=1.0, excluded=excluded, random_state=0
        ).labels
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KMeans(k, n_init=10, random_state=0).fit_predict(vectors)
