"""What a certificate said of a graph it says, in part, of the graph with more edges: no probe, no pass.

Let ``(A, B)`` be the pencil before and ``(A', B')`` that after. If at most K eigenvalues were below ``sure``,
then ``x'Ax >= sure x'Bx`` on a subspace of codimension K, and there

    x'A'x - tau x'B'x >= x' [ (A' - A) - tau (B' - B) + (sure - tau) B ] x.

Where the matrix in brackets is positive semidefinite, at most K eigenvalues of ``(A', B')`` lie below tau
(Courant and Fischer). Beside its diagonal it has the edges that came and no others, so this is a look at them
alone: ``diag(g) - W`` with ``W >= 0`` is positive semidefinite if ``W y <= g y`` for some ``y > 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.certificate.evidence import LIKELY_MISS, Complement

Array = NDArray[Any]
PARTS = np.arange(9, 0, -1) / 10  # of the way to what was sure: where tau is tried
STEPS = 30  # of the power method for y: ends near the best there is
SLACK = 1e-6  # of a degree: stored weights are float32


@dataclass(frozen=True, eq=False)
class Carried(Complement):
    """Nothing below ``sure`` was missed, with the odds of the probe that had looked before."""

    odds: float = LIKELY_MISS

    def odds_below(self, tau: float) -> float:
        """Those of the probe, as far as they reach."""
        assert self.sure is not None
        return self.odds if tau < self.sure else 1.0


@dataclass(frozen=True, eq=False)
class Growth:
    """How a pencil grew.

    Attributes
    ----------
    mass : array of shape (n,)
        The diagonal of B before; zero for new nodes.
    more_mass, more_diagonal : arrays of shape (n,)
        By how much the diagonals of B and A grew.
    edges : sparse array of shape (n, n)
        The weights that were added, symmetric.
    """

    mass: Array
    more_mass: Array
    more_diagonal: Array
    edges: sp.csr_array

    def carried(self, sure: float, top: float) -> float | None:
        """The highest tau above ``top`` (of those tried) below which nothing came in; None: there is none."""
        tries = (top + part * (sure - top) for part in PARTS)
        return next((tau for tau in tries if self._keeps(sure, tau)), None) if sure > top else None

    def _keeps(self, sure: float, tau: float) -> bool:
        g = self.more_diagonal - tau * self.more_mass + (sure - tau) * self.mass
        g -= SLACK * (self.mass + self.more_mass)
        if g.min() < 0:
            return False
        rows = np.flatnonzero(np.diff(self.edges.indptr))
        own, y = g[rows], np.ones(len(rows))
        if not (own > 0).all():
            return False
        edges = self.edges[rows][:, rows]
        for _ in range(STEPS):
            pull = edges @ y
            if (pull <= own * y).all():
                return True
            y = (y + pull / own) / 2
            y /= y.max()
        return False
