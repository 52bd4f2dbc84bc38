"""The format of a store (docs/store.md): the manifest ``meta.json``, its validation, segments of files."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.serialization.folders import MANIFEST, StorePath, read_manifest, write_manifest
from spectrograd.typing import Array, JsonMapping, JsonObject

FORMAT = "spectrograd store"
VERSION = 2
READABLE_VERSIONS = (1, 2)  # version 1 had no delta segments
MAX_NODES = 2**31 - 1  # columns are int32
ALIGNMENT = 64  # bytes: a cache line
_FILE_NAME = re.compile(r"[a-z]+(-[0-9]+)?\.(bin|parquet)")
# Kinds of node ids.
ROWS = "rows"
INTEGERS = "integers"
TEXTS = "texts"


@dataclass(frozen=True)
class Segment:
    """A range of bytes of a file, with its checksum (CRC-32)."""

    file: str
    offset: int
    n_bytes: int
    checksum: int


@dataclass(frozen=True)
class BlockSegment(Segment):
    """One row block: rows ``start .. start + n_rows`` with ``n_entries`` entries, weighted or not."""

    start: int
    n_rows: int
    n_entries: int
    weighted: bool


@dataclass(frozen=True)
class EdgeSegment(Segment):
    """Edges, each once, in random order: ``n_edges`` sources, targets and, where weighted, weights."""

    n_edges: int
    weighted: bool


@dataclass(frozen=True)
class LayerMeta:
    """One layer: its blocks, and the statistics collected while it was written."""

    name: str
    n_entries: int
    weight_unit: float
    weights: tuple[float, float]
    degree_range: tuple[float, float]
    n_isolated: int
    n_components: int
    largest_component: int
    blocks: tuple[BlockSegment, ...]
    degrees: Segment
    components: Segment | None = None
    edges: tuple[EdgeSegment, ...] = ()
    sample: EdgeSegment | None = None
    delta: tuple[BlockSegment, ...] = ()  # changes of the rows of some blocks

    @property
    def weighted(self) -> bool:
        """Whether any weight differs from one."""
        return any(block.weighted for block in self.blocks) or self.weights != (1.0, 1.0)

    @property
    def n_changed(self) -> int:
        """Number of entries that differ from the blocks."""
        return sum(segment.n_entries for segment in self.delta)

    @property
    def segments(self) -> list[Segment]:
        """All segments of the layer."""
        optional = [segment for segment in (self.components, self.sample) if segment is not None]
        return [*self.blocks, *self.delta, *self.edges, self.degrees, *optional]


@dataclass(frozen=True)
class StoreMeta:
    """The manifest of a store. ``names`` and ``order`` are None where ids are row numbers in their order."""

    n_nodes: int
    ids: str
    multilayer: bool
    layers: tuple[LayerMeta, ...]
    fingerprint: str
    names: Segment | None = None
    order: Segment | None = None
    made: JsonMapping = field(default_factory=dict)

    @property
    def last_change(self) -> tuple[str, str] | None:
        """The fingerprint before the last change, and the digest of that change; None: there was none.

        The manifest is replaced together with the change: a process that was stopped between changing a
        store and saving its results finds here that the change is complete.
        """
        change = self.made.get("change")
        if not isinstance(change, list) or len(change) != 2:
            return None
        return str(change[0]), str(change[1])

    @property
    def segments(self) -> list[Segment]:
        """All segments of the store."""
        shared = [segment for segment in (self.names, self.order) if segment is not None]
        return shared + [segment for layer in self.layers for segment in layer.segments]

    @property
    def n_edges(self) -> int:
        """Number of edges of all layers together."""
        return sum(layer.n_entries for layer in self.layers) // 2


def block_sections(segment: BlockSegment) -> tuple[int, int, int]:
    """Offsets of the columns, the weights and the end of a block, from its first byte."""
    columns = align(8 * (segment.n_rows + 1))
    weights = align(columns + 4 * segment.n_entries)
    return columns, weights, weights + (align(4 * segment.n_entries) if segment.weighted else 0)


def align(n_bytes: int) -> int:
    """Round up to whole cache lines."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def save_meta(folder: Path, meta: StoreMeta) -> None:
    """Write the manifest."""
    write_manifest(folder, {"format": FORMAT, "version": VERSION, "codec": "none", **asdict(meta)})


def load_meta(folder: StorePath) -> StoreMeta:
    """Read the manifest and check that it agrees with the files of the folder."""
    content = read_manifest(folder)
    where = folder / MANIFEST
    if content.pop("format", None) != FORMAT:
        raise GraphError(f"{where}: this is no graph store")
    version = content.pop("version", None)
    codec = content.pop("codec", None)
    if version not in READABLE_VERSIONS:
        raise GraphError(
            f"{where}: format version {version}, this program reads versions 1 to {VERSION}; "
            "update spectrograd or convert the graph again"
        )
    if codec != "none":
        raise GraphError(f"{where}: unknown codec {codec!r}; convert the graph again")
    try:
        layers = tuple(map(_parse_layer, content.pop("layers")))
        segments: JsonObject = {name: _parse_optional(content.pop(name)) for name in ("names", "order")}
        meta = StoreMeta(layers=layers, **segments, **content)
        _check(folder, meta)
    except GraphError:
        raise
    except (TypeError, KeyError, AttributeError, OverflowError, ValueError) as error:
        raise GraphError(f"{where}: damaged ({error}); convert the graph again") from None
    return meta


def _parse_layer(content: JsonObject) -> LayerMeta:
    segment_lists = {"blocks": BlockSegment, "edges": EdgeSegment}
    values = dict(content)
    for name, kind in segment_lists.items():
        values[name] = tuple(_parse_segment(kind, segment) for segment in content[name])
    values["delta"] = tuple(_parse_segment(BlockSegment, segment) for segment in content.get("delta", ()))
    for name in ("weights", "degree_range"):
        low, high = content[name]
        values[name] = (float(low), float(high))
    values["degrees"] = _parse_segment(Segment, content["degrees"])
    values["components"] = _parse_optional(content["components"])
    values["sample"] = None if content["sample"] is None else _parse_segment(EdgeSegment, content["sample"])
    return LayerMeta(**values)


def _parse_optional(content: JsonObject | None) -> Segment | None:
    return None if content is None else _parse_segment(Segment, content)


def _parse_segment(kind: type[Any], content: JsonObject) -> Any:
    """Make a segment of JSON; values of a wrong type or range are refused."""
    segment = kind(**content)
    for entry in fields(kind):
        value: Any = getattr(segment, entry.name)
        expected: type = {"file": str, "weighted": bool}.get(entry.name, int)
        if type(value) is not expected or (isinstance(value, int) and not 0 <= value < 2**63):
            raise TypeError(f"{entry.name} is {value!r}")
    if not _FILE_NAME.fullmatch(segment.file):
        raise TypeError(f"{segment.file!r} is not the name of a file inside the store")
    return segment


def _check(folder: StorePath, meta: StoreMeta) -> None:
    """Refuse sizes that do not agree, and files that are missing or too short."""
    if type(meta.n_nodes) is not int or not 0 < meta.n_nodes <= MAX_NODES:
        raise TypeError(f"n_nodes is {meta.n_nodes!r}")
    if type(meta.fingerprint) is not str or type(meta.multilayer) is not bool:
        raise TypeError(f"fingerprint is {meta.fingerprint!r}, multilayer {meta.multilayer!r}")
    if not isinstance(meta.made, dict):
        raise TypeError(f"made is {meta.made!r}")
    if meta.ids not in (ROWS, INTEGERS, TEXTS) or (meta.ids == ROWS) != (meta.names is None):
        raise TypeError(f"ids is {meta.ids!r}")
    if not meta.layers or (len(meta.layers) > 1 and not meta.multilayer):
        raise TypeError(f"{len(meta.layers)} layers")
    for layer in meta.layers:
        _check_layer(meta.n_nodes, layer)
    sizes: dict[str, int] = {}
    for segment in meta.segments:
        sizes[segment.file] = max(sizes.get(segment.file, 0), segment.offset + segment.n_bytes)
    for name, size in sizes.items():
        path = folder / name
        try:
            actual = -1 if path.is_symlink() else path.stat().st_size
        except OSError as error:
            raise GraphError(f"{path}: {error.strerror}; convert the graph again") from None
        if isinstance(path, Path) and not path.is_file():
            raise GraphError(f"{path}: this is no file; convert the graph again")
        if actual < size:
            raise GraphError(f"{path}: {actual:,} bytes, {size:,} expected; convert the graph again")


def _check_numbers(n_nodes: int, layer: LayerMeta) -> None:
    """Refuse statistics of a layer that are out of range."""
    if type(layer.name) is not str:
        raise TypeError(f"the name of a layer is {layer.name!r}")
    for name in ("n_isolated", "n_components", "largest_component"):
        value: Any = getattr(layer, name)
        if type(value) is not int or not 0 <= value <= n_nodes:
            raise TypeError(f"{name} is {value!r}")
    if layer.n_components < 1:
        raise TypeError(f"n_components is {layer.n_components}")
    for name, least in (("weights", -math.inf), ("degree_range", 0.0)):  # a signed graph has negative weights
        low, high = getattr(layer, name)
        if not (least <= low <= high < math.inf and low > -math.inf):
            raise TypeError(f"{name} is {low!r} to {high!r}")


def _check_layer(n_nodes: int, layer: LayerMeta) -> None:
    _check_numbers(n_nodes, layer)
    if type(layer.weight_unit) is not float:
        raise TypeError(f"weight_unit is {layer.weight_unit!r}")
    if not (0 < layer.weight_unit < math.inf and math.frexp(layer.weight_unit)[0] == 0.5):
        raise TypeError(f"weight_unit is {layer.weight_unit!r}, no power of two")
    row = 0
    for block in layer.blocks:
        fits = block.start == row and block.n_rows > 0 and block.n_entries <= block.n_rows * n_nodes
        if not fits or block.n_entries >= 2**31 or block.n_bytes != block_sections(block)[2]:
            raise TypeError(f"the block of row {block.start} has impossible sizes")
        row += block.n_rows
    total = sum(block.n_entries for block in layer.blocks)
    if layer.components is not None and layer.components.n_bytes != 4 * n_nodes:
        raise TypeError(f"layer {layer.name!r}: components are missing")
    if row != n_nodes or layer.degrees.n_bytes != 8 * n_nodes:
        raise TypeError(f"layer {layer.name!r}: rows are missing")
    if type(layer.n_entries) is not int or abs(total - layer.n_entries) > layer.n_changed:
        raise TypeError(f"layer {layer.name!r}: entries are missing")
    ranges = {block.start: block.n_rows for block in layer.blocks}
    for changes in layer.delta:
        fits = ranges.pop(changes.start, None) == changes.n_rows and changes.weighted
        if not fits or changes.n_bytes != block_sections(changes)[2]:
            raise TypeError(f"the changes of row {changes.start} have impossible sizes")
    for segment in (*layer.edges, *([layer.sample] if layer.sample else [])):
        if segment.n_bytes != (12 if segment.weighted else 8) * segment.n_edges:
            raise TypeError(f"{segment.file} has impossible sizes")


# --- Writing of segments

MAX_FILE_BYTES = 4 << 30  # of one blocks or edges file: even a store of a terabyte opens few files


class SegmentWriter:
    """Appends segments to ``stem-000.bin``, ``stem-001.bin`` ... (or ``stem.bin``), each at a cache line."""

    def __init__(self, folder: Path, stem: str, *, numbered: bool = True, first: int = 0) -> None:
        self._folder = folder
        self._stem = stem
        self._numbered = numbered
        self._number = first - 1
        self._offset = MAX_FILE_BYTES  # the first segment opens a file
        self._handle: BinaryIO | None = None

    def append(self, sections: Sequence[Array], *, pad: bool = False) -> Segment:
        """Write the sections one after the other; with ``pad`` each is filled up to whole cache lines."""
        if self._offset >= MAX_FILE_BYTES and (self._numbered or self._handle is None):
            self._next_file()
        assert self._handle is not None
        begin = self._offset
        checksum = 0
        n_bytes = 0
        for section in sections:
            data = np.ascontiguousarray(section).view(np.uint8)
            parts = [data]
            if pad:
                parts.append(np.zeros(align(len(data)) - len(data), np.uint8))
            for part in parts:
                self._handle.write(part.data)
                checksum = zlib.crc32(part.data, checksum)
                n_bytes += len(part)
        self._offset = begin + align(n_bytes)
        self._handle.write(bytes(self._offset - begin - n_bytes))
        return Segment(self._file, begin, n_bytes, checksum)

    def block(self, start: int, indptr: Array, columns: Array, weights: Array | None) -> BlockSegment:
        """Write one row block."""
        sections = [indptr.astype(np.int64, copy=False), columns] + ([] if weights is None else [weights])
        segment = self.append(sections, pad=True)
        sizes = start, len(indptr) - 1, len(columns)
        where = segment.file, segment.offset, segment.n_bytes, segment.checksum
        return BlockSegment(*where, *sizes, weights is not None)

    def edges(self, source: Array, target: Array, weight: Array | None) -> EdgeSegment:
        """Write edges, each once."""
        segment = self.append([source, target] + ([] if weight is None else [weight]))
        where = segment.file, segment.offset, segment.n_bytes, segment.checksum
        return EdgeSegment(*where, n_edges=len(source), weighted=weight is not None)

    def _next_file(self) -> None:
        self.close()
        self._number += 1
        self._offset = 0
        self._file = f"{self._stem}-{self._number:03d}.bin" if self._numbered else f"{self._stem}.bin"
        self._handle = open(self._folder / self._file, "wb")  # noqa: SIM115 (see close)

    def close(self) -> None:
        """Close the last file."""
        if self._handle is not None:
            self._handle.close()


def write_file(folder: Path, name: str, array: Array) -> Segment:
    """Write one array as a file of its own."""
    data = np.ascontiguousarray(array).view(np.uint8)
    with open(folder / name, "wb") as handle:
        handle.write(data.data)
    return Segment(name, 0, len(data), zlib.crc32(data.data))
