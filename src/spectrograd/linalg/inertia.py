"""How many eigenvalues lie below a number? Sylvester's law tells, where a factorisation is cheap."""

from __future__ import annotations

import numpy as np

from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.linalg.factor import Factor
from spectrograd.operators.sparse import SparseOperator


def count_below(operator: SparseOperator, tau: float, thresholds: Thresholds = USUAL) -> int | None:
    """Number of eigenvalues of the pencil below ``tau``, or None if the factorisation cannot be trusted.

    A low-rank part is added by Haynsworth's formula for the bordered matrix
    ``[[A - tau B, Z], [Z', diag(1/a)]]``, whose inertia can be counted from either corner.
    """
    operator = operator.walk_form().astype(np.float64)  # congruent: the same signs
    factor = Factor.of(operator, tau, thresholds)
    if factor is None or operator.low_rank is None:
        return None if factor is None else factor.n_negative
    Z, a = operator.low_rank.factors, operator.low_rank.coefficients
    Z, a = Z[:, a != 0], a[a != 0]
    corner = np.diag(1 / a) - Z.T @ factor.solve(Z)
    values = np.linalg.eigvalsh((corner + corner.T) / 2)
    return factor.n_negative + int((values < 0).sum()) - int((a < 0).sum())
