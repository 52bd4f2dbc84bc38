"""The pictures of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent.parent / "docs" / "images"
OURS, THEIRS, INK = "#1f5fbf", "#c8553d", "#333333"

Row = dict[str, Any]


def shootout_plot(verdicts: list[Row]) -> str:
    """How many times faster than the best peer of each graph; a path relative to the page."""
    figure, axes = _figure(0.32 * len(verdicts) + 1.4)
    shown = sorted((v for v in verdicts if v["ratio"]), key=lambda v: v["ratio"])
    at = np.arange(len(shown))
    for key, marker, label in (("ratio", "o", "embedding"), ("labelled", "D", "with labels")):
        values = [v[key] or np.nan for v in shown]
        colours = [OURS if value >= 1 else THEIRS for value in values]
        filled = colours if key == "ratio" else "none"
        axes.scatter(values, at, marker=marker, s=38, facecolors=filled, edgecolors=colours, zorder=3)
        axes.scatter(
            [], [], marker=marker, facecolors=INK if key == "ratio" else "none", edgecolors=INK, label=label
        )
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_yticks(at, [f"{v['name']} ({v['best']})" for v in shown], fontsize=8)
    axes.set_xlabel("times faster than the fastest peer of equal quality (its name in brackets)")
    axes.grid(axis="both", alpha=0.25)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    return _saved(figure, "shootout.png")


def growth_plot(found: dict[str, list[Row]]) -> str:
    """Seconds against nonzeros, both logarithmic, with the line of proportional growth."""
    figure, axes = _figure(4.2)
    for (family, runs), colour in zip(found.items(), (OURS, THEIRS), strict=False):
        done = [(r["nonzeros"], r["seconds"]) for r in runs if "seconds" in r]
        if not done:
            continue
        x, y = np.array(done).T
        axes.plot(x, y, "o-", color=colour, label=family, zorder=3)
        axes.plot(x, y[-1] * x / x[-1], ":", color=colour, linewidth=1)
    axes.plot([], [], ":", color=INK, linewidth=1, label="proportional")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nonzeros")
    axes.set_ylabel("seconds")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=9, frameon=False)
    return _saved(figure, "growth.png")


def _figure(height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.6, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _saved(figure: Any, name: str) -> str:
    from matplotlib import pyplot

    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / name, dpi=130)
    pyplot.close(figure)
    return f"images/{name}"
