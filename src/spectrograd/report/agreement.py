"""How far layers, and what they were merged into, see the same clusters: overlaps of their subspaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
INK, SOFT = "#1d2430", "#5b6675"
MOST_NUMBERS = 12  # rows up to which every cell shows its number
LONGEST_NAME = 14


@dataclass(frozen=True, eq=False)
class Agreement:
    """Pairwise overlaps ``|U' V|^2 / min(K_u, K_v)``: 1 is the same subspace, 0 an orthogonal one."""

    names: tuple[str, ...]
    overlaps: Array

    @classmethod
    def of(cls, embeddings: Sequence[Array], names: Sequence[str]) -> Agreement:
        """Of orthonormal bases, in their order."""
        widths = np.array([max(1, U.shape[1]) for U in embeddings])
        shared = np.array([[float(np.sum((U.T @ V) ** 2)) for V in embeddings] for U in embeddings])
        return cls(tuple(names), np.clip(shared / np.minimum.outer(widths, widths), 0.0, 1.0))


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
    axis.set_title("Agreement: shared part of the subspaces", fontsize=11, color=INK)
    if size > MOST_NUMBERS:
        return
    for row, values in enumerate(agreement.overlaps):
        for column, value in enumerate(values):
            colour = "white" if value > 0.6 else INK
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
