"""One call from an operator to a certified embedding: choose, solve, Rayleigh-Ritz, certify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from numpy.typing import NDArray

from spectrograd.certificate import Certificate, certify
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.subspace import rayleigh_ritz
from spectrograd.laplacian import Operator
from spectrograd.solvers import REGISTRY, make_solver
from spectrograd.solvers.auto import Choice, choose
from spectrograd.solvers.loop import Hook, Solution, Stopping, solve
from spectrograd.solvers.protocol import Problem

Array = NDArray[Any]
AUTO_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Settings:
    """How to solve, whatever the graph: the estimators' and commands' solver options in one value."""

    solver: str = "auto"
    params: Mapping[str, Any] = field(default_factory=dict)
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int | None = None
    seed: int | None = None
    engine: Engine = field(default_factory=LocalEngine)
    hooks: Sequence[Hook] = ()

    @property
    def tolerance(self) -> float:
        """Residual asked for, relative to the width of the spectrum."""
        return AUTO_TOLERANCE if self.tol == "auto" else float(self.tol)


@dataclass(frozen=True, eq=False)
class Embedded:
    """An embedding with the evidence and the story of how it was found."""

    embedding: Embedding
    certificate: Certificate
    solution: Solution
    choice: Choice


def embed(
    operator: Operator, n_components: int, settings: Settings, *, start: Array | None = None
) -> Embedded:
    """Embed an operator: the arrow ``Operator -> Embedding`` of the house."""
    problem = Problem(operator, n_components, settings.engine, start)
    choice = choose(problem) if settings.solver == "auto" else Choice(settings.solver, "asked for")
    params = dict(settings.params)
    solver = make_solver(choice.name, **params)
    if settings.batch_size is not None and "batch_size" not in params and _has(solver, "batch_size"):
        solver = make_solver(choice.name, **params, batch_size=settings.batch_size)
    solution = solve(
        problem,
        solver,
        stopping=Stopping(settings.max_iter, settings.tolerance * (operator.upper - operator.lower)),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=settings.time_budget,
    )
    return certified(operator, solution, settings, choice)


def certified(
    operator: Operator, solution: Solution, settings: Settings, choice: Choice | None = None
) -> Embedded:
    """The basis of a solution as an embedding with its certificate."""
    engine = settings.engine
    ritz = rayleigh_ritz(engine, operator, solution.Q)
    return Embedded(
        arrange(ritz.Q, ritz.values, operator.graph.names),
        certify(engine, operator, ritz, settings.tolerance),
        solution,
        choice or Choice(solution.solver, "asked for"),
    )


def _has(solver: Any, name: str) -> bool:
    return any(f.name == name for f in fields(solver))


def solver_names() -> tuple[str, ...]:
    """Every name that ``solver=`` accepts."""
    return ("auto", *REGISTRY)
