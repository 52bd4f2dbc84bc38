"""Pieces of files, read ahead by one thread into few buffers and checked before anybody sees them."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrograd.serialization.codec import DamagedFileError
from spectrograd.serialization.folders import RemotePath, StorePath
from spectrograd.store.format import ALIGNMENT, Segment
from spectrograd.typing import Array

# Held by the consumer: the segment at work, and by the loop variable the one before; one is ready, one is
# read.
N_BUFFERS = 4


@dataclass
class Counters:
    """What was read from the disk, and how many times all of it."""

    bytes_read: int = 0
    passes: int = 0


class Files:
    """The files of a store, all opened at once: who replaces the folder cannot change what is read here."""

    def __init__(self, folder: StorePath, names: Sequence[str]) -> None:
        self.folder = folder
        self.counters = Counters()
        self.speed: float | None = None  # bytes per second at most, to find out how slow a disk may be
        self._handles = {name: self._opened(folder / name) for name in names}
        self._seeking = threading.Lock()

    def _opened(self, path: Any) -> Any:
        handle = os.open(path, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return handle

    def __del__(self) -> None:
        for handle in getattr(self, "_handles", {}).values():
            os.close(handle)

    def read(self, segment: Segment, out: Array | None = None) -> Array:
        """The bytes of a segment, in ``out`` (uint8, long enough) or an array of their own; checked."""
        began = time.perf_counter()
        if out is None:
            out = buffer_of(segment.n_bytes)
        view, done = out[: segment.n_bytes], 0
        while done < segment.n_bytes:
            count = self._read_at(self._handles[segment.file], view[done:], segment.offset + done)
            if count == 0:
                raise DamagedFileError(
                    f"{self._place(segment)}: the file ends too early; convert the graph again"
                )
            done += count
        self.counters.bytes_read += segment.n_bytes
        if zlib.crc32(view.data) != segment.checksum:
            raise DamagedFileError(
                f"{self._place(segment)}: damaged (wrong checksum); convert the graph again"
            )
        if self.speed is not None:
            time.sleep(max(0.0, segment.n_bytes / self.speed - (time.perf_counter() - began)))
        return view

    def _read_at(self, handle: Any, view: Array, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(handle, [view.data], offset)
        with self._seeking, open(handle, "rb", buffering=0, closefd=False) as raw:
            raw.seek(offset)
            return raw.readinto(view.data) or 0

    def _place(self, segment: Segment) -> str:
        start = getattr(segment, "start", None)
        block = "" if start is None else f", block of row {start:,}"
        return f"{self.folder / segment.file}{block} (byte {segment.offset:,})"


class RemoteFiles(Files):
    """The files of a store behind a URL: each segment is one request."""

    def _opened(self, path: Any) -> Any:
        return path.opened

    def __del__(self) -> None:
        """Nothing is held open."""

    def _read_at(self, handle: Any, view: Array, offset: int) -> int:
        system, name = handle
        found = system.cat_file(name, start=offset, end=offset + len(view))
        view[: len(found)] = np.frombuffer(found, np.uint8)
        return len(found)


def files_of(folder: StorePath, names: Sequence[str]) -> Files:
    """The files of a store, opened."""
    return RemoteFiles(folder, names) if isinstance(folder, RemotePath) else Files(folder, names)


def buffer_of(n_bytes: int) -> Array:
    """Bytes that begin at a cache line."""
    capacity = np.empty(n_bytes + ALIGNMENT, np.uint8)
    return capacity[-capacity.ctypes.data % ALIGNMENT :][:n_bytes]


class ReadAhead:
    """The bytes of segments one after the other, read by a thread while the last one is at work.

    A segment is good until the one after next is asked for; a buffer that somebody still holds then is left
    to him, and another takes its place.
    """

    def __init__(self, files: Files, segments: Sequence[Segment], pool: list[Array]) -> None:
        self._files, self._segments, self._pool = files, segments, pool
        self._size = max((segment.n_bytes for segment in segments), default=0)
        self._full: queue.Queue[Array | BaseException] = queue.Queue()
        self._free: queue.Queue[Array | None] = queue.Queue()  # None: nobody wants more

    def __iter__(self) -> Iterator[tuple[Segment, Array]]:
        if not self._segments:
            return
        for _ in range(min(N_BUFFERS, len(self._segments))):
            self._free.put(self._buffer())
        reader = threading.Thread(target=self._read_all, name="spectrograd reader", daemon=True)
        reader.start()
        held: list[Array] = []
        try:
            for segment in self._segments:
                found = self._full.get()
                if isinstance(found, BaseException):
                    raise found
                yield segment, found[: segment.n_bytes]
                held.append(found)
                del found
                if len(held) > 1:
                    self._give_back(held.pop(0))
        finally:
            self._free.put(None)
            reader.join()
            self._keep_buffers()

    def _buffer(self) -> Array:
        while self._pool:
            buffer = self._pool.pop()
            if len(buffer) >= self._size:
                return buffer
        return buffer_of(self._size)

    def _give_back(self, buffer: Array) -> None:
        # Views point at the memory's owner: seen from here it is held by ``buffer`` and the call only.
        owner = buffer.base
        if sys.getrefcount(owner) > 3:
            buffer = self._buffer()
        self._free.put(buffer)

    def _keep_buffers(self) -> None:
        """Buffers that nobody holds serve the next sweep."""
        for waiting in (self._free, self._full):
            while not waiting.empty():
                left = waiting.get()
                if isinstance(left, np.ndarray):
                    self._pool.append(left)

    def _read_all(self) -> None:
        for segment in self._segments:
            buffer = self._free.get()
            if buffer is None:
                return
            try:
                self._files.read(segment, buffer)
            except BaseException as error:  # raised where the blocks are asked for
                self._full.put(error)
                return
            self._full.put(buffer)
