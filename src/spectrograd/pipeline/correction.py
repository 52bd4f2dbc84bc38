"""Vectors that were good before a small change of the graph, moved to where they are good after it.

In memory by one filter, which costs little beside its products; over a disk by Rayleigh-Ritz steps, each of
which makes the most of one sweep. Both in float32, which holds what a correction can reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.certificate.carried import Carried
from spectrograd.certificate.evidence import GOOD_ANGLE, MOST_PART
from spectrograd.certificate.probe import MeasuredRitz
from spectrograd.engines import Engine
from spectrograd.engines.protocol import Tall
from spectrograd.linalg.filters import NARROWEST, Filter
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators import SparseOperator
from spectrograd.operators.protocol import Operator
from spectrograd.solvers.protocol import Problem

Array = NDArray[Any]
# Directions of which float32 knows a few digits, in squares: the products of others would be noise.
DISTINCT = 1e-6
MOST_DEGREE, MOST_SWEEPS = 16, 5  # what takes more is work for a solver
SPREAD = 1e4  # by how much a filter may let the first vector outgrow the last in float32
# Blocks of a step: vectors, changes, their products, and all side by side; and so with the vectors before.
LEAST_BLOCKS, CONJUGATE_BLOCKS = 8, 12
MARGIN = 0.95  # of what evidence from before allows, since the last eigenvalue still moves


class Moved(NamedTuple):
    """Vectors (N x k), orthonormal in the metric, how many passes they took, and the residual.

    ``last`` are Ritz pairs whose products may serve the certificate; without them the residual is that of the
    beginning.
    """

    vectors: Tall
    values: Array
    passes: float
    error: float
    last: MeasuredRitz | None = None


def filtered(engine: Engine, operator: SparseOperator, start: Array, gap: float) -> Moved | None:
    """By one filter, whose degree follows from the residual and the gap before the change.

    None where that is too small for a filter of low degree: a solver looks how wide it is now.
    """
    problem = Problem(operator, start.shape[1], engine, start)
    walk = problem.walk.operator
    block = problem.walk.enter(problem.placed_start(np.float32))
    ritz = rayleigh_ritz(engine, walk, orthonormalize(engine, block, walk.metric).Q)
    error = _size(engine, walk, ritz)
    cut = min(float(ritz.values[-1]) + gap, walk.upper - NARROWEST * (walk.upper - walk.lower))
    # the angle is measured against half of the gap
    degree = _degree(ritz.values, cut, walk.upper, error / (GOOD_ANGLE / 3 * MOST_PART * gap))
    if degree is None:
        return None
    block = problem.walk.leave(Filter(degree, cut, walk.upper).apply(engine, walk, ritz.Q))
    vectors = problem.orthonormalize(engine.cast(block, np.float64)).Q
    return Moved(vectors, ritz.values, 1.0 + degree, error)


def _degree(values: Array, cut: float, upper: float, gain: float) -> int | None:
    """That damps what lies above the cut by ``gain`` against the last value; None: too high."""
    half = (upper - cut) / 2
    first, last = (np.arccosh(max(1.0, (upper - half - float(value)) / half)) for value in values[[0, -1]])
    most = min(MOST_DEGREE, np.log(SPREAD) / max(first - last, 1e-9))
    degree = np.ceil(np.arccosh(max(gain, 1.0)) / max(last, 1e-9))
    return max(1, int(degree)) if degree <= most else None


def _size(engine: Engine, operator: Operator, ritz: Ritz) -> float:
    return float(np.linalg.norm(residuals(engine, operator, ritz)))


@dataclass(eq=False)
class Steps:
    """Rayleigh-Ritz steps, one sweep each, until evidence from before the change is enough.

    ``gap`` is the one before the change, ``n_blocks`` how many blocks of k columns memory has room for; with
    twelve, steps are conjugate. Combinations may enlarge the rounding errors of the products they
    are made of; ``grown`` says by how much.
    """

    engine: Engine
    operator: SparseOperator
    gap: float
    outside: Carried
    n_blocks: int
    grown: float = 1.0
    _before: Ritz | None = field(default=None, repr=False)

    def taken(self, start: Array) -> Moved | None:
        """As many as it takes; None where it would be too many, by the gap or as seen."""
        engine, operator = self.engine, self.operator
        vectors = np.ascontiguousarray(start, dtype=np.float32)
        ritz = rayleigh_ritz(engine, operator, orthonormalize(engine, vectors, operator.metric).Q)
        error = _size(engine, operator, ritz)
        if self._owed(error, self._wanted(ritz), operator.upper - float(ritz.values[-1])) > MOST_SWEEPS:
            return None
        for step in range(1, MOST_SWEEPS + 1):
            ritz = self._step(ritz)
            larger, error = error, _size(engine, operator, ritz)
            wanted = self._wanted(ritz)
            if error <= wanted:
                last = MeasuredRitz(ritz, residuals(engine, operator, ritz), self.grown * self.floor)
                return Moved(ritz.Q, ritz.values, 1.0 + step, error, last)
            if error * (error / larger) ** (MOST_SWEEPS - step) > wanted:
                return None
        return None

    @property
    def floor(self) -> float:
        """By how much rounding in float32 may move an eigenvalue."""
        return self.operator.rounding(np.float32, pieced=True)

    def _wanted(self, ritz: Ritz) -> float:
        """The residual at which steps may end."""
        assert self.outside.sure is not None
        floor, distance = self.grown * self.floor, self.outside.sure - float(ritz.values[-1])
        return float(MARGIN * GOOD_ANGLE * (distance - floor) - np.sqrt(len(ritz.values)) * floor)

    def _owed(self, error: float, wanted: float, width: float) -> float:
        """About how many steps are owed at most: as with conjugate gradients on a spectrum of this width."""
        if not wanted > 0 or not self.gap > 0:
            return np.inf
        if not self.gap < width:
            return 1.0
        root = np.sqrt(self.gap / width)
        return float(np.log(2 * error / wanted) / np.log((1 + root) / (1 - root)))

    def _step(self, ritz: Ritz) -> Ritz:
        """Mutates: the k lowest Ritz pairs of vectors, ``B^-1`` times their residuals, and vectors before.

        Only the residuals are multiplied: what the others become is known.
        """
        engine, operator, before = self.engine, self.operator, self._before
        metric = 1.0 if operator.metric is None else operator.metric[:, None].astype(ritz.AQ.dtype)
        values = ritz.values.astype(ritz.AQ.dtype)
        change = ritz.AQ / metric - ritz.Q * values
        wide = [ritz.Q, change] if before is None else [ritz.Q, change, before.Q]
        products = [ritz.AQ, engine.apply(operator, change)] + ([] if before is None else [before.AQ])
        S, AS, k = engine.stack(*wide), engine.stack(*products), len(values)
        del change, wide, products
        M = engine.gram(S, S, operator.metric, symmetric=True)
        whitened, _ = inverse_factor(M, DISTINCT)
        H = whitened.T @ engine.gram(S, AS, symmetric=True) @ whitened
        found, rotation = la.eigh((H + H.T) / 2)
        lowest = whitened @ rotation[:, :k]
        self.grown *= max(1.0, float((np.sqrt(np.diag(M))[:, None] * np.abs(lowest)).sum(axis=0).max()))
        self._before = ritz if self.n_blocks >= CONJUGATE_BLOCKS else None
        return Ritz(found[:k], engine.combine(S, lowest), engine.combine(AS, lowest))
