"""``compressive``: clusters from few columns, without eigenvectors (Tremblay et al. 2016).

The method is that of Tremblay, Puy, Gribonval and Vandergheynst. K clusters need the distances between rows
of K eigenvectors, not the vectors. A flat filter h, near one on the first K eigenvalues and near zero on the
others, turns d random columns into ``h(L) R``, whose rows keep these distances (Johnson and Lindenstrauss)
once d is a few ``log2 K``. One step:

1. **Draw** d random columns, Gaussian in the metric, without their part along the null vector.
2. **Count.** Chebyshev moments of the columns give the density of eigenvalues: where the first K end (the
   edge), and the degree that a filter needs there. Moments are taken until some degree will do.
3. **Filter** the same columns by the Jackson-damped step of that degree.

The result has d columns plus the null vector, not K: what is said of it is a statement
(:mod:`spectrograd.certificate.mixed_columns`), no certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.certificate.mixed_columns import MixedColumns
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.linalg.step_filter import ChebyshevTerms, Edge, Moments, SpectralDensity, apply_step
from spectrograd.solvers.base import Problem, Solver, State
from spectrograd.solvers.ritz import random_block

COLUMNS_PER_DOUBLING = 3  # of the number of clusters
FIRST_MOMENT_PASSES = 6  # before the density is looked at for the first time
BLOCKS = 4  # of the three-term recurrence, and the filtered columns
MORE_MOMENT_PASSES = 1.5  # times as many until the next look


@dataclass(eq=False)
class CompressiveState(State):
    """The filtered columns, and the statement on them once they are."""

    mixed: MixedColumns | None = None


@dataclass(frozen=True)
class Compressive(Solver[CompressiveState]):
    """Compressive spectral clustering (Tremblay et al. 2016): filtered random columns.

    Definition: ``U = h(L) R``, R of shape N x d with d = 3 log2 K, h a Jackson-damped Chebyshev step that
    falls between the K-th eigenvalue and the next. Meaning: rows of U have the distances of rows of K
    eigenvectors.

    Cost: some 15 to 50 passes with d columns, half of them to count; four blocks of N x d in float32.
    **Use it** for a hundred clusters or more with a gap after the K-th eigenvalue. **Do not** where
    eigenvectors are wanted, or where there is no such gap: the statement of the result then says so.

    Parameters
    ----------
    n_columns
        Random columns d; None: 3 log2 K. At least log2 K.
    degree
        Highest degree of the filter, and most passes of the count; both use fewer where the gap allows it.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(2000, 40, random_state=0).graph
    >>> solvers.solve(Problem(laplacian(graph), 40), Compressive(), seed=0).Q.shape
    (2000, 17)
    """

    n_columns: int | None = None
    degree: int = 60
    max_iter: int = 1

    name: ClassVar[str] = "compressive"
    direct: ClassVar[bool] = True

    @classmethod
    def result_columns(cls, k: int) -> int:
        """The usual d, and the null vector."""
        return min(math.ceil(COLUMNS_PER_DOUBLING * math.log2(max(k, 2))) + 1, k)

    @classmethod
    def streamed_columns(cls, k: int) -> int:
        """Blocks of d columns that are held at once."""
        return BLOCKS * cls.result_columns(k)

    def check(self, problem: Problem) -> None:
        """Refuse numbers of clusters and columns that cannot work."""
        super().check(problem)
        k = problem.n_components
        if k < 2:
            raise ValueError("compressive: n_components=1 has nothing to tell apart: at least 2 are needed")
        if self.degree < FIRST_MOMENT_PASSES:
            raise ValueError(f"compressive: degree={self.degree}: at least {FIRST_MOMENT_PASSES} are needed")
        least = math.ceil(math.log2(k))
        if self.n_columns is not None and self.n_columns < least:
            raise ValueError(
                f"compressive: n_columns={self.n_columns} cannot tell {k} clusters apart: at least {least} "
                f"are needed, and {COLUMNS_PER_DOUBLING * least} are usual"
            )

    def init(self, problem: Problem, rng: np.random.Generator) -> CompressiveState:
        """Return an empty state: the one step draws the columns."""
        return CompressiveState(np.empty((0, 0)), rng)

    def step(self, problem: Problem, state: CompressiveState) -> CompressiveState:
        """The first step is the last."""
        engine = problem.engine
        operator = problem.random_walk.operator
        null = self._null_vector(problem)
        n_trivial = 0 if null is None else 1
        k = problem.n_components
        d = min(self.n_columns or math.ceil(COLUMNS_PER_DOUBLING * math.log2(k)), k - n_trivial)
        seed = new_seed(state.rng)
        # 1. draw: the same columns are counted and filtered
        terms = ChebyshevTerms(engine, operator, self._draw(problem, d, seed, null))
        # 2. count: where the K-th eigenvalue ends, and which degree tells it from the next
        excluded = problem.operator.excluded_rows
        n_active = problem.n_nodes - (0 if excluded is None else len(excluded))
        density, edge, degree = self._find_filter(terms, k - n_trivial, n_active - n_trivial)
        state.matvecs += terms.degree * d
        del terms
        # 3. filter: U = h(L) R (Tremblay et al. 2016, Algorithm 1, steps 3 and 4)
        block = apply_step(engine, operator, self._draw(problem, d, seed, null), edge.value, degree)
        state.matvecs += degree * d
        state.U = problem.random_walk.inverse_transform(block)
        if null is not None:
            state.U = engine.hstack(problem.random_walk.inverse_transform(null), state.U)
        foreign = density.quality(edge.value, degree).noise
        count = edge.count + n_trivial
        state.mixed = MixedColumns(k, d, edge.value, count, edge.standard_error, foreign, degree)
        if state.mixed.objections:
            state.events.append(state.mixed.sentence)
        state.iteration = 1
        state.done = True
        return state

    def evidence(self, problem: Problem, state: CompressiveState) -> Evidence:
        """The statement on the columns."""
        return Evidence(mixed=state.mixed)

    def _find_filter(
        self, terms: ChebyshevTerms, n_below: int, n_values: int
    ) -> tuple[SpectralDensity, Edge, int]:
        """Mutates: advance the terms until their density shows an edge and a degree that will do.

        ``n_below`` of ``n_values`` eigenvalues are to lie below the edge.
        """
        moments = Moments(terms)
        passes = FIRST_MOMENT_PASSES
        while True:
            # two moments per pass: degree 2 passes
            moments.extend(passes)
            density = moments.density(n_values)
            edge = density.find_edge(n_below)
            # The density is no sharper than a filter of twice the degree.
            degree = density.least_degree(edge.value, min(self.degree, 2 * passes))
            if degree is not None:
                return density, edge, degree
            if passes >= self.degree:
                return density, edge, self.degree
            passes = min(self.degree, math.ceil(MORE_MOMENT_PASSES * passes))

    def _draw(self, problem: Problem, d: int, seed: int, null: MultiVector | None) -> MultiVector:
        """Random columns N x d in random-walk form, orthogonal to the null vector, zero on excluded rows."""
        engine = problem.engine
        block = random_block(problem, d, seed, np.float32)
        excluded = problem.operator.excluded_rows
        if excluded is not None:
            is_active = np.ones((problem.n_nodes, 1))
            is_active[excluded] = 0
            block = engine.scale_rows(block, engine.from_numpy(is_active))
        if null is None:
            return block
        # X - x0 (x0'B X): the null vector outgrows all others in float32
        along = engine.gram(null, block, problem.random_walk.operator.metric)
        return engine.combine_inplace(block, np.eye(d), null, -along)

    def _null_vector(self, problem: Problem) -> MultiVector | None:
        """The null vector in random-walk form, of length one in its metric; None where none is known."""
        engine = problem.engine
        vector = problem.operator.null_vector
        if vector is None:
            return None
        null = problem.random_walk.transform(engine.from_numpy(vector[:, None].astype(np.float32)))
        length = engine.gram(null, null, problem.random_walk.operator.metric) ** 0.5
        return engine.combine(null, 1 / length)
