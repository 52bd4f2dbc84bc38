"""Table 1 in the paper's own setting: over seeds, what it leaves open, its claims, up in N with a picture."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from benchmarks.blocks import ROOT
from benchmarks.harness import table
from spectrograd.paper.scale import draw, over_sizes
from spectrograd.paper.setting import CLAIMS, METHODS, Score, over_readings, over_seeds, spread

NODES = 10_000
# SPECTROGRAD_LARGEST=1000000 takes the last study there, in an hour or so.
LARGEST = int(os.environ.get("SPECTROGRAD_LARGEST", 100_000))
PICTURE = ROOT / "docs" / "images" / "paper-scale.png"


def run() -> dict[str, str]:
    return {"paper-seeds": seeds(), "paper-ablation": ablation(), "paper-scale": scale()}


def seeds(of: Sequence[int] = range(8)) -> str:
    found = over_seeds(NODES, of, METHODS)
    text = (
        f"Table 1 in the paper's own setting, {NODES:,} nodes, {len(of)} seeds: mean (standard deviation)\n\n"
    )
    rows = [[name, *cells(scores)] for name, scores in found.items()]
    paper = [
        ["*paper:* eigendecomposition", "36.3", ".93", ".83", ".85"],
        ["*paper:* stochastic FB", "22.8", ".94", ".84", ".86"],
        ["*paper:* proposed", "5.2", ".92", ".79", ".82"],
    ]
    return text + table(["method", "seconds", "purity", "NMI", "ARI"], rows + paper)


def ablation(of: Sequence[int] = range(3)) -> str:
    readings = over_readings(NODES, of)
    methods = list(next(iter(readings.values())))
    rows = [[name, *(cell(row[method], "nmi") for method in methods)] for name, row in readings.items()]
    text = f"What the paper leaves open, {NODES:,} nodes, {len(of)} seeds: NMI, mean (deviation)\n\n"
    text += table(["reading", *methods], rows)
    claims = over_seeds(NODES, of, CLAIMS)
    text += "\n\nIts claims: batch size is critical, batches are drawn anew, speed against accuracy\n\n"
    rows = [[name, *cells(scores)] for name, scores in claims.items()]
    return text + table(["batches", "seconds", "purity", "NMI", "ARI"], rows)


def scale(of: Sequence[int] = (0,)) -> str:
    found = over_sizes(LARGEST, of)
    draw(found, PICTURE)
    rows = [
        [f"{n:,}", name, f"{spread(scores, 'seconds')[0]:.2f}", f"{spread(scores, 'nmi')[0]:.3f}"]
        for n, row in found.items()
        for name, scores in row.items()
    ]
    return "Table 1's data against N, seed 0:\n\n" + table(["nodes", "method", "seconds", "NMI"], rows)


def cells(scores: Iterable[Score]) -> list[str]:
    return [cell(scores, key) for key in ("seconds", "purity", "nmi", "ari")]


def cell(scores: Iterable[Score], key: str) -> str:
    mean, deviation = spread(scores, key)
    return f"{mean:.2f}" if key == "seconds" else f"{mean:.3f} ({deviation:.3f})"
