"""``sgd-paper`` on a device: the paper's algorithm as tensor operations."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spectrograd.engines.device_tall import DeviceTall
from spectrograd.engines.random_rows import new_seed
from spectrograd.operators.protocol import TENSORS
from spectrograd.solvers.device_batches import Batch, DeviceBatches, torch_engine
from spectrograd.solvers.device_edges import DeviceEdges, fits
from spectrograd.solvers.paper_method import PaperMethod
from spectrograd.solvers.protocol import DERIVED, Problem, StepState

Tensor = Any


@dataclass(eq=False)
class DevicePaperState(StepState):
    """``U`` has a row N of zeros; ``known`` are M and Y as updates made them, None where U moved otherwise.

    ``moments`` are AMSGrad's, (N + 1) x 3K on the device; ``seed`` is that of the batches.
    """

    known: tuple[Tensor, Tensor] | None = None
    moments: Tensor | None = None
    seed: int = 0
    edges: DeviceEdges | None = field(default=None, metadata={DERIVED: True})
    rows: DeviceBatches | None = field(default=None, metadata={DERIVED: True})

    def __deepcopy__(self, memo: dict[int, Any]) -> DevicePaperState:
        twin = copy.copy(self)  # what is only read is shared
        twin.U, twin.events = copy.deepcopy(self.U, memo), list(self.events)
        twin.known, twin.moments = copy.deepcopy(self.known, memo), copy.deepcopy(self.moments, memo)
        twin.rng = copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class DevicePaperSGD(PaperMethod[DevicePaperState]):
    """Eqs. 8-19 with edges drawn, summed, factorised and moved on the device.

    The same as :class:`~spectrograd.solvers.sgd_paper.PaperSGD`, but for the random numbers, and for other
    batches than edges drawn with replacement, which are refused. Between two reports the host looks at
    nothing: where M has no factor, rows stay as they are, and those batches count for nothing.
    """

    needs = TENSORS

    def init(self, problem: Problem, rng: np.random.Generator) -> DevicePaperState:
        """Start from an orthonormal random basis and compute ``M_0`` in full (Eq. 18)."""
        self.check_parameters()
        engine, operator = torch_engine(problem), problem.sparse
        self._check_offered(fits(engine, operator))
        edges = DeviceEdges.of(engine, operator)
        rows = DeviceBatches.of(engine, operator, edges.counts)
        U = rows.padded(problem.first_guess(rng).tensor)
        state = DevicePaperState(
            DeviceTall(U), rng, step_size=self.step_size * problem.row_unit, seed=new_seed(rng)
        )
        state.edges, state.rows = edges, rows
        if self.optimizer == "amsgrad":
            state.moments = U.new_zeros((len(U), 3 * U.shape[1]))
        state.events.extend(self.advice(problem.n_nodes))
        return state

    def _check_offered(self, has_room: bool) -> None:
        for name, only in (("batch", "edges"), ("replacement", True), ("redrawn", True)):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: solver 'sgd-paper' on engine 'torch' draws edges with "
                    f"replacement, {name}={only!r}; engine='local' has the others"
                )
        if not has_room:
            raise ValueError(
                "solver 'sgd-paper' on engine 'torch' draws from all edges, which do not fit the device; "
                "'sgd' reads them chunk by chunk"
            )

    def step(self, problem: Problem, state: DevicePaperState) -> DevicePaperState:
        """All mini-batches up to the next report or refreshment (Eq. 10)."""
        assert state.rows is not None
        with torch_engine(problem).one_thread():
            if state.known is None or self.refreshes(state.iteration):
                state.known = state.rows.measured(state.U.tensor)
            done = self._iterations(problem, state, self.undisturbed(state.iteration))
        if not bool(state.rows.torch.isfinite(state.U.tensor).all()):
            raise FloatingPointError("the step was too long")  # the loop backs off
        if done == 0:
            self._repair(problem, state)
        state.iteration += done
        state.edges_seen += done * self.batch_size
        return state

    def _iterations(self, problem: Problem, state: DevicePaperState, count: int) -> int:
        """Mutates: the state, by so many batches; how many there were before M had no factor."""
        engine, rows, edges = torch_engine(problem), state.rows, state.edges
        assert rows is not None
        assert edges is not None
        assert state.known is not None
        U, (M, Y), printed = state.U.tensor, state.known, self.gram_update == "printed"
        draw = engine.torch.Generator(engine.device).manual_seed((state.seed + state.iteration) % 2**63)
        done = engine.torch.zeros((), dtype=engine.torch.int64, device=engine.device)
        for _ in range(count):
            batch = rows.batch(edges.drawn(self.batch_size, draw), U, Y)
            inverse, good = rows.inverse(M)
            direction = self._direction(rows, batch, inverse, good, state.moments)
            rows.moved(batch, -state.step_size * direction, U, M, Y, printed=printed)
            done += good
        return int(done)

    def _direction(
        self, rows: DeviceBatches, batch: Batch, inverse: Tensor, good: Tensor, moments: Tensor | None
    ) -> Tensor:
        """The rows ``2 (A_S U - B U M^-1 U'A_S U) M^-1`` of the batch (Eq. 17), or AMSGrad's form of them.

        Mutates: the moments. Nothing moves where there is no ``M^-1``.
        """
        torch, u = rows.torch, batch.rows
        P = inverse @ batch.projected @ inverse
        back = (batch.metric * u) @ (P + P.T).to(u.dtype)
        g = 2 * batch.gradient @ inverse.to(u.dtype) - back
        if moments is None:
            return g
        before = moments.index_select(0, batch.vertices)
        m, v, most = before.chunk(3, dim=1)
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g.square()
        most = torch.maximum(most, v)
        now = torch.where(good, torch.cat([m, v, most], dim=1), before)
        moments.index_copy_(0, batch.vertices, now)
        return torch.where(good, m / (most.sqrt() + 1e-12), 0.0)

    def _repair(self, problem: Problem, state: DevicePaperState) -> None:
        """Mutates: the state, whose rows are orthonormal again."""
        assert state.rows is not None
        Q = problem.orthonormalize(self._wide(state), state.rng).Q
        state.U, state.known = DeviceTall(state.rows.padded(Q.tensor)), None
        state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")

    def _wide(self, state: DevicePaperState) -> DeviceTall:
        """The rows without that of zeros, in float64."""
        return DeviceTall(state.U.tensor[:-1].double())

    def finish(self, problem: Problem, state: DevicePaperState) -> DeviceTall:
        """Orthonormal in the metric."""
        Q: DeviceTall = problem.orthonormalize(self._wide(state)).Q
        return Q

    def back_off(self, problem: Problem, state: DevicePaperState) -> DevicePaperState | None:
        """Halve the step and forget the moments, which remember the explosion."""
        if state.moments is not None:
            state.moments.tensor.zero_()
        return super().back_off(problem, state)
