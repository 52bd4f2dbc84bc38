"""Reading of segments: one thread reads ahead into few reused buffers and verifies the checksums."""

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

# Two are held by the consumer (the current segment, and by its loop variable the one before), one is ready,
# one is being read.
N_BUFFERS = 4


@dataclass
class Counters:
    """Bytes read from the disk, and passes over all blocks of a layer."""

    bytes_read: int = 0
    passes: int = 0


class Files:
    """The files of a store, all opened at once: replacing the folder does not change the bytes read here."""

    def __init__(self, folder: StorePath, names: Sequence[str]) -> None:
        self.folder = folder
        self.counters = Counters()
        self.speed: float | None = None  # largest number of bytes per second, to simulate slow disks
        self._handles = {name: self._open(folder / name) for name in names}
        self._seeking = threading.Lock()

    def _open(self, path: Any) -> Any:
        handle = os.open(path, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return handle

    def __del__(self) -> None:
        for handle in getattr(self, "_handles", {}).values():
            os.close(handle)

    def read(self, segment: Segment, out: Array | None = None) -> Array:
        """Read a segment into ``out`` (uint8, long enough) or a new array, and verify its checksum."""
        began = time.perf_counter()
        if out is None:
            out = buffer_of(segment.n_bytes)
        view = out[: segment.n_bytes]
        done = 0
        while done < segment.n_bytes:
            # a read may return fewer bytes than asked for
            count = self._read_at(self._handles[segment.file], view[done:], segment.offset + done)
            if count == 0:
                raise DamagedFileError(
                    f"{self._locate(segment)}: the file ends too early; convert the graph again"
                )
            done += count
        self.counters.bytes_read += segment.n_bytes
        # each read verifies: a disk that fails does so in the middle of a run
        if zlib.crc32(view.data) != segment.checksum:
            raise DamagedFileError(
                f"{self._locate(segment)}: damaged (wrong checksum); convert the graph again"
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

    def _locate(self, segment: Segment) -> str:
        start = getattr(segment, "start", None)
        block = "" if start is None else f", block of row {start:,}"
        return f"{self.folder / segment.file}{block} (byte {segment.offset:,})"


class RemoteFiles(Files):
    """The files of a store behind a URL: each segment is one request."""

    def _open(self, path: Any) -> Any:
        return path.opened

    def __del__(self) -> None:
        """Close nothing: no file is held open."""

    def _read_at(self, handle: Any, view: Array, offset: int) -> int:
        system, name = handle
        data = system.cat_file(name, start=offset, end=offset + len(view))
        view[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)


def files_of(folder: StorePath, names: Sequence[str]) -> Files:
    """Open the files of a store."""
    return RemoteFiles(folder, names) if isinstance(folder, RemotePath) else Files(folder, names)


def buffer_of(n_bytes: int) -> Array:
    """Allocate bytes that begin at a cache line."""
    capacity = np.empty(n_bytes + ALIGNMENT, np.uint8)
    return capacity[-capacity.ctypes.data % ALIGNMENT :][:n_bytes]


class ReadAhead:
    """Iterates over the bytes of segments; a thread reads the next ones meanwhile.

    A segment is valid until the next but one is requested; a buffer that is still referenced then is left
    to its owner, and a new one replaces it.
    """

    def __init__(self, files: Files, segments: Sequence[Segment], pool: list[Array]) -> None:
        self._files = files
        self._segments = segments
        self._pool = pool
        self._size = max((segment.n_bytes for segment in segments), default=0)
        self._full: queue.Queue[Array | BaseException] = queue.Queue()
        self._free: queue.Queue[Array | None] = queue.Queue()  # None: the consumer has stopped

    def __iter__(self) -> Iterator[tuple[Segment, Array]]:
        if not self._segments:
            return
        # Buffers circulate: free, being read, full, held by the consumer, free again.
        for _ in range(min(N_BUFFERS, len(self._segments))):
            self._free.put(self._buffer())
        reader = threading.Thread(target=self._read_all, name="spectrograd reader", daemon=True)
        reader.start()
        held: list[Array] = []
        try:
            for segment in self._segments:
                buffer = self._full.get()
                if isinstance(buffer, BaseException):
                    raise buffer
                yield segment, buffer[: segment.n_bytes]
                held.append(buffer)
                del buffer  # its references are counted
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
        # Views refer to the owner of the memory; three references are ``buffer``, ``owner`` and the argument.
        owner = buffer.base
        if sys.getrefcount(owner) > 3:
            buffer = self._buffer()
        self._free.put(buffer)

    def _keep_buffers(self) -> None:
        """Return the unreferenced buffers to the pool, for the next pass."""
        for waiting in (self._free, self._full):
            while not waiting.empty():
                item = waiting.get()
                if isinstance(item, np.ndarray):
                    self._pool.append(item)

    def _read_all(self) -> None:
        for segment in self._segments:
            buffer = self._free.get()
            if buffer is None:
                return
            try:
                self._files.read(segment, buffer)
            except BaseException as error:  # raised in the thread that iterates
                self._full.put(error)
                return
            self._full.put(buffer)
