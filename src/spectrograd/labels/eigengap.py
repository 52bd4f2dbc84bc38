"""The number of clusters by the eigengap: eigenvalues before the largest jump, and whether it is clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import Graph, GraphWarning
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind, form_of
from spectrograd.typing import Array, JsonObject

FIRST_MAX_CLUSTERS = 20  # largest number looked for at first
MAX_CLUSTERS = 60  # largest number looked for where the first eigenvalues do not decide, in memory
GAP_POWER = 0.75  # of the eigenvalue above a gap: half-way between the growth of a curve's gaps and ratios
RIVAL_SHARE = 0.75  # of the best jump that makes another number a rival
MAX_SHOWN_RIVALS = 5
# When a number is clear: chosen such that on 97 graphs of a known number no wrong one is called clear. On 91
# other graphs, real ones among them that were not all held back, 43 were, and one of them wrongly
# (``python -m benchmarks number_of_clusters``).
MIN_VALUES_BEYOND = 8  # eigenvalues after the gap that say how they go on
MIN_BLOCK_GAP = 1.0  # of block models: the gap, in units of the rise of the eigenvalues after it
MIN_EDGE_SHARE = 0.6  # ... and the first eigenvalue after it, in units of the edge of the null's bulk
MIN_EDGE = 0.25  # an edge so low says nothing: the graph is too sparse
MIN_RATIO = 3.0  # of geometric graphs: eigenvalues after and before the gap
MIN_GEOMETRIC_GAP = 0.4
MIN_GAP_TIMES_RATIO = 4.5


@dataclass(frozen=True, eq=False)
class Eigengap:
    """The data of the eigengap plot, and the number of clusters that the eigenvalues speak for.

    Attributes
    ----------
    n_clusters : int
        The number before the largest jump.
    eigenvalues : array of shape (m,)
    gaps : array of shape (m - 1,)
        ``gaps[i]`` is the gap after ``i + 1`` clusters, ``eigenvalues[i + 1] - eigenvalues[i]``.
    jumps : array of shape (m - 1,)
        Gaps over a power of the upper eigenvalue: the quantity that is compared.
    bulk_edge : float or None
        Where the eigenvalues of a random graph with as many edges begin; None where that is not known.
    has_pieces : bool
        Whether an eigenvector before the gap lives on a tiny part of the graph: then a piece is counted as a
        cluster, and the number is not clear.
    """

    n_clusters: int
    eigenvalues: Array
    gaps: Array
    jumps: Array
    bulk_edge: float | None = None
    has_pieces: bool = False

    @property
    def runners_up(self) -> tuple[int, ...]:
        """The numbers with the next largest jumps, best first; at most two."""
        ranked = 2 + np.argsort(-self.jumps[1:], kind="stable")
        return tuple(int(number) for number in ranked if number != self.n_clusters)[:2]

    @property
    def runners_up_text(self) -> str:
        """The runners-up in words."""
        return ", ".join(map(str, self.runners_up)) or "none"

    @property
    def candidates(self) -> tuple[int, ...]:
        """The number taken and those whose jumps are nearly as large, best first."""
        jumps = self.jumps[1:]
        ranked = np.argsort(-jumps, kind="stable")
        return tuple(int(2 + place) for place in ranked if jumps[place] >= RIVAL_SHARE * jumps.max())

    @property
    def ambiguous(self) -> bool:
        """Whether other numbers are nearly as good."""
        return len(self.candidates) > 1

    @property
    def clear(self) -> bool:
        """Whether the eigenvalues decide: no rival, and a jump that is large for how they go on after it.

        Either the eigenvalues after the gap are those of noise (a block model): they begin near the edge of
        the bulk of a random graph and rise by less than the gap. Or they are several times as large as those
        before it (geometric graphs, whose eigenvalues have no bulk).
        """
        k = self.n_clusters
        if self.has_pieces or self.ambiguous or len(self.eigenvalues) - k - 1 < MIN_VALUES_BEYOND:
            return False
        gap = self._relative_gap
        ratio = self._ratio
        edge = self.bulk_edge
        begins_at_edge = edge is not None and edge > 0 and self.eigenvalues[k] > MIN_EDGE_SHARE * edge
        if begins_at_edge and gap > MIN_BLOCK_GAP:
            return True
        return ratio > MIN_RATIO and gap > MIN_GEOMETRIC_GAP and gap * ratio > MIN_GAP_TIMES_RATIO

    @property
    def _relative_gap(self) -> float:
        """The gap in units of the rise of the next k + 10 eigenvalues; infinite where they are all equal."""
        k = self.n_clusters
        last = min(2 * k + 10, len(self.eigenvalues)) - 1
        rise = float(self.eigenvalues[last] - self.eigenvalues[k])
        return float(self.gaps[k - 1]) / rise if rise > 0 else np.inf

    @property
    def _ratio(self) -> float:
        below = self.eigenvalues[self.n_clusters - 1]
        above = self.eigenvalues[self.n_clusters]
        return float(above / below) if below > 0 else np.inf

    @property
    def asks_for_more(self) -> bool:
        """Whether a larger number may be the clear one: no number is, and no bulk has begun."""
        return not self.clear and (self.bulk_edge is None or bool(self.eigenvalues[-1] < self.bulk_edge))

    @property
    def sentence(self) -> str:
        """The number and whether it is clear, in words."""
        k = self.n_clusters
        if self.clear:
            return f"{k} clusters, a clear number: the eigenvalues jump after them, and not elsewhere"
        if self.ambiguous:
            others = self.candidates[1:]
            nearly = ", ".join(map(str, others[:MAX_SHOWN_RIVALS]))
            nearly += ", ..." if len(others) > MAX_SHOWN_RIVALS else ""
            taken = f"no clear number: {k} clusters were taken"
            return f"{taken}, but the eigenvalues speak nearly as well for {nearly}"
        if self.has_pieces:
            taken = f"no clear number: {k} clusters were taken"
            return f"{taken}, but the eigenvalues count pieces that hang on the rest by few edges"
        return (
            f"no clear number: {k} clusters were taken, but the eigenvalues go on rising after their largest "
            f"jump (looked for up to {len(self.eigenvalues) - 1} clusters)"
        )

    def warn(self) -> None:
        """Warn where the number is not clear."""
        if not self.clear:
            warn(
                f"{self.sentence}; look at the eigengap, and choose the number by what is known of the data",
                GraphWarning,
            )

    def summary(self) -> JsonObject:
        """The entries of ``--summary-json``."""
        return {
            "eigenvalues": self.eigenvalues,
            "gaps": self.gaps,
            "jumps": self.jumps,
            "candidates": self.candidates,
            "clear": self.clear,
            "sentence": self.sentence,
        }


def n_eigenvalues(n_nodes: int) -> int:
    """Number of eigenvalues for the first look: one more than the largest number of clusters."""
    return min(FIRST_MAX_CLUSTERS + 1, n_nodes - 1)


def n_more_eigenvalues(n_nodes: int) -> int:
    """Number of eigenvalues for the second look; that of the first where the graph is too small."""
    return max(n_eigenvalues(n_nodes), min(MAX_CLUSTERS + 1, n_nodes // 4))


def bulk_edge(layers: Sequence[Graph], kind: Kind = "random_walk", tau: float = 0.0) -> float | None:
    """The eigenvalue at which the bulk of a random graph (or sum of layers) with as many edges begins.

    The semicircle of random graphs with given degrees (Chung, Lu and Vu 2003): eigenvalues of the normalised
    Laplacian are those of noise from ``1 - 2 / sqrt(d)`` on, d the mean number of neighbours. Weights make it
    lower, so that a number is called clear too rarely rather than too often. None for graphs too sparse.

    Parameters
    ----------
    layers
        One graph, or the layers whose Laplacians are added up.
    kind
        Which Laplacian; the eigenvalues of an unnormalised one are in units of the mean degree.
    tau
        Regularisation, in units of the mean degree.

    Examples
    --------
    >>> node = np.repeat(np.arange(100), 8)
    >>> ring = Graph.from_edges(node, (node + np.tile(np.arange(1, 9), 100)) % 100)  # 16 neighbours each
    >>> bulk_edge([ring])
    0.5
    """
    if form_of(kind) == "unnormalized":
        units = [float(layer.degrees.mean()) for layer in layers]
    else:
        units = [1.0] * len(layers)
    largest = max(units)  # whose square may be out of range
    scale = radius = 0.0
    for layer, degree in zip(layers, units, strict=True):
        unit = degree / largest
        # an unweighted count: weights would only widen the bulk
        neighbours = 2 * layer.n_edges / layer.n_nodes
        scale += unit
        radius += unit**2 / max(neighbours, 1.0)
    # independent layers: radii of semicircles add up as squares
    edge = scale - 2 * float(np.sqrt(radius)) / (1 + tau)
    return largest * edge if edge > MIN_EDGE * scale else None


def widest_gap(eigenvalues: ArrayLike, edge: float | None = None) -> Eigengap:
    """The number of clusters (at least 2) after which the eigenvalues jump most.

    A gap is compared in units of ``lambda^(3/4)`` above it. On block models eigenvalues of clusters
    and bulk have the same size and any unit will do. On geometric graphs eigenvalues grow steadily, in the
    gaps of a curve like ``lambda^(1/2)`` (Weyl's law): in smaller units the largest gap is an accident far
    up, in units of ``lambda`` itself it is one far down.

    Parameters
    ----------
    eigenvalues : array of shape (m,)
        The smallest ones, ascending.
    edge : float or None
        :func:`bulk_edge` of the graph.

    Examples
    --------
    >>> widest_gap([0.0, 0.1, 0.12, 0.5, 0.53]).n_clusters
    3
    """
    values = np.maximum(np.asarray(eigenvalues, dtype=np.float64), 0.0)
    gaps = np.diff(values)
    above = values[1:] ** GAP_POWER
    jumps = np.divide(gaps, above, out=np.zeros_like(gaps), where=above > 0)
    if len(jumps) < 2:
        raise ValueError(f"n_clusters='auto' needs at least 3 eigenvalues, the graph gave {len(values)}")
    return Eigengap(2 + int(np.argmax(jumps[1:])), values, gaps, jumps, edge)
