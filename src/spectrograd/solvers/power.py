"""``power``: a power of the normalised affinity times a random block (Boutsidis et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.solvers.protocol import Problem, Solver, State
from spectrograd.solvers.similarity import Shift, Similarity

Array = NDArray[Any]
# Products between two orthonormalisations: often enough that no direction drowns in rounding.
PRODUCTS_PER_QR = 8


@dataclass(eq=False)
class PowerState(State):
    """``U`` is in standard form; the similarity is made once."""

    similarity: Similarity | None = None


@dataclass(frozen=True)
class Power(Solver):
    """``B = (S S')^p S G`` with G Gaussian N x K; the left singular vectors of B span the answer.

    **Definition.** ``S = c I - A``; a normalised Laplacian with ``shift="centre"`` has
    ``S = D^-1/2 W D^-1/2`` as in the paper. ``iteration`` counts p. The basis is orthonormalised now and
    then, which leaves the span of B as it is and keeps its digits.

    **Meaning.** Every product multiplies the part of a vector along an eigenvector by its eigenvalue of
    ``S``; after 2p + 1 of them the K largest in magnitude are left. The error shrinks like
    ``|s_{K+1} / s_K|^(2p+1)``.

    **Cost.** Two passes per iteration, O(N K) memory: nothing but products.

    **Use it** where a gap follows the K-th eigenvalue (block models: a few dozen passes) and simplicity
    counts. **Do not** on k-NN graphs, roads or meshes, whose gaps are tiny; nor, with ``shift="centre"``,
    on nearly bipartite graphs: eigenvalues near -1 are as large in magnitude as those near 1, and the
    certificate will say NOT converged. ``shift="psd"`` is right there, and slower elsewhere.

    Parameters
    ----------
    max_iter
        The power p.
    shift
        ``"centre"`` (the paper) or ``"psd"``, which makes all eigenvalues positive.

    References
    ----------
    Boutsidis, Gittens, Kambadur: Spectral clustering via the power method - provably. ICML, 2015.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> from spectrograd.laplacian import laplacian
    >>> from spectrograd.solvers import Stopping, solve
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solution = solve(Problem(laplacian(graph), 3), Power(), stopping=Stopping(tol=1e-3), seed=0)
    >>> solution.stop_reason
    'converged'
    """

    max_iter: int = 500
    shift: Shift = "centre"

    name: ClassVar[str] = "power"
    report_every: ClassVar[int] = 5

    def init(self, problem: Problem, rng: np.random.Generator) -> PowerState:
        """``B = S G``: p = 0."""
        guess = problem.first_guess(rng)  # orthonormal: the same span as its Gaussian block
        metric = problem.operator.metric
        state = PowerState(guess if metric is None else np.sqrt(metric)[:, None] * guess, rng)
        state.similarity = Similarity.of(problem, state, self.shift)
        state.U = state.similarity.apply(problem.engine, state.U)
        state.passes += 1
        return state

    def step(self, problem: Problem, state: State) -> PowerState:
        """p -> p + 1."""
        assert isinstance(state, PowerState)
        assert state.similarity is not None
        for _ in range(2):
            state.U = state.similarity.apply(problem.engine, state.U)
            state.U /= np.abs(state.U).max(axis=0)
        state.iteration += 1
        state.passes += 2
        if 2 * state.iteration % PRODUCTS_PER_QR == 0:
            state.U = np.linalg.qr(state.U)[0]
        return state

    def finish(self, problem: Problem, state: State) -> Array:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.operator.from_standard(state.U)).Q
