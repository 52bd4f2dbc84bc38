"""Reviews to layers: one number per item and aspect, exact 5-NN graphs on each, rating classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.datasets.synthetic import LayeredData
from spectrograd.graph import GraphError, GraphWarning, MultilayerGraph
from spectrograd.notices import warn
from spectrograd.points.neighbors import knn_graph

Array = NDArray[Any]
SHOWN = 5
# Stars are given in halves: up to 2.5, 3 and 3.5, from 4.
LOW_BELOW, HIGH_FROM = 3.0, 4.0
CLASS_NAMES = ("low", "middle", "high")


@dataclass(eq=False)
class ReadingReport:
    """What happened while reading: nothing is dropped without being counted here."""

    n_reviews: int = 0
    n_broken: int = 0
    broken: list[str] = field(default_factory=list)  # the first few, with file and line
    n_unknown_items: int = 0
    n_empty_texts: int = 0
    n_unscored_texts: int = 0
    n_without_reviews: int = 0

    def broke(self, where: str) -> None:
        """Count a broken line and keep the first few for the message."""
        self.n_broken += 1
        if len(self.broken) < SHOWN:
            self.broken.append(where)

    def warn(self) -> None:
        """One warning for each kind of loss the user should know of."""
        losses = []
        if self.n_broken:
            losses.append(f"{self.n_broken} broken lines skipped ({'; '.join(self.broken)})")
        if self.n_unknown_items:
            losses.append(f"{self.n_unknown_items} reviews of unknown businesses skipped")
        if self.n_without_reviews:
            losses.append(f"{self.n_without_reviews} businesses without reviews left out")
        for loss in losses:
            warn(loss, GraphWarning)


@dataclass(frozen=True, eq=False)
class ReviewData(LayeredData):
    """Layers on items (``graph``), their rating classes (``labels``) and the numbers behind (``points``).

    ``ratings`` are the stars the classes come from; layer names are those of the aspects.
    """

    ratings: Array
    report: ReadingReport


class ItemSums:
    """Running sums per item while reviews stream by: memory grows with items, not with reviews."""

    def __init__(self, aspects: Sequence[str]) -> None:
        self.aspects = tuple(aspects)
        self._row: dict[str, int] = {}
        self._sums: list[list[float]] = []  # reviews, stars, stars known, polarity, texts scored, aspects

    def add(self, item: str, stars: float | None, votes: Sequence[float]) -> int:
        """One review without its text; returns the item's row."""
        row = self._row.setdefault(item, len(self._sums))
        if row == len(self._sums):
            self._sums.append([0.0] * (5 + len(self.aspects)))
        sums = self._sums[row]
        sums[0] += 1
        if stars is not None:
            sums[1] += stars
            sums[2] += 1
        for at, vote in enumerate(votes, start=5):
            sums[at] += vote
        return row

    def add_polarity(self, row: int, value: float) -> None:
        """The polarity of one text of an item."""
        self._sums[row][3] += value
        self._sums[row][4] += 1

    def table(self, min_reviews: int) -> tuple[Array, dict[str, Array], Array]:
        """Names, features and mean stars (NaN where unknown) of the items with enough reviews, by name."""
        sums = np.array(self._sums).reshape(len(self._sums), 5 + len(self.aspects))
        names = np.array(list(self._row))
        kept = np.flatnonzero(sums[:, 0] >= min_reviews)
        kept = kept[np.argsort(names[kept])] if len(kept) else kept
        names, sums = names[kept], sums[kept]
        stars = np.divide(sums[:, 1], sums[:, 2], out=np.full(len(sums), np.nan), where=sums[:, 2] > 0)
        # an item none of whose texts could be scored is neutral
        tone = np.divide(sums[:, 3], sums[:, 4], out=np.zeros(len(sums)), where=sums[:, 4] > 0)
        features = {"polarity": tone} | {name: sums[:, 5 + at] for at, name in enumerate(self.aspects)}
        return names, features, stars


def rating_classes(ratings: Array, rule: str = "stars") -> Array:
    """Three classes of ratings, 0 low, 1 middle, 2 high; -1 where the rating is unknown.

    ``"stars"``: below 3, from 3, from 4. ``"tertiles"``: thirds of the items, for ratings that are
    nearly all high; items with equal ratings share a class.

    Examples
    --------
    >>> rating_classes(np.array([1.0, 2.5, 3.0, 3.5, 4.0, np.nan])).tolist()
    [0, 0, 1, 1, 2, -1]
    """
    if rule not in ("stars", "tertiles"):
        raise ValueError(f"classes={rule!r}: expected 'stars' or 'tertiles'")
    known = np.isfinite(ratings)
    edges = (LOW_BELOW, HIGH_FROM)
    if rule == "tertiles" and known.any():
        edges = tuple(np.quantile(ratings[known], [1 / 3, 2 / 3]))
    classes = (ratings >= edges[0]).astype(int) + (ratings >= edges[1])
    return np.where(known, classes, -1)


def review_layers(names: Array, features: Mapping[str, Array], n_neighbors: int) -> MultilayerGraph:
    """One exact 1-D k-NN graph per feature, on items with names."""
    if len(names) <= n_neighbors:
        raise GraphError(
            f"{len(names)} items with reviews: {n_neighbors} neighbours each need at least {n_neighbors + 1}"
        )
    layers = {}
    for aspect, values in features.items():
        graph = knn_graph(values, n_neighbors)
        layers[aspect] = type(graph)(graph.blocks, graph.n_nodes, names)
    return MultilayerGraph.from_layers(layers)
