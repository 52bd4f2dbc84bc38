"""``auto``: which solver for which problem, and why."""

from __future__ import annotations

from typing import NamedTuple

from spectrograd.graph import Graph
from spectrograd.solvers.eigen import DENSE_BELOW
from spectrograd.solvers.protocol import Problem

# Entries of the factor per edge up to which a direct solve is cheap; 2 to 11 on roads and planar k-NN
# graphs, thousands on block models and social graphs.
LITTLE_FILL = 40
# Entries up to which the factor is ready before a hierarchy pays.
DIRECT_FILL = 3e6
# Of the entries, what one level of coarsening may leave on a geometric graph; measured: 0.13 on
# planar k-NN, 0.3 on roads, 0.48 on social graphs, 0.9 on block models.
SHRINKS = 0.35


class Choice(NamedTuple):
    """A solver's name and the reason it was picked."""

    name: str
    reason: str


def choose(problem: Problem) -> Choice:
    """Pick a solver for a problem by cheap looks at its graph: size, fill, shrinkage.

    The fill estimate is two breadth-first searches, the shrinkage two matchings; each costs about a pass.
    """
    n, operator = problem.n_nodes, problem.operator
    if n <= DENSE_BELOW:
        return Choice("eigen", f"{n} nodes: a dense eigendecomposition is exact and instant")
    if problem.start is not None:
        return Choice("chebyshev", "a start is given: a block method refines all its vectors at once")
    if operator.low_rank is not None:
        return Choice("lanczos", "sparse plus low rank: products are cheap, a factor is not")
    fill = fill_ratio(operator.graph)
    if fill <= LITTLE_FILL:
        if fill * operator.graph.n_edges <= DIRECT_FILL:
            return Choice("shift-invert", f"a factor has about {fill:.0f} entries per edge: direct is exact")
        return Choice("multilevel", f"thin separators (about {fill:.0f} factor entries per edge): geometric")
    shrinkage = first_shrinkage(problem)
    if shrinkage <= SHRINKS:
        return Choice("multilevel", f"coarsening leaves {shrinkage:.0%} of the entries: geometric")
    return Choice("chebyshev", f"an expander (coarsening leaves {shrinkage:.0%} of the entries): few passes")


def fill_ratio(graph: Graph) -> float:
    """Estimated entries of a factor per edge."""
    from spectrograd.solvers.shift_invert import estimated_fill

    return estimated_fill(graph) / max(1, graph.n_edges)


def first_shrinkage(problem: Problem) -> float:
    """Entries after one level (two matchings) over entries before."""
    from spectrograd.solvers.hierarchy import coarsened

    operator = problem.operator.walk_form()
    _, middle = coarsened(operator)
    _, coarse = coarsened(middle)
    return coarse.graph.n_entries / max(1, operator.graph.n_entries)
