"""The basis of a block Krylov space: rows, orthonormal, that grow by one block at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine
from spectrograd.operators.laplacian import Operator

Array = NDArray[Any]
ILL = 1e-4  # ratio of squared lengths below which a block is orthogonalised a second time


class RitzValues(NamedTuple):
    """Ritz values and residuals; combinations Y of the rows, and how those couple to the front."""

    values: Array
    residuals: Array
    Y: Array
    coupling: Array


class Basis:
    """Orthonormal ``rows`` q_1 .. q_filled, of which the first ``done`` were multiplied by A.

    ``A q_j = sum_i T_ij q_i`` holds for them exactly (up to rounding), so the residual of a Ritz vector
    ``sum_j y_j q_j`` is ``T y`` on the rows that were not multiplied yet, the front.
    """

    def __init__(self, engine: Engine, operator: Operator, front: Array, limit: int) -> None:
        self.engine, self.operator, self.limit = engine, operator, limit
        self.done, self.filled, self.products = 0, int(front.shape[1]), 0
        size = limit + 2 * self.filled + 1
        self.rows = np.empty((size, len(front)), front.dtype)
        self.rows[: self.filled] = front.T
        self.T = np.zeros((size, size))
        self._tiny = 10 * float(np.finfo(front.dtype).eps) * (operator.upper - operator.lower)
        self._far = True  # the next product has parts along every row, not only along the last ones

    @property
    def front(self) -> int:
        """How many rows are still to be multiplied."""
        return self.filled - self.done

    @property
    def full(self) -> bool:
        """Whether there is no room for another block."""
        return self.filled + self.front > self.limit + 1

    def expand(self, rng: np.random.Generator) -> None:
        """Multiply the front; what is new in the product is the next one."""
        a, b = self.done, self.filled
        width = b - a
        self.rows[b : b + width] = self.engine.spmm(self.operator, self.rows[a:b].T).T
        first = 0 if self._far else max(0, a - width)
        self.T[:b, a:b], inner = self.engine.orthogonalize(self.rows, first, b, width)
        R, well = self._normalize(b, inner)
        if not well:  # once is not enough: making it orthonormal magnified what was left
            again, inner = self.engine.orthogonalize(self.rows, 0, b, len(R))
            self.T[:b, a:b] += again @ R
            R = self._normalize(b, inner)[0] @ R
        self.T[b : b + len(R), a:b] = R
        self.done, self.filled, self._far, self.products = b, b + len(R), False, self.products + width
        if len(R) == 0:  # an invariant subspace: go on with a vector outside
            self._add_random(rng)

    def _normalize(self, start: int, inner: Array) -> tuple[Array, bool]:
        """Mutates rows from ``start`` on: orthonormal, without those that vanished.

        They were combinations R of what they now are; whether they were far from dependent.
        """
        tiny = self._tiny
        if len(inner) == 1 and inner[0, 0] > 100 * tiny**2:  # a single vector, the usual case: no detours
            length = float(inner[0, 0]) ** 0.5
            self.rows[start] *= self.rows.dtype.type(1 / length)
            return np.array([[length]]), True
        squares, Y = np.linalg.eigh(inner)
        alive = squares > max(tiny**2, 1e-12 * squares[-1])
        roots = np.sqrt(squares[alive])
        if alive.any():
            self.engine.rotate(self.rows[start:], Y[:, alive] / roots)
        well = bool(squares[0] > ILL * squares[-1] and squares[0] > 100 * tiny**2)
        return roots[:, None] * Y[:, alive].T, well or not alive.any()

    def _add_random(self, rng: np.random.Generator) -> None:
        """A random direction outside the space becomes the front."""
        new = self.filled
        self.rows[new] = rng.standard_normal(self.rows.shape[1], dtype=self.rows.dtype)
        for _ in range(2):
            _, inner = self.engine.orthogonalize(self.rows, 0, new, 1)
            self.rows[new] /= np.sqrt(inner[0, 0])
        self.filled, self._far = new + 1, True

    def ritz(self) -> RitzValues:
        """What the multiplied rows tell of the spectrum."""
        m = self.done
        values, Y = np.linalg.eigh(self.T[:m, :m], UPLO="U")
        coupling = self.T[m : self.filled, :m] @ Y
        return RitzValues(values, np.sqrt((coupling**2).sum(axis=0)), Y, coupling)

    def restart(self, ritz: RitzValues, keep: int) -> None:
        """Mutates: the basis begins with its best Ritz vectors, then comes the front."""
        m, front = self.done, self.front
        self.engine.rotate(self.rows, ritz.Y[:, :keep])
        self.rows[keep : keep + front] = self.rows[m : self.filled]
        self.T[:] = 0
        self.T[np.arange(keep), np.arange(keep)] = ritz.values[:keep]
        self.T[keep : keep + front, :keep] = ritz.coupling[:, :keep]
        self.done, self.filled, self._far = keep, keep + front, True


def upper_edge(engine: Engine, operator: Operator, rng: np.random.Generator, steps: int) -> float:
    """Where the spectrum seems to end, by so many steps from a random vector; at most what is known."""
    x = rng.standard_normal((operator.n_nodes, 1), dtype=np.float32)
    basis = Basis(engine, operator.standard_form(), x / np.linalg.norm(x), steps)
    while not basis.full:
        basis.expand(rng)
    ritz = basis.ritz()
    return min(operator.upper, float(ritz.values[-1] + ritz.residuals[-1]))
