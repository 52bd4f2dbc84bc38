"""Sentiment polarity of texts in [-1, 1]: textblob, in parallel, remembered on disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spectrograd.extras import need

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

    def __exit__(self, *_: Any) -> None:
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
