"""Rayleigh-Ritz steps that move vectors after a small change: one product each, of as many columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.certificate.carried import Carried
from spectrograd.certificate.evidence import GOOD_ANGLE, MOST_PART
from spectrograd.engines import Engine
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators import SparseOperator
from spectrograd.pipeline.needs import streamed_columns

Array = NDArray[Any]
# Directions of which float32 knows a few digits, in squares: the products of others would be noise.
DISTINCT = 1e-6
# Most steps: what they cannot mend is work for a solver. In memory some may be tried in vain.
MOST_STEPS, MOST_SWEEPS = 8, 5
MARGIN = 0.95  # of what evidence from before allows, since the last eigenvalue still moves


@dataclass(eq=False)
class Steps:
    """Steps from vectors that were good before the change.

    In float32, which holds what a correction can reach. ``gap`` is the one before the change; with evidence
    from then (``outside``) the steps end where it is enough, else where a probe has little to do.

    Attributes
    ----------
    n_done, error
        Steps taken, and the residual that is left (Frobenius norm).
    grown
        By how much combinations may have enlarged the rounding errors of the products.
    """

    engine: Engine
    operator: SparseOperator
    gap: float
    outside: Carried | None = None
    n_done: int = 0
    error: float = np.inf
    grown: float = 1.0
    _before: Ritz | None = field(default=None, repr=False)

    @property
    def floor(self) -> float:
        """By how much rounding in float32 may move an eigenvalue."""
        return self.operator.rounding(np.float32, pieced=True)

    def taken(self, start: Array) -> Ritz | None:
        """Ritz vectors (N x k) after as many steps as it takes.

        None where steps shrink the residual too slowly, by the gap or as seen: where the gap is small, a
        solver's filters do better.
        """
        engine, operator = self.engine, self.operator
        vectors = np.ascontiguousarray(start, dtype=np.float32)
        ritz = rayleigh_ritz(engine, operator, orthonormalize(engine, vectors, operator.metric).Q)
        self.error = self._residual(ritz)
        top = float(ritz.values[-1])
        most, tried = (MOST_SWEEPS, MOST_SWEEPS) if operator.is_streamed else (MOST_STEPS, 2 * MOST_STEPS)
        if self._owed(self._wanted(ritz, self.gap), operator.upper - top) > tried:
            return None
        while self.n_done < most:
            larger = self.error
            ritz, beyond = self._step(ritz)
            self.error = self._residual(ritz)
            # ``beyond`` is an upper bound on what lies there
            wanted = self._wanted(ritz, beyond - float(ritz.values[-1]))
            if self.error <= wanted:
                return ritz
            if self.error * (self.error / larger) ** (most - self.n_done) > wanted:
                return None
        return None

    def _wanted(self, ritz: Ritz, gap: float) -> float:
        """The residual at which steps may end."""
        if self.outside is None or self.outside.sure is None:
            return GOOD_ANGLE / 3 * MOST_PART * gap  # half of the gap is all that is counted on
        floor, distance = self.grown * self.floor, self.outside.sure - float(ritz.values[-1])
        return float(MARGIN * GOOD_ANGLE * (distance - floor) - np.sqrt(len(ritz.values)) * floor)

    def _owed(self, wanted: float, width: float) -> float:
        """About how many steps are owed at most: as with conjugate gradients on a spectrum of this width."""
        if not wanted > 0 or not self.gap > 0:
            return np.inf
        if not self.gap < width:
            return 1.0
        root = np.sqrt(self.gap / width)
        return float(np.log(2 * self.error / wanted) / np.log((1 + root) / (1 - root)))

    def _residual(self, ritz: Ritz) -> float:
        return float(np.linalg.norm(residuals(self.engine, self.operator, ritz)))

    def _step(self, ritz: Ritz) -> tuple[Ritz, float]:
        """Mutates: one step. The k lowest Ritz pairs and the next value.

        Rayleigh-Ritz on the vectors, ``B^-1`` times their residuals, and the vectors before. Only the
        residuals are multiplied: what the others become is known.
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
        self.n_done += 1
        self._before = ritz if self._keeps(k) else None
        return Ritz(found[:k], engine.combine(S, lowest), engine.combine(AS, lowest)), float(found[k])

    def _keeps(self, k: int) -> bool:
        """Whether there is room for the vectors before: over a disk no more than a filter takes."""
        return not self.operator.is_streamed or 12 * k <= streamed_columns(k)
