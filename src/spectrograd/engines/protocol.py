"""What every engine can do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from numpy.typing import NDArray

from spectrograd.operators.laplacian import Operator

Array = NDArray[Any]


class Engine(Protocol):
    """Passes over the data, wherever the data lives."""

    def spmm(self, operator: Operator, U: Array) -> Array:
        """``A @ U``: one pass."""
        ...

    def gram(self, U: Array, V: Array, metric: Array | None, *, symmetric: bool = False) -> Array:
        """``U' diag(metric) V`` in float64; one known to be ``symmetric`` may cost half."""
        ...

    def combine(self, U: Array, C: Array, V: Array | None = None, E: Array | None = None) -> Array:
        """``U C + V E`` for small C and E, in the type of U; without V just ``U C``."""
        ...

    def recurrence(
        self,
        operator: Operator,
        U: Array,
        previous: Array,
        coefficients: tuple[float, float, float],
        out: Array | None = None,
    ) -> Array:
        """``alpha B^-1 A U + beta U + gamma previous`` in one pass, for an operator without ``scale``.

        ``out`` may be ``previous`` itself, whose memory is then used again.
        """
        ...

    def residual(
        self, operator: Operator, Q: Array, AQ: Array, values: Array, *, keep: bool = True
    ) -> tuple[Array, Array]:
        """``A X - B X diag(values)`` for the first columns X of Q, and its columns' norms in ``B^-1``.

        Without ``keep`` only the norms are needed.
        """
        ...

    def orthogonalize(self, rows: Array, first: int, count: int, width: int) -> tuple[Array, Array]:
        """Mutates: so many rows from ``count`` on become orthogonal to those before them.

        Rows from ``first`` on hold nearly all of them. Their coefficients, and then their inner products.
        """
        ...

    def rotate(self, rows: Array, Y: Array) -> None:
        """Mutates: the first rows become ``Y' rows``, for as many rows as Y has."""
        ...

    def threads(self) -> AbstractContextManager[None]:
        """Use as many threads as the user allowed while inside."""
        ...
