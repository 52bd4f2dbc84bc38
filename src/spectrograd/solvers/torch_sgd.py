"""``sgd`` and ``sgd-paper`` on torch: the same steps in tensors, variants of the registry."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from spectrograd.engines.base import new_seed
from spectrograd.engines.torch_engine import TorchMultiVector
from spectrograd.operators.base import TENSORS, check_capabilities
from spectrograd.operators.sparse import SparseOperator
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem, StepState
from spectrograd.solvers.minibatch import EdgeChunk, EdgeSource
from spectrograd.solvers.sgd import (
    EDGES_PER_MEASUREMENT,
    MAX_CONDITION,
    effective_batch,
    power_of_two,
    pushes,
)
from spectrograd.solvers.sgd_base import SGDBase, SGDBaseState
from spectrograd.solvers.sgd_paper import PaperMethod
from spectrograd.solvers.torch_minibatch import (
    TorchBatch,
    TorchBatches,
    TorchEdges,
    fits,
    torch_edges,
    torch_engine,
)
from spectrograd.typing import Array

Tensor = Any
MIN_NORM = float(np.finfo(np.float32).tiny)  # a shorter gradient is none


@dataclass(frozen=True, eq=False)
class TorchDescent:
    """The constants of a run: its edges, and the numbers per node that batches need."""

    source: EdgeSource
    rows: TorchBatches
    total_mass: float
    batch_size: int


@dataclass(eq=False)
class TorchDescentState(SGDBaseState):
    """``U`` is in random-walk form, in float32 with a row N of zeros.

    ``known`` are M and Y, kept from chunk to chunk for ``known_for`` edges now; None where U moved otherwise.
    """

    descent: TorchDescent | None = field(default=None, metadata={DERIVED: True})
    known: tuple[Tensor, Tensor] | None = None
    known_for: int = 0

    def __deepcopy__(self, memo: dict[int, object]) -> TorchDescentState:
        twin = copy.copy(self)  # the edges are shared
        twin.U = copy.deepcopy(self.U, memo)
        twin.events = list(self.events)
        twin.known = copy.deepcopy(self.known, memo)
        twin.after = copy.deepcopy(self.after, memo)
        twin.rng = copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class TorchSGD(SGDBase[TorchDescentState]):
    """:class:`~spectrograd.solvers.sgd.UnbiasedSGD` in tensors: the same steps, other random numbers.

    Edges that do not fit the device, or are on a disk, are sent there chunk by chunk. The host looks at M
    once per chunk, and at nothing else before the end of an epoch.
    """

    name: ClassVar[str] = "sgd"
    requires = TENSORS

    def check(self, problem: Problem) -> None:
        """A graph on disk will do, for its edges are kept in random order too."""
        operator = problem.operator
        if isinstance(operator, SparseOperator) and not operator.graph.is_resident:
            check_capabilities(self.name, frozenset(("products", "tensors")), operator, problem.capabilities)
        else:
            super().check(problem)

    def init(self, problem: Problem, rng: np.random.Generator) -> TorchDescentState:
        """Start from an orthonormal random basis, or the warm start, in random-walk form."""
        self.check_parameters()
        engine = torch_engine(problem)
        operator = problem.sparse_random_walk
        source = torch_edges(engine, operator, rng)
        counts = source.counts
        size = effective_batch(self.batch_size, source.n_edges)
        unit = power_of_two(float(operator.graph.degrees.sum()) / max(1, counts.sum()))  # about a weight
        push = pushes(counts, size / source.n_edges)
        rows = TorchBatches.of(engine, _with_unit_mass(operator), counts, unit, push)
        U = rows.pad_rows(problem.random_walk.transform(problem.first_guess(rng)).tensor)
        U[:-1][engine.torch.tensor(counts == 0, device=U.device)] = 0  # no batch would ever move them
        state = TorchDescentState(TorchMultiVector(U), rng, step_size=self.step_size)
        state.descent = TorchDescent(source, rows, float(rows.metric.double().sum()), size)
        self.note_batches(state, counts, size)
        return state

    def epoch(self, problem: Problem, state: TorchDescentState) -> None:
        """Mutates: the state, by one step per batch of all edges."""
        descent = _descent(state)
        with torch_engine(problem).one_thread():
            for chunk, steps in self.chunks(state, descent.source, descent.batch_size):
                self._run(problem, state, chunk, steps)
        if not bool(descent.rows.torch.isfinite(state.U.tensor).all()):
            raise FloatingPointError("the step was too long")
        self._place_unlinked(problem, state)
        state.known = None

    def _run(self, problem: Problem, state: TorchDescentState, chunk: EdgeChunk, steps: Array) -> None:
        """Mutates: the state, by a chunk's batches; where M has no factor, rows stay until the next chunk."""
        descent = _descent(state)
        size = _descent(state).batch_size
        if state.known is None or not _is_sound(state.known[0].cpu().numpy()):
            state.known = self._measure(problem, state)
            state.known_for = 0
        M, Y = state.known
        U = state.U.tensor
        for number, step in enumerate(steps):
            # One batch: its part of A applied to its rows, then the move of these rows.
            batch = descent.rows.batch(chunk.part(slice(number * size, (number + 1) * size)), U, Y)
            descent.rows.move(batch, _moves(descent, batch, M, float(step)), U, M, Y)
        state.known_for += len(chunk.heads)
        if state.known_for >= EDGES_PER_MEASUREMENT * problem.n_nodes:
            state.known = None

    def _measure(self, problem: Problem, state: TorchDescentState) -> tuple[Tensor, Tensor]:
        """Mutates: U, to a root mean square of about one, orthonormal where it was near losing rank; M, Y."""
        rows = _descent(state).rows
        total_mass = _descent(state).total_mass
        # float64 sums over all rows; a K x K matrix comes to the host
        M, Y = rows.measure(state.U.tensor)
        host_M = M.cpu().numpy()
        if not np.isfinite(host_M).all():
            raise FloatingPointError("the step was too long")
        if not _is_sound(host_M):
            Q, lost = problem.orthonormalize(self._pencil_rows(problem, state), state.rng)
            state.U = TorchMultiVector(rows.pad_rows(problem.random_walk.transform(Q).tensor))
            state.events.append(f"epoch {state.iteration}: re-orthonormalised, {lost} directions replaced")
            M, Y = rows.measure(state.U.tensor)
            host_M = M.cpu().numpy()
        factor = 1 / power_of_two(float(np.sqrt(np.trace(host_M) / (len(host_M) * total_mass))))
        state.U.tensor.mul_(factor)
        return M * factor**2, Y * factor

    def _place_unlinked(self, problem: Problem, state: TorchDescentState) -> None:
        """Mutates: rows of nodes without edges, by a Jacobi step on the low-rank part, all that they have."""
        descent = _descent(state)
        U = state.U.tensor
        rows = descent.rows
        counts = descent.source.counts
        if counts.all() or not len(rows.coefficients):
            return
        unlinked = rows.torch.tensor(np.flatnonzero(counts == 0), device=U.device)
        _, Y = rows.measure(U)
        drawn = rows.factors[unlinked].double() @ (rows.coefficients[:, None] * Y)
        placed: Any = problem.random_walk.operator
        own = placed.diagonal.tensor[unlinked] / rows.weight_unit
        U[unlinked] = (drawn / rows.torch.where(own > 0, own, 1.0)).to(U.dtype)

    def _pencil_rows(self, problem: Problem, state: TorchDescentState) -> TorchMultiVector:
        """The rows without that of zeros, in the problem's own coordinates and float64."""
        rows: TorchMultiVector = problem.random_walk.inverse_transform(
            TorchMultiVector(state.U.tensor[:-1].double())
        )
        return rows

    def basis(self, problem: Problem, state: TorchDescentState) -> TorchMultiVector:
        """An orthonormal basis of the present rows."""
        Q: TorchMultiVector = problem.orthonormalize(self._pencil_rows(problem, state)).Q
        return Q


def _descent(state: TorchDescentState) -> TorchDescent:
    assert state.descent is not None
    return state.descent


def _is_sound(M: Array) -> bool:
    """Whether a Gram matrix is finite and far from losing rank."""
    return bool(np.isfinite(M).all() and np.linalg.cond(M) < MAX_CONDITION)


def _moves(descent: TorchDescent, batch: TorchBatch, M: Tensor, step: float) -> Tensor:
    """``- step sqrt(Tr M / sum b) g_i / |g_i|`` for the rows of a batch; none where M has no factor."""
    torch = descent.rows.torch
    rows = batch.rows
    inverse, good = descent.rows.inverse(M)
    # g_i = (A_S U)_i M^-1 - b_i / q_i u_i M^-1 U'A_S U M^-1 (docs/method.md, "The unbiased form")
    size = torch.where(good, torch.trace(M), 0.0)  # directions forget it, float32 does not underflow with it
    P = size * (inverse @ batch.projected @ inverse)
    back = (batch.metric * batch.push * rows) @ ((P + P.T) / 2).to(rows.dtype)
    g = batch.gradient @ (size * inverse).to(rows.dtype) - back
    length = (step * (size / descent.total_mass).sqrt()).to(rows.dtype)
    return torch.nn.functional.normalize(g, eps=MIN_NORM) * -length


def _with_unit_mass(operator: SparseOperator) -> SparseOperator:
    """The operator with masses near one; directions do not change with their unit."""
    if operator.metric is None:
        return operator
    return replace(operator, metric=operator.metric / power_of_two(float(operator.metric.mean())))


# --- ``sgd-paper`` on a device: the paper's algorithm as tensor operations.


@dataclass(eq=False)
class TorchPaperState(StepState):
    """``U`` has a row N of zeros; ``known`` are M and Y as updates made them, None where U moved otherwise.

    ``moments`` are AMSGrad's, (N + 1) x 3K on the device; ``seed`` is that of the batches.
    """

    known: tuple[Tensor, Tensor] | None = None
    moments: Tensor | None = None
    seed: int = 0
    edges: TorchEdges | None = field(default=None, metadata={DERIVED: True})
    rows: TorchBatches | None = field(default=None, metadata={DERIVED: True})

    def __deepcopy__(self, memo: dict[int, object]) -> TorchPaperState:
        twin = copy.copy(self)  # what is only read is shared
        twin.U = copy.deepcopy(self.U, memo)
        twin.events = list(self.events)
        twin.known = copy.deepcopy(self.known, memo)
        twin.moments = copy.deepcopy(self.moments, memo)
        twin.rng = copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class TorchPaperSGD(PaperMethod[TorchPaperState]):
    """Eqs. 8-19 with edges drawn, summed, factorised and moved on the device.

    The same as :class:`~spectrograd.solvers.sgd_paper.PaperSGD`, but for the random numbers, and for other
    batches than edges drawn with replacement, which are refused. Between two reports the host looks at
    nothing: where M has no factor, rows stay as they are, and those batches count for nothing.
    """

    requires = TENSORS

    def init(self, problem: Problem, rng: np.random.Generator) -> TorchPaperState:
        """Start from an orthonormal random basis and compute ``M_0`` in full (Eq. 18)."""
        self.check_parameters()
        engine = torch_engine(problem)
        operator = problem.sparse
        self._check_capabilities(fits(engine, operator))
        edges = TorchEdges.of(engine, operator)
        rows = TorchBatches.of(engine, operator, edges.counts)
        U = rows.pad_rows(problem.first_guess(rng).tensor)
        state = TorchPaperState(
            TorchMultiVector(U), rng, step_size=self.step_size * problem.row_unit, seed=new_seed(rng)
        )
        state.edges = edges
        state.rows = rows
        if self.optimizer == "amsgrad":
            state.moments = U.new_zeros((len(U), 3 * U.shape[1]))
        state.events.extend(self.advice(problem.n_nodes))
        return state

    def _check_capabilities(self, fits_device: bool) -> None:
        for name, only in (("batch", "edges"), ("replacement", True), ("redrawn", True)):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: solver 'sgd-paper' on engine 'torch' draws edges with "
                    f"replacement, {name}={only!r}; engine='local' has the others"
                )
        if not fits_device:
            raise ValueError(
                "solver 'sgd-paper' on engine 'torch' draws from all edges, which do not fit the device; "
                "'sgd' reads them chunk by chunk"
            )

    def step(self, problem: Problem, state: TorchPaperState) -> TorchPaperState:
        """Run all mini-batches up to the next report or refreshment (Eq. 10)."""
        assert state.rows is not None
        with torch_engine(problem).one_thread():
            if state.known is None or self.refreshes(state.iteration):
                state.known = state.rows.measure(state.U.tensor)
            done = self._iterations(problem, state, self.steps_to_next_mark(state.iteration))
        if not bool(state.rows.torch.isfinite(state.U.tensor).all()):
            raise FloatingPointError("the step was too long")  # the loop backs off
        if done == 0:
            self._repair(problem, state)
        state.iteration += done
        state.edges_seen += done * self.batch_size
        return state

    def _iterations(self, problem: Problem, state: TorchPaperState, count: int) -> int:
        """Mutates: the state, by so many batches; how many there were before M had no factor."""
        engine = torch_engine(problem)
        rows = state.rows
        edges = state.edges
        assert rows is not None
        assert edges is not None
        assert state.known is not None
        U = state.U.tensor
        M, Y = state.known
        printed = self.gram_update == "printed"
        draw = engine.torch.Generator(engine.device).manual_seed((state.seed + state.iteration) % 2**63)
        done = engine.torch.zeros((), dtype=engine.torch.int64, device=engine.device)
        for _ in range(count):
            # 1. draw edges and apply A_S (Eqs. 14, 15); 2. M^-1 (Eqs. 6, 7)
            batch = rows.batch(edges.draw(self.batch_size, draw), U, Y)
            inverse, good = rows.inverse(M)
            # 3. direction (Eq. 17); 4. move the rows, and M and Y with them (Eqs. 10, 19)
            direction = self._direction(rows, batch, inverse, good, state.moments)
            rows.move(batch, -state.step_size * direction, U, M, Y, printed=printed)
            done += good
        return int(done)

    def _direction(
        self, rows: TorchBatches, batch: TorchBatch, inverse: Tensor, good: Tensor, moments: Tensor | None
    ) -> Tensor:
        """The rows ``2 (A_S U - B U M^-1 U'A_S U) M^-1`` of the batch (Eq. 17), or AMSGrad's form of them.

        Mutates: the moments. Nothing moves where there is no ``M^-1``.
        """
        torch = rows.torch
        u = batch.rows
        P = inverse @ batch.projected @ inverse
        back = (batch.metric * u) @ (P + P.T).to(u.dtype)
        g = 2 * batch.gradient @ inverse.to(u.dtype) - back
        if moments is None:
            return g
        before = moments.index_select(0, batch.vertices)
        m, v, most = before.chunk(3, dim=1)
        # AMSGrad (Reddi et al. 2018, Algorithm 2)
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g.square()
        most = torch.maximum(most, v)
        now = torch.where(good, torch.cat([m, v, most], dim=1), before)
        moments.index_copy_(0, batch.vertices, now)
        return torch.where(good, m / (most.sqrt() + 1e-12), 0.0)

    def _repair(self, problem: Problem, state: TorchPaperState) -> None:
        """Mutates: the state, whose rows are orthonormal again."""
        assert state.rows is not None
        Q = problem.orthonormalize(self._wide(state), state.rng).Q
        state.U = TorchMultiVector(state.rows.pad_rows(Q.tensor))
        state.known = None
        state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")

    def _wide(self, state: TorchPaperState) -> TorchMultiVector:
        """The rows without that of zeros, in float64."""
        return TorchMultiVector(state.U.tensor[:-1].double())

    def finish(self, problem: Problem, state: TorchPaperState) -> TorchMultiVector:
        """Orthonormal in the metric."""
        Q: TorchMultiVector = problem.orthonormalize(self._wide(state)).Q
        return Q

    def forget_moments(self, state: TorchPaperState) -> None:
        """Mutates: the moments on the device, where there are any."""
        if state.moments is not None:
            state.moments.zero_()
