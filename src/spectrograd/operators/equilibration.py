"""Operators as single precision can take them, whatever the scale of the weights and however they differ.

Solvers square what they multiply, many of them in float32: squares of 1e-23 vanish there, squares of 1e20 are
infinite. Before a solver sees an operator it is therefore divide by a power of four near its size, which
rounds nothing; and where degrees differ so much that no single divisor will do, a normalised Laplacian is
solved in the coordinates in which its diagonal is one. Results are transformed back to the given operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spectrograd.graph import Graph, RowBlock
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector

# Sizes that are left alone. Relative errors of 1e-7 of the smallest, squared, are still normal numbers of
# float32, and so are sums of squares of the largest, which is more than any unweighted graph's degree.
MIN_SIZE = 2.0**-20
MAX_SIZE = 2.0**32
# How much degrees may differ: walks divide by them in float32, whose numbers span 2^126 both ways.
MAX_DEGREE_RATIO = 2.0**40
MAX_POWER_OF_FOUR = 500  # exponent: the divisor and its inverse are normal numbers


@dataclass(frozen=True, eq=False)
class Equilibration:
    """An operator that is fit for a solver, and the way back to the one it was made of.

    Eigenvalues of the given operator are ``unit`` times those of ``operator``; its eigenvectors are those of
    ``operator`` with their rows multiplied by ``row_factors`` (a number, or N numbers).
    """

    operator: SparseOperator
    unit: float = 1.0
    row_factors: float | Array = 1.0

    def transform(self, vectors: Array) -> Array:
        """N x k vectors of the given operator as vectors of the equilibrated one."""
        return np.asarray(vectors / self._factors)

    def inverse_transform(self, vectors: Array) -> Array:
        """N x k vectors of the equilibrated operator as vectors of the given one."""
        return np.asarray(vectors * self._factors)

    def inverse_transform_multivector(self, engine: Engine, X: MultiVector) -> MultiVector:
        """As :meth:`inverse_transform`, for a multivector of an engine."""
        return _multiply_rows(engine, X, self.row_factors)

    def transform_multivector(self, engine: Engine, X: MultiVector) -> MultiVector:
        """As :meth:`transform`, for a multivector of an engine."""
        return _multiply_rows(engine, X, 1 / self.row_factors)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows are multiplied by the same factor."""
        return not isinstance(self.row_factors, np.ndarray)

    @property
    def _factors(self) -> float | Array:
        return self.row_factors[:, None] if isinstance(self.row_factors, np.ndarray) else self.row_factors


def _multiply_rows(engine: Engine, X: MultiVector, factors: float | Array) -> MultiVector:
    if isinstance(factors, np.ndarray):
        return engine.scale_rows(X, engine.from_numpy(factors[:, None]))
    return engine.combine(X, factors * np.eye(X.shape[1]))


def equilibrate(operator: Operator) -> Equilibration | None:
    """Scale an operator to numbers that float32 can square; None where it needs no scaling.

    Examples
    --------
    >>> from spectrograd.operators.laplacian import laplacian
    >>> heavy = laplacian(Graph.from_edges([0, 1], [1, 2], [3e99, 3e99]), "unnormalized")
    >>> found = equilibrate(heavy)
    >>> bool(1 <= found.operator.upper < 4), bool(found.unit * found.operator.upper == heavy.upper)
    (True, True)
    """
    if not isinstance(operator, SparseOperator) or not operator.graph.is_resident:
        return None  # a function of layers is of the size it is, a stream was scaled when it was made
    if operator.graph.n_entries == 0:
        return None
    # 1. degrees over too many decades for one divisor: coordinates in which the diagonal is one
    if _is_wide(operator):
        return _absorb_scale(operator)
    # 2. one divisor for A, or for the weights of a normalised Laplacian
    within = operator if operator.scale is None else _with_equilibrated_scale(operator)
    size = operator.upper - operator.lower if operator.metric is None else float(operator.metric.max())
    divisor = power_of_four(size)
    if divisor == 1:
        return None if within is operator else Equilibration(within)
    if operator.metric is None:
        return Equilibration(divide(within, divisor), unit=divisor)
    # 3. A and B divided alike: the eigenvalues stay, vectors get a factor of 1 / sqrt(divisor)
    pencil = replace(divide(within, divisor), metric=_freeze(operator.metric / divisor))
    pencil = replace(pencil, lower=operator.lower, upper=operator.upper)
    return Equilibration(pencil, row_factors=float(1 / np.sqrt(divisor)))


def of_common_size(operators: Sequence[SparseOperator]) -> tuple[tuple[SparseOperator, ...], float]:
    """Scale layers that are to be added to a common size; return them and their common divisor.

    Normalised Laplacians are what they are for any weights, so each of them is equilibrated by itself.
    """
    divisor = power_of_four(max(operator.upper for operator in operators))
    scaled = []
    for operator in operators:
        fit = None if operator.scale is None else equilibrate(operator)
        scaled.append(divide(operator, divisor) if fit is None else fit.operator)
    return tuple(scaled), divisor


def power_of_four(size: float) -> float:
    """The divisor for numbers of this size; its root divides exactly too. 1 where they need none."""
    if not np.isfinite(size) or size == 0 or MIN_SIZE <= size <= MAX_SIZE:
        return 1.0
    # an even power of two: the square root, by which vectors are scaled, is a power of two as well
    exponent = (int(np.frexp(size)[1]) - 1) // 2
    return float(4.0 ** np.clip(exponent, -MAX_POWER_OF_FOUR, MAX_POWER_OF_FOUR))


def _is_wide(operator: SparseOperator) -> bool:
    for numbers, most in ((operator.metric, MAX_DEGREE_RATIO), (operator.scale, MAX_DEGREE_RATIO**0.5)):
        if numbers is not None:
            used = numbers[numbers > 0]
            if len(used) and used.max() / most > used.min():
                return True
    return False


def _with_equilibrated_scale(operator: SparseOperator) -> SparseOperator:
    """The same matrix with weights near one; the scale takes their size over."""
    assert operator.scale is not None
    divisor = power_of_four(float(operator.graph.degrees.max()))
    if divisor == 1:
        return operator
    return replace(
        operator,
        graph=_with_weights(operator.graph, 1 / divisor),
        scale=operator.scale * np.sqrt(divisor),
        low_rank=operator.low_rank and _equilibrate_low_rank(operator.low_rank),
    )


def divide(operator: SparseOperator, divisor: float) -> SparseOperator:
    """``A / divisor``, with its bounds; the metric stays."""
    if divisor == 1:
        return operator
    low_rank = operator.low_rank
    return replace(
        operator,
        graph=_with_weights(operator.graph, 1 / divisor),
        diagonal=_freeze(operator.diagonal / divisor),
        low_rank=low_rank and LowRank(low_rank.factors, low_rank.coefficients / divisor),
        lower=operator.lower / divisor,
        upper=operator.upper / divisor,
    )


def _with_weights(graph: Graph, factor: float) -> Graph:
    """The graph with its weights multiplied, in float64: the small ones of float32 must not vanish."""
    blocks = []
    for block in graph.blocks:
        # an unweighted block becomes a weighted one
        weights = np.full(len(block.indices), factor) if block.weights is None else block.weights * factor
        blocks.append(replace(block, weights=_freeze(weights.astype(np.float64, copy=False))))
    return Graph(tuple(blocks), graph.n_nodes, graph.names)


def _freeze(array: Array) -> Array:
    """Read-only, as the numbers of graphs and Laplacians are: the same compiled kernels serve."""
    array.flags.writeable = False
    return array


def _absorb_scale(operator: SparseOperator) -> Equilibration:
    """``B^-1/2 A B^-1/2`` with the scale multiplied into the weights: all entries are one at most.

    A weight that float32 cannot hold then is one that moves no eigenvalue.
    """
    standard = operator.standard_form()
    assert standard.scale is not None
    W = operator.graph.matrix
    scale = standard.scale
    ends = np.repeat(scale, np.diff(W.indptr)) * scale[W.indices]  # first: the same for both directions
    block = RowBlock(0, W.indptr.astype(np.int64), W.indices, _freeze(W.data * ends))
    graph = Graph((block,), operator.n_nodes, operator.graph.names)
    factors = 1.0 if operator.metric is None else 1 / np.sqrt(operator.metric)
    low_rank = standard.low_rank and _equilibrate_low_rank(standard.low_rank)
    return Equilibration(replace(standard, graph=graph, scale=None, low_rank=low_rank), row_factors=factors)


def _equilibrate_low_rank(low_rank: LowRank) -> LowRank:
    """The same matrix with factors near one; the coefficients take their size over."""
    sizes = [power_of_four(float(np.abs(column).max())) for column in low_rank.factors.T]
    return LowRank(low_rank.factors / sizes, low_rank.coefficients * np.square(sizes))
