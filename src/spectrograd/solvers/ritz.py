"""What the block solvers share: Ritz pairs with guard vectors, measured as they go."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.engines import Engine
from spectrograd.engines.filters import Filter
from spectrograd.engines.subspace import (
    Ritz,
    _inverse_factor,
    orthogonality_error,
    orthonormalize,
    rayleigh_ritz,
    residuals,
)
from spectrograd.laplacian import Operator
from spectrograd.probe import LIKELY_MISS, PROBE_COLUMNS, Guards, RandomStart, block_start, needed_cut
from spectrograd.solvers.protocol import Problem, Progress, Solver, State

Array = NDArray[Any]
PROBE_GAIN = 7.5


@dataclass(eq=False)
class RitzState(State):
    """A state that knows its Ritz values and residuals, guard vectors included.

    ``U`` holds the first K Ritz vectors in the problem's own metric, ``block`` all of them in the
    coordinates the solver works in; after ``telling`` steps rough vectors show whether they are localised
    (0: never). Steps replace arrays and never write into them, so a copy of the
    state may share them (and the random numbers, which just go on).
    """

    block: Array = field(default_factory=lambda: np.empty((0, 0)))
    values: Array = field(default_factory=lambda: np.empty(0))
    residuals: Array = field(default_factory=lambda: np.empty(0))
    filters: tuple[Filter, ...] | None = None  # all that a random start went through, if it was random
    telling: ClassVar[int] = 0
    owed: float = 0.0  # the angle is met, but the start needs so much more gain to be proof

    def __deepcopy__(self, memo: dict[int, Any]) -> RitzState:
        twin = copy.copy(self)
        twin.events = list(self.events)
        return twin

    def angle_bound(self, k: int) -> float:
        """Davis-Kahan: sine of the angle between the first k Ritz vectors and the eigenvectors.

        ``|R| / gap`` with the gap up to the first guard vector, less that one's residual; infinite
        where the gap is not resolved. It is rigorous if no eigenvector was skipped.
        """
        if len(self.values) <= k:
            return float("inf")
        gap = self.values[k] - self.residuals[k] - self.values[k - 1]
        return float(np.linalg.norm(self.residuals[:k]) / gap) if gap > 0 else float("inf")


class RitzSolver(Solver):
    """A solver whose steps end with a Rayleigh-Ritz: measuring costs no further pass."""

    angle: float

    def progress(self, problem: Problem, state: State) -> Progress:
        """From the last Rayleigh-Ritz."""
        assert isinstance(state, RitzState)
        k = problem.n_components
        return Progress(
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            objective=float(state.values[:k].sum()),
            residual=float(state.residuals[:k].max()),
            orthogonality_error=orthogonality_error(problem.engine, problem.operator, state.U),
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: State) -> Array:
        """In float64, whatever the iteration used."""
        return problem.orthonormalize(state.U.astype(np.float64)).Q

    def guards(self, problem: Problem, state: State) -> Guards | None:
        """The guard vectors but the last, which only tells where the next eigenvalue is."""
        assert isinstance(state, RitzState)
        k, end = problem.n_components, len(state.values) - 1
        if end <= k or state.block.shape[1] <= end:
            return None
        vectors = problem.operator.from_walk(state.block[:, k:end])
        return Guards(vectors, state.values[k:end], state.residuals[k:end], float(state.values[end]))

    def measured(self, problem: Problem, operator: Operator, state: RitzState) -> RitzState:
        """The state after a Rayleigh-Ritz on its block; a lost direction makes its start no evidence."""
        if not np.isfinite(state.block).all():
            raise FloatingPointError("the filter overflowed")
        ritz, state.residuals, lost = ritz_pairs(problem.engine, operator, state.block, state.rng)
        state.values, state.block = ritz.values, ritz.Q
        state.U = problem.operator.from_walk(np.ascontiguousarray(ritz.Q[:, : problem.n_components]))
        if lost:
            state.filters = None
            state.events.append(f"iteration {state.iteration}: {lost} lost directions replaced")
        return state

    def account(self, problem: Problem, state: RitzState, columns: float) -> RitzState:
        """Count a step that read the operator for so many columns, and stop where the angle is met."""
        state.iteration += 1
        state.passes += columns / problem.n_components
        if len(state.values) > problem.n_components:
            state.beyond = float(state.values[problem.n_components])
        self._remember(problem, state)
        if self.angle > 0 and state.angle_bound(problem.n_components) <= self.angle:
            state.owed = self._owed_gain(state, problem.n_components)
            state.done = state.owed == 0
        return state

    def worth_proving(self, state: RitzState, degrees: float) -> bool:
        """Whether a filter of so many degrees more is cheaper than the probe that it replaces.

        A probe needs all of the gain again (6 to 9), but on ``PROBE_COLUMNS`` columns only.
        """
        outside = state.outside
        assert isinstance(outside, RandomStart)
        probe = outside.degrees(PROBE_GAIN, self.tau(state, len(state.values) - outside.freedom))
        return degrees * len(state.values) <= probe * PROBE_COLUMNS

    def _owed_gain(self, state: RitzState, k: int) -> float:
        """What one more filter must add for the random start to be proof, or 0 where it is not worth it."""
        outside = state.outside
        if not isinstance(outside, RandomStart):
            return 0.0
        tau = self.tau(state, k)
        owed = outside.owed(tau, LIKELY_MISS / 2)
        if owed == 0 or not np.isfinite(owed):
            return 0.0
        return owed if self.worth_proving(state, outside.degrees(owed, tau)) else 0.0

    def tau(self, state: RitzState, k: int, after: float = 1.0) -> float:
        """How far the certificate needs to see, once the residuals are ``after`` times what they are."""
        residual = after * float(np.linalg.norm(state.residuals[:k]))
        return needed_cut(float(state.values[k - 1]), float(state.values[k]), residual)

    def _remember(self, problem: Problem, state: RitzState) -> None:
        """The random start as evidence that nothing was skipped."""
        k, m, operator = problem.n_components, len(state.values), problem.operator
        if state.filters and m > k:
            lowest = float(state.values[k])
            state.outside = block_start(problem.n_nodes, k, m, lowest, operator.upper, state.filters)


def guarded_width(problem: Problem, guard: int | None) -> int:
    """Columns to iterate on: K and at least three guard vectors, to a multiple of 4 unless told otherwise."""
    k = problem.n_components
    if guard is None:
        guard = max(3, k // 5)
        guard += -(k + guard) % 4
    return min(k + guard, problem.n_nodes)


def guarded_start(problem: Problem, width: int, rng: np.random.Generator, dtype: Any) -> Array:
    """The warm start, completed by random columns, in walk form; not yet orthonormal.

    The random columns are Gaussian in the metric, which makes them evidence (see :mod:`spectrograd.probe`),
    and of about unit length.
    """
    block = rng.standard_normal((problem.n_nodes, width), dtype=dtype)
    metric = problem.operator.walk_form().metric
    mass = 1.0 if metric is None else metric[:, None]
    block *= np.asarray(1 / np.sqrt(problem.n_nodes * mass), dtype=dtype)
    if problem.start is not None:
        start = problem.operator.to_walk(np.asarray(problem.start, dtype=np.float64))
        block[:, : problem.n_components] = np.where(np.isfinite(start), start, 0)
    return block


def ritz_pairs(
    engine: Engine, operator: Operator, U: Array, rng: np.random.Generator | None = None
) -> tuple[Ritz, Array, int]:
    """Ritz pairs of the span of U, their residuals, and how many lost directions were replaced.

    One pass. A basis that is nearly orthonormal after one round of Cholesky QR is corrected by the
    generalised Rayleigh-Ritz instead of a second round.
    """
    factor, lost = _inverse_factor(engine.gram(U, U, operator.metric))
    if lost:
        Q, lost = orthonormalize(engine, U, operator.metric, rng)
        ritz = rayleigh_ritz(engine, operator, Q)
        return ritz, residuals(engine, operator, ritz), lost
    Q = engine.combine(U, factor)
    AQ = engine.spmm(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, rotation = _generalized(H, engine.gram(Q, Q, operator.metric))
    ritz = Ritz(values, engine.combine(Q, rotation), engine.combine(AQ, rotation))
    return ritz, engine.residual(operator.astype(Q.dtype), ritz.Q, ritz.AQ, values, keep=False)[1], 0


def _generalized(H: Array, M: Array) -> tuple[Array, Array]:
    try:
        values, rotation = la.eigh((H + H.T) / 2, (M + M.T) / 2)
    except la.LinAlgError:  # M is far from I: only after a loss of digits that a repair follows
        values, rotation = la.eigh((H + H.T) / 2)
    return np.asarray(values), np.asarray(rotation)
