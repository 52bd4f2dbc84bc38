"""``joint``: every layer's embedding and the merged one in one run, on one shared objective.

:class:`JointPasses` filters all blocks by Chebyshev polynomials, :class:`JointEpochs` moves them by
mini-batches of edges, and :func:`run` is the aggregation that chooses between them.

An edge that is read serves its layer's block and the merged one, so the merged embedding costs hardly a
pass of its own; a layer that has settled is not read any more (docs/adr/0013).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import scipy.linalg as la

from spectrograd.aggregation import Layers, mean, projection, with_neutral_nodes, without_absent
from spectrograd.linalg.chebyshev_filter import damping_coefficients
from spectrograd.operators.equilibration import of_common_size
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.solvers.base import Problem, Progress, Solver, State
from spectrograd.solvers.loop import Solution, Stopping, run_loop
from spectrograd.solvers.settings import RunContext, SolverSettings
from spectrograd.solvers.sgd import Descent, DescentState, UnbiasedSGD
from spectrograd.typing import Array


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
class JointPasses(Solver[JointState]):
    """Chebyshev-filtered subspace iteration on all layers and the merged block, sharing every pass.

    Parameters
    ----------
    layers, alphas
        The layers, and alpha for each of them.
    coupling
        How strongly the layers are drawn to the merged basis, relative to alpha. 0, the default, lets
        each layer speak for itself; on the synthetic data .05 already cost .02 NMI, for the layers
        then repeat an early consensus instead of correcting it.
    degree, merge_degree
        Degrees of a filter, one pass each; the second of the merged block alone, whose gap is large.
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
        # shapes: a block is (n_nodes, width); ``blocks[0]`` is the merged one
        width = self._width(problem)
        count = len(self.layers.sparse)
        Q = problem.orthonormalize(rng.standard_normal((problem.n_nodes, width)), rng).Q
        state = JointState(Q, rng, blocks=[Q] * (count + 1), settled=np.zeros(count, dtype=bool))
        self._set_unmeasured(state)
        self._measure(problem, state)
        return state

    def step(self, problem: Problem, state: JointState) -> JointState:
        """One filter of every block with all the others held, then Rayleigh-Ritz."""
        self._filter_blocks(problem, state)
        self._measure(problem, state)
        state.iteration += 1
        return state

    def progress(self, problem: Problem, state: JointState) -> Progress:
        """Report the last Rayleigh-Ritz: no further pass."""
        k = problem.n_components
        weights = self.layers.weights
        total = sum(c * float(v[:k].sum()) for c, v in zip([1.0, *weights], state.values, strict=True))
        return Progress(
            iteration=state.iteration,
            matvecs=state.matvecs,
            edges_seen=state.edges_seen,
            objective=total,
            residual=float((state.residuals * self._importance()).max()),
            orthogonality_error=0.0,
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: JointState) -> object:
        """The merged basis and then the layers', side by side."""
        return state.U

    def _width(self, problem: Problem) -> int:
        return min(problem.n_components + self.guard, problem.n_nodes - 1)

    def _set_unmeasured(self, state: JointState) -> None:
        """Mutates: values and residuals before the first measurement."""
        count = len(state.blocks)
        state.values = [np.zeros(1)] * count
        state.heads = [np.zeros(0)] * count
        state.residuals = np.full(count, np.inf)
        state.consensus = np.zeros((len(state.U), 0))

    def _read(self, state: JointState, at: int, X: Array) -> Array:
        """The product of one layer with some columns: its edges are read once, or not at all."""
        operator = self.layers.sparse[at]
        if X.shape[1] == 0:
            return np.zeros_like(X)
        # a matvec is a product with all layers: one layer counts by its share of the edges
        share = operator.graph.n_edges / sum(op.graph.n_edges for op in self.layers.sparse)
        state.matvecs += X.shape[1] * share
        state.edges_seen += operator.graph.n_edges
        return np.asarray(operator @ X)

    def _products(
        self, state: JointState, blocks: list[Array], together: Array | None
    ) -> tuple[list[Array], Array]:
        """One pass: the edges of each layer times its own block and, where wanted, the merged columns.

        A settled layer has no product of its own; without merged columns it is not read at all.
        """
        nothing = np.zeros((len(blocks[0]), 0))
        shared = nothing if together is None else together
        own = []
        total = np.zeros_like(shared)
        for at, (c, operator) in enumerate(zip(self.layers.weights, self.layers.sparse, strict=True)):
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
        weights = self.layers.weights
        operators = self.layers.sparse
        upper = float(sum(c * op.upper for c, op in zip(weights, operators, strict=True)))
        own = [(-self.coupling * a, op.upper) for a, op in zip(self.alphas, operators, strict=True)]
        return [(-float(weights @ self.alphas), upper), *own]

    def _importance(self) -> Array:
        """Factors that make residuals comparable: layers count relative to their narrower spectra."""
        (low, high), *own = self._bounds()
        return np.array([1.0, *(self.tighter * (high - low) / max(up - down, 1e-300) for down, up in own)])

    def _measure(self, problem: Problem, state: JointState) -> None:
        """Rayleigh-Ritz in every block that moved, in one pass; the layers first, then the merged one."""
        k = problem.n_components
        # 1. orthonormal bases of the layers that are still read
        moved = ~state.settled
        blocks = [state.blocks[0]]
        for block, fresh in zip(state.blocks[1:], moved, strict=True):
            blocks.append(problem.orthonormalize(block, state.rng).Q if fresh else block)
        # 2. one pass over the layers: products of their own blocks and of the merged candidates
        # the merged vectors lie close to the span of the layers': all of them are candidates
        together = self._candidates(problem, state, blocks) if state.merging else None
        own, total = self._products(state, blocks, together)
        # 3. Rayleigh-Ritz of each layer, then of the merged block on the span of all of them
        for at in (int(layer) + 1 for layer in np.flatnonzero(moved)):
            self._ritz(problem, state, blocks, at, own[at - 1])
        if together is not None:
            blocks[0] = together
            self._ritz(problem, state, blocks, 0, total)
        # 4. publish, and settle layers whose residuals are small enough
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
        k = problem.n_components
        width = self._width(problem)
        # A Q of this block: edges minus Z diag(a) Z' (Eq. 22)
        Z, a = self._attraction(state, k, blocks)[at]
        AQ = product - Z @ (a[:, None] * (Z.T @ blocks[at]))
        # Rayleigh-Ritz (Parlett 1998, 11.3): H y = theta y
        H = problem.gram(blocks[at], AQ)
        values, rotation = la.eigh((H + H.T) / 2)
        values = values[:width]
        rotation = rotation[:, :width]
        blocks[at] = blocks[at] @ rotation
        state.values[at] = values
        state.heads[at] = product @ rotation  # the next filter begins with it
        # residuals A q - theta q of the first K
        rest = (AQ @ rotation - blocks[at] * values)[:, :k]
        state.residuals[at] = np.linalg.norm(rest, axis=0).max()

    def _filter_blocks(self, problem: Problem, state: JointState) -> None:
        """Chebyshev filters of all moving blocks in step; they damp what lies above the last Ritz value."""
        attraction = self._attraction(state, problem.n_components, state.blocks)
        bounds = self._bounds()
        moving = np.flatnonzero([state.merging, *~state.settled])
        filters = {}
        for at in moving:
            # [cut, high] is damped; the recurrence keeps the value at ``low`` at one
            low, high = bounds[at]  # a tenth of the spectrum is damped even where all of it is wanted
            filters[at] = damping_coefficients(
                low, min(float(state.values[at][-1]), 0.9 * high + 0.1 * low), high
            )
        current = list(state.blocks)
        products = state.heads
        before = current
        for degree in range(self.merge_degree if state.settled.all() else self.degree):
            if degree:  # the first product is that of the last Rayleigh-Ritz
                own, total = self._products(state, current, current[0] if state.merging else None)
                products = [total, *own]
            # X_i+1 = a A X_i + b X_i + c X_i-1, of every block with its own low-rank part
            following = list(current)
            for at in moving:
                Z, strengths = attraction[at]
                AX = products[at] - Z @ (strengths[:, None] * (Z.T @ current[at]))
                a, b, c = next(filters[at])
                following[at] = a * AX + b * current[at] + c * before[at]
            before = current
            current = following
        state.blocks = current


# --- The stochastic epochs of ``joint``: every layer's embedding and the merged one by mini-batches of edges.

# How strongly layers are drawn to the merged basis at first, relative to alpha. Alone a layer that is a
# k-NN graph learns next to nothing from such steps; drawn along it does (docs/multilayer.md).
FIRST_COUPLING = 0.5


@dataclass(eq=False)
class EpochsState(State):
    """``descents`` belong to the merged block and then to the layers; ``U`` holds the bases in that order."""

    descents: list[DescentState] = field(default_factory=list)


@dataclass(frozen=True)
class JointEpochs(Solver[EpochsState]):
    """The unbiased steps of ``sgd`` on all layers and on Eq. 22, one epoch of each in turn.

    Parameters
    ----------
    layers, alphas
        The layers, and alpha for each of them.
    epochs
        How many. Each reads the edges of every layer twice: for its own block and for the merged one.
    coupling
        How strongly the layers are drawn to the merged basis in the end, relative to alpha. It falls to
        that from a half on a straight line, so that the layers are their own again.
    """

    layers: Layers
    alphas: Array
    epochs: int = 22
    coupling: float = 0.0
    max_iter: int = 1000

    name: ClassVar[str] = "joint"
    report_every: ClassVar[int] = 5  # a measurement costs a pass

    def init(self, problem: Problem, rng: np.random.Generator) -> EpochsState:
        """One random basis for all blocks: they describe the same nodes."""
        if not 1 <= self.epochs < np.inf:
            raise ValueError(f"epochs={self.epochs}: expected at least one pass over the edges")
        k = problem.n_components
        Q = problem.orthonormalize(rng.standard_normal((problem.n_nodes, k)), rng).Q
        state = EpochsState(np.hstack([Q] * (len(self.layers.sparse) + 1)), rng)
        state.descents = [
            self._solver.init(replace(problem, operator=operator, start=Q), rng)
            for operator in (problem.sparse, *self._operators(state, k))
        ]
        return state

    @property
    def _solver(self) -> UnbiasedSGD:
        return UnbiasedSGD(epochs=self._n_epochs, max_iter=self._n_epochs)

    @property
    def _n_epochs(self) -> int:
        return min(self.epochs, self.max_iter)

    def step(self, problem: Problem, state: EpochsState) -> EpochsState:
        """One epoch of every layer, then one of the merged block on what they found."""
        k = problem.n_components
        for at, operator in enumerate(self._operators(state, k), start=1):
            # 1. an epoch of each layer, drawn to the merged basis
            self._epoch(problem, state, at, operator)
        # 2. an epoch of the merged block (Eq. 22 with the layers' new bases)
        self._epoch(problem, state, 0, self._merged_operator(problem, state))
        state.iteration += 1
        state.done = state.iteration >= self._n_epochs
        state.edges_seen = sum(descent.edges_seen for descent in state.descents)
        n_edges = max(1, sum(op.graph.n_edges for op in self.layers.sparse))
        state.matvecs = k * state.edges_seen / n_edges
        state.events = [event for descent in state.descents for event in descent.events]
        return state

    def _epoch(self, problem: Problem, state: EpochsState, at: int, operator: SparseOperator) -> None:
        """Mutates: one block, by a pass over the edges of its operator, whose low-rank part may be new."""
        descent = state.descents[at]
        k = problem.n_components
        if operator.graph.n_edges == 0:
            return
        own = replace(problem, operator=operator, start=None)
        assert descent.descent is not None
        descent.descent = Descent.of(own.sparse_random_walk, descent.descent.source, self._solver.batch_size)
        descent.known = None
        self._solver.step(own, descent)
        state.U[:, at * k : (at + 1) * k] = self._solver.finish(own, descent)

    def _operators(self, state: EpochsState, k: int) -> list[SparseOperator]:
        """The layers', minus what draws them to the merged basis now."""
        # a straight line from a half to ``coupling``
        falling = FIRST_COUPLING * (1 - state.iteration / self._n_epochs)
        strengths = max(self.coupling, falling) * self.alphas
        return [
            replace(
                without_absent(operator),
                low_rank=LowRank(np.ascontiguousarray(state.U[:, :k]), np.full(k, strength)),
                lower=operator.lower - strength,
            )
            for operator, strength in zip(self.layers.sparse, strengths, strict=True)
        ]

    def _merged_operator(self, problem: Problem, state: EpochsState) -> SparseOperator:
        """Eq. 22 with the layers' bases of now; the problem's operator is the sum of the layers."""
        k = problem.n_components
        strengths = self.layers.weights * self.alphas
        near = LowRank(np.ascontiguousarray(state.U[:, k:]), np.repeat(strengths, k))
        return replace(problem.sparse, low_rank=near, lower=problem.operator.lower - float(strengths.sum()))

    def progress(self, problem: Problem, state: EpochsState) -> Progress:
        """Measure the merged block, on the layers' present bases."""
        merged = replace(problem, operator=self._merged_operator(problem, state))
        found = State(state.U[:, : problem.n_components], state.rng)
        known = super().progress(merged, found)  # type: ignore[arg-type]
        return replace(
            known,
            iteration=state.iteration,
            matvecs=state.matvecs,
            edges_seen=state.edges_seen,
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: EpochsState) -> Array:
        """The merged basis and then the layers', side by side."""
        return np.asarray(state.U)

    def back_off(self, problem: Problem, state: EpochsState) -> EpochsState:
        """Halve all steps."""
        for descent in state.descents:
            self._solver.back_off(problem, descent)
        return state


# --- The aggregation: options, solver, run.

NEEDS_EMBEDDINGS = True
OPTIONS = ("steps", "epochs", "coupling", "degree", "merge_degree", "guard", "tighter")
RESIDUAL_FACTOR = 10
aggregate = projection.aggregate


def run(
    layers: Layers,
    n_components: int,
    settings: SolverSettings,
    context: RunContext,
    *,
    alpha: float | str = "auto",
    steps: str = "passes",
    **options: object,
) -> tuple[Solution, Array, tuple[Array, ...]]:
    """The joint run: its story, the merged basis and the layers' own.

    Filters stop when the merged residual is below ten times the tolerance asked of an exact solver and those
    of the layers are ``tighter`` times smaller: the clusters do not change any more (docs/multilayer.md).

    Parameters
    ----------
    layers
        One operator per layer, and weights.
    n_components
        Columns of each embedding.
    settings, context
        Of the solver loop.
    alpha
        Weight of the projectors, or "auto" (see ``projection.resolve_alpha``).
    steps
        "passes" (:class:`JointPasses`) or "sgd" (:class:`JointEpochs`).
    **options
        Fields of that class.
    """
    # 1. layers of one size, and alpha in the same units
    alphas = projection.resolve_alpha(alpha, layers)
    operators, divisor = of_common_size([with_neutral_nodes(operator) for operator in layers.sparse])
    layers = replace(layers, operators=operators)
    alphas = alphas / divisor
    frame = mean.aggregate(layers)
    limit = RESIDUAL_FACTOR * settings.tolerance * (frame.upper - frame.lower)
    # 2. run to the residual at which clusters do not change any more
    solver = _solver(steps, layers, alphas, limit, options)
    context = context.start_clock(settings)
    solution = run_loop(
        Problem(frame, n_components, context.engine),
        cast(Solver[State], solver),
        stopping=Stopping(settings.max_iter, limit, context.deadline),
        on_progress=context.hooks,
        seed=settings.seed,
        time_budget=context.solver_seconds,
        checkpoint=context.next_checkpoint(),
    )
    # 3. the merged basis stands before those of the layers
    merged, *own = np.split(solution.Q, len(layers.sparse) + 1, axis=1)
    return solution, merged, tuple(own)


def _solver(
    steps: str, layers: Layers, alphas: Array, limit: float, options: dict[str, Any]
) -> JointEpochs | JointPasses:
    """The way asked for, with its own options and no others."""
    own = {"sgd": ("epochs", "coupling"), "passes": tuple(set(OPTIONS) - {"steps", "epochs"})}
    if steps not in own:
        raise ValueError(f"steps={steps!r}: expected 'passes' or 'sgd'")
    foreign = sorted(set(options) - set(own[steps]))
    if foreign:
        raise ValueError(f"aggregation 'joint' takes {foreign[0]!r} only without steps={steps!r}")
    if steps == "passes":
        return JointPasses(layers, alphas, settle=limit, **options)
    if any(operator.is_streamed for operator in layers.sparse):
        raise ValueError("steps='sgd' of 'joint' needs the layers in memory: choose steps='passes'")
    return JointEpochs(layers, alphas, **options)
