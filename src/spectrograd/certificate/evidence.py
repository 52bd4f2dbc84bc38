"""What is known of the eigenvectors that a solver did not return, and with which odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GOOD_ANGLE = 0.03  # what clustering needs: beyond it labels no longer change
LIKELY_MISS = 1e-3
ENOUGH = LIKELY_MISS / 2
LEAST_PART, MOST_PART = 0.05, 0.5  # of the gap: where tau may lie


@dataclass(frozen=True, eq=False)
class Complement:
    """What lies outside the found subspace; this one knows it.

    ``lowest`` is the smallest eigenvalue there (or Ritz value, where it is not known), ``columns`` the cost,
    in products of the operator with single columns, and nothing lies below ``sure`` (None: ``lowest``).
    """

    lowest: float
    columns: int = 0
    sure: float | None = None

    def odds_below(self, tau: float) -> float:
        """The chance of evidence this good if an eigenvector with eigenvalue below ``tau`` was missed."""
        return 0.0 if tau < (self.lowest if self.sure is None else self.sure) else 1.0

    def farthest(self, top: float) -> float:
        """How far above the last value found, ``top``, the evidence may be taken to reach: half way."""
        return top + MOST_PART * max(self.lowest - top, 0.0)


def needed_cut(top: float, lowest: float, residual: float) -> float:
    """``tau`` between the last value found and the lowest outside: so far must the evidence reach.

    By Davis and Kahan ``residual / (tau - top)`` bounds the sine that should be good; tau is no higher
    than that takes, since evidence is cheaper the farther it stays from ``lowest``.
    """
    gap = max(lowest - top, 0.0)
    return top + float(np.clip(residual / (0.99 * GOOD_ANGLE), LEAST_PART * gap, MOST_PART * gap))
