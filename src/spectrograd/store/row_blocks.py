"""Listed edges become row blocks: counted, scattered into buckets of rows, sorted there, written."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectrograd.store.edge_batches import IngestSettings, SpooledLayer
from spectrograd.store.format import BlockSegment, SegmentWriter, aligned
from spectrograd.typing import Array

RULES = ("sum", "max", "first")  # as kernels.ingest counts them
MOST_BUCKETS = 4096  # more make the segments of a batch that go to each too small to write
BUCKET_ENTRIES = 4 << 20  # at most: beyond, sorting leaves the cache for good
N_SORTERS = 2  # threads that sort, each with a bucket of its own


class Counted(NamedTuple):
    """What one pass over the listed edges of a layer tells: entries and weights per row, components."""

    entries: Array
    largest_degree: float
    component: Array
    n_components: int


class SortedRows(NamedTuple):
    """Rows ``start ..`` in CSR form; ``values`` are float32 in units of the layer's ``weight_unit``."""

    start: int
    indptr: Array
    columns: Array
    values: Array
    degrees: Array
    unit_weights: bool
    weight_range: tuple[float, float]


def count(layer: SpooledLayer, n_nodes: int, row_of: Array | None, settings: IngestSettings) -> Counted:
    """Entries per row, the largest degree (before duplicates are merged), and the components."""
    from spectrograd.kernels.edge_lists import count_rows, label_roots

    entries, parent = np.zeros(n_nodes, np.int64), np.arange(n_nodes, dtype=np.int32)
    sums = np.zeros(n_nodes if layer.weighted else 0)
    done = 0
    for listed in layer.read():
        count_rows(listed.source, listed.target, listed.weight, row_of, entries, sums, parent)
        done += len(listed.source)
        settings.progress("count", done, layer.n_edges)
    largest = float((sums if layer.weighted else entries).max(initial=0))
    return Counted(entries, largest, parent, int(label_roots(parent)))


def weight_unit(largest_degree: float) -> float:
    """The power of two that weights are divided by: degrees are near one then, far from float32's ends."""
    if not 0 < largest_degree < math.inf:
        return 1.0
    return 2.0 ** min(max(math.frexp(largest_degree)[1] - 1, -1000), 1000)


@dataclass(eq=False)
class Buckets:
    """A file with a region for each range of rows; ``rows`` are the bounds, ``places`` their regions."""

    path: Path
    rows: Array
    places: Array
    weighted: bool
    filled: Array = field(init=False)

    @classmethod
    def plan(cls, path: Path, entries: Array, weighted: bool, settings: IngestSettings) -> Buckets:
        """Cut the rows so that sorting a bucket fits into its share of the memory limit."""
        starts = np.concatenate([[0], np.cumsum(entries)])
        total = int(starts[-1])
        # Per entry: key 8, weight 8, column 4, value 8, twice over for what sorting and writing copy.
        fits = settings.memory_limit // (4 * 56 * N_SORTERS)
        size = max(min(fits, BUCKET_ENTRIES), -(-total // MOST_BUCKETS), 1)
        cuts = np.searchsorted(starts, np.arange(size, total, size), side="right") - 1
        rows = np.unique(np.concatenate([[0], cuts, [len(entries)]]))
        return cls(path, rows, starts[rows], weighted)

    def __post_init__(self) -> None:
        self.filled = self.places[:-1].copy()

    @property
    def record(self) -> int:
        """Bytes of an entry."""
        return 16 if self.weighted else 8

    def fill(self, layer: SpooledLayer, row_of: Array | None, settings: IngestSettings) -> None:
        """The second pass: both directions of every edge to the bucket of its row."""
        n_nodes, done = int(self.rows[-1]), 0
        bucket_of = np.repeat(np.arange(len(self.rows) - 1, dtype=np.uint16), np.diff(self.rows))
        assert len(bucket_of) == n_nodes
        with open(self.path, "wb") as handle:
            for listed in layer.read():
                source, target = listed.source, listed.target
                if row_of is not None:
                    source, target = row_of[source], row_of[target]
                self._scatter(handle.fileno(), source, target, listed.weight, bucket_of)
                done += len(source)
                settings.progress("scatter", done, layer.n_edges)

    def _scatter(
        self, handle: int, source: Array, target: Array, weight: Array | None, bucket_of: Array
    ) -> None:
        from spectrograd.kernels.edge_lists import scatter_entries

        ends = np.zeros(len(self.filled), np.int64)
        keys = np.empty(2 * len(source), np.int64)
        values = None if weight is None else np.empty(2 * len(source))
        scatter_entries(source, target, weight, bucket_of, ends, keys, values)
        begin = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > begin:
                # keys of a bucket first, then its weights: each part has a place of known size
                _write_at(handle, keys[begin:end], 8 * self._place(bucket, 0))
                if values is not None:
                    _write_at(handle, values[begin:end], 8 * self._place(bucket, 1))
                self.filled[bucket] += end - begin
                begin = end

    def _place(self, bucket: int, part: int) -> int:
        """Where the next key (part 0) or weight (1) of a bucket goes, counted in numbers of 8 bytes."""
        if not self.weighted:
            return int(self.filled[bucket])
        first, last = self.places[bucket], self.places[bucket + 1]
        return int(2 * first + part * (last - first) + self.filled[bucket] - first)

    def read(self, bucket: int) -> tuple[Array, Array | None]:
        """Keys and weights of a bucket."""
        size = int(self.places[bucket + 1] - self.places[bucket])
        with open(self.path, "rb") as handle:
            handle.seek(int(self.places[bucket]) * self.record)
            keys = np.fromfile(handle, np.int64, size)
            return keys, np.fromfile(handle, np.float64, size) if self.weighted else None


def _write_at(handle: int, array: Array, offset: int) -> None:
    data, done = array.data.cast("B"), 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], offset + done)


def sorted_rows(buckets: Buckets, rule: str, halve: bool, unit: float) -> Iterator[SortedRows]:
    """The third pass: buckets one after the other, sorted by threads that work ahead."""

    def sort(bucket: int) -> SortedRows:
        return _sort(buckets, bucket, rule, halve, unit)

    yield from _ahead(sort, range(len(buckets.rows) - 1))


def _ahead(work: Any, jobs: Iterable[int]) -> Iterator[Any]:
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(N_SORTERS, "spectrograd sort") as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(work, job))
                if len(waiting) >= N_SORTERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()


def _sort(buckets: Buckets, bucket: int, rule: str, halve: bool, unit: float) -> SortedRows:
    from spectrograd.kernels.edge_lists import sort_entries

    keys, weights = buckets.read(bucket)
    first, last = int(buckets.rows[bucket]), int(buckets.rows[bucket + 1])
    indptr = np.empty(last - first + 1, np.int64)
    columns, values = np.empty(len(keys), np.int32), np.empty(len(keys))
    factor = 0.5 if halve else 1.0
    n_left = sort_entries(keys, weights, np.int64(first), indptr, columns, values, RULES.index(rule), factor)
    del keys, weights
    columns, values = columns[:n_left], values[:n_left]
    low, high = (float(values.min()), float(values.max())) if n_left else (1.0, 1.0)
    stored = (values / unit).astype(np.float32)
    degrees = row_sums(indptr, None if low == high == 1 else stored, unit)
    return SortedRows(first, indptr, columns, stored, degrees, low == high == 1, (low, high))


def write_blocks(writer: SegmentWriter, rows: SortedRows, block_bytes: int) -> list[BlockSegment]:
    """Cut sorted rows into blocks of at most so many bytes; a row that is longer has a block of its own."""
    per_entry = 4 if rows.unit_weights else 8
    ends = 8 * np.arange(len(rows.indptr)) + per_entry * rows.indptr
    segments, first, last = [], 0, len(rows.indptr) - 1
    while first < last:
        until = int(np.searchsorted(ends, ends[first] + block_bytes - aligned(200), side="right")) - 1
        until = min(max(until, first + 1), last)
        begin, end = rows.indptr[first], rows.indptr[until]
        weights = None if rows.unit_weights else rows.values[begin:end]
        indptr = rows.indptr[first : until + 1] - begin
        segments.append(writer.block(rows.start + first, indptr, rows.columns[begin:end], weights))
        first = until
    return segments


def row_sums(indptr: Array, stored: Array | None, unit: float) -> Array:
    """Degrees, of the weights as they are stored: the rows of the Laplacian then sum to zero."""
    if stored is None:
        return np.diff(indptr).astype(np.float64)
    degrees, filled = np.zeros(len(indptr) - 1), np.flatnonzero(np.diff(indptr))
    if len(filled):
        degrees[filled] = np.add.reduceat(stored, indptr[filled], dtype=np.float64) * unit
    return degrees
