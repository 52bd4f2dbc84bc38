"""A solver under observation: its budget, and the scores of its measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines import LocalEngine
from spectrograd.labels.clustering import assign
from spectrograd.metrics import score
from spectrograd.operators.laplacian import Operator
from spectrograd.solvers import Problem, Progress, Solver, State

Array = NDArray[Any]
STARTS = 5


class OutOfTimeError(RuntimeError):
    """A direct method was still computing when its time was over."""


@dataclass(frozen=True)
class Deadline(LocalEngine):
    """An engine that refuses passes after a moment: the only way to stop a direct method."""

    until: float = math.inf

    def spmm(self, operator: Operator, U: Array) -> Array:
        """``A @ U``, while there is time."""
        if time.perf_counter() > self.until:
            raise OutOfTimeError
        return super().spmm(operator, U)


@dataclass(frozen=True, eq=False)
class Setting:
    """What all solvers share."""

    operator: Operator
    n_components: int
    time_budget: float | None = None
    labels: Array | None = None
    seed: int | None = None
    tol: float | str = "auto"
    n_jobs: int | None = None

    @property
    def engine(self) -> LocalEngine:
        """Where passes run."""
        return LocalEngine(self.n_jobs)

    def problem(self) -> Problem:
        """The eigenproblem."""
        return Problem(self.operator, self.n_components, self.engine)

    def clustered(self, vectors: Array, method: str = "kmeans") -> dict[str, float]:
        """Scores of the clusters, where classes are known."""
        from threadpoolctl import threadpool_limits

        if self.labels is None:
            return {}
        with threadpool_limits(1):  # small products: waking threads costs more than they save
            found = assign(
                vectors,
                self.n_components,
                method=method,
                n_init=STARTS,
                unit_rows=True,
                random_state=self.seed,
            )
        return score(self.labels, found.labels)


@dataclass(frozen=True, eq=False, init=False)
class Watched(Solver):
    """A solver whose measurements are clustered and scored too, at ever longer intervals."""

    inner: Solver
    setting: Setting
    scores: dict[int, float | None] = field(default_factory=dict)

    def __init__(self, inner: Solver, setting: Setting) -> None:
        values = {"inner": inner, "setting": setting, "scores": {}}
        copied = {name: getattr(inner, name) for name in ("name", "direct", "report_every", "max_iter")}
        for name, value in (values | copied).items():
            object.__setattr__(self, name, value)

    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """As the solver."""
        return self.inner.init(problem, rng)

    def step(self, problem: Problem, state: State) -> State:
        """Step; a direct method does all its work here, so its budget is that of its passes."""
        if self.direct and self.setting.time_budget is not None:
            over = time.perf_counter() + self.setting.time_budget
            problem = replace(problem, engine=Deadline(self.setting.n_jobs, until=over))
        return self.inner.step(problem, state)

    def finish(self, problem: Problem, state: State) -> Array:
        """As the solver."""
        return self.inner.finish(problem, state)

    def back_off(self, problem: Problem, state: State) -> State | None:
        """As the solver."""
        return self.inner.back_off(problem, state)

    def progress(self, problem: Problem, state: State) -> Progress:
        """Measure; the loop stops the clock meanwhile."""
        progress = self.inner.progress(problem, state)
        done = len(self.scores)
        if self.setting.labels is not None and not self.direct and (done & (done - 1)) == 0:
            vectors = self.inner.finish(problem, state)
            self.scores[done] = self.setting.clustered(vectors, "cluster_qr")["nmi"]
        else:
            self.scores[done] = None
        return progress

    def history(self, measured: Sequence[Progress]) -> list[dict[str, Any]]:
        """The measurements as plain values."""
        kept = ("seconds", "iteration", "passes", "objective", "residual")
        rows: list[dict[str, Any]] = [{name: getattr(item, name) for name in kept} for item in measured]
        for number, row in enumerate(rows):
            row["nmi"] = self.scores.get(number)
        return rows
