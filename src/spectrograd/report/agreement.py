"""How far layers, and what they were merged into, see the same clusters: overlaps of their subspaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
INK, SOFT = "#1d2430", "#5b6675"
MOST_NUMBERS = 12  # rows up to which every cell shows its number
LONGEST_NAME = 14


@dataclass(frozen=True, eq=False)
class Agreement:
    """Pairwise overlaps of subspaces: 1 is the same, 0 what chance gives."""

    names: tuple[str, ...]
    overlaps: Array


def draw_agreement(axis: Any, agreement: Agreement) -> None:
    """A square of numbers, darker where two subspaces share more."""
    size = len(agreement.names)
    axis.imshow(agreement.overlaps, cmap="Blues", vmin=0, vmax=1)
    shown = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in agreement.names
    ]
    axis.set_xticks(range(size), shown, rotation=40 if max(map(len, shown)) > 4 else 0, ha="center")
    axis.set_yticks(range(size), shown)
    axis.tick_params(colors=SOFT, labelsize=8, length=0)
    axis.spines[:].set_visible(False)
    axis.set_title("Agreement of the subspaces", fontsize=11, color=INK)
    if size > MOST_NUMBERS:
        return
    for row, values in enumerate(agreement.overlaps):
        for column, value in enumerate(values):
            colour = "white" if value > 0.6 else INK
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
