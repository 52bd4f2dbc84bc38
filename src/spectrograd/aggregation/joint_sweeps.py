"""The sweeps of ``joint``: all layers and the merged block to a given accuracy, sharing every pass.

An edge that is read serves its layer's block and the merged one, so the merged embedding costs hardly a
pass of its own; a layer that has settled is not read any more (docs/adr/0013).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.aggregation import Layers
from spectrograd.linalg.filters import damping
from spectrograd.solvers.protocol import Problem, Progress, Solver, State

Array = NDArray[Any]


@dataclass(eq=False)
class JointState(State):
    """``blocks`` are the merged basis and then one per layer (K columns and guards); ``U`` the K of each.

    ``heads`` are the products of the edges with the blocks, from the last measurement; ``settled`` are the
    layers that are not read any more; ``consensus`` is what the layers are drawn to, where they are.
    """

    blocks: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    heads: list[Array] = field(default_factory=list)
    residuals: Array = field(default_factory=lambda: np.zeros(0))
    settled: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    consensus: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def merging(self) -> bool:
        """Whether a pass serves the merged block: all layers are read, or it alone is left."""
        return bool(self.settled.all() or not self.settled.any())


@dataclass(frozen=True)
class JointSweeps(Solver[JointState]):
    """Sweeps of Chebyshev steps that share every pass.

    Parameters
    ----------
    layers, alphas
        The layers, and alpha for each of them.
    coupling
        How strongly the layers are drawn to the merged basis, relative to alpha. 0, the default, lets
        each layer speak for itself; on the synthetic data .05 already cost .02 NMI, for the layers
        then repeat an early consensus instead of correcting it.
    degree, merge_degree
        Passes per sweep; the second of the sweeps of the merged block alone, whose gap is large.
    guard
        Extra columns per block.
    tighter
        How many times smaller the residuals of the layers are to be than the merged one, each relative to
        the width of its spectrum.
    settle
        Residual of the merged block that is enough; a layer that is as good is read no more. 0 is never.
    """

    layers: Layers
    alphas: Array
    coupling: float = 0.0
    degree: int = 12
    merge_degree: int = 4
    guard: int = 15
    tighter: float = 3.0
    settle: float = 0.0
    max_iter: int = 60

    name: ClassVar[str] = "joint"

    def init(self, problem: Problem, rng: np.random.Generator) -> JointState:
        """One random basis for all blocks: they describe the same nodes."""
        width, count = self._width(problem), len(self.layers.operators)
        Q = problem.orthonormalize(rng.standard_normal((problem.n_nodes, width)), rng).Q
        state = JointState(Q, rng, blocks=[Q] * (count + 1), settled=np.zeros(count, dtype=bool))
        self._fresh(state)
        self._measure(problem, state)
        return state

    def step(self, problem: Problem, state: JointState) -> JointState:
        """One sweep: every block filtered with all the others held, then Rayleigh-Ritz."""
        self._sweep(problem, state)
        self._measure(problem, state)
        state.iteration += 1
        return state

    def progress(self, problem: Problem, state: JointState) -> Progress:
        """What the last Rayleigh-Ritz found: no further pass."""
        k, weights = problem.n_components, self.layers.weights
        total = sum(c * float(v[:k].sum()) for c, v in zip([1.0, *weights], state.values, strict=True))
        return Progress(
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            objective=total,
            residual=float((state.residuals * self._importance()).max()),
            orthogonality_error=0.0,
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: JointState) -> Any:
        """The merged basis and then the layers', side by side."""
        return state.U

    def _width(self, problem: Problem) -> int:
        return min(problem.n_components + self.guard, problem.n_nodes - 1)

    def _fresh(self, state: JointState) -> None:
        """Nothing has been measured yet."""
        count = len(state.blocks)
        state.values, state.heads = [np.zeros(1)] * count, [np.zeros(0)] * count
        state.residuals = np.full(count, np.inf)
        state.consensus = np.zeros((len(state.U), 0))

    def _read(self, state: JointState, at: int, X: Array) -> Array:
        """The product of one layer with some columns: its edges are read once, or not at all."""
        operator = self.layers.operators[at]
        if X.shape[1] == 0:
            return np.zeros_like(X)
        state.passes += operator.graph.n_edges / sum(op.graph.n_edges for op in self.layers.operators)
        return np.asarray(operator @ X)

    def _products(
        self, state: JointState, blocks: list[Array], together: Array | None
    ) -> tuple[list[Array], Array]:
        """One pass: the edges of each layer times its own block and, where wanted, the merged columns.

        A settled layer has no product of its own; without merged columns it is not read at all.
        """
        nothing = np.zeros((len(blocks[0]), 0))
        shared = nothing if together is None else together
        own, total = [], np.zeros_like(shared)
        for at, (c, operator) in enumerate(zip(self.layers.weights, self.layers.operators, strict=True)):
            block = nothing if state.settled[at] else blocks[at + 1]
            width = block.shape[1]
            product = self._read(state, at, np.hstack([block, shared]))
            total += c * product[:, width:]
            absent = operator.graph.degrees == 0
            product[absent, :width] = operator.upper * block[absent]  # as in without_absent
            own.append(np.ascontiguousarray(product[:, :width]))
        return own, total

    def _attraction(self, state: JointState, k: int, blocks: list[Array]) -> list[tuple[Array, Array]]:
        """The low-rank part ``Z diag(a) Z'`` that each block's operator subtracts.

        Layers are drawn to the mean of the last two merged bases: to the last alone they would swing.
        """
        layers = [block[:, :k] for block in blocks[1:]]
        strengths = np.repeat(self.layers.weights * self.alphas, k)
        share = self.coupling * self.alphas * k / max(1, state.consensus.shape[1])
        towards = [(state.consensus, np.full(state.consensus.shape[1], a)) for a in share]
        return [(np.hstack(layers), strengths), *towards]

    def _bounds(self) -> list[tuple[float, float]]:
        """Lower and upper bound of every block's operator."""
        weights, operators = self.layers.weights, self.layers.operators
        upper = float(sum(c * op.upper for c, op in zip(weights, operators, strict=True)))
        own = [(-self.coupling * a, op.upper) for a, op in zip(self.alphas, operators, strict=True)]
        return [(-float(weights @ self.alphas), upper), *own]

    def _importance(self) -> Array:
        """What makes residuals comparable: those of the layers count relative to their narrower spectra."""
        (low, high), *own = self._bounds()
        return np.array([1.0, *(self.tighter * (high - low) / max(up - down, 1e-300) for down, up in own)])

    def _measure(self, problem: Problem, state: JointState) -> None:
        """Rayleigh-Ritz in every block that moved, in one pass; the layers first, then the merged one."""
        k, moved = problem.n_components, ~state.settled
        blocks = [state.blocks[0]]
        for block, fresh in zip(state.blocks[1:], moved, strict=True):
            blocks.append(problem.orthonormalize(block, state.rng).Q if fresh else block)
        # the merged vectors lie close to the span of the layers': all of them are candidates
        together = self._candidates(problem, state, blocks) if state.merging else None
        own, total = self._products(state, blocks, together)
        for at in (int(layer) + 1 for layer in np.flatnonzero(moved)):
            self._ritz(problem, state, blocks, at, own[at - 1])
        if together is not None:
            blocks[0] = together
            self._ritz(problem, state, blocks, 0, total)
        state.blocks = blocks
        state.U = np.hstack([block[:, :k] for block in blocks])
        if self.coupling:
            state.consensus = np.hstack([state.consensus, blocks[0][:, :k]])[:, -2 * k :]
        if not self.coupling:  # a layer drawn to the merged basis moves as long as that does
            state.settled = state.settled | ((state.residuals * self._importance())[1:] <= self.settle)
        if together is None and state.settled.all():
            self._measure(problem, state)  # the layers are done: now the merged block, on what they found

    def _candidates(self, problem: Problem, state: JointState, blocks: list[Array]) -> Array:
        """An orthonormal basis of all blocks; of few nodes the whole space."""
        if sum(block.shape[1] for block in blocks) >= problem.n_nodes:
            return np.eye(problem.n_nodes)
        return np.asarray(problem.orthonormalize(np.hstack(blocks), state.rng).Q)

    def _ritz(
        self, problem: Problem, state: JointState, blocks: list[Array], at: int, product: Array
    ) -> None:
        """Mutates: ``blocks[at]`` and what the state knows of it."""
        k, width = problem.n_components, self._width(problem)
        Z, a = self._attraction(state, k, blocks)[at]
        AQ = product - Z @ (a[:, None] * (Z.T @ blocks[at]))
        H = problem.gram(blocks[at], AQ)
        values, rotation = la.eigh((H + H.T) / 2)
        values, rotation = values[:width], rotation[:, :width]
        blocks[at], state.values[at] = blocks[at] @ rotation, values
        state.heads[at] = product @ rotation  # the next sweep begins with it
        rest = (AQ @ rotation - blocks[at] * values)[:, :k]
        state.residuals[at] = np.linalg.norm(rest, axis=0).max()

    def _sweep(self, problem: Problem, state: JointState) -> None:
        """Chebyshev filters of all moving blocks in step; they damp what lies above the last Ritz value."""
        attraction, bounds = self._attraction(state, problem.n_components, state.blocks), self._bounds()
        moving = np.flatnonzero([state.merging, *~state.settled])
        filters = {}
        for at in moving:
            low, high = bounds[at]  # a tenth of the spectrum is damped even where all of it is wanted
            filters[at] = damping(low, min(float(state.values[at][-1]), 0.9 * high + 0.1 * low), high)
        current, products = list(state.blocks), state.heads
        before = current
        for turn in range(self.merge_degree if state.settled.all() else self.degree):
            if turn:
                own, total = self._products(state, current, current[0] if state.merging else None)
                products = [total, *own]
            following = list(current)
            for at in moving:
                Z, strengths = attraction[at]
                AX = products[at] - Z @ (strengths[:, None] * (Z.T @ current[at]))
                a, b, c = next(filters[at])
                following[at] = a * AX + b * current[at] + c * before[at]
            before, current = current, following
        state.blocks = current
