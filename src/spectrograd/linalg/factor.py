"""A sparse factorisation of a shifted operator: solves, and the signs of its eigenvalues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from spectrograd.engines.protocol import Coefficients
from spectrograd.graph import Graph
from spectrograd.kernels import LANES
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.sparse import SparseOperator

if TYPE_CHECKING:
    from spectrograd.kernels.ldl.fronts import Fronts
    from spectrograd.kernels.ldl.subtrees import Parts

Array = NDArray[Any]
QUICK = 60  # operations per entry; measured: 15 on roads, 80 to 500 on planar k-NN graphs
SAFE_PIVOT = 1e-10  # of the largest: a definite matrix that is not nearly singular needs no further check


class Factor(ABC):
    """``P (A - sigma B) P' = L D L'`` for the part of A that is not low rank, in walk form.

    Vectors enter and leave the order P; between, they are in the factor's own, with whole lanes of columns.
    """

    order: Array  # the node of every place
    pivots: Array

    @staticmethod
    def of(operator: SparseOperator, sigma: float, thresholds: Thresholds = USUAL) -> Factor | None:
        """Factorise without pivoting, or None where the result cannot be trusted."""
        operator = operator.walk_form().astype(np.float64)
        diagonal = operator.diagonal - sigma * (1.0 if operator.metric is None else operator.metric)
        make = SmallFactor if operator.n_nodes <= thresholds.small else FrontFactor
        factor = make.of_matrix(operator.graph, diagonal)
        if factor is None or factor._safe():
            return factor
        x = np.cos(np.arange(len(diagonal)))[:, None]  # did errors grow? then the signs mean nothing
        product = diagonal[:, None] * x - operator.graph.matrix @ x
        return factor if np.abs(factor.solve(product) - x).max() < 1e-6 else None

    @classmethod
    @abstractmethod
    def of_matrix(cls, graph: Graph, diagonal: Array) -> Factor | None:
        """Factorise ``diag(diagonal) - W``, or None where that breaks down."""

    @property
    def quick(self) -> bool:
        """Whether another one takes no longer than a few solves."""
        return False

    @property
    def n_negative(self) -> int:
        """Eigenvalues of the pencil below sigma, by the signs of D (Sylvester)."""
        return int((self.pivots < 0).sum())

    def solve(self, X: Array) -> Array:
        """``(A - sigma B)^-1 X``."""
        inside, ones = self.enter(X), np.ones(len(X))
        ones.flags.writeable = False  # as a metric is: the same compiled kernels
        found = np.zeros_like(inside)
        self.step(ones, inside, found, self.room(inside), (1.0, 0.0, 0.0))
        return self.leave(found, X.shape[1])

    @abstractmethod
    def enter(self, X: Array) -> Array:
        """A copy of X in the order of the factor, as panels of eight columns, the last one filled up."""

    @abstractmethod
    def leave(self, panels: Array, n_columns: int) -> Array:
        """The first columns in the order of the nodes."""

    @abstractmethod
    def room(self, panels: Array) -> Array:
        """Scratch that the steps with such panels may share."""

    @abstractmethod
    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """Mutates previous: ``a (L D L')^-1 metric current + b current + c previous``, ``by = (a, b, c)``."""

    def _safe(self) -> bool:
        """A definite matrix far from singular: elimination without pivoting is stable."""
        return bool(self.pivots.min() > SAFE_PIVOT * self.pivots.max())


@dataclass(frozen=True, eq=False)
class SmallFactor(Factor):
    """By SuperLU, minimum degree: nothing is compiled for a small graph. Vectors keep the nodes' order."""

    lu: Any
    order: Array
    pivots: Array

    @classmethod
    def of_matrix(cls, graph: Graph, diagonal: Array) -> SmallFactor | None:
        """SuperLU in symmetric mode; pivots off the diagonal are a breakdown."""
        try:
            lu = sla.splu(
                sp.csc_matrix(sp.diags_array(diagonal) - graph.matrix),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:  # exactly singular: sigma is an eigenvalue
            return None
        if not np.array_equal(lu.perm_r, lu.perm_c):
            return None
        return cls(lu, np.arange(len(diagonal)), np.asarray(lu.U.diagonal()))

    def enter(self, X: Array) -> Array:
        """A copy as one panel."""
        return X[None].copy()

    def leave(self, panels: Array, n_columns: int) -> Array:
        """The one panel."""
        return np.asarray(panels[0])

    def room(self, panels: Array) -> Array:
        """None is needed."""
        return np.empty(0)

    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """One panel, which has all columns."""
        a, b, c = by
        previous *= c
        previous[0] += a * self.lu.solve(metric[:, None] * current[0]) + b * current[0]


@dataclass(frozen=True, eq=False)
class FrontFactor(Factor):
    """By compiled kernels: approximate minimum degree, dense fronts."""

    fronts: Fronts
    parts: Parts
    order: Array
    values: Array
    pivots: Array

    @property
    def quick(self) -> bool:
        """Roads: fronts so narrow that there is little to do for each entry."""
        return self.parts.operations < QUICK * self.values.size

    @classmethod
    def of_matrix(cls, graph: Graph, diagonal: Array) -> FrontFactor | None:
        """The numbers; the graph has the order and shape of the factor, for every shift."""
        from spectrograd.kernels.ldl.numeric import factorize

        (fronts, parts), W = graph.factor_layout, graph.matrix
        weights = np.ascontiguousarray(W.data, dtype=np.float64)
        found = factorize(W.indptr, W.indices, weights, diagonal, fronts, parts)
        return None if found is None else cls(fronts, parts, fronts.order, *found)

    def enter(self, X: Array) -> Array:
        """By one pass."""
        from spectrograd.kernels.ldl.panels import to_panels

        panels = np.empty((-(-X.shape[1] // LANES), len(X), LANES))
        to_panels(np.ascontiguousarray(X, dtype=np.float64), self.order, panels)
        return panels

    def leave(self, panels: Array, n_columns: int) -> Array:
        """By one pass."""
        from spectrograd.kernels.ldl.panels import from_panels

        out = np.empty((panels.shape[1], n_columns))
        from_panels(panels, self.fronts.position, out)
        return out

    def room(self, panels: Array) -> Array:
        """Panels with the places of the parts behind the columns."""
        return np.empty((len(panels), self.parts.n_places, LANES))

    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """All in one kernel."""
        from spectrograd.kernels.ldl.triangular import recur

        recur(self.fronts, self.parts, self.values, self.pivots, metric, work, current, previous, by)
