"""Reviews as multilayer graphs: items are nodes, each aspect is a layer, ratings are the classes."""

from __future__ import annotations

import csv
import gzip
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import TextIO

import numpy as np

from spectrograd.datasets.synthetic import LayeredData
from spectrograd.graph import GraphError, GraphWarning, MultilayerGraph
from spectrograd.notices import warn
from spectrograd.points.knn_graph import knn_graph
from spectrograd.system import need
from spectrograd.typing import Array

SHOWN = 5
# Stars are given in halves: up to 2.5, 3 and 3.5, from 4.
LOW_BELOW = 3.0
HIGH_FROM = 4.0


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
        names = names[kept]
        sums = sums[kept]
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


# --- Sentiment polarity of texts in [-1, 1]: textblob, in parallel, remembered on disk.

TEXTS_PER_BATCH = 4096
WORTH_PROCESSES = 1000  # fewer texts are scored before a second process has started
UNKNOWN = 2.0  # how the cache stores a text without any word of the lexicon


@dataclass(frozen=True)
class Scorer:
    """Scores texts; the same text is never analysed twice.

    Parameters
    ----------
    cache
        A file (SQLite), ``"auto"`` for one in the user's cache folder, or None for none.
    n_jobs
        Processes; None or 1 works in this one, -1 takes all cores.
    """

    cache: str | os.PathLike[str] | None = "auto"
    n_jobs: int | None = None

    def score(self, texts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, float | None]]:
        """Polarities of (row, text) pairs in their order, streamed; None where no word is in the lexicon.

        That is the case for empty texts and, nearly always, for texts that are not English.
        """
        need("textblob", "polarity of texts")
        with ExitStack() as stack:
            store = stack.enter_context(_Store(self._cache_path()))
            workers = _n_workers(self.n_jobs)
            pool: Executor | None = None
            if workers > 1:  # spawn: forking a process that runs threads is unsafe
                pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=get_context("spawn")))
            for batch in _batches(texts):
                rows, words = zip(*batch, strict=True)
                yield from zip(rows, _score_batch(words, store, pool, workers), strict=True)

    def _cache_path(self) -> str:
        if self.cache is None:
            return ":memory:"
        if self.cache != "auto":
            return os.fspath(self.cache)
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return str(root / "spectrograd" / "polarity.sqlite")


def polarity(text: str) -> float | None:
    """Polarity of one text, or None when none of its words is in the lexicon.

    Examples
    --------
    >>> polarity("A wonderful place") # doctest: +SKIP
    1.0
    """
    from textblob import TextBlob

    found = TextBlob(text).sentiment_assessments if text.strip() else None
    return None if found is None or not found.assessments else float(found.polarity)


def _score_batch(
    batch: Sequence[str], store: _Store, pool: Executor | None, workers: int
) -> list[float | None]:
    known = store.find(batch)
    missing = [text for text in dict.fromkeys(batch) if text not in known]
    if missing:
        size = -(-len(missing) // workers)
        scored = (
            map(polarity, missing)
            if pool is None or len(missing) < WORTH_PROCESSES
            else pool.map(polarity, missing, chunksize=size)
        )
        fresh = dict(zip(missing, scored, strict=True))
        store.keep(fresh)
        known |= fresh
    return [known[text] for text in batch]


class _Store:
    """Text -> polarity in one SQLite file; keys are hashes, so no text is kept."""

    def __init__(self, path: str) -> None:
        if path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(path)
            self._database.execute("CREATE TABLE IF NOT EXISTS polarity (key BLOB PRIMARY KEY, value REAL)")
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{path}: cannot be used as polarity cache ({error}); name another file"
            ) from None

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def find(self, texts: Sequence[str]) -> dict[str, float | None]:
        """What is known of these texts."""
        keys = {_key(text): text for text in texts}
        found: dict[str, float | None] = {}
        for part in _chunks(list(keys), 500):
            marks = ",".join("?" * len(part))
            query = f"SELECT key, value FROM polarity WHERE key IN ({marks})"
            for key, value in self._database.execute(query, part):
                found[keys[bytes(key)]] = None if value == UNKNOWN else value
        return found

    def keep(self, scores: dict[str, float | None]) -> None:
        """Remember; one transaction per batch."""
        rows = [(_key(text), UNKNOWN if value is None else value) for text, value in scores.items()]
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO polarity VALUES (?, ?)", rows)


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _batches(texts: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    for text in texts:
        batch.append(text)
        if len(batch) == TEXTS_PER_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _chunks(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _n_workers(n_jobs: int | None) -> int:
    cores = os.cpu_count() or 1
    return 1 if n_jobs is None else max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


# --- Any table of reviews as a multilayer graph on the items reviewed.


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
    report = ReadingReport()
    sums = ItemSums(votes)
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
