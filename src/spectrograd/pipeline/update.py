"""An embedding after its graph has changed: a small correction where that is enough, a solve where it is not.

The old vectors fail the new equations only where edges changed, so their residual *is* the change, and tells
how little a correction needs (:mod:`spectrograd.pipeline.correction`); the certificate then judges the result
as it would any other, and decides whether it is kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate.carried import Carried
from spectrograd.certificate.evidence import GOOD_ANGLE
from spectrograd.certificate.probe import Evidence
from spectrograd.engines import LocalEngine
from spectrograd.engines.threadpools import one_thread
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.operators import SparseOperator
from spectrograd.operators.balanced import balanced
from spectrograd.operators.masked import masked
from spectrograd.operators.regularized import Regularization
from spectrograd.pipeline.all_nodes import with_all_nodes
from spectrograd.pipeline.certifying import certified
from spectrograd.pipeline.correction import CONJUGATE_BLOCKS, LEAST_BLOCKS, Moved, Steps, filtered
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.needs import room_for_columns
from spectrograd.pipeline.plan import Choice
from spectrograd.pipeline.result import Result, found
from spectrograd.pipeline.run import embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import PreparedGraph, prepare_graph
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.protocol import Progress

Array = NDArray[Any]
MOST = 0.9  # of the rows must be known: a piece that has just joined is no small change
KEPT, WARM, ANEW = "kept", "warm start", "refit"
# What filters over a disk ask of themselves after a good start, which makes the gap look wider to them than
# it is: with a third of the certificate's angle, as usual, they end too early and the certificate fails.
STRICT = GOOD_ANGLE / 30
SHRUNK = 0.5  # of the gap at the last fit: a cluster more or less may be in the making
FAR = 0.5  # sine of the angle to the last fit beyond which its decisions are out of date


@dataclass(frozen=True, eq=False)
class Updated:
    """The new embedding and how it was come by.

    Attributes
    ----------
    action
        ``"kept"``: a correction was enough; ``"warm start"``: solved from there; ``"refit"``: solved anew,
        since the pieces of the graph changed or there was nothing to start from.
    drift
        Sine of the largest angle between the old and the new subspace; 1 where they do not compare.
    """

    result: Result
    action: str
    drift: float


@dataclass(frozen=True, eq=False)
class Before:
    """What is known from before the change.

    Attributes
    ----------
    regularization
        That of the fit, which a correction keeps.
    gap
        After the last eigenvalue: where it is too small for a correction, none is tried.
    outside
        What is still known of the rest of the spectrum, the change considered; None: nothing.
    """

    regularization: Regularization
    gap: float
    outside: Carried | None = None


def update(
    graph: Graph | MultilayerGraph, start: Array | None, settings: Settings, before: Before
) -> Updated:
    """Embed a graph that has changed since its vectors were found.

    Parameters
    ----------
    graph
        After the change.
    start : array of shape (n_nodes, k) or None
        The vectors before it, with rows for new nodes.
    settings
        Those of the fit, with as many components as ``start``.
    """
    if start is None or isinstance(graph, MultilayerGraph):
        result = embed(graph, settings, start=start)
        return Updated(result, ANEW if start is None else WARM, _drift(start, result))
    with settings.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        prepared = prepare_graph(graph, settings)
        if prepared.connectivity.groups is None and start[prepared.kept].any(axis=1).mean() > MOST:
            moved = corrected(prepared, start, settings, before)
            if moved is not None and moved.certificate.converged:
                return Updated(moved, KEPT, _drift(start, moved))
            settings = replace(settings.started(), regularization=before.regularization.tau or None)
            result = _solved(prepared, settings, start)
            return Updated(result, WARM, _drift(start, result))
        result = prepared.solve(settings.started())
    return Updated(result, ANEW, _drift(start, result))


def _solved(prepared: PreparedGraph, settings: Settings, start: Array) -> Result:
    """From the vectors before, by the solver of the plan; over a disk by filters that are strict."""
    strict = not prepared.graph.is_resident and settings.solver == settings.tol == "auto"
    if not strict:
        return prepared.solve(settings, start)
    result = prepared.solve(replace(settings, solver="chebyshev", params={"angle": STRICT}), start)
    return result if result.certificate.converged else prepared.solve(settings)


def corrected(prepared: PreparedGraph, start: Array, settings: Settings, before: Before) -> Result | None:
    """The vectors moved a little, with their certificate; None where that will not do."""
    began = time.perf_counter()
    decided = before.regularization
    operator = masked(prepared.part, settings.laplacian, decided.tau, prepared.masked)
    outside = None if len(prepared.connectivity.aside) else before.outside
    moved = _moved(settings, operator, start[prepared.kept], replace(before, outside=outside))
    if moved is None:
        return None
    seconds = time.perf_counter() - began
    done = Progress(1, moved.passes, 0, float(moved.values.sum()), moved.error, 0.0, seconds)
    known = Evidence(outside=outside, last=moved.last)
    solution = Solution(moved.vectors, "update", (done,), "done", seconds, settings.seed, evidence=known)
    choice = Choice("update", "the last embedding, corrected for the edges that changed")
    solved: Embedded = certified(operator, solution, settings, choice)
    return found(
        solved,
        with_all_nodes(solved, prepared.graph, prepared.kept, prepared.masked),
        operator,
        connectivity=prepared.connectivity,
        regularization=replace(decided, reason=f"as at the last fit ({decided.reason})"),
        eigengap=None,
        rows=prepared.kept,
        seconds={"solve": time.perf_counter() - began},
    )


def _moved(settings: Settings, operator: SparseOperator, start: Array, before: Before) -> Moved | None:
    """Over a disk only with evidence from before: a probe would cost more than a filter it rides on.

    That is in units of the operator, which therefore must not be balanced first.
    """
    engine, k = settings.engine, start.shape[1]
    if not operator.is_streamed:
        return filtered(engine, operator, start, before.gap)
    if before.outside is None or not engine.sums_in_pieces or balanced(operator) is not None:
        return None
    sizes = (n for n in (CONJUGATE_BLOCKS, LEAST_BLOCKS) if _fits(operator, n * k, settings))
    n_blocks = next(sizes, None)
    return (
        None
        if n_blocks is None
        else Steps(engine, operator, before.gap, before.outside, n_blocks).taken(start)
    )


def _fits(operator: SparseOperator, n_columns: int, settings: Settings) -> bool:
    return room_for_columns(operator.graph, n_columns, settings.memory_limit)


def _outside(vectors: Array, basis: Array, metric: Array | None) -> Array:
    """The part of vectors (N x k) that is orthogonal to an orthonormal basis."""
    weighed = vectors if metric is None else vectors * metric[:, None]
    return np.asarray(vectors - basis @ (basis.T @ weighed))


def _drift(start: Array | None, result: Result) -> float:
    """From what of the old subspace lies outside the new one: a cosine would round small angles away."""
    if start is None or start.shape[1] != result.vectors.shape[1]:
        return 1.0
    kind = result.vectors.dtype  # of a graph on disk float32: its vectors are large
    metric, old = result.operator.metric, np.asarray(start[result.rows], dtype=kind)
    metric = None if metric is None else metric.astype(kind)
    basis = orthonormalize(LocalEngine(), np.ascontiguousarray(old), metric, np.random.default_rng(0))
    if basis.repaired:  # the old vectors are no basis any more
        return 1.0
    rest = _outside(basis.Q, result.vectors[result.rows].astype(kind, copy=False), metric)
    weighed = rest if metric is None else rest * metric[:, None]
    return float(np.sqrt(np.clip(np.linalg.eigvalsh(rest.T @ weighed)[-1], 0, 1)))


def refit_reason(result: Result, gap_at_fit: float, drift: float) -> str:
    """Why the decisions of the last fit (clusters, regularisation) should be made anew; empty where not."""
    if not result.converged:
        return f"the accuracy asked for was not reached: {result.certificate.sentence}"
    if drift > FAR:
        return f"the embedding has turned away from that of the last fit (sine {drift:.2g})"
    gap = result.certificate.gap
    if gap_at_fit > 0 and gap < SHRUNK * gap_at_fit:
        return (
            f"the gap after the last eigenvalue has shrunk from {gap_at_fit:.2g} to {gap:.2g}: "
            "the number of clusters may have changed"
        )
    return ""
