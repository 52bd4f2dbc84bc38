"""``power``: a power of the normalised affinity times a random block (Boutsidis et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from spectrograd.solvers.protocol import Problem, Solver, State
from spectrograd.solvers.similarity import Similarity

Array = NDArray[Any]
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
        state = PowerState(problem.operator.to_standard(guess), rng)
        state.similarity = Similarity.of(problem, state, "centre" if self.shift == "auto" else self.shift)
        return self._multiplied(problem, state)

    def step(self, problem: Problem, state: State) -> PowerState:
        """Two more products: the power p grows by one."""
        assert isinstance(state, PowerState)
        before = state.U
        self._multiplied(problem, state)
        if state.is_orthonormal and self.shift == "auto" and _has_negative(before, state.U):
            self._restart(problem, state)
        state.is_orthonormal = False
        self._multiplied(problem, state)
        state.iteration += 1
        if 2 * state.iteration % PRODUCTS_PER_QR == 0:
            state.U, state.is_orthonormal = np.linalg.qr(state.U)[0], True
        return state

    def _multiplied(self, problem: Problem, state: PowerState) -> PowerState:
        assert state.similarity is not None
        state.U = state.similarity.apply(problem.engine, state.U)
        if not state.is_orthonormal:  # else the product is still needed as it is, and small anyway
            state.U /= np.abs(state.U).max(axis=0)
        state.passes += 1
        return state

    def _restart(self, problem: Problem, state: PowerState) -> None:
        """Begin again with a similarity that has no negative eigenvalues."""
        if state.restarted:
            return
        state.similarity = Similarity.of(problem, state, "psd")
        state.U = np.linalg.qr(state.rng.standard_normal(state.U.shape))[0]
        state.restarted = True
        state.events.append(
            f"iteration {state.iteration}: negative eigenvalues dominate, started again with shift='psd'"
        )

    def back_off(self, problem: Problem, state: State) -> State | None:
        """An objective that grows is the other end of the spectrum coming in."""
        assert isinstance(state, PowerState)
        if state.restarted or self.shift != "auto":
            return None
        self._restart(problem, state)
        state.is_orthonormal = False
        return state

    def finish(self, problem: Problem, state: State) -> Array:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.operator.from_standard(state.U)).Q


def _has_negative(Q: Array, product: Array) -> bool:
    """Whether negative eigenvalues of S are among those found, alone or mixed with positive ones.

    Without them the Ritz values of S are close to the roots of those of ``S^2`` after a few products.
    """
    H, H2 = Q.T @ product, product.T @ product
    smallest, smallest2 = np.linalg.eigvalsh((H + H.T) / 2)[0], np.linalg.eigvalsh(H2)[0]
    return bool(smallest < SIGN_RATIO * np.sqrt(max(smallest2, 0.0)))
