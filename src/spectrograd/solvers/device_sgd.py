"""``sgd`` on a device: unbiased, row-normalised steps over all edges in random order, in tensors."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.device_tall import DeviceTall
from spectrograd.engines.random_rows import new_seed
from spectrograd.operators.protocol import TENSORS
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.descent import effective_batch, pushes
from spectrograd.solvers.device_batches import Batch, DeviceBatches, torch_engine
from spectrograd.solvers.protocol import DERIVED, Problem, SteppingSolver, StepState

Array = NDArray[Any]
Tensor = Any
EDGES_AT_ONCE = 1 << 18  # between two refreshments of M, when the host looks at it
WORST_CONDITION = 1e4  # of M; runs that go well stay below ten


@dataclass(eq=False)
class DeviceDescentState(StepState):
    """U is in walk form; ``push`` holds ``1 / q_i`` with the row of zeros, ``seed`` is that of the epochs."""

    seed: int = 0
    batches: list[DeviceBatches] = field(default_factory=list, metadata={DERIVED: True})
    push: Tensor = field(default=None, metadata={DERIVED: True})

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceDescentState:
        U, rng = DeviceTall(self.U.tensor.clone()), copy.deepcopy(self.rng, memo)
        return DeviceDescentState(
            U, rng, self.iteration, self.passes, self.edges_seen, list(self.events), self.done,
            self.step_size, self.seed, self.batches, self.push,
        )  # fmt: skip


@dataclass(frozen=True)
class DeviceSGD(SteppingSolver[DeviceDescentState]):
    """Minimise ``J(U) = Tr(M^-1 U'AU)``, ``M = U'BU``, by mini-batches with an unbiased gradient.

    For a batch ``S`` of edges (Eq. 15) the rows that it touches move along
    ``g_i = (A_S U)_i M^-1 - b_i u_i (M^-1 U'A_S U M^-1) / q_i`` by ``s sqrt(Tr M / sum b)``, where q_i is the
    chance that a batch touches row i. An epoch reads every edge once, in an order drawn on the device. The
    noise of the last steps leaves an angle of about .1: labels are its use, not digits.

    Parameters
    ----------
    epochs
        Passes over the edges, over which the step falls from ``step_size`` to zero.
    batch_size
        Edges per step; never more than a 256th of all (a 64th of small graphs).
    step_size
        Length of the first steps relative to the root mean square of a row.
    """

    epochs: int = 5
    batch_size: int = 4000
    step_size: float = 1.0
    max_iter: int = 100

    name: ClassVar[str] = "sgd"
    needs = TENSORS

    def init(self, problem: Problem, rng: np.random.Generator) -> DeviceDescentState:
        """Start from an orthonormal random basis, or the warm start, in walk form."""
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.step_size < math.inf:
            raise ValueError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, step_size={self.step_size}: "
                "expected at least one of the first two and a positive step"
            )
        engine, operator = torch_engine(problem), problem.sparse.walk_form()
        source = DeviceBatches.of(engine, _with_unit_mass(operator), _weight_unit(operator))
        size = effective_batch(self.batch_size, source.n_edges)
        push = np.append(pushes(source.counts, size / source.n_edges), 0)
        U = problem.walk.enter(problem.first_guess(rng)).tensor.float()
        U[source.torch.tensor(source.counts == 0, device=U.device)] = 0  # no batch would ever move them
        state = DeviceDescentState(DeviceTall(U), rng, step_size=self.step_size, seed=new_seed(rng))
        state.batches = [source]
        state.push = engine.torch.tensor(push, dtype=U.dtype, device=U.device)
        if size < self.batch_size:
            state.events.append(f"batches of {size} edges: larger ones would touch too many nodes at once")
        return state

    def step(self, problem: Problem, state: DeviceDescentState) -> DeviceDescentState:
        """One epoch; the host looks at M once per chunk of it."""
        with torch_engine(problem).one_thread():
            return self._epoch(problem, state)

    def _epoch(self, problem: Problem, state: DeviceDescentState) -> DeviceDescentState:
        engine, (source,) = torch_engine(problem), state.batches
        size = effective_batch(self.batch_size, source.n_edges)
        draw = engine.torch.Generator(engine.device).manual_seed((state.seed + state.iteration) % 2**63)
        order = engine.torch.randperm(source.n_edges, generator=draw, device=engine.device)
        per_chunk = max(1, EDGES_AT_ONCE // size)
        batches = order.split(size)
        n_epochs = min(self.epochs, self.max_iter)
        done, total = state.iteration * len(batches), n_epochs * len(batches)
        for first in range(0, len(batches), per_chunk):
            U, M, Y = self._refreshed(problem, state)
            for number, positions in enumerate(batches[first : first + per_chunk], done + first):
                batch = source.batch(positions, U, Y)
                step = state.step_size * (1 - number / total)
                source.moved(batch, _moves(source, batch, M, state.push, step), U, M, Y)
            state.U = DeviceTall(U[:-1])
        self._place_unlinked(problem, state)
        state.iteration += 1
        state.edges_seen += source.n_edges
        state.done = state.iteration >= n_epochs
        return state

    def _refreshed(self, problem: Problem, state: DeviceDescentState) -> tuple[Tensor, Tensor, Tensor]:
        """U of root mean square about one with its row of zeros; M and Y computed afresh."""
        (source,) = state.batches
        U = source.padded(state.U.tensor)
        M = source.measured(U)[0].cpu().numpy()
        if not np.isfinite(M).all():
            raise FloatingPointError("the step was too long")
        if not np.linalg.cond(M) < WORST_CONDITION:
            wide = torch_engine(problem).cast(DeviceTall(U[:-1]), np.float64)
            Q, lost = problem.orthonormalize(problem.walk.leave(wide), state.rng)
            U = source.padded(problem.walk.enter(Q).tensor)
            M = source.measured(U)[0].cpu().numpy()
            state.events.append(f"epoch {state.iteration}: re-orthonormalised, {lost} directions replaced")
        size = float(np.sqrt(np.trace(M) / (len(M) * float(source.metric.sum()))))
        U /= power_of_two(size)
        return U, *source.measured(U)

    def _place_unlinked(self, problem: Problem, state: DeviceDescentState) -> None:
        """Mutates: rows of nodes without edges, by a Jacobi step on the low-rank part, all that they have."""
        (source,) = state.batches
        if source.counts.all() or not len(source.coefficients):
            return
        U, diagonal = state.U.tensor, problem.walk.operator
        chosen = source.torch.tensor(np.flatnonzero(source.counts == 0), device=U.device)
        _, Y = source.measured(source.padded(U))
        drawn = source.factors[chosen].double() @ (source.coefficients[:, None] * Y)
        unit = _weight_unit(problem.sparse.walk_form())
        own = diagonal.diagonal.tensor[chosen] / unit  # type: ignore[attr-defined]
        U[chosen] = (drawn / source.torch.where(own > 0, own, 1.0)).to(U.dtype)

    def finish(self, problem: Problem, state: DeviceDescentState) -> DeviceTall:
        """Back to the pencil, orthonormal in its metric."""
        wide = torch_engine(problem).cast(state.U, np.float64)
        Q: DeviceTall = problem.orthonormalize(problem.walk.leave(wide)).Q
        return Q


def _moves(source: DeviceBatches, batch: Batch, M: Tensor, push: Tensor, step: float) -> Tensor:
    """``- step sqrt(Tr M / sum b) g_i / |g_i|`` for the rows of a batch; none where M has no factor."""
    torch, rows, vertices = source.torch, batch.rows, batch.vertices
    inverse, good = source.inverse(M)
    size = torch.where(good, torch.trace(M), 0.0)  # directions forget it, float32 does not underflow with it
    P = size * (inverse @ batch.projected @ inverse)
    back = ((source.metric * push)[vertices, None] * rows) @ ((P + P.T) / 2).to(rows.dtype)
    g = batch.gradient @ (size * inverse).to(rows.dtype) - back
    length = (step * (size / source.metric.sum()).sqrt()).to(rows.dtype)
    norms = g.square().sum(dim=1, keepdim=True).sqrt()
    return torch.where(norms > 0, -length / torch.where(norms > 0, norms, 1.0), 0.0) * g


def power_of_two(x: float) -> float:
    """The power of two below a positive number, one for others: dividing by it costs no digit."""
    return float(2.0 ** np.floor(np.log2(x))) if 0 < x < np.inf else 1.0


def _weight_unit(operator: SparseOperator) -> float:
    """A power of two near the mean weight: float32 holds what is left."""
    return power_of_two(float(operator.graph.degrees.sum()) / max(1, operator.graph.n_entries))


def _with_unit_mass(operator: SparseOperator) -> SparseOperator:
    """The operator with masses near one; directions do not change with their unit."""
    if operator.metric is None:
        return operator
    return replace(operator, metric=operator.metric / power_of_two(float(operator.metric.mean())))
