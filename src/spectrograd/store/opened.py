"""An open store: its files, the blocks that stay in memory, and the sweeps over those that do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError, RowBlock
from spectrograd.graph.names import as_names
from spectrograd.store.changes import Rows
from spectrograd.store.manifest import (
    INTEGERS,
    BlockPiece,
    LayerMeta,
    Piece,
    StoreMeta,
)
from spectrograd.store.reader import N_BUFFERS, ReadAhead, files_of
from spectrograd.store.urls import StorePath

Array = NDArray[Any]


class Store:
    """An open store: its files, its nodes, and the blocks that stay in memory."""

    def __init__(self, path: StorePath, meta: StoreMeta) -> None:
        self.path, self.meta = path, meta
        self.files = files_of(path, sorted({piece.file for piece in meta.pieces}))
        self.pool: list[Array] = []
        self.pinned: dict[BlockPiece, Array] = {}
        self.seen: set[Piece] = set()  # pieces whose numbers were found to be in range
        self.longest: dict[BlockPiece, int] = {}  # most entries of a row, of the blocks that were seen
        self._to_pin: set[BlockPiece] = set()

    def pin(self, memory_limit: int | None) -> None:
        """Keep the first blocks from their first reading on, as many as the limit leaves room for."""
        if memory_limit is None:
            return
        blocks = [block for layer in self.meta.layers for block in layer.blocks]
        room = memory_limit - N_BUFFERS * max(block.n_bytes for block in blocks)
        if room < 0:
            raise GraphError(
                f"{self.path}: memory_limit={memory_limit:,} is less than the buffers of the reader; "
                f"at least {memory_limit - room:,} bytes are needed"
            )
        for block in blocks:
            room -= block.n_bytes
            if room < 0:
                return
            self._to_pin.add(block)

    def sweep(self, pieces: tuple[Any, ...]) -> Iterator[tuple[Any, Array]]:
        """Every piece with its bytes: from memory where it is pinned, else read ahead."""
        kept = {piece: self.pinned[piece] for piece in pieces if piece in self.pinned}
        ahead = iter(ReadAhead(self.files, [piece for piece in pieces if piece not in kept], self.pool))
        for piece in pieces:
            raw = kept.get(piece)
            if raw is None:
                _, raw = next(ahead)
            if piece in self._to_pin and piece not in self.pinned:
                self.pinned[piece] = raw.copy()
            yield piece, raw
        for _ in ahead:  # lets the reader end
            pass
        self.files.counters.sweeps += 1

    def check_rows(self, piece: Piece, *columns: Array) -> None:
        """Refuse numbers that are no rows of this graph, once for each piece: kernels trust them."""
        if piece in self.seen:
            return
        for rows in columns:
            if len(rows) and int(rows.view(np.uint32).max()) >= self.meta.n_nodes:
                raise self.damaged(piece, "a node number is out of range")
        self.seen.add(piece)

    def damaged(self, piece: Piece, what: str) -> GraphError:
        """An error that says where."""
        return GraphError(
            f"{self.path / piece.file} (byte {piece.offset:,}): damaged ({what}); convert the graph again"
        )

    @cached_property
    def order(self) -> Array | None:
        """Which row of the input each row is (int32, one per node); None where they are the same."""
        if self.meta.order is None:
            return None
        order = self.files.read(self.meta.order).view(np.int32)
        if len(order) != self.meta.n_nodes or not np.array_equal(np.sort(order), np.arange(len(order))):
            raise self.damaged(self.meta.order, "no order of the nodes")
        return order

    @cached_property
    def names(self) -> Array | None:
        """The id of every row; None where rows are the ids."""
        piece = self.meta.names
        if piece is None:
            return self.order
        raw = self.files.read(piece)
        if self.meta.ids == INTEGERS:
            names = raw.view(np.int64)
        else:
            arrow, parquet = need("pyarrow", "names of nodes"), need("pyarrow.parquet", "names of nodes")
            names = as_names(parquet.read_table(arrow.BufferReader(raw)).column("name").to_pylist())
        if len(names) != self.meta.n_nodes:
            raise self.damaged(piece, f"{len(names)} names for {self.meta.n_nodes} nodes")
        names.flags.writeable = False
        return names


@dataclass(frozen=True, eq=False)
class BlockStream:
    """The row blocks of a layer, read anew whenever they are iterated.

    A block is good until the one after next; whoever wants to keep one just keeps it.
    """

    store: Store
    layer: LayerMeta
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))

    def __iter__(self) -> Iterator[RowBlock]:
        for piece, rows in self.rows(self.layer.blocks):
            yield self._block(piece, rows)

    def between(self, start: int, stop: int) -> Iterator[RowBlock]:
        """Rows start .. stop; nothing else is read."""
        pieces = [p for p in self.layer.blocks if p.start < stop and p.start + p.n_rows > start]
        for piece, rows in self.rows(pieces):
            yield self._block(piece, rows).between(start, stop)

    def rows(self, blocks: Sequence[BlockPiece]) -> Iterator[tuple[BlockPiece, Rows]]:
        """Some blocks as they are stored, with the changes of their rows."""
        changes = {piece.start: piece for piece in self.layer.delta}
        order: list[BlockPiece] = []
        for block in blocks:
            order += [block, changes[block.start]] if block.start in changes else [block]
        sweep = self.store.sweep(tuple(order))
        for piece, raw in sweep:
            rows = self._checked(piece, raw)
            if piece.start in changes:
                rows = rows.with_changes(self._checked(*next(sweep)), self.layer.weight_unit)
            yield piece, rows

    def _checked(self, piece: BlockPiece, raw: Array) -> Rows:
        rows = Rows.of_bytes(piece, raw)
        if piece not in self.store.seen and not _ascends(rows.indptr, piece.n_entries):
            raise self.store.damaged(piece, "row pointers do not ascend")
        self.store.check_rows(piece, rows.columns)
        return rows

    def _block(self, piece: BlockPiece, rows: Rows) -> RowBlock:
        if piece not in self.store.longest:
            self.store.longest[piece] = int(np.diff(rows.indptr).max(initial=0))
        rows.indptr.flags.writeable = rows.columns.flags.writeable = False
        values = None
        if rows.weights is not None:
            values = np.multiply(rows.weights, self.layer.weight_unit, dtype=self.dtype)
            values.flags.writeable = self.dtype != np.float64  # as in memory: kernels know both as types
        return RowBlock(piece.start, rows.indptr, rows.columns, values)


def _ascends(indptr: Array, n_entries: int) -> bool:
    return bool(indptr[0] == 0 and indptr[-1] == n_entries and np.all(indptr[1:] >= indptr[:-1]))
