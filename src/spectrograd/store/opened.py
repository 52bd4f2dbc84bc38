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
from spectrograd.store.changes import Rows, row_sums
from spectrograd.store.manifest import (
    INTEGERS,
    BlockPiece,
    LayerMeta,
    Piece,
    StoreMeta,
)
from spectrograd.store.reader import N_BUFFERS, ReadAhead, files_of
from spectrograd.store.urls import StorePath
from spectrograd.store.value_file import DamagedFileError

Array = NDArray[Any]
SUM_ROUNDING = 1e-9  # of a degree: both are sums in float64 of the same numbers, perhaps in another order


class Store:
    """An open store: its files, its nodes, and the blocks that stay in memory."""

    def __init__(self, path: StorePath, meta: StoreMeta) -> None:
        self.path, self.meta = path, meta
        self.files = files_of(path, sorted({piece.file for piece in meta.pieces}))
        self.pool: list[Array] = []
        self.pinned: dict[BlockPiece, Array] = {}
        self.seen: set[Piece] = set()  # pieces whose numbers were found to be in range
        self.longest: dict[BlockPiece, int] = {}  # most entries of a row, of the blocks that were seen
        self.summed: set[BlockPiece] = set()  # blocks whose sums were found to be the degrees
        self.known_degrees: dict[Piece, Array] = {}
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

    def rows_of(self, piece: BlockPiece, raw: Array) -> Rows:
        """A block as it was read; its structure and its weights are looked at once, since kernels are not.

        Pointers ascend from 0 to the number of entries, columns are nodes, weights are finite and not
        negative: whatever the checksums say, which whoever forges a store can compute too.
        """
        rows = Rows.of_bytes(piece, raw)
        if piece in self.seen:
            return rows
        if not _ascends(rows.indptr, piece.n_entries):
            raise self.damaged(piece, "row pointers do not ascend")
        if rows.weights is not None and len(rows.weights):
            low, high = float(rows.weights.min()), float(rows.weights.max())  # a NaN is both
            if not 0 <= low <= high < np.inf:
                raise self.damaged(piece, f"weights from {low:g} to {high:g}")
        self.check_rows(piece, rows.columns)
        return rows

    def degrees(self, layer: LayerMeta) -> Array:
        """Weighted degrees of a layer (float64, one per node), read once."""
        known = self.known_degrees.get(layer.degrees)
        if known is None:
            known = self.files.read(layer.degrees).view(np.float64)
            known.flags.writeable = False
            self.known_degrees[layer.degrees] = known
        return known

    def components(self, layer: LayerMeta) -> Array:
        """The component of every node (int32), read whenever it is asked for."""
        piece = layer.components
        if piece is None:
            return np.zeros(self.meta.n_nodes, np.int32)
        found = self.files.read(piece).view(np.int32)
        if int(found.view(np.uint32).max()) >= layer.n_components:
            raise self.damaged(piece, f"a component that is none of {layer.n_components:,}")
        return found

    def damaged(self, piece: Piece, what: str) -> GraphError:
        """An error that says where."""
        return DamagedFileError(
            f"{self.path / piece.file} (byte {piece.offset:,}): damaged ({what}); convert the graph again"
        )

    @cached_property
    def order(self) -> Array | None:
        """Which row of the input each row is (int32, one per node); None where they are the same."""
        if self.meta.order is None:
            return None
        raw = self.files.read(self.meta.order)
        if len(raw) != 4 * self.meta.n_nodes:
            raise self.damaged(self.meta.order, "no order of the nodes")
        order = raw.view(np.int32)
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
            if len(raw) != 8 * self.meta.n_nodes:
                raise self.damaged(piece, f"{len(raw):,} bytes for {self.meta.n_nodes:,} ids")
            names = raw.view(np.int64)
        else:
            arrow, parquet = need("pyarrow", "names of nodes"), need("pyarrow.parquet", "names of nodes")
            try:
                table = parquet.read_table(arrow.BufferReader(raw))
                names = as_names(table.column("name").to_pylist())
            except (arrow.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
                raise self.damaged(piece, f"no table of names: {error}") from None
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
            self._compare_degrees(piece, rows)
            yield self._block(piece, rows)

    def _compare_degrees(self, piece: BlockPiece, rows: Rows) -> None:
        """Refuse degrees that are not the sums of the rows, in the first pass of who asked for degrees.

        A certificate holds for the pencil that was solved, so with other degrees it would hold for another
        graph. Parts of a graph that workers read are not compared: no worker holds all degrees.
        """
        known = self.store.known_degrees.get(self.layer.degrees)
        if known is None or piece in self.store.summed:
            return
        told = known[piece.start : piece.start + piece.n_rows]
        sums = row_sums(rows.indptr, rows.weights, self.layer.weight_unit)
        if not np.allclose(sums, told, rtol=SUM_ROUNDING, atol=0.0):
            raise self.store.damaged(
                self.layer.degrees, f"degrees are not the sums of row {piece.start:,} on"
            )
        self.store.summed.add(piece)

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
            rows = self.store.rows_of(piece, raw)
            if piece.start in changes:
                rows = rows.with_changes(self.store.rows_of(*next(sweep)), self.layer.weight_unit)
            yield piece, rows

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
