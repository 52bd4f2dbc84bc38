"""``joint``: every layer's embedding and the merged one in one run, on one shared objective.

The paper's future work. With U the merged basis and U^s those of the layers, minimise

    sum_s c_s [ Tr(U' L^s U) + Tr(U^s' L^s U^s) - alpha Tr(U U' U^s U^s') ]

over all of them at once. For fixed U^s the merged problem is Eq. 22; for fixed U the last term draws
each layer towards the consensus, as strongly as ``coupling`` says. An edge that is read serves two
blocks, its layer's and the merged one, so the merged embedding costs no pass of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, mean, projection
from spectrograd.engines.minibatch import BatchSource
from spectrograd.solvers.embed import Settings
from spectrograd.solvers.loop import Solution, Stopping, solve
from spectrograd.solvers.protocol import Problem, Progress, Solver, State

Array = NDArray[Any]
NEEDS_EMBEDDINGS = True
OPTIONS = ("coupling", "degree", "epochs", "guard")
LOOSER = 10
aggregate = projection.aggregate


@dataclass(eq=False)
class JointState(State):
    """``blocks`` are the merged basis and then one per layer (K columns and guards); ``U`` the K of each."""

    blocks: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    residuals: Array = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Joint(Solver):
    """Stochastic epochs on sampled edges, then sweeps of Chebyshev steps that share every pass.

    Parameters
    ----------
    layers, alphas
        The layers, and alpha for each of them.
    coupling
        How strongly the layers are drawn to the merged basis, relative to alpha. 0, the default, lets
        each layer speak for itself; on the synthetic data .05 already cost .02 NMI, for the layers
        then repeat an early consensus instead of correcting it.
    degree
        Passes per sweep; one more measures it.
    epochs
        Stochastic epochs at the start: N sampled edges per layer each.
    guard
        Extra columns per block.
    """

    layers: Layers
    alphas: Array
    coupling: float = 0.0
    degree: int = 20
    epochs: int = 5
    guard: int = 7
    batch_size: int = 4000
    max_iter: int = 60

    name: ClassVar[str] = "joint"

    def init(self, problem: Problem, rng: np.random.Generator) -> JointState:
        """One random basis for all blocks: they describe the same nodes."""
        width = min(problem.n_components + self.guard, problem.n_nodes - 1)
        Q = problem.orthonormalize(rng.standard_normal((problem.n_nodes, width)), rng).Q
        state = JointState(Q, rng, blocks=[Q] * (len(self.layers.operators) + 1))
        if self.epochs:
            sources = [BatchSource.of(op) if op.graph.n_edges else None for op in self.layers.operators]
            for _ in range(self.epochs):
                self._epoch(problem, state, sources)
        self._measure(problem, state)
        return state

    def step(self, problem: Problem, state: State) -> JointState:
        """One sweep: every block filtered with all the others held, then Rayleigh-Ritz."""
        assert isinstance(state, JointState)
        self._sweep(problem, state)
        self._measure(problem, state)
        state.iteration += 1
        return state

    def progress(self, problem: Problem, state: State) -> Progress:
        """What the last Rayleigh-Ritz found: no further pass."""
        assert isinstance(state, JointState)
        k, weights = problem.n_components, self.layers.weights
        total = sum(c * float(v[:k].sum()) for c, v in zip([1.0, *weights], state.values, strict=True))
        return Progress(
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            objective=total,
            residual=float(state.residuals.max()),
            orthogonality_error=0.0,
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: State) -> Array:
        """The merged basis and then the layers', side by side."""
        return state.U

    def _products(self, state: JointState, blocks: list[Array]) -> list[Array]:
        """One pass: each layer's edges times its own block and the merged one."""
        merged, out = np.zeros_like(blocks[0]), []
        width = blocks[0].shape[1]
        for c, operator, block in zip(self.layers.weights, self.layers.operators, blocks[1:], strict=True):
            both = operator @ np.hstack([blocks[0], block])
            merged += c * both[:, :width]
            absent = operator.graph.degrees == 0
            own = both[:, width:]
            own[absent] = operator.upper * block[absent]  # as in without_absent
            out.append(own)
        state.passes += 1
        return [merged, *out]

    def _attraction(self, k: int, blocks: list[Array]) -> list[tuple[Array, Array]]:
        """The low-rank part ``Z diag(a) Z'`` that each block's operator subtracts."""
        layers = [block[:, :k] for block in blocks[1:]]
        strengths = np.repeat(self.layers.weights * self.alphas, k)
        towards = [(blocks[0][:, :k], np.full(k, self.coupling * alpha)) for alpha in self.alphas]
        return [(np.hstack(layers), strengths), *towards]

    def _bounds(self) -> list[tuple[float, float]]:
        """Lower and upper bound of every block's operator."""
        merged = (
            -float(self.layers.weights @ self.alphas),
            float(
                sum(c * op.upper for c, op in zip(self.layers.weights, self.layers.operators, strict=True))
            ),
        )
        own = [
            (-self.coupling * a, op.upper) for a, op in zip(self.alphas, self.layers.operators, strict=True)
        ]
        return [merged, *own]

    def _measure(self, problem: Problem, state: JointState) -> None:
        """Rayleigh-Ritz in every block: one shared pass; the layers first, then the merged one on them."""
        k = problem.n_components
        blocks = [problem.orthonormalize(block, state.rng).Q for block in state.blocks]
        blocks[0] = self._with_consensus(problem, state, blocks)
        products = self._products(state, blocks)
        values: list[Array] = [np.zeros(0)] * len(blocks)
        residuals = np.zeros(len(blocks))
        for at in [*range(1, len(blocks)), 0]:
            Z, a = self._attraction(k, blocks)[at]
            AQ = products[at] - Z @ (a[:, None] * (Z.T @ blocks[at]))
            H = problem.gram(blocks[at], AQ)
            values[at], rotation = la.eigh((H + H.T) / 2)
            blocks[at] = blocks[at] @ rotation
            rest = (AQ @ rotation - blocks[at] * values[at])[:, :k]
            residuals[at] = np.linalg.norm(rest, axis=0).max()
        state.blocks, state.values, state.residuals = blocks, values, residuals
        state.U = np.hstack([block[:, :k] for block in blocks])

    def _with_consensus(self, problem: Problem, state: JointState, blocks: list[Array]) -> Array:
        """The merged basis with what the layers have in common (the ``grassmann`` merge) as its guards.

        It costs no pass, and follows the layers while they still move.
        """
        k, width = problem.n_components, blocks[0].shape[1]
        if width == k:
            return blocks[0]
        roots = np.sqrt(self.layers.weights)
        Z = np.hstack([root * block[:, :k] for root, block in zip(roots, blocks[1:], strict=True)])
        _, rotation = la.eigh(Z.T @ Z)
        common = Z @ rotation[:, ::-1][:, : width - k]
        kept = blocks[0][:, : width - common.shape[1]]
        return problem.orthonormalize(np.hstack([kept, common]), state.rng).Q

    def _sweep(self, problem: Problem, state: JointState) -> None:
        """Chebyshev filters of all blocks in step; damps what lies above each block's last Ritz value."""
        attraction = self._attraction(problem.n_components, state.blocks)
        filters = [
            _Filter(low, float(v[-1]), high)
            for (low, high), v in zip(self._bounds(), state.values, strict=True)
        ]
        before: list[Array] = []
        current = state.blocks
        for _ in range(self.degree):
            products = self._products(state, current)
            following = []
            for at, (Z, a) in enumerate(attraction):
                AX = products[at] - Z @ (a[:, None] * (Z.T @ current[at]))
                following.append(filters[at].next(AX, current[at], before[at] if before else None))
            before, current = current, following
        state.blocks = current

    def _epoch(self, problem: Problem, state: JointState, sources: list[BatchSource | None]) -> None:
        """N sampled edges of every layer, each used twice; then the attraction, which needs no edges."""
        k = problem.n_components
        blocks = [problem.orthonormalize(block, state.rng).Q for block in state.blocks]
        attraction = self._attraction(k, blocks)
        share = self.layers.weights / self.layers.weights.sum()
        for at, source in enumerate(sources):
            if source is None:
                continue
            linked = np.flatnonzero(source.operator.graph.degrees).astype(np.int32)
            stiffness = float(source.operator.diagonal.max())
            nothing = np.zeros((0, blocks[0].shape[1]))
            for heads in np.array_split(
                state.rng.permutation(linked), max(1, len(linked) // self.batch_size)
            ):
                batch = source.pairs(heads, state.rng)
                for block, rate in ((blocks[at + 1], 1.0), (blocks[0], share[at])):
                    G, _ = source.gradient(batch, block, nothing)
                    source.move(batch, G, block, np.full(len(batch.vertices), rate / stiffness))
            state.edges_seen += len(linked)
        scale = [1.0 / high for _, high in self._bounds()]
        state.blocks = [
            block + step * (Z @ (a[:, None] * (Z.T @ block)))
            for block, step, (Z, a) in zip(blocks, scale, attraction, strict=True)
        ]
        state.passes += len(share) * problem.n_nodes / sum(op.graph.n_edges for op in self.layers.operators)


class _Filter:
    """Scaled Chebyshev recurrence that damps [cut, high] and keeps the size at ``low`` (Zhou & Saad)."""

    def __init__(self, low: float, cut: float, high: float) -> None:
        cut = min(cut, 0.9 * high + 0.1 * low)
        self.middle, self.half = (cut + high) / 2, (high - cut) / 2
        self.sigma = self.first = self.half / (low - self.middle)

    def next(self, AX: Array, X: Array, before: Array | None) -> Array:
        """The following term, from ``A X``, X and the term before."""
        shifted = (AX - self.middle * X) / self.half
        if before is None:
            return np.asarray(self.sigma * shifted)
        sigma = 1 / (2 / self.first - self.sigma)
        out = 2 * sigma * shifted - (self.sigma * sigma) * before
        self.sigma = sigma
        return np.asarray(out)


def run(
    layers: Layers, n_components: int, settings: Settings, *, alpha: float | str = "auto", **options: Any
) -> tuple[Solution, Array, tuple[Array, ...]]:
    """The joint run: its story, the merged basis and the layers' own.

    It stops when the merged residual and those of the layers are below ten times the tolerance asked
    of an exact solver: the merged clusters do not change any more (docs/multilayer.md).
    """
    solver = Joint(layers, projection.resolve_alpha(alpha, layers), **options)
    frame = mean.aggregate(layers)
    limit = LOOSER * settings.tolerance * (frame.upper - frame.lower)
    solution = solve(
        Problem(frame, n_components, settings.engine),
        solver,
        stopping=Stopping(settings.max_iter, limit),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=settings.time_budget,
    )
    merged, *own = np.split(solution.Q, len(layers.operators) + 1, axis=1)
    return solution, merged, tuple(own)
