"""How many eigenvalues lie below a number? Sylvester's law tells, where a factorisation is cheap."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from spectrograd.laplacian import Operator

Array = NDArray[Any]


def count_below(operator: Operator, tau: float) -> int | None:
    """Number of eigenvalues of the pencil below ``tau``, or None if the factorisation cannot be trusted.

    The sparse part is factorised as ``P (A - tau) P' = L D L'``; the signs of D are the signs of the
    eigenvalues. A low-rank part is added by Haynsworth's formula for the bordered matrix
    ``[[A - tau, Z], [Z', diag(1/a)]]``, whose inertia can be counted from either corner.
    """
    standard = operator.standard_form().astype(np.float64)
    matrix = _sparse_part(standard) - tau * sp.eye_array(standard.n_nodes)
    try:
        factor = sla.splu(
            sp.csc_array(matrix),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular: tau is an eigenvalue
        return None
    if not np.array_equal(factor.perm_r, factor.perm_c) or not _solves(factor, matrix):
        return None  # off-diagonal pivots or error growth: the signs mean nothing
    below = int((factor.U.diagonal() < 0).sum())
    if standard.low_rank is None:
        return below
    Z, a = standard.low_rank.factors, standard.low_rank.coefficients
    Z, a = Z[:, a != 0], a[a != 0]
    corner = np.diag(1 / a) - Z.T @ factor.solve(np.ascontiguousarray(Z))
    values = np.linalg.eigvalsh((corner + corner.T) / 2)
    return below + int((values < 0).sum()) - int((a < 0).sum())


def _sparse_part(standard: Operator) -> sp.csr_array:
    """``A`` without its low-rank part as one sparse matrix."""
    weights = standard.graph.matrix
    if standard.scale is not None:
        scaling = sp.diags_array(standard.scale)
        weights = scaling @ weights @ scaling
    return sp.csr_array(sp.diags_array(standard.diagonal) - weights)


def _solves(factor: Any, matrix: sp.csr_array) -> bool:
    """Whether the factorisation is accurate enough for its signs to be believed."""
    x = np.cos(np.arange(matrix.shape[0]))
    return bool(np.abs(factor.solve(matrix @ x) - x).max() < 1e-6)
