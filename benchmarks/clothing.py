"""Reviews of clothing: layers of polarity and of helpful votes against the rating classes."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness import DATA, table
from spectrograd import MultilayerSpectralClustering, SpectralClustering, datasets, metrics

N_CLASSES = 3
LEAST_REVIEWS = (1, 10)
CLASSES = ("stars", "tertiles")
HEADER = ("items", "classes (sizes)", "projection", "grassmann", "auto", "polarity layer alone")


def run() -> str:
    path = DATA / "clothing_reviews" / "reviews.csv.gz"
    if not path.exists():
        return "clothing_reviews is not there: not measured."
    settings = list(product(LEAST_REVIEWS, CLASSES))
    read = [datasets.load_reviews(path, min_reviews=least, classes=classes) for least, classes in settings]
    rows = [_row(*setting, data) for setting, data in zip(settings, read, strict=True)]
    found = read[0].report
    text = (
        f"{found.n_reviews:,} reviews of {read[0].graph.n_nodes:,} items (CC0), two layers: polarity and "
        f"helpful votes. {found.n_empty_texts} texts are empty, {found.n_unscored_texts} have no word of the "
        f"lexicon. NMI / ARI against the rating classes, K={N_CLASSES}, seed 0:\n\n"
    )
    polarity = [np.corrcoef(data.points[0].ravel(), data.ratings)[0, 1] for data in (read[0], read[-1])]
    after = (
        f"\n\nCorrelation of polarity and stars: {polarity[0]:.2f}, of items with {LEAST_REVIEWS[1]} reviews "
        f"or more {polarity[1]:.2f}."
    )
    return text + table((*HEADER, "polarity cut into thirds, no graph"), rows) + after


def _row(least: int, classes: str, data: datasets.ReviewData) -> list[str]:
    n = data.graph.n_nodes
    items = f"all {n:,}" if least == 1 else f"{n:,} with {least} reviews or more"
    sizes = ", ".join(map(str, np.bincount(data.labels)))
    polarity = data.points[0].ravel()
    thirds = np.searchsorted(np.quantile(polarity, [1 / 3, 2 / 3]), polarity)
    with warnings.catch_warnings(action="ignore"):
        merged = [
            MultilayerSpectralClustering(N_CLASSES, aggregation=name, random_state=0).fit(data.graph).labels_
            for name in ("projection", "grassmann", "auto")
        ]
        alone = SpectralClustering(N_CLASSES, random_state=0).fit(data.graph.layers[0]).labels_
    return [items, f"{classes} ({sizes})", *(_cell(data.labels, found) for found in (*merged, alone, thirds))]


def _cell(classes: Any, labels: Any) -> str:
    found = metrics.score(classes, labels)
    return f"{found['nmi']:.3f} / {found['ari']:.3f}"
