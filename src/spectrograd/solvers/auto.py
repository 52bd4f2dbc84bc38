"""``auto``: which solvers for which problem, in which order, and why."""

from __future__ import annotations

from typing import NamedTuple

from spectrograd.solvers.eigen import DENSE_BELOW
from spectrograd.solvers.protocol import Problem

# A factor of at most this many entries per stored entry of the graph is cheaper than any iteration.
CHEAP_FILL = 40


class Choice(NamedTuple):
    """A solver's name and the reason it was picked."""

    name: str
    reason: str


def plan(problem: Problem) -> tuple[Choice, ...]:
    """Solvers to try, best first; the next one goes on where the certificate of the last is not met."""
    n_nodes = problem.n_nodes
    if n_nodes <= DENSE_BELOW:
        return (Choice("eigen", f"{n_nodes} nodes: a dense eigendecomposition is exact and instant"),)
    if problem.operator.graph.n_entries == 0:  # an aggregation that is no edge sum
        return (Choice("lanczos", "the operator has no edges of its own: products only"),)
    from spectrograd.solvers.shift_invert import estimated_fill

    fill = estimated_fill(problem.operator.graph) / max(problem.operator.graph.n_entries, 1)
    if fill > CHEAP_FILL:
        return (
            Choice("lanczos", f"a factor would fill {fill:.0f}x the graph: few passes by block Lanczos"),
            Choice("chebyshev", "escalated: lanczos did not reach the accuracy"),
        )
    direct = Choice("shift-invert", f"a factor fills only {fill:.1f}x the graph: a direct solve is exact")
    return (direct, Choice("lanczos", "escalated: shift-invert did not reach the accuracy"))


def choose(problem: Problem) -> Choice:
    """The first solver of the plan."""
    return plan(problem)[0]
