"""Every edge once, in random chunks: stochastic steps need edges that know nothing of each other."""

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

SAMPLE_DEGREE = 10.0  # of the sample: below eight to ten it knows nothing of the clusters (docs/method.md)


class StoredEdges(NamedTuple):
    """Ends (int32) and weights (float32, in the layer's unit) of edges, each once."""

    source: Array
    target: Array
    weight: Array


class Shuffle:
    """Deals the edges of a layer out to chunks drawn at random, and shuffles each chunk at the end.

    Edges go to one temporary file, sorted by chunk within each part that is dealt.
    """

    def __init__(self, path: Path, n_edges: int, settings: IngestSettings) -> None:
        self.n_chunks = max(1, -(-12 * n_edges // settings.block_bytes))
        self._rng, self._path = np.random.default_rng(settings.seed), path
        self._handle = open(path, "w+b")  # noqa: SIM115 (closed by write)
        self._table: list[tuple[int, Array]] = []

    def deal(self, edges: StoredEdges) -> None:
        """Take some edges."""
        # numbers of two bytes, which all but the largest graphs have, are sorted by their digits
        kind = np.uint16 if self.n_chunks <= 1 << 16 else np.uint32
        chunk = self._rng.integers(0, self.n_chunks, len(edges.source), dtype=kind)
        by_chunk = np.argsort(chunk, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(chunk, minlength=self.n_chunks))])
        record = np.empty((len(chunk), 3), np.int32)
        record[:, 0], record[:, 1] = edges.source[by_chunk], edges.target[by_chunk]
        record[:, 2] = edges.weight[by_chunk].view(np.int32)
        self._table.append((self._handle.tell(), starts))
        self._handle.write(record.data)

    def write(self, writer: SegmentWriter, weighted: bool) -> tuple[EdgeSegment, ...]:
        """Gather and shuffle every chunk."""
        self._handle.flush()
        segments = []
        for chunk in range(self.n_chunks):
            parts = [self._part(place, starts, chunk) for place, starts in self._table]
            edges = np.concatenate(parts) if parts else np.empty((0, 3), np.int32)
            if len(edges):
                order = self._rng.permutation(len(edges))  # shuffling rows in place takes ten times as long
                weight = edges[order, 2].view(np.float32) if weighted else None
                segments.append(writer.edges(edges[order, 0], edges[order, 1], weight))
        self._handle.close()
        self._path.unlink()
        return tuple(segments)

    def _part(self, place: int, starts: Array, chunk: int) -> Array:
        begin, end = int(starts[chunk]), int(starts[chunk + 1])
        data = os.pread(self._handle.fileno(), 12 * (end - begin), place + 12 * begin)
        return np.frombuffer(data, np.int32).reshape(-1, 3)


def upper_edges(rows: SortedRows) -> StoredEdges:
    """Each edge of these rows whose other end has the larger number."""
    numbers = np.arange(rows.start, rows.start + len(rows.indptr) - 1, dtype=np.int32)
    source = np.repeat(numbers, np.diff(rows.indptr))
    once = source < rows.columns
    return StoredEdges(source[once], rows.columns[once], rows.values[once])


class Sample:
    """A random part of the edges, kept in memory while a layer is written."""

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._rng = np.random.default_rng([seed, 1])  # not the numbers that deal out the chunks
        self._parts: list[StoredEdges] = []

    @classmethod
    def plan(cls, n_nodes: int, n_edges: int, settings: IngestSettings) -> Sample | None:
        """A sample with ten ends per node; None where the graph has hardly more, or it would not fit."""
        wanted = 1.05 * SAMPLE_DEGREE * n_nodes / 2
        if wanted > 0.8 * n_edges or 24 * wanted > settings.memory_limit / 4:
            return None
        return cls(wanted / n_edges, settings.seed)

    def draw(self, edges: StoredEdges) -> None:
        """Take each of these edges with the same odds."""
        chosen = np.flatnonzero(self._rng.random(len(edges.source)) < self._share)
        self._parts.append(StoredEdges(*(column[chosen] for column in edges)))

    def write(self, writer: SegmentWriter, weighted: bool) -> EdgeSegment:
        """Write all that were taken."""
        source, target, weight = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return writer.edges(source, target, weight if weighted else None)


# --- Edges that changed since a store was made: blocks of their own, merged into the rows when they are read.


class Rows(NamedTuple):
    """Rows in CSR form, columns ascending; ``weights`` (float32, in the layer's unit) None: all are one."""

    indptr: Array
    columns: Array
    weights: Array | None

    @classmethod
    def of_bytes(cls, segment: BlockSegment, raw: Array) -> Rows:
        """A block as it was read."""
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
        """The rows as they are now."""
        from spectrograd.kernels.edge_lists import merge_rows

        assert changes.weights is not None
        capacity, one = len(self.columns) + len(changes.columns), np.float32(1 / unit)
        indptr, columns = np.empty(len(self.indptr), np.int64), np.empty(capacity, np.int32)
        weights = np.empty(capacity, np.float32)
        n = merge_rows(self[:2], self.weights, tuple(changes), one, indptr, columns, weights)
        columns, weights = columns[:n], weights[:n]
        plain = self.weights is None and bool(((changes.weights == 0) | (changes.weights == one)).all())
        return Rows(indptr, columns, None if plain else weights)


def rows_of_keys(keys: Array, weights: Array, start: int, n_rows: int) -> Rows:
    """The inverse of :meth:`Rows.keys`: keys ascending."""
    indptr = np.searchsorted(keys, np.arange(start, start + n_rows + 1) << 32)
    return Rows(indptr.astype(np.int64), (keys & 0xFFFFFFFF).astype(np.int32), weights.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Changes:
    """What shall become of some edges, each once: ends by row numbers, the smaller one first.

    ``weight`` (float64) is added to what is there (``add``) or takes its place; ``removed`` edges
    are taken away before that, and must be there.
    """

    edges: Array  # keys, ascending: smaller end << 32 | larger end
    weight: Array
    removed: Array  # keys, ascending
    add: bool = True

    @property
    def keys(self) -> Array:
        """All edges that are touched, ascending."""
        return np.union1d(self.edges, self.removed)

    def after(self, keys: Array, now: Array) -> Array:
        """The weights of edges (some of :attr:`keys`) that weigh ``now`` so much; 0: there is none."""
        now = np.where(_found(self.removed, keys)[0], 0.0, now)
        given, at = _found(self.edges, keys)
        if not len(self.edges):
            return now
        return np.where(given, self.weight[at] + (now if self.add else 0.0), now)


def _found(keys: Array, asked: Array) -> tuple[Array, Array]:
    """Which of the asked keys are among ascending keys, and where (anywhere if not)."""
    if not len(keys):
        return np.zeros(len(asked), bool), np.zeros(len(asked), np.int64)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return keys[at] == asked, at


def current_weights(keys: Array, asked: Array, weights: Array | None, one: float) -> Array:
    """Of asked entries among ascending keys; 0 where there is none."""
    there, at = _found(keys, asked)
    if not len(keys):
        return np.zeros(len(asked), np.float32)
    return np.where(there, np.float32(one) if weights is None else weights[at], np.float32(0))


def united(old: tuple[Array, Array], new: tuple[Array, Array]) -> tuple[Array, Array]:
    """Keys and weights of both, ascending; where both have an entry the new one counts."""
    stays = ~_found(new[0], old[0])[0]
    keys = np.concatenate([old[0][stays], new[0]])
    order = np.argsort(keys, kind="stable")
    return keys[order], np.concatenate([old[1][stays], new[1]])[order]


# --- Edges in random order, where some of them have changed since they were shuffled.


class Edges(NamedTuple):
    """Edges by row numbers, each once; ``weight`` is None where all are one."""

    source: Array
    target: Array
    weight: Array | None


@dataclass(frozen=True, eq=False)
class ChangedEdges:
    """Edges that are not as they were: ``keys`` of all of them, ascending, and those to be mixed in."""

    keys: Array
    edges: Edges
    rng: np.random.Generator

    @classmethod
    def of_rows(cls, starts: Sequence[int], changes: Sequence[Rows], unit: float) -> ChangedEdges:
        """From the changed entries of all blocks, which hold both directions."""
        keys = np.concatenate([rows.keys(start) for start, rows in zip(starts, changes, strict=True)])
        weight = np.concatenate([rows.weights for rows in changes if rows.weights is not None]) * unit
        once = (keys >> 32) < (keys & 0xFFFFFFFF)
        keys, weight = keys[once], weight[once]
        there = weight > 0
        heads, tails = ((keys[there] >> 32), keys[there] & 0xFFFFFFFF)
        edges = Edges(heads.astype(np.int32), tails.astype(np.int32), weight[there])
        return cls(keys, edges, np.random.default_rng(0))

    def dealt(self, n_parts: int, rng: np.random.Generator) -> Iterator[ChangedEdges]:
        """Parts of the edges drawn at random; all of them know all keys."""
        for part in np.array_split(rng.permutation(len(self.edges.source)), n_parts):
            source, target, weight = self.edges
            assert weight is not None
            yield ChangedEdges(self.keys, Edges(source[part], target[part], weight[part]), rng)

    def mixed(self, old: Edges) -> Edges:
        """Edges as they were, without those that changed, and these among them, in random order."""
        stored = (old.source.astype(np.int64) << 32) | old.target
        at = np.minimum(np.searchsorted(self.keys, stored), len(self.keys) - 1)
        stays = np.flatnonzero(self.keys[at] != stored)
        mixed = self.rng.permutation(len(stays) + len(self.edges.source))
        own = self.edges.weight
        assert own is not None
        weight = None
        if old.weight is not None or (own != 1).any():
            before = np.ones(len(stays)) if old.weight is None else old.weight[stays]
            weight = np.concatenate([before, own])[mixed]
        ends = [
            np.concatenate([column[stays], new])[mixed]
            for column, new in ((old.source, self.edges.source), (old.target, self.edges.target))
        ]
        return Edges(ends[0], ends[1], weight)
