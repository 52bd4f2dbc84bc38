"""When has a filter done enough? The singular values of the block that goes through it tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

Array = NDArray[Any]
# Largest over smallest singular value from which columns are turned to the singular vectors, each of unit
# length: rounding errors of the largest then stay with it.
UNEVEN = 100.0


class Sizes:
    """Singular values of a random block (``width`` columns) on its way through a filter.

    ``factor`` makes of the block as it is now, orthonormal or nearly so, the one without the turns taken.
    """

    def __init__(self, width: int) -> None:
        self.undo, self.factor = np.eye(width), np.eye(width)

    def measure(self, M: Array) -> None:
        """Mutates: look at the Gram matrix of the block as it is."""
        squares, V = la.eigh((M + M.T) / 2)
        if not squares[-1] > 0:
            raise FloatingPointError("the filter lost all vectors")
        self.roots, self.V = np.sqrt(np.maximum(squares, 1e-14 * squares[-1])), V
        self.factor = (self.roots[:, None] * V.T) @ self.undo

    @property
    def uneven(self) -> bool:
        """Whether rounding errors of the largest direction are about to cover the others."""
        return bool(self.roots[-1] > UNEVEN * self.roots[0])

    def evened(self) -> Array:
        """Mutates: the turn that makes the block orthonormal is to be undone in what is measured."""
        self.undo = self.factor
        return np.asarray(self.V / self.roots)

    def error(self, k: int) -> float:
        """About the sine of the angles of K directions, added up: their share of the noise.

        The other singular values are that of the rest of the spectrum, noise of one size in all directions.
        """
        squares = la.svdvals(self.factor) ** 2
        if len(squares) == k:
            return 0.0
        noise = squares[k:].mean()
        return float(np.sqrt((noise / np.maximum(squares[:k] - noise, 1e-300)).sum()))
