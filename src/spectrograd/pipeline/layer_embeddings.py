"""The embedding of one layer: on the nodes that it links, with its components known from the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from spectrograd.aggregation import LayerOperator, without_absent
from spectrograd.certificate import exact_certificate
from spectrograd.embedding import Embedding
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph, GraphWarning
from spectrograd.graph.components import on_all_rows, subgraph
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind, laplacian
from spectrograd.operators.similarity import SimilarityOperator, similarity_laplacian
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.rough_solve import UNMEASURED, certify_rough
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers.base import Progress
from spectrograd.solvers.loop import INTERRUPTED, Solution
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

LOOSE_TOLERANCE = 1e-3
# Of the nodes: a layer that links fewer is embedded on its own nodes alone.
MAX_SPARSE_SHARE = 0.5
NULL_RESIDUAL = 1e-9  # of the width of the spectrum: rounding of a product

Solve = Callable[[SparseOperator, int, Settings, RunContext], CertifiedEmbedding]


def n_linked_components(layer: Graph) -> int:
    """Connected components with an edge."""
    return int(layer.components.max()) + 1 - len(layer.isolated)


def report_components(names: Sequence[str], components: Sequence[int], n_components: int) -> None:
    """Warn of layers whose null space alone is larger than an embedding."""
    many = [
        f"{name!r} ({count})" for name, count in zip(names, components, strict=True) if count > n_components
    ]
    if many:
        shown = ", ".join(many[:5]) + (f" and {len(many) - 5} more" if len(many) > 5 else "")
        warn(
            f"layers in more than {n_components} connected components: {shown}; their largest "
            f"{n_components} components stand for each of them",
            GraphWarning,
        )


def embed_layer(
    operator: LayerOperator,
    n_components: int,
    settings: Settings,
    context: RunContext | None = None,
    solve: Solve = embed,
) -> CertifiedEmbedding:
    """The K smallest eigenvectors of a layer, zero on the nodes that it does not link.

    Parameters
    ----------
    operator : SparseOperator or SimilarityOperator
        The layer's Laplacian (N x N), zero on the diagonal of nodes without an edge.
    n_components : int
        K; a layer that links no more nodes has fewer columns.
    settings : Settings
        Solver and seed.
    context : RunContext
        The engine.
    solve : callable
        From an operator, K and settings to an embedding: with or without a certificate.
    """
    context = context or RunContext()
    if isinstance(operator, SimilarityOperator):
        return _of_similarities(operator, n_components, settings, context)
    here = operator.graph.is_resident and isinstance(context.engine, LocalEngine)
    if operator.rank or operator.graph.is_signed or not here:
        return _on_all_rows(operator, n_components, settings, context, solve)
    linked = np.flatnonzero(operator.diagonal > 0)
    n_columns = min(n_components, len(linked) - 1)
    if 0 < len(linked) < MAX_SPARSE_SHARE * operator.n_nodes or n_columns < n_components:
        return _on_linked_nodes(operator, linked, max(0, n_columns), settings, context, solve)
    return _with_components(operator, n_components, settings, context, solve)


def _of_similarities(
    operator: SimilarityOperator, n_components: int, settings: Settings, context: RunContext
) -> CertifiedEmbedding:
    """The embedding of rows of features; rows that are similar to none are zero."""
    linked = np.flatnonzero(operator.form)
    if len(linked) == operator.n_nodes:
        return _uninterrupted(embed(operator, n_components, settings, context))
    kind: Kind = "unnormalized" if operator.is_plain else "symmetric"
    part = similarity_laplacian(operator.graph.subgraph(linked), kind)
    found = _uninterrupted(embed(part, min(n_components, len(linked) - 1), settings, context))
    vectors = on_all_rows(found.embedding.vectors, linked, operator.n_nodes)
    embedding = Embedding(vectors, found.embedding.eigenvalues, operator.names)
    return replace(found, embedding=embedding, multivector=vectors)


def certify_layer(
    operator: SparseOperator,
    n_components: int,
    settings: Settings,
    context: RunContext,
    rough: CertifiedEmbedding,
) -> CertifiedEmbedding:
    """The embedding of a layer with a certificate, from one that was found without."""
    linked = np.flatnonzero(operator.graph.degrees > 0)

    def solve(part: SparseOperator, k: int, settings: Settings, context: RunContext) -> CertifiedEmbedding:
        if rough.certificate.known != UNMEASURED or settings.solver != "auto":
            return embed(part, k, settings, context)
        vectors = rough.embedding.vectors[:, -k:]
        vectors = vectors if part.n_nodes == len(vectors) else vectors[linked]
        basis = np.ascontiguousarray(vectors)
        return certify_rough(part, replace(rough, multivector=basis), settings, context)

    if rough.solver == "components" or (rough.certificate.converged and settings.solver == "auto"):
        return rough
    return embed_layer(operator, n_components, settings, context, solve)


def _on_all_rows(
    operator: SparseOperator, n_components: int, settings: Settings, context: RunContext, solve: Solve
) -> CertifiedEmbedding:
    """A layer that is regularised or signed, so that components are no clusters, or is not in memory."""
    if not operator.rank and n_linked_components(operator.graph) > n_components:
        settings = _loosen(settings)
    result = _uninterrupted(solve(without_absent(operator), n_components, settings, context))
    n_linked = int((operator.graph.degrees > 0).sum())
    if n_linked > n_components:
        return result
    narrow = result.embedding
    kept = max(0, n_linked - 1)  # the rest of the subspace is made of absent nodes
    narrow = Embedding(narrow.vectors[:, :kept], narrow.eigenvalues[:kept], narrow.names)
    return replace(result, embedding=narrow)


def _loosen(settings: Settings) -> Settings:
    """Settings for more null vectors than columns, on an engine where components are no arrays here.

    A loose Krylov run returns vectors spread over all of them; a tight one hunts for copies without end.
    """
    if settings.solver != "auto" or settings.tol != "auto":
        return settings
    return replace(settings, solver="eigen", params={"tol": LOOSE_TOLERANCE})


def _uninterrupted(result: CertifiedEmbedding) -> CertifiedEmbedding:
    if result.stop_reason == INTERRUPTED:
        raise KeyboardInterrupt  # half a layer is nothing to merge
    return result


def _on_linked_nodes(
    operator: SparseOperator,
    linked: Array,
    n_columns: int,
    settings: Settings,
    context: RunContext,
    solve: Solve,
) -> CertifiedEmbedding:
    """The embedding of the subgraph of the linked nodes, on all rows."""
    if n_columns == 0:
        return _exact(np.zeros((operator.n_nodes, 0)), operator.names, "the layer links too few nodes")
    graph = subgraph(operator.graph, linked)
    part = laplacian(graph, "unnormalized" if operator.scale is None else "symmetric")
    found = _with_components(part, n_columns, settings, context, solve)
    vectors = np.zeros((operator.n_nodes, found.embedding.n_components))
    vectors[linked] = found.embedding.vectors
    embedding = Embedding(vectors, found.embedding.eigenvalues, operator.names)
    return replace(found, embedding=embedding, multivector=vectors)


def _with_components(
    operator: SparseOperator, k: int, settings: Settings, context: RunContext, solve: Solve
) -> CertifiedEmbedding:
    """Null vectors of the components, which need not be solved for, then eigenvectors orthogonal to them.

    Of more than k components the k with the most linked nodes stand for the layer: every choice of k null
    vectors cuts no edge, and this one says something about as many nodes as k of them can (docs/adr/0056).
    """
    began = time.perf_counter()
    graph = operator.graph
    labels = np.where(graph.degrees > 0, graph.components, -1)
    sizes = np.bincount(labels[labels >= 0])
    n_linked = int((sizes > 0).sum())
    if n_linked <= 1:
        return _uninterrupted(solve(without_absent(operator), k, settings, context))
    largest = np.argsort(-sizes, kind="stable")[: min(k, n_linked)]
    null = (labels[:, None] == largest).astype(np.float64)
    if operator.scale is not None:
        null *= np.sqrt(graph.degrees / graph.degrees.max())[:, None]
    null /= np.linalg.norm(null, axis=0)
    if np.abs(operator @ null).max() > NULL_RESIDUAL * operator.upper:  # degrees that were regularised
        return _uninterrupted(solve(without_absent(operator), k, settings, context))
    if n_linked >= k:
        reason = f"the {k} largest of {n_linked} components: they cut no edge"
        return _exact(null, operator.names, reason, time.perf_counter() - began)
    # Deflation: null vectors are moved to the upper end, A + upper N N', and the others stay.
    deflation = LowRank(null, np.full(n_linked, -operator.upper))
    found = _uninterrupted(
        solve(replace(without_absent(operator), low_rank=deflation), k - n_linked, settings, context)
    )
    vectors = np.hstack([null, found.embedding.vectors])
    values = np.concatenate([np.zeros(n_linked), found.embedding.eigenvalues])
    certificate = replace(
        found.certificate,
        residuals=np.concatenate([np.zeros(n_linked), found.certificate.residuals]),
        eigenvalues=values,
    )
    return replace(
        found,
        embedding=Embedding(vectors, values, operator.names),
        certificate=certificate,
        multivector=vectors,
    )


def _exact(vectors: Array, names: Array | None, reason: str, seconds: float = 0.0) -> CertifiedEmbedding:
    """Null vectors known from the search for components."""
    k = vectors.shape[1]
    certificate = exact_certificate(k, reason)
    nothing = Progress(0, 0.0, 0, 0.0, 0.0, 0.0)
    solution = Solution(vectors, "components", (nothing,), "done", seconds, reason=reason)
    embedding = Embedding(vectors, np.zeros(k), names)
    return CertifiedEmbedding.of(solution, embedding, certificate, certificate.known)
