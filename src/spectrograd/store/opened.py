"""An open store: its files, the blocks that stay in memory, and the sweeps over those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError, RowBlock
from spectrograd.graph.names import as_names
from spectrograd.store.manifest import (
    INTEGERS,
    BlockPiece,
    LayerMeta,
    Piece,
    StoreMeta,
    block_sections,
)
from spectrograd.store.reader import N_BUFFERS, Files, ReadAhead

Array = NDArray[Any]


class Edges(NamedTuple):
    """Edges by row numbers, each once; ``weight`` is None where all are one."""

    source: Array
    target: Array
    weight: Array | None


class Store:
    """An open store: its files, its nodes, and the blocks that stay in memory."""

    def __init__(self, path: Path, meta: StoreMeta) -> None:
        self.path, self.meta = path, meta
        pieces = [piece for piece in (meta.names, meta.order) if piece is not None]
        for layer in meta.layers:
            pieces += [*layer.blocks, *layer.edges, layer.degrees]
            pieces += [piece for piece in (layer.components, layer.sample) if piece is not None]
        self.files = Files(path, sorted({piece.file for piece in pieces}))
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
        for piece, raw in self.store.sweep(self.layer.blocks):
            yield self._block(piece, raw)

    def between(self, start: int, stop: int) -> Iterator[RowBlock]:
        """Rows start .. stop; nothing else is read."""
        pieces = tuple(p for p in self.layer.blocks if p.start < stop and p.start + p.n_rows > start)
        for piece, raw in self.store.sweep(pieces):
            yield self._block(piece, raw).between(start, stop)

    def _block(self, piece: BlockPiece, raw: Array) -> RowBlock:
        columns, weights, _ = block_sections(piece)
        indptr = raw[: 8 * (piece.n_rows + 1)].view(np.int64)
        indices = raw[columns : columns + 4 * piece.n_entries].view(np.int32)
        if piece not in self.store.seen and not _ascends(indptr, piece.n_entries):
            raise self.store.damaged(piece, "row pointers do not ascend")
        self.store.check_rows(piece, indices)
        if piece not in self.store.longest:
            self.store.longest[piece] = int(np.diff(indptr).max(initial=0))
        indptr.flags.writeable = indices.flags.writeable = False
        values = None
        if piece.weighted:
            stored = raw[weights : weights + 4 * piece.n_entries].view(np.float32)
            values = np.multiply(stored, self.layer.weight_unit, dtype=self.dtype)
            values.flags.writeable = self.dtype != np.float64  # as in memory: kernels know both as types
        return RowBlock(piece.start, indptr, indices, values)


def _ascends(indptr: Array, n_entries: int) -> bool:
    return bool(indptr[0] == 0 and indptr[-1] == n_entries and np.all(indptr[1:] >= indptr[:-1]))
