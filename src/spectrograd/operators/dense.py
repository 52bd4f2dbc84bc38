"""DenseOperator: a small symmetric matrix as an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.operators.protocol import Operator

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class DenseOperator(Operator):
    """``A = matrix``, N x N on the host: for some hundred nodes."""

    matrix: Array
    lower: float
    upper: float
    names: Array | None = None

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    def product(self, engine: Any, X: Any) -> Any:
        """``A X``, by way of the host."""
        return engine.put(np.asarray(self.matrix @ engine.rows(X), dtype=X.dtype))

    def rounding(self, dtype: DTypeLike) -> float:
        """Sums along full rows, of the matrix as it was made."""
        return self.n_nodes * float(np.finfo(dtype).eps) * max(abs(self.lower), abs(self.upper))

    def placed(self, engine: Any) -> DenseOperator:
        """Itself."""
        return self
