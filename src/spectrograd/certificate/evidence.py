"""What is known of the eigenvectors that a solver did not return, and with which odds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.operators.protocol import Operator, OperatorOfSeveral
from spectrograd.operators.sparse import SparseOperator

Array = NDArray[Any]

GOOD_ANGLE = 0.03  # what clustering needs: beyond it labels no longer change
LIKELY_MISS = 1e-3
ENOUGH = LIKELY_MISS / 2
LEAST_PART, MOST_PART = 0.05, 0.5  # of the gap: where tau may lie
# Cells of the spectrum's width into which eigenvalues are sorted before they enter a seed, and where cells
# begin: eigenvalues of graphs are often round numbers, and none of those is to lie on an edge of a cell.
CELLS, FIRST_EDGE = 1024, (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class Complement:
    """What lies outside the found subspace; this one knows it.

    ``lowest`` is the smallest eigenvalue there (or Ritz value, where it is not known), ``columns`` the cost,
    in products of the operator with single columns, and nothing lies below ``sure`` (None: ``lowest``).
    """

    lowest: float
    columns: int = 0
    sure: float | None = None

    def odds_below(self, tau: float) -> float:
        """The chance of evidence this good if an eigenvector with eigenvalue below ``tau`` was missed."""
        return 0.0 if tau < (self.lowest if self.sure is None else self.sure) else 1.0

    def farthest(self, top: float) -> float:
        """How far above the last value found, ``top``, the evidence may be taken to reach: half way."""
        return top + MOST_PART * max(self.lowest - top, 0.0)


def needed_cut(top: float, lowest: float, residual: float) -> float:
    """``tau`` between the last value found and the lowest outside: so far must the evidence reach.

    By Davis and Kahan ``residual / (tau - top)`` bounds the sine that should be good; tau is no higher
    than that takes, since evidence is cheaper the farther it stays from ``lowest``.
    """
    gap = max(lowest - top, 0.0)
    return top + float(np.clip(residual / (0.99 * GOOD_ANGLE), LEAST_PART * gap, MOST_PART * gap))


def probe_seed(seed: int, operator: Operator, values: Array | None = None) -> int:
    """The seed of a probe's random numbers: of the user's number, the graph and the eigenvalues found.

    With the user's number alone every graph of N nodes would meet the same random vector, each update of a
    model as well, and a vector that it is blind for would stay hidden. Degrees are those of the graph,
    whatever engine or number of threads is at work, relative to the largest and in float32. Eigenvalues do
    differ in their last digits from one engine to the other, so that only the cell of each, a thousandth of
    the width of the spectrum, is taken: engines draw the same numbers unless a value lies within its own
    rounding error of an edge.
    """
    digest = hashlib.blake2b(np.int64(seed).tobytes() + np.int64(operator.n_nodes).tobytes(), digest_size=8)
    for degrees in _degrees(operator):
        largest = float(degrees.max(initial=0.0)) or 1.0
        digest.update((degrees / largest).astype("<f4").tobytes())
    if values is not None:
        part = (np.asarray(values, dtype=np.float64) - operator.lower) / (operator.upper - operator.lower)
        digest.update(np.floor(CELLS * part + FIRST_EDGE).astype("<i8").tobytes())
    return int.from_bytes(digest.digest(), "little") >> 2


def _degrees(operator: Operator) -> Iterator[Array]:
    if isinstance(operator, SparseOperator):
        yield operator.graph.degrees
    elif isinstance(operator, OperatorOfSeveral):
        for own in operator.operators:
            yield from _degrees(own)
