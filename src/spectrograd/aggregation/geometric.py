"""``geometric``: the geometric mean of the layers on the SPD manifold (El Gheche et al. 2018)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg as la

from spectrograd.aggregation import Layers, with_neutral_nodes
from spectrograd.aggregation.truncated import truncated_function
from spectrograd.operators.base import DenseOperator, Operator
from spectrograd.operators.composite import function_of_layers, spectral_scale
from spectrograd.typing import Array

NEEDS_EMBEDDINGS = False
OPTIONS = ("shift", "method")
# A fixed-point step costs S + 1 dense eigendecompositions.
EXACT_UP_TO = 500
MAX_STEPS = 100


def aggregate(layers: Layers, *, shift: float = 0.1, method: str = "auto", **_: object) -> Operator:
    """An operator with the eigenvectors of the mean of ``L_s + shift I``.

    Parameters
    ----------
    layers
        Operators and weights (the mean is weighted).
    shift
        Makes the Laplacians positive definite; small values trust small eigenvalues more and cost a
        higher degree.
    method
        ``"exact"``: the Karcher mean by its fixed point, dense, O(N^3) per step. ``"log"``: the
        log-Euclidean mean ``exp(mean_s log L_s)``, the limit p -> 0 of the power mean, matrix-free; it
        is the Karcher mean where the layers commute. ``"truncated"``: the same of the layers' own K
        eigenpairs only, see :func:`~spectrograd.aggregation.truncated.truncated_function`. ``"auto"``: exact
        up to 500 nodes.
    """
    delta = float(shift)
    if not np.isfinite(delta) or delta <= 0:
        raise ValueError(f"shift={shift}: expected a number > 0")
    if method not in ("auto", "exact", "log", "truncated"):
        raise ValueError(f"method={method!r}: expected 'auto', 'exact', 'log' or 'truncated'")

    def function(x: Array) -> Array:
        return np.asarray(np.log(np.maximum(x, 0) + delta))

    if method == "truncated":
        return truncated_function(layers, function)
    operators = tuple(with_neutral_nodes(operator) for operator in layers.sparse)
    layers = replace(layers, operators=operators)
    if method == "exact" or (method == "auto" and layers.n_nodes <= EXACT_UP_TO):
        return _exact(layers, delta)
    return function_of_layers(operators, layers.weights, function)


def _exact(layers: Layers, delta: float) -> Operator:
    # unnormalised layers in units of the widest spectrum, so that the shift means the same for any weights
    scale = spectral_scale(layers.sparse)
    kept = [(c, op) for c, op in zip(layers.weights, layers.sparse, strict=True) if c > 0]
    shares = np.array([c for c, _ in kept]) / sum(c for c, _ in kept)
    identity = np.eye(layers.n_nodes)
    mean = karcher_mean([op.to_dense() / scale + delta * identity for _, op in kept], shares)
    values = la.eigvalsh(mean)
    return DenseOperator(mean, float(values[0]), float(values[-1]), layers.names)


def karcher_mean(matrices: list[Array], shares: Array, *, tol: float = 1e-8) -> Array:
    """The fixed point ``G <- G^1/2 exp(sum_s c_s log(G^-1/2 A_s G^-1/2)) G^1/2`` of SPD matrices.

    Examples
    --------
    >>> karcher_mean([np.diag([1.0, 4.0]), np.diag([9.0, 4.0])], np.array([0.5, 0.5])).round(9).tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    G = np.asarray(sum(c * A for c, A in zip(shares, matrices, strict=True)))
    for _ in range(MAX_STEPS):
        # G^1/2 and G^-1/2
        values, vectors = la.eigh(G)
        root, inverse = ((vectors * np.sqrt(values) ** sign) @ vectors.T for sign in (1, -1))
        # the Riemannian gradient at G: mean_s log(G^-1/2 A_s G^-1/2)
        step = sum(
            c * _function(inverse @ A @ inverse, np.log) for c, A in zip(shares, matrices, strict=True)
        )
        # along the geodesic: G <- G^1/2 exp(step) G^1/2
        G = root @ _function(np.asarray(step), np.exp) @ root
        G = (G + G.T) / 2
        if np.linalg.norm(step) <= tol * np.sqrt(len(G)):
            break
    return np.asarray(G)


def _function(matrix: Array, function: Any) -> Array:
    values, vectors = la.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * function(values)) @ vectors.T)
