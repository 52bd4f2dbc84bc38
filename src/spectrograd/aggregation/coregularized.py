"""``coregularized``: layers drawn to each other, or to their centroid (Kumar, Rai and Daume, NIPS 2011)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse.linalg as sla
from sklearn.exceptions import ConvergenceWarning

from spectrograd.aggregation import Layers, typical_diagonal, without_absent
from spectrograd.notices import warn
from spectrograd.operators.composite import LowRankOperator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array

NEEDS_EMBEDDINGS = True
OPTIONS = ("form", "strength", "max_iter", "tol")
FORMS = ("centroid", "pairwise")
ARPACK_TOLERANCE = 1e-8
# Nodes up to which all eigenvectors take no longer than a few of them.
MAX_DENSE_NODES = 250


def aggregate(
    layers: Layers,
    *,
    form: str = "centroid",
    strength: float = 0.5,
    max_iter: int = 30,
    tol: float = 1e-4,
    **_: object,
) -> LowRankOperator:
    """``-sum_s c_s U^s U^s'`` of co-regularised subspaces; its eigenvectors are the centroid U*.

    Alternating maximisation of the paper's objective with ``A_s = upper - L_s`` for the similarities
    of a layer, from the layers' own embeddings:

    - ``"pairwise"``: ``U^s`` = K largest eigenvectors of
      ``A_s + strength sum_{t != s} c_t U^t U^t'``;
    - ``"centroid"``: ``U^s`` = K largest of ``A_s + strength c_s U* U*'``, and ``U*`` = K
      largest of ``sum_s c_s U^s U^s'``.

    Both end in the centroid of the subspaces, from which the paper's column-wise concatenation differs by
    a rotation of its K leading left singular vectors only.

    Parameters
    ----------
    layers
        Operators, weights and embeddings.
    form
        ``"centroid"`` or ``"pairwise"``.
    strength
        The paper's lambda, in units of the layer's median diagonal (1 for normalised layers).
    max_iter, tol
        Rounds at most, and the largest squared sine, mean over the columns, by which a subspace may still
        turn in the last one. A run that ends before that warns.
    """
    _check_options(form, strength, max_iter, tol)
    # 1. layers that count: with a weight, and with an embedding
    used = [at for at, weight in enumerate(layers.weights) if weight > 0 and layers.embeddings[at].shape[1]]
    operators = [without_absent(layers.sparse[at]) for at in used]
    strengths = [strength * (typical_diagonal(layers.sparse[at]) or 1.0) for at in used]
    weights = layers.weights[used]
    subspaces = [np.asarray(layers.embeddings[at]) for at in used]
    turned = 0.0
    # 2. alternate (Kumar et al. 2011, sections 3 and 4): each layer in turn, the others held
    for _round in range(max_iter):
        before = list(subspaces)
        for at, operator in enumerate(operators):
            towards = _towards(form, subspaces, weights, at)
            subspaces[at] = _largest(operator, subspaces[at], towards * np.sqrt(strengths[at]))
        # 3. settled? By the largest turn of any subspace in this round
        turned = max(_squared_sine(U, V) for U, V in zip(before, subspaces, strict=True))
        if turned <= tol:
            break
    else:
        warn(
            f"aggregation='coregularized' did not settle in {max_iter} rounds (a subspace still turned by "
            f"a sine of {np.sqrt(turned):.2g}): raise max_iter or lower strength in aggregation_params",
            ConvergenceWarning,
        )
    # 4. the centroid: the largest eigenvectors of sum_s c_s U^s U^s'
    coefficients = np.repeat(weights, [U.shape[1] for U in subspaces])
    closeness = LowRank(np.ascontiguousarray(np.hstack(subspaces)), coefficients)
    return LowRankOperator(closeness, -float(weights.sum()), 0.0, layers.names)


def _check_options(form: str, strength: float, max_iter: int, tol: float) -> None:
    if form not in FORMS:
        raise ValueError(f"form={form!r}: expected 'centroid' or 'pairwise'")
    if not (np.isfinite(strength) and strength >= 0):
        raise ValueError(f"strength={strength!r}: expected a number >= 0")
    if not (isinstance(max_iter, int | np.integer) and max_iter >= 1):
        raise ValueError(f"max_iter={max_iter!r}: expected a whole number of rounds, at least 1")
    if not tol >= 0:
        raise ValueError(f"tol={tol!r}: expected a number >= 0")


def _towards(form: str, subspaces: Sequence[Array], weights: Array, at: int) -> Array:
    """Z (N x m) whose ``Z Z'`` draws a layer: the others' projectors, or the centroid's."""
    if form == "pairwise":
        others = [np.sqrt(c) * U for t, (c, U) in enumerate(zip(weights, subspaces, strict=True)) if t != at]
        return np.hstack(others) if others else np.zeros((len(subspaces[0]), 0))
    k = max(U.shape[1] for U in subspaces)
    # left singular vectors of [sqrt(c_1) U^1 ..] are eigenvectors of sum_s c_s U^s U^s'
    Z = np.hstack([np.sqrt(c) * U for c, U in zip(weights, subspaces, strict=True)])
    centroid = np.linalg.svd(Z, full_matrices=False)[0][:, :k]
    return np.asarray(np.sqrt(weights[at]) * centroid)


def _largest(operator: SparseOperator, U: Array, Z: Array) -> Array:
    """The k largest eigenvectors of ``upper - L + Z Z'``, for U of k columns, from which ARPACK starts."""
    n, k = U.shape
    if n <= max(MAX_DENSE_NODES, 3 * k):
        # ``upper`` shifts all eigenvalues alike: the vectors do not change
        dense = Z @ Z.T - operator.to_dense()
        return np.asarray(np.linalg.eigh((dense + dense.T) / 2)[1][:, -k:])

    def product(x: Array) -> Array:
        column = x.reshape(-1, 1)
        return np.asarray(operator.upper * column - operator @ column + Z @ (Z.T @ column)).ravel()

    linear = sla.LinearOperator((n, n), matvec=product, dtype=np.float64)
    try:
        return np.asarray(sla.eigsh(linear, k, which="LA", v0=U.sum(axis=1), tol=ARPACK_TOLERANCE)[1])
    except sla.ArpackNoConvergence:
        warn("aggregation='coregularized': a layer's eigenvectors were not found", ConvergenceWarning)
        return U


def _squared_sine(U: Array, V: Array) -> float:
    """Mean over the columns: ``1 - |U'V|^2 / K``."""
    overlap = float(np.square(U.T @ V).sum())
    return max(0.0, 1.0 - overlap / int(U.shape[1]))
