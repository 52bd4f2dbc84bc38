"""Made-up files in the schema of the Yelp data, which may not be passed on."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

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

TONES = (
    ["awful", "terrible", "horrible", "disgusting", "worst", "bad", "poor", "nasty", "boring", "dirty"],
    ["okay", "average", "fair", "decent", "ordinary", "acceptable", "plain", "usual", "normal", "common"],
    ["excellent", "wonderful", "perfect", "delicious", "great", "best", "amazing", "awesome", "superb"],
)
FILLER = ["we", "came", "for", "food", "and", "the", "staff", "at", "our", "table", "on", "a", "day", "with"]
STARS = ((1.0, 1.5, 2.0, 2.5), (3.0, 3.5), (4.0, 4.5, 5.0))
# Mean votes per review of each class: every aspect separates some classes and blurs others.
RATES = {"cool": (2.0, 6.0, 40.0), "useful": (60.0, 8.0, 12.0), "funny": (30.0, 25.0, 3.0)}


def write_yelp_like(
    directory: str | os.PathLike[str],
    n_businesses: int = 11_160,
    *,
    reviews_per_business: int = 4,
    schema: str = "flat",
    compress: bool = False,
    seed: int | np.random.Generator | None = None,
) -> Path:
    """Write ``yelp_academic_dataset_business.json`` and ``..._review.json`` with three rating classes.

    Parameters
    ----------
    directory
        Made if it is not there.
    n_businesses, reviews_per_business
        Sizes; the paper has 11,160 businesses.
    schema
        ``"flat"``: votes beside the text; ``"votes"``: inside ``votes``, as in older releases.
    compress
        Write ``.json.gz``.
    seed
        The same seed writes the same files.

    Returns
    -------
    Path
        The directory.
    """
    if schema not in ("flat", "votes"):
        raise ValueError(f"schema={schema!r}: expected 'flat' or 'votes'")
    if n_businesses < 1 or reviews_per_business < 1:
        raise ValueError("at least one business and one review of each are needed")
    rng = np.random.default_rng(seed)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    classes = rng.integers(3, size=n_businesses)
    with _opened(folder, "business", compress) as handle:
        for number, which in enumerate(classes):
            stars = float(rng.choice(STARS[which]))
            _write(handle, {"business_id": f"b{number:06d}", "name": f"Place {number}", "stars": stars})
    with _opened(folder, "review", compress) as handle:
        for number in range(n_businesses * reviews_per_business):
            business = number % n_businesses
            _write(handle, _review(number, business, int(classes[business]), schema, rng))
    return folder


def _review(number: int, business: int, which: int, schema: str, rng: np.random.Generator) -> dict[str, Any]:
    votes = {name: int(rng.poisson(rate[which] * rng.gamma(4.0, 0.25))) for name, rate in RATES.items()}
    # one word in five is of another tone: classes overlap, as they do in life
    tones = [which if rng.random() < 0.8 else int(rng.integers(3)) for _ in range(6)]
    words = [str(rng.choice(TONES[tone])) for tone in tones] + [str(word) for word in rng.choice(FILLER, 6)]
    review = {
        "review_id": f"r{number:07d}",
        "business_id": f"b{business:06d}",
        "stars": int(np.clip(2 * which + 1 + rng.integers(-1, 2), 1, 5)),
        "text": " ".join(words[at] for at in rng.permutation(len(words))),
    }
    return review | ({"votes": votes} if schema == "votes" else votes)


def _opened(folder: Path, kind: str, compress: bool) -> TextIO:
    path = folder / f"yelp_academic_dataset_{kind}.json"
    if compress:
        return gzip.open(f"{path}.gz", "wt", encoding="utf-8")
    return open(path, "w", encoding="utf-8")


def _write(handle: TextIO, value: dict[str, Any]) -> None:
    handle.write(json.dumps(value) + "\n")


# --- The Yelp data of the paper's second table, from the official JSON-lines files.

__all__ = ["load_yelp", "write_yelp_like"]

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

    def objects(self, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
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
            item, text, votes = review.get("business_id"), review.get("text"), _votes(review)
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


def _votes(review: dict[str, Any]) -> list[float] | None:
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
