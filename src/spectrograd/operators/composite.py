"""Operators made of parts: low rank, sums of operators, and functions of layers by Chebyshev series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import DTypeLike

from spectrograd.operators.base import Operator, OperatorOfSeveral
from spectrograd.operators.equilibration import equilibrate
from spectrograd.operators.sparse import LowRank
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector


@dataclass(frozen=True, eq=False)
class LowRankOperator(Operator):
    """``A = -Z diag(a) Z'`` and nothing else."""

    low_rank: LowRank
    lower: float
    upper: float
    names: Array | None = None

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return int(self.low_rank.factors.shape[0])

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """A Gram matrix and a combination; no edges are read."""
        Z = self.low_rank.factors
        a = self.low_rank.coefficients
        return engine.astype(engine.combine(Z, -a[:, None] * engine.gram(Z, X)), X.dtype)

    def rounding(self, dtype: DTypeLike) -> float:
        """Bound the rounding of sums along the factors' columns, and of their products."""
        Z = self.low_rank.factors
        a = self.low_rank.coefficients
        return self.n_nodes * float(np.finfo(dtype).eps) * float(np.abs(a) @ np.square(Z).sum(axis=0))

    def to_engine(self, engine: Engine) -> LowRankOperator:
        """Load the factors as a multivector."""
        return replace(
            self, low_rank=LowRank(engine.from_numpy(self.low_rank.factors), self.low_rank.coefficients)
        )


@dataclass(frozen=True, eq=False)
class SumOperator(OperatorOfSeveral):
    """``A = sum_s c_s A_s``, of parts without a metric: means of layers that are streamed or far away.

    Examples
    --------
    >>> from spectrograd.graph import Graph
    >>> from spectrograd.operators.laplacian import laplacian
    >>> path, edge = Graph.from_edges([0, 1], [1, 2], n_nodes=3), Graph.from_edges([0], [2], n_nodes=3)
    >>> parts = tuple(laplacian(g, "unnormalized", allow_isolated=True) for g in (path, edge))
    >>> SumOperator(parts, (1.0, 0.5)).to_dense().tolist()
    [[1.5, -1.0, -0.5], [-1.0, 2.0, -1.0], [-0.5, -1.0, 1.5]]
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(part.metric is not None for part in self.operators):
            raise ValueError(
                "operators with different metrics cannot be added: bring them to standard_form()"
            )

    @property
    def lower(self) -> float:  # type: ignore[override]
        """The sum of the parts' bounds."""
        return sum(
            min(c * part.lower, c * part.upper) for c, part in zip(self.weights, self.operators, strict=True)
        )

    @property
    def upper(self) -> float:  # type: ignore[override]
        """The sum of the parts' bounds."""
        return sum(
            max(c * part.lower, c * part.upper) for c, part in zip(self.weights, self.operators, strict=True)
        )

    @property
    def n_edges(self) -> int:
        """Edges of all parts."""
        return sum(part.n_edges for part in self.operators)

    @property
    def is_streamed(self) -> bool:
        """Whether a product reads a disk."""
        return any(part.is_streamed for part in self.operators)

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """One product after the other."""
        unit = np.eye(X.shape[1])
        first = self.operators[0]
        total = engine.combine(first.product(engine, X), self.weights[0] * unit)
        for c, part in zip(self.weights[1:], self.operators[1:], strict=True):
            total = engine.combine(total, unit, part.product(engine, X), c * unit)
        return total

    def rounding(self, dtype: DTypeLike) -> float:
        """Bound the rounding of the parts, and of adding them."""
        eps = float(np.finfo(dtype).eps)
        pairs = list(zip(self.weights, self.operators, strict=True))
        sizes = (abs(c) * max(abs(part.lower), abs(part.upper)) for c, part in pairs)
        return sum(abs(c) * part.rounding(dtype) for c, part in pairs) + len(pairs) * eps * sum(sizes)

    def to_engine(self, engine: Engine) -> SumOperator:
        """Load the parts."""
        return replace(self, operators=tuple(engine.load_operator(part) for part in self.operators))


# --- FunctionOperator: a weighted sum of functions of the layers' Laplacians, by products only.

Function = Callable[[Array], Array]
# Relative to the range of the function; far below the residuals anybody asks of a solver.
SERIES_ACCURACY = 1e-9
MAX_DEGREE = 512


@dataclass(frozen=True, eq=False)
class FunctionOperator(OperatorOfSeveral):
    """``A = sum_s c_s f(L_s)``, applied by one Chebyshev series per layer (docs/adr/0010).

    It is known by its products only; one costs ``degree`` passes over every layer.

    Attributes
    ----------
    operators, series
        The layers, and per layer the Chebyshev coefficients of ``c_s f`` on its spectral interval.
    """

    series: tuple[Array, ...]
    lower: float
    upper: float

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """``A X`` on an engine: the sum of the layers' series."""
        unit = np.eye(X.shape[1])
        total = None
        for operator, coefficients in zip(self.operators, self.series, strict=True):
            part = _series_product(engine, operator, coefficients, X)
            total = part if total is None else engine.combine(total, unit, part, unit)
        return total

    def rounding(self, dtype: DTypeLike) -> float:
        """The truncation of the series, and the rounding of each of their products."""
        eps = float(np.finfo(dtype).eps)
        floor = 0.0
        for operator, coefficients in zip(self.operators, self.series, strict=True):
            # T_m has a derivative of at most m^2: an error in L is magnified by it (Markov's inequality)
            each = operator.rounding(dtype) / (operator.upper - operator.lower) + 4 * eps
            terms = np.abs(coefficients)
            floor += 10 * SERIES_ACCURACY * float(terms.max()) + each * float(
                np.arange(len(terms)) ** 2 @ terms
            )
        return floor

    def to_engine(self, engine: Engine) -> FunctionOperator:
        """Load the layers."""
        return replace(self, operators=tuple(engine.load_operator(operator) for operator in self.operators))


def function_of_layers(
    layers: Sequence[Operator], weights: Sequence[float] | Array, function: Function
) -> FunctionOperator:
    """``sum_s c_s f(L_s / c)`` over the layers with a weight; c brings the widest spectrum to [0, 2].

    The function is monotone.
    """
    # One scale for all layers, so that f sees their spectra relative to each other.
    scale = spectral_scale(layers)
    weighted = [(float(c), operator) for c, operator in zip(weights, layers, strict=True) if c > 0]
    series = []
    lower = 0.0
    upper = 0.0
    for weight, operator in weighted:
        ends = np.array([operator.lower, operator.upper]) / scale
        series.append(weight * chebyshev_series(function, float(ends[0]), float(ends[1])))
        values = weight * function(ends)  # monotone: its bounds are at the ends
        lower += float(values.min())
        upper += float(values.max())
    return FunctionOperator(
        tuple(_equilibrate_layer(operator) for _, operator in weighted), tuple(series), lower, upper
    )


def _equilibrate_layer(operator: Operator) -> Operator:
    """The layer in numbers of any size: its series is one on its own interval."""
    fit = equilibrate(operator)
    return operator if fit is None else fit.operator


def spectral_scale(layers: Sequence[Operator]) -> float:
    """The divisor that brings the widest spectrum to [0, 2]: one for normalised layers."""
    return max(operator.upper for operator in layers) / 2 or 1.0


def chebyshev_series(function: Function, low: float, high: float) -> Array:
    """Coefficients of f on [low, high], as many as it takes to reach SERIES_ACCURACY.

    Examples
    --------
    >>> len(chebyshev_series(lambda x: x * x, 0.0, 2.0))
    3
    """
    middle = (low + high) / 2
    half = (high - low) / 2
    size = 16
    while True:
        # twice as many Chebyshev nodes until the last tenth of the coefficients is negligible
        nodes = np.cos(np.pi * (np.arange(size + 1) + 0.5) / (size + 1))
        coefficients = _interpolate(function(middle + half * nodes), nodes)
        # the decay of the coefficients is the error of the truncation, for smooth functions
        significant = np.flatnonzero(np.abs(coefficients) > SERIES_ACCURACY * np.abs(coefficients).max())
        if significant[-1] < 0.9 * size:
            return np.asarray(coefficients[: significant[-1] + 1])
        if size >= MAX_DEGREE:
            raise ValueError(
                f"the function needs a polynomial of degree above {MAX_DEGREE} on [{low:g}, {high:g}]: "
                "choose a larger shift"
            )
        size *= 2


def _interpolate(values: Array, nodes: Array) -> Array:
    """Coefficients of the interpolant through values at Chebyshev nodes (a discrete cosine transform)."""
    basis = chebyshev.chebvander(nodes, len(nodes) - 1)
    # discrete orthogonality of T_m at the nodes; the sum of T_0^2 is twice that of the others
    coefficients = basis.T @ values * (2 / len(nodes))
    coefficients[0] /= 2
    return np.asarray(coefficients)


def _series_product(engine: Engine, operator: Operator, coefficients: Array, X: MultiVector) -> MultiVector:
    """``f(L) X`` by the three-term recurrence: one pass per degree, three multivectors of memory."""
    middle = (operator.lower + operator.upper) / 2
    half = (operator.upper - operator.lower) / 2
    unit = np.eye(X.shape[1])
    if len(coefficients) == 1 or half == 0:
        return engine.combine(X, coefficients.sum() * unit)

    def scaled_product(V: object, factor: float) -> Any:
        """``factor (L - middle) / half V``."""
        scale = factor / half
        return engine.combine(engine.apply(operator, V), scale * unit, V, -scale * middle * unit)

    # T_0 and T_1 of (L - middle) / half, then T_j+1 = 2 x T_j - T_j-1 (Mason & Handscomb 2003, Eq. 1.3a).
    before = X
    current = scaled_product(X, 1.0)
    out = engine.combine(before, coefficients[0] * unit, current, coefficients[1] * unit)
    for coefficient in coefficients[2:]:
        following = engine.combine(scaled_product(current, 2.0), unit, before, -unit)
        before = current
        current = following
        out = engine.combine(out, unit, current, coefficient * unit)
    return out
