"""The Yelp data of the paper's second table, from the official JSON-lines files."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.datasets.reviews import (
    ItemSums,
    ReadingReport,
    ReviewData,
    Scorer,
    rating_classes,
    review_layers,
)
from spectrograd.graph import GraphError
from spectrograd.typing import JsonObject

VOTES = ("cool", "useful", "funny")
REPORT_EVERY = 10_000
Progress = Callable[[int], None]


def load_yelp(
    directory: str | os.PathLike[str],
    *,
    n_neighbors: int = 5,
    on_error: str = "skip",
    min_reviews: int = 1,
    cache: str | os.PathLike[str] | None = "auto",
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> ReviewData:
    """Read the Yelp files as in section 4.2 of the paper: four layers on businesses, three rating classes.

    Parameters
    ----------
    directory
        Holds one file ``*business*.json[.gz]`` and one ``*review*.json[.gz]``, an object per line. Votes are
        ``"votes": {"funny", "useful", "cool"}`` (older releases) or ``"useful", "funny", "cool"`` beside the
        text (newer ones). Files are streamed: memory grows with businesses, not with reviews.
    n_neighbors
        Of each business in each layer.
    on_error
        A line that is no JSON object or lacks ``business_id``, ``text`` or votes: ``"skip"`` counts it and
        warns with the first line numbers, ``"raise"`` stops there.
    min_reviews
        Businesses with fewer reviews are left out.
    cache, n_jobs
        As in :class:`~spectrograd.datasets.reviews.Scorer`.
    progress
        Called with the number of reviews read so far, now and then.

    Returns
    -------
    ReviewData
        Layers ``polarity`` (mean over the texts, textblob), ``cool``, ``useful``, ``funny`` (sums of votes).
        Labels are the rating class from the stars of the business (of its reviews, where the business file
        has none): 0 below 3, 1 from 3 to 3.5, 2 from 4; the paper does not give its rule.

    Notes
    -----
    Reviews of businesses that the business file does not list are skipped and counted. Texts that are
    empty, or have no word of the lexicon (other languages), do not enter the mean; a business with no other
    text is neutral, 0. Businesses without reviews have no place in any layer and are left out. All counts
    are in ``report``.
    """
    if on_error not in ("skip", "raise"):
        raise ValueError(f"on_error={on_error!r}: expected 'skip' or 'raise'")
    report = ReadingReport()
    lines = _Lines(on_error == "raise", report)
    businesses, texts = yelp_files(directory)
    stars = _read_businesses(lines, businesses)
    sums = ItemSums(VOTES)
    reviews = _Reviews(lines, sums, stars, progress)
    for row, value in Scorer(cache, n_jobs).score(reviews.texts(texts)):
        if value is None:
            report.n_unscored_texts += 1
        else:
            sums.add_polarity(row, value)
    names, features, means = sums.table(min_reviews)
    report.n_without_reviews = len(stars) - len(names)
    report.warn()
    given = np.array([np.nan if stars[name] is None else stars[name] for name in names], dtype=float)
    ratings = np.where(np.isnan(given), means, given)
    graph = review_layers(names, features, n_neighbors)
    return ReviewData(graph, rating_classes(ratings), tuple(features.values()), ratings, report)


@dataclass(eq=False)
class _Lines:
    """Objects of a JSON-lines file; broken lines are counted or fatal."""

    fatal: bool
    report: ReadingReport

    def objects(self, path: Path) -> Iterator[tuple[str, JsonObject]]:
        """Each object with where it stands."""
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            try:
                for number, line in enumerate(handle, start=1):
                    where = f"{path.name}, line {number}"
                    if not line.strip():
                        continue
                    try:
                        value = json.loads(line)
                    except ValueError as error:
                        self.broken(where, f"not JSON ({error})")
                        continue
                    if isinstance(value, dict):
                        yield where, value
                    else:
                        self.broken(where, "not a JSON object")
            except (EOFError, gzip.BadGzipFile) as error:
                raise GraphError(f"{path.name}: broken gzip file ({error}); copy it again") from None

    def broken(self, where: str, why: str) -> None:
        """Count a line that cannot be used, or stop there."""
        if self.fatal:
            raise GraphError(f"{where}: {why}; repair it or read with on_error='skip'")
        self.report.broke(f"{where}: {why}")


@dataclass(eq=False)
class _Reviews:
    """The stream of reviews: sums are kept on the way, texts handed on."""

    lines: _Lines
    sums: ItemSums
    known: dict[str, float | None]
    progress: Progress | None

    def texts(self, path: Path) -> Iterator[tuple[int, str]]:
        """Row of the business and text of each review that has one."""
        report = self.lines.report
        for where, review in self.lines.objects(path):
            item = review.get("business_id")
            text = review.get("text")
            votes = _votes(review)
            if not isinstance(item, str) or not isinstance(text, str) or votes is None:
                self.lines.broken(where, "business_id, text or votes missing or of the wrong type")
                continue
            if item not in self.known:
                report.n_unknown_items += 1
                continue
            report.n_reviews += 1
            if self.progress is not None and report.n_reviews % REPORT_EVERY == 0:
                self.progress(report.n_reviews)
            row = self.sums.add(item, _number(review.get("stars")), votes)
            if text.strip():
                yield row, text
            else:
                report.n_empty_texts += 1


def _read_businesses(lines: _Lines, path: Path) -> dict[str, float | None]:
    """Stars of every business, None where the file has none; of two lines for one, the first counts."""
    stars: dict[str, float | None] = {}
    for where, business in lines.objects(path):
        name = business.get("business_id")
        if isinstance(name, str) and name:
            stars.setdefault(name, _number(business.get("stars")))
        else:
            lines.broken(where, "no business_id")
    if not stars:
        raise GraphError(f"{path.name}: no business in it")
    return stars


def _votes(review: dict[str, object]) -> list[float] | None:
    """Cool, useful and funny in either schema."""
    holder = review.get("votes", review)
    if not isinstance(holder, dict):
        return None
    values = [_number(holder.get(name)) for name in VOTES]
    return None if None in values else [float(value or 0) for value in values]


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    return float(value) if usable else None


def yelp_files(directory: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The business file and the review file of a folder."""
    folder = Path(directory)
    return _find(folder, "business"), _find(folder, "review")


def _find(folder: Path, kind: str) -> Path:
    """The one file of that kind."""
    if not folder.is_dir():
        raise GraphError(f"{folder}: no such folder; name the one that holds the Yelp files")
    found = sorted(p for p in folder.iterdir() if kind in p.name and p.name.endswith((".json", ".json.gz")))
    if len(found) != 1:
        seen = ", ".join(p.name for p in found) or "none"
        raise GraphError(f"{folder}: one file *{kind}*.json or .json.gz expected, found {seen}")
    return found[0]
