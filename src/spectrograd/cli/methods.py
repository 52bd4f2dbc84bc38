"""Several methods on the same operator in the same run: the rows of ``demo`` and ``paper``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spectrograd.cli.session import Session
from spectrograd.datasets import LayeredData
from spectrograd.metrics import SCORE_TITLES
from spectrograd.operators.base import Operator
from spectrograd.paper.tables import DEFAULT, Method
from spectrograd.pipeline import Result, RunContext, Settings, cluster, embed, label, prepare
from spectrograd.pipeline.multilayer import PreparedLayers
from spectrograd.pipeline.run import Prepared, solve_prepared
from spectrograd.pipeline.solve import FAILURES
from spectrograd.solvers import make_solver
from spectrograd.system import defer_interrupts
from spectrograd.typing import Array, JsonObject

COMPILING = "compiling kernels (slow only the first time on a machine)"


@dataclass(frozen=True, eq=False)
class Trial:
    """One row: what a method found, or why it failed."""

    method: Method
    result: Result | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def row(self) -> JsonObject:
        """As in the summary."""
        result = self.result
        return {
            "method": self.method.label,
            "seconds": self._seconds(),
            "iterations": None if result is None else result.history[-1].iteration,
            "passes": None if result is None else result.passes,
            **{name: self.scores.get(name) for name in SCORE_TITLES},
            "converged": None if result is None else result.certificate.converged,
            "error": self.error,
        }

    def _seconds(self) -> float | None:
        """Time of the solver; for the default one also of choosing it and of its certificate."""
        if self.result is None:
            return None
        return self.result.seconds["solve"] if self.method.solver == DEFAULT else self.result.solver_seconds


def prepare_layers(session: Session, data: LayeredData, settings: Settings) -> PreparedLayers:
    """Embed the layers with the default solver and merge them (Eq. 22); kernels are compiled before."""
    with session.stage("jit"), session.progress(COMPILING):
        embed(
            data.graph.layers[0], Settings(n_components=settings.n_components, laplacian="symmetric", seed=0)
        )
    with session.progress("layers") as hook:
        prepared = prepare(data.graph, settings, RunContext(hooks=(hook,), on_stage=session.begin))
    assert isinstance(prepared, PreparedLayers)
    session.spend(prepared.seconds)
    return prepared


def layer_trials(session: Session, data: LayeredData, settings: Settings) -> list[Trial]:
    """Each layer alone, clustered as if there were no other."""
    trials = []
    for number, layer in enumerate(data.graph.layers, start=1):
        with session.progress(f"layer {number} alone") as hook:
            result = cluster(layer, settings, RunContext(hooks=(hook,)))
        _stop_if_interrupted(result)
        method = Method(f"layer {number} alone", DEFAULT)
        trials.append(Trial(method, result, result.scores(data.labels)))
    return trials


def run_method(
    session: Session, method: Method, prepared: Prepared, settings: Settings, truth: Array
) -> Trial:
    """Warm up, solve, assign, score; a failure becomes a row that says so."""
    chosen = replace(settings, solver=method.solver, params=method.params)
    if method.remark:
        session.note(method.remark)
    try:
        with session.stage("jit"), session.progress(COMPILING):
            _warm_up(prepared, chosen)
        with defer_interrupts() as interruption, session.progress(method.label) as hook:
            result = label(solve_prepared(prepared, chosen, RunContext(hooks=(hook,))), chosen)
        if interruption.requested:
            raise KeyboardInterrupt  # a comparison with half a run in it would mislead
    except FAILURES as error:
        return Trial(method, error=f"{type(error).__name__}: {error}")
    session.spend({stage: result.seconds[stage] for stage in ("solve", "assign")})
    return Trial(method, result, result.scores(truth))


def seconds_per_pass(operator: Operator, n_columns: int, repetitions: int = 30) -> float:
    """Median time of ``operator @ U`` for vectors like those of ``sgd-paper``, in float32."""
    U = np.random.default_rng(0).standard_normal((operator.n_nodes, n_columns)).astype(np.float32)
    operator @ U  # the first product compiles
    spent = []
    for _ in range(repetitions):
        began = time.perf_counter()
        operator @ U
        spent.append(time.perf_counter() - began)
    return float(np.median(spent))


def _warm_up(prepared: Prepared, settings: Settings) -> None:
    """Compile what the method will need: two iterations; a direct method compiles nothing of its own.

    The default is run in full, since only then is it known what it takes; it is the fastest of all.
    """
    if settings.solver == DEFAULT:
        prepared.solve(replace(settings, seed=0))
    elif not make_solver(settings.solver).direct:
        prepared.solve(replace(settings, max_iter=2, seed=0))


def _stop_if_interrupted(result: Result) -> None:
    """A comparison with half a run in it would mislead."""
    if result.interrupted:
        raise KeyboardInterrupt
