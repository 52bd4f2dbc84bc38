"""Several methods on the same operator in the same run: the rows of ``demo`` and ``paper``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import layer_operators
from spectrograd.cli.session import Session
from spectrograd.cli.summary import passes_of
from spectrograd.datasets import LayeredData
from spectrograd.labels.clustering import assign
from spectrograd.metrics import score
from spectrograd.operators.laplacian import Operator
from spectrograd.pipeline.multilayer import Merged, merge
from spectrograd.pipeline.solving import Embedded, Settings, embed
from spectrograd.solvers import make_solver
from spectrograd.solvers.protocol import Problem

Array = NDArray[Any]
SCORES = ("purity", "nmi", "ri", "ari")
DEFAULT = "auto"
COMPILING = "compiling kernels (slow only the first time on a machine)"
# What one method may meet without taking the others down with it.
FAILURES = (ValueError, ArithmeticError, MemoryError, RuntimeError)


@dataclass(frozen=True)
class Method:
    """A solver under the name the table shows, with the paper's figures where it has any."""

    label: str
    solver: str
    params: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float | None] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Trial:
    """One row: what a method found, or why it failed."""

    method: Method
    result: Embedded | None = None
    labels: Array | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    passes: float | None = None
    error: str | None = None

    @property
    def row(self) -> dict[str, Any]:
        """As in the summary."""
        solution = None if self.result is None else self.result.solution
        return {
            "method": self.method.label,
            "seconds": self._seconds(),
            "iterations": None if solution is None else solution.last.iteration,
            "passes": self.passes,
            **{name: self.scores.get(name) for name in SCORES},
            "converged": None if self.result is None else self.result.certificate.converged,
            "error": self.error,
        }

    def _seconds(self) -> float | None:
        """Time of the solver; for the default one also of choosing it and of its certificate."""
        if self.result is None:
            return None
        return self.result.seconds if self.method.solver == DEFAULT else self.result.solution.seconds


def merge_layers(session: Session, data: LayeredData, n_clusters: int) -> Merged:
    """Embed the layers with the default solver and merge them (Eq. 22); kernels are compiled before."""
    with session.stage("jit"), session.progress(COMPILING):
        _warm_up(layer_operators(data.graph, "symmetric")[0], n_clusters, Settings())
    with session.progress("layers") as hook:
        merged = merge(
            data.graph, n_clusters, Settings(seed=session.seed, hooks=(hook,)), laplacian="symmetric"
        )
    for stage, seconds in merged.seconds.items():
        session.seconds[stage] += seconds
    _stop_if_interrupted(merged.layers)
    return merged


def layer_trials(session: Session, merged: Merged, data: LayeredData, n_clusters: int) -> list[Trial]:
    """Each layer alone: its own embedding, clustered."""
    return [
        _judged(
            session,
            Method(f"layer {number} alone", DEFAULT),
            layer,
            passes_of(layer, data.graph.layers[number - 1].n_edges),
            (data.labels, n_clusters),
        )
        for number, layer in enumerate(merged.layers, start=1)
    ]


def run_method(session: Session, method: Method, operator: Operator, truth: Array, n_clusters: int) -> Trial:
    """Warm up, solve, assign, score; a failure becomes a row that says so."""
    settings = Settings(solver=method.solver, params=method.params, seed=session.seed)
    if method.remark:
        session.note(method.remark)
    try:
        with session.stage("jit"), session.progress(COMPILING):
            _warm_up(operator, n_clusters, settings)
        with session.stage("solve"), session.progress(method.label) as hook:
            result = embed(operator, n_clusters, replace(settings, hooks=(hook,)))
    except FAILURES as error:
        return Trial(method, error=f"{type(error).__name__}: {error}")
    _stop_if_interrupted([result])
    return _judged(session, method, result, passes_of(result, operator.graph.n_edges), (truth, n_clusters))


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


def _judged(
    session: Session, method: Method, result: Embedded, passes: float, known: tuple[Array, int]
) -> Trial:
    truth, n_clusters = known
    with session.stage("assign"):
        labels = assign(
            result.embedding.vectors, n_clusters, unit_rows=True, random_state=session.seed
        ).labels
    return Trial(method, result, labels, score(truth, labels), passes)


def _warm_up(operator: Operator, n_components: int, settings: Settings) -> None:
    """Compile what the method will need: two iterations, or for a direct method some products.

    The default is run in full, since only then is it known what it takes; it is the fastest of all.
    """
    if settings.solver == DEFAULT:
        embed(operator, n_components, Settings(seed=0))
        return
    _warm_products(operator, n_components)
    if not make_solver(settings.solver).direct:
        embed(operator, n_components, replace(settings, max_iter=2, seed=0))


def _warm_products(operator: Operator, n_components: int) -> None:
    problem = Problem(operator, n_components)
    for columns in (1, n_components):
        problem.apply(np.ones((operator.n_nodes, columns)))
    problem.orthonormalize(np.random.default_rng(0).standard_normal((operator.n_nodes, n_components)))


def _stop_if_interrupted(results: Sequence[Embedded]) -> None:
    """A comparison with half a run in it would mislead."""
    if any(result.solution.stop_reason == "interrupted" for result in results):
        raise KeyboardInterrupt
