"""FunctionOperator: a weighted sum of functions of the layers' Laplacians, by products only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import DTypeLike, NDArray

from spectrograd.aggregation import Layers, edgeless
from spectrograd.operators.balanced import balanced
from spectrograd.operators.laplacian import Operator

Array = NDArray[Any]
Function = Callable[[Array], Array]
# Relative to the range of the function; far below the residuals anybody asks of a solver.
ACCURACY = 1e-9
MAX_DEGREE = 512


@dataclass(frozen=True, eq=False)
class FunctionOperator(Operator):
    """``A = sum_s c_s f(L_s)``, applied by one Chebyshev series per layer (docs/adr/0010).

    It has no edges and no diagonal of its own, so it suits solvers that only use products; a product
    costs ``degree`` passes over every layer.

    Attributes
    ----------
    operators, series
        The layers, and per layer the Chebyshev coefficients of ``c_s f`` on its spectral interval.
    """

    only_products: ClassVar[bool] = True

    operators: tuple[Operator, ...] = ()
    series: tuple[Array, ...] = ()

    @property
    def passes_per_product(self) -> int:
        """Passes over the edges that one product costs: the largest degree."""
        return max(len(coefficients) - 1 for coefficients in self.series)

    def _apply(self, U: Array) -> Array:
        out = np.zeros_like(U)
        for operator, coefficients in zip(self.operators, self.series, strict=True):
            out += _clenshaw(operator, coefficients.astype(U.dtype), U)
        return out

    def rounding(self, dtype: DTypeLike) -> float:
        """What the series leave out, and what every product of theirs rounds."""
        eps = float(np.finfo(dtype).eps)
        floor = 0.0
        for operator, coefficients in zip(self.operators, self.series, strict=True):
            each = operator.rounding(dtype) / (operator.upper - operator.lower) + 4 * eps
            terms = np.abs(coefficients)
            floor += 10 * ACCURACY * float(terms.max()) + each * float(np.arange(len(terms)) ** 2 @ terms)
        return floor

    def astype(self, dtype: DTypeLike) -> Operator:
        """The same operator with its numbers stored in ``dtype``."""
        if self.dtype == dtype:
            return self
        cast = tuple(operator.astype(dtype) for operator in self.operators)
        return replace(self, operators=cast, diagonal=self.diagonal.astype(dtype))


def function_of_layers(layers: Layers, function: Function) -> FunctionOperator:
    """``sum_s c_s f(L_s / c)`` over the layers with a weight; c brings the widest spectrum to [0, 2]."""
    scale = spectral_scale(layers)
    kept = [(c, op) for c, op in zip(layers.weights, layers.operators, strict=True) if c > 0]
    series, lower, upper = [], 0.0, 0.0
    for weight, operator in kept:
        ends = np.array([operator.lower, operator.upper]) / scale
        series.append(weight * chebyshev_series(function, float(ends[0]), float(ends[1])))
        values = weight * function(ends)  # monotone: its bounds are at the ends
        lower, upper = lower + float(values.min()), upper + float(values.max())
    return FunctionOperator(
        edgeless(layers.n_nodes, layers.names),
        np.zeros(layers.n_nodes),
        lower=lower,
        upper=upper,
        operators=tuple(_fit(operator) for _, operator in kept),
        series=tuple(series),
    )


def _fit(operator: Operator) -> Operator:
    """The layer in numbers of any size: its series is one on its own interval."""
    found = balanced(operator)
    return operator if found is None else found.operator


def spectral_scale(layers: Layers) -> float:
    """What divides the Laplacians so that the widest spectrum is [0, 2]: one for normalised layers."""
    return max(operator.upper for operator in layers.operators) / 2 or 1.0


def chebyshev_series(function: Function, low: float, high: float) -> Array:
    """Coefficients of f on [low, high], as many as it takes to reach ACCURACY.

    Examples
    --------
    >>> len(chebyshev_series(lambda x: x * x, 0.0, 2.0))
    3
    """
    middle, half = (low + high) / 2, (high - low) / 2
    size = 16
    while True:
        nodes = np.cos(np.pi * (np.arange(size + 1) + 0.5) / (size + 1))
        coefficients = _fitted(function(middle + half * nodes), nodes)
        wanted = np.flatnonzero(np.abs(coefficients) > ACCURACY * np.abs(coefficients).max())
        if wanted[-1] < 0.9 * size:
            return np.asarray(coefficients[: wanted[-1] + 1])
        if size >= MAX_DEGREE:
            raise ValueError(
                f"the function needs a polynomial of degree above {MAX_DEGREE} on [{low:g}, {high:g}]: "
                "choose a larger shift"
            )
        size *= 2


def _fitted(values: Array, nodes: Array) -> Array:
    """Coefficients of the interpolant through values at Chebyshev nodes (a discrete cosine transform)."""
    basis = chebyshev.chebvander(nodes, len(nodes) - 1)
    coefficients = basis.T @ values * (2 / len(nodes))
    coefficients[0] /= 2
    return np.asarray(coefficients)


def _clenshaw(operator: Operator, coefficients: Array, U: Array) -> Array:
    """``f(L) U`` by the three-term recurrence: one pass per degree, three blocks of memory."""
    middle, half = (operator.lower + operator.upper) / 2, (operator.upper - operator.lower) / 2
    if len(coefficients) == 1 or half == 0:
        return np.asarray(coefficients.sum() * U)

    def mapped(V: Array) -> Array:
        return np.asarray(((operator @ V) - middle * V) / half, dtype=U.dtype)

    before, current = U, mapped(U)
    out = coefficients[0] * before + coefficients[1] * current
    for coefficient in coefficients[2:]:
        before, current = current, 2 * mapped(current) - before
        out += coefficient * current
    return np.asarray(out)
