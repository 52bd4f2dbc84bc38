"""Random small graphs for every solver, judged against the matrix as it was given, in as many digits as due.

``judged(number)`` makes a case of a number, runs it and says how it ended; ``fuzz.py`` prints a table.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import mpmath as mp
import numpy as np

from spectrograd import SpectralEmbedding
from spectrograd.graph import GraphError
from spectrograd.solvers import REGISTRY

RIGHT, HONEST, REFUSED, CRASHED, WRONG = "right", "not converged", "clear error", "crash", "WRONG"
OUTCOMES = (RIGHT, HONEST, REFUSED, CRASHED, WRONG)
SOLVERS = ("auto", *REGISTRY)
KINDS = ("random_walk", "symmetric", "unnormalized")
EXPONENTS = (0, 0, -200, -100, -25, -8, 8, 20, 100, 200)  # of the scale of all weights
RATIOS = (1.0, 1e3, 1e8, 1e12, 1e16, 1e20, 1e25, 1e30)  # of the heaviest weight to the lightest
SLOW = (
    "sgd",
    "sgd-paper",
    "stochastic-fb",
    "coordinate-power",
    "gradient-descent",
    "forward-backward",
    "power",
)
FEW_STEPS = 40  # of the slow ones: that they give up is told, and their certificates are as quick as others
STARTS = ("cold", "cold", "warm")
DIGITS = 80  # ratios of 1e30, squares of them, and some
EVERY, MOST_EXACT = 10, 10  # of the small graphs, one in ten is judged by mpmath; and all without a clear gap
SOME_GAP = 1e-12  # of the width: mpmath takes minutes for the larger graphs
CLEAR_GAP = 1e-7  # of the width: above it float64 knows the eigenvectors to 1e-7 or so
FOREIGN = (
    "infs or NaNs",
    "zero-size",
    "did not converge",
    "positive definite",
    "singular matrix",
    "broadcast",
)


def path(n, rng):
    return _from_edges(n, np.arange(n - 1), np.arange(1, n))


def ring(n, rng):  # every eigenvalue but the first comes twice
    return _from_edges(n, np.arange(n), (np.arange(n) + 1) % n)


def star(n, rng):
    return _from_edges(n, np.zeros(n - 1, int), np.arange(1, n))


def tree(n, rng):
    child = np.arange(1, n)
    return _from_edges(n, child, (rng.random(n - 1) * child).astype(int))


def complete(n, rng):
    return np.ones((n, n)) - np.eye(n)


def torus(n, rng):  # wide one way, narrow the other: a warm start from the turned one is wrong
    side = max(3, int(np.sqrt(n)))
    one, loop = np.eye(side), ring(side, rng)
    weights = rng.permutation([1.0, 0.2])
    return weights[0] * np.kron(loop, one) + weights[1] * np.kron(one, loop)


def bipartite(n, rng):
    half = n // 2
    block = (rng.random((half, n - half)) < 0.5).astype(float)
    block[:, 0] = block[0] = 1
    return np.block([[np.zeros((half, half)), block], [block.T, np.zeros((n - half, n - half))]])


def cliques(n, rng):
    part = np.arange(n) * 3 // n
    W = (part[:, None] == part).astype(float)
    np.fill_diagonal(W, 0)
    return np.maximum(W, path(n, rng))


def regular(n, rng):
    W = ring(n, rng)
    order = rng.permutation(n)
    return np.maximum(W, W[np.ix_(order, order)])


def weighted(n, rng):
    W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 5 / n), 1)
    return W + W.T + 0.1 * ring(n, rng)


FAMILIES = (path, ring, star, tree, complete, torus, bipartite, cliques, regular, weighted)


def _from_edges(n, rows, cols):
    W = np.zeros((n, n))
    W[rows, cols] = W[cols, rows] = 1
    np.fill_diagonal(W, 0)
    return W


@dataclass(frozen=True)
class Case:
    """A graph and what to ask of it; ``before`` is the graph of an earlier fit, for a warm start."""

    number: int
    family: str
    solver: str
    kind: str
    exponent: int
    ratio: float
    k: int
    W: np.ndarray
    before: np.ndarray | None


def case(number):
    """The case of a number: the solvers take turns, all else is drawn."""
    rng = np.random.default_rng((number, 14))
    family = FAMILIES[rng.integers(len(FAMILIES))]
    large = rng.random() < 0.15
    n = int(rng.integers(30, 100) if large else rng.integers(5, 11))
    seed, exponent, ratio = rng.integers(1 << 30), int(rng.choice(EXPONENTS)), float(rng.choice(RATIOS))
    W, before = (_spread(family(n, np.random.default_rng(seed)), ratio, rng) for _ in range(2))
    if family is torus:
        before = before.T.copy() if ratio > 1 else torus(n, np.random.default_rng(seed + 1))
    start, kind = rng.choice(STARTS), str(rng.choice(KINDS))
    k = int(rng.integers(1, min(5, len(W) - 2) + 1))
    solver, scale = SOLVERS[number % len(SOLVERS)], 10.0**exponent
    earlier = before * scale if start == "warm" else None
    return Case(number, family.__name__, solver, kind, exponent, ratio, k, W * scale, earlier)


def _spread(W, ratio, rng):
    """The weights made to differ by the ratio: evenly, in two sizes, or between the halves only."""
    n = len(W)
    how = rng.integers(3)
    if how == 0:
        power = rng.random((n, n))
    elif how == 1:
        power = (rng.random((n, n)) < 0.3).astype(float)
    else:
        side = np.arange(n) < n / 2
        power = (side[:, None] != side).astype(float)
    power = np.triu(power, 1)
    return W * ratio ** -(power + power.T)


def judged(number):
    """How the case ended, and a sentence about it."""
    given = case(number)
    params = {"max_iter": FEW_STEPS} if given.solver in SLOW else {}
    if "nystrom" in given.solver:
        params = {"solver_params": {"n_landmarks": len(given.W)}}
    model = SpectralEmbedding(
        given.k, drop_first=False, affinity="precomputed", laplacian=given.kind, solver=given.solver,
        regularization=None, random_state=number, warm_start=True, **params,
    )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if given.before is not None:
                model.fit(given.before)
            model.fit(given.W)
    except (GraphError, ValueError) as error:
        foreign = "\n" in str(error) or any(words in str(error) for words in FOREIGN)
        return CRASHED if foreign else REFUSED, str(error)
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {error}"
    if not (np.isfinite(model.embedding_).all() and np.isfinite(model.eigenvalues_).all()):
        return WRONG, "not finite"
    if not model.converged_:
        return HONEST, model.certificate_.sentence
    return _compared(given, model)


def _compared(given, model):
    sine, distances = truth(given, model.embedding_, model.eigenvalues_)
    certificate = model.certificate_
    said = f"sine {sine:.2g}, bound {certificate.angle_bound:.2g}: {certificate.sentence}"
    if sine > certificate.angle_bound * (1 + 1e-6) + 1e-6 or certificate.angle_bound > 0.03:
        return WRONG, said
    if (distances > certificate.residuals * (1 + 1e-6)).any():
        return WRONG, f"eigenvalues off by {distances}, residuals {certificate.residuals}"
    return RIGHT, said


def truth(given, vectors, values):
    """The sine of the largest angle to the true eigenvectors, and how far the values are from true ones."""
    if len(given.W) > MOST_EXACT or given.number // len(SOLVERS) % EVERY:
        A, root, unit = _standard(given.W / given.W.max(), given.kind), *_units(given)
        known, T = np.linalg.eigh(A)
        gap = (known[given.k] - known[given.k - 1]) / known[-1]
        small = len(given.W) <= MOST_EXACT
        if gap > (CLEAR_GAP if small else SOME_GAP):
            Q = np.linalg.qr(vectors * root[:, None])[0]
            off = np.abs(values[:, None] / unit - known).min(axis=1) - 1e-13 * known[-1]
            T = T[:, : given.k]
            unsure = 0.0 if small else 50 * np.finfo(float).eps / gap  # of LAPACK's own vectors
            return max(0.0, float(np.linalg.norm(Q - T @ (T.T @ Q), 2)) - unsure), unit * off
    return _exact_truth(given, vectors, values)


def _standard(W, kind):
    degrees = W.sum(axis=1)
    if kind == "unnormalized":
        return np.diag(degrees) - W
    return np.eye(len(W)) - W / np.sqrt(np.outer(degrees, degrees))


def _units(given):
    """What turns vectors into those of the symmetric matrix, row by row, and the unit of its eigenvalues."""
    if given.kind == "unnormalized":
        return np.ones(len(given.W)), given.W.max()
    degrees = (given.W / given.W.max()).sum(axis=1)
    return (np.sqrt(degrees) if given.kind == "random_walk" else np.ones(len(degrees))), 1.0


def _exact_truth(given, vectors, values):
    with mp.workdps(DIGITS):
        n, k = len(given.W), given.k
        W = mp.matrix(given.W.tolist())
        degrees = [mp.fsum(W[i, j] for j in range(n)) for i in range(n)]
        plain = given.kind == "unnormalized"
        A = mp.matrix(n, n)
        for i in range(n):
            for j in range(n):
                here = (degrees[i] if i == j else mp.mpf(0)) - W[i, j]
                A[i, j] = here if plain else here / mp.sqrt(degrees[i] * degrees[j])
        size = max(degrees) if plain else mp.mpf(1)
        known, T = mp.eigsy(A / size)
        X = mp.matrix(vectors.tolist())
        if given.kind == "random_walk":
            for i in range(n):
                X[i, :] = X[i, :] * mp.sqrt(degrees[i] / max(degrees))
        largest = max(abs(x) for x in X)
        Q = mp.qr(X / largest, mode="skinny")[0]
        T = T[:, :k]
        rest = Q - T * (T.T * Q)
        sine = np.linalg.norm(np.array(rest.tolist(), dtype=float), 2)
        off = [float(min(abs(mp.mpf(float(v)) / size - t) for t in known) * size) for v in values]
        return float(sine), np.array(off)
