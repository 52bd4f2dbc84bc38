"""Operators made of parts: a low-rank one alone, and sums of what cannot be added as matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.operators.protocol import Operator, OperatorOfSeveral
from spectrograd.operators.sparse import LowRank

Array = NDArray[Any]


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

    def product(self, engine: Any, X: Any) -> Any:
        """A Gram matrix and a combination; no edges are read."""
        Z, a = self.low_rank.factors, self.low_rank.coefficients
        return engine.cast(engine.combine(Z, -a[:, None] * engine.gram(Z, X)), X.dtype)

    def rounding(self, dtype: DTypeLike) -> float:
        """Of sums along the columns of the factors, and of products with their coefficients."""
        Z, a = self.low_rank.factors, self.low_rank.coefficients
        return self.n_nodes * float(np.finfo(dtype).eps) * float(np.abs(a) @ np.square(Z).sum(axis=0))

    def placed(self, engine: Any) -> LowRankOperator:
        """The same with its factors as a tall."""
        return replace(self, low_rank=LowRank(engine.put(self.low_rank.factors), self.low_rank.coefficients))


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

    def product(self, engine: Any, X: Any) -> Any:
        """One product after the other."""
        unit, first = np.eye(X.shape[1]), self.operators[0]
        total = engine.combine(first.product(engine, X), self.weights[0] * unit)
        for c, part in zip(self.weights[1:], self.operators[1:], strict=True):
            total = engine.combine(total, unit, part.product(engine, X), c * unit)
        return total

    def rounding(self, dtype: DTypeLike) -> float:
        """That of the parts, and of adding them."""
        eps, pairs = float(np.finfo(dtype).eps), list(zip(self.weights, self.operators, strict=True))
        sizes = (abs(c) * max(abs(part.lower), abs(part.upper)) for c, part in pairs)
        return sum(abs(c) * part.rounding(dtype) for c, part in pairs) + len(pairs) * eps * sum(sizes)

    def placed(self, engine: Any) -> SumOperator:
        """The same with its parts placed."""
        return replace(self, operators=tuple(engine.place(part) for part in self.operators))
