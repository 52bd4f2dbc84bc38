"""The page of ``compare``: a table of solvers, objective and NMI against time."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.metrics import SCORE_TITLES
from spectrograd.report.document import number
from spectrograd.report.figures import INK, SOFT
from spectrograd.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[JsonMapping]
GRID = "#e6e9ee"
# Okabe & Ito, then the same dashed: told apart with any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#1d2430")
DASHES = ("-", "--", ":")
# Gaps below this fraction of the objective are rounding.
ROUNDING = 1e-12


def compare_document(
    graph: Graph | MultilayerGraph, rows: Rows, *, picture: bytes, run: JsonMapping
) -> JsonObject:
    """What the page says, in plain values.

    Parameters
    ----------
    graph, rows
        The data, and the rows of :func:`spectrograd.pipeline.compare.compare`.
    picture
        PNG.
    run
        ``command``, ``seed``, ``time_budget`` and ``versions``.
    """
    facts = {"seed": run["seed"], "seconds per solver": run["time_budget"], **run["versions"]}
    reference = [row["method"] for row in rows if row["converged"]]
    return {
        "title": "spectrograd compare",
        "lead": (
            f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges; every solver on the same operator, each "
            "under the same budget. Times exclude measuring and compiling. The angle is the largest one to "
            "the converged result of least objective; memory is what the solver added."
        ),
        "picture": "data:image/png;base64," + base64.b64encode(picture).decode("ascii"),
        "alt": "Objective and NMI of every solver against time",
        "tables": [_figures(rows), _verdicts(rows)],
        "certificate": f"{len(reference)} of {len(rows)} converged: {', '.join(reference) or 'none'}",
        "facts": [[name, str(value)] for name, value in facts.items()],
        "command": str(run["command"]),
    }


def _figures(rows: Rows) -> JsonObject:
    scored = any(row["nmi"] is not None for row in rows)
    scores = tuple(SCORE_TITLES.items()) if scored else ()
    columns = ["method", "seconds", "iterations", "passes", "objective", "angle"]
    return {
        "caption": "Solvers",
        "columns": [*columns, *(title for _, title in scores), "memory (MB)"],
        "rows": [[*cells(row), *(number(row[key], 3) for key, _ in scores), _megabytes(row)] for row in rows],
    }


def cells(row: JsonMapping) -> list[str]:
    """Name and figures of a row as text; the objective with the digits that tell methods apart."""
    iterations = None if row["iterations"] in (None, 1) else row["iterations"]
    return [
        str(row["method"]),
        number(row["seconds"], 2),
        "–" if iterations is None else f"{iterations:,}",
        number(row["passes"], 1),
        number(row["objective"], 5),
        "–" if row["angle"] is None else f"{row['angle']:.1e}",
    ]


def _verdicts(rows: Rows) -> JsonObject:
    return {
        "caption": "Certificates",
        "columns": ["method", "certificate", "remark"],
        "rows": [[str(r["method"]), r["certificate"] or "no result", r["error"] or ""] for r in rows],
    }


def _megabytes(row: JsonMapping) -> str:
    size = row["peak_memory_bytes"]
    return number(None if size is None else size / 1e6, 0)


def draw_comparison(rows: Rows) -> bytes:
    """Objective above the best, and NMI where classes are known, against seconds: a PNG."""
    from matplotlib.figure import Figure

    drawn = [row for row in rows if row["history"]]
    scored = any(point["nmi"] is not None for row in drawn for point in row["history"])
    figure = Figure(figsize=(13.5 if scored else 8.5, 5.6), dpi=130, layout="constrained")
    axes = figure.subplots(1, 2 if scored else 1, squeeze=False)[0]
    _draw_objective(axes[0], drawn)
    if scored:
        _draw_nmi(axes[1], drawn)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def _draw_objective(axis: Axes, rows: Rows) -> None:
    best = min((point["objective"] for row in rows for point in row["history"]), default=0.0)
    floor = ROUNDING * max(abs(best), 1.0)
    for rank, row in enumerate(rows):
        gaps = [max(point["objective"] - best, floor) for point in row["history"]]
        axis.plot(_seconds(row["history"]), gaps, **_style(rank, row))
    axis.set_yscale("log")
    axis.set_title("Objective above the best found", fontsize=11, color=INK)
    axis.set_ylabel("objective $-$ best", color=SOFT)
    _frame(axis)


def _draw_nmi(axis: Axes, rows: Rows) -> None:
    for rank, row in enumerate(rows):
        points = [point for point in row["history"] if point["nmi"] is not None]
        axis.plot(_seconds(points), [point["nmi"] for point in points], **_style(rank, row))
    axis.set_ylim(0, 1.02)
    axis.set_title("NMI with the known classes", fontsize=11, color=INK)
    axis.set_ylabel("NMI", color=SOFT)
    _frame(axis)


def _seconds(points: Sequence[JsonMapping]) -> Any:
    return np.maximum([point["seconds"] for point in points], 1e-3)


def _style(rank: int, row: JsonMapping) -> JsonObject:
    """A line, or a diamond for a direct method, which has a single moment."""
    direct = len(row["history"]) == 1
    return {
        "color": COLOURS[rank % len(COLOURS)],
        "linestyle": DASHES[rank // len(COLOURS) % len(DASHES)],
        "marker": "D" if direct else "o",
        "markersize": 7 if direct else 3,
        "label": row["method"],
    }


def _frame(axis: Axes) -> None:
    from matplotlib.ticker import NullFormatter

    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("seconds (without measuring and compiling)", color=SOFT)
    axis.grid(True, which="major", color=GRID)
    axis.tick_params(colors=SOFT, labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
