"""The structure of MATLAB's ``.mat`` files (version 5), looked at before scipy reads them.

The compiled reader of scipy trusts the lengths that a file states, and a wrong one can end the process. An
element is a tag (type and number of bytes) and its data; arrays are elements that hold elements ("MAT-File
Format", MathWorks, R2024a).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

_Order = Literal["little", "big"]
_HEADER_BYTES = 128
_TAG_BYTES = 8
_MATRIX = 14
_COMPRESSED = 15
_MAX_DEPTH = 30  # cells inside cells
_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_CELL, _STRUCT, _OBJECT, _SPARSE = 1, 2, 3, 5  # classes of arrays
_OPAQUE = (16, 17)  # functions and newer objects, which have no dimensions


class _Element(NamedTuple):
    kind: int
    data: bytes


def checked(content: bytes) -> bytes:
    """The content with nothing packed in it, or ValueError; files of version 4 are returned as they are."""
    if len(content) < _HEADER_BYTES or 0 in content[:4]:
        return content
    if content[126:128] not in (b"IM", b"MI"):
        raise ValueError("its header is damaged")
    order: _Order = "little" if content[126:128] == b"IM" else "big"
    whole = [content[:_HEADER_BYTES]]
    at = _HEADER_BYTES
    while at < len(content):
        element, at = _element(content, at, order)
        if element.kind == _COMPRESSED:
            unpacked = _unpacked(element.data, order)
            element, _ = _element(unpacked, 0, order)
        else:
            unpacked = element.kind.to_bytes(4, order) + len(element.data).to_bytes(4, order) + element.data
        if element.kind != _MATRIX:
            raise ValueError(f"it holds an element of type {element.kind} where a variable is expected")
        _check_matrix(element.data, order, 0)
        whole.append(unpacked)
    return b"".join(whole)


def _unpacked(data: bytes, order: _Order) -> bytes:
    """The element in a compressed one, and no more bytes than its tag says."""
    try:
        unpacking = zlib.decompressobj()
        tag = unpacking.decompress(data, _TAG_BYTES)
        n_bytes = int.from_bytes(tag[4:], order)
        rest = unpacking.decompress(unpacking.unconsumed_tail, n_bytes) if n_bytes else b""
        # The check sum comes behind the data; it is compared when the end is reached.
        unpacking.decompress(unpacking.unconsumed_tail, _TAG_BYTES)
    except zlib.error as error:
        raise ValueError(f"a packed variable is damaged ({error})") from None
    if not unpacking.eof:
        raise ValueError("a packed variable ends too early or too late")
    return tag + rest


def _element(data: bytes, at: int, order: _Order) -> tuple[_Element, int]:
    """The element at a place, and where the next one begins."""
    tag = data[at : at + _TAG_BYTES]
    if len(tag) < _TAG_BYTES:
        raise ValueError("it ends inside a variable")
    kind = int.from_bytes(tag[:4], order)
    n_bytes = int.from_bytes(tag[4:], order)
    begin = at + _TAG_BYTES
    if kind >> 16:  # a small element: its data are in the tag
        n_bytes = kind >> 16
        kind &= 0xFFFF
        begin = at + 4
        if n_bytes > 4:
            raise ValueError("a variable states a wrong length")
    if begin + n_bytes > len(data):
        raise ValueError("a variable states a length beyond the end")
    if kind not in (_MATRIX, _COMPRESSED) and n_bytes % _ITEM_BYTES.get(kind, n_bytes + 1):
        raise ValueError("a variable states a wrong type or length")
    end = begin + n_bytes
    padded = end if kind == _COMPRESSED else -(-(end - at) // 8) * 8 + at
    return _Element(kind, data[begin:end]), padded


def _elements(data: bytes, order: _Order) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        element, at = _element(data, at, order)
        yield element


def _check_matrix(data: bytes, order: _Order, depth: int) -> None:
    """Refuse an array whose parts do not fit together; those in it are looked at as well."""
    if depth > _MAX_DEPTH:
        raise ValueError("cells inside cells inside cells, too many of them")
    if not data:
        return  # an empty cell
    flags, *parts = _elements(data, order)
    if flags.kind != 6 or len(flags.data) != 8:
        raise ValueError("a variable has no flags")
    class_of = int.from_bytes(flags.data[:4], order) & 0xFF
    if not _CELL <= class_of <= max(_OPAQUE):
        raise ValueError(f"a variable is of the unknown class {class_of}")
    inner = [part for part in parts if part.kind == _MATRIX]
    for part in inner:
        _check_matrix(part.data, order, depth + 1)
    if class_of in _OPAQUE:
        return
    if len(parts) < 2 or parts[0].kind != 5:
        raise ValueError("a variable has no dimensions")
    sizes = [
        int.from_bytes(parts[0].data[at : at + 4], order, signed=True)
        for at in range(0, len(parts[0].data), 4)
    ]
    if len(sizes) < 2 or min(sizes) < 0:
        raise ValueError(f"a variable has dimensions {tuple(sizes)}")
    n_items = math.prod(sizes)
    values = [len(part.data) // _ITEM_BYTES[part.kind] for part in parts[2:] if part.kind != _MATRIX]
    if class_of == _CELL:
        fits = len(inner) == n_items
    elif class_of in (_STRUCT, _OBJECT):
        fits = len(inner) % n_items == 0 if n_items else not inner
    elif class_of == _SPARSE:
        fits = len(values) >= 3 and values[1] == sizes[1] + 1
    else:
        fits = bool(values) and values[0] == n_items
    if not fits:
        raise ValueError(f"a variable of dimensions {tuple(sizes)} holds more or fewer values than these")
