"""What an engine is: the contract between solvers and the place where tall blocks live and passes run.

A **tall** is N x k numbers in whatever form an engine keeps them: a numpy array, a tensor on a device, or
futures on a cluster. All that anybody else may ask of one is its ``shape`` and its ``dtype`` (numpy's);
everything done with it is a verb of its engine, and no verb changes a tall it was given, but for ``out`` of
:meth:`Engine.recurrence`. N-vectors (degrees, metrics, row factors) are talls of one column. Everything k x k
is plain numpy in float64, on the caller's side, the same on every engine.

To write one, derive from :class:`~spectrograd.engines.base.BaseEngine`:

- three verbs are mandatory: ``sweep``, ``gram``, ``combine``;
- four more say how rows are kept (``put``, ``rows``, ``map``, ``fold``); the base has them for numpy arrays;
- all others are derived from these seven. Override one where the engine can do it faster.

``engines/numpy_engine.py`` is the example, ``docs/add_an_engine.md`` walks through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from numpy.typing import DTypeLike, NDArray

from spectrograd.kernels.thresholds import Thresholds
from spectrograd.operators.protocol import Offer, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator

Array = NDArray[Any]
Coefficients = tuple[float, float, float]  # a, b and c of a three-term recurrence
Tall: TypeAlias = Any  # N x k numbers that only their engine looks into


@dataclass
class Work:
    """What was asked of an engine so far: ``sweeps`` over the edges, and ``columns`` multiplied in them."""

    sweeps: int = 0
    columns: int = 0


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
    """Columns of a tall X, seen as a whole; all but ``finite`` and ``mass`` have one number per column.

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

    ``labels`` is a tall of one column of integers and ``gaps`` one of squared distances to the own centre;
    ``sums`` (c x k) and ``sizes`` (c) are of the rows of each centre, ``use`` (c) is by how much the squared
    distances would grow without it, ``inertia`` the sum of all gaps.
    """

    labels: Tall
    gaps: Tall
    sums: Array
    sizes: Array
    use: Array
    inertia: float


class KrylovBasis(Protocol):
    """Columns that follow one another, as one object: an engine stores them as it likes, or spills them."""

    def append(self, X: Tall) -> None:
        """Add the columns of X behind those that are there."""
        ...

    def columns(self, start: int, stop: int) -> Tall:
        """Some of the columns as a tall, which later changes of the basis leave alone."""
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

    def parts(self) -> Iterator[Tall]:
        """All of it, a few columns at a time, for a checkpoint."""
        ...

    def restore(self, parts: Iterable[Tall]) -> None:
        """Mutates: an empty basis, which becomes the one that had these :meth:`parts`."""
        ...


class Engine(Protocol):
    """Where tall blocks live and passes run."""

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
    def offers(self) -> frozenset[Offer]:
        """``resident`` where talls are arrays in this process's memory: some solvers cannot do without."""
        ...

    @property
    def sums_in_pieces(self) -> bool:
        """Whether sweeps in float32 over several columns keep their digits on long rows, too.

        Rows are then summed in pieces (``kernels.SUM_PIECE``) and columns in float64: a certificate may rest
        on such a product.
        """
        ...

    def summary(self) -> dict[str, Any]:
        """Its name and what was asked of it, for ``--summary-json``."""
        ...

    def threads(self) -> AbstractContextManager[None]:
        """Use as many threads as the user allowed while inside."""
        ...

    # operators

    def place(self, operator: Operator) -> Operator:
        """The operator with its N-vectors and low-rank factors as talls; once per solve."""
        ...

    def apply(self, operator: Operator, X: Tall, *more: Tall) -> Any:
        """``A X`` in the type of X (and ``A Y`` ..., then as a tuple): one sweep, however many talls."""
        ...

    def sweep(self, operator: SparseOperator, X: Tall) -> Tall:
        """Mandatory. ``diag(diagonal) X - diag(scale) W diag(scale) X``, of a placed operator.

        ``operator.graph.blocks`` are the row blocks of W, in memory or read again in each sweep.
        """
        ...

    def subtract_low_rank(self, product: Tall, low_rank: LowRank, X: Tall) -> Tall:
        """``product - Z diag(a) Z' X`` with factors Z that are placed; may use the product's memory."""
        ...

    def recurrence(
        self, operator: Operator, X: Tall, before: Tall, coefficients: Coefficients, out: Tall | None = None
    ) -> Tall:
        """``a B^-1 A X + b X + c before`` in one sweep, for a placed operator without ``scale``.

        ``out`` is a tall whose memory may be used again, ``before`` itself perhaps.
        """
        ...

    def residual(self, operator: Operator, Q: Tall, AQ: Tall, values: Array) -> Array:
        """Norms of ``A q - theta B q`` in ``B^-1``, one for each of the ``values``: the first columns of Q.

        From the differences, row by row: through Gram matrices they would cancel.
        """
        ...

    # algebra

    def gram(self, X: Tall, Y: Tall, metric: Tall | None = None, *, symmetric: bool = False) -> Array:
        """Mandatory. ``X' diag(metric) Y`` in float64; one known to be ``symmetric`` may cost half."""
        ...

    def combine(self, X: Tall, C: Array, Y: Tall | None = None, E: Array | None = None) -> Tall:
        """Mandatory. ``X C + Y E`` for small C and E, in the type of X; without Y just ``X C``."""
        ...

    def turned(self, X: Tall, C: Array, Y: Tall | None = None, E: Array | None = None) -> Tall:
        """As :meth:`combine` for a square C, but in the place of X, which is gone."""
        ...

    def scaled(self, X: Tall, factors: Tall) -> Tall:
        """``diag(factors) X``, in the type of X."""
        ...

    def columns(self, X: Tall, chosen: slice) -> Tall:
        """Some columns of X."""
        ...

    def stack(self, *talls: Tall) -> Tall:
        """Their columns side by side, in the type of the first."""
        ...

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> KrylovBasis:
        """An empty basis that will not have more than ``limit`` columns at a time."""
        ...

    # rows

    def put(self, rows: Array) -> Tall:
        """Host rows (N x k) as a tall."""
        ...

    def rows(self, X: Tall, indices: Array | None = None) -> Array:
        """The rows that are asked for, on the host; all of them are for the output only."""
        ...

    def map(self, function: Callable[..., Array], *talls: Tall) -> Tall:
        """A tall of ``function(start, *blocks) -> rows``, given numpy blocks of the same rows of each.

        ``start`` is the number of the first row; how the rows are cut is the engine's affair.
        """
        ...

    def fold(self, function: Callable[..., Any], *talls: Tall) -> list[Any]:
        """As :meth:`map`, but what the function returns comes to the host, in the order of the rows."""
        ...

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> Tall:
        """Gaussian numbers that depend on the seed alone: not on the engine, nor on how rows are cut."""
        ...

    def zeros(self, n_rows: int, n_columns: int, dtype: DTypeLike) -> Tall:
        """A tall of zeros."""
        ...

    def cast(self, X: Tall, dtype: DTypeLike) -> Tall:
        """X in another type."""
        ...

    def take(self, X: Tall, chosen: Array) -> Tall:
        """The rows of X with these numbers, in this order, as a tall."""
        ...

    def spread(self, X: Tall, chosen: Array, n_rows: int) -> Tall:
        """A tall of so many rows: those of X at these numbers, zeros elsewhere."""
        ...

    # statistics

    def statistics(self, X: Tall, metric: Tall | None = None) -> Statistics:
        """What is to be known of whole columns: finite or not, where they peak, on how much they live."""
        ...

    def row_norms(self, X: Tall) -> tuple[Tall, float]:
        """Lengths of the rows (N x 1, in float64) and their median, of at most 20,000 evenly spaced rows."""
        ...

    def nearest(self, X: Tall, centres: Array) -> Nearest:
        """Rows to their nearest centres: one step of k-means."""
        ...
