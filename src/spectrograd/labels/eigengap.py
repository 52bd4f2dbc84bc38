"""How many clusters? As many as there are eigenvalues before the largest jump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import GraphWarning
from spectrograd.notices import warn
from spectrograd.typing import Array

MOST = 20  # clusters looked for
POWER = 0.75  # of the eigenvalue above a gap: half-way between the growth of a curve's gaps and ratios
CLOSE = 0.75  # of the best jump: on twenty sets every number without a rival so near was right
SHOWN = 5  # candidates in a message


@dataclass(frozen=True, eq=False)
class Eigengap:
    """The data of the eigengap plot, and the number of clusters it tells.

    ``gaps[i]`` is the gap after ``i + 1`` clusters, ``eigenvalues[i + 1] - eigenvalues[i]``, and
    ``jumps[i]`` the same over a power of the upper eigenvalue, which is what is compared.
    """

    n_clusters: int
    eigenvalues: Array
    gaps: Array
    jumps: Array

    @property
    def runners_up(self) -> tuple[int, ...]:
        """The numbers with the next largest jumps, best first; at most two."""
        ranked = 2 + np.argsort(-self.jumps[1:], kind="stable")
        return tuple(int(number) for number in ranked if number != self.n_clusters)[:2]

    @property
    def runners_up_text(self) -> str:
        """The same in words."""
        return ", ".join(map(str, self.runners_up)) or "none"

    @property
    def candidates(self) -> tuple[int, ...]:
        """The number taken and those whose jumps are nearly as large, best first."""
        jumps = self.jumps[1:]
        ranked = np.argsort(-jumps, kind="stable")
        return tuple(int(2 + place) for place in ranked if jumps[place] >= CLOSE * jumps.max())

    @property
    def ambiguous(self) -> bool:
        """Whether other numbers are nearly as good."""
        return len(self.candidates) > 1

    def warn(self) -> None:
        """Say so where the number is ambiguous."""
        if self.ambiguous:
            taken, *others = self.candidates
            nearly = ", ".join(map(str, others[:SHOWN])) + (", ..." if len(others) > SHOWN else "")
            warn(
                f"{taken} clusters were taken, but the eigenvalues speak nearly as well for {nearly}; look "
                "at the eigengap, and choose the number by what is known of the data",
                GraphWarning,
            )

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        return {
            "eigenvalues": self.eigenvalues,
            "gaps": self.gaps,
            "jumps": self.jumps,
            "candidates": self.candidates,
        }


def n_eigenvalues(n_nodes: int) -> int:
    """How many eigenvalues the choice needs: one more than the most clusters looked for."""
    return min(MOST + 1, n_nodes - 1)


def widest_gap(eigenvalues: ArrayLike) -> Eigengap:
    """The number of clusters (at least 2) after which the eigenvalues jump most.

    A gap is compared in units of ``lambda^(3/4)`` above it. On block models eigenvalues of clusters
    and bulk have the same size and any unit will do. On geometric graphs eigenvalues grow steadily, in the
    gaps of a curve like ``lambda^(1/2)`` (Weyl's law): in smaller units the largest gap is an accident far
    up, in units of ``lambda`` itself it is one far down.

    Examples
    --------
    >>> widest_gap([0.0, 0.1, 0.12, 0.5, 0.53]).n_clusters
    3
    """
    values = np.maximum(np.asarray(eigenvalues, dtype=np.float64), 0.0)
    gaps = np.diff(values)
    above = values[1:] ** POWER
    jumps = np.divide(gaps, above, out=np.zeros_like(gaps), where=above > 0)
    if len(jumps) < 2:
        raise ValueError(f"n_clusters='auto' needs at least 3 eigenvalues, the graph gave {len(values)}")
    return Eigengap(2 + int(np.argmax(jumps[1:])), values, gaps, jumps)
