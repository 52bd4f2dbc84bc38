"""Values as JSON and arrays, and back: what saved models and checkpoints have in common.

No pickle: a file from a stranger can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.serialization.folders import sync_folder
from spectrograd.typing import Array


class PlainWriter(ABC):
    """Turns values into JSON; where arrays go and which other values there may be is the derived class's."""

    def encode(self, value: Any, where: str) -> Any:
        """The value as JSON; ``where`` names it, for files and errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if type(value) is float:  # derived ones may know more
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, list) or type(value) is tuple:
            word = "list" if isinstance(value, list) else "tuple"
            return {word: [self.encode(item, f"{where}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self.encode(item, f"{where}.{name}") for name, item in value.items()}}
        return self.other(value, where)

    @abstractmethod
    def array(self, array: Array, where: str) -> dict[str, Any]:
        """Keep an array; what stands in its place."""

    def other(self, value: Any, where: str) -> Any:
        """Whatever is no plain value."""
        raise GraphError(f"{where} is of type {type(value).__name__}, which cannot be saved")


class PlainReader(ABC):
    """The way back; ``listed`` is what lists become."""

    listed: ClassVar[type[list[Any]] | type[tuple[Any, ...]]] = list

    def decode(self, value: Any) -> Any:
        """The value behind its JSON."""
        if not isinstance(value, dict):
            return value
        if "array" in value:
            return self.array(value["array"])
        if "float" in value:
            return float(value["float"])
        if "list" in value:
            return self.listed(self.decode(item) for item in value["list"])
        if "tuple" in value:
            return tuple(self.decode(item) for item in value["tuple"])
        if "dict" in value:
            return {name: self.decode(item) for name, item in value["dict"].items()}
        return self.other(value)

    @abstractmethod
    def array(self, kept: Any) -> Array:
        """The array behind what stands in its place."""

    @abstractmethod
    def other(self, value: Mapping[str, Any]) -> Any:
        """Whatever is no plain value."""


# --- One file with a value in it, whole or not there at all: arrays as they lie in memory, the rest as JSON.

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
