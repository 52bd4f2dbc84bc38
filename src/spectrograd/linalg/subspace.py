"""MultiVector-and-skinny linear algebra on top of an engine: orthonormal bases and Rayleigh-Ritz."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import DTypeLike

from spectrograd.engines.base import Engine, MultiVector, new_seed
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

NEARLY = 1e-2  # orthonormal: a single round leaves nothing but rounding errors


class Orthonormal(NamedTuple):
    """A basis with ``Q' B Q = I``, and how many directions had to be replaced by random ones."""

    Q: MultiVector
    repaired: int


class Ritz(NamedTuple):
    """Ritz pairs of a subspace in ascending order, with ``A Q`` for whoever needs residuals."""

    values: Array
    Q: MultiVector
    AQ: MultiVector


def orthonormalize(
    engine: Engine, U: MultiVector, metric: MultiVector | None, rng: np.random.Generator | None = None
) -> Orthonormal:
    """Cholesky QR, twice unless U was nearly orthonormal; lost directions become random ones, and count."""
    n, k = U.shape
    if k > n:  # else lost directions would be replaced without end
        raise ValueError(f"{k} vectors of length {n} cannot be orthogonal: ask for fewer")
    repaired = 0
    for _ in range(2):
        M = engine.gram(U, U, metric)
        factor, lost = inverse_factor(M)
        U = engine.combine(U, factor)
        if np.abs(M - np.eye(len(M))).max() < NEARLY:
            break
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

    Lost are those whose squares are below ``least`` of the largest, all columns being of one length.
    """
    if not np.isfinite(M).all():
        raise FloatingPointError("the vectors are too long for a Gram matrix")
    size = np.diag(M)
    columns = np.sqrt(np.where(size > 1e-60, size, 1))  # a column of zeros stays one, and is lost
    scaled = M / np.outer(columns, columns)  # columns first: a badly scaled Gram fails needlessly
    try:
        R = la.cholesky(scaled)
        if np.abs(np.diag(R)).min() > least**0.5:
            return la.solve_triangular(R, np.eye(len(M))) / columns[:, None], 0
    except la.LinAlgError:
        pass
    values, rotation = la.eigh(scaled)
    kept = values > least * values[-1]
    return (rotation[:, kept] / np.sqrt(values[kept])) / columns[:, None], int((~kept).sum())


def rayleigh_ritz(engine: Engine, operator: Operator, Q: MultiVector) -> Ritz:
    """Rotate an orthonormal basis to Ritz vectors: one pass and a small eigenproblem."""
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, rotation = la.eigh((H + H.T) / 2)
    return Ritz(values, engine.combine(Q, rotation), engine.combine_inplace(AQ, rotation))


def deflated_ritz(engine: Engine, operator: Operator, Q: MultiVector, null: MultiVector) -> Ritz:
    """As :func:`rayleigh_ritz`, of a basis in which a known null vector takes the place of its approximation.

    ``Q`` is turned such that its first column is the projection of the null vector (N x 1, of unit length in
    the metric), which is replaced by the vector itself; the other columns are orthogonal to it. So
    K - 1 vectors are left, of which alone the Ritz vectors are taken: the first column is
    exact, and its value zero. One pass.
    """
    turn = la.qr(engine.gram(Q, null, operator.metric))[0]
    Q = null if len(turn) == 1 else engine.hstack(null, engine.combine(Q, turn[:, 1:]))
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, rotation = la.eigh((H + H.T)[1:, 1:] / 2) if len(H) > 1 else (np.empty(0), np.empty((0, 0)))
    turn = la.block_diag(np.eye(1), rotation)
    return Ritz(np.append(0.0, values), engine.combine(Q, turn), engine.combine_inplace(AQ, turn))


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


# --- A pencil in the coordinates a method works in, on an engine.


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A pencil whose vectors are those of the given one with their rows multiplied by ``factors``.

    ``operator`` is placed on the engine; ``factors`` and ``inverse`` are multivectors N x 1, None for ones.
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
        """The pencil without ``scale``, whose sweeps gather vectors as they are."""
        return cls._of(engine, operator.random_walk_form(), operator.random_walk_factors)

    @classmethod
    def _of(cls, engine: Engine, operator: Operator, factors: Array | None) -> Coordinates:
        placed = engine.load_operator(operator)
        if factors is None:
            return cls(engine, placed)
        return cls(
            engine, placed, engine.from_numpy(factors[:, None]), engine.from_numpy(1 / factors[:, None])
        )

    def transform(self, X: MultiVector) -> MultiVector:
        """Vectors of the given pencil in these coordinates."""
        return X if self.factors is None else self.engine.scale_rows(X, self.factors)

    def inverse_transform(self, X: MultiVector) -> MultiVector:
        """Vectors in these coordinates as vectors of the given pencil."""
        return X if self.inverse is None else self.engine.scale_rows(X, self.inverse)


# --- A block Krylov space on any engine: orthonormal vectors that grow by one block at a time.

ILL = 1e-4  # ratio of squared lengths below which a block is orthogonalised a second time


class RitzValues(NamedTuple):
    """Ritz values and residuals; combinations Y of the vectors, and how those couple to the front."""

    values: Array
    residuals: Array
    Y: Array
    coupling: Array


class Basis:
    """Orthonormal ``vectors`` q_1 .. q_filled, of which the first ``done`` were multiplied by A.

    ``A q_j = sum_i T_ij q_i`` holds for them exactly (up to rounding), so the residual of a Ritz vector
    ``sum_j y_j q_j`` is ``T y`` on the vectors that were not multiplied yet, the front. The operator is
    placed on the engine and has no metric.
    """

    def __init__(self, engine: Engine, operator: Operator, front: MultiVector, limit: int) -> None:
        size = limit + 2 * int(front.shape[1]) + 1
        self._begin(engine, operator, limit, np.zeros((size, size)), front.dtype)
        self.filled = int(front.shape[1])
        self.vectors.append(front)

    def _begin(self, engine: Engine, operator: Operator, limit: int, T: Array, dtype: DTypeLike) -> None:
        self.engine, self.operator, self.limit, self.T = engine, operator, limit, T
        self.n_nodes, self.dtype = operator.n_nodes, np.dtype(dtype)
        self.vectors = engine.basis(self.n_nodes, len(T), self.dtype)
        self.done = self.filled = self.products = 0
        self._tiny = 10 * float(np.finfo(self.dtype).eps) * (operator.upper - operator.lower)
        self._far = True  # the next product has parts along every vector, not only along the last ones

    def numbers(self) -> dict[str, Any]:
        """All but the vectors, as plain values: with those it can be :meth:`revived`."""
        found = {name: getattr(self, name) for name in ("limit", "done", "filled", "products", "T")}
        return found | {"far": self._far, "dtype": self.dtype.name}

    @classmethod
    def revived(
        cls, engine: Engine, operator: Operator, numbers: Mapping[str, Any], parts: Iterable[MultiVector]
    ) -> Basis:
        """The basis that had these :meth:`numbers` and these parts of its vectors."""
        basis = cls.__new__(cls)
        basis._begin(engine, operator, numbers["limit"], numbers["T"], numbers["dtype"])
        basis.done, basis.filled, basis.products, basis._far = (
            numbers[name] for name in ("done", "filled", "products", "far")
        )
        basis.vectors.restore(parts)
        return basis

    @property
    def front(self) -> int:
        """How many vectors are still to be multiplied."""
        return self.filled - self.done

    @property
    def full(self) -> bool:
        """Whether there is no room for another block."""
        return self.filled + self.front > self.limit + 1

    def expand(self, rng: np.random.Generator, beside: MultiVector | None = None) -> MultiVector | None:
        """Multiply the front; what is new in the product is the next one.

        The same sweep multiplies the columns ``beside``, where there are any: their product is returned.
        """
        a, b = self.done, self.filled
        width, front = b - a, self.vectors.columns(a, b)
        if beside is None:
            product = self.engine.apply(self.operator, front)
        else:
            product, beside = self.engine.apply(self.operator, front, beside)
        self.vectors.append(product)
        first = 0 if self._far else max(0, a - width)
        self.T[:b, a:b], inner = self.vectors.orthogonalize(first, b)
        R, well = self._normalize(b, inner)
        if not well:  # once is not enough: making it orthonormal magnified what was left
            again, inner = self.vectors.orthogonalize(0, b)
            self.T[:b, a:b] += again @ R
            R = self._normalize(b, inner)[0] @ R
        self.T[b : b + len(R), a:b] = R
        self.done, self.filled, self._far, self.products = b, b + len(R), False, self.products + width
        if len(R) == 0:  # an invariant subspace: go on with a vector outside
            self._add_random(rng)
        return beside

    def _normalize(self, start: int, inner: Array) -> tuple[Array, bool]:
        """Mutates vectors from ``start`` on: orthonormal, without those that vanished.

        They were combinations R of what they now are; whether they were far from dependent.
        """
        tiny, stop = self._tiny, start + len(inner)
        if len(inner) == 1 and inner[0, 0] > 100 * tiny**2:  # a single vector, the usual case: no detours
            length = float(inner[0, 0]) ** 0.5
            self.vectors.rotate(start, stop, np.array([[1 / length]]))
            return np.array([[length]]), True
        squares, Y = np.linalg.eigh(inner)
        alive = squares > max(tiny**2, 1e-12 * squares[-1])
        roots = np.sqrt(squares[alive])
        self.vectors.rotate(start, stop, Y[:, alive] / roots)
        well = bool(squares[0] > ILL * squares[-1] and squares[0] > 100 * tiny**2)
        return roots[:, None] * Y[:, alive].T, well or not alive.any()

    def _add_random(self, rng: np.random.Generator) -> None:
        """A random direction outside the space becomes the front."""
        new = self.filled
        self.vectors.append(self.engine.random(self.n_nodes, 1, new_seed(rng), self.dtype))
        for _ in range(2):
            _, inner = self.vectors.orthogonalize(0, new)
            self.vectors.rotate(new, new + 1, 1 / np.sqrt(inner))
        self.filled, self._far = new + 1, True

    def ritz(self) -> RitzValues:
        """What the multiplied vectors tell of the spectrum."""
        m = self.done
        if not np.isfinite(self.T[: self.filled, :m]).all():
            raise FloatingPointError("the basis overflowed")
        values, Y = np.linalg.eigh(self.T[:m, :m], UPLO="U")
        coupling = self.T[m : self.filled, :m] @ Y
        return RitzValues(values, np.sqrt((coupling**2).sum(axis=0)), Y, coupling)

    def restart(self, ritz: RitzValues, keep: int) -> None:
        """Mutates: the basis begins with its best Ritz vectors, then comes the front."""
        front = self.front
        self.vectors.rotate(0, self.done, ritz.Y[:, :keep])
        self.T[:] = 0
        self.T[np.arange(keep), np.arange(keep)] = ritz.values[:keep]
        self.T[keep : keep + front, :keep] = ritz.coupling[:, :keep]
        self.done, self.filled, self._far = keep, keep + front, True


def upper_edge(engine: Engine, operator: Operator, rng: np.random.Generator, steps: int) -> float:
    """Where the spectrum seems to end, by so many steps from a random vector; at most what is known.

    The operator is placed on the engine and has no metric.
    """
    x = engine.random(operator.n_nodes, 1, new_seed(rng), np.float32)
    start = engine.combine(x, 1 / np.sqrt(engine.gram(x, x)))
    basis = Basis(engine, operator, start, steps)
    while not basis.full:
        basis.expand(rng)
    ritz = basis.ritz()
    return min(operator.upper, float(ritz.values[-1] + ritz.residuals[-1]))
