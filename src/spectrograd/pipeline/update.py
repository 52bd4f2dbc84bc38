"""An embedding after its graph has changed: a small correction where that is enough, a solve where it is not.

The old vectors fail the new equations only where edges changed, so their residual *is* the change. A
Rayleigh-Ritz step on the old vectors and that residual moves them to first order; the certificate then judges
the result as it would any other, and decides whether it is kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.certificate.evidence import GOOD_ANGLE, MOST_PART
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.threadpools import one_thread
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators import SparseOperator as Operator
from spectrograd.operators.regularized import Regularization, regularized
from spectrograd.pipeline.all_nodes import with_all_nodes
from spectrograd.pipeline.certifying import certified
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.plan import Choice
from spectrograd.pipeline.result import Result, found
from spectrograd.pipeline.run import embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import PreparedGraph, prepare_graph
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.protocol import Progress

Array = NDArray[Any]
# Directions of which float32 knows a few digits, in squares: the products of others would be noise.
DISTINCT = 1e-6
STEPS = 8  # most Rayleigh-Ritz steps: what they cannot mend is work for a solver
# What a solver asks of itself after a good start, which makes the gap look wider to it than it is: with a
# third of the certificate's angle, as usual, it ends after one filter and the certificate fails.
STRICT = GOOD_ANGLE / 30
MOST = 0.9  # of the rows must be known: a piece that has just joined is no small change
KEPT, WARM, ANEW = "kept", "warm start", "refit"
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


def update(
    graph: Graph | MultilayerGraph, start: Array | None, settings: Settings, decided: Regularization
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
    decided
        The regularisation of the fit, which a correction keeps.
    """
    if start is None or isinstance(graph, MultilayerGraph):
        result = embed(graph, settings, start=start)
        return Updated(result, ANEW if start is None else WARM, _drift(start, result))
    with settings.engine.threads(), one_thread():  # BLAS has nothing but small matrices to do
        prepared = prepare_graph(graph, settings)
        if prepared.connectivity.groups is None and start[prepared.kept].any(axis=1).mean() > MOST:
            guess = start
            if graph.is_resident:  # over a disk a probe of its own would cost more than a filter it rides on
                result = corrected(prepared, start, settings, decided)
                if result.certificate.converged:
                    return Updated(result, KEPT, _drift(start, result))
                guess = result.vectors
            result = _solved(prepared, replace(settings, regularization=decided.tau or None), guess)
            return Updated(result, WARM, _drift(start, result))
        result = prepared.solve(settings.started())
    return Updated(result, ANEW, _drift(start, result))


def _solved(prepared: PreparedGraph, settings: Settings, start: Array) -> Result:
    """From vectors that are nearly good: by a solver that makes use of them, else by whichever is best."""
    settings = settings.started()
    if settings.solver != "auto" or settings.tol != "auto":
        return prepared.solve(settings, start)
    result = prepared.solve(replace(settings, solver="chebyshev", params={"angle": STRICT}), start)
    return result if result.certificate.converged else prepared.solve(settings)


def corrected(prepared: PreparedGraph, start: Array, settings: Settings, decided: Regularization) -> Result:
    """The vectors moved by Rayleigh-Ritz steps, with their certificate."""
    began = time.perf_counter()
    operator = regularized(prepared.part, settings.laplacian, decided.tau)
    ritz, steps, error = _corrected(settings.engine, operator, start[prepared.kept])
    seconds = time.perf_counter() - began
    done = Progress(steps, 1.0 + steps, 0, float(ritz.values.sum()), error, 0.0, seconds)
    vectors = orthonormalize(settings.engine, ritz.Q.astype(np.float64), operator.metric).Q
    solution = Solution(vectors, "update", (done,), "done", seconds, settings.seed)
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


def _corrected(engine: Engine, operator: Operator, start: Array) -> tuple[Ritz, int, float]:
    """Ritz vectors (N x k) after as many steps as it takes, their number, and the residual that is left.

    In float32, which holds what a correction can reach; the certificate measures in float64.
    """
    vectors = np.ascontiguousarray(start, dtype=np.float32)
    ritz = rayleigh_ritz(engine, operator, orthonormalize(engine, vectors, operator.metric).Q)
    before: Ritz | None = None
    step, error = 0, np.inf
    while step < STEPS:
        step += 1
        last, (ritz, beyond) = ritz, _step(engine, operator, ritz, before)
        before = last
        error = float(np.linalg.norm(residuals(engine, operator, ritz)))
        # ``beyond`` is an upper bound on what lies there, so half of it is all that is counted on
        if error <= GOOD_ANGLE / 3 * MOST_PART * (beyond - ritz.values[-1]):
            break
    return ritz, step, float(error)


def _step(engine: Engine, operator: Operator, ritz: Ritz, before: Ritz | None) -> tuple[Ritz, float]:
    """Rayleigh-Ritz on the vectors, ``B^-1`` times their residuals, and the vectors before.

    Only the residuals are multiplied: what the others become is known. Returns the k lowest Ritz pairs and
    the next value.
    """
    metric = 1.0 if operator.metric is None else operator.metric[:, None].astype(ritz.AQ.dtype)
    values = ritz.values.astype(ritz.AQ.dtype)
    change = ritz.AQ / metric - ritz.Q * values
    wide = [ritz.Q, change] if before is None else [ritz.Q, change, before.Q]
    products = [ritz.AQ, engine.apply(operator, change)] + ([] if before is None else [before.AQ])
    S, AS, k = engine.stack(*wide), engine.stack(*products), len(values)
    whitened, _ = inverse_factor(engine.gram(S, S, operator.metric, symmetric=True), DISTINCT)
    H = whitened.T @ engine.gram(S, AS, symmetric=True) @ whitened
    found, rotation = la.eigh((H + H.T) / 2)
    lowest = whitened @ rotation[:, :k]
    return Ritz(found[:k], engine.combine(S, lowest), engine.combine(AS, lowest)), float(found[k])


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
