"""Mini-batches of an operator as tensor operations: nothing of a batch is known to the host.

All shapes are those of a batch of b edges with its 2b ends, however many of them are the same node: ends
are sorted, equal ones share a slot, and slots without a node belong to row N, which is zero and stays zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.torch_engine import TorchEngine
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.protocol import Problem, Solver

Array = NDArray[Any]
Tensor = Any
SolverT = TypeVar("SolverT", bound=Solver[Any])


class Batch(NamedTuple):
    """What a batch does to the nodes it touches; 2b slots, K columns.

    ``vertices`` are the nodes of the slots, ``counts`` how many of the batch's edges each has, ``rows`` their
    rows of U, ``gradient`` those of ``A_S U``.
    """

    vertices: Tensor
    counts: Tensor
    rows: Tensor
    gradient: Tensor

    @property
    def projected(self) -> Tensor:
        """``U' A_S U`` (K x K) in float64."""
        return self.rows.double().T @ self.gradient.double()


@dataclass(frozen=True, eq=False)
class DeviceBatches:
    """Every edge of an operator once, on a device: 8 bytes each, and 4 for a weight.

    ``A = L(W) + diag(row_term) - Z diag(a) Z'``, the last two spread over the edges of each node by
    ``shares``, one over their number. Vectors and factors have a row N of zeros; units are powers of two.
    """

    torch: Any
    heads: Tensor
    tails: Tensor
    weights: Tensor | None
    row_term: Tensor
    metric: Tensor
    shares: Tensor
    factors: Tensor
    coefficients: Tensor
    counts: Array

    @classmethod
    def of(cls, engine: TorchEngine, operator: SparseOperator, unit: float = 1.0) -> DeviceBatches:
        """Collect the edges; weights, row terms and coefficients are divided by ``unit``."""
        W = operator.graph.matrix
        rows = np.repeat(np.arange(operator.n_nodes, dtype=np.int32), np.diff(W.indptr))
        upper = np.flatnonzero(rows < W.indices)
        heads, tails = rows[upper], W.indices[upper]
        weights = W.data[upper] / unit if operator.graph.is_weighted or unit != 1 else None
        if operator.scale is not None:
            scales = operator.scale[heads] * operator.scale[tails]
            weights = scales if weights is None else weights * scales
        counts = np.diff(W.indptr)
        low_rank = operator.low_rank
        metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
        single = engine.torch.float32

        def padded(rows: Array) -> Tensor:
            zero = np.zeros((1, *rows.shape[1:]))
            return engine.torch.tensor(np.concatenate([rows, zero]), dtype=single, device=engine.device)

        return cls(
            engine.torch,
            engine.torch.tensor(heads, device=engine.device),
            engine.torch.tensor(tails, device=engine.device),
            None if weights is None else engine.torch.tensor(weights, dtype=single, device=engine.device),
            padded(operator.row_term / unit),
            padded(metric),
            padded(1 / np.maximum(counts, 1)),
            padded(np.zeros((operator.n_nodes, 0)) if low_rank is None else low_rank.factors),
            engine.torch.tensor(
                np.zeros(0) if low_rank is None else low_rank.coefficients / unit,
                dtype=engine.torch.float64,
                device=engine.device,
            ),
            counts,
        )

    @property
    def n_edges(self) -> int:
        """All edges."""
        return len(self.heads)

    def padded(self, U: Tensor) -> Tensor:
        """A copy of N x K rows in float32, with the row of zeros."""
        out = self.torch.zeros((len(U) + 1, U.shape[1]), dtype=self.torch.float32, device=U.device)
        out[:-1] = U
        return out

    def measured(self, U: Tensor, span: int = 1 << 17) -> tuple[Tensor, Tensor]:
        """``M = U'BU`` (K x K) and ``Y = Z'U`` (r x K) in float64, from all rows."""
        k, wide = U.shape[1], self.torch.float64
        M = self.torch.zeros((k, k), dtype=wide, device=U.device)
        Y = self.torch.zeros((self.factors.shape[1], k), dtype=wide, device=U.device)
        for low in range(0, len(U), span):
            rows = U[low : low + span].double()
            M.addmm_((self.metric[low : low + span, None] * rows).T, rows)
            Y.addmm_(self.factors[low : low + span].double().T, rows)
        return M, Y

    def batch(self, positions: Tensor, U: Tensor, Y: Tensor) -> Batch:
        """The part ``A_S`` (Eq. 15) of the edges at ``positions`` applied to the rows that it touches."""
        torch, n_ends = self.torch, 2 * len(positions)
        heads, tails = self.heads[positions].long(), self.tails[positions].long()
        vertices, slots = self._slots(torch.cat([heads, tails]))
        counts = torch.zeros(n_ends, dtype=U.dtype, device=U.device)
        counts.index_add_(0, slots, torch.ones_like(counts))
        pull = U[heads] - U[tails]
        if self.weights is not None:
            pull = pull * self.weights[positions, None]
        gradient = torch.zeros((n_ends, U.shape[1]), dtype=U.dtype, device=U.device)
        gradient.index_add_(0, slots[: len(heads)], pull)
        gradient.index_add_(0, slots[len(heads) :], pull, alpha=-1)
        rows, share = U[vertices], counts * self.shares[vertices]
        gradient.addcmul_((share * self.row_term[vertices])[:, None], rows)
        if len(self.coefficients):
            C = (self.coefficients[:, None] * Y).to(U.dtype)
            gradient -= share[:, None] * (self.factors[vertices] @ C)
        return Batch(vertices, counts, rows, gradient)

    def _slots(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct ends, filled up with row N, and where among them each end is."""
        ordered, order = ends.sort()
        group = self.torch.zeros_like(ends)
        group[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        slots = self.torch.empty_like(ends)
        slots[order] = group
        vertices = self.torch.full_like(ends, len(self.metric) - 1)
        vertices[group] = ordered
        return vertices, slots

    def inverse(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """``M^-1`` through its Cholesky factor, and whether there is one; zeros where there is none."""
        factor, failed = self.torch.linalg.cholesky_ex(M)
        diagonal = factor.diagonal()
        good = (failed == 0) & (diagonal.min() > 1e-7 * diagonal.max())
        unit = self.torch.eye(len(M), dtype=M.dtype, device=M.device)
        inverse = self.torch.cholesky_solve(unit, self.torch.where(good, factor, unit))
        return self.torch.where(good, inverse, 0.0), good

    def moved(self, batch: Batch, steps: Tensor, U: Tensor, M: Tensor, Y: Tensor) -> None:
        """Mutates: U, M and Y, by a step for each of the batch's rows; a node counts once."""
        U[batch.vertices] = after = batch.rows + steps
        b, new, old = self.metric[batch.vertices, None], after.double(), batch.rows.double()
        M += (b * new).T @ new - (b * old).T @ old
        if len(Y):
            Y += self.factors[batch.vertices].double().T @ (new - old)


def torch_engine(problem: Problem) -> TorchEngine:
    """The engine of a problem that offers tensors."""
    return cast(TorchEngine, problem.engine)


def with_settings_of(solver: Solver[Any], device_solver: type[SolverT]) -> SolverT:
    """The solver for devices with another one's hyperparameters; one that it has not is an error."""
    known = {f.name for f in fields(device_solver)}  # type: ignore[arg-type]
    shared: dict[str, Any] = {}
    for field in fields(solver):  # type: ignore[arg-type]
        value = getattr(solver, field.name)
        if field.name in known:
            shared[field.name] = value
        elif value != field.default:
            raise ValueError(
                f"solver {solver.name!r} on engine 'torch' has no parameter {field.name!r}; "
                f"it has {', '.join(sorted(known))}"
            )
    return device_solver(**shared)
