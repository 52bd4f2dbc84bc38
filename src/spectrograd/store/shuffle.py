"""Every edge once, in random chunks: stochastic steps need edges that know nothing of each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.store.batches import IngestSettings
from spectrograd.store.manifest import EdgePiece
from spectrograd.store.opened import Edges
from spectrograd.store.pieces import PieceWriter
from spectrograd.store.rows import SortedRows

Array = NDArray[Any]
SAMPLE_DEGREE = 10.0  # of the sample: below eight to ten it knows nothing of the clusters (docs/method.md)


class Shuffle:
    """Deals the edges of a layer out to chunks drawn at random, and shuffles each chunk at the end.

    Edges go to one temporary file, sorted by chunk within each part that is dealt.
    """

    def __init__(self, path: Path, n_edges: int, unit: float, settings: IngestSettings) -> None:
        self.n_chunks = max(1, -(-12 * n_edges // settings.block_bytes))
        self._rng, self._path = np.random.default_rng(settings.seed), path
        self._one = np.float32(1 / unit)
        self._handle = open(path, "w+b")  # noqa: SIM115 (closed by write)
        self._table: list[tuple[int, Array]] = []
        self._weighted = False

    def deal(self, edges: Edges) -> None:
        """Take some edges."""
        chunk = self._rng.integers(0, self.n_chunks, len(edges.source)).astype(np.uint32)
        by_chunk = np.argsort(chunk, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(chunk, minlength=self.n_chunks))])
        record = np.empty((len(chunk), 3), np.int32)
        record[:, 0], record[:, 1] = edges.source[by_chunk], edges.target[by_chunk]
        weight = np.full(len(chunk), self._one) if edges.weight is None else edges.weight[by_chunk]
        record[:, 2] = weight.view(np.int32)
        self._weighted |= edges.weight is not None
        self._table.append((self._handle.tell(), starts))
        self._handle.write(record.data)

    def write(self, writer: PieceWriter) -> tuple[EdgePiece, ...]:
        """Gather and shuffle every chunk."""
        self._handle.flush()
        pieces = []
        for chunk in range(self.n_chunks):
            parts = [self._part(place, starts, chunk) for place, starts in self._table]
            edges = np.concatenate(parts) if parts else np.empty((0, 3), np.int32)
            self._rng.shuffle(edges)
            if len(edges):
                weight = np.ascontiguousarray(edges[:, 2]).view(np.float32) if self._weighted else None
                pieces.append(writer.edges(edges[:, 0].copy(), edges[:, 1].copy(), weight))
        self._handle.close()
        self._path.unlink()
        return tuple(pieces)

    def _part(self, place: int, starts: Array, chunk: int) -> Array:
        begin, end = int(starts[chunk]), int(starts[chunk + 1])
        data = os.pread(self._handle.fileno(), 12 * (end - begin), place + 12 * begin)
        return np.frombuffer(data, np.int32).reshape(-1, 3)


def upper_edges(rows: SortedRows) -> Edges:
    """Each edge of these rows whose other end has the larger number; weights as they are stored."""
    numbers = np.arange(rows.start, rows.start + len(rows.indptr) - 1, dtype=np.int32)
    source = np.repeat(numbers, np.diff(rows.indptr))
    once = source < rows.columns
    return Edges(source[once], rows.columns[once], None if rows.unit_weights else rows.values[once])


class Sample:
    """A random part of the edges, kept in memory while a layer is written."""

    def __init__(self, share: float, unit: float, seed: int) -> None:
        self._share, self._one = share, np.float32(1 / unit)
        self._rng = np.random.default_rng([seed, 1])  # not the numbers that deal out the chunks
        self._parts: list[Edges] = []

    @classmethod
    def plan(cls, n_nodes: int, n_edges: int, unit: float, settings: IngestSettings) -> Sample | None:
        """A sample with ten ends per node; None where the graph has hardly more, or it would not fit."""
        wanted = 1.05 * SAMPLE_DEGREE * n_nodes / 2
        if wanted > 0.8 * n_edges or 24 * wanted > settings.memory_limit / 4:
            return None
        return cls(wanted / n_edges, unit, settings.seed)

    def draw(self, edges: Edges) -> None:
        """Take each of these edges with the same odds."""
        chosen = np.flatnonzero(self._rng.random(len(edges.source)) < self._share)
        weight = None if edges.weight is None else edges.weight[chosen]
        self._parts.append(Edges(edges.source[chosen], edges.target[chosen], weight))

    def write(self, writer: PieceWriter) -> EdgePiece:
        """Write all that were taken."""
        source, target = (np.concatenate([part[end] for part in self._parts]) for end in (0, 1))
        weight = None
        if any(part.weight is not None for part in self._parts):
            weights = [
                np.full(len(p.source), self._one) if p.weight is None else p.weight for p in self._parts
            ]
            weight = np.concatenate(weights)
        return writer.edges(source, target, weight)
