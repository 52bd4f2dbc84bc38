"""Edges that changed since a store was made: blocks of their own, merged into the rows when they are read.

A changed entry says what an entry weighs now, both directions of an edge; zero: it is gone. Changes of the
rows of a block are one piece, so reading stays one sweep from front to back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.store.manifest import BlockPiece, block_sections

Array = NDArray[Any]


class Rows(NamedTuple):
    """Rows in CSR form, columns ascending; ``weights`` (float32, in the layer's unit) None: all are one."""

    indptr: Array
    columns: Array
    weights: Array | None

    @classmethod
    def of_bytes(cls, piece: BlockPiece, raw: Array) -> Rows:
        """A block as it was read."""
        columns, weights, _ = block_sections(piece)
        return cls(
            raw[: 8 * (piece.n_rows + 1)].view(np.int64),
            raw[columns : columns + 4 * piece.n_entries].view(np.int32),
            raw[weights : weights + 4 * piece.n_entries].view(np.float32) if piece.weighted else None,
        )

    def keys(self, start: int = 0) -> Array:
        """``row << 32 | column`` of every entry, ascending, for rows that begin at ``start``."""
        rows = np.repeat(np.arange(start, start + len(self.indptr) - 1), np.diff(self.indptr))
        return (rows << 32) | self.columns

    def with_changes(self, changes: Rows, unit: float) -> Rows:
        """The rows as they are now."""
        from spectrograd.kernels.ingest.changes import merge_rows

        assert changes.weights is not None
        room, one = len(self.columns) + len(changes.columns), np.float32(1 / unit)
        indptr, columns = np.empty(len(self.indptr), np.int64), np.empty(room, np.int32)
        weights = np.empty(room, np.float32)
        n = merge_rows(self[:2], self.weights, tuple(changes), one, indptr, columns, weights)
        columns, weights = columns[:n], weights[:n]
        plain = self.weights is None and bool(((changes.weights == 0) | (changes.weights == one)).all())
        return Rows(indptr, columns, None if plain else weights)


def row_sums(indptr: Array, stored: Array | None, unit: float) -> Array:
    """Degrees, of the weights as they are stored: the rows of the Laplacian then sum to zero."""
    if stored is None:
        return np.diff(indptr).astype(np.float64)
    degrees, filled = np.zeros(len(indptr) - 1), np.flatnonzero(np.diff(indptr))
    if len(filled):
        degrees[filled] = np.add.reduceat(stored, indptr[filled], dtype=np.float64) * unit
    return degrees


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
