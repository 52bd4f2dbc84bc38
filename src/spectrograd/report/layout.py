"""A drawing of a small graph in the plane: nodes repel each other, edges pull, from a spectral start."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph, MultilayerGraph

Array = NDArray[Any]

DRAWN_NODES = 2_000
DRAWN_EDGES = 20_000
ROUNDS = 60
FIRST_STEP = 0.1  # of the drawing's width, shrinking to nothing


def draw_graph(graph: Graph | MultilayerGraph, vectors: Array) -> tuple[Array, Array] | None:
    """Places of the nodes and the edges to draw, or None where the graph is too large for that.

    Forces are those of Fruchterman and Reingold (1991): repulsion 1/d between all nodes, attraction d^2 along
    edges. The eigenvectors are the start, so that the drawing unfolds what they have already found.

    Parameters
    ----------
    graph
        Of several layers, all edges are drawn.
    vectors : array of shape (n, k)
        The embedding, its constant column first.

    Returns
    -------
    places, edges
        float32 (n, 2), within -1..1; int32 (m, 2), a random choice where there are many.
    """
    n = graph.n_nodes
    if not 2 <= n <= DRAWN_NODES:
        return None
    layers = graph.layers if isinstance(graph, MultilayerGraph) else (graph,)
    pairs = np.unique(np.concatenate([_pairs(layer) for layer in layers]), axis=0)
    places = _relaxed(_start(vectors, n), pairs)
    if len(pairs) > DRAWN_EDGES:
        chosen = np.random.default_rng(0).choice(len(pairs), DRAWN_EDGES, replace=False)
        pairs = pairs[np.sort(chosen)]
    return places, pairs.astype(np.int32)


def _pairs(graph: Graph) -> Array:
    matrix = graph.matrix.tocoo()
    once = matrix.row < matrix.col
    return np.column_stack([matrix.row[once], matrix.col[once]])


def _start(vectors: Array, n: int) -> Array:
    """Two columns that are not constant, each by rank: eigenvectors crowd, ranks do not."""
    rng = np.random.default_rng(0)
    spread = [column for column in vectors.T if np.ptp(column) > 1e-9 * max(np.abs(column).max(), 1e-300)]
    columns = [*spread[-2:], *rng.standard_normal((2, n))][:2]
    ranks = np.stack([np.argsort(np.argsort(column)) for column in columns], axis=1)
    return ((ranks + 0.5) / n * 2 - 1 + 0.01 * rng.standard_normal((n, 2))).astype(np.float32)


def _relaxed(places: Array, pairs: Array) -> Array:
    n = len(places)
    ideal = np.float32(2 / np.sqrt(n))  # the side of the square each node has for itself
    for round_ in range(ROUNDS):
        x, y = (places[:, i, None] - places[None, :, i] for i in (0, 1))
        push = ideal**2 / (x * x + y * y + np.float32(1e-6))
        force = np.stack([(x * push).sum(axis=1), (y * push).sum(axis=1)], axis=1)
        line = places[pairs[:, 0]] - places[pairs[:, 1]]
        pull = line * (np.linalg.norm(line, axis=1, keepdims=True) / ideal)
        for axis in (0, 1):
            force[:, axis] -= np.bincount(pairs[:, 0], pull[:, axis], n)
            force[:, axis] += np.bincount(pairs[:, 1], pull[:, axis], n)
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        step = FIRST_STEP * (1 - round_ / ROUNDS)
        places = places + (force / size * np.minimum(size, step)).astype(np.float32)
    places = places - places.mean(axis=0)
    return np.asarray(places / max(float(np.abs(places).max()), 1e-9), dtype=np.float32)
