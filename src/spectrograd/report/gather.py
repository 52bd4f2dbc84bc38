"""From results to a run: measure what the page shows and the summary does not hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.metrics import conductance
from spectrograd.pipeline import Result
from spectrograd.pipeline.layer_agreement import node_agreement, pairwise_agreement
from spectrograd.pipeline.multilayer import Merged
from spectrograd.report.layout import draw_graph
from spectrograd.report.run import Nodes, Run
from spectrograd.solvers import Progress

Array = NDArray[Any]
MERGED = "merged"
SHOWN_EXCLUDED = 10


def gather_run(
    graph: Graph | MultilayerGraph,
    result: Result,
    summary: Mapping[str, Any],
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
    merged, labels = result.merged, result.labels
    embedding = result.embedding.without_first() if drop_first else result.embedding
    layers = () if merged is None else merged.layers
    bases = [layer.embedding.vectors for layer in layers]
    place = result.vectors
    scores = np.column_stack([node_agreement(basis, place) for basis in bases]) if bases else None
    names = graph.input_names
    places, edges = draw_graph(graph, result.vectors) or (None, np.zeros((0, 2)))
    return Run(
        summary,
        Nodes(
            names.astype(str) if names.dtype == object else names,
            embedding.vectors.astype(np.float32),
            labels,
            None if truth is None else truth[1],
            None if scores is None else scores.astype(np.float32),
            result.membership,
            places,
        ),
        _spectrum(result, first=2 if drop_first else 1),
        _curves(result, merged),
        () if labels is None else _conductance(graph, labels),
        _agreement(merged, [*bases, place]) if merged is not None and bases else None,
        _verdicts(merged),
        None if truth is None else truth[0],
        class_names,
        edges.tolist(),
        _excluded(names, result.connectivity.aside),
    )


def _excluded(names: Array, rows: Array) -> dict[str, Any] | None:
    """Nodes that took no part: how many, and which come first."""
    if not len(rows):
        return None
    some = [str(name) for name in names[rows[:SHOWN_EXCLUDED]]]
    return {"count": len(rows), "share": len(rows) / len(names), "names": some}


def _spectrum(result: Result, first: int) -> dict[str, Any]:
    certificate = result.certificate
    beyond = float(certificate.eigenvalues[-1]) + certificate.gap
    seen = certificate.gap > 0 and math.isfinite(beyond)
    return {
        "first": first,
        "values": certificate.eigenvalues.tolist(),
        "residuals": certificate.residuals.tolist(),
        "beyond": beyond if seen else None,
    }


def _verdicts(merged: Merged | None) -> list[dict[str, Any]]:
    if merged is None:
        return []
    return [
        {"name": name, "converged": layer.certificate.converged, "sentence": layer.certificate.sentence}
        for name, layer in zip(merged.layer_names, merged.layers, strict=False)
    ]


def _curves(result: Result, merged: Merged | None) -> list[dict[str, Any]]:
    if merged is None or merged.result is not None:  # one solve, also where it found the layers as well
        return [_curve(MERGED if merged else "embedding", result.solver, result.history)]
    layers = [
        _curve(name, layer.solution.solver, layer.solution.history)
        for name, layer in zip(merged.layer_names, merged.layers, strict=False)
    ]
    return [*layers, _curve(MERGED, result.solver, result.history)]


def _curve(name: str, solver: str, history: Sequence[Progress]) -> dict[str, Any]:
    columns = {
        column: [getattr(point, column) for point in history]
        for column in ("seconds", "objective", "residual")
    }
    return {"name": name, "solver": solver, **columns}


def _conductance(graph: Graph | MultilayerGraph, labels: Array) -> list[dict[str, Any]]:
    layers = (
        zip(graph.layer_names, graph.layers, strict=True)
        if isinstance(graph, MultilayerGraph)
        else [("", graph)]
    )
    return [{"name": name, "values": _known(conductance(layer, labels))} for name, layer in layers]


def _known(values: Array) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _agreement(merged: Merged, bases: list[Array]) -> dict[str, Any]:
    orthonormal = [np.linalg.qr(basis)[0] for basis in bases]
    return {
        "names": [*merged.layer_names, MERGED],
        "values": pairwise_agreement(orthonormal).tolist(),
    }
