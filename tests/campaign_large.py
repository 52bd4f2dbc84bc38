"""Random graphs with long rows, for stores, numeric tolerances and automatic numbers of clusters too.

Hubs with a thousand and more light edges, weights over six decades, parts that hang by a thread: what single
precision does not see of them it must not certify. ``judged(number)`` is as in :mod:`campaign`. The truth is
LAPACK's for small graphs and, in float64, that of a shift-and-invert iteration for trees of cliques, which
factorise without fill, or of ARPACK for the others.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, eigsh

from campaign import CRASHED, HONEST, REFUSED, RIGHT, WRONG
from spectrograd import SpectralClustering, SpectralEmbedding
from spectrograd.graph import Graph, GraphError
from spectrograd.io import write_graph
from spectrograd.store import open_store

KINDS = ("random_walk", "symmetric", "unnormalized")
SOLVERS = ("auto", "auto", "chebyshev", "lanczos", "lanczos", "sgd")
SIZES = ((1_026, 2_000), (2_000, 6_000), (6_000, 20_000))
SHARES = (0.7, 0.22, 0.08)
TOLERANCES = ("auto", "auto", "auto", 1e-5, 1e-8)
MOST_DENSE = 1_500
MORE = 4  # eigenvalues of the truth beyond K: none of them may lie below what is called complete
ROUND = 1e-6  # float32 of what a store's result holds


@dataclass(frozen=True)
class Case:
    """A graph and what to ask of it."""

    number: int
    family: str
    solver: str
    kind: str
    k: int
    tol: float | str
    stored: bool
    auto: bool
    W: sp.csr_array


def _symmetric(n, rows, cols, weights):
    W = sp.coo_array((np.broadcast_to(weights, len(rows)).astype(float), (rows, cols)), shape=(n, n)).tocsr()
    W.setdiag(0)
    W.eliminate_zeros()
    return sp.csr_array(W.maximum(W.T))


def _joined(parts, threads):
    """The parts one after the other, and a light edge from the first node of each to that of the next."""
    first = np.cumsum([0, *(part.shape[0] for part in parts)])
    W = sp.block_diag(parts, format="csr")
    n, ends = W.shape[0], (first[:-2], first[1:-1])
    return sp.csr_array(W + _symmetric(n, *ends, threads)) if len(parts) > 1 else sp.csr_array(W)


def _clique(n):
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def _star(weights):
    n = len(weights) + 1
    return _symmetric(n, np.zeros(n - 1, int), np.arange(1, n), weights)


def light_hub(n, rng):
    """Cliques and a hub: one heavy edge, all others so light that float32 loses their sum."""
    weights = np.full(n - 25, 10.0 ** rng.uniform(-9, -6))
    weights[0] = 1
    return _joined([_clique(12), _clique(12), _star(weights)], 10.0 ** rng.uniform(-8, -5, 2))


def decades(n, rng):
    """Several hubs, the weights of each over six decades."""
    cuts = np.sort(rng.choice(np.arange(20, n - 20), int(rng.integers(1, 4)), replace=False))
    sizes = np.diff([0, *cuts, n])
    parts = [_star(10.0 ** rng.uniform(-6, 0, size - 1)) for size in sizes if size > 1]
    return _joined(parts, 10.0 ** rng.uniform(-7, 0, max(len(parts) - 1, 1)))


def pareto(n, rng):
    """A random graph and a hub whose weights have a heavy tail."""
    rows, cols = rng.integers(n, size=4 * n), rng.integers(n, size=4 * n)
    chain = np.arange(n - 1)
    hub = np.minimum(rng.pareto(0.5, n - 1) + 1, 1e6)
    W = _symmetric(n, np.append(rows, chain), np.append(cols, chain + 1), 1.0)
    return sp.csr_array(
        W + _symmetric(n, np.zeros(n - 1, int), np.arange(1, n), hub * 10.0 ** rng.uniform(-6, 0))
    )


def blocks(n, rng):
    """Well-linked groups, and one node that is linked with all others lightly."""
    groups = int(rng.integers(2, 5))
    rows = rng.integers(n, size=6 * n)
    near = (rows + groups * rng.integers(1, max(2, n // groups), size=6 * n)) % n
    cols = np.where(rng.random(6 * n) < 0.9, near, rng.integers(n, size=6 * n))
    W = _symmetric(n, np.append(rows, np.arange(n - 1)), np.append(cols, np.arange(1, n)), 1.0)
    light = 10.0 ** rng.uniform(-6, 0, n - 1)
    return sp.csr_array(W + _symmetric(n, np.zeros(n - 1, int), np.arange(1, n), light))


def threads(n, rng):
    """Cliques and stars that hang together by light edges."""
    parts, left = [], n
    while left > 60:
        size = int(rng.integers(5, 30)) if rng.random() < 0.7 else int(rng.integers(30, left + 1))
        size = min(size, left)
        parts.append(_clique(size) if size < 30 else _star(10.0 ** rng.uniform(-3, 0, size - 1)))
        left -= size
    parts.append(_clique(max(left, 3)))
    return _joined(parts, 10.0 ** rng.uniform(-8, -2, len(parts) - 1))


def hypercube(n, rng):
    """Every eigenvalue but two comes many times."""
    bits = int(rng.integers(6, 9))
    i = np.arange(1 << bits)
    pairs = [(i, i ^ (1 << b)) for b in range(bits)]
    return _symmetric(
        len(i), np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]), 1.0
    )


FILLED = ("pareto", "blocks")  # their factors would be dense
FAMILIES = (light_hub, light_hub, decades, pareto, blocks, threads, hypercube)


def case(number):
    """The case of a number; all is drawn."""
    rng = np.random.default_rng((number, 28))
    family = FAMILIES[rng.integers(len(FAMILIES))]
    low, high = SIZES[rng.choice(len(SIZES), p=SHARES)]
    W = family(int(rng.integers(low, high)), rng)
    solver, kind = str(rng.choice(SOLVERS)), str(rng.choice(KINDS))
    k, tol = int(rng.integers(2, 7)), TOLERANCES[rng.integers(len(TOLERANCES))]
    stored, auto = bool(rng.random() < 0.25), bool(rng.random() < 0.1)
    if stored:  # which holds weights in float32
        W.data = W.data.astype(np.float32).astype(np.float64)
    return Case(number, family.__name__, solver, kind, k, tol, stored, auto, W)


def judged(number):
    """How the case ended, and a sentence about it."""
    given = case(number)
    shared = {
        "laplacian": given.kind, "solver": given.solver, "tol": given.tol, "regularization": None,
        "random_state": number,
    }  # fmt: skip
    model = SpectralClustering("auto", **shared) if given.auto else None
    if model is None:
        model = SpectralEmbedding(given.k, drop_first=False, **shared)
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            graph = Graph.from_matrix(given.W)
            if given.stored:
                write_graph(Path(folder) / "g.store", graph)
                graph = open_store(Path(folder) / "g.store")
            model.fit(graph)
    except (GraphError, ValueError) as error:
        return REFUSED, str(error)
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {error}"
    return compared(given, model)


def compared(given, model):
    """The judgement of a fitted model."""
    certificate = model.certificate_
    vectors = model.embedding_
    if not np.isfinite(vectors).all():
        return WRONG, "not finite"
    k = vectors.shape[1]
    try:
        values, T, root = truth(given, k)
    except ArpackError:
        return REFUSED, "the truth is not known"
    unit = values.max() if given.kind == "unnormalized" else 1.0
    below = int((values < certificate.complete_below - 1e-13 * max(unit, 1e-300)).sum())
    if below > k:
        return (
            WRONG,
            f"{below} eigenvalues below {certificate.complete_below:.3g}, {k} found: {certificate.sentence}",
        )
    if not model.converged_:
        return HONEST, certificate.sentence
    Q = np.linalg.qr(vectors.astype(np.float64) * root[:, None])[0]
    gap = float(values[k] - values[k - 1])
    unsure = 1e-14 * float(np.abs(values).max() + 1) / max(gap, 1e-300)  # of the truth's own vectors
    sine = float(np.linalg.norm(Q - T[:, :k] @ (T[:, :k].T @ Q), 2))
    said = f"sine {sine:.2g}, bound {certificate.angle_bound:.2g}: {certificate.sentence}"
    wrong = sine > certificate.angle_bound * (1 + 1e-6) + ROUND + unsure or not certificate.angle_bound < 1
    return (WRONG if wrong else RIGHT), said


def truth(given, k):
    """More than k lowest eigenvalues, their vectors in standard form, and what takes rows there."""
    W = given.W
    degrees = np.asarray(W.sum(axis=1)).ravel()
    n, root = W.shape[0], np.ones(W.shape[0])
    if given.kind == "unnormalized":
        A = sp.diags_array(degrees) - W
    else:
        scale = sp.diags_array(1 / np.sqrt(degrees))
        A = sp.eye_array(n) - scale @ W @ scale
        root = np.sqrt(degrees) if given.kind == "random_walk" else root
    count = k + MORE
    if n <= MOST_DENSE:
        return *la.eigh(A.toarray(), subset_by_index=[0, count - 1]), root
    A, size = sp.csc_array(A), float(np.abs(A).max())
    start = np.random.default_rng(0).standard_normal(n)
    if given.family in FILLED:
        values, vectors = eigsh(A, count, which="SA", v0=start, ncv=10 * count, tol=0, maxiter=100)
    else:
        values, vectors = eigsh(A, count, sigma=-1e-7 * size, which="LM", v0=start, tol=0)
    order = np.argsort(values)
    return values[order], np.linalg.qr(vectors[:, order])[0], root
