"""Solvers under observation: their budget, and the scores of their measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines import LocalEngine
from spectrograd.engines.threadpools import one_thread
from spectrograd.labels import assign
from spectrograd.metrics import score
from spectrograd.operators.protocol import Operator
from spectrograd.pipeline.run import Prepared
from spectrograd.pipeline.settings import Settings
from spectrograd.solvers import Problem, Progress, Solver, State

Array = NDArray[Any]


class OutOfTimeError(RuntimeError):
    """A direct method was still computing when its time was over."""


@dataclass(frozen=True)
class Deadline(LocalEngine):
    """An engine that refuses passes after a moment: the only way to stop a direct method."""

    until: float = math.inf

    def apply(self, operator: Operator, X: Array, *more: Array) -> Any:
        """``A X``, while there is time."""
        if time.perf_counter() > self.until:
            raise OutOfTimeError
        return super().apply(operator, X, *more)


@dataclass(eq=False)
class Watcher:
    """Scores every measurement of a run, at ever longer intervals, where ``classes`` are known.

    ``classes`` are those of the rows that are solved, in their order.
    """

    classes: Array | None
    time_budget: float | None
    n_jobs: int | None
    seed: int | None
    scores: list[float | None] = field(default_factory=list)

    @classmethod
    def of(cls, prepared: Prepared, settings: Settings, classes: Array | None) -> Watcher:
        """For a run of these settings."""
        known = None if classes is None else np.asarray(classes)[prepared.kept]
        n_jobs = getattr(settings.engine, "n_jobs", None)
        return cls(known, settings.time_budget, n_jobs, settings.seed)

    def around(self, solver: Solver[Any]) -> Solver[Any]:
        """The solver under observation."""
        return cast(Solver[Any], Watched(solver, self))

    def measured(self, vectors: Array) -> None:
        """Score rough vectors, N x K; after 1, 2, 4, 8 ... measurements only."""
        done = len(self.scores)
        if self.classes is None or done & (done - 1):
            self.scores.append(None)
            return
        with one_thread():  # small products: waking threads costs more than they save
            found = assign(
                vectors, vectors.shape[1], method="cluster_qr", unit_rows=True, random_state=self.seed
            )
        self.scores.append(score(self.classes, found.labels)["nmi"])

    def history(self, measured: Sequence[Progress]) -> list[dict[str, Any]]:
        """The measurements as plain values."""
        kept = ("seconds", "iteration", "passes", "objective", "residual")
        rows: list[dict[str, Any]] = [{name: getattr(item, name) for name in kept} for item in measured]
        for number, row in enumerate(rows):
            row["nmi"] = self.scores[number] if number < len(self.scores) else None
        return rows


@dataclass(frozen=True, eq=False)
class Watched:
    """A solver (whatever is not here, it does itself) whose measurements are scored."""

    inner: Solver[Any]
    watcher: Watcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def suited(self, problem: Problem) -> Any:
        """The form of the solver for this problem, observed as well."""
        return Watched(self.inner.suited(problem), self.watcher)

    def step(self, problem: Problem, state: State) -> Any:
        """Step; a direct method does all its work here, so its budget is that of its passes."""
        if self.inner.direct and self.watcher.time_budget is not None:
            over = time.perf_counter() + self.watcher.time_budget
            problem = replace(problem, engine=Deadline(self.watcher.n_jobs, until=over))
        return self.inner.step(problem, state)

    def progress(self, problem: Problem, state: State) -> Progress:
        """Measure; the loop stops the clock meanwhile."""
        progress = self.inner.progress(problem, state)
        if not self.inner.direct:
            self.watcher.measured(problem.engine.rows(self.inner.finish(problem, state)))
        return progress
