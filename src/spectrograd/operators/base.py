"""The protocol of operators, their capabilities, and a dense one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector

Capability = Literal["products", "edges", "pattern", "resident", "tensors"]
# Of an operator. ``products``: A X. ``edges``: the weights can be read, in any order. ``pattern``: who is
# whose neighbour, as one CSR matrix. Of an engine. ``resident``: multivectors are arrays in this process's
# memory. ``tensors``: they are torch's, on a device.
PRODUCTS: frozenset[Capability] = frozenset(("products",))
RESIDENT: frozenset[Capability] = frozenset(("products", "resident"))
EDGES: frozenset[Capability] = frozenset(("products", "edges", "pattern"))
ALL: frozenset[Capability] = EDGES | RESIDENT
TENSORS: frozenset[Capability] = EDGES | {"tensors"}


class Operator(ABC):
    """The pencil ``(A, B)`` of the eigenproblem ``A u = lambda B u``, never an N x N array.

    ``B = diag(metric)``. Products are an engine's: ``engine.apply(operator, X)``; how an operator breaks into
    verbs of an engine is its own :meth:`product`. Its ``capabilities`` name what a solver may ask for.

    Attributes
    ----------
    lower, upper
        Bounds on the spectrum of the pencil, known from theory: step sizes and polynomial filters
        are scaled by them.
    metric
        N numbers (a multivector N x 1 of an engine where the operator is placed), or None for ones.
    """

    lower: float
    upper: float

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of rows."""

    @property
    def metric(self) -> Any:
        """The diagonal of B; None for the identity."""
        return None

    @property
    def names(self) -> Array | None:
        """Names of the rows, where the input had any."""
        return None

    @property
    def n_edges(self) -> int:
        """Edges of its own; 0 where it has none, or they are not known."""
        return 0

    @property
    def is_streamed(self) -> bool:
        """Whether a product reads a disk."""
        return False

    @property
    def rank(self) -> int:
        """Rank of its low-rank part; 0 without one."""
        return 0

    @property
    def null_vector(self) -> Array | None:
        """A vector (N) that the operator maps to zero, where one is known."""
        return None

    @property
    def excluded_rows(self) -> Array | None:
        """Numbers of rows that take no part, all of whose eigenvectors lie at the upper end; None: none."""
        return None

    @property
    def quotients(self) -> Array | None:
        """Rayleigh quotients of the unit vectors of rows that take part, where they are known.

        The spectrum reaches at least as far as the largest of them.
        """
        return None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities that a solver may require."""
        return PRODUCTS

    @abstractmethod
    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """``A X`` by the verbs of an engine, for an operator that is placed there and a multivector X."""

    @abstractmethod
    def to_engine(self, engine: Engine) -> Operator:
        """Load the operator on an engine: everything N long becomes a multivector."""

    @abstractmethod
    def rounding(self, dtype: DTypeLike) -> float:
        """A bound on the move of an eigenvalue by rounding, of the operator as it was made (not loaded)."""

    def standard_form(self) -> Operator:
        """``B^-1/2 A B^-1/2``, whose metric is the identity."""
        return self

    def random_walk_form(self) -> Operator:
        """The same pencil in coordinates in which a pass gathers vectors unscaled."""
        return self

    @property
    def standard_factors(self) -> Array | None:
        """Row factors that turn a vector into one of :meth:`standard_form`, shape (N,); None: ones."""
        return None

    @property
    def random_walk_factors(self) -> Array | None:
        """Row factors that turn a vector into one of :meth:`random_walk_form`, shape (N,); None: ones."""
        return None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a square matrix, (n_nodes, n_nodes)."""
        return (self.n_nodes, self.n_nodes)

    def __matmul__(self, U: Array) -> Array:
        """``A @ U`` on the default engine, for numpy arrays."""
        # engines take blocks (n_nodes, n_columns) of float32 or float64
        columns = U if U.ndim == 2 else U[:, None]
        if columns.dtype not in (np.float32, np.float64):
            columns = columns.astype(np.float64)
        engine = import_module("spectrograd.engines").LocalEngine()  # by name: engines stand above operators
        result = engine.apply(self, np.ascontiguousarray(columns))
        return np.asarray(result if U.ndim == 2 else result[:, 0])

    def to_dense(self) -> Array:
        """``A`` as a dense float64 array; for tests and the dense baseline only."""
        return self @ np.eye(self.n_nodes)


class CapabilityError(ValueError):
    """A solver requires capabilities that an operator does not have."""


def check_capabilities(
    who: str, requires: frozenset[Capability], operator: Operator, capabilities: frozenset[Capability]
) -> None:
    """Raise an error that names the capabilities which an operator lacks."""
    # before any work: a solver never finds out half-way that it lacks an entry of the matrix
    missing = sorted(requires - capabilities)
    if missing:
        what = type(operator).__name__
        raise CapabilityError(
            f"solver {who!r} needs {', '.join(missing)}, but {what} on this engine offers only "
            f"{', '.join(sorted(capabilities))}: use 'auto', 'lanczos', 'chebyshev', 'power', "
            "'gradient-descent' "
            "or 'forward-backward'"
        )


@dataclass(frozen=True, eq=False)
class OperatorOfSeveral(Operator):
    """An operator made of others on the same nodes."""

    operators: tuple[Operator, ...]

    @property
    def n_nodes(self) -> int:
        """Nodes, shared by all."""
        return self.operators[0].n_nodes

    @property
    def names(self) -> Array | None:
        """Names of the nodes."""
        return self.operators[0].names


# --- DenseOperator: a small symmetric matrix as an operator.


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

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """``A X``, by way of the host."""
        return engine.from_numpy(np.asarray(self.matrix @ engine.to_numpy(X), dtype=X.dtype))

    def rounding(self, dtype: DTypeLike) -> float:
        """Sums along full rows, of the matrix as it was made."""
        return self.n_nodes * float(np.finfo(dtype).eps) * max(abs(self.lower), abs(self.upper))

    def to_engine(self, engine: Engine) -> DenseOperator:
        """Itself."""
        return self
