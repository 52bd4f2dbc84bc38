"""From the rows that were solved to rows of the result: one for every node, in the order of the input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.embedding import Embedding, row_slices
from spectrograd.engines.protocol import Tall
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.pieces import on_all_rows
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.left_embedding import LeftEmbedding
from spectrograd.pipeline.settings import Settings

Array = NDArray[Any]


def result_names(graph: Graph) -> Array | None:
    """The names of the rows of the result; None where they are the row numbers."""
    if graph.names is None or getattr(graph, "ids_are_rows", False):
        return None
    return graph.input_names


def with_all_nodes(solved: Embedded, graph: Graph | MultilayerGraph, kept: Array, masked: Array) -> Embedding:
    """The embedding with a row for every node, in the order of the input; masked rows are zero.

    Of a graph on disk it is in float32: it may be as large as memory, and its digits end there anyway.
    """
    one = graph.layers[0] if isinstance(graph, MultilayerGraph) else graph
    if isinstance(solved.embedding, LeftEmbedding):
        return solved.embedding.of_nodes(kept, masked, result_names(one))
    vectors = solved.embedding.vectors
    if graph.is_resident:
        rows = on_all_rows(vectors, kept, graph.n_nodes)
    else:
        rows = np.zeros((graph.n_nodes, vectors.shape[1]), np.float32)
        for part in row_slices(vectors):
            rows[kept[part]] = vectors[part]
        rows[kept[masked]] = 0
    return Embedding(rows, solved.embedding.eigenvalues, result_names(one))


def kept_tall(solved: Embedded, settings: Settings, n_nodes: int, kept: Array, masked: Array) -> Tall | None:
    """As :func:`with_all_nodes`, on the engine and without a look at the host; None unless asked for."""
    if not settings.keep_tall:
        return None
    engine, Q = settings.engine, solved.solution.Q
    Q = engine.put(Q) if isinstance(Q, np.ndarray) else Q  # of whole components, which nobody solved for
    Q = engine.combine(Q, np.diag(np.where(engine.statistics(Q).peaks < 0, -1.0, 1.0)))
    if len(masked):
        taking_part = np.ones((len(kept), 1))
        taking_part[masked] = 0
        Q = engine.scaled(Q, engine.put(taking_part))
    return engine.spread(Q, kept, n_nodes)
