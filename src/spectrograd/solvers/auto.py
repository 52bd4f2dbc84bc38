"""``auto``: which solver for which problem, and why."""

from __future__ import annotations

from typing import NamedTuple

from spectrograd.solvers.eigen import DENSE_BELOW
from spectrograd.solvers.protocol import Problem


class Choice(NamedTuple):
    """A solver's name and the reason it was picked."""

    name: str
    reason: str


def choose(problem: Problem) -> Choice:
    """Pick a solver for a problem."""
    if problem.n_nodes <= DENSE_BELOW:
        return Choice("eigen", f"{problem.n_nodes} nodes: a dense eigendecomposition is exact and instant")
    return Choice("eigen", "in memory: a Krylov method reaches the eigenvectors in the fewest passes")
