"""Evidence of a certificate after edges were inserted or removed: no probe, and no pass.

Let ``(A, B)`` be the pencil before and ``(A', B')`` that after. If at most K eigenvalues were below
``complete_below``, then ``x'Ax >= complete_below x'Bx`` on a subspace of codimension K, and there

    x'A'x - tau x'B'x >= x' [ (A' - A) - tau (B' - B) + (complete_below - tau) B ] x.

Where the matrix in brackets is positive semidefinite, at most K eigenvalues of ``(A', B')`` lie below tau
(Courant and Fischer). Beside its diagonal it has the edges that changed and no others, so this is a look at
them alone. Let E >= 0 be the weights that came, R >= 0 those that went, e and r their row sums, d the
diagonal of B, which is the degrees. Then the matrix is

    diag(g) - E + R,    g = (e - r) - tau (e - r) + (complete_below - tau) d.

- ``diag(h) - E`` is positive semidefinite if ``E y <= h y`` for some ``y > 0``.
- ``diag(r) + R``, a Laplacian without signs, always is. So it is enough that ``diag(g - r) - E`` is.

With no edges that came this reads ``(complete_below - tau) d >= (2 - tau) r`` at every node, and only the
degrees before and after are needed. An unnormalised Laplacian has ``B = I`` throughout: ``(complete_below -
tau) >= 2 r``. What regularisation adds to degrees, ``t = c mean(d)``, adds ``t (I - 11'/n)`` to A and ``t``
to B: where t grows A does not lose by it, where t falls by s it loses at most ``s I``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from spectrograd.certificate.certificate import MAX_MISS_ODDS, ComplementBound
from spectrograd.typing import Array

POWER_STEPS = 30  # of the power method for y
DEGREE_SLACK = 1e-6  # of a degree: stored weights are float32


@dataclass(frozen=True, eq=False)
class EdgeInsertionBound(ComplementBound):
    """No eigenvalue below ``complete_below`` was missed, with the ``odds`` of the probe before the change."""

    odds: float = MAX_MISS_ODDS

    def odds_below(self, tau: float) -> float:
        """The odds of the probe below ``complete_below``, else 1."""
        assert self.complete_below is not None
        return self.odds if tau < self.complete_below else 1.0


@dataclass(frozen=True, eq=False)
class PencilUpdate:
    """The change of a pencil ``(A, B)`` by inserted and removed edges.

    Attributes
    ----------
    mass : array of shape (n,)
        The diagonal of B before; zero for new nodes.
    more_mass, more_diagonal : arrays of shape (n,)
        By how much the diagonals of B and A grew; negative where they shrank.
    edges : sparse array of shape (n, n)
        The weights that were added, symmetric.
    lost : array of shape (n,) or None
        The weight that was taken away at every node; None: none.
    """

    mass: Array
    more_mass: Array
    more_diagonal: Array
    edges: sp.csr_array
    lost: Array | None = None

    def bound_after(self, complete_below: float, top: float) -> float | None:
        """About the highest tau above ``top`` with at most K eigenvalues below it; None: there is none.

        ``diag(g) - E`` is semidefinite where ``E y <= g y`` for some ``y > 0`` (Collatz and Wielandt), and
        ``g = a - tau b`` falls with tau: so every y gives a tau of its own, and the power method looks for a
        better y.
        """
        if not complete_below > top:
            return None
        # 1. g = a - tau b: a = (e - r) + complete_below d - r, less a slack for stored weights; b = d + e - r
        slack = DEGREE_SLACK * (self.mass + np.maximum(self.more_mass, 0))
        a = self.more_diagonal + complete_below * self.mass - slack
        if self.lost is not None:
            a -= self.lost
        b = self.mass + self.more_mass
        # 2. rows without new edges: g >= 0 is enough
        rows = np.flatnonzero(np.diff(self.edges.indptr))
        others = np.ones(len(a), bool)
        others[rows] = False
        limit = min(_highest(a[others], b[others]), (1 - DEGREE_SLACK) * complete_below)
        if not limit > top:
            return None
        # 3. rows with new edges
        edges = self.edges[rows][:, rows]
        a = a[rows]
        b = b[rows]
        y = np.ones(len(rows))
        best = top
        for _ in range(POWER_STEPS):
            pull = (edges @ y) / y
            best = max(best, min(limit, _highest(a - pull, b)))
            own = a - best * b
            if best == limit or not (own > 0).all():
                break
            # half a step of the power method for diag(g)^-1 E: a whole one may alternate
            y *= (1 + pull / own) / 2
            y /= y.max(initial=0)
        return float(best) if best > top else None


def _highest(a: Array, b: Array) -> float:
    """The highest tau with ``a - tau b >= 0`` everywhere, for ``b >= 0``."""
    positive = b > 0
    if (a[~positive] < 0).any():
        return -np.inf
    return float(np.min(a[positive] / b[positive], initial=np.inf))
