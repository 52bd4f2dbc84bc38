"""A sparse factorisation of a shifted operator: solves, and the signs of its eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from spectrograd.laplacian import SMALL, Operator

Array = NDArray[Any]
LANES = 8


@dataclass(frozen=True, eq=False)
class Factor:
    """``P (A - sigma B) P' = L D L'`` for the part of A that is not low rank (SuperLU, minimum degree)."""

    lu: Any
    matrix: sp.csr_array

    @classmethod
    def of(cls, operator: Operator, sigma: float) -> Factor | None:
        """Factorise without pivoting, or None where the result cannot be trusted."""
        matrix = _shifted(operator, sigma)
        try:
            lu = sla.splu(
                sp.csc_matrix(matrix),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # exactly singular: sigma is an eigenvalue
            return None
        factor = cls(lu, matrix)
        return factor if factor._trustworthy() else None

    @property
    def n_negative(self) -> int:
        """Eigenvalues of the pencil below sigma, by the signs of D (Sylvester)."""
        return int((self._pivots < 0).sum())

    def solve(self, X: Array) -> Array:
        """``(A - sigma B)^-1 X``."""
        return self.leave(self.solve_inside(self.enter(X)))[:, : X.shape[1]]

    def enter(self, X: Array) -> Array:
        """A copy of X in the order of the factor, its columns padded to whole lanes."""
        padded = np.zeros((len(X), -(-X.shape[1] // LANES) * LANES))
        padded[self.lu.perm_r, : X.shape[1]] = X
        return padded

    def leave(self, X: Array) -> Array:
        """Back in the order of the nodes (with the padding)."""
        return np.asarray(X[self.lu.perm_r])

    def solve_inside(self, X: Array) -> Array:
        """The solve between :meth:`enter` and :meth:`leave`; may overwrite X."""
        if len(X) <= SMALL:  # nothing is compiled for a small graph
            return self.enter(self.lu.solve(self.leave(X)))
        from spectrograd.kernels.triangular import solve_factored

        L = self._columns
        run = solve_factored if X.shape[1] > LANES else solve_factored.serial
        run(L.indptr, L.indices, L.data, self._pivots, X)
        return X

    @cached_property
    def _columns(self) -> sp.csc_array:
        """L with the unit diagonal first in every column, as SuperLU stores it."""
        L = self.lu.L
        assert np.array_equal(L.indices[L.indptr[:-1]], np.arange(L.shape[1]))
        return L

    @cached_property
    def _pivots(self) -> Array:
        return np.asarray(self.lu.U.diagonal())

    def _trustworthy(self) -> bool:
        """No pivots off the diagonal, and no growth of errors: otherwise the signs mean nothing."""
        if not np.array_equal(self.lu.perm_r, self.lu.perm_c):
            return False
        x = np.cos(np.arange(self.matrix.shape[0]))
        return bool(np.abs(self.lu.solve(self.matrix @ x) - x).max() < 1e-6)


def _shifted(operator: Operator, sigma: float) -> sp.csr_array:
    weights = operator.graph.matrix
    if operator.scale is not None:
        scaling = sp.diags_array(operator.scale)
        weights = scaling @ weights @ scaling
    metric = 1.0 if operator.metric is None else operator.metric
    return sp.csr_array(sp.diags_array(operator.diagonal - sigma * metric) - weights)
