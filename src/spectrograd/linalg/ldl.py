"""Sparse ``L D L'`` factors of a shifted operator: solves, eigenvalue counts, and their size beforehand.

:class:`Factor` by SuperLU for small graphs and by our multifrontal kernels for others; :func:`count_below`
(Sylvester's law of inertia); :func:`estimate_factor_size` from the widths of breadth-first levels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from spectrograd.engines.base import Coefficients
from spectrograd.graph import Graph
from spectrograd.graph.graph import Levels, levels
from spectrograd.kernels import LANES
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.sparse import SparseOperator
from spectrograd.system import machine_memory
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.kernels.ldl_symbolic import Fronts, Parts


QUICK_OPERATIONS = 60  # operations per entry; measured: 15 on roads, 80 to 500 on planar k-NN graphs
SAFE_PIVOT = 1e-10  # of the largest: a definite matrix that is not nearly singular needs no further check


class Factor(ABC):
    """``P (A - sigma B) P' = L D L'`` for the part of A that is not low rank, in random-walk form.

    ``transform`` brings vectors to the order P, as panels of whole lanes of columns; ``inverse_transform``
    brings them back.
    """

    order: Array  # P: the node of every row of the factor
    pivots: Array

    @staticmethod
    def of(operator: SparseOperator, sigma: float, thresholds: Thresholds = USUAL) -> Factor | None:
        """Factorise without pivoting, or None where the result cannot be trusted."""
        # without a scale A and B are congruent to the original ones: the same signs, the same pivots
        operator = operator.random_walk_form().astype(np.float64)
        diagonal = operator.diagonal - sigma * (1.0 if operator.metric is None else operator.metric)
        make = SmallFactor if operator.n_nodes <= thresholds.small else FrontFactor
        factor = make.of_matrix(operator.graph, diagonal)
        if factor is None or factor._safe():
            return factor
        # 2. pivots of both signs: accept the factor only if it reproduces a vector that is not smooth
        x = np.cos(np.arange(len(diagonal)))[:, None]  # did errors grow? then the signs mean nothing
        product = diagonal[:, None] * x - operator.graph.matrix @ x
        return factor if np.abs(factor.solve(product) - x).max() < 1e-6 else None

    @classmethod
    @abstractmethod
    def of_matrix(cls, graph: Graph, diagonal: Array) -> Factor | None:
        """Factorise ``diag(diagonal) - W``, or None where that breaks down."""

    @property
    def quick(self) -> bool:
        """Whether another factorisation takes no longer than a few solves."""
        return False

    @property
    def n_negative(self) -> int:
        """Eigenvalues of the pencil below sigma, by the signs of D (Sylvester)."""
        return int((self.pivots < 0).sum())

    def solve(self, X: Array) -> Array:
        """``(A - sigma B)^-1 X``."""
        panels = self.transform(X)
        ones = np.ones(len(X))
        ones.flags.writeable = False  # as a metric is: the same compiled kernels
        solution = np.zeros_like(panels)
        self.step(ones, panels, solution, self.workspace(panels), (1.0, 0.0, 0.0))
        return self.inverse_transform(solution, X.shape[1])

    @abstractmethod
    def transform(self, X: Array) -> Array:
        """A copy of X in the order of the factor, as panels of eight columns, the last one filled up."""

    @abstractmethod
    def inverse_transform(self, panels: Array, n_columns: int) -> Array:
        """The first columns in the order of the nodes."""

    @abstractmethod
    def workspace(self, panels: Array) -> Array:
        """Scratch memory that steps with such panels may share."""

    @abstractmethod
    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """Mutates previous: ``a (L D L')^-1 metric current + b current + c previous``, ``by = (a, b, c)``.

        Parameters
        ----------
        metric : array of shape (N,)
            In the factor's order, as all vectors here.
        current, previous : arrays of shape (n_panels, N, 8)
            The last two terms of a recurrence, as panels.
        work
            Scratch memory of :meth:`workspace`.
        by
            a, b and c.
        """

    def _safe(self) -> bool:
        """A definite matrix far from singular: elimination without pivoting is stable."""
        return bool(self.pivots.min() > SAFE_PIVOT * self.pivots.max())


@dataclass(frozen=True, eq=False)
class SmallFactor(Factor):
    """A factor by SuperLU, minimum degree: nothing is compiled. Vectors keep the nodes' order."""

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

    def transform(self, X: Array) -> Array:
        """A copy as one panel."""
        return X[None].copy()

    def inverse_transform(self, panels: Array, n_columns: int) -> Array:
        """The one panel."""
        return np.asarray(panels[0])

    def workspace(self, panels: Array) -> Array:
        """No scratch memory is needed."""
        return np.empty(0)

    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """One panel, which has all columns."""
        a, b, c = by
        previous *= c
        previous[0] += a * self.lu.solve(metric[:, None] * current[0]) + b * current[0]


@dataclass(frozen=True, eq=False)
class FrontFactor(Factor):
    """A factor by compiled kernels: approximate minimum degree, dense fronts."""

    fronts: Fronts
    parts: Parts
    order: Array
    values: Array
    pivots: Array

    @property
    def quick(self) -> bool:
        """Roads: fronts so narrow that there is little to do for each entry."""
        return self.parts.operations < QUICK_OPERATIONS * self.values.size

    @classmethod
    def of_matrix(cls, graph: Graph, diagonal: Array) -> FrontFactor | None:
        """Compute the numbers of L and D; the graph has the ordering and symbolic factor, for every shift."""
        from spectrograd.kernels.ldl_numeric import factorize

        fronts, parts = graph.factor_layout
        W = graph.matrix
        weights = np.ascontiguousarray(W.data, dtype=np.float64)
        numbers = factorize(W.indptr, W.indices, weights, diagonal, fronts, parts)
        return None if numbers is None else cls(fronts, parts, fronts.order, *numbers)

    def transform(self, X: Array) -> Array:
        """Copy X to panels, in one pass."""
        from spectrograd.kernels.ldl_numeric import to_panels

        panels = np.empty((-(-X.shape[1] // LANES), len(X), LANES))
        to_panels(np.ascontiguousarray(X, dtype=np.float64), self.order, panels)
        return panels

    def inverse_transform(self, panels: Array, n_columns: int) -> Array:
        """Copy panels back, in one pass."""
        from spectrograd.kernels.ldl_numeric import from_panels

        out = np.empty((panels.shape[1], n_columns))
        from_panels(panels, self.fronts.position, out)
        return out

    def workspace(self, panels: Array) -> Array:
        """Panels with the places of the parts behind the columns."""
        return np.empty((len(panels), self.parts.n_places, LANES))

    def step(self, metric: Array, current: Array, previous: Array, work: Array, by: Coefficients) -> None:
        """Take the step in one kernel."""
        from spectrograd.kernels.ldl_numeric import recur

        recur(self.fronts, self.parts, self.values, self.pivots, metric, work, current, previous, by)


# --- Eigenvalues below a number: Sylvester's law of inertia


def count_below(operator: SparseOperator, tau: float, thresholds: Thresholds = USUAL) -> int | None:
    """Number of eigenvalues of the pencil below ``tau``, or None if the factorisation cannot be trusted.

    A low-rank part is added by Haynsworth's formula for the bordered matrix
    ``[[A - tau B, Z], [Z', diag(1/a)]]``, whose inertia can be counted from either corner.
    """
    operator = operator.random_walk_form().astype(np.float64)  # congruent: the same signs
    factor = Factor.of(operator, tau, thresholds)
    if factor is None or operator.low_rank is None:
        return None if factor is None else factor.n_negative
    # inertia(bordered) = inertia(A - tau B) + inertia(corner) = inertia(S) + inertia(diag(1/a))
    a = operator.low_rank.coefficients
    Z = operator.low_rank.factors[:, a != 0]
    a = a[a != 0]
    # Schur complement of the sparse corner, r x r
    corner = np.diag(1 / a) - Z.T @ factor.solve(Z)
    values = np.linalg.eigvalsh((corner + corner.T) / 2)
    return factor.n_negative + int((values < 0).sum()) - int((a < 0).sum())


# --- Size of a factor, estimated before it is made

BYTES_PER_ENTRY = 12  # a float64, zeros stored with it, and what waits on the stack meanwhile
MAX_SEARCHED_COMPONENTS = (
    8  # whose levels are searched: a search has arrays of all nodes, however small the component
)
BOTTLENECK_RATIO = 3.0  # of separators of the parts to the first: seldom reached in a plane or a ball
ROUND_LEVELS = 3.0  # levels of a round part, in diameters of what a search fills as it starts at an end
GENERATIONS = 1 / (1 - 2**-0.5)  # operations of all separators, by those of the first
FACTOR_MEMORY_SHARE = 0.75  # of the machine's memory for a factor by this estimate, which is generous


def factor_bytes(n_entries: float) -> float:
    """Estimate the bytes of a factor of so many entries."""
    return BYTES_PER_ENTRY * n_entries


def max_factor_bytes() -> float:
    """Bytes that a factor may take on this machine."""
    return FACTOR_MEMORY_SHARE * machine_memory()


class FactorSize(NamedTuple):
    """Entries of a triangular factor, and the operations (multiply and add) that it takes to make it."""

    entries: float
    operations: float

    def __add__(self, other: object) -> FactorSize:
        """The size of two parts that have no edge in common."""
        assert isinstance(other, FactorSize)
        return FactorSize(self.entries + other.entries, self.operations + other.operations)

    def times(self, number: float) -> FactorSize:
        """The size of ``number`` such parts."""
        return FactorSize(number * self.entries, number * self.operations)


NO_FACTOR = FactorSize(0.0, 0.0)


def estimate_fill(graph: Graph, enough: float = math.inf) -> float:
    """Estimate the entries of one triangular factor from the widths of breadth-first levels.

    A level is a separator. The thinnest one among those that leave at least a quarter of the vertices on
    either side has ``s`` vertices, which elimination makes a dense block of ``s^2 / 2`` entries; nested
    dissection repeats this on halves with separators that shrink like sqrt(n), so each of the
    ``log2(n)`` generations costs as much (Lipton, Rose and Tarjan 1979). Two searches, a few milliseconds:
    the one that found the components, and one from the vertex where it ended, whose levels are thinner.
    Measured against SuperLU with minimum degree: 0.9 to 1.25 times the truth on road networks and k-NN
    graphs in the plane, thousands of times the edges on block models.

    Where the first search already shows ``enough`` entries its estimate is returned. It is higher than that
    of both: rings around the middle of a disk or a ball hold 1.6 times the vertices of a cut
    across, so 2.5 times the entries.
    """
    return estimate_factor_size(graph, enough).entries


def estimate_factor_size(graph: Graph, enough: float = math.inf) -> FactorSize:
    """Estimate entries as :func:`estimate_fill` does, and operations.

    A dense block of ``s`` vertices takes ``s^3 / 3`` operations; of the halves, each with a separator of
    ``s / sqrt(2)``, there are ``2^g`` in generation g, so all of them take ``1 / (1 - 2^-1/2)`` times the
    first. A graph that is dense already has few entries per edge and no less work.
    """
    # The least of three: separators, cycles, and a matrix that is dense altogether.
    edges = float(graph.n_edges)
    column = edges / max(1, graph.n_nodes)
    n = float(graph.n_nodes)
    blocks = min(_total(graph, enough), _kernel(graph), FactorSize(n**2 / 2, n**3 / 3))
    return FactorSize(edges + graph.n_nodes, edges * column) + blocks


def _kernel(graph: Graph) -> FactorSize:
    """An upper bound: vertices of one or two neighbours go first and fill nothing, whatever the levels are.

    The rest has at most ``2 c`` vertices, c being the number of independent cycles; a tree has none.
    """
    n_components = int(graph.search.component.max(initial=0)) + 1
    n_left = 2.0 * (graph.n_edges - graph.n_nodes + n_components)
    return FactorSize(n_left**2 / 2, n_left**3 / 3)


def _total(graph: Graph, enough: float) -> FactorSize:
    """Sum over all components, or at least ``enough`` entries; the largest few stand for the others."""
    search = graph.search
    if search.first.size == graph.n_nodes:
        return _cost(graph, search.first, enough)
    # several components: the largest few are measured
    sizes = np.bincount(search.component)
    first = np.unique(search.component, return_index=True)[1]
    largest = np.argsort(sizes, kind="stable")[::-1][:MAX_SEARCHED_COMPONENTS]
    total = NO_FACTOR
    for c in largest:
        total += _cost(graph, levels(*graph.pattern, int(first[c])), enough)
        if total.entries >= enough:
            return total
    others = np.delete(sizes, largest).astype(np.float64)
    # the others: as dense as the measured ones by their size, or a dense block each, whichever is less
    alike = total.times(others.sum() / sizes[largest].sum())
    dense = FactorSize(float((others**2).sum()) / 2, float((others**3).sum()) / 3)
    return total + min(alike, dense)


def _cost(graph: Graph, first: Levels, enough: float) -> FactorSize:
    """Size of the factor of one component, beyond its edges."""
    rough = _blocks(first.widths)
    return rough if rough.entries >= enough else _blocks(levels(*graph.pattern, first.last).widths)


def _blocks(widths: Array) -> FactorSize:
    """Sum the dense blocks of separators, from the widths of breadth-first levels.

    The law of shrinking separators holds for graphs without a bottleneck: where a thin level joins parts
    whose own separators are far thicker (clusters of points in many dimensions), each part is estimated by
    itself.
    """
    at = _separator(widths)
    # the separator is eliminated last, as a dense s x s block
    s = float(widths[at])
    dense = FactorSize(s**2 / 2, s**3 / 3)
    parts = [part for part in (widths[:at], widths[at + 1 :]) if len(part) > 1]
    if any(part[_separator(part)] > BOTTLENECK_RATIO * widths[at] for part in parts):
        return sum((_blocks(part) for part in parts), dense)
    cuts = _cuts_of_a_tube(widths, s)
    if cuts == 0:
        return FactorSize(dense.entries * math.log2(widths.sum() + 1), GENERATIONS * dense.operations)
    # A long tube: cuts of the mean level, each with one next to it in its front, and round pieces between.
    square = float(np.mean(np.square(widths, dtype=np.float64)))
    cube = float(np.mean(np.power(widths, 3, dtype=np.float64)))
    piece = FactorSize(square / 2 * math.log2(widths.sum() / (cuts + 1) + 1), GENERATIONS * cube / 3)
    front = FactorSize(square / 2 + square, (1 / 3 + 1 + 1) * cube)
    return piece.times(cuts + 1) + front.times(cuts)


def _cuts_of_a_tube(widths: Array, separator: float) -> float:
    """Number of cuts of one size that a long part takes before its separators begin to shrink.

    A search that starts at an end fills the cross-section after some levels. A square or a ball has two to
    three times as many levels as twice that, which is what the law of shrinking separators stands for; more
    of them make a tube (a trajectory of cells with noise in many dimensions). The slower end counts: a search
    leaves a round cluster across all of its width, so the last levels are wide at once.
    """
    filled = widths >= separator / 2
    radius = max(1, int(np.argmax(filled)), int(np.argmax(filled[::-1])))
    return max(0.0, len(widths) / (2 * radius) - ROUND_LEVELS - 1)


def _separator(widths: Array) -> int:
    """The thinnest level that cuts off at least a quarter on each side, or the widest one."""
    # vertices below and above each level
    total = widths.sum()
    below = np.cumsum(widths) - widths
    above = total - below - widths
    fair = np.flatnonzero(np.minimum(below, above) >= total / 4)
    return int(fair[np.argmin(widths[fair])]) if len(fair) else int(np.argmax(widths))
