"""Any table of reviews as a multilayer graph on the items reviewed."""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Iterator, Sequence
from typing import TextIO

from spectrograd.datasets.polarity import Scorer
from spectrograd.datasets.review_layers import (
    ItemSums,
    ReadingReport,
    ReviewData,
    rating_classes,
    review_layers,
)
from spectrograd.graph import GraphError


def load_reviews(
    path: str | os.PathLike[str],
    *,
    item: str = "item_id",
    text: str = "review_text",
    rating: str = "rating",
    votes: Sequence[str] = ("helpful_votes",),
    classes: str = "stars",
    n_neighbors: int = 5,
    min_reviews: int = 1,
    on_error: str = "skip",
    cache: str | os.PathLike[str] | None = "auto",
    n_jobs: int | None = None,
) -> ReviewData:
    """Read a CSV table of reviews (``.gz`` too): a polarity layer and one per column of votes.

    Parameters
    ----------
    path
        A table with a header, one review per row.
    item, text, rating, votes
        Names of its columns; votes are summed per item, ratings averaged.
    classes
        ``"stars"`` (below 3, from 3, from 4) or ``"tertiles"``, see ``rating_classes``.
    n_neighbors, min_reviews, on_error, cache, n_jobs
        As in :func:`load_yelp`; a row is broken when its item is empty or its rating or votes are no numbers.
    """
    if on_error not in ("skip", "raise"):
        raise ValueError(f"on_error={on_error!r}: expected 'skip' or 'raise'")
    name = os.fspath(path)
    report, sums = ReadingReport(), ItemSums(votes)
    columns = (item, text, rating, *votes)

    def texts() -> Iterator[tuple[int, str]]:
        for where, row in _rows(name, columns):
            numbers = [_number(row[column]) for column in (rating, *votes)]
            if not row[item] or None in numbers:
                what = f"{where}: {item}, {rating} or votes empty or not a number"
                if on_error == "raise":
                    raise GraphError(f"{what}; repair it or read with on_error='skip'")
                report.broke(what)
                continue
            report.n_reviews += 1
            at = sums.add(row[item], numbers[0], [float(value or 0) for value in numbers[1:]])
            if (row[text] or "").strip():
                yield at, row[text]
            else:
                report.n_empty_texts += 1

    for at, value in Scorer(cache, n_jobs).score(texts()):
        if value is None:
            report.n_unscored_texts += 1
        else:
            sums.add_polarity(at, value)
    names, features, ratings = sums.table(min_reviews)
    report.warn()
    graph = review_layers(names, features, n_neighbors)
    return ReviewData(graph, rating_classes(ratings, classes), tuple(features.values()), ratings, report)


def _rows(path: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with _opened(path) as handle:
            reader = csv.DictReader(handle)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise GraphError(
                    f"{path}: no column {missing[0]!r}; it has {', '.join(reader.fieldnames or ())}"
                )
            for row in reader:
                yield f"{os.path.basename(path)}, line {reader.line_num}", row
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror or error}") from None


def _opened(path: str) -> TextIO:
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
