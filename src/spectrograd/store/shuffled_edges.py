"""Edges of a store in random order, for the stochastic solvers, and changes since the store was made.

Every edge is stored once, in chunks drawn at random: mini-batches need independent edges (docs/method.md).
Changed edges are blocks of their own, merged into the rows when these are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spectrograd.store.edge_batches import IngestSettings
from spectrograd.store.format import BlockSegment, EdgeSegment, SegmentWriter, block_sections
from spectrograd.store.row_blocks import SortedRows
from spectrograd.typing import Array

# --- Shuffling

SAMPLE_DEGREE = 10.0  # mean degree of the sample: below eight to ten it loses the clusters (docs/method.md)


class StoredEdges(NamedTuple):
    """Ends (int32) and weights (float32, in the layer's unit) of edges, each once."""

    source: Array
    target: Array
    weight: Array


class Shuffle:
    """Deals the edges of a layer to random chunks, and shuffles each chunk at the end.

    Edges go to one temporary file, sorted by chunk within each part.
    """

    def __init__(self, path: Path, n_edges: int, settings: IngestSettings) -> None:
        self.n_chunks = max(1, -(-12 * n_edges // settings.block_bytes))
        self._rng = np.random.default_rng(settings.seed)
        self._path = path
        self._handle = open(path, "w+b")  # noqa: SIM115 (closed by write)
        self._table: list[tuple[int, Array]] = []

    def deal(self, edges: StoredEdges) -> None:
        """Deal edges to the chunks."""
        # numpy sorts integers of two bytes, which all but the largest graphs need, by radix
        kind = np.uint16 if self.n_chunks <= 1 << 16 else np.uint32
        chunk = self._rng.integers(0, self.n_chunks, len(edges.source), dtype=kind)
        # One sequential write per batch, sorted by chunk; the table finds the part of each chunk again.
        by_chunk = np.argsort(chunk, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(chunk, minlength=self.n_chunks))])
        record = np.empty((len(chunk), 3), np.int32)
        record[:, 0] = edges.source[by_chunk]
        record[:, 1] = edges.target[by_chunk]
        record[:, 2] = edges.weight[by_chunk].view(np.int32)
        self._table.append((self._handle.tell(), starts))
        self._handle.write(record.data)

    def write(self, writer: SegmentWriter, weighted: bool) -> tuple[EdgeSegment, ...]:
        """Gather, shuffle and write every chunk."""
        self._handle.flush()
        segments = []
        for chunk in range(self.n_chunks):
            # 1. the parts of the chunk from all batches: one read each
            parts = [self._read_part(offset, starts, chunk) for offset, starts in self._table]
            edges = np.concatenate(parts) if parts else np.empty((0, 3), np.int32)
            if len(edges):
                # 2. shuffle within the chunk: with the random deal, a uniform order of all edges
                order = self._rng.permutation(len(edges))  # shuffling rows in place takes ten times as long
                weight = edges[order, 2].view(np.float32) if weighted else None
                segments.append(writer.edges(edges[order, 0], edges[order, 1], weight))
        self._handle.close()
        self._path.unlink()
        return tuple(segments)

    def _read_part(self, offset: int, starts: Array, chunk: int) -> Array:
        begin = int(starts[chunk])
        end = int(starts[chunk + 1])
        data = os.pread(self._handle.fileno(), 12 * (end - begin), offset + 12 * begin)
        return np.frombuffer(data, np.int32).reshape(-1, 3)


def upper_edges(rows: SortedRows) -> StoredEdges:
    """Return the entries above the diagonal: every edge once."""
    numbers = np.arange(rows.start, rows.start + len(rows.indptr) - 1, dtype=np.int32)
    source = np.repeat(numbers, np.diff(rows.indptr))
    is_upper = source < rows.columns
    return StoredEdges(source[is_upper], rows.columns[is_upper], rows.values[is_upper])


class Sample:
    """A random sample of the edges, in memory while a layer is written."""

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._rng = np.random.default_rng([seed, 1])  # independent of the chunks
        self._parts: list[StoredEdges] = []

    @classmethod
    def plan(cls, n_nodes: int, n_edges: int, settings: IngestSettings) -> Sample | None:
        """Plan a sample of mean degree ten; None where the graph is hardly larger, or it would not fit."""
        # five per cent more, since each edge is drawn by itself
        n_sampled = 1.05 * SAMPLE_DEGREE * n_nodes / 2
        if n_sampled > 0.8 * n_edges or 24 * n_sampled > settings.memory_limit / 4:
            return None
        return cls(n_sampled / n_edges, settings.seed)

    def draw(self, edges: StoredEdges) -> None:
        """Sample each of these edges with the same probability."""
        drawn = np.flatnonzero(self._rng.random(len(edges.source)) < self._share)
        self._parts.append(StoredEdges(*(column[drawn] for column in edges)))

    def write(self, writer: SegmentWriter, weighted: bool) -> EdgeSegment:
        """Write the sampled edges."""
        source, target, weight = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return writer.edges(source, target, weight if weighted else None)


# --- Changes of rows: blocks of their own, merged into the rows when these are read


class Rows(NamedTuple):
    """Rows in CSR form, columns ascending; ``weights`` (float32, in the layer's unit) None: all are one."""

    indptr: Array
    columns: Array
    weights: Array | None

    @classmethod
    def of_bytes(cls, segment: BlockSegment, raw: Array) -> Rows:
        """Interpret the bytes of a block."""
        columns, weights, _ = block_sections(segment)
        return cls(
            raw[: 8 * (segment.n_rows + 1)].view(np.int64),
            raw[columns : columns + 4 * segment.n_entries].view(np.int32),
            raw[weights : weights + 4 * segment.n_entries].view(np.float32) if segment.weighted else None,
        )

    def keys(self, start: int = 0) -> Array:
        """``row << 32 | column`` of every entry, ascending, for rows that begin at ``start``."""
        rows = np.repeat(np.arange(start, start + len(self.indptr) - 1), np.diff(self.indptr))
        return (rows << 32) | self.columns

    def with_changes(self, changes: Rows, unit: float) -> Rows:
        """Merge changes into the rows."""
        from spectrograd.kernels.edge_lists import merge_rows

        assert changes.weights is not None
        capacity = len(self.columns) + len(changes.columns)
        one = np.float32(1 / unit)
        indptr = np.empty(len(self.indptr), np.int64)
        columns = np.empty(capacity, np.int32)
        weights = np.empty(capacity, np.float32)
        n = merge_rows(self[:2], self.weights, tuple(changes), one, indptr, columns, weights)
        is_unweighted = self.weights is None and bool(
            ((changes.weights == 0) | (changes.weights == one)).all()
        )
        return Rows(indptr, columns[:n], None if is_unweighted else weights[:n])


def rows_of_keys(keys: Array, weights: Array, start: int, n_rows: int) -> Rows:
    """Make rows of ascending keys: the inverse of :meth:`Rows.keys`."""
    indptr = np.searchsorted(keys, np.arange(start, start + n_rows + 1) << 32)
    return Rows(indptr.astype(np.int64), (keys & 0xFFFFFFFF).astype(np.int32), weights.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes of edges, each edge once: ends by row numbers, the smaller one first.

    ``weight`` (float64) is added to the current weight (``add``) or replaces it; ``removed`` edges are
    removed before that, and must exist.
    """

    edges: Array  # keys, ascending: smaller end << 32 | larger end
    weight: Array
    removed: Array  # keys, ascending
    add: bool = True

    @property
    def keys(self) -> Array:
        """Keys of all changed edges, ascending."""
        return np.union1d(self.edges, self.removed)

    def after(self, keys: Array, now: Array) -> Array:
        """New weights of edges (some of :attr:`keys`) with the weights ``now``; 0: no edge."""
        is_removed, _ = _look_up(self.removed, keys)
        now = np.where(is_removed, 0.0, now)
        is_set, at = _look_up(self.edges, keys)
        if not len(self.edges):
            return now
        return np.where(is_set, self.weight[at] + (now if self.add else 0.0), now)


def _look_up(keys: Array, queries: Array) -> tuple[Array, Array]:
    """Which queries are among ascending keys, and at which index (arbitrary if not)."""
    if not len(keys):
        return np.zeros(len(queries), bool), np.zeros(len(queries), np.int64)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return keys[at] == queries, at


def current_weights(keys: Array, queries: Array, weights: Array | None, one: float) -> Array:
    """Weights of the queried entries among ascending keys; 0 where there is no entry."""
    exists, at = _look_up(keys, queries)
    if not len(keys):
        return np.zeros(len(queries), np.float32)
    return np.where(exists, np.float32(one) if weights is None else weights[at], np.float32(0))


def merge_entries(old: tuple[Array, Array], new: tuple[Array, Array]) -> tuple[Array, Array]:
    """Merge two lists of entries (keys, weights), ascending; where both have an entry the new one counts."""
    is_replaced, _ = _look_up(new[0], old[0])
    stays = ~is_replaced
    keys = np.concatenate([old[0][stays], new[0]])
    order = np.argsort(keys, kind="stable")
    return keys[order], np.concatenate([old[1][stays], new[1]])[order]


# --- Changed edges among shuffled ones


class Edges(NamedTuple):
    """Edges by row numbers, each once; ``weight`` is None where all are one."""

    source: Array
    target: Array
    weight: Array | None


@dataclass(frozen=True, eq=False)
class ChangedEdges:
    """Changed edges: ``keys`` of all, ascending, and the new edges, which are mixed into a chunk."""

    keys: Array
    edges: Edges
    rng: np.random.Generator

    @classmethod
    def of_rows(cls, starts: Sequence[int], changes: Sequence[Rows], unit: float) -> ChangedEdges:
        """Collect the changed entries of all blocks, which hold both directions."""
        keys = np.concatenate([rows.keys(start) for start, rows in zip(starts, changes, strict=True)])
        weight = np.concatenate([rows.weights for rows in changes if rows.weights is not None]) * unit
        is_upper = (keys >> 32) < (keys & 0xFFFFFFFF)
        keys = keys[is_upper]
        weight = weight[is_upper]
        exists = weight != 0
        heads = keys[exists] >> 32
        tails = keys[exists] & 0xFFFFFFFF
        edges = Edges(heads.astype(np.int32), tails.astype(np.int32), weight[exists])
        return cls(keys, edges, np.random.default_rng(0))

    def deal(self, n_parts: int, rng: np.random.Generator) -> Iterator[ChangedEdges]:
        """Deal the new edges to random parts; each part has all keys."""
        for part in np.array_split(rng.permutation(len(self.edges.source)), n_parts):
            source, target, weight = self.edges
            assert weight is not None
            yield ChangedEdges(self.keys, Edges(source[part], target[part], weight[part]), rng)

    def mix(self, old: Edges) -> Edges:
        """Replace the changed edges of a chunk: old ones are dropped, new ones mixed in, in random order."""
        # 1. drop old edges that were changed
        stored = (old.source.astype(np.int64) << 32) | old.target
        at = np.minimum(np.searchsorted(self.keys, stored), len(self.keys) - 1)
        stays = np.flatnonzero(self.keys[at] != stored)
        # 2. mix the others with the new ones
        order = self.rng.permutation(len(stays) + len(self.edges.source))
        own = self.edges.weight
        assert own is not None
        weight = None
        if old.weight is not None or (own != 1).any():
            before = np.ones(len(stays)) if old.weight is None else old.weight[stays]
            weight = np.concatenate([before, own])[order]
        ends = [
            np.concatenate([column[stays], new])[order]
            for column, new in ((old.source, self.edges.source), (old.target, self.edges.target))
        ]
        return Edges(ends[0], ends[1], weight)
