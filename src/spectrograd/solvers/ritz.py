"""The base of the block solvers: Ritz pairs with guard vectors, by which steps are measured and stopped."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import scipy.linalg as la
from numpy.typing import DTypeLike

from spectrograd.certificate.certificate import before_the_bulk, sine_bound
from spectrograd.certificate.lanczos_probe import Evidence, Guards
from spectrograd.certificate.localization import columns_are_localized
from spectrograd.engines import Engine
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.linalg.chebyshev_filter import Filter, Filtering
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthogonality_error, orthonormalize, residuals
from spectrograd.operators.base import Operator
from spectrograd.solvers.base import Problem, Progress, Solver, State, copy_generator, usual_width
from spectrograd.typing import Array

BULK_RESIDUAL = 1e-3  # of the width: what is asked of vectors that no gap determines
DEGREES_BETWEEN_CHECKS = 8  # of the first filter, between two tests for localised columns
BULK_PATIENCE = 3  # times the matvecs that the vectors before a bulk took


@dataclass(eq=False)
class RitzState(State):
    """A state that knows its Ritz values and residuals, guard vectors included.

    ``U`` holds the first K Ritz vectors in the problem's own metric (no columns: not made yet), ``block`` all
    of them in the coordinates the solver works in. Steps replace arrays and never write into them, so a copy
    of the state may share them.
    """

    block: MultiVector = field(default_factory=lambda: np.empty((0, 0)))
    values: Array = field(default_factory=lambda: np.empty(0))
    residuals: Array = field(default_factory=lambda: np.empty(0))
    n_lost: int = 0  # directions that were lost and replaced by random ones
    leading_at: float = 0.0  # matvecs after which the vectors before a bulk were seen to be good
    is_single_vector: bool = False  # from one random vector, not from a block

    def __deepcopy__(self, memo: dict[int, object]) -> RitzState:
        twin = copy.copy(self)
        twin.events = list(self.events)
        twin.rng = copy_generator(self.rng)
        return twin

    def angle_bound(self, k: int) -> float:
        """Bound the sine of the angle between the first k Ritz vectors and the eigenvectors.

        The next eigenvalue is at least the first guard's value less its residual, if no eigenvector was
        skipped; infinite where that leaves no gap.

        A single vector finds close eigenvalues one after another: a Ritz vector whose residual exceeds their
        distances mixes several, and values of the bulk stand for those that are to come. So the gap after K
        counts for every column then: it is small, and residuals that are small against it leave nothing close
        to hide.
        """
        if len(self.values) <= k:
            return float("inf")
        beyond = float(self.values[k] - self.residuals[k])
        if not self.is_single_vector:
            return sine_bound(self.values[:k], self.residuals[:k], beyond)
        gap = beyond - float(self.values[k - 1])
        return float(np.linalg.norm(self.residuals[:k])) / gap if gap > 0 else float("inf")

    def in_a_bulk(self, k: int, angle: float, tolerance: float) -> bool:
        """Mutates: whether K cuts through a bulk, and all that can be determined is.

        An angle inside a bulk, where gaps shrink like ``N^-2/3``, takes tens of times the products of what is
        before it. It is given a few times as many, and then residuals have to do.
        """
        # 1. Is there a bulk, and are the vectors before it determined?
        first = before_the_bulk(self.values[: k + 1], k)
        if first is None or self.angle_bound(first) > angle:
            return False
        # 2. Since when? The first time is written down.
        if self.leading_at == 0:
            self.leading_at = self.matvecs
        # 3. After BULK_PATIENCE times as many products, residuals decide.
        patient = self.matvecs < BULK_PATIENCE * self.leading_at
        return not patient and bool(self.residuals[:k].max() <= tolerance)


RitzT = TypeVar("RitzT", bound=RitzState)


class RitzSolver(Solver[RitzT]):
    """A solver whose steps end with a Rayleigh-Ritz: measuring costs no further pass."""

    angle: float

    @property
    def has_stopping_rule(self) -> bool:
        """Whether an angle is asked for."""
        return self.angle > 0

    @abstractmethod
    def terminate(self, problem: Problem, state: RitzT) -> bool:
        """Whether the solver has finished: mostly :meth:`angle_is_met`."""

    @abstractmethod
    def evidence(self, problem: Problem, state: RitzT) -> Evidence:
        """What the certificate may use: mostly :meth:`guard_evidence`."""

    def angle_is_met(self, problem: Problem, state: RitzT) -> bool:
        """Whether the angle is met, or cannot be since K cuts through a bulk."""
        if state.done or self.angle == 0 or state.iteration == 0:
            return state.done
        # By residuals and gaps, as the certificate; in a bulk there is no gap after K to wait for.
        k = problem.n_components
        width = problem.operator.upper - problem.operator.lower
        return state.angle_bound(k) <= self.angle or state.in_a_bulk(k, self.angle, BULK_RESIDUAL * width)

    def progress(self, problem: Problem, state: RitzT) -> Progress:
        """Report the last Rayleigh-Ritz."""
        k = problem.n_components
        return Progress(
            iteration=state.iteration,
            matvecs=state.matvecs,
            edges_seen=state.edges_seen,
            objective=float(state.values[:k].sum()),
            residual=float(state.residuals[:k].max()),
            orthogonality_error=self.orthogonality(problem, state),
            events=tuple(state.events),
        )

    def orthogonality(self, problem: Problem, state: RitzT) -> float:
        """The orthogonality error of the vectors."""
        if state.U.shape[1]:
            return orthogonality_error(problem.engine, problem.engine_operator, state.U)
        walk = problem.random_walk.operator
        return orthogonality_error(problem.engine, walk, state.block, problem.n_components)

    def guard_evidence(self, problem: Problem, state: RitzT) -> Evidence:
        """The first value beyond the result, and the guard vectors but the last, which is rough."""
        k = problem.n_components
        end = len(state.values) - 1
        beyond = float(state.values[k]) if end >= k and state.iteration > 0 else None
        if end <= k or state.block.shape[1] <= end:
            return Evidence(beyond)
        # the guard vectors as the certificate wants them: in the problem's own metric (N x (end - k))
        vectors = problem.random_walk.inverse_transform(problem.engine.columns(state.block, slice(k, end)))
        return Evidence(beyond, guards=Guards(vectors, state.values[k:end], state.residuals[k:end]))

    def take_ritz_pairs(self, problem: Problem, operator: Operator, state: RitzT) -> RitzT:
        """Mutates: the Ritz pairs of the block, for the operator in random-walk form on the engine."""
        return self.set_ritz_pairs(
            problem, state, *ritz_pairs(problem.engine, operator, state.block, state.rng)
        )

    def set_ritz_pairs(
        self, problem: Problem, state: RitzT, ritz: Ritz, residuals: Array, lost: int
    ) -> RitzT:
        """Mutates: the state gets these Ritz pairs, which are in random-walk form."""
        state.values = ritz.values
        state.block = ritz.Q
        state.residuals = residuals
        state.U = problem.random_walk.inverse_transform(
            problem.engine.columns(ritz.Q, slice(problem.n_components))
        )
        if lost:
            state.n_lost += lost
            state.events.append(f"iteration {state.iteration}: {lost} lost directions replaced")
        return state

    def account(self, problem: Problem, state: RitzT, columns: float) -> RitzT:
        """Count a step that read the operator for so many columns."""
        state.iteration += 1
        state.matvecs += columns
        return state


def guarded_width(problem: Problem, guard: int | None) -> int:
    """Columns to iterate on: K and some guard vectors, ``usual_width`` unless ``guard`` is set."""
    k = problem.n_components
    return min(usual_width(k) if guard is None else k + guard, problem.n_nodes)


def guarded_start(problem: Problem, width: int, rng: np.random.Generator, dtype: DTypeLike) -> MultiVector:
    """The warm start, completed by random columns, in random-walk form; not yet orthonormal.

    The random columns are Gaussian in the metric, and of about unit length.
    """
    engine = problem.engine
    start = problem.start_on_engine(dtype)
    n_given = 0
    if start is not None:
        n_given = problem.n_components
        # the warm start comes first: it approximates the first K vectors
        start = problem.random_walk.transform(start)
    if n_given == width:
        return start
    block = random_block(problem, width - n_given, new_seed(rng), dtype)
    return block if start is None else engine.hstack(start, block)


def random_block(problem: Problem, width: int, seed: int, dtype: DTypeLike) -> MultiVector:
    """Gaussian columns in random-walk form, N x width, with ``E[x' B x] = 1`` in its metric B."""
    engine = problem.engine
    n = problem.n_nodes
    metric = problem.operator.random_walk_form().metric
    block = engine.random(n, width, seed, dtype)
    if metric is None:
        # B = I: E[x'x] = n before, 1 after
        return engine.combine(block, np.eye(width) / np.sqrt(n))
    return engine.scale_rows(block, engine.from_numpy((1 / np.sqrt(n * metric))[:, None]))


def filter_block(
    engine: Engine, operator: Operator, polynomial: Filter, block: MultiVector, is_random: bool
) -> tuple[MultiVector, int, bool]:
    """The filtered block, the degree it got, and whether it ended early since its columns are localised.

    Only a random block is looked at: the loop's ``watch`` may then end the run.

    Parameters
    ----------
    engine, operator
        The operator is loaded on the engine, in random-walk form.
    polynomial
        The filter.
    block
        Multivector N x m; not changed.
    is_random
        Whether the block holds random vectors, which show localisation as they are filtered.
    """
    filtering = Filtering(polynomial, engine, operator, block)
    while filtering.degree < polynomial.degree:
        filtering.advance()
        X = filtering.current
        due = is_random and filtering.degree % DEGREES_BETWEEN_CHECKS == 0
        if due and columns_are_localized(engine, X, operator.metric, X.shape[1]):
            return X, filtering.degree, True
    return filtering.current, filtering.degree, False


def ritz_pairs(
    engine: Engine,
    operator: Operator,
    U: MultiVector,
    rng: np.random.Generator | None = None,
) -> tuple[Ritz, Array, int]:
    """Ritz pairs of the span of U, their residuals, and how many lost directions were replaced.

    One pass. A basis that is nearly orthonormal
    after one round of Cholesky QR is corrected by the generalised Rayleigh-Ritz instead of a second round.

    Parameters
    ----------
    engine, operator
        The operator is loaded on the engine, in random-walk form.
    U
        Multivector N x m.
    rng
        Source of random directions for lost ones.
    """
    # 1. B-orthonormal basis: Cholesky QR, repaired where U has lost directions
    factor, lost = inverse_factor(engine.gram(U, U, operator.metric))
    if lost:
        Q, lost = orthonormalize(engine, U, operator.metric, rng)
    else:
        Q = engine.combine(U, factor)
    # 2. the pass: A Q, and the projected pencil (Q'AQ, Q'BQ)
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    # 3. Ritz pairs (Parlett 1998, chapter 11); the product turns with the basis
    values, rotation = generalized_ritz(H, engine.gram(Q, Q, operator.metric))
    ritz = Ritz(values, engine.combine(Q, rotation), engine.combine(AQ, rotation))
    return ritz, residuals(engine, operator, ritz), lost


def generalized_ritz(H: Array, M: Array) -> tuple[Array, Array]:
    """Values and rotation of a small pencil with M near the identity, in ascending order."""
    try:
        values, rotation = la.eigh((H + H.T) / 2, (M + M.T) / 2)
    except la.LinAlgError:  # M is far from I: only after a loss of digits that a repair follows
        values, rotation = la.eigh((H + H.T) / 2)
    return np.asarray(values), np.asarray(rotation)
