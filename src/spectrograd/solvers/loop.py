"""The only iteration loop (:func:`run_loop`): stopping, hooks, deadline, checkpoints and recovery."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol, TypedDict, cast

import numpy as np

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines.base import MultiVector
from spectrograd.kernels import SMALL
from spectrograd.solvers.base import Problem, Progress, Solver, StateT
from spectrograd.solvers.checkpoint import Snapshot, SolveCheckpoint
from spectrograd.system import Interrupted, check, one_thread, refuse_after

Hook = Callable[[Progress], None]
Observer = Callable[[MultiVector], None]


class Watch(Protocol):
    """Looks at vectors, which are rough unless they are ``finished``, and says whether to give the run up."""

    def __call__(self, vectors: MultiVector, *, finished: bool = False) -> bool:
        """Whether the run is to be given up."""
        ...


GIVEN_UP = "given up"
INTERRUPTED = "interrupted"
OUT_OF_TIME = "time_budget"
MAX_BACK_OFFS = 30


@dataclass(frozen=True)
class Stopping:
    """When to stop: ``max_iter`` (None = the solver's own), residual at most ``tol`` (0 = never).

    ``deadline`` is a value of ``time.perf_counter``; the first step is taken whatever the time, unless
    ``aborts_direct``: a direct method then ends with an :class:`~spectrograd.system.OutOfTimeError` at the
    first pass after the time budget.
    """

    max_iter: int | None = None
    tol: float = 0.0
    deadline: float = math.inf
    aborts_direct: bool = False

    def __post_init__(self) -> None:
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter}: at least one iteration is needed")


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a run: a basis orthonormal in the metric, with its history and evidence.

    ``reason`` and ``predicted_seconds`` are those of the plan, where the solver is one of a plan.
    """

    Q: MultiVector
    solver: str
    history: tuple[Progress, ...]
    stop_reason: str
    seconds: float
    evidence: Evidence = field(default_factory=Evidence)
    reason: str = "asked for"
    predicted_seconds: float | None = None

    @property
    def last(self) -> Progress:
        """The last measurement."""
        return self.history[-1]


def join_histories(
    earlier: Sequence[Progress], later: Sequence[Progress], seconds: float
) -> tuple[Progress, ...]:
    """Both histories as one: iterations, matvecs and seconds go on counting.

    ``seconds`` are those of the earlier run, of which some may come after its last measurement.
    """
    done = earlier[-1]
    moved = (
        replace(
            p,
            iteration=p.iteration + done.iteration,
            matvecs=p.matvecs + done.matvecs,
            edges_seen=p.edges_seen + done.edges_seen,
            seconds=p.seconds + seconds,
        )
        for p in later
    )
    return (*earlier, *moved)


class _Clock:
    """Seconds spent solving; measuring, hooks and checkpoints do not count. Earlier runs have ``before``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._excluded = self.before = 0.0

    def seconds(self) -> float:
        return self.before + self.of_this_run()

    def of_this_run(self) -> float:
        return time.perf_counter() - self._started - self._excluded

    @contextmanager
    def pause(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._excluded += time.perf_counter() - began


class LoopOptions(TypedDict, total=False):
    """Keywords of :func:`run_loop`, for functions that hand them on."""

    stopping: Stopping | None
    on_progress: Sequence[Hook]
    seed: int | None
    time_budget: float | None
    watch: Watch | None
    observer: Observer | None
    checkpoint: SolveCheckpoint | None


def run_loop(
    problem: Problem,
    solver: Solver[StateT],
    *,
    stopping: Stopping | None = None,
    on_progress: Sequence[Hook] = (),
    seed: int | None = None,
    time_budget: float | None = None,
    watch: Watch | None = None,
    observer: Observer | None = None,
    checkpoint: SolveCheckpoint | None = None,
) -> Solution:
    """Run a solver until it is done, good enough, out of time or interrupted.

    Time out and Ctrl-C return the best state so far; a diverging run goes back to its last good
    state with a smaller step. The result is always finite.

    Parameters
    ----------
    problem, solver
    stopping
        When to stop; the solver's own rules when not given.
    on_progress
        Called with each measurement.
    seed
        Of the random numbers.
    time_budget
        Seconds, without measuring, hooks and checkpoints.
    watch
        Sees rough vectors when they are informative (``shows_localization``) and may give the run up by
        returning True.
    observer
        Sees the basis at every measurement of an iterative method, outside the clock.
    checkpoint
        A run with one goes on where an earlier one stood, to the same bits.
    """
    rules = stopping or Stopping()
    if rules.max_iter is not None:
        solver = replace(solver, max_iter=rules.max_iter)  # type: ignore[type-var]
    solver.check(problem)
    clock = _Clock()
    run = _Run(problem, solver, rules, on_progress, clock, watch, observer, checkpoint)
    rng = np.random.default_rng(seed)
    # overflow is a step too long, which is handled below: no warning needed
    quiet = np.errstate(over="ignore", invalid="ignore")
    large_and_direct = solver.direct and problem.n_nodes > SMALL  # LAPACK knows what to do with threads
    with problem.engine.threads(), one_thread(not large_and_direct), quiet:
        try:
            # 1. iterate
            reason = run.until_stopped(rng, time_budget)
        except KeyboardInterrupt as stop:
            if run.good is None:
                raise
            run.save_interrupted(isinstance(stop, Interrupted))
            reason = INTERRUPTED
        assert run.good is not None
        # 2. the evidence of the last good state; complement bounds may cost
        # passes, which a hurried run has no time for
        last = run.good
        run.live = None
        hurried = reason in (GIVEN_UP, INTERRUPTED, OUT_OF_TIME)
        if checkpoint is not None and reason in (INTERRUPTED, OUT_OF_TIME):
            checkpoint.cut_short()
        evidence = solver.evidence(problem, last)
        if not hurried:
            evidence = replace(evidence, complement_bound=solver.complement_bound(problem, last))
        # 3. the orthonormal basis
        Q = solver.finish(problem, last)
    return Solution(Q, solver.name, tuple(run.history), reason, clock.seconds(), evidence)


def _first_state(problem: Problem, solver: Solver[StateT], rng: np.random.Generator) -> StateT:
    """The solver's first state; an event says how many columns of a warm start were dependent."""
    state = solver.init(problem, rng)
    start = None if solver.direct else problem.start_on_engine()
    if start is not None:
        n_replaced = problem.orthonormalize(start).repaired
        if n_replaced:
            state.events.append(f"start: {n_replaced} dependent columns replaced by random ones")
    return state


class _Run(Generic[StateT]):
    """One run's bookkeeping: the last good state and the history of measurements."""

    def __init__(
        self,
        problem: Problem,
        solver: Solver[StateT],
        rules: Stopping,
        hooks: Sequence[Hook],
        clock: _Clock,
        watch: Watch | None = None,
        observer: Observer | None = None,
        checkpoint: SolveCheckpoint | None = None,
    ) -> None:
        self.watch = watch
        self.observer = observer
        self.checkpoint = checkpoint
        self.problem = problem
        self.solver = solver
        self.rules = rules
        self.hooks = hooks
        self.clock = clock
        self.max_iter = solver.max_iter
        self.history: list[Progress] = []
        self.good: StateT | None = None
        self.resume: StateT | None = None  # where to go on from after backing off
        self.back_offs = 0
        self.live: StateT | None = None  # the one that steps change
        self.unsaved: Snapshot | None = None

    def until_stopped(self, rng: np.random.Generator, time_budget: float | None) -> str:
        state, reason = self.begin(rng)
        aborts = self.solver.direct and self.rules.aborts_direct and time_budget is not None
        last_pass = time.perf_counter() + (time_budget or 0.0) if aborts else math.inf
        while reason is None:
            # 1. A safe point for Ctrl-C; the state that was measured last outlives the step.
            check()
            self.keep(state)
            self.live = state
            # 2. One step. Numbers out of range are a step too long, as is an objective that grows (4.).
            blown_up = False
            try:
                with refuse_after(last_pass):
                    state = self.solver.step(self.problem, state)
            except FloatingPointError:
                blown_up = True
            # 3. Is there a reason to measure: the end, the time, or the solver's interval?
            over = None if blown_up else self.at_end(state)
            out_of_time = time.perf_counter() >= self.rules.deadline
            out_of_time = out_of_time or (time_budget is not None and self.clock.of_this_run() >= time_budget)
            due = state.iteration % self.solver.report_every == 0
            if not (blown_up or over or out_of_time or due):
                continue
            # 4. Measure; a run that diverges goes back to its last good state, with a shorter step.
            is_scheduled = due or over is not None
            healthy = not blown_up and self.measure(state, over, is_scheduled=is_scheduled)
            if healthy:
                # 5. Stop by residual, by the watch, or at the end; write the checkpoint that is due.
                reason = self.verdict(state, over) if is_scheduled or self.checkpoint is None else None
                self.save(at_once=out_of_time or reason is not None)
            else:
                retry = self.retry()
                if retry is None:
                    return "diverged"
                state = retry
            if out_of_time and reason is None:
                return OUT_OF_TIME
        return reason

    def begin(self, rng: np.random.Generator) -> tuple[StateT, str | None]:
        """The first state, or where an earlier run stood, and then perhaps that it was over."""
        fresh = partial(_first_state, self.problem, self.solver, rng)
        snapshot = None if self.checkpoint is None else self.checkpoint.snapshot(self.problem, fresh)
        # 1. A fresh run: iterative methods are measured once before their first step.
        if snapshot is None:
            state = fresh()
            if not self.solver.direct:
                self.measure(state)
            return state, None
        # 2. A resumed run: clock, history and back-offs go on as if nothing had happened.
        state = cast(StateT, snapshot.state)  # the identity of the run says so
        self.history = [*snapshot.history]
        self.back_offs = snapshot.back_offs
        self.clock.before = snapshot.seconds
        self.good = state
        for hook in self.hooks:  # where it goes on from
            hook(self.history[-1])
        return state, self.verdict(
            state, snapshot.over
        ) if snapshot.measured and state.iteration > 0 else None

    def at_end(self, state: StateT) -> str | None:
        """Whether there is nothing more to do, and why."""
        if self.solver.terminate(self.problem, state):
            return "done"
        return "max_iter" if state.iteration >= self.max_iter else None

    def verdict(self, state: StateT, over: str | None) -> str | None:
        """Why the run is over, for a state that was just measured; None where it is not."""
        if over is None and self.history[-1].residual <= self.rules.tol:
            return "converged"
        is_informative = self.watch is not None and self.solver.shows_localization(state)
        return GIVEN_UP if over is None and is_informative and self.looks_bad(state) else over

    def looks_bad(self, state: StateT) -> bool:
        return self.watch is not None and self.watch(self.solver.vectors(self.problem, state))

    def measure(self, state: StateT, over: str | None = None, *, is_scheduled: bool = True) -> bool:
        """Record where the run stands; False when it diverges.

        Those that are not ``is_scheduled`` would not be made by an undisturbed run: no checkpoint keeps them.
        """
        seconds = self.clock.seconds()  # before the pause: this measurement does not count either
        with self.clock.pause():
            try:
                measured = self.solver.progress(self.problem, state)
            except FloatingPointError:
                return False
            progress = replace(measured, seconds=seconds)
            # The objective of a minimisation does not grow for good: a step too
            # long, or the wrong end of the spectrum.
            if not math.isfinite(progress.objective) or self.grows(progress.objective):
                return False
            self.good = state
            self.resume = None
            self.history.append(progress)
            if is_scheduled and self.checkpoint is not None:
                self.unsaved = Snapshot(self.good, tuple(self.history), self.back_offs, seconds, over)
            for hook in self.hooks:
                hook(progress)
            if self.observer is not None and not self.solver.direct:
                self.observer(self.solver.finish(self.problem, state))
        return True

    def keep(self, state: StateT) -> None:
        """Before a step: what was measured last must outlive it."""
        if self.good is not state:
            return
        self.good = self.solver.snapshot(self.problem, state)
        if self.unsaved is not None:
            lost = self.solver.overwrites_state(state)
            self.unsaved = None if lost else replace(self.unsaved, state=self.good)

    def save(self, *, at_once: bool) -> None:
        """Write the last measurement that is kept for it, when a checkpoint is due or ``at_once``."""
        if self.checkpoint is None or self.unsaved is None:
            return
        # A state whose memory the next step overwrites is written now or never.
        snapshot = self.unsaved
        due = at_once or self.checkpoint.due
        if not (due or self.solver.overwrites_state(cast(StateT, snapshot.state))):
            return
        self.unsaved = None
        with self.clock.pause():
            self.checkpoint.save(self.problem, snapshot)

    def save_interrupted(self, safely: bool) -> None:
        """After Ctrl-C: the last measurement; where its state has moved on since, that one if it is whole."""
        if self.live is None or self.solver.snapshots_are_copies(self.live):
            self.save(at_once=True)
        elif safely and not self.problem.engine.cost.is_expensive:  # whose verbs are safe points too
            seconds = self.clock.seconds()
            self.unsaved = Snapshot(self.live, tuple(self.history), self.back_offs, seconds, measured=False)
            self.save(at_once=True)

    def grows(self, objective: float) -> bool:
        """Whether the objective climbed back by half of all that had been gained."""
        if not self.history:
            return False
        first = self.history[0].objective
        # Gained so far: first - best. Noise of stochastic steps loses less than half of it.
        best = min(progress.objective for progress in self.history)
        floor = 1e-3 * (self.problem.operator.upper - self.problem.operator.lower)
        return objective - best > max(0.5 * (first - best), floor)

    def retry(self) -> StateT | None:
        self.back_offs += 1
        if self.good is None or self.back_offs > MAX_BACK_OFFS:
            return None
        # A deep copy: the good state must survive a second divergence.
        state = self.solver.back_off(self.problem, copy.deepcopy(self.resume or self.good))
        if state is not None:
            self.resume = copy.deepcopy(state)  # should it diverge again, go on from the shorter step
            self.history[-1] = replace(self.history[-1], events=tuple(state.events))
        return state
