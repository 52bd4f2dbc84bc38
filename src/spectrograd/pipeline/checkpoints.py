"""Which run a folder of checkpoints belongs to: the graph, and every parameter that the result depends on."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from spectrograd.certificate import Certificate
from spectrograd.embedding import Embedding
from spectrograd.engines.dask.session import package_version
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.linalg.subspace import orthogonality_error
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.settings import Settings
from spectrograd.serialization.checkpoint_folder import open_checkpoints
from spectrograd.solvers.base import Problem
from spectrograd.solvers.checkpoint import RunCheckpoints, SolveCheckpoint
from spectrograd.solvers.loop import GIVEN_UP, INTERRUPTED, OUT_OF_TIME
from spectrograd.solvers.settings import RunContext
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.typing import Array, JsonObject

# Threads, the time budget and what comes after the embedding play no part in it.
IDENTITY_SETTINGS = (
    "solver",
    "params",
    "n_components",
    "tol",
    "max_iter",
    "batch_size",
    "memory_limit",
    "laplacian",
    "regularization",
    "disconnected",
    "aggregation",
    "alpha",
    "layer_weights",
    "aggregation_params",
)
DRAWN_SEED = "drawn seed"
# What a product that is made again may differ by: roundings of one in the type of the vectors, and a part of
# the width of the spectrum where vectors were stored in another type than they were measured in.
PRODUCT_ROUNDINGS = 10
WIDTH_SLACK = 1e-12
ORTHOGONALITY_SLACK = 1e-5  # orthonormal, in float32


@contextmanager
def with_checkpoints(
    graph: Graph | MultilayerGraph, settings: Settings, context: RunContext, start: Array | None
) -> Iterator[tuple[Settings, RunContext]]:
    """Settings and a context that knows where the states of the run are kept; unchanged without a folder.

    Without a seed one is drawn, and a run that goes on takes that of the run before.
    """
    if context.checkpoint is None:
        yield settings, context
        return

    def identity(before: Mapping[str, object]) -> Mapping[str, object]:
        drawn = before.get(DRAWN_SEED) if settings.seed is None else None
        if settings.seed is None and drawn is None:
            drawn = secrets.randbits(31)
        return run_identity(graph, settings, context, start) | {DRAWN_SEED: drawn}

    with open_checkpoints(context.checkpoint, identity) as folder:
        checkpoints = RunCheckpoints(folder, context.checkpoint_every)
        seed = folder.identity[DRAWN_SEED] if settings.seed is None else settings.seed
        yield replace(settings, seed=seed), replace(context, checkpoints=checkpoints)


def save_result(kept: SolveCheckpoint, problem: Problem, found: CertifiedEmbedding) -> None:
    """Keep what a solve has found for a run that is repeated; what was cut short is to go on instead."""
    if found.stop_reason not in (INTERRUPTED, GIVEN_UP, OUT_OF_TIME):
        embedding = Embedding(found.embedding.vectors, found.embedding.eigenvalues)
        kept.finish(problem, replace(found, embedding=embedding))


def load_result(kept: SolveCheckpoint | None, problem: Problem) -> CertifiedEmbedding | None:
    """The result of :func:`save_result`, measured again: one product shows if it is of this problem."""
    found: CertifiedEmbedding | None = (
        None if kept is None else kept.result(problem, partial(_verify_result, problem))
    )
    if found is None:
        return None
    return replace(found, embedding=replace(found.embedding, names=problem.operator.names))


def _verify_result(problem: Problem, found: object) -> CertifiedEmbedding:
    """A result whose vectors have the residuals and the eigenvalues that its certificate states.

    Checksums tell that a file is as it was written, not who wrote it: a certificate is believed as far as
    ``|A q - theta B q|`` and ``Q'BQ = I`` are as stated, up to the rounding of the product.
    """
    if not isinstance(found, CertifiedEmbedding):
        raise TypeError("no result of a solve")
    certificate = found.certificate
    vectors = found.embedding.vectors
    engine = problem.engine
    shape = (problem.n_nodes, problem.n_components)
    if vectors.shape != shape or found.Q.shape != shape or not found.history:
        raise ValueError(f"vectors of shape {vectors.shape} instead of {shape}")
    if not isinstance(certificate, Certificate):
        raise TypeError("no certificate")
    if not certificate.converged and certificate.determined is None:  # it claims nothing
        return found
    with engine.threads():
        Q = engine.from_numpy(np.ascontiguousarray(vectors))
        AQ = engine.apply(problem.engine_operator, Q)
        values = np.asarray(found.embedding.eigenvalues, dtype=np.float64)
        measured = engine.residual(problem.engine_operator, Q, AQ, values)
        orthogonality = orthogonality_error(engine, problem.engine_operator, Q)
    operator = problem.operator
    slack = PRODUCT_ROUNDINGS * operator.rounding(vectors.dtype) + WIDTH_SLACK * (
        operator.upper - operator.lower
    )
    allowed = 2 * np.asarray(certificate.residuals) + slack
    if not np.allclose(values, certificate.eigenvalues, rtol=0, atol=slack):
        raise ValueError("its eigenvalues are not those of its certificate")
    if (
        not (measured <= allowed).all()
        or not orthogonality <= 2 * certificate.orthogonality + ORTHOGONALITY_SLACK
    ):
        worst = float(np.max(measured))
        raise ValueError(f"its vectors do not hold what the certificate says: residual {worst:.2g}")
    return found


def run_identity(
    graph: Graph | MultilayerGraph, settings: Settings, context: RunContext, start: Array | None
) -> JsonObject:
    """The parts of a run's identity by name, as JSON has them; errors name the first that differs."""
    engine = context.engine.summary()
    found = {
        "spectrograd": package_version(),
        "graph": fingerprint(graph),
        "seed": settings.seed,
        **{name: getattr(settings, name) for name in IDENTITY_SETTINGS},
        "engine": {name: engine[name] for name in ("name", "device", "blocks") if name in engine},
        "start": None if start is None else _digest(start),
    }
    plain: JsonObject = json.loads(json.dumps(found, default=_as_plain))
    return plain


def fingerprint(graph: Graph | MultilayerGraph) -> str:
    """The same for the same nodes, edges and weights, read from the same kind of place."""
    if isinstance(graph, MultilayerGraph):
        return " ".join(fingerprint(layer) for layer in graph.layers)
    if isinstance(graph, StoredGraph):
        return f"{graph.store.meta.fingerprint}-{graph.layer}"
    arrays: list[Array] = []
    for block in graph.blocks:
        arrays += [block.indptr, block.indices, *(() if block.weights is None else (block.weights,))]
    return _digest(*arrays)


def _digest(*arrays: Array) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _as_plain(value: object) -> Any:
    """A plain value for one that JSON does not know: numbers of numpy, arrays, settings that are objects."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else repr(value)
