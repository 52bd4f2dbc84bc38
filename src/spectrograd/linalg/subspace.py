"""Linear algebra of multivectors on any engine: orthonormal bases, Rayleigh-Ritz, block Krylov spaces.

Three parts: orthonormalisation by Cholesky QR with the Rayleigh-Ritz procedure; :class:`Coordinates`, the
pencil in the form a method multiplies; :class:`Basis`, a block Krylov space with its projected matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import DTypeLike

from spectrograd.engines.base import Engine, MultiVector, new_seed
from spectrograd.engines.krylov_basis import RowBasis
from spectrograd.operators.base import Operator
from spectrograd.typing import Array, JsonMapping

NEARLY_ORTHONORMAL = 1e-2  # entries of |U' B U - I| below which one round of Cholesky QR is enough


class Orthonormal(NamedTuple):
    """A basis with ``Q' B Q = I``, and how many lost directions were replaced by random ones."""

    Q: MultiVector
    repaired: int


class Ritz(NamedTuple):
    """Ritz pairs of a subspace in ascending order, with ``A Q`` for residuals."""

    values: Array
    Q: MultiVector
    AQ: MultiVector


def orthonormalize(
    engine: Engine, U: MultiVector, metric: MultiVector | None, rng: np.random.Generator | None = None
) -> Orthonormal:
    """Make U orthonormal in the metric by Cholesky QR, twice unless U is nearly orthonormal.

    Directions that U has lost (numerically dependent columns) are replaced by random ones, and counted.

    Parameters
    ----------
    engine
        Where U lives.
    U
        Multivector, N x k with k <= N.
    metric
        Diagonal of B, N x 1; None for ones.
    rng
        Source of the random directions.
    """
    n, k = U.shape
    if k > n:  # else lost directions would be replaced without end
        raise ValueError(f"{k} vectors of length {n} cannot be orthogonal: ask for fewer")
    repaired = 0
    for _ in range(2):  # CholeskyQR2 (Yamamoto et al. 2015)
        # 1. Gram matrix and the inverse of its Cholesky factor
        M = engine.gram(U, U, metric)
        factor, lost = inverse_factor(M)
        # 2. orthonormal columns
        U = engine.combine(U, factor)
        if np.abs(M - np.eye(len(M))).max() < NEARLY_ORTHONORMAL:
            break
        # 3. random directions, orthogonal to the others, for the lost ones
        if lost:
            rng = np.random.default_rng(0) if rng is None else rng
            fresh = engine.random(U.shape[0], lost, new_seed(rng), U.dtype)
            if U.shape[1]:
                fresh = engine.combine(fresh, np.eye(lost), U, -engine.gram(U, fresh, metric))
            U = engine.hstack(U, fresh)
            repaired += lost
    if repaired:  # the fresh columns need their own two rounds
        return Orthonormal(orthonormalize(engine, U, metric, rng).Q, repaired)
    return Orthonormal(U, repaired)


def inverse_factor(M: Array, least: float = 1e-12) -> tuple[Array, int]:
    """``F`` with ``F' M F = I`` on the numerical range of M, and the number of lost directions.

    A direction is lost where its eigenvalue is below ``least`` times the largest, columns being scaled to
    unit length.
    """
    if not np.isfinite(M).all():
        raise FloatingPointError("the vectors are too long for a Gram matrix")
    if M.shape == (1, 1) and M[0, 0] > 1e-60:  # a single vector: the steps below, without LAPACK
        length = math.sqrt(M[0, 0])
        return np.array([[1 / math.sqrt(M[0, 0] / (length * length)) / length]]), 0
    # 1. columns of unit length: M becomes a correlation matrix
    squares = np.diag(M)
    lengths = np.sqrt(np.where(squares > 1e-60, squares, 1))  # a column of zeros stays one, and is lost
    scaled = M / np.outer(lengths, lengths)  # columns first: a badly scaled Gram fails needlessly
    try:
        # 2. scaled = R'R, so F = R^-1
        R = la.cholesky(scaled)
        if np.abs(np.diag(R)).min() > least**0.5:
            return la.solve_triangular(R, np.eye(len(M))) / lengths[:, None], 0
    except la.LinAlgError:
        pass
    # 3. Cholesky fails near rank loss: eigenvectors of what is left of the rank
    values, rotation = la.eigh(scaled)
    in_range = values > least * values[-1]
    factor = (rotation[:, in_range] / np.sqrt(values[in_range])) / lengths[:, None]
    return factor, int((~in_range).sum())


def rayleigh_ritz(engine: Engine, operator: Operator, Q: MultiVector) -> Ritz:
    """Rotate an orthonormal basis to Ritz vectors: one pass and a small eigenproblem."""
    # 1. project: H = Q' A Q
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    # 2. small eigenproblem, 3. Ritz vectors
    values, rotation = la.eigh((H + H.T) / 2)
    return Ritz(values, engine.combine(Q, rotation), engine.combine_inplace(AQ, rotation))


def deflated_ritz(engine: Engine, operator: Operator, Q: MultiVector, null: MultiVector) -> Ritz:
    """As :func:`rayleigh_ritz`, of a basis in which a known null vector takes the place of its approximation.

    ``Q`` is rotated such that its first column is the projection of the null vector (N x 1, of unit length in
    the metric), which is replaced by the vector itself; the other columns are orthogonal to it. The Ritz
    vectors come from the K - 1 other columns alone: the first column is exact, and its value zero. One pass.
    """
    # 1. deflate: the null vector, and the columns of Q orthogonal to it
    rotation = la.qr(engine.gram(Q, null, operator.metric))[0]
    Q = null if len(rotation) == 1 else engine.hstack(null, engine.combine(Q, rotation[:, 1:]))
    # 2. Rayleigh-Ritz on the other columns
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, Y = la.eigh((H + H.T)[1:, 1:] / 2) if len(H) > 1 else (np.empty(0), np.empty((0, 0)))
    rotation = la.block_diag(np.eye(1), Y)
    return Ritz(np.append(0.0, values), engine.combine(Q, rotation), engine.combine_inplace(AQ, rotation))


def residuals(engine: Engine, operator: Operator, ritz: Ritz) -> Array:
    """``|A q - theta B q|`` per vector in the norm of ``B^-1``: the natural one of the pencil."""
    return engine.residual(operator, ritz.Q, ritz.AQ, ritz.values)


def orthogonality_error(
    engine: Engine, operator: Operator, Q: MultiVector, n_columns: int | None = None
) -> float:
    """Largest entry of ``|Q' B Q - I|``, for all or the first columns."""
    M = engine.gram(Q, Q, operator.metric)[:n_columns, :n_columns]
    if not np.isfinite(M).all():
        raise FloatingPointError("the vectors are not finite, or too long for a Gram matrix")
    return float(np.abs(M - np.eye(len(M))).max())


# --- The pencil in the coordinates in which a method works


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A pencil whose vectors are those of the original pencil with their rows multiplied by ``factors``.

    ``operator`` is loaded on the engine; ``factors`` and ``inverse`` are multivectors N x 1, None for ones.
    """

    engine: Engine
    operator: Operator
    factors: MultiVector | None = None
    inverse: MultiVector | None = None

    @classmethod
    def standard(cls, engine: Engine, operator: Operator) -> Coordinates:
        """``B^-1/2 A B^-1/2``, without a metric."""
        return cls._of(engine, operator.standard_form(), operator.standard_factors)

    @classmethod
    def random_walk(cls, engine: Engine, operator: Operator) -> Coordinates:
        """The pencil without ``scale``, whose products gather vectors as they are."""
        return cls._of(engine, operator.random_walk_form(), operator.random_walk_factors)

    @classmethod
    def _of(cls, engine: Engine, operator: Operator, factors: Array | None) -> Coordinates:
        # (n_nodes, 1) each, so that ``scale_rows`` multiplies every column
        loaded = engine.load_operator(operator)
        if factors is None:
            return cls(engine, loaded)
        return cls(
            engine, loaded, engine.from_numpy(factors[:, None]), engine.from_numpy(1 / factors[:, None])
        )

    def transform(self, X: MultiVector) -> MultiVector:
        """Bring vectors of the original pencil to these coordinates."""
        return X if self.factors is None else self.engine.scale_rows(X, self.factors)

    def inverse_transform(self, X: MultiVector) -> MultiVector:
        """Bring vectors in these coordinates back to the original pencil."""
        return X if self.inverse is None else self.engine.scale_rows(X, self.inverse)


# --- Block Krylov spaces: orthonormal vectors that grow by one block per product

ILL_CONDITIONED = 1e-4  # ratio of squared lengths below which a block is orthogonalised a second time


class RitzValues(NamedTuple):
    """Ritz values (m) and residual norms; coefficients Y (m x m) of the Ritz vectors; their front ``T Y``."""

    values: Array
    residuals: Array
    Y: Array
    coupling: Array


class Basis:
    """Orthonormal ``vectors`` q_1 .. q_filled, of which the first ``done`` were multiplied by A.

    ``A q_j = sum_i T_ij q_i`` holds for them up to rounding, so the residual of a Ritz vector
    ``sum_j y_j q_j`` is ``T y`` on the vectors that were not multiplied yet, the front. Of a new block,
    directions below a millionth of the largest are dropped, and residuals lack that much; a certificate
    measures its own. The operator is loaded on the engine and has no metric.
    """

    def __init__(self, engine: Engine, operator: Operator, front: MultiVector, limit: int) -> None:
        size = limit + 2 * int(front.shape[1]) + 1
        self._begin(engine, operator, limit, np.zeros((size, size)), front.dtype)
        self.filled = int(front.shape[1])
        self.vectors.append(front)

    def _begin(self, engine: Engine, operator: Operator, limit: int, T: Array, dtype: DTypeLike) -> None:
        self.engine = engine
        self.operator = operator
        self.limit = limit
        self.T = T
        self.n_nodes = operator.n_nodes
        self.dtype = np.dtype(dtype)
        self.vectors = engine.basis(self.n_nodes, len(T), self.dtype)
        self.done = self.filled = self.products = 0
        self._tiny = 10 * float(np.finfo(self.dtype).eps) * (operator.upper - operator.lower)
        self._far = True  # the next product has parts along every vector, not only along the last ones

    @cached_property
    def _column_product(self) -> Callable[[Array], Array]:
        return self.engine.column_product(self.operator, self.dtype)

    def numbers(self) -> dict[str, object]:
        """All plain values of the basis; with the vectors :meth:`restore` makes the basis again."""
        numbers = {name: getattr(self, name) for name in ("limit", "done", "filled", "products", "T")}
        return numbers | {"far": self._far, "dtype": self.dtype.name}

    @classmethod
    def restore(
        cls, engine: Engine, operator: Operator, numbers: JsonMapping, parts: Iterable[MultiVector]
    ) -> Basis:
        """Restore the basis that had these :meth:`numbers` and these parts of its vectors."""
        basis = cls.__new__(cls)
        basis._begin(engine, operator, numbers["limit"], numbers["T"], numbers["dtype"])
        basis.done, basis.filled, basis.products, basis._far = (
            numbers[name] for name in ("done", "filled", "products", "far")
        )
        basis.vectors.restore(parts)
        return basis

    @classmethod
    def of_ritz_pairs(
        cls,
        engine: Engine,
        operator: Operator,
        Q: MultiVector,
        values: Array,
        front: MultiVector,
        coupling: Array,
        limit: int,
    ) -> Basis:
        """The basis of m Ritz pairs and a front, with ``A Q = Q diag(values) + front coupling``.

        Parameters
        ----------
        engine, operator
            Where the vectors live, and the operator A, loaded on the engine.
        Q, values
            Ritz vectors (N x m, orthonormal) and their values (m,).
        front, coupling
            The next block (N x b, orthonormal, outside the span of Q) and its coefficients (b x m).
        limit
            Vectors before a restart.
        """
        m = len(values)
        b = int(front.shape[1])
        size = limit + 2 * b + 1
        T = np.zeros((size, size))
        T[np.arange(m), np.arange(m)] = values
        T[m : m + b, :m] = coupling
        numbers = {"limit": limit, "T": T, "dtype": front.dtype, "done": m, "filled": m + b, "products": 0}
        return cls.restore(engine, operator, numbers | {"far": True}, (Q, front))

    @property
    def front(self) -> int:
        """Number of vectors that are still to be multiplied."""
        return self.filled - self.done

    @property
    def full(self) -> bool:
        """Whether another block would exceed the limit."""
        return self.filled + self.front > self.limit + 1

    def expand(self, rng: np.random.Generator, beside: MultiVector | None = None) -> MultiVector | None:
        """Multiply the front; the part of the product outside the space becomes the next front.

        The same pass multiplies the columns ``beside``, where there are any: their product is returned.
        """
        vectors = self.vectors
        is_single = beside is None and self.front == 1
        if (
            is_single
            and isinstance(vectors, RowBasis)
            and vectors.takes_single
            and self._expand_vector(vectors)
        ):
            return None
        a = self.done
        b = self.filled
        width = b - a
        # 1. one pass: A times the front
        front = self.vectors.columns(a, b)
        if beside is None:
            product = self.engine.apply(self.operator, front)
        else:
            product, beside = self.engine.apply(self.operator, front, beside)
        # 2. orthogonalise against the space (block Gram-Schmidt); the coefficients are columns of T
        self.vectors.append(product)
        # After a restart the product has parts along all vectors, else
        # along the last two blocks (three-term).
        first = 0 if self._far else max(0, a - width)
        self.T[:b, a:b], inner = self.vectors.orthogonalize(first, b)
        # 3. normalise the remainder: it was the new vectors times R
        R, well = self._normalize(b, inner)
        if not well:  # once is not enough: making it orthonormal magnified what was left
            again, inner = self.vectors.orthogonalize(0, b)
            self.T[:b, a:b] += again @ R
            R = self._normalize(b, inner)[0] @ R
        self.T[b : b + len(R), a:b] = R
        self.done = b
        self.filled = b + len(R)
        self._far = False
        self.products += width
        if len(R) == 0:  # an invariant subspace: go on with a vector outside
            self._add_random(rng)
        return beside

    def _expand_vector(self, vectors: RowBasis) -> bool:
        """Mutates: as :meth:`expand`, of one vector, in few calls; False where its product lies within."""
        new = self.filled
        product = self._column_product(vectors.stored[new - 1])
        first = 0 if self._far else max(0, new - 2)
        coefficients, length = vectors.append_orthogonal(product, first)
        if not length > 10 * self._tiny:
            vectors.filled = new
            return False
        self.T[:new, new - 1] = coefficients
        self.T[new, new - 1] = length
        self.done = new
        self.filled = new + 1
        self._far = False
        self.products += 1
        return True

    def _normalize(self, start: int, inner: Array) -> tuple[Array, bool]:
        """Mutates: make the vectors from ``start`` on orthonormal and drop those that vanished.

        Returns R, with the old vectors equal to the new ones times R, and whether they were well-conditioned.
        """
        tiny = self._tiny
        stop = start + len(inner)
        if len(inner) == 1 and inner[0, 0] > 100 * tiny**2:  # a single vector, the usual case: no detours
            length = float(inner[0, 0]) ** 0.5
            self.vectors.rotate(start, stop, np.array([[1 / length]]))
            return np.array([[length]]), True
        # block: inner = Y diag(s^2) Y', new vectors = old Y / s, and R = diag(s) Y'
        squares, Y = np.linalg.eigh(inner)
        # directions that vanished lie in the space already: rounding is all that is left of them
        alive = squares > max(tiny**2, 1e-12 * squares[-1])
        roots = np.sqrt(squares[alive])
        self.vectors.rotate(start, stop, Y[:, alive] / roots)
        # small directions magnify what is left of the space in them: then orthogonalise again
        well = bool(squares[0] > ILL_CONDITIONED * squares[-1] and squares[0] > 100 * tiny**2)
        return roots[:, None] * Y[:, alive].T, well or not alive.any()

    def _add_random(self, rng: np.random.Generator) -> None:
        """Mutates: a random direction outside the space becomes the front."""
        new = self.filled
        self.vectors.append(self.engine.random(self.n_nodes, 1, new_seed(rng), self.dtype))
        # "twice is enough" (Parlett 1998, 6.9)
        for _ in range(2):
            _, inner = self.vectors.orthogonalize(0, new)
            self.vectors.rotate(new, new + 1, 1 / np.sqrt(inner))
        self.filled = new + 1
        self._far = True

    def ritz(self, m: int | None = None) -> RitzValues:
        """Ritz values and residuals of the first m multiplied vectors (None: all): Rayleigh-Ritz on T."""
        m = self.done if m is None else m
        if not np.isfinite(self.T[: self.filled, :m]).all():
            raise FloatingPointError("the basis overflowed")
        # T is symmetric up to rounding; its upper triangle holds the coefficients
        values, Y = np.linalg.eigh(self.T[:m, :m], UPLO="U")
        coupling = self.T[m : self.filled, :m] @ Y
        return RitzValues(values, np.sqrt((coupling**2).sum(axis=0)), Y, coupling)

    def restart(self, ritz: RitzValues, keep: int) -> None:
        """Mutates: thick restart (Wu and Simon 2000): the first ``keep`` Ritz vectors, then the front."""
        front = self.front
        # 1. the Ritz vectors in place of the basis; the front moves up behind them
        self.vectors.rotate(0, self.done, ritz.Y[:, :keep])
        # 2. A Q = Q diag(theta) + front coupling (Stewart 2001): T is an arrow
        self.T[:] = 0
        self.T[np.arange(keep), np.arange(keep)] = ritz.values[:keep]
        self.T[keep : keep + front, :keep] = ritz.coupling[:, :keep]
        self.done = keep
        self.filled = keep + front
        self._far = True


def upper_edge(engine: Engine, operator: Operator, rng: np.random.Generator, steps: int) -> float:
    """Estimate the upper end of the spectrum by Lanczos steps from a random vector; at most the known bound.

    The operator is loaded on the engine and has no metric.
    """
    x = engine.random(operator.n_nodes, 1, new_seed(rng), np.float32)
    start = engine.combine(x, 1 / np.sqrt(engine.gram(x, x)))
    basis = Basis(engine, operator, start, steps)
    while not basis.full:
        basis.expand(rng)
    ritz = basis.ritz()
    return min(operator.upper, float(ritz.values[-1] + ritz.residuals[-1]))
