"""What an engine is: the contract between solvers and the place where multivectors live and passes run.

A **multivector** is N x k numbers in whatever form an engine keeps them: a numpy array, a tensor on a device,
or futures on a cluster. All that anybody else may ask of one is its ``shape`` and its ``dtype`` (numpy's);
everything done with it is a verb of its engine, and no verb changes a multivector it was given, but for
``out`` of :meth:`Engine.recurrence`. N-vectors (degrees, metrics, row factors) are multivectors of one
column. Everything k x k is plain numpy in float64, on the caller's side, the same on every engine.

To write one, derive from :class:`~spectrograd.engines.base.BaseEngine`:

- three verbs are mandatory: ``spmm``, ``gram``, ``combine``;
- four more say how rows are kept (``put``, ``rows``, ``map``, ``fold``); the base has them for numpy arrays;
- all others are derived from these seven. Override one where the engine can do it faster.

``engines/numpy_engine.py`` is the example, ``docs/add_an_engine.md`` walks through it.
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
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.base import Capability, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.system import check
from spectrograd.typing import Array

Coefficients = tuple[float, float, float]  # a, b and c of a three-term recurrence
MultiVector: TypeAlias = Any  # N x k numbers that only their engine looks into


@dataclass
class Work:
    """What was asked of an engine so far: ``sweeps`` over the edges, and ``columns`` multiplied in them."""

    passes: int = 0
    matvecs: int = 0


@dataclass(frozen=True)
class Cost:
    """Hints for ``auto``: seconds that one verb takes however little it does, and seconds per byte moved."""

    per_round: float = 0.0
    per_byte: float = 0.0

    @property
    def dear(self) -> bool:
        """Whether rounds are to be saved: every one is a network or a disk, as long as many products."""
        return self.per_round > 1e-3


class Statistics(NamedTuple):
    """Statistics of the columns of a multivector; all but ``finite`` and ``mass`` have one entry per column.

    ``peaks`` are the entries of largest magnitude with their signs (of several the first) and ``peak_rows``
    where they stand; ``second`` and ``fourth`` are sums of ``metric (x / |peak|)^2`` and ``^4``, and ``mass``
    is the sum of the metric.
    """

    finite: bool
    peaks: Array
    peak_rows: Array
    second: Array
    fourth: Array
    mass: float


class Nearest(NamedTuple):
    """One pass of k-means over N rows and c centres.

    ``labels`` is a multivector of one column of integers and ``gaps`` one of squared distances to the own
    centre; ``sums`` (c x k) and ``sizes`` (c) are of the rows of each centre, ``use`` (c) is by how much the
    squared distances would grow without it, ``inertia`` the sum of all gaps.
    """

    labels: MultiVector
    gaps: MultiVector
    sums: Array
    sizes: Array
    use: Array
    inertia: float


class KrylovBasis(Protocol):
    """Columns that follow one another, as one object: an engine stores them as it likes, or spills them."""

    def append(self, X: MultiVector) -> None:
        """Add the columns of X behind those that are there."""
        ...

    def columns(self, start: int, stop: int) -> MultiVector:
        """Some of the columns as a multivector, which later changes of the basis leave alone."""
        ...

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: columns from ``count`` on become orthogonal to the first ``count``, which are orthonormal.

        Those from ``first`` on hold nearly all of them. Returns the coefficients that were taken out
        (count x width), and then the inner products of what is left (width x width).
        """
        ...

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: columns start .. stop become their combinations Y; those behind close up."""
        ...

    def parts(self) -> Iterator[MultiVector]:
        """All of it, a few columns at a time, for a checkpoint."""
        ...

    def restore(self, parts: Iterable[MultiVector]) -> None:
        """Mutates: an empty basis, which becomes the one that had these :meth:`parts`."""
        ...


class Engine(Protocol):
    """Where multivectors live and passes run."""

    @property
    def work(self) -> Work:
        """Sweeps and columns so far."""
        ...

    @property
    def cost(self) -> Cost:
        """What rounds and bytes cost here."""
        ...

    @property
    def thresholds(self) -> Thresholds:
        """From which sizes on another way is the faster one."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """``resident`` where multivectors are arrays in this process's memory, which some solvers require."""
        ...

    @property
    def has_blocked_summation(self) -> bool:
        """Whether sweeps in float32 over several columns keep their digits on long rows, too.

        Rows are then summed in pieces (``kernels.SUM_BLOCK``) and columns in float64: a certificate may rest
        on such a product.
        """
        ...

    @property
    def is_distributed(self) -> bool:
        """Whether results stay where they are until somebody asks: with others, who can write them too."""
        ...

    def summary(self) -> dict[str, Any]:
        """Its name and what was asked of it, for ``--summary-json``."""
        ...

    def threads(self) -> AbstractContextManager[None]:
        """Use as many threads as the user allowed while inside."""
        ...

    # operators

    def load_operator(self, operator: Operator) -> Operator:
        """The operator with its N-vectors and low-rank factors as multivectors; once per solve."""
        ...

    def apply(self, operator: Operator, X: MultiVector, *more: MultiVector) -> Any:
        """``A X`` in the type of X (and ``A Y`` ..., then as a tuple) in one pass over the edges."""
        ...

    def spmm(self, operator: SparseOperator, X: MultiVector) -> MultiVector:
        """Mandatory. ``diag(diagonal) X - diag(scale) W diag(scale) X``, of a placed operator.

        ``operator.graph.blocks`` are the row blocks of W, in memory or read again in each sweep.
        """
        ...

    def subtract_low_rank(self, product: MultiVector, low_rank: LowRank, X: MultiVector) -> MultiVector:
        """``product - Z diag(a) Z' X`` with factors Z that are placed; may use the product's memory."""
        ...

    def recurrence(
        self,
        operator: Operator,
        X: MultiVector,
        before: MultiVector,
        coefficients: Coefficients,
        out: MultiVector | None = None,
    ) -> MultiVector:
        """``a B^-1 A X + b X + c before`` in one sweep, for a placed operator without ``scale``.

        ``out`` is a multivector whose memory may be used again, ``before`` itself perhaps.
        """
        ...

    def residual(self, operator: Operator, Q: MultiVector, AQ: MultiVector, values: Array) -> Array:
        """Norms of ``A q - theta B q`` in ``B^-1``, one for each of the ``values``: the first columns of Q.

        From the differences, row by row: through Gram matrices they would cancel.
        """
        ...

    # algebra

    def gram(
        self, X: MultiVector, Y: MultiVector, metric: MultiVector | None = None, *, symmetric: bool = False
    ) -> Array:
        """Mandatory. ``X' diag(metric) Y`` in float64; one known to be ``symmetric`` may cost half."""
        ...

    def grams(
        self,
        pairs: Sequence[tuple[MultiVector, MultiVector]],
        metric: MultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> list[Array]:
        """Several Gram matrices in one metric, which take one round where rounds are dear."""
        ...

    def combine(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """Mandatory. ``X C + Y E`` for small C and E, in the type of X; without Y just ``X C``."""
        ...

    def combine_inplace(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """As :meth:`combine` for a square C, but in the place of X, which is gone."""
        ...

    def scale_rows(self, X: MultiVector, factors: MultiVector) -> MultiVector:
        """``diag(factors) X``, in the type of X."""
        ...

    def columns(self, X: MultiVector, chosen: slice) -> MultiVector:
        """Some columns of X."""
        ...

    def hstack(self, *multivectors: MultiVector) -> MultiVector:
        """Their columns side by side, in the type of the first."""
        ...

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> KrylovBasis:
        """An empty basis that will not have more than ``limit`` columns at a time."""
        ...

    # rows

    def from_numpy(self, rows: Array) -> MultiVector:
        """Host rows (N x k) as a multivector."""
        ...

    def to_numpy(self, X: MultiVector, indices: Array | None = None) -> Array:
        """The rows that are asked for, on the host; all of them are for the output only."""
        ...

    def map_blocks(self, function: Callable[..., Array], *multivectors: MultiVector) -> MultiVector:
        """A multivector of ``function(start, *blocks) -> rows``, given numpy blocks of the same rows of each.

        ``start`` is the number of the first row; how the rows are cut is the engine's affair.
        """
        ...

    def gather_blocks(self, function: Callable[..., Any], *multivectors: MultiVector) -> list[Any]:
        """As :meth:`map`, but what the function returns comes to the host, in the order of the rows."""
        ...

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> MultiVector:
        """Gaussian numbers that depend on the seed alone: not on the engine, nor on how rows are cut."""
        ...

    def zeros(self, n_rows: int, n_columns: int, dtype: DTypeLike) -> MultiVector:
        """A multivector of zeros."""
        ...

    def astype(self, X: MultiVector, dtype: DTypeLike) -> MultiVector:
        """X in another type."""
        ...

    def take(self, X: MultiVector, chosen: Array) -> MultiVector:
        """The rows of X with these numbers, in this order, as a multivector."""
        ...

    def scatter_rows(self, X: MultiVector, chosen: Array, n_rows: int) -> MultiVector:
        """A multivector of so many rows: those of X at these numbers, zeros elsewhere."""
        ...

    # statistics

    def column_statistics(self, X: MultiVector, metric: MultiVector | None = None) -> Statistics:
        """What is to be known of whole columns: finite or not, where they peak, on how much they live."""
        ...

    def row_norms(self, X: MultiVector) -> tuple[MultiVector, float]:
        """Lengths of the rows (N x 1, in float64) and their median, of at most 20,000 evenly spaced rows."""
        ...

    def nearest(self, X: MultiVector, centres: Array) -> Nearest:
        """Rows to their nearest centres: one step of k-means."""
        ...


# --- Gaussian numbers by row: the same for any engine and any cut into blocks.

CHUNK = 4096  # rows of one generator: 20 microseconds to make it, against 100 for its numbers


def gaussian_rows(start: int, stop: int, n_columns: int, seed: int, dtype: DTypeLike) -> NDArray[Any]:
    """Rows start .. stop of a multivector of standard normal numbers, (stop - start) x n_columns.

    Each chunk of 4,096 rows has a generator of its own, keyed by the seed and the number of the chunk.

    Examples
    --------
    >>> whole = gaussian_rows(0, 6000, 2, 7, np.float64)
    >>> bool((gaussian_rows(4000, 4500, 2, 7, np.float64) == whole[4000:4500]).all())
    True
    """
    out = np.empty((stop - start, n_columns), dtype)
    for chunk in range(start // CHUNK, -(-stop // CHUNK)):
        first = chunk * CHUNK
        last = min(first + CHUNK, stop)  # numbers are drawn row by row: later rows need not be drawn
        drawn = np.random.default_rng((seed, chunk)).standard_normal((last - first, n_columns), out.dtype)
        low = max(start, first)
        out[low - start : last - start] = drawn[low - first :]
    return out


def new_seed(rng: np.random.Generator) -> int:
    """A seed for :func:`gaussian_rows` from a generator, which moves on."""
    return int(rng.integers(2**62))


# --- Every verb that follows from the mandatory ones: derive an engine from this, override for speed.

IN_CACHE = 4096  # rows of a dozen columns, with what is made of them
MEDIAN_ROWS = 20_000  # whose median stands for that of all: its error is below one in a hundred


class BaseEngine(ABC):
    """The contract of :class:`~spectrograd.engines.base.Engine` from three verbs, for numpy arrays.

    An engine with multivectors of another kind also has ``from_numpy``, ``to_numpy``, ``map_blocks`` and
    ``gather_blocks`` of its own.
    """

    name: ClassVar[str] = ""
    work: Work
    cost: Cost = Cost()
    thresholds: Thresholds = USUAL
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    has_blocked_summation: ClassVar[bool] = False
    is_distributed: ClassVar[bool] = False

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        return {"name": self.name, "passes": self.work.passes, "matvecs": self.work.matvecs}

    # mandatory

    @abstractmethod
    def spmm(self, operator: SparseOperator, X: MultiVector) -> MultiVector:
        """``diag(diagonal) X - diag(scale) W diag(scale) X`` for a placed operator."""

    @abstractmethod
    def gram(
        self, X: MultiVector, Y: MultiVector, metric: MultiVector | None = None, *, symmetric: bool = False
    ) -> Array:
        """``X' diag(metric) Y`` in float64."""

    @abstractmethod
    def combine(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """``X C + Y E`` in the type of X."""

    # how rows are kept

    def from_numpy(self, rows: Array) -> MultiVector:
        """Host rows as a multivector."""
        return np.ascontiguousarray(rows)

    def to_numpy(self, X: MultiVector, indices: Array | None = None) -> Array:
        """The rows that are asked for."""
        return np.asarray(X if indices is None else X[indices])

    def map_blocks(self, function: Callable[..., Array], *multivectors: MultiVector) -> MultiVector:
        """``function(start, *blocks)`` as a multivector; here all rows are one block."""
        return function(0, *multivectors)

    def gather_blocks(self, function: Callable[..., Any], *multivectors: MultiVector) -> list[Any]:
        """``function(start, *blocks)`` of each block, on the host; here of slices that stay in the cache."""
        starts = range(0, multivectors[0].shape[0], IN_CACHE)
        return [
            function(start, *(multivector[start : start + IN_CACHE] for multivector in multivectors))
            for start in starts
        ]

    # derived: operators

    def threads(self) -> AbstractContextManager[None]:
        """Nothing to limit."""
        return nullcontext()

    def load_operator(self, operator: Operator) -> Operator:
        """The operator with multivectors for its vectors."""
        return operator.to_engine(self)

    def apply(self, operator: Operator, X: MultiVector, *more: MultiVector) -> Any:
        """``A X``, or several products at once."""
        check()
        multivectors = (X, *more)
        if any(multivector.dtype != X.dtype for multivector in more):
            raise TypeError("multivectors that share a sweep must be of one type")
        self.work.passes += 1
        self.work.matvecs += sum(multivector.shape[1] for multivector in multivectors)
        if not more:
            return operator.product(self, X)
        product = operator.product(self, self.hstack(*multivectors))
        ends = np.cumsum([0, *(multivector.shape[1] for multivector in multivectors)])
        return tuple(self.columns(product, slice(*ends[i : i + 2])) for i in range(len(multivectors)))

    def subtract_low_rank(self, product: MultiVector, low_rank: LowRank, X: MultiVector) -> MultiVector:
        """A Gram matrix and a combination."""
        Z, a = low_rank.factors, low_rank.coefficients
        return self.combine(product, np.eye(X.shape[1]), Z, -a[:, None] * self.gram(Z, X))

    def recurrence(
        self,
        operator: Operator,
        X: MultiVector,
        before: MultiVector,
        coefficients: Coefficients,
        out: MultiVector | None = None,
    ) -> MultiVector:
        """A product and two combinations; nothing is written into ``out``."""
        a, b, c = (value * np.eye(X.shape[1]) for value in coefficients)
        product = self.apply(operator, X)
        if operator.metric is not None:
            product = self.map_blocks(_divide, product, operator.metric)
        moved = self.combine(product, a, X, b)
        return moved if coefficients[2] == 0 else self.combine(moved, np.eye(X.shape[1]), before, c)

    def residual(self, operator: Operator, Q: MultiVector, AQ: MultiVector, values: Array) -> Array:
        """Squares of the differences, summed over the blocks."""
        more = () if operator.metric is None else (operator.metric,)
        squares = self.gather_blocks(lambda _, *blocks: _residual_squares(values, *blocks), Q, AQ, *more)
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    # derived: algebra

    def grams(
        self,
        pairs: Sequence[tuple[MultiVector, MultiVector]],
        metric: MultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> list[Array]:
        """One after the other."""
        return [self.gram(X, Y, metric, symmetric=symmetric) for X, Y in pairs]

    def combine_inplace(
        self, X: MultiVector, C: Array, Y: MultiVector | None = None, E: Array | None = None
    ) -> MultiVector:
        """A new multivector: nothing can be written into the old one."""
        return self.combine(X, C, Y, E)

    def scale_rows(self, X: MultiVector, factors: MultiVector) -> MultiVector:
        """``diag(factors) X``."""
        return self.map_blocks(_multiply, X, factors)

    def columns(self, X: MultiVector, chosen: slice) -> MultiVector:
        """By a combination."""
        return self.combine(X, np.eye(X.shape[1])[:, chosen])

    def hstack(self, *multivectors: MultiVector) -> MultiVector:
        """By combinations, one multivector after the other."""
        found, *more = multivectors
        for multivector in more:
            a, b = found.shape[1], multivector.shape[1]
            found = self.combine(found, np.eye(a, a + b), multivector, np.eye(b, a + b, a))
        return found

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> KrylovBasis:
        """A list of multivectors."""
        return MultiVectorList(self)

    # derived: rows

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> MultiVector:
        """Made on the host."""
        return self.from_numpy(gaussian_rows(0, n_rows, n_columns, seed, dtype))

    def zeros(self, n_rows: int, n_columns: int, dtype: DTypeLike) -> MultiVector:
        """Made on the host."""
        return self.from_numpy(np.zeros((n_rows, n_columns), dtype))

    def astype(self, X: MultiVector, dtype: DTypeLike) -> MultiVector:
        """X itself where it is of that type."""
        return X if X.dtype == dtype else self.map_blocks(lambda _, rows: rows.astype(dtype), X)

    def take(self, X: MultiVector, chosen: Array) -> MultiVector:
        """Through the host."""
        return self.from_numpy(self.to_numpy(X, chosen))

    def scatter_rows(self, X: MultiVector, chosen: Array, n_rows: int) -> MultiVector:
        """Through the host."""
        out = np.zeros((n_rows, X.shape[1]), X.dtype)
        out[chosen] = self.to_numpy(X)
        return self.from_numpy(out)

    # derived: statistics

    def column_statistics(self, X: MultiVector, metric: MultiVector | None = None) -> Statistics:
        """Two folds: the peaks, and the moments in their units."""
        peaks, rows, finite = _first_peaks(self.gather_blocks(_peaks, X))
        units = np.maximum(np.abs(peaks), 1e-300)
        more = () if metric is None else (metric,)
        sums = self.gather_blocks(lambda _, *blocks: _moments(units, *blocks), X, *more)
        second, fourth, mass = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        return Statistics(finite, peaks, rows, second, fourth, float(mass))

    def row_norms(self, X: MultiVector) -> tuple[MultiVector, float]:
        """Lengths row by row; the median of evenly spaced ones."""
        norms, n = self.map_blocks(_lengths, X), X.shape[0]
        few = np.arange(0, n, -(-n // MEDIAN_ROWS))
        return norms, float(np.median(self.to_numpy(norms, few)))

    def nearest(self, X: MultiVector, centres: Array) -> Nearest:
        """Two maps and a fold."""
        found = self.map_blocks(
            lambda _, rows: _winners(rows, centres), X
        )  # label, gap and lead in one multivector
        tallies = self.gather_blocks(lambda _, rows, own: _tallies(rows, own, len(centres)), X, found)
        sums, sizes, use, inertia = (sum(parts) for parts in zip(*tallies, strict=True))
        labels = self.map_blocks(lambda _, own: own[:, :1].astype(np.int64), found)
        return Nearest(labels, self.columns(found, slice(1, 2)), sums, sizes, use, float(inertia))


def _divide(_: int, X: Array, divisor: Array) -> Array:
    return np.asarray(X / divisor, dtype=X.dtype)


def _multiply(_: int, X: Array, factors: Array) -> Array:
    return np.asarray(X * factors, dtype=X.dtype)


def _residual_squares(values: Array, Q: Array, AQ: Array, metric: Array | float = 1.0) -> Array:
    k = len(values)
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
        higher = np.abs(other) > np.abs(peaks)
        peaks, rows = np.where(higher, other, peaks), np.where(higher, where, rows)
        finite = finite and good
    return peaks, rows, finite


def _moments(units: Array, rows: Array, metric: Array | None = None) -> tuple[Array, Array, float]:
    mass = np.ones((len(rows), 1)) if metric is None else metric.reshape(-1, 1).astype(np.float64)
    squares = (rows / units) ** 2
    return (mass * squares).sum(axis=0), (mass * squares**2).sum(axis=0), float(mass.sum())


def _lengths(_: int, rows: Array) -> Array:
    """N x 1; squares are taken in units of the largest entry: they may leave the range of numbers."""
    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    scaled = rows / np.where(largest == 0, 1, largest)
    return np.asarray(largest * np.sqrt((scaled**2).sum(axis=1, keepdims=True)))


def _winners(rows: Array, centres: Array) -> Array:
    """Per row the nearest centre, the squared distance to it, and by how much the second best is farther."""
    rows = rows.astype(np.float64)
    scores, every = rows @ centres.T - (centres**2).sum(axis=1) / 2, np.arange(len(rows))
    labels = np.argmax(scores, axis=1)
    best = scores[every, labels]
    scores[every, labels] = -np.inf
    lead = 2 * (best - scores.max(axis=1)) if len(centres) > 1 else np.full(len(rows), np.inf)
    return np.column_stack([labels, ((rows - centres[labels]) ** 2).sum(axis=1), lead])


def _tallies(rows: Array, found: Array, count: int) -> tuple[Array, Array, Array, float]:
    labels = found[:, 0].astype(np.int64)
    sums = np.stack([np.bincount(labels, column, count) for column in rows.T], axis=1)
    use = np.bincount(labels, found[:, 2], count)
    return sums, np.bincount(labels, minlength=count), use, float(found[:, 1].sum())
