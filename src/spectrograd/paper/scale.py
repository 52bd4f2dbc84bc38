"""Table 1's data against N: quality and time of the paper's methods and of the unbiased one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spectrograd.paper.setting import EIGEN, FB, PRINTED, UNBIASED, Score, over_seeds, spread

FIRST_SIZE = 10_000  # nodes
LARGEST_SIZE = 100_000  # nodes, unless more are asked for
FB_LARGEST_SIZE = 100_000  # 3,000 QR factorisations of all rows: beyond, it alone takes the time of all
SIZES = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def over_sizes(largest: int, seeds: Sequence[int]) -> dict[int, dict[str, list[Score]]]:
    """Scores of the paper's methods and of the unbiased one on its data, by number of nodes and method."""
    sizes = [size for size in SIZES if min(FIRST_SIZE, largest) <= size <= largest] or [largest]
    scores: dict[int, dict[str, list[Score]]] = {}
    for size in sizes:
        methods = [EIGEN, FB, PRINTED, UNBIASED]
        if size > FB_LARGEST_SIZE:
            methods.remove(FB)
        scores[size] = over_seeds(size, seeds, methods)
    return scores


def draw(scores: Mapping[int, Mapping[str, list[Score]]], path: Path) -> None:
    """Draw NMI and seconds against N; ``scores`` are those of :func:`over_sizes`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    for axes, key, title in zip(panels, ("nmi", "seconds"), ("NMI", "seconds"), strict=True):
        for name in dict.fromkeys(name for row in scores.values() for name in row):
            points = [(n, *spread(row[name], key)) for n, row in scores.items() if name in row]
            x, mean, error = zip(*points, strict=True)
            axes.errorbar(x, mean, error, marker="o", capsize=2, label=name)
        axes.set(xscale="log", xlabel="nodes", title=title)
        axes.grid(alpha=0.25)
    panels[1].set_yscale("log")
    panels[0].legend(fontsize=7, frameon=False, loc="lower left")
    figure.savefig(path, dpi=130)
