"""The rows as blocks of the page: one table per family, a summary, and predicted seconds beside real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import table
from benchmarks.public.cases import FAMILIES

Row = dict[str, Any]
TITLES = {
    "embedding": "Single graphs, embedding",
    "labels": "Single graphs, labels",
    "small": "100 to 5,000 nodes, embedding",
    "small-labels": "100 to 5,000 nodes, labels",
    "large": "10 million edges, embedding",
    "layers": "Layers to labels",
    "points": "Points to labels",
}
HEAD = """Every graph of a folder of public data (`SPECTROGRAD_DATA`), scikit-learn's sets and made graphs,
with the same number of threads for all. Ours is the estimator with its defaults, certificate included;
peers are `eigsh` on `D^-1/2 W D^-1/2`, `eigsh` on a sparse factor, and `lobpcg`, each at the loosest of
three tolerances whose span is within a sine of .03 of the exact one (or of ours, where no gap determines
it), with ten starts of scikit-learn's k-means for labels that are as good. Where our default regularises a
graph, peers solve the same operator. Ratios are CPU seconds of the fastest such peer over ours; the first
call on a graph, which compiles or loads kernels, is not counted."""
PREDICTED_FROM = 0.02  # seconds: shorter runs are mostly fixed costs


def pages(rows: list[Row]) -> dict[str, str]:
    """The block of all families, and that of predicted seconds."""
    parts = ["## Public data against the best peers", HEAD]
    for threads in sorted({row["threads"] for row in rows}):
        part = [row for row in rows if row["threads"] == threads]
        parts += [f"### {threads} thread{'s' if threads > 1 else ''}", _summary(part)]
        for family in FAMILIES:
            inside = [row for row in part if row["family"] == family]
            if inside:
                parts += [f"#### {TITLES[family]}", _table(inside)]
    return {"public": "\n\n".join(parts), "public-predicted": _predicted(rows)}


def _mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")


def _summary(rows: list[Row]) -> str:
    lines = []
    for family in FAMILIES:
        inside = [row for row in rows if row["family"] == family and row["ratio"]]
        if not inside:
            continue
        worst = min(inside, key=lambda row: row["ratio"])
        lines.append(
            (
                TITLES[family],
                f"{_mean([row['ratio'] for row in inside]):.2f}x",
                f"{_mean([row['wall_ratio'] for row in inside]):.2f}x",
                f"{sum(row['ratio'] > 1 for row in inside)} of {len(inside)}",
                f"{worst['ratio']:.2f}x ({worst['graph']}, K={worst['k']})",
            )
        )
    header = ("family", "ratio (CPU)", "ratio (wall)", "we are faster on", "worst row")
    return table(header, lines)


def _table(rows: list[Row]) -> str:
    header = ("graph", "nodes", "edges", "K", "ours s", "by", "best peer", "s", "ratio", "quality")
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    ours = row["ours"]
    best = row["peers"].get(row["best"])
    size = [f"{row['nodes']:,}", f"{row['edges']:,}" if row["edges"] else "-", str(row["k"])]
    tau = f", tau {ours['tau']:g}" if ours.get("tau") else ""
    certified = "" if ours.get("converged", True) else ", not certified"
    if ours.get("determined"):
        certified = f", {ours['determined']} determined"
    quality = "-"
    if "sine" in ours:
        quality = f"{ours['sine']:.1g} / {best['sine']:.1g}" if best else f"{ours['sine']:.1g}"
    elif "nmi" in ours:
        quality = f"{ours['nmi']:.3f} / {best['nmi']:.3f}" if best else f"{ours['nmi']:.3f}"
    peer = (row["best"], _seconds(best["cpu"]), f"{row['ratio']:.2f}x") if best else ("none", "-", "-")
    by = f"{ours.get('solver', '')}{tau}{certified}"
    return [row["graph"], *size, _seconds(ours["cpu"]), by, *peer, quality]


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _predicted(rows: list[Row]) -> str:
    """Predicted against real seconds of embeddings by one solver on one thread."""
    lines = []
    for row in rows:
        ours = row["ours"]
        one = ours.get("attempts") == 1 and row["threads"] == 1 and row["family"] in ("embedding", "large")
        if one and ours.get("predicted") and ours["cpu"] > PREDICTED_FROM:
            ratio = ours["predicted"] / ours["cpu"]
            times = (f"{ours['predicted']:.3f}", f"{ours['cpu']:.3f}", f"{ratio:.2f}")
            lines.append((row["graph"], str(row["k"]), ours["solver"], *times))
    near = sum(1 / 3 <= float(line[-1]) <= 3 for line in lines)
    text = f"Of {len(lines)} embeddings that one solver finished, {near} took what was predicted within 3x."
    return f"{text}\n\n" + table(("graph", "K", "solver", "predicted s", "CPU s", "ratio"), lines)
