"""Predicted seconds of solves whose passes are expensive: over a disk, or on a cluster.

A pass takes as long as reading or as multiplying, whichever is longer: one thread reads ahead of the others.
On a cluster it also takes rounds of messages, and the rows that workers send each other. The number of passes
is a median over kinds of graphs (docs/larger_than_memory.md): a look at the spectrum would take as many.
Constants are those of one thread of an ordinary machine, of an ordinary disk and of 10 GbE, so a plan is a
function of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spectrograd.certificate.block_probe import PROBE_COLUMNS
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem
from spectrograd.store import StoredGraph


class FewPassCost(NamedTuple):
    """Passes over the edges, seconds per entry and column of one, and rounds of messages in it."""

    passes: int
    per_product: float
    rounds: int


# Seconds per product fitted on block models of 20,000 to 200,000 nodes (8e-10 to 1e-9 and 1.3e-9 to 1.7e-9);
# those of block Krylov hold the orthogonalisation.
COSTS: Mapping[str, FewPassCost] = {
    "lanczos": FewPassCost(21, 1.5e-9, 6),
    "chebyshev": FewPassCost(71, 0.9e-9, 2),
}
DISK_BANDWIDTH = 1e9  # bytes per second
NETWORK_BANDWIDTH = 1e9


def predicted_seconds(solver: str, problem: Problem, width: int, n_parts: int = 1) -> float | None:
    """Seconds with blocks of ``width`` columns and the probe's; None for operators that have no edges.

    Parameters
    ----------
    solver
        One of :data:`COSTS`.
    problem
        With an operator that is streamed, or on an engine whose rounds are expensive.
    width
        Columns of the solver.
    n_parts
        Parts of the columns, each of which reads the edges for itself.
    """
    operator = problem.operator
    if not isinstance(operator, SparseOperator):
        return None
    cost = COSTS[solver]
    columns = width + PROBE_COLUMNS
    graph = operator.graph
    # 1. products, and bytes that are read meanwhile
    computing = graph.n_entries * columns * cost.per_product
    reading = 0.0
    if isinstance(graph, StoredGraph) and not problem.engine.is_distributed:
        reading = n_parts * graph.bytes_from_disk / DISK_BANDWIDTH
    # 2. messages: on a cluster every row goes to the others once
    moved = 4 * problem.n_nodes * columns if problem.engine.is_distributed else 0
    messages = cost.rounds * problem.engine.cost.per_round + moved / NETWORK_BANDWIDTH
    return cost.passes * (max(computing, reading) + messages)
