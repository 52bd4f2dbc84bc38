"""The page of ``compare``: which solver to take, a table of all, objective and NMI against time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
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
# Okabe & Ito, then the same dashed: distinct with any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", INK)
DASHES = {"solid": "-", "dashed": "--", "dotted": ":"}  # by their names in CSS
# Colours of a picture that follow the theme of the page.
THEME = {INK: "var(--ink)", SOFT: "var(--soft)", GRID: "var(--line)"}
# Gaps below this fraction of the objective are rounding.
ROUNDING = 1e-12


def compare_document(graph: Graph | MultilayerGraph, rows: Rows, *, run: JsonMapping) -> JsonObject:
    """What the page says, in plain values; solvers that reached the accuracy come first, quick ones before.

    Parameters
    ----------
    graph, rows
        The data, and the rows of :func:`spectrograd.pipeline.compare.compare`.
    run
        ``command``, ``seed``, ``time_budget`` and ``versions``.
    """
    rows = in_order(rows)
    facts = {"seed": run["seed"], "seconds per solver": run["time_budget"], **run["versions"]}
    return {
        "title": "spectrograd compare",
        "lead": (
            f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges; every solver on the same operator, each "
            "under the same budget. Times exclude measuring and compiling. The angle is the largest one to "
            "the converged result of least objective; memory is what the solver added."
        ),
        "advice": advice(rows),
        "good": any(row["converged"] for row in rows),
        "pictures": draw_comparison(rows),
        "legend": [[str(row["method"]), *_line(rank)] for rank, row in enumerate(rows)],
        "tables": [_figures(rows), _verdicts(rows)],
        "facts": [[name, str(value)] for name, value in facts.items()],
        "command": str(run["command"]),
    }


def in_order(rows: Rows) -> list[JsonMapping]:
    """Those that reached the accuracy by their seconds, then those that did not by their angle."""

    def rank(row: JsonMapping) -> tuple[bool, float]:
        key = row["seconds"] if row["converged"] else row["angle"]
        return not row["converged"], float("inf") if key is None else float(key)

    return sorted(rows, key=rank)


def advice(rows: Rows) -> str:
    """Which solver to take: the quickest of those that reached the accuracy; ``rows`` are in order."""
    good = [row for row in rows if row["converged"]]
    if not good:
        nearest = next((row["method"] for row in rows if row["angle"] is not None), None)
        hint = "" if nearest is None else f" The smallest angle is that of {nearest}."
        return f"None of {len(rows)} solvers reached the accuracy asked for: give them more time.{hint}"
    best = good[0]
    scores = [row["nmi"] for row in rows if row["nmi"] is not None]
    better = max(scores, default=0.0) - (best["nmi"] or 0.0) > 0.01 if scores else False
    note = " Others have a higher NMI." if better else ""
    return (
        f"Take {best['method']}: with {best['seconds']:.2g} s the quickest of the {len(good)} of {len(rows)} "
        f"that reached the accuracy asked for.{note}"
    )


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
        number(row["seconds"], 3),
        "–" if iterations is None else f"{iterations:,}",
        number(row["passes"], 1),
        number(row["objective"], 5),
        "–" if row["angle"] is None else f"{row['angle']:.1e}",
    ]


def _verdicts(rows: Rows) -> JsonObject:
    table = [[str(row["method"]), row["certificate"] or "no result", row["error"] or ""] for row in rows]
    remarks = any(remark for *_, remark in table)
    return {
        "caption": "Certificates",
        "columns": ["method", "certificate", "remark"][: 2 + remarks],
        "rows": [cells[: 2 + remarks] for cells in table],
    }


def _megabytes(row: JsonMapping) -> str:
    size = row["peak_memory_bytes"]
    return number(None if size is None else size / 1e6, 0)


def draw_comparison(rows: Rows) -> list[str]:
    """Objective above the best, and NMI where classes are known, against seconds: elements ``svg``.

    The curve of row i has the class ``curve-i`` in each.
    """
    scored = any(point["nmi"] is not None for row in rows for point in row["history"] or ())
    return [_svg(draw, rows) for draw in (_draw_objective, _draw_nmi)[: 1 + scored]]


def _svg(draw: Callable[[Axes, Rows], None], rows: Rows) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.8), layout="constrained")
    draw(figure.subplots(), rows)
    buffer = io.StringIO()
    plain = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": draw.__name__}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=plain)
    text = buffer.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])
    for colour, variable in THEME.items():
        text = text.replace(colour, variable)
    return re.sub(r'id="(curve-\d+)"', r'class="curve \1"', text)


def _draw_objective(axis: Axes, rows: Rows) -> None:
    best = min((point["objective"] for row in rows for point in row["history"] or ()), default=0.0)
    floor = ROUNDING * max(abs(best), 1.0)
    for rank, row in enumerate(rows):
        if not row["history"]:
            continue
        gaps = [max(point["objective"] - best, floor) for point in row["history"]]
        axis.plot(_seconds(row["history"]), gaps, **_style(rank, row))
    axis.set_yscale("log")
    axis.set_title("Objective above the best found", fontsize=10, color=INK)
    axis.set_ylabel("objective $-$ best", color=SOFT)
    _frame(axis)


def _draw_nmi(axis: Axes, rows: Rows) -> None:
    for rank, row in enumerate(rows):
        points = [point for point in row["history"] or () if point["nmi"] is not None]
        if not points:
            continue
        axis.plot(_seconds(points), [point["nmi"] for point in points], **_style(rank, row))
    axis.set_ylim(0, 1.02)
    axis.set_title("NMI with the known classes", fontsize=10, color=INK)
    axis.set_ylabel("NMI", color=SOFT)
    _frame(axis)


def _seconds(points: Sequence[JsonMapping]) -> Any:
    return np.maximum([point["seconds"] for point in points], 1e-3)


def _line(rank: int) -> tuple[str, str]:
    """Colour and dashes of a solver's curve, as CSS has them."""
    colour = COLOURS[rank % len(COLOURS)]
    return THEME.get(colour, colour), tuple(DASHES)[rank // len(COLOURS) % len(DASHES)]


def _style(rank: int, row: JsonMapping) -> JsonObject:
    """A line, or a diamond for a direct method, which has a single moment."""
    direct = len(row["history"]) == 1
    return {
        "color": COLOURS[rank % len(COLOURS)],
        "linestyle": DASHES[_line(rank)[1]],
        "marker": "D" if direct else "o",
        "markersize": 7 if direct else 3,
        "gid": f"curve-{rank}",
    }


def _frame(axis: Axes) -> None:
    from matplotlib.ticker import NullFormatter

    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("seconds (without measuring and compiling)", color=SOFT)
    axis.grid(True, which="major", color=GRID)
    axis.tick_params(which="both", colors=SOFT, labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axis.spines[side].set_color(SOFT)
