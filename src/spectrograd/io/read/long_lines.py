"""A limit on the length of a line, kept while a file is read.

A few megabytes of gzip can unpack to gigabytes without a line end, which a reader of lines would gather.
"""

from __future__ import annotations

import io
from typing import BinaryIO

from spectrograd.graph import GraphError

LONGEST_LINE = 1 << 24  # bytes: a point of a million coordinates fits


class LineGauge:
    """Measures lines as their bytes go by."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line, self._length = 1, 0

    def feed(self, block: bytes) -> None:
        """Take the next bytes; a line that is longer than the limit is an error."""
        end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        # What begins and ends inside one block is in memory anyway: only what spans blocks can grow.
        if end < 0:
            self._length += len(block)
        else:
            self._line += block.count(b"\n")
            self._length = len(block) - end - 1
        if self._length > LONGEST_LINE:
            raise GraphError(
                f"{self._name}, line {self._line}: longer than the limit of {LONGEST_LINE // 2**20} MB; "
                "this is no table, or its lines do not end"
            )


def gauged(source: BinaryIO, name: str) -> io.BufferedReader:
    """The bytes of a reader, with an error where a line is longer than the limit."""
    return io.BufferedReader(_GaugedReader(source, name), buffer_size=1 << 16)


class _GaugedReader(io.RawIOBase):
    """Bytes of another reader, their lines measured."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        super().__init__()
        self._source, self._gauge = source, LineGauge(name)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the next bytes go."""
        block = self._source.read(len(buffer))
        self._gauge.feed(block)
        buffer[: len(block)] = block
        return len(block)
