"""Graphs of kinds whose spectra are hard: many equal eigenvalues, threads, signs; after changes of edges too.

``judged(number)`` is as in :mod:`campaign`. The truth is LAPACK's, of the matrix as it was given or as it is
after the change. Signs that are switched node by node (``S W S``) leave the spectrum as it was; further edges
then change sign at random.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from campaign import CRASHED, FEW_STEPS, FOREIGN, HONEST, REFUSED, RIGHT, SLOW, SOLVERS, WRONG
from spectrograd import SpectralEmbedding
from spectrograd.graph import Graph, GraphError
from spectrograd.io import write_graph
from spectrograd.store import open_store

QUICK = ("auto", "lanczos", "chebyshev", "auto", "lobpcg")
KINDS = ("random_walk", "symmetric", "unnormalized")
SIGNED_KINDS = ("signed", "signed_symmetric", "signed_unnormalized")
SIGNED_SHARE, STORED_SHARE, CHANGED_SHARE = 0.3, 0.2, 0.35
SIZES = (60, 700)
ROUND = 1e-6  # float32 of what a store's result holds
EPS = 1e-14  # of LAPACK's eigenvalues, in widths
UNKNOWN = 0.01  # sine by which LAPACK's own vectors may be off, beyond which they judge nothing


def _clique(n):
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def _path(n):
    return sp.csr_array(sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n)))


def _star(n):
    W = np.zeros((n, n))
    W[0, 1:] = W[1:, 0] = 1
    return sp.csr_array(W)


def _joined(parts, ends):
    """The parts one after the other; ``ends`` are edges (row, column, weight) between them."""
    W = sp.block_diag(parts, format="lil")
    for row, col, weight in ends:
        W[row, col] = W[col, row] = weight
    return sp.csr_array(W)


def _sizes(n, rng, least=3):
    """Random sizes that add up to n or a little less."""
    sizes = []
    while n >= 2 * least:
        sizes.append(int(rng.integers(least, max(least + 1, n // 2))))
        n -= sizes[-1]
    return sizes or [n]


def _product(left, right):
    one, other = sp.eye_array(left.shape[0]), sp.eye_array(right.shape[0])
    return sp.csr_array(sp.kron(left, other) + sp.kron(one, right))


def lollipop(n, rng):
    """A clique and a long path."""
    m = int(rng.integers(3, n // 2))
    return _joined([_clique(m), _path(n - m)], [(0, m, 1.0)])


def barbell(n, rng):
    """Two equal cliques at the ends of a path: pairs of eigenvalues that nearly agree."""
    m = int(rng.integers(3, n // 2 - 2))
    return _joined([_clique(m), _path(n - 2 * m), _clique(m)], [(0, m, 1.0), (n - m - 1, n - m, 1.0)])


def path_of_cliques(n, rng):
    m = int(rng.integers(3, 12))
    weight = 10.0 ** rng.uniform(-6, 0)
    count = n // m
    return _joined([_clique(m)] * count, [(i * m, (i + 1) * m, weight) for i in range(count - 1)])


def copies(n, rng):
    """Equal cliques that hang on one node by equal edges: all but one of their eigenvalues are equal."""
    m = int(rng.integers(2, 10))
    weight = 10.0 ** rng.uniform(-8, 0)
    count = (n - 1) // m
    return _joined(
        [sp.csr_array((1, 1)), *[_clique(m)] * count], [(0, 1 + i * m, weight) for i in range(count)]
    )


def windmill(n, rng):
    """Triangles with one node in common."""
    W = np.zeros((2 * (n // 2) + 1,) * 2)
    W[0, 1:] = W[1:, 0] = 1
    blades = np.arange(1, len(W), 2)
    W[blades, blades + 1] = W[blades + 1, blades] = 1
    return sp.csr_array(W)


def stars(n, rng):
    """Stars whose centres form a path, hung by threads."""
    sizes = _sizes(n, rng)
    centres = np.cumsum([0, *sizes[:-1]])
    weight = 10.0 ** rng.uniform(-10, 0)
    ends = [(a, b, weight) for a, b in pairwise(centres)]
    return _joined([_star(size) for size in sizes], ends)


def broom(n, rng):
    """A path that ends in a star."""
    m = int(rng.integers(3, n - 3))
    return _joined([_path(m), _star(n - m)], [(m - 1, m, 1.0)])


def multipartite(n, rng):
    part = rng.integers(int(rng.integers(2, 8)), size=n)
    return sp.csr_array((part[:, None] != part).astype(float))


def bipartite(n, rng):
    """A light bipartite graph without odd cycles; 2 is an eigenvalue."""
    half = n // 2
    block = (rng.random((half, n - half)) < 4 / n).astype(float)
    block[:, 0] = block[0] = 1
    return sp.csr_array(np.block([[np.zeros((half, half)), block], [block.T, np.zeros((n - half,) * 2)]]))


def hamming(n, rng):
    """Products of complete graphs: few eigenvalues, each many times."""
    W = _clique(int(rng.integers(2, 6)))
    while W.shape[0] * 5 <= n:
        W = _product(W, _clique(int(rng.integers(2, 6))))
    return W


def strip(n, rng):
    """A grid, long and narrow, one way weaker than the other."""
    wide = int(rng.integers(2, 6))
    return _product(_path(n // wide), 10.0 ** rng.uniform(-3, 3) * _path(wide))


def caterpillar(n, rng):
    """A path each of whose nodes has as many leaves."""
    legs = int(rng.integers(1, 8))
    spine = n // (legs + 1)
    return _joined(
        [_path(spine), sp.csr_array((spine * legs,) * 2)],
        [(i % spine, spine + i, 1.0) for i in range(spine * legs)],
    )


def parts(n, rng):
    """Random graphs of any density that hang together by threads of any weight."""
    blocks = []
    for size in _sizes(n, rng, 8):
        A = np.triu(rng.random((size, size)) < rng.uniform(2, 8) / size, 1)
        blocks.append(sp.csr_array(np.maximum(A + A.T, _path(size).toarray()).astype(float)))
    first = np.cumsum([0, *(block.shape[0] for block in blocks)])[:-1]
    ends = [(a, b, 10.0 ** rng.uniform(-12, 0)) for a, b in pairwise(first)]
    return _joined(blocks, ends)


def heavy_pairs(n, rng):
    """A sparse random graph in which some pairs of nodes are bound far more strongly than all else."""
    A = np.triu(rng.random((n, n)) < 3 / n, 1)
    W = np.maximum(A + A.T, _path(n).toarray()).astype(float)
    pairs = rng.permutation(n)[: 2 * max(1, n // 20)].reshape(-1, 2)
    W[pairs[:, 0], pairs[:, 1]] = W[pairs[:, 1], pairs[:, 0]] = 10.0 ** rng.uniform(1, 6)
    return sp.csr_array(W)


FAMILIES = (
    *(lollipop, barbell, path_of_cliques, copies, windmill, stars, broom, multipartite, bipartite, hamming),
    *(strip, caterpillar, parts, heavy_pairs),
)


@dataclass(frozen=True)
class Case:
    """A graph and what to ask of it; ``change`` is the symmetric matrix of edges added to a fitted model."""

    number: int
    family: str
    solver: str
    kind: str
    k: int
    stored: bool
    W: sp.csr_array
    change: sp.csr_array | None


def case(number):
    """The case of a number: the solvers take turns, all else is drawn."""
    rng = np.random.default_rng((number, 340))
    family = FAMILIES[rng.integers(len(FAMILIES))]
    W = family(int(np.exp(rng.uniform(*np.log(SIZES)))), rng)
    if rng.random() < 0.3:
        W = _reweighted(W, 10.0 ** rng.uniform(0, 8), rng)
    kind, n = str(rng.choice(KINDS)), W.shape[0]
    if rng.random() < SIGNED_SHARE:
        kind, W = str(rng.choice(SIGNED_KINDS)), _with_signs(W, rng)
    k = int(rng.integers(1, 9)) if rng.random() < 0.7 else int(rng.integers(9, 41))
    stored = bool(rng.random() < STORED_SHARE)
    if stored:  # which holds weights in float32
        W.data = W.data.astype(np.float32).astype(np.float64)
    change = None
    if not stored and kind in KINDS and rng.random() < CHANGED_SHARE:
        change = _new_edges(W, rng)
    solver = SOLVERS[number % len(SOLVERS)]
    if stored or rng.random() < 0.5:  # those that a store takes, and that certify most
        solver = QUICK[number % len(QUICK)]
    return Case(number, family.__name__, solver, kind, min(k, n - 3), stored, W, change)


def _reweighted(W, ratio, rng):
    factors = np.triu(ratio ** -rng.random(W.shape), 1)
    return sp.csr_array(W * (factors + factors.T))


def _with_signs(W, rng):
    side = rng.choice([-1.0, 1.0], W.shape[0])
    flip = np.triu(np.where(rng.random(W.shape) < rng.choice([0, 0.01, 0.2]), -1.0, 1.0), 1)
    return sp.csr_array(W * (flip + flip.T) * np.outer(side, side))


def _new_edges(W, rng):
    """A few edges, light or heavy, between any nodes."""
    n, count = W.shape[0], int(rng.integers(1, 6))
    rows, cols = rng.integers(n, size=count), rng.integers(n, size=count)
    other = rows != cols
    weights = 10.0 ** rng.uniform(-6, 1, int(other.sum()))
    change = sp.coo_array((weights, (rows[other], cols[other])), shape=(n, n))
    return sp.csr_array(change + change.T)


def judged(number):
    """How the case ended, and a sentence about it."""
    given = case(number)
    params = {"max_iter": FEW_STEPS} if given.solver in SLOW else {}
    if "nystrom" in given.solver:
        params = {"solver_params": {"n_landmarks": given.W.shape[0]}}
    model = SpectralEmbedding(
        given.k, drop_first=False, laplacian=given.kind, solver=given.solver, regularization=None,
        random_state=number, **params,
    )  # fmt: skip
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            _fit(model, given, Path(folder))
    except (GraphError, ValueError) as error:
        foreign = "\n" in str(error) or any(words in str(error) for words in FOREIGN)
        return CRASHED if foreign else REFUSED, str(error)
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {error}"
    return compared(given, model)


def _fit(model, given, folder):
    graph = (
        Graph.from_matrix(given.W, signed=True) if given.kind in SIGNED_KINDS else Graph.from_matrix(given.W)
    )
    if given.stored:
        write_graph(folder / "g.store", graph)
        graph = open_store(folder / "g.store")
    model.fit(graph)
    if given.change is not None:
        model.partial_fit(given.change)


def compared(given, model):
    vectors, certificate = model.embedding_.astype(np.float64), model.certificate_
    if not (np.isfinite(vectors).all() and np.isfinite(model.eigenvalues_).all()):
        return WRONG, "not finite"
    A, root = standard(given.W if given.change is None else given.W + given.change, given.kind)
    known, T = la.eigh(A)
    width, k = float(np.abs(known).max()), given.k
    below = int((known < certificate.complete_below - EPS * width).sum())
    if below > k:
        return WRONG, f"{below} eigenvalues below {certificate.complete_below:.3g}: {certificate.sentence}"
    if not model.converged_:
        return HONEST, certificate.sentence
    Q = np.linalg.qr(vectors * root[:, None])[0]
    sine = float(np.linalg.norm(Q - T[:, :k] @ (T[:, :k].T @ Q), 2))
    unsure = EPS * width / max(float(known[k] - known[k - 1]), 1e-300)  # of LAPACK's own vectors
    if unsure > UNKNOWN:
        return REFUSED, "the truth is not known"
    said = f"sine {sine:.2g}, bound {certificate.angle_bound:.2g}: {certificate.sentence}"
    if sine > certificate.angle_bound * (1 + 1e-6) + ROUND + unsure or certificate.angle_bound > 0.03:
        return WRONG, said
    # sorted, each value found lies within its residual of the true one of the same number
    off = np.abs(np.sort(model.eigenvalues_) - known[:k])
    if (off > np.max(certificate.residuals) + ROUND * width).any():
        return WRONG, f"eigenvalues off by {off.max():.2g}: {said}"
    return RIGHT, said


def standard(W, kind):
    """The symmetric matrix of a kind, and what takes rows of vectors to its own."""
    W = W.toarray()
    degrees = np.abs(W).sum(axis=1)
    if kind.endswith("unnormalized"):
        return np.diag(degrees) - W, np.ones(len(W))
    A = np.eye(len(W)) - W / np.sqrt(np.outer(degrees, degrees))
    return A, np.ones(len(W)) if kind.endswith("symmetric") else np.sqrt(degrees)
