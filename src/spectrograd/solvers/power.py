"""Power iterations: ``power`` and ``coordinate-power``.

:class:`Power` multiplies a random block by a power of the similarity ``S = c I - A`` (Boutsidis et al. 2015);
:class:`CoordinatePower` finds one vector after the other and updates only the coordinates farthest from
done (Lei, Zhong, Dhillon 2016).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from spectrograd.engines.base import Engine, MultiVector, new_seed
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.operators.base import ALL
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem, Solver, State
from spectrograd.solvers.similarity import Shift, Similarity
from spectrograd.typing import Array

# Products between two orthonormalisations: often enough that no direction drowns in rounding.
PRODUCTS_PER_QR = 8
SIGN_RATIO = 0.8


@dataclass(eq=False)
class PowerState(State):
    """``U`` is in standard form; the similarity is made once, or twice after a ``restarted`` run."""

    similarity: Similarity | None = None
    is_orthonormal: bool = False
    restarted: bool = False


@dataclass(frozen=True)
class Power(Solver[PowerState]):
    """``B = (S S')^p S G`` with G Gaussian N x K; the left singular vectors of B span the answer.

    **Definition.** ``S = c I - A``; a normalised Laplacian with ``shift="centre"`` has
    ``S = D^-1/2 W D^-1/2`` as in the paper. ``iteration`` counts p. The basis is orthonormalised now and
    then, which leaves the span of B as it is and keeps its digits.

    **Meaning.** Every product multiplies the part of a vector along an eigenvector by its eigenvalue of
    ``S``; after 2p + 1 of them the K largest in magnitude are left. The error shrinks like
    ``|s_{K+1} / s_K|^(2p+1)``.

    **Cost.** Two passes per iteration, O(N K) memory: nothing but products.

    **Use it** where a gap follows the K-th eigenvalue (block models: a few dozen passes) and simplicity
    counts. **Do not** on k-NN graphs, roads or meshes, whose gaps are tiny: the certificate will say NOT
    converged. On nearly bipartite graphs the affinity of the paper has eigenvalues near -1 that are as
    large in magnitude as those near 1; ``shift="auto"`` notices negative Ritz values and starts again
    with a shift that makes all eigenvalues positive. ``"centre"`` does not, and finds the wrong end.

    Parameters
    ----------
    max_iter
        The power p.
    shift
        ``"centre"`` (the paper), ``"psd"``, which makes all eigenvalues positive and is slower, or
        ``"auto"``: the first until it is seen to fail, then the second.

    References
    ----------
    Boutsidis, Gittens, Kambadur: Spectral clustering via the power method - provably. ICML, 2015.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> from spectrograd.operators.laplacian import laplacian
    >>> from spectrograd.solvers import Stopping, solve
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solution = solve(Problem(laplacian(graph), 3), Power(), stopping=Stopping(tol=1e-3), seed=0)
    >>> solution.stop_reason
    'converged'
    """

    max_iter: int = 500
    shift: Literal["auto", "centre", "psd"] = "auto"

    name: ClassVar[str] = "power"
    report_every: ClassVar[int] = 5

    def init(self, problem: Problem, rng: np.random.Generator) -> PowerState:
        """``B = S G``: p = 0."""
        guess = problem.first_guess(rng)  # orthonormal: the same span as its Gaussian block
        state = PowerState(problem.standard.transform(guess), rng)
        state.similarity = Similarity.of(problem, state, "centre" if self.shift == "auto" else self.shift)
        return self._multiply(problem, state)

    def step(self, problem: Problem, state: PowerState) -> PowerState:
        """Two more products: the power p grows by one."""
        # 1. the first product; it shows whether negative eigenvalues dominate
        before = state.U
        self._multiply(problem, state)
        if state.is_orthonormal and self.shift == "auto" and _has_negative(problem.engine, before, state.U):
            self._restart(problem, state)
        # 2. the second product: p grows by one
        state.is_orthonormal = False
        self._multiply(problem, state)
        state.iteration += 1
        # 3. now and then a QR, before the columns become parallel
        if 2 * state.iteration % PRODUCTS_PER_QR == 0:
            state.U = orthonormalize(problem.engine, state.U, None, state.rng).Q
            state.is_orthonormal = True
        return state

    def _multiply(self, problem: Problem, state: PowerState) -> PowerState:
        assert state.similarity is not None
        state.U = state.similarity.apply(problem.engine, state.U)
        if not state.is_orthonormal:  # else the product is still needed as it is, and small anyway
            # unit columns, against overflow
            lengths = np.sqrt(np.diag(problem.engine.gram(state.U, state.U, symmetric=True)))
            state.U = problem.engine.combine(state.U, np.diag(1 / np.maximum(lengths, 1e-300)))
        state.matvecs += state.U.shape[1]
        return state

    def _restart(self, problem: Problem, state: PowerState) -> None:
        """Begin again with a similarity that has no negative eigenvalues."""
        if state.restarted:
            return
        # shift = largest eigenvalue of A: all eigenvalues of S are at least zero
        state.similarity = Similarity.of(problem, state, "psd")
        n, k = state.U.shape
        fresh = problem.engine.random(n, k, new_seed(state.rng), np.float64)
        state.U = orthonormalize(problem.engine, fresh, None, state.rng).Q
        state.restarted = True
        state.events.append(
            f"iteration {state.iteration}: negative eigenvalues dominate, started again with shift='psd'"
        )

    def back_off(self, problem: Problem, state: PowerState) -> PowerState | None:
        """An objective that grows is the other end of the spectrum coming in."""
        if state.restarted or self.shift != "auto":
            return None
        self._restart(problem, state)
        state.is_orthonormal = False
        return state

    def finish(self, problem: Problem, state: PowerState) -> MultiVector:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.standard.inverse_transform(state.U)).Q


def _has_negative(engine: Engine, Q: MultiVector, product: MultiVector) -> bool:
    """Whether negative eigenvalues of S are among those found, alone or mixed with positive ones.

    Without them the Ritz values of S are close to the roots of those of ``S^2`` after a few products.
    """
    # Q'SQ, whose eigenvalues have signs, and Q'S^2 Q, whose have none
    H = engine.gram(Q, product)
    H2 = engine.gram(product, product)
    smallest = np.linalg.eigvalsh((H + H.T) / 2)[0]
    smallest2 = np.linalg.eigvalsh(H2)[0]
    return bool(smallest < SIGN_RATIO * np.sqrt(max(smallest2, 0.0)))


# --- ``coordinate-power``: power iteration on the coordinates that matter (Lei, Zhong, Dhillon 2016).


@dataclass(frozen=True, eq=False)
class Columns:
    """``S = M + diag(diagonal) + P diag(a) P'`` laid out for reading columns; never changes."""

    similarity: Similarity
    matrix: tuple[Array, Array, Array]
    diagonal: Array
    factors: Array
    coefficients: Array

    @classmethod
    def of(cls, similarity: Similarity) -> Columns:
        """Fold the scaling into the entries: one array as long as the graph's."""
        operator = similarity.sparse
        matrix = sp.csr_array(operator.graph.matrix, dtype=np.float64)
        if operator.scale is not None:
            # D^-1/2 W D^-1/2, so that a column can be read as it is stored
            scaling = sp.diags_array(operator.scale)
            matrix = sp.csr_array(scaling @ matrix @ scaling)
        low_rank = operator.low_rank
        return cls(
            similarity,
            (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data),
            similarity.shift - operator.diagonal,
            np.zeros((operator.n_nodes, 0)) if low_rank is None else low_rank.factors,
            np.zeros(0) if low_rank is None else low_rank.coefficients,
        )

    def sparse_product(self, U: Array) -> Array:
        """``(M + diag(diagonal)) U``."""
        indptr, indices, data = self.matrix
        matrix = sp.csr_array((data, indices, indptr), shape=(len(U), len(U)))
        return np.asarray(matrix @ U + self.diagonal[:, None] * U)

    def __deepcopy__(self, memo: dict[int, object]) -> Columns:
        """Itself: the loop copies states."""
        return self


@dataclass(eq=False)
class CoordinateState(State):
    """``U`` in standard form, ``Z`` its product with the sparse part of S; ``active`` is being updated."""

    columns: Columns | None = field(default=None, metadata={DERIVED: True})
    Z: Array = field(default_factory=lambda: np.zeros((0, 0)))
    values: Array = field(default_factory=lambda: np.zeros(0))
    residuals: Array = field(default_factory=lambda: np.zeros(0))
    active: int = 0


@dataclass(frozen=True)
class CoordinatePower(Solver[CoordinateState]):
    """One eigenvector after the other, updating only the coordinates farthest from done.

    **Definition.** Keep ``z = S x``, ``S = c I - A`` positive semidefinite. A round takes
    ``y = z / theta``, theta the Rayleigh quotient, moves the coordinates of largest ``|y - x|`` and
    corrects z by their columns of S. After some rounds the vector v with value s is removed from the
    matrix (``S - s v v'``) and the next one is taken up; after the last, Rayleigh-Ritz sets the vectors
    apart and the next cycle begins with those that are not done.

    **Meaning.** Where eigenvectors live on few nodes, most coordinates are right after a few rounds and
    plain power iteration wastes its time on them. ``passes`` counts coordinate updates over N: an
    update reads one column, so N of them read the graph once (plain power spends N per vector and pass).

    **Cost.** Choosing the coordinates is O(N) per round beside the columns read; O(N K + edges) memory.

    **Use it** where reading columns is what costs and eigenvectors are localised. **Do not** where no gap
    follows the K-th eigenvalue (k-NN graphs, roads): the certificate says NOT converged.

    Parameters
    ----------
    share
        Fraction of the coordinates per round, in (0, 1]; 1 is plain power iteration with deflation.
    sweeps
        How often a vector gets N coordinate updates per cycle.
    vector_tol
        Residual, relative to the width of the spectrum, at which a vector is done.
    shift
        ``"psd"``, or ``"centre"`` where nothing is near the other end of the spectrum.

    References
    ----------
    Lei, Zhong, Dhillon: Coordinate-wise power method. NeurIPS, 2016.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solvers.solve(Problem(laplacian(graph), 3), CoordinatePower(), seed=0).stop_reason
    'done'
    """

    share: float = 0.05
    sweeps: int = 10
    vector_tol: float = 5e-5
    shift: Shift = "psd"
    max_iter: int = 1000

    name: ClassVar[str] = "coordinate-power"
    requires = ALL
    report_every: ClassVar[int] = 5

    def init(self, problem: Problem, rng: np.random.Generator) -> CoordinateState:
        """Random start, or the warm one."""
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share}: expected a number in (0, 1]")
        if self.sweeps < 1:
            raise ValueError(f"sweeps={self.sweeps}: at least one is needed")
        guess = problem.first_guess(rng)
        state = CoordinateState(problem.standard.transform(guess), rng)
        state.columns = Columns.of(Similarity.of(problem, state, self.shift))
        self._rotate(problem, state)
        return state

    def step(self, problem: Problem, state: CoordinateState) -> CoordinateState:
        """Some rounds over one vector; after the last vector a Rayleigh-Ritz step."""
        if state.residuals[state.active] > self._goal(problem):
            self._update_coordinates(problem, state)
        state.iteration += 1
        state.active += 1
        if state.active == state.U.shape[1]:
            self._rotate(problem, state)
            state.active = 0
            state.done = bool(state.residuals.max() <= self._goal(problem))
        return state

    def _goal(self, problem: Problem) -> float:
        return self.vector_tol * (problem.operator.upper - problem.operator.lower)

    def _update_coordinates(self, problem: Problem, state: CoordinateState) -> None:
        """Coordinate updates of the active vector, with those before it deflated."""
        from spectrograd.kernels.baselines import coordinate_rounds

        assert state.columns is not None
        columns = state.columns
        n = problem.n_nodes
        j = state.active
        # 1. the active vector x and z = S x; vectors before it are deflated: S - sum_i s_i v_i v_i'
        x = np.ascontiguousarray(state.U[:, j])
        z = np.ascontiguousarray(state.Z[:, j])
        P = np.ascontiguousarray(np.hstack([columns.factors, state.U[:, :j]]))
        a = np.concatenate([columns.coefficients, -state.values[:j]])
        # 2. rounds over the coordinates farthest from z / theta (Lei et al. 2016, Algorithm 1)
        size = max(1, round(self.share * n))
        n_rounds = max(1, self.sweeps * n // size)
        theta, _, _ = coordinate_rounds(columns.matrix, columns.diagonal, (P, a), x, z, size, n_rounds)
        # 3. a Rayleigh quotient that is not positive: S is not positive semidefinite
        norm = np.linalg.norm(x)
        if not (theta > 0 and np.isfinite(norm)):
            raise FloatingPointError("the Rayleigh quotient is not positive: take shift='psd'")
        state.U[:, j] = x / norm
        state.values[j] = theta
        state.matvecs += n_rounds * size / n

    def _rotate(self, problem: Problem, state: CoordinateState) -> None:
        """Rayleigh-Ritz: sets vectors of close eigenvalues apart. Costs N updates per vector."""
        assert state.columns is not None
        columns = state.columns
        # 1. an orthonormal basis, and S Q
        Q = np.linalg.qr(state.U)[0]
        Z = columns.sparse_product(Q)
        product = Z + columns.factors @ (columns.coefficients[:, None] * (columns.factors.T @ Q))
        # 2. Ritz pairs, the largest first
        H = Q.T @ product
        values, rotation = np.linalg.eigh((H + H.T) / 2)
        values = values[::-1]
        rotation = rotation[:, ::-1]
        state.U = Q @ rotation
        state.Z = Z @ rotation
        state.values = values.copy()
        # 3. residuals: vectors that are accurate are skipped in the next cycle
        state.residuals = np.linalg.norm(product @ rotation - state.U * values, axis=0)
        state.matvecs += Q.shape[1]

    def finish(self, problem: Problem, state: CoordinateState) -> Any:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.standard.inverse_transform(state.U)).Q
