"""The only iteration loop: stopping tests, hooks, time budget and recovery live here."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate.probe import Evidence
from spectrograd.engines.protocol import Tall
from spectrograd.engines.threadpools import one_thread
from spectrograd.interruption import check
from spectrograd.kernels import SMALL
from spectrograd.solvers.protocol import Problem, Progress, Solver, State

Array = NDArray[Any]
Hook = Callable[[Progress], None]
Watch = Callable[[State], bool]
GIVEN_UP, INTERRUPTED, OUT_OF_TIME = "given up", "interrupted", "time_budget"
MAX_BACK_OFFS = 30


@dataclass(frozen=True)
class Stopping:
    """When to stop: ``max_iter`` (None = the solver's own), residual at most ``tol`` (0 = never).

    ``deadline`` is a moment of ``time.perf_counter``; the first step is taken whatever the time.
    """

    max_iter: int | None = None
    tol: float = 0.0
    deadline: float = math.inf

    def __post_init__(self) -> None:
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter}: at least one iteration is needed")


@dataclass(frozen=True, eq=False)
class Solution:
    """What a run returns: a basis orthonormal in the metric, and how it came about."""

    Q: Tall
    solver: str
    history: tuple[Progress, ...]
    stop_reason: str
    seconds: float
    seed: int | None
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def last(self) -> Progress:
        """The last measurement."""
        return self.history[-1]


def after(earlier: Solution, later: Solution) -> Solution:
    """The later solution with the history of both: iterations, passes and seconds go on counting."""
    done = earlier.last
    moved = (
        replace(
            p,
            iteration=p.iteration + done.iteration,
            passes=p.passes + done.passes,
            edges_seen=p.edges_seen + done.edges_seen,
            seconds=p.seconds + earlier.seconds,
        )
        for p in later.history
    )
    return replace(later, history=(*earlier.history, *moved), seconds=earlier.seconds + later.seconds)


class _Clock:
    """Seconds spent solving; measuring and hooks do not count."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._excluded = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._started - self._excluded

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._excluded += time.perf_counter() - began


def solve(
    problem: Problem,
    solver: Solver[Any],
    *,
    stopping: Stopping | None = None,
    on_progress: Sequence[Hook] = (),
    seed: int | None = None,
    time_budget: float | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Run a solver until it is done, good enough, out of time or interrupted.

    Time out and Ctrl-C return the best state so far; a diverging run goes back to its last good
    state with a smaller step. The result is always finite. ``watch`` sees the state when rough vectors
    are telling (``rough_after``) and may give the run up by returning True.
    """
    rules = stopping or Stopping()
    if rules.max_iter is not None:
        solver = replace(solver, max_iter=rules.max_iter)  # type: ignore[type-var]
    solver = solver.suited(problem)
    solver.check(problem)
    clock = _Clock()
    run = _Run(problem, solver, rules, on_progress, clock, watch)
    rng = np.random.default_rng(seed)
    # overflow is a step too long, which is handled below: no warning needed
    quiet = np.errstate(over="ignore", invalid="ignore")
    large_and_direct = solver.direct and problem.n_nodes > SMALL  # LAPACK knows what to do with threads
    with problem.engine.threads(), one_thread(not large_and_direct), quiet:
        try:
            reason = run.until_stopped(_first_state(problem, solver, rng), time_budget)
        except KeyboardInterrupt:
            if run.good is None:
                raise
            reason = INTERRUPTED
        assert run.good is not None
        last = run.good
        Q = solver.finish(problem, last)
        hurried = reason in (GIVEN_UP, INTERRUPTED, OUT_OF_TIME)
        known = solver.evidence(problem, last)
        if not hurried:
            known = replace(known, outside=solver.outside(problem, last))
    return Solution(Q, solver.name, tuple(run.history), reason, clock.seconds(), seed, known)


def _first_state(problem: Problem, solver: Solver[Any], rng: np.random.Generator) -> State:
    """The solver's first state; a warm start that had to be repaired is told."""
    state: State = solver.init(problem, rng)
    start = None if solver.direct else problem.placed_start()
    if start is not None:
        repaired = problem.orthonormalize(start).repaired
        if repaired:
            state.events.append(f"start: {repaired} dependent columns replaced by random ones")
    return state


class _Run:
    """One run's bookkeeping: the last good state and the history of measurements."""

    def __init__(
        self,
        problem: Problem,
        solver: Solver[Any],
        rules: Stopping,
        hooks: Sequence[Hook],
        clock: _Clock,
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch
        self.problem, self.solver, self.rules, self.hooks, self.clock = problem, solver, rules, hooks, clock
        self.max_iter = solver.max_iter
        self.history: list[Progress] = []
        self.good: State | None = None
        self.resume: State | None = None  # where to go on from after backing off
        self.back_offs = 0

    def until_stopped(self, state: State, time_budget: float | None) -> str:
        if not self.solver.direct:
            self.measure(state)
        while True:
            blown_up = False
            try:
                state = self.solver.step(self.problem, state)
            except FloatingPointError:
                blown_up = True
            finished = not blown_up and self.solver.terminate(self.problem, state)
            last = finished or state.iteration >= self.max_iter
            check()
            out_of_time = time.perf_counter() >= self.rules.deadline
            out_of_time = out_of_time or (time_budget is not None and self.clock.seconds() >= time_budget)
            due = state.iteration % self.solver.report_every == 0
            if not (blown_up or last or out_of_time or due):
                continue
            healthy = not blown_up and self.measure(state)
            if not healthy:
                retry = self.retry()
                if retry is None:
                    return "diverged"
                state = retry
            elif last:
                return "done" if finished else "max_iter"
            elif self.history[-1].residual <= self.rules.tol:
                return "converged"
            elif self.watch is not None and state.iteration == self.solver.rough_after and self.watch(state):
                return GIVEN_UP
            if out_of_time:
                return OUT_OF_TIME

    def measure(self, state: State) -> bool:
        """Record where the run stands; False when it diverges."""
        seconds = self.clock.seconds()  # before the pause: this measurement does not count either
        with self.clock.paused():
            try:
                measured = self.solver.progress(self.problem, state)
            except FloatingPointError:
                return False
            progress = replace(measured, seconds=seconds)
            if not math.isfinite(progress.objective) or self.grows(progress.objective):
                return False
            self.good, self.resume = copy.deepcopy(state), None
            self.history.append(progress)
            for hook in self.hooks:
                hook(progress)
        return True

    def grows(self, objective: float) -> bool:
        """Whether the objective climbed back by half of all that had been gained."""
        if not self.history:
            return False
        first = self.history[0].objective
        best = min(progress.objective for progress in self.history)
        floor = 1e-3 * (self.problem.operator.upper - self.problem.operator.lower)
        return objective - best > max(0.5 * (first - best), floor)

    def retry(self) -> State | None:
        self.back_offs += 1
        if self.good is None or self.back_offs > MAX_BACK_OFFS:
            return None
        state = self.solver.back_off(self.problem, copy.deepcopy(self.resume or self.good))
        if state is not None:
            self.resume = copy.deepcopy(state)  # should it diverge again, go on from the shorter step
            self.history[-1] = replace(self.history[-1], events=tuple(state.events))
        return state
