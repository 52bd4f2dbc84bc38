"""Row blocks of a store, by external counting sort: count rows, scatter into buckets, sort, write."""

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

from spectrograd.graph.graph import magnitudes
from spectrograd.store.edge_batches import IngestSettings, SpooledLayer
from spectrograd.store.format import ALIGNMENT, BlockSegment, SegmentWriter, align
from spectrograd.typing import Array

RULES = ("sum", "max", "first")  # for duplicates, numbered as in kernels.edge_lists
MAX_BUCKETS = 4096  # with more, the part of a batch for each bucket is too small to write
BUCKET_ENTRIES = 4 << 20  # largest number: larger buckets are sorted out of cache
N_SORTERS = 2  # threads that sort one bucket each


class Counted(NamedTuple):
    """Statistics of one pass over the edges of a layer: entries per row, largest degree, components."""

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
    """Count the entries per row, the largest degree (duplicates not yet merged), and the components."""
    from spectrograd.kernels.edge_lists import count_rows, label_roots

    entries = np.zeros(n_nodes, np.int64)
    parent = np.arange(n_nodes, dtype=np.int32)  # union-find
    sums = np.zeros(n_nodes if layer.weighted else 0)
    done = 0
    for listed in layer.read():
        count_rows(listed.source, listed.target, listed.weight, row_of, entries, sums, parent)
        done += len(listed.source)
        settings.progress("count", done, layer.n_edges)
    largest = float((sums if layer.weighted else entries).max(initial=0))
    n_components = int(label_roots(parent))  # mutates: parent, which holds each row's component now
    return Counted(entries, largest, parent, n_components)


def weight_unit(largest_degree: float) -> float:
    """Power of two by which weights are divided: degrees are near one then, far from the range of float32."""
    if not 0 < largest_degree < math.inf:
        return 1.0
    return 2.0 ** min(max(math.frexp(largest_degree)[1] - 1, -1000), 1000)


@dataclass(eq=False)
class Buckets:
    """A file with a region for each range of rows; ``rows`` are the bounds, ``offsets`` the first entries."""

    path: Path
    rows: Array
    offsets: Array
    weighted: bool
    filled: Array = field(init=False)

    @classmethod
    def plan(cls, path: Path, entries: Array, weighted: bool, settings: IngestSettings) -> Buckets:
        """Cut the rows so that sorting a bucket fits into its share of the memory limit."""
        # Rows are cut where the running count of entries passes a multiple of the size of a bucket.
        starts = np.concatenate([[0], np.cumsum(entries)])
        total = int(starts[-1])
        # Bytes per entry: key 8, weight 8, column 4, value 8, twice because sorting and writing copy.
        fits = settings.memory_limit // (4 * 56 * N_SORTERS)
        size = max(min(fits, BUCKET_ENTRIES), -(-total // MAX_BUCKETS), 1)
        cuts = np.searchsorted(starts, np.arange(size, total, size), side="right") - 1
        rows = np.unique(np.concatenate([[0], cuts, [len(entries)]]))
        return cls(path, rows, starts[rows], weighted)

    def __post_init__(self) -> None:
        self.filled = self.offsets[:-1].copy()

    @property
    def record(self) -> int:
        """Bytes per entry."""
        return 16 if self.weighted else 8

    def fill(self, layer: SpooledLayer, row_of: Array | None, settings: IngestSettings) -> None:
        """Scatter both directions of every edge to the bucket of its row (second pass)."""
        n_nodes = int(self.rows[-1])
        done = 0
        bucket_of = np.repeat(np.arange(len(self.rows) - 1, dtype=np.uint16), np.diff(self.rows))
        assert len(bucket_of) == n_nodes
        with open(self.path, "wb") as handle:
            for listed in layer.read():
                source = listed.source if row_of is None else row_of[listed.source]
                target = listed.target if row_of is None else row_of[listed.target]
                self._scatter(handle.fileno(), source, target, listed.weight, bucket_of)
                done += len(source)
                settings.progress("scatter", done, layer.n_edges)

    def _scatter(
        self, handle: int, source: Array, target: Array, weight: Array | None, bucket_of: Array
    ) -> None:
        from spectrograd.kernels.edge_lists import scatter_entries

        # 1. Sort both directions of the batch by bucket.
        ends = np.zeros(len(self.filled), np.int64)
        keys = np.empty(2 * len(source), np.int64)
        values = None if weight is None else np.empty(2 * len(source))
        scatter_entries(source, target, weight, bucket_of, ends, keys, values)
        # 2. Write the part of each bucket behind what it holds.
        begin = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > begin:
                # The keys of a bucket come first, then its weights: the size of each part is known.
                _write_at(handle, keys[begin:end], 8 * self._next_offset(bucket, 0))
                if values is not None:
                    _write_at(handle, values[begin:end], 8 * self._next_offset(bucket, 1))
                self.filled[bucket] += end - begin
                begin = end

    def _next_offset(self, bucket: int, part: int) -> int:
        """Offset of the next key (part 0) or weight (part 1) of a bucket, in units of 8 bytes."""
        if not self.weighted:
            return int(self.filled[bucket])
        first = self.offsets[bucket]
        last = self.offsets[bucket + 1]
        return int(2 * first + part * (last - first) + self.filled[bucket] - first)

    def read(self, bucket: int) -> tuple[Array, Array | None]:
        """Read the keys and weights of a bucket."""
        size = int(self.offsets[bucket + 1] - self.offsets[bucket])
        with open(self.path, "rb") as handle:
            handle.seek(int(self.offsets[bucket]) * self.record)
            keys = np.fromfile(handle, np.int64, size)
            return keys, np.fromfile(handle, np.float64, size) if self.weighted else None


def _write_at(handle: int, array: Array, offset: int) -> None:
    data = array.data.cast("B")
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], offset + done)


def sorted_rows(buckets: Buckets, rule: str, halve: bool, unit: float) -> Iterator[SortedRows]:
    """Sort the buckets one after the other (third pass); threads work ahead."""

    def sort(bucket: int) -> SortedRows:
        return _sort(buckets, bucket, rule, halve, unit)

    yield from _run_ahead(sort, range(len(buckets.rows) - 1))


def _run_ahead(work: Any, jobs: Iterable[int]) -> Iterator[Any]:
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
            for job_left in waiting:
                job_left.cancel()


def _sort(buckets: Buckets, bucket: int, rule: str, halve: bool, unit: float) -> SortedRows:
    from spectrograd.kernels.edge_lists import sort_entries

    # A key holds row and column, so that one sort orders both.
    keys, weights = buckets.read(bucket)
    first = int(buckets.rows[bucket])
    last = int(buckets.rows[bucket + 1])
    indptr = np.empty(last - first + 1, np.int64)
    columns = np.empty(len(keys), np.int32)
    values = np.empty(len(keys))
    factor = 0.5 if halve else 1.0  # edges listed in both directions count once
    arguments = (keys, weights, np.int64(first), indptr, columns, values, RULES.index(rule), factor)
    n_entries = sort_entries(*arguments)  # duplicates are merged
    del keys, weights, arguments
    columns = columns[:n_entries]
    values = values[:n_entries]
    low, high = (float(values.min()), float(values.max())) if n_entries else (1.0, 1.0)
    # Degrees are sums of the rounded weights: rows of the stored Laplacian then sum to zero.
    stored = (values / unit).astype(np.float32)
    degrees = row_sums(indptr, None if low == high == 1 else stored, unit)
    return SortedRows(first, indptr, columns, stored, degrees, low == high == 1, (low, high))


def write_blocks(writer: SegmentWriter, rows: SortedRows, block_bytes: int) -> list[BlockSegment]:
    """Cut sorted rows into blocks of at most ``block_bytes``; a longer row has a block of its own."""
    per_entry = 4 if rows.unit_weights else 8
    # Bytes up to each row: its pointer and its entries.
    ends = 8 * np.arange(len(rows.indptr)) + per_entry * rows.indptr
    segments = []
    first = 0
    last = len(rows.indptr) - 1
    # Three sections are filled up to whole cache lines, and there is one pointer more than rows.
    padding = align(3 * (ALIGNMENT - 1) + 8)
    while first < last:
        until = int(np.searchsorted(ends, ends[first] + block_bytes - padding, side="right")) - 1
        until = min(max(until, first + 1), last)
        begin = rows.indptr[first]
        end = rows.indptr[until]
        weights = None if rows.unit_weights else rows.values[begin:end]
        indptr = rows.indptr[first : until + 1] - begin
        segments.append(writer.block(rows.start + first, indptr, rows.columns[begin:end], weights))
        first = until
    return segments


def row_sums(indptr: Array, stored: Array | None, unit: float) -> Array:
    """Degrees, as sums of ``|w|`` of the stored (rounded) weights: rows of the Laplacian then sum to zero."""
    if stored is None:
        return np.diff(indptr).astype(np.float64)
    degrees = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):  # reduceat needs every segment non-empty
        degrees[filled] = np.add.reduceat(magnitudes(stored), indptr[filled], dtype=np.float64) * unit
    return degrees
