"""``power-mean``: the power mean Laplacian (Mercado et al. 2018), matrix-free."""

from __future__ import annotations

import numpy as np

from spectrograd.aggregation import Layers, with_neutral_nodes
from spectrograd.aggregation.truncated import truncated_function
from spectrograd.operators.base import Operator
from spectrograd.operators.composite import function_of_layers
from spectrograd.typing import Array

NEEDS_EMBEDDINGS = False
OPTIONS = ("p", "shift", "method")


def aggregate(
    layers: Layers, *, p: float = -1.0, shift: float | str = "auto", method: str = "full", **_: object
) -> Operator:
    """An operator with the eigenvectors of ``(mean_s (L_s + shift I)^p)^(1/p)``.

    The outer root only bends the spectrum (and reverses it for p < 0), so the operator is
    ``-sum_s c_s (L_s + shift)^p`` for p < 0 and ``+sum_s ...`` for p > 0.

    Parameters
    ----------
    layers
        Operators and weights; unnormalised ones are divided by a common factor first, so that the
        shift means the same whatever the weights.
    p
        The power; 1 is ``mean``, strongly negative is close to the minimum over layers ("some layer says
        together"), positive to the maximum. 0 is ``geometric``.
    shift
        Added to the Laplacians; "auto" is ``log(1 + |p|) + 1`` for p < 0 and 0 for whole p > 0.
    method
        ``"full"``: products of the whole function. ``"truncated"``: of the layers' own K eigenpairs only, see
        :func:`~spectrograd.aggregation.truncated.truncated_function`.
    """
    power, delta = _check_options(p, shift)
    sign = -1.0 if power < 0 else 1.0

    def function(x: Array) -> Array:
        return np.asarray(sign * (np.maximum(x, 0) + delta) ** power)

    if method == "truncated":
        return truncated_function(layers, function)
    if method != "full":
        raise ValueError(f"method={method!r}: expected 'full' or 'truncated'")
    operators = tuple(with_neutral_nodes(operator) for operator in layers.sparse)
    return function_of_layers(operators, layers.weights, function)


def _check_options(p: float, shift: float | str) -> tuple[float, float]:
    power = float(p)
    if not np.isfinite(power):
        raise ValueError(f"p={p}: expected a finite number")
    if power == 0:
        raise ValueError("p=0 is the geometric mean: use aggregation='geometric'")
    if shift == "auto":
        return power, 0.0 if power > 0 and power.is_integer() else float(np.log1p(abs(power))) + 1.0
    delta = float(shift)
    if not np.isfinite(delta) or delta < 0 or (power < 0 and delta == 0):
        raise ValueError(f"shift={shift}: expected 'auto' or a number > 0 (or 0 for a positive p)")
    return power, delta
