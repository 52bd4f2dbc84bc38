"""Arrays appended to files, with the place and the checksum of each piece."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spectrograd.store.manifest import BlockPiece, EdgePiece, Piece, aligned

Array = NDArray[Any]
FILE_BYTES = 4 << 30  # of one blocks or edges file: even a store of a terabyte opens few files


class PieceWriter:
    """Appends pieces to ``stem-000.bin``, ``stem-001.bin`` ... (or to ``stem.bin``), each at a cache line."""

    def __init__(self, folder: Path, stem: str, *, numbered: bool = True, first: int = 0) -> None:
        self._folder, self._stem, self._numbered = folder, stem, numbered
        self._number, self._offset = first - 1, FILE_BYTES
        self._handle: BinaryIO | None = None

    def append(self, sections: Sequence[Array], *, pad: bool = False) -> Piece:
        """Write the sections one after the other; with ``pad`` each is filled up to whole cache lines."""
        if self._offset >= FILE_BYTES and (self._numbered or self._handle is None):
            self._next_file()
        assert self._handle is not None
        begin, checksum, n_bytes = self._offset, 0, 0
        for section in sections:
            data = np.ascontiguousarray(section).view(np.uint8)
            parts = [data]
            if pad:
                parts.append(np.zeros(aligned(len(data)) - len(data), np.uint8))
            for part in parts:
                self._handle.write(part.data)
                checksum = zlib.crc32(part.data, checksum)
                n_bytes += len(part)
        self._offset = begin + aligned(n_bytes)
        self._handle.write(bytes(self._offset - begin - n_bytes))
        return Piece(self._file, begin, n_bytes, checksum)

    def block(self, start: int, indptr: Array, columns: Array, weights: Array | None) -> BlockPiece:
        """Write one row block."""
        sections = [indptr.astype(np.int64, copy=False), columns] + ([] if weights is None else [weights])
        piece = self.append(sections, pad=True)
        sizes = start, len(indptr) - 1, len(columns)
        where = piece.file, piece.offset, piece.n_bytes, piece.checksum
        return BlockPiece(*where, *sizes, weights is not None)

    def edges(self, source: Array, target: Array, weight: Array | None) -> EdgePiece:
        """Write edges, each once."""
        piece = self.append([source, target] + ([] if weight is None else [weight]))
        where = piece.file, piece.offset, piece.n_bytes, piece.checksum
        return EdgePiece(*where, n_edges=len(source), weighted=weight is not None)

    def _next_file(self) -> None:
        self.close()
        self._number, self._offset = self._number + 1, 0
        self._file = f"{self._stem}-{self._number:03d}.bin" if self._numbered else f"{self._stem}.bin"
        self._handle = open(self._folder / self._file, "wb")  # noqa: SIM115 (see close)

    def close(self) -> None:
        """Close the last file."""
        if self._handle is not None:
            self._handle.close()


def write_file(folder: Path, name: str, array: Array) -> Piece:
    """Write one array as a file of its own."""
    data = np.ascontiguousarray(array).view(np.uint8)
    with open(folder / name, "wb") as handle:
        handle.write(data.data)
    return Piece(name, 0, len(data), zlib.crc32(data.data))
