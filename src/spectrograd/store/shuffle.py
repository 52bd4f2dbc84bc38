"""Every edge once, in random chunks: stochastic steps need edges that know nothing of each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.store.batches import IngestSettings
from spectrograd.store.manifest import EdgePiece
from spectrograd.store.pieces import PieceWriter
from spectrograd.store.rows import SortedRows

Array = NDArray[Any]
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

    def write(self, writer: PieceWriter, weighted: bool) -> tuple[EdgePiece, ...]:
        """Gather and shuffle every chunk."""
        self._handle.flush()
        pieces = []
        for chunk in range(self.n_chunks):
            parts = [self._part(place, starts, chunk) for place, starts in self._table]
            edges = np.concatenate(parts) if parts else np.empty((0, 3), np.int32)
            if len(edges):
                order = self._rng.permutation(len(edges))  # shuffling rows in place takes ten times as long
                weight = edges[order, 2].view(np.float32) if weighted else None
                pieces.append(writer.edges(edges[order, 0], edges[order, 1], weight))
        self._handle.close()
        self._path.unlink()
        return tuple(pieces)

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

    def write(self, writer: PieceWriter, weighted: bool) -> EdgePiece:
        """Write all that were taken."""
        source, target, weight = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return writer.edges(source, target, weight if weighted else None)
