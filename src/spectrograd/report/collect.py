"""A drawing of a small graph in the plane: nodes repel each other, edges pull, from a spectral start."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.metrics import conductance
from spectrograd.pipeline import Result
from spectrograd.pipeline.layer_weights import node_agreement, pairwise_agreement
from spectrograd.pipeline.merge import Merged
from spectrograd.report.run import Nodes, Run
from spectrograd.solvers import Progress
from spectrograd.typing import Array, JsonMapping, JsonObject

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
    pairs = np.unique(np.concatenate([_pairs(layer) for layer in graph.layers]), axis=0)
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
        # Fruchterman and Reingold (1991): all pairs push, edges pull, steps become shorter.
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


# --- From results to a run: measure what the page shows and the summary does not hold.

MERGED = "merged"
SHOWN_EXCLUDED = 10


def gather_run(
    graph: Graph | MultilayerGraph,
    result: Result,
    summary: JsonMapping,
    *,
    truth: tuple[str, Array] | None = None,
    class_names: Sequence[str] = (),
    drop_first: bool = False,
) -> Run:
    """Collect a run for its page.

    Parameters
    ----------
    graph, result, summary
        The data, what was found in it, and what ``--summary-json`` holds.
    truth
        Name of the file of classes and the classes, -1 where unknown.
    class_names
        What the numbers of classes stand for, where they are texts.
    drop_first
        Whether the trivial first eigenvector is left out of the coordinates.
    """
    merged = result.merged
    labels = result.labels
    embedding = result.embedding.without_first() if drop_first else result.embedding
    layers = () if merged is None else merged.layers
    bases = [layer.embedding.vectors for layer in layers]
    place = result.vectors
    scores = np.column_stack([node_agreement(basis, place) for basis in bases]) if bases else None
    names = graph.input_names
    places, edges = draw_graph(graph, result.vectors) or (None, np.zeros((0, 2)))
    return Run(
        summary=summary,
        nodes=Nodes(
            names=names.astype(str) if names.dtype == object else names,
            vectors=embedding.vectors.astype(np.float32),
            labels=labels,
            classes=None if truth is None else truth[1],
            scores=None if scores is None else scores.astype(np.float32),
            membership=result.membership,
            layout=places,
        ),
        spectrum=_spectrum(result, first=2 if drop_first else 1),
        curves=_curves(result, merged),
        conductance=() if labels is None else _conductance(graph, labels),
        agreement=_agreement(merged, [*bases, place]) if merged is not None and bases else None,
        layers=_verdicts(merged),
        truth=None if truth is None else truth[0],
        class_names=class_names,
        edges=edges.tolist(),
        excluded=_excluded(names, result.connectivity.excluded),
    )


def _excluded(names: Array, rows: Array) -> JsonObject | None:
    """Nodes that took no part: how many, and which come first."""
    if not len(rows):
        return None
    some = [str(name) for name in names[rows[:SHOWN_EXCLUDED]]]
    return {"count": len(rows), "share": len(rows) / len(names), "names": some}


def _spectrum(result: Result, first: int) -> JsonObject:
    certificate = result.certificate
    beyond = float(certificate.eigenvalues[-1]) + certificate.gap
    seen = certificate.gap > 0 and math.isfinite(beyond)
    return {
        "first": first,
        "values": certificate.eigenvalues.tolist(),
        "residuals": certificate.residuals.tolist(),
        "beyond": beyond if seen else None,
    }


def _verdicts(merged: Merged | None) -> list[dict[str, object]]:
    if merged is None:
        return []
    return [
        {"name": name, "converged": layer.certificate.converged, "sentence": layer.certificate.sentence}
        for name, layer in zip(merged.layer_names, merged.layers_behind, strict=False)
    ]


def _curves(result: Result, merged: Merged | None) -> list[JsonObject]:
    if merged is None or merged.result is not None:  # one solve, also where it found the layers as well
        return [_curve(MERGED if merged else "embedding", result.solver, result.history)]
    layers = [
        _curve(name, layer.solver, layer.history)
        for name, layer in zip(merged.layer_names, merged.layers, strict=False)
    ]
    return [*layers, _curve(MERGED, result.solver, result.history)]


def _curve(name: str, solver: str, history: Sequence[Progress]) -> JsonObject:
    columns = {
        column: [getattr(point, column) for point in history]
        for column in ("seconds", "objective", "residual")
    }
    return {"name": name, "solver": solver, **columns}


def _conductance(graph: Graph | MultilayerGraph, labels: Array) -> list[JsonObject]:
    layers = (
        zip(graph.layer_names, graph.layers, strict=True)
        if isinstance(graph, MultilayerGraph)
        else [("", graph)]
    )
    return [{"name": name, "values": _known(conductance(layer, labels))} for name, layer in layers]


def _known(values: Array) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _agreement(merged: Merged, bases: list[Array]) -> JsonObject:
    orthonormal = [np.linalg.qr(basis)[0] for basis in bases]
    return {
        "names": [*merged.layer_names, MERGED],
        "values": pairwise_agreement(orthonormal).tolist(),
    }
