"""Settings of a solve as data (:class:`SolverSettings`), and its surroundings (:class:`RunContext`)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spectrograd.engines import Engine, LocalEngine
from spectrograd.solvers.checkpoint import RunCheckpoints, SolveCheckpoint
from spectrograd.solvers.loop import Hook, Observer, Watch

AUTO_RESIDUAL = 1e-4  # for solvers that cannot judge their own angle
CHECKPOINT_SECONDS = 300.0  # less than a user minds to lose, and rare enough to cost nothing
# Of a time budget: when the solver stops, and when the certificate is over. Labels, where there are any, get
# the rest. Chosen, not fitted: a user who asked for 15 s waited 34 s at K = 100 when only the solver counted.
SOLVED_SHARE = 0.7
CERTIFIED_SHARE = 0.85


@dataclass(frozen=True)
class SolverSettings:
    """Settings of a solve, whatever the graph: plain values, which decide the result.

    ``memory_limit`` is in bytes of the whole process, which solvers that ``auto`` picks must fit.
    """

    solver: str = "auto"
    params: Mapping[str, object] = field(default_factory=dict)
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int | None = None
    seed: int | None = None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        if self.tol != "auto" and not (isinstance(self.tol, int | float) and self.tol >= 0):
            raise ValueError(f"tol={self.tol!r}: expected a number that is not negative, or 'auto'")

        budget = self.time_budget
        if budget is not None and not (isinstance(budget, int | float) and 0 < budget < math.inf):
            raise ValueError(f"time_budget={budget!r}: expected seconds, a finite number above 0, or None")
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter}: at least one iteration is needed")

    @property
    def tolerance(self) -> float:
        """Residual asked for, relative to the width of the spectrum."""
        return AUTO_RESIDUAL if isinstance(self.tol, str) else float(self.tol)


def ignore_stage(stage: str) -> None:
    """The default of ``on_stage``: nothing happens."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """The surroundings of a run: engine, hooks, clock; no part of its identity but the engine's kind.

    Attributes
    ----------
    engine
        Where multivectors live and passes run.
    hooks
        Called with each measurement.
    watch
        Looks at rough vectors; a run is given up where it returns True.
    observer
        Called with the basis at each measurement; the clock stands still meanwhile.
    aborts_direct
        Whether a direct method ends with an error when its time is over; else it runs to its end.
    on_stage
        Called with the name of each stage when it begins: "layers", "merge", "solve", "assign".
    keep_multivector
        Whether the result has the embedding as the engine holds it as well: ``Result.multivector``.
    certifies
        Whether vectors are certified. Without, the first solver of the plan has the last word, and
        ``certify_solution`` may follow.
    checkpoint, checkpoint_every
        A folder where the run is kept, so that the same call goes on where it was stopped, and how many
        seconds lie between two checkpoints, at least.
    checkpoints
        That folder, open.
    solver_seconds
        The solver's share of the time budget, once its clock runs.
    deadline, certified_by, labelled_by
        Values of ``time.perf_counter``, once that clock runs: the solver stops, the certificate is over,
        labels are assigned.
    """

    engine: Engine = field(default_factory=LocalEngine)
    hooks: Sequence[Hook] = ()
    watch: Watch | None = None
    observer: Observer | None = None
    aborts_direct: bool = False
    on_stage: Callable[[str], None] = ignore_stage
    keep_multivector: bool = False
    certifies: bool = True
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = CHECKPOINT_SECONDS
    checkpoints: RunCheckpoints | None = None
    solver_seconds: float | None = None
    deadline: float = math.inf
    certified_by: float = math.inf
    labelled_by: float = math.inf

    def __post_init__(self) -> None:
        every: Any = self.checkpoint_every  # whatever a user has put there
        if not (isinstance(every, int | float) and 0 <= every < math.inf):
            raise ValueError(f"checkpoint_every={every!r}: expected seconds, a finite number from 0 on")

    def start_clock(self, settings: SolverSettings, *, labels: bool = False) -> RunContext:
        """The context with the clock of the time budget running; it is started once.

        The budget is for all of a run: the solver gets a share of it, and so does the certificate; ``labels``
        says that clusters are found as well. Where an observer looks on, whose time does not count, the
        budget is that of the solver alone.
        """
        budget = settings.time_budget
        if budget is None or self.solver_seconds is not None:
            return self
        if self.observer is not None:
            return replace(self, solver_seconds=budget)
        now = time.perf_counter()
        solved, certified = (SOLVED_SHARE, CERTIFIED_SHARE) if labels else (CERTIFIED_SHARE, 1.0)
        return replace(
            self,
            solver_seconds=solved * budget,
            deadline=now + solved * budget,
            certified_by=now + certified * budget,
            labelled_by=now + budget,
        )

    def without_clock(self) -> RunContext:
        """The context before the clock of a budget has been started."""
        inf = math.inf
        return replace(self, solver_seconds=None, deadline=inf, certified_by=inf, labelled_by=inf)

    def seconds_left(self, settings: SolverSettings) -> float | None:
        """The solver's part of the budget: its share where the clock runs, else all of it."""
        return settings.time_budget if self.solver_seconds is None else self.solver_seconds

    def next_checkpoint(self) -> SolveCheckpoint | None:
        """The checkpoints of the solve that begins now."""
        return None if self.checkpoints is None else self.checkpoints.next_solve()
