"""One file with a value in it, whole or not there at all: arrays as they lie in memory, the rest as JSON.

    64 bytes      the name of the format, its version, zeros
    arrays        one after the other, each from a multiple of 64 bytes on
    JSON          the header, the value, and where each array is (offset, type, shape, order, CRC-32)
    32 bytes      offset and length of the JSON (uint64), its CRC-32 (uint32), zeros, "complete"

All numbers are little-endian. ``docs/checkpoints.md`` has the whole story.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import GraphError
from spectrograd.store.folder import sync_folder

Array = NDArray[Any]
MAGIC, VERSION = b"spectrograd checkpoint\n", 1
ALIGNMENT = 64
END = struct.Struct("<QQII8s")
COMPLETE = b"complete"
AT_ONCE = 16 << 20  # bytes between two looks at the checksum
NUMBERS = "biuf"  # kinds of arrays: nothing that could hold an object


class DamagedFileError(GraphError):
    """The file is not what was written: cut short, or a bit is wrong."""


@dataclass(eq=False)
class ArraySink:
    """Arrays on their way into a file; each is written once, however often it is part of the value."""

    handle: BinaryIO
    table: list[dict[str, Any]] = field(default_factory=list)
    _seen: dict[int, tuple[int, Array]] = field(default_factory=dict)

    def add(self, array: Array, *, passing: bool = False) -> int:
        """Write an array; its number. One that is ``passing`` is not held: nobody will ask for it again."""
        if id(array) in self._seen:
            return self._seen[id(array)][0]
        if array.dtype.kind not in NUMBERS:
            raise GraphError(f"an array of {array.dtype} cannot be saved")
        number, fortran = len(self.table), array.flags.f_contiguous and not array.flags.c_contiguous
        offset, checksum = _aligned(self.handle), 0
        flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1).view(np.uint8)
        for begin in range(0, len(flat), AT_ONCE):
            part = flat[begin : begin + AT_ONCE].data
            checksum = zlib.crc32(part, checksum)
            self.handle.write(part)
        little = array.dtype.newbyteorder("<").str
        place = {"offset": offset, "dtype": little, "shape": list(array.shape), "crc32": checksum}
        self.table.append(place | {"order": "F" if fortran else "C"})
        if not passing:
            self._seen[id(array)] = (number, array)  # the array too, or its id might be used again
        return number


def write_value(path: Path, header: Mapping[str, Any], encode: Callable[[ArraySink], Any]) -> None:
    """Write ``encode(sink)``, which is JSON, and its arrays; the file has its name only when all is safe.

    Whatever goes wrong, nothing of it is left; an error of the disk names the path.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb") as handle:
            handle.write(MAGIC + struct.pack("<I", VERSION))
            sink = ArraySink(handle)
            value = encode(sink)
            content = {"header": dict(header), "value": value, "arrays": sink.table}
            text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
            offset = _aligned(handle)
            handle.write(text + END.pack(offset, len(text), zlib.crc32(text), 0, COMPLETE))
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = "the disk is full; earlier checkpoints are as they were"
            raise OSError(error.errno, what, str(path)) from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def read_header(path: Path) -> dict[str, Any]:
    """What the file says of itself, its arrays not yet looked at."""
    with _opened(path) as handle:
        header = _content(path, handle).get("header")
        if not isinstance(header, dict):
            raise _damaged(path, "it does not say whose it is")
        return header


def read_value(path: Path) -> tuple[Any, list[Array]]:
    """The JSON of the value and its arrays, every byte of which was checked."""
    with _opened(path) as handle:
        content = _content(path, handle)
        try:
            return content["value"], [_array(path, handle, place) for place in content["arrays"]]
        except DamagedFileError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, MemoryError, AttributeError) as error:
            raise _damaged(path, str(error) or type(error).__name__) from None


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except (IsADirectoryError, FileNotFoundError) as error:  # or a link to nowhere
        raise _damaged(path, f"no file: {error.strerror}") from None


def _content(path: Path, handle: BinaryIO) -> dict[str, Any]:
    size = os.fstat(handle.fileno()).st_size
    start = handle.read(len(MAGIC) + 4)
    if size < ALIGNMENT + END.size or not start.startswith(MAGIC):
        raise _damaged(path, "it is cut short, or no checkpoint")
    (version,) = struct.unpack("<I", start[len(MAGIC) :])
    if version != VERSION:
        raise GraphError(f"{path}: a checkpoint of format {version}; this release reads format {VERSION}")
    handle.seek(size - END.size)
    offset, length, checksum, _, last = END.unpack(handle.read(END.size))
    if last != COMPLETE or offset + length + END.size != size:
        raise _damaged(path, "it is cut short")
    handle.seek(offset)
    text = handle.read(length)
    if zlib.crc32(text) != checksum:
        raise _damaged(path, "a checksum is wrong")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _damaged(path, "no object")
    return found


def _array(path: Path, handle: BinaryIO, place: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(place["dtype"]), tuple(place["shape"])
    if dtype.kind not in NUMBERS:
        raise _damaged(path, f"an array of {dtype}")
    if any(type(size) is not int or size < 0 for size in shape) or type(place["offset"]) is not int:
        raise _damaged(path, f"an array of shape {shape}")
    if math.prod(shape) * dtype.itemsize > os.fstat(handle.fileno()).st_size:
        raise _damaged(path, "it is cut short")  # said before so much memory is asked for
    fortran = place["order"] == "F"
    array = np.empty(shape[::-1] if fortran else shape, dtype)
    flat, checksum = array.reshape(-1).view(np.uint8), 0
    handle.seek(place["offset"])
    for begin in range(0, len(flat), AT_ONCE):
        part = flat[begin : begin + AT_ONCE].data
        if handle.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise _damaged(path, "it is cut short")
        checksum = zlib.crc32(part, checksum)
    if checksum != place["crc32"]:
        raise _damaged(path, "a checksum is wrong")
    return array.T if fortran else array


def _aligned(handle: BinaryIO) -> int:
    """Where the next array begins, after zeros up to there."""
    handle.write(bytes(-handle.tell() % ALIGNMENT))
    return handle.tell()


def _damaged(path: Path, what: str) -> DamagedFileError:
    return DamagedFileError(f"{path}: damaged ({what})")
