"""The certificate: how far a result can be from the truth, measured after the fact."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines import Engine
from spectrograd.engines.subspace import Ritz, orthogonality_error, residuals
from spectrograd.laplacian import Operator

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Certificate:
    """Evidence about an embedding, whatever solver made it.

    Attributes
    ----------
    residuals
        ``|A q - theta B q|`` per vector in the natural norm: each interval ``theta +- residual``
        holds an eigenvalue.
    orthogonality
        Largest entry of ``|Q'BQ - I|``.
    tolerance
        What the largest residual was compared with, relative to the width of the spectrum.
    angle_bound, missed_probability
        Bound on the sine of the subspace angle, and the chance that an eigenvector was skipped;
        None where they were not measured.
    """

    residuals: Array
    eigenvalues: Array
    orthogonality: float
    tolerance: float
    converged: bool
    angle_bound: float | None = None
    missed_probability: float | None = None

    @property
    def max_residual(self) -> float:
        """The worst residual."""
        return float(self.residuals.max())

    @property
    def intervals(self) -> Array:
        """Per vector an interval that holds an eigenvalue, K x 2."""
        return np.column_stack([self.eigenvalues - self.residuals, self.eigenvalues + self.residuals])

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        word = "converged" if self.converged else "NOT converged"
        return (
            f"{word}: largest residual {self.max_residual:.2g} (asked for {self.tolerance:.2g}), "
            f"orthogonality error {self.orthogonality:.1g}"
        )

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        kept = ("converged", "orthogonality", "angle_bound", "missed_probability")
        values = asdict(self)
        return {"max_residual": self.max_residual, "sentence": self.sentence} | {k: values[k] for k in kept}


def certify(engine: Engine, operator: Operator, ritz: Ritz, tolerance: float) -> Certificate:
    """Measure Ritz pairs; costs no further pass, since ``A Q`` is known."""
    measured = residuals(engine, operator, ritz)
    orthogonality = orthogonality_error(engine, operator, ritz.Q)
    limit = tolerance * (operator.upper - operator.lower)
    good = bool(measured.max() <= limit) and orthogonality < 1e-3
    return Certificate(measured, ritz.values, orthogonality, limit, good)
