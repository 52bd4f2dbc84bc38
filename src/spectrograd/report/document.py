"""Data -> dict: what a page says, in plain values and without any HTML."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph, MultilayerGraph

Array = NDArray[Any]
Truth = tuple[str, Array, Mapping[str, float]]

SHOWN_MEMBERS = 6
SHOWN_CLUSTERS = 100
SCORE_TITLES = {"purity": "purity", "nmi": "NMI", "ri": "RI", "ari": "ARI"}


def demo_document(
    graph: MultilayerGraph,
    rows: Sequence[Mapping[str, Any]],
    *,
    picture: bytes,
    certificate: str,
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """The page of ``demo``: every method in one table.

    Parameters
    ----------
    graph, rows
        The data and one row per method, as in ``--summary-json``.
    picture
        PNG.
    certificate
        The default solver's verdict in words.
    run
        ``command``, ``seed`` and ``versions``.
    """
    table = {
        "caption": "Each layer alone, then the methods on the merged layers",
        "columns": ["method", "seconds", "iterations", "passes", *SCORE_TITLES.values()],
        "rows": [_method_cells(row) for row in rows],
    }
    return {
        "title": "spectrograd demo",
        "lead": (
            f"{graph.n_nodes:,} nodes in {graph.n_layers} layers with {graph.n_edges:,} edges. No layer "
            "alone shows all clusters; merged they do. Times are those of the solver, without measuring and "
            "without compiling."
        ),
        "picture": _data_uri(picture),
        "alt": "Layers and merged embedding coloured by cluster, convergence, and how far the layers agree",
        "tables": [table],
        "certificate": certificate,
        "facts": _facts(graph, run),
        "command": str(run["command"]),
    }


def cluster_document(
    graph: Graph | MultilayerGraph,
    labels: Array,
    *,
    picture: bytes,
    certificate: str,
    run: Mapping[str, Any],
    truth: Truth | None = None,
) -> dict[str, Any]:
    """The page of ``cluster``: sizes and members of the clusters, scores where classes are known.

    ``truth`` is the name of the file, the classes (-1 unknown) and the scores.
    """
    tables = [_cluster_table(graph, labels)]
    if truth is not None:
        tables = [_score_table(truth), *tables, _class_table(labels, truth)]
    n_clusters = len(np.unique(labels))
    return {
        "title": "spectrograd cluster",
        "lead": f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges in {n_clusters} clusters.",
        "picture": _data_uri(picture),
        "alt": "The embedding coloured by cluster",
        "tables": tables,
        "certificate": certificate,
        "facts": _facts(graph, run),
        "command": str(run["command"]),
    }


def _method_cells(row: Mapping[str, Any]) -> list[str]:
    name = row["method"] if row["error"] is None else f"{row['method']}: failed, {row['error']}"
    iterations = None if row["iterations"] == 1 else row["iterations"]  # a direct method has none
    return [
        str(name),
        _number(row["seconds"], 2),
        "–" if iterations is None else f"{iterations:,}",
        _number(row["passes"] or None, 1),
        *(_number(row[key], 3) for key in SCORE_TITLES),
    ]


def _cluster_table(graph: Graph | MultilayerGraph, labels: Array) -> dict[str, Any]:
    names = graph.node_names
    clusters, sizes = np.unique(labels, return_counts=True)
    rows = []
    for cluster, size in list(zip(clusters, sizes, strict=True))[:SHOWN_CLUSTERS]:
        members = names[np.flatnonzero(labels == cluster)[:SHOWN_MEMBERS]]
        more = ", …" if size > SHOWN_MEMBERS else ""
        share = f"{size / len(labels):.1%}"
        rows.append([str(cluster), f"{size:,}", share, ", ".join(map(str, members)) + more])
    return {"caption": "Clusters", "columns": ["cluster", "nodes", "share", "members"], "rows": rows}


def _score_table(truth: Truth) -> dict[str, Any]:
    path, classes, scores = truth
    known = int(np.count_nonzero(classes != -1))
    return {
        "caption": f"Agreement with {path} ({known:,} labelled nodes)",
        "columns": list(SCORE_TITLES.values()),
        "rows": [[_number(scores[key], 3) for key in SCORE_TITLES]],
    }


def _class_table(labels: Array, truth: Truth) -> dict[str, Any]:
    """How many nodes of each class are in each cluster."""
    _, classes, _ = truth
    known = classes != -1
    found, kinds = np.unique(labels[known]), np.unique(classes[known])[:SHOWN_CLUSTERS]
    rows = []
    for cluster in found[:SHOWN_CLUSTERS]:
        inside = classes[known & (labels == cluster)]
        rows.append([str(cluster), *(f"{np.count_nonzero(inside == kind):,}" for kind in kinds)])
    return {
        "caption": "Clusters and classes",
        "columns": ["cluster", *(f"class {kind}" for kind in kinds)],
        "rows": rows,
    }


def _facts(graph: Graph | MultilayerGraph, run: Mapping[str, Any]) -> list[list[str]]:
    facts = [["seed", str(run["seed"])]]
    if isinstance(graph, MultilayerGraph):
        facts.append(["layers", ", ".join(graph.layer_names)])
    return facts + [[name, str(version)] for name, version in run["versions"].items()]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
