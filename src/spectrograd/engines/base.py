"""The contract of an engine: where multivectors live and products run; its base class, and random rows.

A **multivector** is N x k numbers in the form in which an engine stores them: a numpy array, a tensor on a
device, or futures on a cluster. Other packages read its ``shape`` and its ``dtype`` (numpy's) and nothing
else; every operation on it is a method of its engine, and no method changes a multivector it gets, but for
``out`` of :meth:`Engine.recurrence` and the first argument of :meth:`Engine.combine_inplace`. N-vectors
(degrees, metrics, row factors) are multivectors of one column. Everything k x k is plain numpy in float64, on
the caller's side, the same on every engine.

To write an engine, derive from :class:`Engine`:

- three methods are mandatory: ``spmm``, ``gram``, ``combine``;
- four more define how rows are stored (``from_numpy``, ``to_numpy``, ``map_blocks``, ``gather_blocks``); the
  base class has them for numpy arrays;
- all others are derived from these seven. Override one where the engine can do it faster.

``engines/numpy_engine.py`` is the example, ``docs/add_an_engine.md`` explains it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.engines.krylov_basis import MultiVectorList
from spectrograd.graph.feature_rows import FeatureRows
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.base import Capability, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.system import check
from spectrograd.typing import Array, JsonObject

Coefficients = tuple[float, float, float]  # a, b and c of a three-term recurrence
MultiVector: TypeAlias = Any  # N x k numbers that only their engine looks into

CACHED_ROWS = 4096  # rows of a dozen columns that stay in a core's cache, with the results made of them
EXPENSIVE_ROUND = 1e-3  # seconds: a network or a disk, as long as many products


@dataclass
class Work:
    """The work of an engine so far: ``passes`` over the edges, ``matvecs`` (columns multiplied) in them."""

    passes: int = 0
    matvecs: int = 0


@dataclass(frozen=True)
class Cost:
    """Hints for ``auto``: seconds of one method call with nothing to do."""

    per_round: float = 0.0

    @property
    def is_expensive(self) -> bool:
        """Whether solvers should save rounds: each one takes as long as many products."""
        return self.per_round > EXPENSIVE_ROUND


class Statistics(NamedTuple):
    """Statistics of the columns of a multivector; all but ``finite`` and ``mass`` have one entry per column.

    ``peaks`` are the entries of largest magnitude with their signs (of several the first) and ``peak_rows``
    their row numbers; ``second`` and ``fourth`` are sums of ``metric (x / |peak|)^2`` and ``^4``, and
    ``mass`` is the sum of the metric.
    """

    finite: bool
    peaks: Array
    peak_rows: Array
    second: Array
    fourth: Array
    mass: float


class KrylovBasis(Protocol):
    """An ordered set of columns as one object: each engine stores or spills them in its own way."""

    def append(self, X: MultiVector) -> None:
        """Add the columns of X behind the last ones."""
        ...

    def columns(self, start: int, stop: int) -> MultiVector:
        """Return columns start .. stop as a multivector, which later changes of the basis leave alone."""
        ...

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: make columns from ``count`` on orthogonal to the first ``count``, which are orthonormal.

        Block Gram-Schmidt, twice: columns ``first`` .. ``count`` hold nearly all of the projection. Returns
        the coefficients (count x width) and the Gram matrix of the remainder (width x width).
        """
        ...

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: replace columns start .. stop by their combinations Y; the columns behind close up."""
        ...

    def parts(self) -> Iterator[MultiVector]:
        """Iterate over the whole basis, a few columns at a time, for a checkpoint."""
        ...

    def restore(self, parts: Iterable[MultiVector]) -> None:
        """Mutates: fill an empty basis with the :meth:`parts` of another one."""
        ...


# --- Gaussian random rows: the same on every engine, however rows are cut into blocks

RANDOM_CHUNK = 4096  # rows of one generator: 20 microseconds to make it, against 100 for its numbers


def gaussian_rows(start: int, stop: int, n_columns: int, seed: int, dtype: DTypeLike) -> NDArray[Any]:
    """Rows start .. stop of a multivector of standard normal numbers, (stop - start) x n_columns.

    Each chunk of 4,096 rows has a generator of its own, keyed by the seed and the number of the chunk.

    Parameters
    ----------
    start, stop
        Numbers of the first row, and of the first row behind the last.
    n_columns
        Number of columns.
    seed
        Seed of the whole multivector.
    dtype
        ``float32`` or ``float64``.

    Examples
    --------
    >>> whole = gaussian_rows(0, 6000, 2, 7, np.float64)
    >>> bool((gaussian_rows(4000, 4500, 2, 7, np.float64) == whole[4000:4500]).all())
    True
    """
    out = np.empty((stop - start, n_columns), dtype)
    for chunk in range(start // RANDOM_CHUNK, -(-stop // RANDOM_CHUNK)):
        # the whole chunk up to ``stop`` is drawn, and cut: a row's
        # numbers do not depend on where blocks begin
        first = chunk * RANDOM_CHUNK
        last = min(first + RANDOM_CHUNK, stop)  # numbers are drawn row by row: later rows need not be drawn
        drawn = np.random.default_rng((seed, chunk)).standard_normal((last - first, n_columns), out.dtype)
        low = max(start, first)
        out[low - start : last - start] = drawn[low - first :]
    return out


def new_seed(rng: np.random.Generator) -> int:
    """Draw a seed for :func:`gaussian_rows`; mutates the generator."""
    return int(rng.integers(2**62))


# --- The base class


class Engine(ABC):
    """An engine stores multivectors and multiplies them; derived methods are written for numpy arrays.

    An engine with multivectors of another kind also overrides ``from_numpy``, ``to_numpy``, ``map_blocks``
    and ``gather_blocks``.

    Attributes
    ----------
    name
        What users call it.
    work
        Passes and matvecs so far.
    cost
        What rounds and bytes cost here.
    thresholds
        Sizes from which another algorithm is the faster one.
    capabilities
        ``resident`` where multivectors are arrays in this process's memory, which some solvers require;
        ``tensors`` where they are tensors of torch.
    has_blocked_summation
        Whether products in float32 of several columns keep their digits on long rows, too: rows are summed
        in blocks (``kernels.SUM_BLOCK``) and columns in float64, so that a certificate may rest on them.
    is_distributed
        Whether results stay on the workers until somebody asks for them; workers can write them, too.
    """

    name: ClassVar[str] = ""
    work: Work
    cost: Cost = Cost()
    thresholds: Thresholds = USUAL
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    has_blocked_summation: ClassVar[bool] = False
    is_distributed: ClassVar[bool] = False

    def summary(self) -> JsonObject:
        """Return the name and the work so far, for ``--summary-json``."""
        return {"name": self.name, "passes": self.work.passes, "matvecs": self.work.matvecs}

    # mandatory

    @abstractmethod
    def spmm(self, operator: SparseOperator, X: MultiVector) -> MultiVector:
        """``diag(diagonal) X - diag(scale) W diag(scale) X``, of an operator of :meth:`load_operator`.

        ``operator.graph.blocks`` are the row blocks of W, in memory or read again in each pass.
        """

    @abstractmethod
    def gram(
        self, X: MultiVector, Y: MultiVector, metric: MultiVector | None = None, *, symmetric: bool = False
    ) -> Array:
        """``X' diag(metric) Y`` in float64; a product known to be ``symmetric`` may cost half."""

    @abstractmethod
    def combine(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """``X C + Y E`` for small C and E, in the type of X; without Y just ``X C``."""

    # features, whose products are those of implicit similarities

    def place_features(self, rows: FeatureRows) -> Any:
        """The matrix of features as this engine keeps it; here as it is."""
        return rows

    def project(self, rows: Any, X: MultiVector) -> Array:
        """``Z' X`` on the host, in float64 (n_features x k), of features of :meth:`place_features`."""
        return np.asarray(rows.project(X))

    def expand(self, rows: Any, C: Array, like: MultiVector) -> MultiVector:
        """``Z C`` as a multivector with the type and rows of ``like``."""
        return np.asarray(rows.expand(C, like.dtype))

    # how rows are stored: here as numpy arrays

    def from_numpy(self, rows: Array) -> MultiVector:
        """Make a multivector of host rows (N x k)."""
        return np.ascontiguousarray(rows)

    def to_numpy(self, X: MultiVector, indices: Array | None = None) -> Array:
        """Return the rows with these numbers on the host; all rows are for the output only."""
        return np.asarray(X if indices is None else X[indices])

    def map_blocks(self, function: Callable[..., Array], *multivectors: MultiVector) -> MultiVector:
        """Make a multivector of ``function(start, *blocks) -> rows``, of numpy blocks of the same rows.

        ``start`` is the number of the first row; the engine decides how rows are cut (here: one block).
        """
        return function(0, *multivectors)

    def gather_blocks(self, function: Callable[..., object], *multivectors: MultiVector) -> list[Any]:
        """Return the results of ``function(start, *blocks)`` on the host, in the order of the rows."""
        starts = range(0, multivectors[0].shape[0], CACHED_ROWS)
        return [
            function(start, *(multivector[start : start + CACHED_ROWS] for multivector in multivectors))
            for start in starts
        ]

    # derived: operators

    def threads(self) -> AbstractContextManager[None]:
        """Use as many threads as the user allowed while inside; here there is nothing to limit."""
        return nullcontext()

    def load_operator(self, operator: Operator) -> Operator:
        """Return the operator with its N-vectors and low-rank factors as multivectors; once per solve."""
        return operator.to_engine(self)

    def apply(self, operator: Operator, X: MultiVector, *more: MultiVector) -> Any:
        """``A X`` in the type of X (and ``A Y`` ..., then as a tuple) in one pass over the edges."""
        check()
        multivectors = (X, *more)
        if any(multivector.dtype != X.dtype for multivector in more):
            raise TypeError("multivectors that share a pass must be of one type")
        self.work.passes += 1
        self.work.matvecs += sum(multivector.shape[1] for multivector in multivectors)
        if not more:
            return operator.product(self, X)
        # side by side through one pass: reading the edges costs more than the columns
        product = operator.product(self, self.hstack(*multivectors))
        ends = np.cumsum([0, *(multivector.shape[1] for multivector in multivectors)])
        return tuple(self.columns(product, slice(*ends[i : i + 2])) for i in range(len(multivectors)))

    def column_product(self, operator: Operator, dtype: DTypeLike) -> Callable[[Array], Array]:
        """Return a function for many products of single columns: ``A x`` of an array (N,) of this type."""
        return lambda x: self.to_numpy(self.apply(operator, self.from_numpy(x[:, None])))[:, 0]

    def subtract_low_rank(self, product: MultiVector, low_rank: LowRank, X: MultiVector) -> MultiVector:
        """``product - Z diag(a) Z' X`` with factors Z that are multivectors; may use the product's memory."""
        Z = low_rank.factors
        a = low_rank.coefficients
        return self.combine(product, np.eye(X.shape[1]), Z, -a[:, None] * self.gram(Z, X))

    def recurrence(
        self,
        operator: Operator,
        X: MultiVector,
        before: MultiVector,
        coefficients: Coefficients,
        out: MultiVector | None = None,
    ) -> MultiVector:
        """``a B^-1 A X + b X + c before`` in one pass, for a loaded operator without ``scale``.

        Parameters
        ----------
        operator
            A, with the metric B.
        X, before
            Multivectors N x k: the last two terms of the recurrence.
        coefficients
            a, b and c.
        out
            A multivector whose memory may be used again, ``before`` itself perhaps; here it is not.
        """
        # (k, k) each: combine takes small matrices
        a, b, c = (value * np.eye(X.shape[1]) for value in coefficients)
        product = self.apply(operator, X)
        if operator.metric is not None:
            product = self.map_blocks(_divide, product, operator.metric)
        moved = self.combine(product, a, X, b)
        return moved if coefficients[2] == 0 else self.combine(moved, np.eye(X.shape[1]), before, c)

    def residual(self, operator: Operator, Q: MultiVector, AQ: MultiVector, values: Array) -> Array:
        """Norms of ``A q - theta B q`` in ``B^-1``, one for each of the ``values``: the first columns of Q.

        From the differences, row by row: through Gram matrices they would cancel.
        """
        metric = () if operator.metric is None else (operator.metric,)
        squares = self.gather_blocks(lambda _, *blocks: _residual_squares(values, *blocks), Q, AQ, *metric)
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    # derived: algebra

    def grams(
        self,
        pairs: Sequence[tuple[MultiVector, MultiVector]],
        metric: MultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> list[Array]:
        """Return several Gram matrices in one metric, in one round where rounds are expensive."""
        return [self.gram(X, Y, metric, symmetric=symmetric) for X, Y in pairs]

    def combine_inplace(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """As :meth:`combine` for a square C; may mutate X, which must not be used any more."""
        return self.combine(X, C, Y, E)

    def subtract(self, X: MultiVector, blocks: Sequence[MultiVector], C: Sequence[Array]) -> MultiVector:
        """``X - sum_i Y_i C_i`` of blocks Y_i and small C_i, in the type of X."""
        for block, coefficients in zip(blocks, C, strict=True):
            X = self.combine(X, np.eye(X.shape[1]), block, -coefficients)
        return X

    def scale_rows(self, X: MultiVector, factors: MultiVector) -> MultiVector:
        """``diag(factors) X``, in the type of X."""
        return self.map_blocks(_multiply, X, factors)

    def columns(self, X: MultiVector, chosen: slice) -> MultiVector:
        """Return some columns of X."""
        return self.combine(X, np.eye(X.shape[1])[:, chosen])

    def hstack(self, *multivectors: MultiVector) -> MultiVector:
        """Put multivectors side by side, in the type of the first."""
        joined, *others = multivectors
        for multivector in others:
            a = joined.shape[1]
            b = multivector.shape[1]
            joined = self.combine(joined, np.eye(a, a + b), multivector, np.eye(b, a + b, a))
        return joined

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> KrylovBasis:
        """Make an empty basis that will not have more than ``limit`` columns at a time."""
        return MultiVectorList(self)

    # derived: rows

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> MultiVector:
        """Draw Gaussian numbers that depend on the seed alone: not on the engine, nor on the row blocks."""
        return self.from_numpy(gaussian_rows(0, n_rows, n_columns, seed, dtype))

    def astype(self, X: MultiVector, dtype: DTypeLike) -> MultiVector:
        """Convert X to another type; X itself where it is of that type."""
        return X if X.dtype == dtype else self.map_blocks(lambda _, rows: rows.astype(dtype), X)

    def scatter_rows(self, X: MultiVector, chosen: Array, n_rows: int) -> MultiVector:
        """Make a multivector of ``n_rows`` rows: those of X at the numbers ``chosen``, zeros elsewhere."""
        out = np.zeros((n_rows, X.shape[1]), X.dtype)
        out[chosen] = self.to_numpy(X)
        return self.from_numpy(out)

    # derived: statistics

    def column_statistics(self, X: MultiVector, metric: MultiVector | None = None) -> Statistics:
        """Measure whole columns: finite or not, where they peak, on how many rows they live."""
        # 1. peaks, 2. moments in units of the peaks: squares of tiny or huge entries leave float64
        peaks, rows, finite = _first_peaks(self.gather_blocks(_peaks, X))
        # columns of zeros stay zeros
        units = np.maximum(np.abs(peaks), 1e-300)
        weights = () if metric is None else (metric,)
        sums = self.gather_blocks(lambda _, *blocks: _moments(units, *blocks), X, *weights)
        second, fourth, mass = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        return Statistics(finite, peaks, rows, second, fourth, float(mass))


# --- Functions of numpy blocks, for map_blocks and gather_blocks


def _divide(_: int, X: Array, divisor: Array) -> Array:
    return np.asarray(X / divisor, dtype=X.dtype)


def _multiply(_: int, X: Array, factors: Array) -> Array:
    return np.asarray(X * factors, dtype=X.dtype)


def _residual_squares(values: Array, Q: Array, AQ: Array, metric: Array | float = 1.0) -> Array:
    k = len(values)
    # float64 before the difference: A q and theta B q agree in most of their digits
    rest = AQ[:, :k].astype(np.float64) - metric * Q[:, :k] * values
    return np.asarray((rest**2 / metric).sum(axis=0))


def _peaks(start: int, rows: Array) -> tuple[Array, Array, bool]:
    """Entries of largest magnitude, their row numbers, and whether all numbers are finite."""
    where = np.abs(rows.T, order="C").argmax(axis=1)
    return (
        rows[where, np.arange(rows.shape[1])].astype(np.float64),
        where + start,
        bool(np.isfinite(rows).all()),
    )


def _first_peaks(parts: list[tuple[Array, Array, bool]]) -> tuple[Array, Array, bool]:
    peaks, rows, finite = parts[0]
    for other, where, good in parts[1:]:
        # strictly: of equal peaks the first row wins, however rows are cut into blocks
        higher = np.abs(other) > np.abs(peaks)
        peaks = np.where(higher, other, peaks)
        rows = np.where(higher, where, rows)
        finite = finite and good
    return peaks, rows, finite


def _moments(units: Array, rows: Array, metric: Array | None = None) -> tuple[Array, Array, float]:
    mass = np.ones((len(rows), 1)) if metric is None else metric.reshape(-1, 1).astype(np.float64)
    squares = (rows / units) ** 2
    return (mass * squares).sum(axis=0), (mass * squares**2).sum(axis=0), float(mass.sum())
