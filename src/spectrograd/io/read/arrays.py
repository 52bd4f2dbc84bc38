"""Arrays in ``.npy`` and ``.npz`` files, read without trusting what their headers claim."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from spectrograd.extras import MissingExtra
from spectrograd.graph import Array, GraphError

_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_PICKLE = "holds Python objects (a pickle), which are never opened; save numbers or texts"


@contextmanager
def decoding(path: str, what: str, remedy: str = "copy or save it again") -> Iterator[None]:
    """Whatever a decoder of foreign bytes fails with is a fault of the file, and names it.

    Bytes flipped at random reach any line of zipfile, expat or a header's parser: no list of exceptions is
    complete. As little as possible belongs inside: a bug of ours would be told as a fault of the file.
    """
    try:
        yield
    except (GraphError, MissingExtra):
        raise
    except MemoryError:
        raise GraphError(
            f"{path}: {what} (it claims more than this machine's memory holds); {remedy}"
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
        raise GraphError(f"{path}: {what} ({reason}); {remedy}") from None


def load_array(path: str) -> Array:
    """Read the array of an ``.npy`` file; a file that is none is a ValueError."""
    with open(path, "rb") as handle:
        return _array(handle.read(), path)


class Archive(Mapping[str, Array]):
    """The arrays of an ``.npz`` file by name, each read when asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._zip = zipfile.ZipFile(path)
        entries = (name for name in self._zip.namelist() if name.endswith(".npy"))
        self._entries = {entry.removesuffix(".npy"): entry for entry in entries}

    def __getitem__(self, name: str) -> Array:
        return _array(self._zip.read(self._entries[name]), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: Any) -> None:
        self._zip.close()


def _array(content: bytes, name: str) -> Array:
    """The array in the bytes of an ``.npy`` file; its claims are believed only where the bytes are there."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADER_READERS:
        raise ValueError(f"{name!r}: version {version} of the npy format is unknown")
    shape, fortran_order, dtype = _HEADER_READERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"the array {name!r} {_PICKLE}")
    n_items, there = math.prod(shape), len(content) - stream.tell()
    if min(shape, default=0) < 0 or dtype.itemsize * n_items > there:
        raise ValueError(
            f"the array {name!r} claims {n_items:,} entries of {dtype.itemsize} bytes, "
            f"{there:,} bytes are there"
        )
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(content, dtype, count=n_items, offset=stream.tell())
    # A copy: a view of bytes could be neither written to nor freed.
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()
