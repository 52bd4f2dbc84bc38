"""Data -> dict: what a page says, in plain values and without any HTML."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from spectrograd.graph import MultilayerGraph

SCORE_TITLES = {"purity": "purity", "nmi": "NMI", "ri": "RI", "ari": "ARI"}

COLUMN_MEANINGS = {
    "seconds": "time of the solver, without compiling and measuring",
    "iterations": "its own steps; a direct method has none",
    "passes": "how often it read all edges",
    "purity": "share of nodes in a cluster where their class is the most frequent",
    "NMI": "what clusters and classes tell of each other: 0 nothing, 1 everything",
    "RI": "share of pairs of nodes that are together in both or apart in both",
    "ARI": "the same, corrected for chance: 0 is chance, 1 the same clusters",
}


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
    table = methods_table(rows)["table"]
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


def methods_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The methods of ``demo`` in a table, the last one marked, and what its columns mean."""
    cells = [_method_cells(row) for row in rows]
    if cells and rows[-1]["error"] is None:
        cells[-1][0] += " (what you get unless you ask for another)"
    return {
        "table": {
            "caption": "Each layer alone, then the methods on the merged layers",
            "columns": ["method", "seconds", "iterations", "passes", *SCORE_TITLES.values()],
            "rows": cells,
        },
        "meanings": COLUMN_MEANINGS,
    }


def _method_cells(row: Mapping[str, Any]) -> list[str]:
    name = row["method"] if row["error"] is None else f"{row['method']}: failed, {row['error']}"
    iterations = None if row["iterations"] == 1 else row["iterations"]  # a direct method has none
    return [
        str(name),
        number(row["seconds"], 2),
        "–" if iterations is None else f"{iterations:,}",
        number(row["passes"] or None, 1),
        *(number(row[key], 3) for key in SCORE_TITLES),
    ]


def _facts(graph: MultilayerGraph, run: Mapping[str, Any]) -> list[list[str]]:
    facts = [["seed", str(run["seed"])], ["layers", ", ".join(graph.layer_names)]]
    return facts + [[name, str(version)] for name, version in run["versions"].items()]


def number(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
