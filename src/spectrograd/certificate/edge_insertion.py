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
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from spectrograd.certificate.certificate import MAX_MISS_ODDS, ComplementBound
from spectrograd.typing import Array

BISECTIONS = 10  # of the interval from the last eigenvalue to complete_below: tau to a thousandth of it
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

        By bisection: the diagonal falls with tau, so a matrix that is semidefinite at one tau is so at all
        below. The tau that is returned was tried itself.
        """
        if not complete_below > top:
            return None
        bound = None
        low = top
        high = complete_below
        for _ in range(BISECTIONS):
            tau = (low + high) / 2
            if self._stays_semidefinite(complete_below, tau):
                bound = low = tau
            else:
                high = tau
        return bound

    @cached_property
    def _edges_of_changed_rows(self) -> tuple[Array, sp.csr_array]:
        """The rows that gained edges, and those edges between them."""
        rows = np.flatnonzero(np.diff(self.edges.indptr))
        return rows, self.edges[rows][:, rows]

    def _stays_semidefinite(self, complete_below: float, tau: float) -> bool:
        """Whether ``diag(g) - E + R`` is seen to be positive semidefinite at tau."""
        # g = (e - r) - tau (e - r) + (complete_below - tau) d, less a slack for stored weights, and less r
        g = self.more_diagonal - tau * self.more_mass + (complete_below - tau) * self.mass
        g -= DEGREE_SLACK * (self.mass + np.maximum(self.more_mass, 0))
        if self.lost is not None:
            g -= self.lost
        if g.min() < 0:
            return False
        # elsewhere the matrix is diagonal, and g >= 0 is enough
        rows, edges = self._edges_of_changed_rows
        own = g[rows]
        y = np.ones(len(rows))
        if not (own > 0).all():
            return False
        # A vector y > 0 with E y <= g y proves it (Collatz-Wielandt); the power method looks for one.
        for _ in range(POWER_STEPS):
            pull = edges @ y
            if (pull <= own * y).all():
                return True
            y = (y + pull / own) / 2
            y /= y.max()
        return False
