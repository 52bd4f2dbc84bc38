"""The pipeline: from a graph, single or multilayer, to its embedding (:func:`embed`) and clusters."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np

from spectrograd.engines import Engine
from spectrograd.graph import Graph, GraphWarning, MultilayerGraph
from spectrograd.labels import assign
from spectrograd.labels.assign import assign_distributed
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS, bulk_edge, widest_gap
from spectrograd.labels.neighbor_labels import follow_neighbours
from spectrograd.labels.sampled_kmeans import MAX_COPIED_ROWS
from spectrograd.notices import parameter, warn
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.checkpoints import with_checkpoints
from spectrograd.pipeline.cluster_verdict import NOT_JUDGED, ClusterVerdict, clustered_graphs, judge_clusters
from spectrograd.pipeline.column_halves import with_agreement
from spectrograd.pipeline.multilayer import PreparedLayers, prepare_layers
from spectrograd.pipeline.result import DistributedEmbedding, Result
from spectrograd.pipeline.rough_choice import choose_by_rough_vectors
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.signed import for_signed
from spectrograd.pipeline.single import PreparedGraph, prepare_graph
from spectrograd.pipeline.treatment import count_null_vectors, select_treatment
from spectrograd.solvers.settings import RunContext
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.system import defer_interrupts, one_thread
from spectrograd.typing import Array

Prepared = PreparedGraph | PreparedLayers
SECONDS_PER_PRODUCT = 1e-9  # seconds on one core for an entry of the graph times a number
MIN_ROUNDS_PER_PASS = 3  # messages to and fro that a pass takes at least: multiply, orthogonalise, measure


def embed(
    graph: Graph | MultilayerGraph,
    settings: Settings,
    context: RunContext | None = None,
    *,
    start: Array | None = None,
) -> Result:
    """Embed a graph, whatever its state.

    Ctrl-C ends it with the best so far, which is marked ``interrupted``; where there is nothing yet to
    keep, it raises KeyboardInterrupt.

    Parameters
    ----------
    graph
        One graph, or several layers on the same nodes: these are merged first.
    settings
        What to compute and how.
    context
        Engine, hooks, checkpoints; on this machine and without any when not given.
    start
        N x K guess for a warm start.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> result = embed(data.graph, Settings(n_components=3, seed=0))
    >>> result.vectors.shape, result.certificate.converged
    ((300, 3), True)
    """
    context = (context or RunContext()).start_clock(settings)
    with with_checkpoints(graph, settings, context, start) as (settings, context):
        return _solve(graph, settings, context, start)[1]


def _solve(
    graph: Graph | MultilayerGraph,
    settings: Settings,
    context: RunContext,
    start: Array | None,
    *,
    labels: bool = False,
) -> tuple[Prepared, Result]:
    settings = for_signed(graph, settings)
    note_small(graph, settings, context.engine)
    terminate = context.checkpoint is not None
    threads = context.engine.threads()
    with defer_interrupts(terminate=terminate) as interruption, threads, _few_threads(graph, context.engine):
        before = copy.copy(context.engine.work)
        # 1. components, layers; 2. operator and solver, with a certificate
        prepared = prepare(graph, settings, context)
        result: Result | None = None
        if labels and start is None and isinstance(prepared, PreparedGraph):
            # (for clusters: of the treatment that rough vectors choose)
            result = choose_by_rough_vectors(prepared, settings, context)
        result = result or prepared.solve(settings, context, start)
        result = result.counted(before, context.engine.work)
        return prepared, result.stopped() if interruption.requested else result


def cluster(
    graph: Graph | MultilayerGraph,
    settings: Settings,
    context: RunContext | None = None,
    *,
    start: Array | None = None,
) -> Result:
    """Embed a graph and cluster its nodes; parameters are those of :func:`embed`.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> result = cluster(data.graph, Settings(n_components=3, seed=0))
    >>> result.labels.shape, result.n_clusters
    ((300,), 3)
    """
    if settings.n_clusters is None and isinstance(settings.n_components, int):
        settings = replace(settings, n_clusters=settings.n_components)
    settings = for_signed(graph, settings)
    context = (context or RunContext()).start_clock(settings, labels=True)
    terminate = context.checkpoint is not None
    with (
        defer_interrupts(terminate=terminate) as interruption,
        with_checkpoints(graph, settings, context, start) as (settings, context),
        _few_threads(graph, context.engine),
    ):
        # 1. and 2.: components, operator, solver, certificate; 3. labels
        prepared, solved = _solve(graph, settings, context, start, labels=True)
        result = label(solved, settings, context)
        if isinstance(prepared, PreparedGraph):
            # 4. other treatments of the same graph, where the clusters do not satisfy
            result = select_treatment(result, prepared, settings, context, solve_prepared, label)
        _warn_if_fewer_are_clear(result, prepared, settings)
        _warn_if_fewer(result)
        return result.stopped() if interruption.requested else result


def _warn_if_fewer(result: Result) -> None:
    """Warn where rows coincide, so that k-means cannot make as many clusters as were asked for."""
    labels = np.asarray(result.labels)
    n_found = len(np.unique(labels[labels >= 0]))
    if n_found < int(result.n_clusters or 0):
        warn(
            f"{result.n_clusters} clusters were asked for and {n_found} found: so few rows of the embedding "
            "differ; ask for fewer clusters, or for more eigenvectors",
            GraphWarning,
        )


def _graphs_with_gaps(result: Result, prepared: Prepared) -> list[Graph]:
    """The graphs whose Laplacian, or sum of Laplacians, has the eigenvalues of the result; else none.

    Other merges have a gap after K by construction.
    """
    if isinstance(prepared, PreparedGraph):
        return [prepared.part]
    merged = prepared.merged
    graphs = [] if merged.inputs is None else [layer.graph for layer in merged.inputs.operators]
    if merged.chosen.layer is not None:
        return [graphs[merged.chosen.layer]]
    if merged.chosen.aggregation == "mean" and (merged.weights == 1).all():
        return graphs
    if merged.chosen.aggregation == "sum" and isinstance(result.operator, SparseOperator):
        return [result.operator.graph]
    return []


def _warn_if_fewer_are_clear(result: Result, prepared: Prepared, settings: Settings) -> None:
    """Warn where the eigenvalues decide for fewer clusters than were asked for."""
    values = result.eigenvalues
    k = int(result.n_clusters or 0)
    edges = isinstance(result.operator, SparseOperator) and settings.laplacian != "signed"
    if not (edges and result.certificate.converged and result.eigengap is None):
        return
    if count_null_vectors(result) > 1 or len(values) < max(k, 3):
        return
    graphs = _graphs_with_gaps(result, prepared)
    if not graphs or any(graph.is_signed for graph in graphs):
        return
    edge = bulk_edge(graphs, settings.laplacian, result.regularization.tau)
    found = widest_gap(values, edge)
    if found.clear and found.n_clusters < k and not result.regularization.localized:
        warn(
            f"{k} clusters were asked for, and the eigenvalues speak clearly for {found.n_clusters}: borders "
            "of more of them are arbitrary",
            GraphWarning,
        )


def _few_threads(graph: Graph | MultilayerGraph, engine: Engine) -> AbstractContextManager[None]:
    """One thread of BLAS for all of a small graph: to enter and leave the limit at each step takes longer."""
    return one_thread(graph.n_nodes <= engine.thresholds.small)


def note_small(graph: Graph | MultilayerGraph, settings: Settings, engine: Engine) -> None:
    """Say, through the logger, where a pass takes less time here than the messages about it elsewhere."""
    cost = engine.cost
    if not (cost.is_expensive and graph.is_resident):
        return
    columns = FIRST_MAX_CLUSTERS if isinstance(settings.n_components, str) else settings.n_components
    # a multiplication per entry and column, against the rounds of messages of a pass
    here = 2 * graph.n_edges * columns * SECONDS_PER_PRODUCT
    there = MIN_ROUNDS_PER_PASS * cost.per_round
    name = engine.summary()["name"]
    if here < there:
        logging.getLogger("spectrograd").warning(
            f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges are too few for {name}: "
            f"messages take about {there:.2g} s in each of some hundred passes, the products themselves "
            f"{here:.1g} s on one core; {parameter('engine', 'auto')} is faster"
        )


def prepare(
    graph: Graph | MultilayerGraph, settings: Settings, context: RunContext | None = None
) -> Prepared:
    """Prepare a graph for solvers, of which several may follow: components sorted out, layers merged."""
    context = context or RunContext()
    with context.engine.threads():
        if isinstance(graph, MultilayerGraph):
            return prepare_layers(graph, settings, context)
        return prepare_graph(graph, settings, context)


def solve_prepared(prepared: Prepared, settings: Settings, context: RunContext | None = None) -> Result:
    """Solve what was prepared; ``passes`` and ``matvecs`` of the result are those of this solve alone."""
    context = context or RunContext()
    before = copy.copy(context.engine.work)
    result = prepared.solve(settings, context)
    return result.counted(before, context.engine.work)


def label(
    result: Result, settings: Settings, context: RunContext | None = None, *, many: int = MAX_COPIED_ROWS
) -> Result:
    """Cluster the rows of a result; of more than ``many`` rows that stay with workers only a sample comes."""
    context = context or RunContext()
    context.on_stage("assign")
    n_clusters = settings.n_clusters or result.embedding.n_components
    left = result.embedding
    if (
        isinstance(left, DistributedEmbedding)
        and settings.assign_labels == "kmeans"
        and left.multivector.shape[0] > many
    ):
        clustering, label_multivector = assign_distributed(
            left.engine,
            left.multivector,
            left.order,
            n_clusters,
            n_init=settings.n_init,
            norm_regularization=result.norm_regularization,
            excluded=result.connectivity.excluded,
            random_state=settings.seed,
            deadline=context.labelled_by,
        )
        result = replace(result.labelled(clustering), label_multivector=label_multivector)
        return finish_labels(result, settings, context)
    with context.engine.threads():
        clustering = assign(
            result.weighted_vectors,
            n_clusters,
            method=settings.assign_labels,
            n_init=settings.n_init,
            unit_rows=True,
            norm_regularization=result.norm_regularization,
            excluded=result.connectivity.excluded,
            random_state=settings.seed,
            deadline=context.labelled_by,
            start=result.start_labels,
        )
    return finish_labels(result.labelled(clustering), settings, context)


def finish_labels(result: Result, settings: Settings, context: RunContext) -> Result:
    """The result with labels for nodes without evidence of their own, and with a verdict on its clusters."""
    began = time.perf_counter()
    result = with_agreement(_follow_neighbours(result), settings)
    # The verdict clusters random graphs, which takes as long as a small fit: only where it is asked for. What
    # lies with the workers of a cluster is judged while they are there.
    judge: Callable[[], ClusterVerdict] = partial(judge_clusters, result, settings)
    if time.perf_counter() >= context.labelled_by:
        judge = partial(ClusterVerdict, NOT_JUDGED, int(result.n_clusters or 0), reason="out of time")
    result = replace(result, judge=judge)
    if context.engine.is_distributed:
        verdict = judge()
        result = replace(result, judge=lambda: verdict)
    spent = result.seconds.get("assign", 0.0) + time.perf_counter() - began
    return replace(result, seconds=result.seconds | {"assign": spent})


def _follow_neighbours(result: Result) -> Result:
    """Nodes whose rows regularisation has made follow their neighbours; nothing where there was none."""
    tau = result.regularization.tau
    layers = clustered_graphs(result)[0]
    if not tau or result.labels is None or not layers or result.connectivity.groups is not None:
        return result
    if any(layer.is_signed for layer in layers):  # a vote of neighbours has no meaning among enemies
        return result
    rows = result.rows
    old = result.labels
    part = old[rows] >= 0
    added = [tau * float(layer.degrees[part].mean()) for layer in layers]
    sure = None if result.membership is None else result.membership[rows]
    # neighbours are read from the edges: over a store that is a pass
    before = _passes_over_disk(layers)
    found = follow_neighbours(layers, old[rows], added, sure)
    result = replace(result, passes=result.passes + _passes_over_disk(layers) - before)
    if not len(found.moved):
        return result
    labels = old.copy()
    membership = result.membership
    labels[rows] = found.labels
    labels.flags.writeable = False
    if membership is not None and found.membership is not None:
        membership = membership.copy()
        membership[rows] = found.membership
    result = replace(result, labels=labels, membership=membership)
    if result.label_multivector is not None and isinstance(result.embedding, DistributedEmbedding):
        engine = result.embedding.engine
        return replace(result, label_multivector=engine.from_numpy(found.labels[:, None].astype(np.float64)))
    return result


def _passes_over_disk(layers: Sequence[Graph]) -> int:
    """Number of times the layers on disk were read."""
    stores = {id(layer.store): layer.passes for layer in layers if isinstance(layer, StoredGraph)}
    return sum(stores.values())
