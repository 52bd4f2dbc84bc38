"""The Dask engine: the solver runs in the client, the kernels of ``local`` run on the workers' row blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
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
    DaskSession,
    EngineError,
    Step,
    bytes_received,
    client_of,
)
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.system import check
from spectrograd.typing import Array, JsonObject

FAN_IN = 16  # of a tree of sums: two levels, the last of them the client's, serve 256 workers
# Bytes that come to a block in a pass, up to which its product is one task: they take as long as another.
MAX_FUSED_BYTES = 4 << 20
NEIGHBOUR_TASKS = 3  # per row block for rows of other blocks: while one waits for rows another computes
# Passes after which multivectors become data of the client: no more are replayed for a lost worker.
SETTLE_AFTER_PASSES = 32
OWNER_CHECK_SECONDS = 1.0  # between two queries for the workers: each takes milliseconds
MAX_CACHED_GRAPHS = 8  # that stay on the workers though no operator holds them: layers are used again
USABLE_MEMORY_SHARE = 0.6  # of a worker's memory: above this Dask begins to spill


class DaskEngine(RowsOnWorkers):
    """Multivectors are futures, one per row block, and there is one row block per worker (docs/cluster.md).

    ``engine`` is ``"dask"`` (the current client), ``"dask:4"`` (as many processes on this machine),
    ``"dask:tcp://host:port"`` or a ``dask.distributed.Client``.
    """

    name = "dask"
    is_distributed = True
    cost = Cost(per_round=0.02)  # of a few tasks

    def __init__(
        self,
        engine: object = "dask",
        *,
        patience: float = 60.0,
        timeout: float = TIMEOUT,
        settle_after: int = SETTLE_AFTER_PASSES,
    ) -> None:
        self.work = Work()
        self.client = client_of(engine, timeout)
        self.session = DaskSession(self.client, patience=patience)
        self.bounds = {}
        self.frozen = WeakValueDictionary()
        self._settle_after = settle_after
        self._graphs: deque[tuple[Any, DistributedGraph]] = deque(maxlen=MAX_CACHED_GRAPHS)
        self._unsettled = 0  # passes since multivectors were last fetched to the client
        self._bytes = 0
        self._since: dict[str, float] = {}  # by worker, the last transfer that is counted in _bytes

    # operators

    def load_operator(self, operator: Operator) -> Operator:
        """Send row blocks to their owners, and make multivectors of the vectors."""
        if not isinstance(operator, SparseOperator):
            return operator.to_engine(self)
        # all multivectors of so many rows are cut alike, by the work of the first graph
        if operator.n_nodes not in self.bounds:
            self.bounds[operator.n_nodes] = balanced_bounds(operator.graph, self.session.n_blocks)
        return replace(operator.to_engine(self), graph=self._load_graph(operator.graph))

    def _load_graph(self, graph: Any) -> DistributedGraph:
        for cached, placed in self._graphs:
            if cached is graph:
                return placed
        bounds = self.bounds[graph.n_nodes]
        if self._fits(graph, bounds):
            placed = distribute_graph(graph, bounds, self.session.results)
        else:
            placed = streamed_graph(graph, bounds)
        self.session.graph_steps.update((*placed.rows, *placed.touched.values()))
        self._graphs.append((graph, placed))
        return placed

    def _fits(self, graph: Any, bounds: Array) -> bool:
        """Whether workers can hold their rows: edges that they spill are read in every pass, without end."""
        needed = block_bytes(graph, bounds)
        limits = self.session.memory_limits()
        tight = [
            address for address, limit in limits.items() if limit and needed > USABLE_MEMORY_SHARE * limit
        ]
        if tight and not isinstance(graph, StoredGraph):
            raise EngineError(
                f"worker {tight[0]} may use {limits[tight[0]] / 2**30:.2g} GiB, but a row block takes "
                f"{needed / 2**30:.2g} GiB: use more workers, give them more memory, or convert the graph "
                "to a store, which they stream"
            )
        return not tight

    def spmm(self, operator: SparseOperator, X: DaskMultiVector) -> DaskMultiVector:
        """Multiply by the block's own rows first, then by those of other blocks, added in a fixed order."""
        self._begin_pass()
        graph = _distributed(operator)
        diagonal = self._convert(operator.diagonal, X.dtype)
        scale = self._convert(operator.scale, X.dtype)
        V = X if scale is None else self.scale_rows(X, scale)
        if graph.streamed:
            return self._spmm_streamed(graph, diagonal, scale, X, V)
        # A block waits for its own rows only; the products with other blocks are added as they arrive.
        steps = []
        for i, rows in enumerate(graph.rows):
            here = (diagonal.steps[i], block_of(scale, i), X.steps[i], V.steps[i])
            own = Step("spmm", tasks.own_rows, (rows, i, *here), i)
            steps.append(_with_neighbours(graph, own, V, (1.0, block_of(scale, i), None)))
        return self.multivector(steps, X.bounds, X.shape[1], X.dtype)

    def _spmm_streamed(
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
        """Run the recurrence in one pass; nothing is written into ``out``."""
        if not isinstance(operator, SparseOperator) or _distributed(operator).streamed:
            moved: DaskMultiVector = super().recurrence(operator, X, before, coefficients, out)
            return moved
        check()
        assert operator.scale is None, "bring the operator to random_walk_form() first"
        self._begin_pass()
        self.work.passes += 1
        self.work.matvecs += X.shape[1]
        graph = _distributed(operator)
        a = coefficients[0]
        diagonal = self._convert(operator.diagonal, X.dtype)
        metric = self._convert(operator.metric, X.dtype)
        steps = []
        for i, rows in enumerate(graph.rows):
            masses = block_of(metric, i)
            here = (rows, i, diagonal.steps[i], masses, coefficients, X.steps[i], before.steps[i])
            # own rows first: the other blocks' rows travel meanwhile
            own = Step("recurrence", tasks.own_recurrence, here, i)
            steps.append(_with_neighbours(graph, own, X, (a, None, masses)))
        moved = self.multivector(steps, X.bounds, X.shape[1], X.dtype)
        if operator.low_rank is None:
            return moved
        return self._subtract_factors(moved, operator.low_rank, X, a, metric)

    def subtract_low_rank(
        self, product: DaskMultiVector, low_rank: LowRank, X: DaskMultiVector
    ) -> DaskMultiVector:
        """Subtract on the workers: the small product ``Z' X`` does not come to the client."""
        return self._subtract_factors(product, low_rank, X, 1.0, None)

    def _subtract_factors(
        self,
        product: DaskMultiVector,
        low_rank: LowRank,
        X: DaskMultiVector,
        weight: float,
        metric: DaskMultiVector | None,
    ) -> DaskMultiVector:
        # Two rounds: Z' X is summed over the blocks, then subtracted from each of them.
        Z = self._convert(low_rank.factors, X.dtype)
        inner = _sum_tree("gram", self._gram_steps(Z, X, None, False), 1)[0]
        values = (weight * low_rank.coefficients, inner)
        return self.blockwise("low-rank", tasks.subtract_low_rank, (product, Z, *values, metric), product)

    def _begin_pass(self) -> None:
        self.session.map_owners(after=OWNER_CHECK_SECONDS)
        self._unsettled += 1
        if self._unsettled > self._settle_after:
            self.session.settle()
            self.bytes_moved()
            self._unsettled = 0

    def residual(self, operator: Operator, Q: DaskMultiVector, AQ: DaskMultiVector, values: Array) -> Array:
        """Square by the kernel of ``local``, sum in a fixed order."""
        metric = self._convert(operator.metric, Q.dtype)
        squares = self.steps("residual", tasks.residual_squares, (Q, AQ, values, metric))
        return np.asarray(np.sqrt(self._sum_blocks("residual", [squares])[0]))

    # algebra

    def gram(
        self,
        X: DaskMultiVector,
        Y: DaskMultiVector,
        metric: DaskMultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> Array:
        """Add the terms of the blocks in a fixed order: the same bits whichever worker is lost."""
        return self.grams([(X, Y)], metric, symmetric=symmetric)[0]

    def grams(
        self,
        pairs: Sequence[tuple[DaskMultiVector, DaskMultiVector]],
        metric: DaskMultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> list[Array]:
        """Compute all Gram matrices in one round to the workers, by one task for each block of rows."""
        if not pairs:
            return []
        flags = tuple(symmetric or X is Y for X, Y in pairs)
        steps = self.steps("gram", tasks.grams, (metric, flags, *chain.from_iterable(pairs)))
        entries = self._sum_blocks("gram", [steps])[0]
        shapes = [(X.shape[1], Y.shape[1]) for X, Y in pairs]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(entries, ends[:-1]), shapes, strict=True)]

    def _gram_steps(
        self, X: DaskMultiVector, Y: DaskMultiVector, metric: DaskMultiVector | None, symmetric: bool
    ) -> list[Step]:
        return self.steps("gram", tasks.gram, (X, Y, metric, symmetric or X is Y))

    def _sum_blocks(self, name: str, shares: Sequence[Sequence[Step]]) -> list[Array]:
        """Sum several quantities over the blocks in one round; the client adds the last few terms."""
        partial_sums = [_sum_tree(name, steps, FAN_IN) for steps in shares]
        terms = iter(self.session.results([step for steps in partial_sums for step in steps]))
        return [tasks.add_in_order(*islice(terms, len(steps))) for steps in partial_sums]

    def combine(
        self, X: DaskMultiVector, C: Array, Y: DaskMultiVector | None = None, E: Array | None = None
    ) -> DaskMultiVector:
        """Combine block by block."""
        Y = None if Y is None or E is None else self.astype(Y, X.dtype)
        small = (np.array(C), Y, None if E is None else np.array(E))
        return self.blockwise("combine", tasks.combine, (X, *small), X, C.shape[1])

    def subtract(
        self, X: DaskMultiVector, blocks: Sequence[DaskMultiVector], C: Sequence[Array]
    ) -> DaskMultiVector:
        """One task for each block of rows, whatever the number of multivectors."""
        small = tuple(np.array(coefficients) for coefficients in C)
        same = [self.astype(block, X.dtype) for block in blocks]
        return self.blockwise("combine", tasks.subtract, (X, small, *same), X)

    # bytes moved between workers

    def bytes_moved(self) -> int:
        """Count the bytes of this run that workers received from one another so far."""
        # each worker logs its transfers; the latest that was counted is remembered
        with suppress(OSError):  # without the scheduler the count stays as it is, and so does the result
            for worker in self.client.nthreads():
                since = self._since.get(worker, 0.0)
                counts = self.client.run(
                    bytes_received, self.session.run, since, workers=[worker], on_error="ignore"
                )
                for total, self._since[worker] in counts.values():
                    self._bytes += total
        return self._bytes

    def summary(self) -> JsonObject:
        """Add the number of workers, the bytes moved between them, the tasks and the recoveries."""
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

    def _convert(self, X: Any, dtype: DTypeLike) -> Any:
        """Convert a vector or factor of a loaded operator to the type of the multivector; made once."""
        if X is None or X.dtype == dtype:
            return X
        target = np.dtype(dtype)
        if target not in X.casts:
            X.casts[target] = self.astype(X, target)
        return X.casts[target]


def _distributed(operator: SparseOperator) -> DistributedGraph:
    graph = operator.graph
    if not isinstance(graph, DistributedGraph):
        raise TypeError("the operator is not loaded on this engine: use engine.load_operator(operator)")
    return graph


def _with_neighbours(
    graph: DistributedGraph, own: Step, V: DaskMultiVector, factors: tuple[float, object, object]
) -> Step:
    """Add the product with rows of other blocks to a block's own product.

    By several tasks, so that computing hides transfers; by one task where few bytes travel.
    """
    i = own.block
    n_blocks = len(graph.rows)
    # from the next block on, round robin: not all blocks ask block 0 first
    others = [j % n_blocks for j in range(i + 1, i + n_blocks) if graph.n_sent[i, j % n_blocks]]
    if not others:
        return own
    groups = [tuple(map(int, group)) for group in np.array_split(others, min(NEIGHBOUR_TASKS, len(others)))]
    sent = [[_rows_sent(graph, i, j, V) for j in group] for group in groups]
    if graph.n_sent[i, others].sum() * V.shape[1] * V.dtype.itemsize <= MAX_FUSED_BYTES:
        arguments = (own.function, len(own.arguments), groups, factors[0], *own.arguments, *factors[1:])
        return Step(own.name, tasks.own_and_neighbour_rows, (*arguments, *chain.from_iterable(sent)), i)
    shares = [
        Step("neighbours", tasks.neighbour_rows, (graph.rows[i], group, *factors, *rows), i)
        for group, rows in zip(groups, sent, strict=True)
    ]
    return Step("sum", tasks.add_in_order, (own, *shares), i)


def _rows_sent(graph: DistributedGraph, i: int, j: int, V: DaskMultiVector) -> Step:
    """Return the step of the rows that block j sends to block i: all, or the few that block i touches."""
    touched = graph.touched.get((i, j))
    return V.steps[j] if touched is None else Step("halo", tasks.take_rows, (V.steps[j], touched), j)


def _sum_tree(name: str, steps: Sequence[Step], most: int) -> list[Step]:
    """Add terms in a fixed order, as a tree, until at most ``most`` terms are left."""
    level = list(steps)
    while len(level) > most:
        groups = [level[first : first + FAN_IN] for first in range(0, len(level), FAN_IN)]
        level = [Step(f"{name}-sum", tasks.add_in_order, tuple(group), group[0].block) for group in groups]
    return level
