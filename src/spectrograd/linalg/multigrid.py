"""Aggregation multigrid: a hierarchy of Galerkin operators by heavy-edge matching, and the cycle on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la

from spectrograd.engines import Engine
from spectrograd.graph import Graph, RowBlock
from spectrograd.kernels import PARALLEL_ROWS, WORTH_THREADS
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array

COARSEST_NODES = 400  # nodes at which coarsening ends
MAX_DENSE_NODES = 2000  # nodes of a coarsest level that is solved by a dense inverse


def _smoother(low: float, high: float) -> tuple[float, float]:
    """``(c0, c1)``: ``1 - x (c0 + c1 x)`` is the Chebyshev polynomial of degree 2, small on [low, high]."""
    # 1 - x (c0 + c1 x) = T_2((theta - x) / delta) / T_2(theta / delta)
    theta = (high + low) / 2
    delta = (high - low) / 2
    s = theta / delta
    return 4 * s / (delta * (2 * s * s - 1)), -2 / (delta * delta * (2 * s * s - 1))


SMOOTHER = _smoother(0.25, 2.0)  # of the spectrum of diag(A)^-1 A, which is in [0, 2]


@dataclass(frozen=True, eq=False)
class Level:
    """An operator in random-walk form, and its restriction: ``part`` maps vertices to the next level's.

    The members of aggregate c are ``order[begin[c] : begin[c + 1]]``.
    """

    operator: SparseOperator
    part: Array | None = None
    begin: Array | None = None
    order: Array | None = None

    def restrict(self, R: Array, scale: Array | None = None) -> Array:
        """``P' diag(scale) R``."""
        from spectrograd.kernels.coarsening import restrict

        run = restrict if len(R) > PARALLEL_ROWS else restrict.serial
        return np.asarray(run(self.begin, self.order, scale, np.ascontiguousarray(R)))

    def add_prolonged(self, C: Array, X: Array) -> None:
        """Mutates X: ``X += P C``."""
        from spectrograd.kernels.coarsening import add_prolonged

        run = add_prolonged if len(X) > PARALLEL_ROWS else add_prolonged.serial
        run(self.part, np.ascontiguousarray(C), X)

    def prolong(self, X: Array) -> Array:
        """``P X``: every vertex takes its aggregate's row."""
        return np.asarray(X[self.part])


def coarsen(operator: SparseOperator, largest: int = 3) -> tuple[Level, SparseOperator]:
    """One matching: the level with its aggregates, and the Galerkin operator ``P'AP`` with metric ``P'BP``.

    Self loops leave the edges but not the metric, so degrees are preserved; a Laplacian does not see them.
    """
    return _galerkin(operator, *_match(operator, largest))


def shrinkage(operator: SparseOperator, n_sampled: int = 2000) -> float:
    """Estimate the share of the entries that one matching leaves, from a sample of the aggregates."""
    from spectrograd.kernels import coarsening

    # a matching of the whole graph (cheap), entries of some of its aggregates (expensive)
    part, n = _match(operator, 3)
    begin, order = coarsening.members(part, n)
    sampled = np.linspace(0, n - 1, min(n, n_sampled)).astype(np.int64)
    return float(coarsening.entries_left(*operator.graph.pattern, part, begin, order, sampled))


def _match(operator: SparseOperator, largest: int) -> tuple[Array, int]:
    from spectrograd.kernels.coarsening import match

    weights = operator.graph.matrix.data if operator.graph.is_weighted else None
    part, n = match(*operator.graph.pattern, weights, np.maximum(operator.diagonal, 1e-300), largest)
    return part, int(n)


def _galerkin(operator: SparseOperator, part: Array, n: int) -> tuple[Level, SparseOperator]:
    from spectrograd.kernels import coarsening

    weights = operator.graph.matrix.data if operator.graph.is_weighted else None
    begin, order = coarsening.members(part, n)
    run = coarsening.galerkin if operator.graph.n_entries > WORTH_THREADS else coarsening.galerkin.serial
    # 1. edges of the coarse graph: sums over pairs of aggregates
    indptr, indices, data = run(*operator.graph.pattern, weights, part, begin, order)
    graph = Graph((RowBlock(0, indptr, indices, data),), n)
    # 2. metric and diagonal: sums over aggregates
    metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
    # P'AP exactly, signs or none: what the diagonal has beyond (signed) row sums is added up.
    extra = np.bincount(part, operator.diagonal - _signed_row_sums(operator.graph), n)
    low_rank = operator.low_rank
    level = Level(operator, part, begin, order)
    if low_rank is not None:
        low_rank = LowRank(level.restrict(low_rank.factors), low_rank.coefficients)
    coarse = replace(
        operator,
        graph=graph,
        diagonal=_signed_row_sums(graph) + extra,
        metric=np.bincount(part, metric, n),
        low_rank=low_rank,
    )
    return level, coarse


def _signed_row_sums(graph: Graph) -> Array:
    """``W 1``: the degrees, where no weight is negative."""
    return np.asarray(graph.matrix.sum(axis=1)).ravel() if graph.is_signed else graph.degrees


def build(operator: SparseOperator, coarsest: int = COARSEST_NODES) -> list[Level]:
    """Build the levels from fine to coarse; two matchings make one: about a quarter of the vertices each."""
    from spectrograd.kernels.coarsening import members

    levels: list[Level] = []
    # Two matchings per level: one alone would halve the nodes and double the number of levels.
    while operator.n_nodes > coarsest:
        first, middle = coarsen(operator)
        if middle.n_nodes > 0.9 * operator.n_nodes:
            break  # it does not shrink: stop rather than go on for ever
        second, coarse = coarsen(middle)
        assert first.part is not None
        assert second.part is not None
        # the composition of both restrictions
        part = second.part[first.part]
        begin, order = members(part, coarse.n_nodes)
        levels.append(Level(operator, part, begin, order))
        grew = coarse.graph.n_entries > 0.8 * operator.graph.n_entries
        operator = coarse
        if grew:  # an expander: coarse graphs do not get sparser
            break
    return [*levels, Level(operator)]


class Cycle:
    """``R -> about A^-1 R``: a multigrid cycle over the levels, in float32.

    The smoother is the Chebyshev polynomial of degree 2 in ``J = diag(A)^-1 A``, so that smoothing is one
    fused pass, and so is a residual: four passes per level. ``gamma = 1`` is the V-cycle; 2 improves
    each coarse correction by a second one and two steps of conjugate gradients (the K-cycle of Notay and
    Vassilevski 2008), which piecewise constant prolongation needs on long thin graphs such as roads.
    """

    def __init__(self, engine: Engine, levels: list[Level], *, gamma: int = 2) -> None:
        self.engine = engine
        self.levels = levels
        self.gamma = gamma
        # the smoother works in the metric diag(A): the same kernel, another diagonal
        self.jacobi = []
        for level in levels:
            sparse = replace(level.operator, low_rank=None)
            sums = np.maximum(sparse.row_sums, 1e-12 * sparse.row_sums.max(initial=1e-300))
            diagonal = np.maximum(sparse.diagonal, sums)  # definite even where the row term is negative
            self.jacobi.append(replace(sparse, diagonal=diagonal, metric=diagonal).astype(np.float32))
        self.inverse = self._coarsest()
        self.columns = 0.0  # columns multiplied, in units of the finest level's entries

    def _coarsest(self) -> Array | None:
        """Invert the coarsest operator, small eigenvalues raised to a floor; None where it is large."""
        if self.levels[-1].operator.n_nodes > MAX_DENSE_NODES:
            return None
        operator = self.jacobi[-1].astype(np.float64)
        assert operator.metric is not None
        # standard form B^-1/2 A B^-1/2, whose eigenvectors are orthonormal
        root = np.sqrt(operator.metric)
        values, Y = la.eigh(operator.to_dense() / np.outer(root, root))
        # a Laplacian is singular: its null vector gets a finite inverse
        floor = 1e-6 * max(float(values[-1]), 1e-300)
        Y = Y / root[:, None]
        return np.asarray((Y / np.maximum(values, floor)) @ Y.T, dtype=np.float32)

    def __call__(self, R: Array) -> Array:
        """Apply to all columns."""
        # columns of one size: a cycle is linear, and float32 neither over- nor underflows
        scale = 1 / np.maximum(np.abs(R).max(axis=0), 1e-300)
        return np.asarray(self._solve(0, np.ascontiguousarray(R * scale, dtype=np.float32)) / scale, R.dtype)

    def _solve(self, depth: int, R: Array) -> Array:
        if depth == len(self.levels) - 1:
            return self._bottom(R)
        level = self.levels[depth]
        J = self.jacobi[depth]
        assert J.metric is not None
        run = self.engine.recurrence
        c0, c1 = SMOOTHER
        # 1. pre-smooth, from zero
        R = R / J.metric[:, None]
        X = run(J, R, R, (c1, c0, 0.0))
        # 2. restrict the residual, correct on the coarse level, prolong
        rest = run(J, X, R, (-1.0, 0.0, 1.0))
        level.add_prolonged(self._coarse_correction(depth + 1, level.restrict(rest, J.metric)), X)
        # 3. post-smooth
        rest = run(J, X, R, (-1.0, 0.0, 1.0))
        self._count(depth, R, 4)
        return np.asarray(run(J, rest, X, (c1, c0, 1.0), X))

    def _bottom(self, R: Array) -> Array:
        if self.inverse is not None:
            return np.asarray(self.inverse @ R)
        J = self.jacobi[-1]
        c0, c1 = SMOOTHER
        assert J.metric is not None
        R = R / J.metric[:, None]
        self._count(len(self.levels) - 1, R, 1)
        return np.asarray(self.engine.recurrence(J, R, R, (c1, c0, 0.0)))

    def _coarse_correction(self, depth: int, R: Array) -> Array:
        """Solve on a coarse level; with gamma = 2 by two steps of conjugate gradients (K-cycle)."""
        # 1. first direction C
        C = self._solve(depth, R)
        if self.gamma == 1 or depth == len(self.levels) - 1:
            return C
        AC = self._times(depth, C)
        rho = _dots(C, AC)
        alpha = _ratio(_dots(C, R), rho)
        rest = R - AC * alpha
        # 2. second direction E, A-orthogonal to C
        E = self._solve(depth, rest)
        AE = self._times(depth, E)
        beta = _ratio(_dots(E, AC), rho)
        E = E - C * beta
        AE = AE - AC * beta
        return np.asarray(C * alpha + E * _ratio(_dots(E, rest), _dots(E, AE)))

    def _times(self, depth: int, X: Array) -> Array:
        self._count(depth, X, 1)
        return np.asarray(self.engine.apply(self.jacobi[depth], X))

    def _count(self, depth: int, X: Array, times: int) -> None:
        # in units of the finest level: what a plan and a report count
        share = self.levels[depth].operator.graph.n_entries / max(1, self.levels[0].operator.graph.n_entries)
        self.columns += times * X.shape[1] * share


def _dots(X: Array, Y: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", X, Y, dtype=np.float64), X.dtype)


def _ratio(a: Array, b: Array) -> Array:
    return np.where(np.abs(b) > 1e-30, a / np.where(b == 0, 1, b), 1).astype(a.dtype)
