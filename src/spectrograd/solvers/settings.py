"""How to solve, whatever the graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from spectrograd.engines import Engine, LocalEngine
from spectrograd.solvers.checkpoint import RunCheckpoints, SolveCheckpoint
from spectrograd.solvers.loop import Hook, Watch
from spectrograd.solvers.protocol import Solver

AUTO_RESIDUAL = 1e-4  # for solvers that cannot judge their own angle
# Of a time budget: when the solver stops, and when the certificate is over. Labels, where there are any, get
# the rest. Chosen, not fitted: a user who asked for 15 s waited 34 s at K = 100 when only the solver counted.
SOLVED, CERTIFIED = 0.7, 0.85


@dataclass(frozen=True)
class SolverSettings:
    """How to solve, whatever the graph: the solver and what it may take."""

    solver: str = "auto"
    params: Mapping[str, Any] = field(default_factory=dict)
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int | None = None
    seed: int | None = None
    engine: Engine = field(default_factory=LocalEngine)
    memory_limit: int | None = None  # bytes of the whole process, which solvers that ``auto`` picks must fit
    hooks: Sequence[Hook] = ()
    watch: Watch | None = None
    # Moments of time.perf_counter, once the clock of the budget runs: the solver stops, the certificate is
    # over, labels are assigned.
    deadline: float = math.inf
    certified_by: float = math.inf
    labelled_by: float = math.inf
    wrap: Callable[[Solver[Any]], Solver[Any]] | None = (
        None  # what runs instead of the solver: itself, observed
    )
    checkpoints: RunCheckpoints | None = None  # where the states of the run's solves are kept

    def __post_init__(self) -> None:
        if self.tol != "auto" and not (isinstance(self.tol, int | float) and self.tol >= 0):
            raise ValueError(f"tol={self.tol!r}: expected a number that is not negative, or 'auto'")

        budget = self.time_budget
        if budget is not None and not (isinstance(budget, int | float) and 0 < budget < math.inf):
            raise ValueError(f"time_budget={budget!r}: expected seconds, a finite number above 0, or None")
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter}: at least one iteration is needed")

    def started(self, *, labels: bool = False) -> Self:
        """The same with the clock of the time budget running; it is started once.

        The budget is for all of a run: the solver gets a share of it, and so does the certificate; ``labels``
        says that clusters are found as well.
        """
        if self.time_budget is None or math.isfinite(self.deadline):
            return self
        now, whole = time.perf_counter(), self.time_budget
        solved, certified = (SOLVED, CERTIFIED) if labels else (CERTIFIED, 1.0)
        return replace(
            self,
            time_budget=solved * whole,
            deadline=now + solved * whole,
            certified_by=now + certified * whole,
            labelled_by=now + whole,
        )

    def without_clock(self, time_budget: float | None) -> Self:
        """The same with another budget, whose clock has yet to be started."""
        inf = math.inf
        return replace(self, time_budget=time_budget, deadline=inf, certified_by=inf, labelled_by=inf)

    def next_checkpoint(self) -> SolveCheckpoint | None:
        """Where the solve that begins now keeps its states."""
        return None if self.checkpoints is None else self.checkpoints.next_solve()

    @property
    def tolerance(self) -> float:
        """Residual asked for, relative to the width of the spectrum."""
        return AUTO_RESIDUAL if isinstance(self.tol, str) else float(self.tol)
