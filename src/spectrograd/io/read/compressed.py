"""Files that may be compressed: ``.gz`` by the standard library, ``.zst`` by pyarrow."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from spectrograd.extras import need
from spectrograd.graph import GraphError

GZIP, ZSTD = ".gz", ".zst"


def compression_of(path: str) -> str:
    """Return the final ``.gz`` or ``.zst`` of a path, or nothing."""
    return next((suffix for suffix in (GZIP, ZSTD) if path.lower().endswith(suffix)), "")


def without_compression(path: str) -> str:
    """Return the path without its final ``.gz`` or ``.zst``."""
    return path[: len(path) - len(compression_of(path))]


def data_suffix(path: str) -> str:
    """Return the lower-case suffix of a path, looking through a final ``.gz`` or ``.zst``."""
    return Path(without_compression(path.lower())).suffix


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open for reading, unpacked; every way in which that can fail is a GraphError with the file's name."""
    packing = compression_of(path)
    try:
        if packing == GZIP:
            with gzip.open(path) as handle:
                yield cast(BinaryIO, handle)
        elif packing == ZSTD:
            # pyarrow, unlike the zstandard package, notices a file that was cut off.
            arrow = need("pyarrow", f"{path}: a file packed by zstd")
            with arrow.input_stream(path, compression="zstd") as handle:
                yield handle
        else:
            with open(path, "rb") as handle:
                yield handle
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise GraphError(f"{path}: broken gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        if packing == ZSTD and error.errno is None:
            raise GraphError(f"{path}: broken zstd file ({error}); copy or compress it again") from None
        raise GraphError(f"{path}: {error.strerror or error}") from None


@contextmanager
def packed(handle: BinaryIO, path: str) -> Iterator[BinaryIO]:
    """Pack what is written as the path's suffix says; the handle itself stays open."""
    packing = compression_of(path)
    if packing == GZIP:
        with gzip.GzipFile(fileobj=handle, mode="wb", filename="", mtime=0) as gz:  # same data, same bytes
            yield cast(BinaryIO, gz)
    elif packing == ZSTD:
        arrow = need("pyarrow", f"{path}: a file packed by zstd")
        buffer = arrow.BufferOutputStream()
        with arrow.CompressedOutputStream(buffer, "zstd") as stream:
            yield stream
        handle.write(buffer.getvalue())
    else:
        yield handle
