"""A limit on the length of a line, kept while a file is read.

A few megabytes of gzip can unpack to gigabytes without a line end, which a reader of lines would gather.
"""

from __future__ import annotations

import io
from typing import BinaryIO

from spectrograd.graph import GraphError

LONGEST_LINE = 1 << 24  # bytes: a point of a million coordinates fits


def too_long(name: str, line: int) -> GraphError:
    """The error about a line that goes on for too long."""
    return GraphError(
        f"{name}, line {line}: longer than {LONGEST_LINE // 2**20} MB, the limit of a line; "
        "this is no table, or its lines do not end"
    )


class LineGauge:
    """Measures lines as their bytes go by."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line, self._length = 1, 0

    def feed(self, block: bytes) -> None:
        """Take the next bytes; a line that is longer than the limit is an error."""
        end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        # A long line inside one block was as long in memory as the block, so only what spans blocks counts.
        if end < 0:
            self._length += len(block)
        else:
            self._line += block.count(b"\n")
            self._length = len(block) - end - 1
        if self._length > LONGEST_LINE:
            raise too_long(self._name, self._line)


class GaugedReader(io.RawIOBase):
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
