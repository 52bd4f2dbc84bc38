"""Rows on the workers of a Dask cluster: the solver runs in the client, the kernels of ``local`` there."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.engines.base import Coefficients, Cost, Work
from spectrograd.engines.dask import tasks
from spectrograd.engines.dask.multivector import (
    DistributedGraph,
    RowsOnWorkers,
    block_of,
    distribute_graph,
    streamed_graph,
)
from spectrograd.engines.dask.partition import balanced_bounds, block_bytes
from spectrograd.engines.dask.session import (
    TIMEOUT,
    DaskMultiVector,
    EngineError,
    Session,
    Step,
    client_of,
    received,
)
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.system import check
from spectrograd.typing import Array

FAN_IN = 16  # of a tree of sums: two levels, the last of them the client's, serve 256 workers
# Bytes that come to a block in a sweep, up to which all of it is one task: they take as long as a task more.
AT_ONCE = 4 << 20
GROUPS = 3  # tasks per row block for what comes from others: while one waits for rows another computes
SETTLE = (
    32  # sweeps after which multivectors become data of the client: no more are replayed for a lost worker
)
OWNERS_HOLD = 1.0  # seconds before somebody asks again who is there: it takes milliseconds
KEPT_GRAPHS = 8  # that stay with the workers though no operator is placed: layers are used again
USABLE = 0.6  # of a worker's memory: above this Dask begins to spill


class DaskEngine(RowsOnWorkers):
    """Multivectors are futures, one per row block, and there is one row block per worker (docs/cluster.md).

    ``engine`` is ``"dask"`` (the current client), ``"dask:4"`` (as many processes on this machine),
    ``"dask:tcp://host:port"`` or a ``dask.distributed.Client``.
    """

    name = "dask"
    is_distributed = True
    cost = Cost(per_round=0.02, per_byte=1e-9)  # of a few tasks, and of loopback or 10 GbE

    def __init__(
        self,
        engine: Any = "dask",
        *,
        patience: float = 60.0,
        timeout: float = TIMEOUT,
        settle_after: int = SETTLE,
    ) -> None:
        self.work = Work()
        self.client = client_of(engine, timeout)
        self.session = Session(self.client, patience=patience)
        self.bounds, self.frozen, self._settle_after = {}, WeakValueDictionary(), settle_after
        self._placed: deque[tuple[Any, DistributedGraph]] = deque(maxlen=KEPT_GRAPHS)
        self._unsettled, self._bytes, self._since = 0, 0, {}  # type: ignore[var-annotated]

    # operators

    def load_operator(self, operator: Operator) -> Operator:
        """Row blocks to their owners, vectors as multivectors."""
        if not isinstance(operator, SparseOperator):
            return operator.to_engine(self)
        if operator.n_nodes not in self.bounds:
            self.bounds[operator.n_nodes] = balanced_bounds(operator.graph, self.session.n_blocks)
        return replace(operator.to_engine(self), graph=self._graph(operator.graph))

    def _graph(self, graph: Any) -> DistributedGraph:
        for known, placed in self._placed:
            if known is graph:
                return placed
        bounds = self.bounds[graph.n_nodes]
        if self._fits(graph, bounds):
            placed = distribute_graph(graph, bounds, self.session.results)
        else:
            placed = streamed_graph(graph, bounds)
        self.session.placed.update((*placed.rows, *placed.touched.values()))
        self._placed.append((graph, placed))
        return placed

    def _fits(self, graph: Any, bounds: Array) -> bool:
        """Whether workers can hold their rows: edges that they spill are read in every pass, without end."""
        needed = block_bytes(graph, bounds)
        limits = self.session.memory_limits()
        tight = [address for address, limit in limits.items() if limit and needed > USABLE * limit]
        if tight and not isinstance(graph, StoredGraph):
            raise EngineError(
                f"worker {tight[0]} may use {limits[tight[0]] / 2**30:.2g} GiB, but a row block takes "
                f"{needed / 2**30:.2g} GiB: use more workers, give them more memory, or convert the graph "
                "to a store, which they stream"
            )
        return not tight

    def spmm(self, operator: SparseOperator, X: DaskMultiVector) -> DaskMultiVector:
        """Own rows first, then what comes from others, added up in a fixed order."""
        self._begin_pass()
        graph = _placed(operator)
        diagonal, scale = self._same(operator.diagonal, X.dtype), self._same(operator.scale, X.dtype)
        V = X if scale is None else self.scale_rows(X, scale)
        if graph.streamed:
            return self._streamed(graph, diagonal, scale, X, V)
        steps = []
        for i, rows in enumerate(graph.rows):
            here = (diagonal.steps[i], block_of(scale, i), X.steps[i], V.steps[i])
            own = Step("spmm", tasks.own_rows, (rows, i, *here), i)
            steps.append(_joined(graph, own, V, (1.0, block_of(scale, i), None)))
        return self.multivector(steps, X.bounds, X.shape[1], X.dtype)

    def _streamed(
        self,
        graph: DistributedGraph,
        diagonal: DaskMultiVector,
        scale: DaskMultiVector | None,
        X: DaskMultiVector,
        V: DaskMultiVector,
    ) -> DaskMultiVector:
        steps = []
        for i, where in enumerate(graph.rows):
            here = (where, diagonal.steps[i], block_of(scale, i), X.steps[i], *V.steps)
            steps.append(Step("streamed", tasks.streamed_rows, here, i))
        return self.multivector(steps, X.bounds, X.shape[1], X.dtype)

    def recurrence(
        self,
        operator: Operator,
        X: DaskMultiVector,
        before: DaskMultiVector,
        coefficients: Coefficients,
        out: DaskMultiVector | None = None,
    ) -> DaskMultiVector:
        """One sweep; nothing is written into ``out``."""
        if not isinstance(operator, SparseOperator) or _placed(operator).streamed:
            moved: DaskMultiVector = super().recurrence(operator, X, before, coefficients, out)
            return moved
        check()
        assert operator.scale is None, "bring the operator to random_walk_form() first"
        self._begin_pass()
        self.work.passes += 1
        self.work.matvecs += X.shape[1]
        graph, a = _placed(operator), coefficients[0]
        diagonal, metric = self._same(operator.diagonal, X.dtype), self._same(operator.metric, X.dtype)
        steps = []
        for i, rows in enumerate(graph.rows):
            masses = block_of(metric, i)
            here = (rows, i, diagonal.steps[i], masses, coefficients, X.steps[i], before.steps[i])
            own = Step("recurrence", tasks.own_recurrence, here, i)
            steps.append(_joined(graph, own, X, (a, None, masses)))
        moved = self.multivector(steps, X.bounds, X.shape[1], X.dtype)
        return moved if operator.low_rank is None else self._less(moved, operator.low_rank, X, a, metric)

    def subtract_low_rank(
        self, product: DaskMultiVector, low_rank: LowRank, X: DaskMultiVector
    ) -> DaskMultiVector:
        """The small product does not come to the client on its way."""
        return self._less(product, low_rank, X, 1.0, None)

    def _less(
        self,
        product: DaskMultiVector,
        low_rank: LowRank,
        X: DaskMultiVector,
        weight: float,
        metric: DaskMultiVector | None,
    ) -> DaskMultiVector:
        Z = self._same(low_rank.factors, X.dtype)
        inner = _tree("gram", self._gram_steps(Z, X, None, False), 1)[0]
        values = (weight * low_rank.coefficients, inner)
        return self.blockwise("low-rank", tasks.subtract_low_rank, (product, Z, *values, metric), product)

    def _begin_pass(self) -> None:
        self.session.map_owners(after=OWNERS_HOLD)
        self._unsettled += 1
        if self._unsettled > self._settle_after:
            self.session.settle()
            self.bytes_moved()
            self._unsettled = 0

    def residual(self, operator: Operator, Q: DaskMultiVector, AQ: DaskMultiVector, values: Array) -> Array:
        """Squares by the kernel of ``local``, summed in a fixed order."""
        metric = self._same(operator.metric, Q.dtype)
        squares = self.steps("residual", tasks.residual_squares, (Q, AQ, values, metric))
        return np.asarray(np.sqrt(self._totals("residual", [squares])[0]))

    # algebra

    def gram(
        self,
        X: DaskMultiVector,
        Y: DaskMultiVector,
        metric: DaskMultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> Array:
        """Shares of the blocks, added up in a fixed order: the same bits whoever is lost."""
        return self.grams([(X, Y)], metric, symmetric=symmetric)[0]

    def grams(
        self,
        pairs: Sequence[tuple[DaskMultiVector, DaskMultiVector]],
        metric: DaskMultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> list[Array]:
        """All in one round to the workers."""
        return self._totals("gram", [self._gram_steps(X, Y, metric, symmetric) for X, Y in pairs])

    def _gram_steps(
        self, X: DaskMultiVector, Y: DaskMultiVector, metric: DaskMultiVector | None, symmetric: bool
    ) -> list[Step]:
        return self.steps("gram", tasks.gram, (X, Y, metric, symmetric or X is Y))

    def _totals(self, name: str, shares: Sequence[Sequence[Step]]) -> list[Array]:
        """Sums over the blocks, of several things at once; the last few terms are added up by the client."""
        few = [_tree(name, steps, FAN_IN) for steps in shares]
        found = iter(self.session.results([step for steps in few for step in steps]))
        return [tasks.added(*islice(found, len(steps))) for steps in few]

    def combine(
        self, X: DaskMultiVector, C: Array, Y: DaskMultiVector | None = None, E: Array | None = None
    ) -> DaskMultiVector:
        """Block by block."""
        Y = None if Y is None or E is None else self.astype(Y, X.dtype)
        small = (np.array(C), Y, None if E is None else np.array(E))
        return self.blockwise("combine", tasks.combine, (X, *small), X, C.shape[1])

    # what was moved

    def bytes_moved(self) -> int:
        """Bytes of this run that workers got from one another so far."""
        for worker in self.client.nthreads():
            since = self._since.get(worker, 0.0)
            found = self.client.run(received, self.session.run, since, workers=[worker], on_error="ignore")
            for total, self._since[worker] in found.values():
                self._bytes += total
        return self._bytes

    def summary(self) -> dict[str, Any]:
        """With the workers, what moved between them, how many tasks there were, and what was made again."""
        moved = self.bytes_moved()
        return super().summary() | {
            "workers": len(set(self.session.owners)),
            "blocks": self.session.n_blocks,
            "bytes_moved": moved,
            "bytes_per_pass": moved / max(1, self.work.passes),
            "tasks": self.session.tasks,
            "rounds": self.session.rounds,
            "recoveries": self.session.losses,
        }

    # blocks

    def _same(self, X: Any, dtype: DTypeLike) -> Any:
        """A vector or factor of a placed operator in the type of what it multiplies; made once."""
        if X is None or X.dtype == dtype:
            return X
        wanted = np.dtype(dtype)
        if wanted not in X.casts:
            X.casts[wanted] = self.astype(X, wanted)
        return X.casts[wanted]


def _placed(operator: SparseOperator) -> DistributedGraph:
    graph = operator.graph
    if not isinstance(graph, DistributedGraph):
        raise TypeError("the operator is not placed on this engine: use engine.load_operator(operator)")
    return graph


def _joined(graph: DistributedGraph, own: Step, V: DaskMultiVector, factors: tuple[float, Any, Any]) -> Step:
    """A block's own share with that of its neighbours: several tasks, so that computing hides transfers.

    Where hardly anything travels, one task.
    """
    i, n_blocks = own.block, len(graph.rows)
    others = [j % n_blocks for j in range(i + 1, i + n_blocks) if graph.n_sent[i, j % n_blocks]]
    if not others:
        return own
    groups = [tuple(map(int, group)) for group in np.array_split(others, min(GROUPS, len(others)))]
    pieces = [[_travelling(graph, i, j, V) for j in group] for group in groups]
    if graph.n_sent[i, others].sum() * V.shape[1] * V.dtype.itemsize <= AT_ONCE:
        given = (own.function, len(own.arguments), groups, factors[0], *own.arguments, *factors[1:])
        return Step(own.name, tasks.at_once, (*given, *chain.from_iterable(pieces)), i)
    shares = [
        Step("neighbours", tasks.neighbour_rows, (graph.rows[i], group, *factors, *rows), i)
        for group, rows in zip(groups, pieces, strict=True)
    ]
    return Step("sum", tasks.added, (own, *shares), i)


def _travelling(graph: DistributedGraph, i: int, j: int, V: DaskMultiVector) -> Step:
    """What block i gets of block j: its rows, or the few it touches."""
    touched = graph.touched.get((i, j))
    return V.steps[j] if touched is None else Step("halo", tasks.take, (V.steps[j], touched), j)


def _tree(name: str, steps: Sequence[Step], most: int) -> list[Step]:
    """Sums in a fixed order, until no more than so many are left."""
    level = list(steps)
    while len(level) > most:
        groups = [level[first : first + FAN_IN] for first in range(0, len(level), FAN_IN)]
        level = [Step(f"{name}-sum", tasks.added, tuple(group), group[0].block) for group in groups]
    return level
