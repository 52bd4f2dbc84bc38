"""``stochastic-fb``: stochastic forward-backward splitting, the paper's rival (Han & Filippone 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import scipy.linalg as la

from spectrograd.operators.base import ALL
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem, State, SteppingSolver, StepState
from spectrograd.solvers.minibatch import Sampling, rows_of
from spectrograd.solvers.nystrom import nystrom_basis
from spectrograd.typing import Array

Setting = Literal["edges", "columns"]
MAX_ITERATIONS = {"edges": 3000, "columns": 600}


@dataclass(eq=False)
class RiemannianState(StepState):
    """Adds the sums of squared gradients (AdaGrad)."""

    squares: Array = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class StochasticForwardBackward(SteppingSolver[RiemannianState]):
    """``U <- QR(U - g (G - B U U'G))`` with ``G`` the gradient of a random sample of the graph.

    **Definition.** ``setting="edges"`` samples edges, as the paper's comparison does. ``"columns"`` is
    Han & Filippone's own: of the similarity ``C = D^-1/2 W D^-1/2`` (standard form) b columns are drawn,
    ``C_S = (N / b) C[:, S] E_S'``, the gradient is ``-(C_S X - X X'C_S X)``, and the start is the Nystrom
    solution. Both take AdaGrad steps and a QR factorisation at every step. What an operator has beyond
    edges (diagonal, low rank) is exact with ``"columns"``; with ``"edges"`` every vertex of a batch brings
    its share of it along, right on average.

    **Meaning.** The Riemannian gradient touches every row and the QR factorisation is taken at every
    step: that is what the implicit constraint of ``sgd-paper`` saves.

    **Cost.** O(batch K + N K^2) per step, O(N K) memory; with ``"columns"`` O(N n) for the start.

    **Use it** to compare with the literature. **Do not** for digits: AdaGrad's step of fixed length per
    coordinate keeps a noise floor, and the certificate says NOT converged.

    Parameters
    ----------
    step_size
        AdaGrad's eta.
    batch_size
        Edges per batch; in the setting ``"columns"`` as many columns as hold about that many.
    max_iter
        0 takes the setting's own: 3,000 for edges (the paper), 600 for columns (Han & Filippone).
    batch
        How edges are drawn; for the setting ``"edges"`` only.
    setting
        ``"edges"`` or ``"columns"``.
    n_landmarks
        Columns of the Nystrom start; for the setting ``"columns"`` only.

    References
    ----------
    Han, Filippone: Mini-batch spectral clustering. IJCNN, 2017.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solver = StochasticForwardBackward(setting="columns", n_landmarks=50)
    >>> solvers.solve(Problem(laplacian(graph), 3), solver, seed=0).last.iteration
    600
    """

    step_size: float = 2.5e-3
    batch_size: int = 4000
    max_iter: int = 0
    batch: Sampling = "edges"
    setting: Setting = "edges"
    n_landmarks: int = 200

    name: ClassVar[str] = "stochastic-fb"
    requires = ALL
    report_every: ClassVar[int] = 100
    has_goal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.setting not in MAX_ITERATIONS:
            raise ValueError(f"setting={self.setting!r}: expected 'edges' or 'columns'")
        if self.max_iter == 0:
            object.__setattr__(self, "max_iter", MAX_ITERATIONS[self.setting])

    def init(self, problem: Problem, rng: np.random.Generator) -> RiemannianState:
        """Start from a random orthonormal basis, or from the Nystrom solution."""
        unit = problem.row_unit if self.setting == "edges" else 1.0  # columns are sampled in standard form
        state = RiemannianState(problem.resident_guess(rng), rng, step_size=self.step_size * unit)
        if self.setting == "columns" and problem.start is None:
            # fewer landmarks than vectors would leave random columns
            landmarks = max(self.n_landmarks, problem.n_components)
            vectors = nystrom_basis(problem, state, landmarks)
            state.U = problem.orthonormalize(problem.standard.inverse_transform(vectors), rng).Q
        state.squares = np.zeros_like(state.U)
        return state

    def step(self, problem: Problem, state: RiemannianState) -> RiemannianState:
        """One batch: Riemannian gradient, AdaGrad, retraction by QR."""
        state.iteration += 1
        if self.setting == "columns":
            return self._column_step(problem, state)
        # 1. a batch of edges, drawn at random
        source = problem.batches
        U = state.U
        batch = source.sampler(self.batch)(self.batch_size, state.rng)
        state.edges_seen += batch.n_edges
        if batch.n_edges == 0:
            return state
        # 2. Riemannian gradient on the Stiefel manifold: G - B U (U'G), G the estimate of the batch
        Y = source.low_rank_product(problem.engine, U)
        G, H = source.gradient(batch, U, Y, projected=True)
        gradient = -(U @ H)
        if problem.operator.metric is not None:
            gradient *= problem.operator.metric[:, None]
        gradient[batch.vertices] += rows_of(G, len(batch.vertices))
        # 3. AdaGrad, and retraction by QR
        state.U = _retract(problem, self._move(state, U, gradient), state)
        return state

    def _column_step(self, problem: Problem, state: RiemannianState) -> RiemannianState:
        """Han & Filippone: ``X <- QR(X + eta (C_S X - X X'C_S X))`` in standard form."""
        operator = problem.sparse
        n = problem.n_nodes
        # 1. standard form, X = B^1/2 U
        root = 1.0 if operator.metric is None else np.sqrt(operator.metric)[:, None]
        X = root * state.U
        # 2. a sample S of columns that hold about batch_size edges
        per_column = operator.graph.n_entries / n
        n_columns = int(np.clip(round(self.batch_size / per_column), 1, n))
        nodes = state.rng.choice(n, n_columns, replace=False)
        CX, n_read = _sampled_product(operator.standard_form(), X, nodes)
        state.edges_seen += n_read // 2  # an edge is two entries
        # 3. projected step and QR (Han & Filippone 2017)
        moved = self._move(state, X, -(CX - X @ (X.T @ CX)))
        state.U = problem.standard.inverse_transform(np.ascontiguousarray(np.linalg.qr(moved)[0]))
        return state

    def _move(self, state: RiemannianState, U: Array, gradient: Array) -> Array:
        """AdaGrad's step."""
        # Duchi, Hazan & Singer 2011: each entry has a step of its own.
        state.squares += gradient**2
        moved = U - state.step_size * gradient / (np.sqrt(state.squares) + 1e-12)
        if not np.isfinite(moved).all():
            raise FloatingPointError("the step was too long")
        return np.asarray(moved)


def _sampled_product(operator: SparseOperator, X: Array, nodes: Array) -> tuple[Array, int]:
    """``-A X`` with the off-diagonal part estimated from some columns, and the entries read."""
    rows = operator.graph.matrix[nodes]  # columns, by symmetry
    scale = operator.scale
    sampled = X[nodes] if scale is None else scale[nodes, None] * X[nodes]
    # (N / b) C[:, S] X[S]: unbiased for C X
    product = (len(X) / len(nodes)) * (rows.T @ sampled)
    if scale is not None:
        product *= scale[:, None]
    if operator.low_rank is not None:
        Z = operator.low_rank.factors
        a = operator.low_rank.coefficients
        product += Z @ (a[:, None] * (Z.T @ X))
    return product - operator.diagonal[:, None] * X, rows.nnz


def _retract(problem: Problem, U: Array, state: State) -> Array:
    """The Q factor: Householder QR, or Cholesky QR where the metric is not the identity."""
    if problem.operator.metric is None:
        return np.ascontiguousarray(la.qr(U, mode="economic", check_finite=False, overwrite_a=True)[0])
    return np.asarray(problem.orthonormalize(U, state.rng).Q)
