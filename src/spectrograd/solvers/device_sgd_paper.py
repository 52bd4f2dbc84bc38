"""``sgd-paper`` on a device: the paper's algorithm as tensor operations."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from spectrograd.engines.device_tall import DeviceTall
from spectrograd.engines.random_rows import new_seed
from spectrograd.operators.protocol import TENSORS
from spectrograd.solvers.device_batches import Batch, DeviceBatches, torch_engine
from spectrograd.solvers.protocol import DERIVED, Problem, SteppingSolver, StepState

Tensor = Any


@dataclass(eq=False)
class DevicePaperState(StepState):
    """``moments`` are AMSGrad's, (N + 1) x 3K on the device; ``seed`` is that of the batches."""

    moments: DeviceTall | None = None
    seed: int = 0
    batches: list[DeviceBatches] = field(default_factory=list, metadata={DERIVED: True})

    def __deepcopy__(self, memo: dict[int, Any]) -> DevicePaperState:
        U, rng = DeviceTall(self.U.tensor.clone()), copy.deepcopy(self.rng, memo)
        moments = copy.deepcopy(self.moments, memo)
        return DevicePaperState(
            U, rng, self.iteration, self.passes, self.edges_seen, list(self.events), self.done,
            self.step_size, moments, self.seed, self.batches,
        )  # fmt: skip


@dataclass(frozen=True)
class DevicePaperSGD(SteppingSolver[DevicePaperState]):
    """Eqs. 8-19 with edges drawn, summed, factorised and moved on the device.

    The same as :class:`~spectrograd.solvers.sgd_paper.PaperSGD`, but for the random numbers. M follows the
    rows that move and is computed afresh at every report; the host looks at nothing in between.
    """

    step_size: float = 1e-3
    batch_size: int = 4000
    max_iter: int = 500
    batch: Literal["edges"] = "edges"
    optimizer: Literal["amsgrad", "sgd"] = "amsgrad"
    beta1: float = 0.9
    beta2: float = 0.999
    refresh: int = 100

    name: ClassVar[str] = "sgd-paper"
    needs = TENSORS
    report_every: ClassVar[int] = 50

    def init(self, problem: Problem, rng: np.random.Generator) -> DevicePaperState:
        """Start from an orthonormal random basis."""
        if self.batch != "edges":
            raise ValueError(f"batch={self.batch!r}: on engine 'torch' batches are of 'edges'")
        if self.optimizer not in ("amsgrad", "sgd"):
            raise ValueError(f"optimizer={self.optimizer!r}: expected 'amsgrad' or 'sgd'")
        engine = torch_engine(problem)
        U = engine.cast(problem.first_guess(rng), np.float32)
        n, k = U.shape
        state = DevicePaperState(U, rng, step_size=self.step_size * problem.row_unit, seed=new_seed(rng))
        if self.optimizer == "amsgrad":
            state.moments = engine.zeros(n + 1, 3 * k, np.float32)
        state.batches = [DeviceBatches.of(engine, problem.sparse)]
        return state

    def step(self, problem: Problem, state: DevicePaperState) -> DevicePaperState:
        """All mini-batches up to the next report or refreshment (Eq. 10)."""
        with torch_engine(problem).one_thread():
            return self._steps(problem, state)

    def _steps(self, problem: Problem, state: DevicePaperState) -> DevicePaperState:
        engine, (source,) = torch_engine(problem), state.batches
        until = [(state.iteration // every + 1) * every for every in (self.report_every, self.refresh)]
        count = max(1, min(self.max_iter, *until) - state.iteration)
        U = source.padded(state.U.tensor)
        M, Y = source.measured(U)
        if not bool(source.inverse(M)[1]):
            U, M, Y = self._repaired(problem, state)
        draw = engine.torch.Generator(engine.device).manual_seed((state.seed + state.iteration) % 2**63)
        for _ in range(count):
            positions = engine.torch.randint(
                source.n_edges, (self.batch_size,), generator=draw, device=engine.device
            )
            batch = source.batch(positions, U, Y)
            direction = self._direction(source, batch, M, state)
            source.moved(batch, -state.step_size * direction, U, M, Y)
        if not bool(engine.torch.isfinite(U).all()):
            raise FloatingPointError("the step was too long")  # the loop backs off
        state.U = DeviceTall(U[:-1])
        state.iteration += count
        state.edges_seen += count * self.batch_size
        return state

    def _direction(self, source: DeviceBatches, batch: Batch, M: Tensor, state: DevicePaperState) -> Tensor:
        """The rows ``2 (A_S U - B U M^-1 U'A_S U) M^-1`` of the batch (Eq. 17), or AMSGrad's form of them."""
        torch, rows = source.torch, batch.rows
        inverse, _ = source.inverse(M)
        P = inverse @ batch.projected @ inverse
        back = (source.metric[batch.vertices, None] * rows) @ (P + P.T).to(rows.dtype)
        g = 2 * batch.gradient @ inverse.to(rows.dtype) - back
        if state.moments is None:
            return g
        moments = state.moments.tensor
        m, v, most = moments[batch.vertices].chunk(3, dim=1)
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g.square()
        most = torch.maximum(most, v)
        moments[batch.vertices] = torch.cat([m, v, most], dim=1)
        return m / (most.sqrt() + 1e-12)

    def _repaired(self, problem: Problem, state: DevicePaperState) -> tuple[Tensor, Tensor, Tensor]:
        """Mutates: the state, whose rows are orthonormal again."""
        (source,) = state.batches
        Q = problem.orthonormalize(torch_engine(problem).cast(state.U, np.float64), state.rng).Q
        state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")
        U = source.padded(Q.tensor)
        return U, *source.measured(U)

    def back_off(self, problem: Problem, state: DevicePaperState) -> DevicePaperState | None:
        """Halve the step and forget the moments, which remember the explosion."""
        if state.moments is not None:
            state.moments.tensor.zero_()
        return super().back_off(problem, state)
