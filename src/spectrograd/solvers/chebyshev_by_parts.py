"""``chebyshev`` where memory is short, for graphs on disk: a filter takes some columns at a time.

:mod:`spectrograd.solvers.chebyshev_few_passes` holds two blocks of all columns, and K columns once more. Of
:class:`ChebyshevByParts` each column is held once: K vectors, a few guard vectors and a probe block, and
beside them two blocks of those columns that are multiplied. A degree of a filter takes as many passes as
there are parts.

Vectors are kept in the coordinates of the operator, not in random-walk form: the result needs no copy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from spectrograd.certificate.block_probe import (
    MAX_LOOKS,
    PROBE_COLUMNS,
    BlockProbeEvidence,
    ProbeBlock,
    evidence_from_gram,
    new_probe_block,
    spectral_norm,
)
from spectrograd.certificate.certificate import TARGET_ODDS, ComplementBound, sine_bound
from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.linalg.chebyshev_filter import Filter, Filtering
from spectrograd.linalg.projection_by_parts import parts_of, project_by_parts, replace_columns
from spectrograd.linalg.subspace import inverse_factor
from spectrograd.solvers.base import Problem
from spectrograd.solvers.chebyshev import SAMPLE_COLUMNS, ChebyshevState, FilteringSolver, ritz_cut
from spectrograd.solvers.chebyshev_few_passes import CERTIFIED_OVER_ASKED, MAX_ORTHOGONALITY_ERROR
from spectrograd.solvers.ritz import ritz_pairs
from spectrograd.typing import Array

GUARD_COLUMNS = 4  # each costs as much memory as a vector of the result
MAX_DEGREES = 150  # of all filters: no other solver is left that would fit
ROUNDED = 0.1  # of the bound on rounding errors: smaller residuals hardly change what is certified
MIN_COLUMNS = 4  # that are multiplied at once: with fewer a pass is reading, and little else


def held_columns(k: int) -> int:
    """Columns that are held throughout for K vectors."""
    return k + GUARD_COLUMNS + PROBE_COLUMNS


def columns_at_once(k: int, max_columns: int = 0) -> int:
    """Columns that are multiplied at once for K vectors: as many as fit into ``max_columns``."""
    return max(MIN_COLUMNS, min(k, (max_columns - held_columns(k)) // 2))


def columns_by_parts(k: int, max_columns: int = 0) -> int:
    """Most columns at any time for K vectors, where ``max_columns`` fit; without them the least."""
    return held_columns(k) + 2 * columns_at_once(k, max_columns)


def empty_block() -> Array:
    """A block without columns."""
    return np.empty((0, 0))


@dataclass(eq=False)
class PartState(ChebyshevState):
    """Vectors ``U`` (N x K), ``guards`` (N x g) and the columns ``probe`` (N x s) of the ``probe_block``.

    Steps overwrite all three; ``block`` is not in use.
    """

    guards: MultiVector = field(default_factory=empty_block)
    probe: MultiVector = field(default_factory=empty_block)
    probe_block: ProbeBlock | None = None


@dataclass(frozen=True)
class ChebyshevByParts(FilteringSolver[PartState]):
    """The variant of :class:`Chebyshev` where memory is short; the same hyperparameters.

    Memory: K + g + s columns, and two blocks of those that are multiplied at once.
    """

    min_degree = 4
    localization_check_at: ClassVar[int] = 2

    def init(self, problem: Problem, rng: np.random.Generator) -> PartState:
        """A random block or the warm start, and the probe; mean and deviation of the spectrum."""
        engine = problem.engine
        dtype = np.float64 if self.precision == "double" else np.float32
        k = problem.n_components
        n_guards = min(GUARD_COLUMNS if self.guard is None else self.guard, problem.n_nodes - k)
        start = problem.start_on_engine(dtype)
        drawn = engine.random(problem.n_nodes, k, new_seed(rng), dtype) if start is None else start
        state = PartState(drawn, rng, highest=problem.operator.upper)
        state.guards = engine.random(problem.n_nodes, n_guards, new_seed(rng), dtype)
        # 1. the columns of the probe
        probe_block = new_probe_block(engine, problem.operator.random_walk_form(), rng, dtype)
        state.probe_block = replace(probe_block, X=None, null=None)
        state.probe = problem.random_walk.inverse_transform(probe_block.X)
        # 2. the spectrum: that of the warm start, or as a few random columns have it
        if start is None:
            self._sample_spectrum(problem, state)
        else:
            self._rayleigh_ritz(problem, state)
        return state

    def _sample_spectrum(self, problem: Problem, state: PartState) -> None:
        """Mutates: values and residuals, by the Ritz pairs of a few columns, as in ``Chebyshev``."""
        engine = problem.engine
        walk = problem.random_walk
        sample = walk.transform(engine.columns(state.U, slice(SAMPLE_COLUMNS)))
        ritz, deviations, _ = ritz_pairs(engine, walk.operator, sample, state.rng)
        width = state.U.shape[1] + state.guards.shape[1]
        state.values = np.full(width, ritz.values.mean())
        state.residuals = np.full(width, deviations.mean())

    def cut(self, state: PartState, ends: tuple[float, float], is_first: bool) -> float:
        """The largest Ritz value."""
        return ritz_cut(state, ends, is_first)

    def step(self, problem: Problem, state: PartState) -> PartState:
        """One filter and one Rayleigh-Ritz, part by part."""
        ends = (problem.random_walk.operator.lower, problem.random_walk.operator.upper)
        polynomial = self.next_filter(problem, state, ends)
        # 1. filter: the vectors, their guards and the columns of the probe
        state.U = self._filter_columns(problem, state.U, polynomial)
        state.guards = self._filter_columns(problem, state.guards, polynomial)
        lengths = np.zeros(polynomial.degree)
        state.probe = self._filter_columns(problem, state.probe, polynomial, lengths)
        assert state.probe_block is not None
        state.probe = self._without_null(problem, state.probe)
        norms = tuple(np.sqrt(lengths).tolist())
        state.probe_block = state.probe_block.with_filter(polynomial, None, norms)
        # 2. Rayleigh-Ritz
        self._rayleigh_ritz(problem, state)
        # 3. stop? By the angle (``terminate``), or where no gap is in sight.
        n_degrees = len(state.probe_block.lengths)
        if n_degrees >= MAX_DEGREES and self.max_iter == type(self).max_iter:
            state.done = True
            state.events.append(f"{n_degrees} degrees and no gap in sight: max_iter asks for more")
        return self.account(problem, state, (polynomial.degree + 1) * len(state.values))

    def _at_once(self, problem: Problem) -> int:
        """Columns that are multiplied at once: as many as fit beside those that are held."""
        k = problem.n_components
        return k if problem.max_columns is None else columns_at_once(k, problem.max_columns)

    def _filter_columns(
        self, problem: Problem, X: MultiVector, polynomial: Filter, squares: Array | None = None
    ) -> MultiVector:
        """Filter all columns, some at a time; may mutate X.

        To ``squares`` (degree,) the squared norms of the inputs of each degree are added: their sum over the
        parts bounds the square of that of all columns.
        """
        engine = problem.engine
        walk = problem.random_walk
        excluded = problem.operator.excluded_rows
        for chosen in parts_of(X.shape[1], self._at_once(problem)):
            part = walk.transform(engine.columns(X, chosen))
            if excluded is not None:  # they would have to be filtered out
                part = engine.scale_rows(part, engine.from_numpy(_zero_at(excluded, problem.n_nodes)))
            filtering = Filtering(polynomial, engine, walk.operator, part, owned=True)
            del part
            for degree in range(polynomial.degree):
                if squares is not None:
                    current = filtering.current
                    squares[degree] += spectral_norm(engine.gram(current, current, walk.operator.metric)) ** 2
                    del current
                filtering.advance()
            part = filtering.current
            del filtering
            part = walk.inverse_transform(part)
            X = replace_columns(engine, X, chosen, part)
            del part
        return X

    def _without_null(self, problem: Problem, X: MultiVector) -> MultiVector:
        """Columns without the part along a known null vector, in which rounding errors grow; may mutate X.

        The null vector is exact and was taken out at first, so nothing else of the columns changes.
        """
        vector = problem.operator.null_vector
        if vector is None:
            return X
        engine = problem.engine
        null = engine.from_numpy(vector[:, None].astype(X.dtype))
        along = problem.gram(null, X) / problem.gram(null, null)
        return engine.combine_inplace(X, np.eye(X.shape[1]), null, -along)

    def _rayleigh_ritz(self, problem: Problem, state: PartState) -> None:
        """Mutates: Ritz pairs of vectors and guards."""
        self._orthonormalize(problem, state)
        blocks = (state.U, state.guards)
        metric = problem.engine_operator.metric
        at_once = self._at_once(problem)
        projection = project_by_parts(problem.engine, problem.random_walk, metric, blocks, at_once)
        state.values, Y = projection.ritz()
        state.residuals = projection.residuals(state.values, Y)
        self._rotate(problem, state, Y)

    def _orthonormalize(self, problem: Problem, state: PartState) -> None:
        """Mutates: vectors and guards, orthonormal by Cholesky QR twice; lost directions become random."""
        engine = problem.engine
        n_guards = state.guards.shape[1]
        n_rounds = 2
        while n_rounds:
            blocks = (state.U, state.guards)
            M = np.block([[problem.gram(X, Y) for Y in blocks] for X in blocks])
            factor, n_lost = inverse_factor(M)
            if n_lost > n_guards:
                raise FloatingPointError(f"a filter lost {n_lost} directions")
            self._rotate(problem, state, np.pad(factor, ((0, 0), (0, n_lost))))
            n_rounds -= 1
            if n_lost:  # the last guards are zero now
                fresh = engine.random(problem.n_nodes, n_guards, new_seed(state.rng), state.guards.dtype)
                is_lost = np.diag(np.arange(n_guards) >= n_guards - n_lost).astype(float)
                state.guards = engine.combine_inplace(state.guards, np.eye(n_guards), fresh, is_lost)
                state.n_lost += n_lost
                n_rounds = 2

    def _rotate(self, problem: Problem, state: PartState, F: Array) -> None:
        """Mutates: vectors and guards become their combinations F, (K + g) x (K + g)."""
        engine = problem.engine
        k = problem.n_components
        fresh = engine.combine(state.U, F[:k, k:], state.guards, F[k:, k:])
        state.U = engine.combine_inplace(state.U, F[:k, :k], state.guards, F[k:, :k])
        state.guards = fresh

    def terminate(self, problem: Problem, state: PartState) -> bool:
        """Whether the angle is met as far as the probe says that nothing was missed."""
        if state.done or self.angle == 0 or state.iteration == 0:
            return state.done
        k = problem.n_components
        evidence = self._probe_evidence(problem, state)
        # long rows are summed in blocks where the certificate may rest on float32
        is_blocked = problem.engine.has_blocked_summation
        rounding = problem.sparse.rounding(state.U.dtype, blocked=is_blocked)
        values = state.values[:k]
        residuals = state.residuals[:k]
        tau = evidence.farthest(float(values[-1]))
        sine = sine_bound(values, residuals + rounding, tau - rounding)
        # below their rounding errors residuals fall without a use
        is_accurate = sine <= CERTIFIED_OVER_ASKED * self.angle or residuals.max() < ROUNDED * rounding
        return evidence.odds_below(tau) <= TARGET_ODDS and is_accurate

    def _probe_evidence(self, problem: Problem, state: PartState) -> BlockProbeEvidence:
        """What the columns of the probe say of the complement of the vectors."""
        assert state.probe_block is not None
        k = problem.n_components
        blocks = (state.U, state.probe)
        G = np.block([[problem.gram(X, Y) for Y in blocks] for X in blocks])
        eps = float(np.finfo(state.U.dtype).eps)
        beyond = float(state.values[min(k, len(state.values) - 1)])
        walk = problem.random_walk.operator
        return evidence_from_gram(walk, state.probe_block, G, k, beyond, eps, MAX_LOOKS)

    def overwrites_state(self, state: PartState) -> bool:
        """Always: a step uses the memory of all vectors again."""
        return True

    def snapshot(self, problem: Problem, state: PartState) -> PartState:
        """The state with the same vectors: there is no memory for others."""
        return copy.copy(state)

    def finish(self, problem: Problem, state: PartState) -> MultiVector:
        """The first K vectors, orthonormal unless a step was cut short."""
        error = self.orthogonality(problem, state)
        return state.U if error < MAX_ORTHOGONALITY_ERROR else problem.orthonormalize(state.U).Q

    def evidence(self, problem: Problem, state: PartState) -> Evidence:
        """The first value beyond the result; without vectors, which would have to be kept."""
        k = problem.n_components
        beyond = float(state.values[k]) if len(state.values) > k and state.iteration > 0 else None
        return Evidence(beyond)

    def complement_bound(self, problem: Problem, state: PartState) -> ComplementBound | None:
        """The evidence of the probe's columns."""
        return self._probe_evidence(problem, state) if state.iteration > 0 else None


def _zero_at(rows: Array, n_nodes: int) -> Array:
    """Ones (N x 1), zero at some rows."""
    ones = np.ones((n_nodes, 1), np.float32)
    ones[rows] = 0
    return ones
