"""The codec of saved models and checkpoints: values as JSON beside arrays, and the file of a checkpoint.

Instances of the classes in :data:`KINDS` are written field by field and made again from their fields.
There is no pickle: a file from an untrusted source can hold wrong numbers, but cannot run code.
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
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.serialization.folders import sync_folder
from spectrograd.typing import Array, JsonMapping, JsonObject

# --- The classes of this package that a file may hold

PACKAGE = "spectrograd"
DERIVED = "derived"  # marks fields of states that `init` computes from the problem: no file holds them
_CLASSES = {
    "aggregation.joint": "EpochsState JointState",
    "certificate.block_probe": "BlockProbeEvidence ProbeBlock",
    "certificate.certificate": "Certificate ComplementBound",
    "certificate.edge_insertion": "EdgeInsertionBound",
    "certificate.mixed_columns": "MixedColumns",
    "certificate.lanczos_probe": (
        "Evidence Guards InverseProbeEvidence LanczosProbeEvidence MeasuredRitz Recurrence"
    ),
    "embedding": "Embedding",
    "estimators.affinity_rows": "DistanceRows FeatureQuery KernelRows MatrixRows PointRows",
    "estimators.out_of_sample": "LastQuery TrainingData",
    "graph.components": "Connectivity",
    "graph.feature_rows": "ResidentFeatures",
    "graph.features": "FeatureGraph",
    "graph.graph": "Graph RowBlock",
    "graph.multilayer": "MultilayerGraph",
    "io.features": "H5adFeatures NpzFeatures ParquetFeatures",
    "labels.eigengap": "Eigengap",
    "labels.matching": "LabelChanges",
    "labels.nearest_cluster": "NearestCluster",
    "linalg.chebyshev_filter": "Filter",
    "linalg.subspace": "Ritz RitzValues",
    "operators.laplacian": "Regularization",
    "pipeline.aggregation_choice": "AggregationChoice",
    "pipeline.cluster_verdict": "ClusterVerdict",
    "pipeline.out_of_sample": "Extension LayerRule OutlierScale",
    "pipeline.result": "Attempt CertifiedEmbedding",
    "pipeline.treatment": "Candidate Treatment",
    "points.fourier": "FourierMap",
    "points.ivf_index": "IVFIndex InvertedLists",
    "points.query": "KnownPoints",
    "solvers.base": "Progress StepState",
    "solvers.chebyshev": "ChebyshevState",
    "solvers.chebyshev_by_parts": "PartState",
    "solvers.chebyshev_few_passes": "FewPassState",
    "solvers.checkpoint": "PackedSnapshot Snapshot",
    "solvers.compressive": "CompressiveState",
    "solvers.eigen": "EigenState",
    "solvers.lanczos": "LanczosState",
    "solvers.lanczos_few_passes": "BlockLanczosState",
    "solvers.lobpcg": "LobpcgState",
    "solvers.minibatch": "Deck",
    "solvers.multilevel": "MultilevelState",
    "solvers.power": "CoordinateState PowerState",
    "solvers.ritz": "RitzState",
    "solvers.sgd": "DescentState",
    "solvers.sgd_base": "SGDBaseState",
    "solvers.sgd_paper": "PaperState",
    "solvers.shift_invert": "FactoredState RationalFilter",
    "solvers.stochastic_fb": "RiemannianState",
    "solvers.torch_sgd": "TorchDescentState TorchPaperState",
}
KINDS: Mapping[str, str] = {name: module for module, names in _CLASSES.items() for name in names.split()}
"""Class name -> module, of every class that a file may name: a reader looks up nothing else."""
CACHED: Mapping[str, tuple[str, ...]] = {
    "FeatureQuery": ("keys",),
    "KernelRows": ("keys",),
    "TrainingData": ("outlier_scale",),
}
"""Class name -> cached properties that are saved with the fields, because they are expensive."""
OMITTED: Mapping[str, tuple[str, ...]] = {"LastQuery": ("rows",)}
"""Class name -> fields that a saved value does without."""


class NotSaved:
    """A placeholder in a decoded state for a field marked :data:`DERIVED`."""


# --- Values as JSON and back

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class ValueWriter(ABC):
    """Encodes values as JSON; derived classes say where arrays go and encode further types."""

    def encode(self, value: object, where: str) -> Json:
        """Encode a value as JSON; ``where`` names it in files and errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if type(value) is float:  # subclasses such as Recall hold more than a number
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, list) or type(value) is tuple:
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.encode(item, f"{where}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self.encode(item, f"{where}.{name}") for name, item in value.items()}}
        if type(value).__module__ == f"{PACKAGE}.{KINDS.get(type(value).__name__)}":
            return self._encode_fields(value, where)
        return self.other(value, where)

    def _encode_fields(self, value: object, where: str) -> Json:
        """Encode a dataclass or a named tuple field by field."""
        kind = type(value).__name__
        encoded: dict[str, Json] = {}
        for name, is_derived in _field_names(value):
            item = None if name in OMITTED.get(kind, ()) else getattr(value, name)
            if is_derived and item is not None:
                encoded[name] = {"derived": True}
            else:
                encoded[name] = self.encode(item, f"{where}.{name}")
        cached = {name: getattr(value, name) for name in CACHED.get(kind, ())}
        return {
            "kind": kind,
            "fields": encoded,
            "derived": {name: self.encode(item, f"{where}.{name}") for name, item in cached.items()},
        }

    @abstractmethod
    def array(self, array: Array, where: str) -> Json:
        """Store an array; return the JSON that refers to it."""

    def other(self, value: object, where: str) -> Json:
        """Encode a value of another type."""
        raise GraphError(f"{where} is of type {type(value).__name__}, which cannot be saved")


def _field_names(value: object) -> list[tuple[str, bool]]:
    """Return the fields of a dataclass or a named tuple, and whether each is marked :data:`DERIVED`."""
    if is_dataclass(value):
        return [(each.name, DERIVED in each.metadata) for each in fields(value)]
    return [(name, False) for name in getattr(value, "_fields", ())]


class ValueReader(ABC):
    """Decodes what a :class:`ValueWriter` encoded; ``listed`` is the type of decoded lists."""

    listed: ClassVar[type[list[Any]] | type[tuple[Any, ...]]] = list

    def decode(self, value: object) -> Any:
        """Decode a value from JSON."""
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
        if "kind" in value:
            return self._decode_fields(value)
        if "derived" in value:
            return NotSaved()
        return self.other(value)

    def _decode_fields(self, value: JsonMapping) -> Any:
        """Construct an instance of one of the :data:`KINDS` from its fields."""
        name = value["kind"]
        if name not in KINDS:
            raise TypeError(f"{name} is nothing that a checkpoint or a model holds")
        kind = getattr(import_module(f"{PACKAGE}.{KINDS[name]}"), name)
        decoded = kind(**{field: self.decode(item) for field, item in value["fields"].items()})
        for attribute, item in value["derived"].items():
            if attribute in CACHED.get(name, ()):
                vars(decoded)[attribute] = self.decode(item)  # where a cached property keeps its value
        if isinstance(decoded, ChecksStructure):
            decoded.check_structure()
        return decoded

    @abstractmethod
    def array(self, reference: Any) -> Array:
        """Return the array that a reference stands for."""

    @abstractmethod
    def other(self, value: JsonMapping) -> Any:
        """Decode a value of another type."""


@runtime_checkable
class ChecksStructure(Protocol):
    """A class whose arrays compiled code reads without looking at bounds."""

    def check_structure(self) -> None:
        """Raise an error where the arrays do not fit together."""


# --- A file with one value: arrays as in memory, then JSON, then the trailer; renamed when it is complete

MAGIC = b"spectrograd checkpoint\n"
VERSION = 3
ALIGNMENT = 64  # bytes
TRAILER = struct.Struct("<QQII8s")  # offset, length and checksum of the JSON; reserved; COMPLETE
COMPLETE = b"complete"
CHECKSUM_CHUNK = 16 << 20  # bytes
NUMERIC_KINDS = "biuf"  # of arrays: no kind that could hold an object


class DamagedFileError(GraphError):
    """The file differs from the one written: it is truncated, or a checksum is wrong."""


@dataclass(eq=False)
class ArraySink:
    """Writes arrays to a file, each once, however often it is part of the value."""

    handle: BinaryIO
    table: list[JsonObject] = field(default_factory=list)
    _seen: dict[int, tuple[int, Array]] = field(default_factory=dict)

    def add(self, array: Array, *, passing: bool = False) -> int:
        """Write an array and return its number; a ``passing`` array is not remembered, so it can be freed."""
        if id(array) in self._seen:
            return self._seen[id(array)][0]
        if array.dtype.kind not in NUMERIC_KINDS:
            raise GraphError(f"an array of {array.dtype} cannot be saved")
        number = len(self.table)
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        offset = _align(self.handle)
        checksum = 0
        flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1).view(np.uint8)
        for begin in range(0, len(flat), CHECKSUM_CHUNK):
            part = flat[begin : begin + CHECKSUM_CHUNK].data
            checksum = zlib.crc32(part, checksum)
            self.handle.write(part)
        little = array.dtype.newbyteorder("<").str
        entry = {"offset": offset, "dtype": little, "shape": list(array.shape), "crc32": checksum}
        self.table.append(entry | {"order": "F" if fortran else "C"})
        if not passing:
            self._seen[id(array)] = (number, array)  # the array too, or its id might be used again
        return number


def write_value(path: Path, header: Mapping[str, object], encode: Callable[[ArraySink], object]) -> None:
    """Write ``encode(sink)``, which is JSON, and its arrays; the file gets its name when all is on the disk.

    After an error no part of it remains; an error of the disk names the path.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb") as handle:
            handle.write(MAGIC + struct.pack("<I", VERSION))
            sink = ArraySink(handle)
            value = encode(sink)
            content = {"header": dict(header), "value": value, "arrays": sink.table}
            text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
            offset = _align(handle)
            handle.write(text + TRAILER.pack(offset, len(text), zlib.crc32(text), 0, COMPLETE))
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


def read_header(path: Path) -> JsonObject:
    """Read the header of a file; its arrays are not read."""
    with _open(path) as handle:
        header = _read_content(path, handle).get("header")
        if not isinstance(header, dict):
            raise _damaged(path, "it does not say whose it is")
        return header


def read_value(path: Path) -> tuple[Any, list[Array]]:
    """Read the JSON of the value and its arrays; all checksums are verified."""
    with _open(path) as handle:
        content = _read_content(path, handle)
        try:
            return content["value"], [_read_array(path, handle, entry) for entry in content["arrays"]]
        except DamagedFileError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, MemoryError, AttributeError) as error:
            raise _damaged(path, str(error) or type(error).__name__) from None


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except (IsADirectoryError, FileNotFoundError) as error:  # or a link to nowhere
        raise _damaged(path, f"no file: {error.strerror}") from None


def _read_content(path: Path, handle: BinaryIO) -> JsonObject:
    size = os.fstat(handle.fileno()).st_size
    # 1. The beginning: what kind of file it is, and which version.
    start = handle.read(len(MAGIC) + 4)
    if size < ALIGNMENT + TRAILER.size or not start.startswith(MAGIC):
        raise _damaged(path, "it is cut short, or no checkpoint")
    (version,) = struct.unpack("<I", start[len(MAGIC) :])
    if version != VERSION:
        raise GraphError(f"{path}: a checkpoint of format {version}; this release reads format {VERSION}")
    # 2. The end: the trailer is written last, so a file without it is cut short.
    handle.seek(size - TRAILER.size)
    offset, length, checksum, _, last = TRAILER.unpack(handle.read(TRAILER.size))
    if last != COMPLETE or offset + length + TRAILER.size != size:
        raise _damaged(path, "it is cut short")
    # 3. The JSON, whose checksum the trailer holds.
    handle.seek(offset)
    text = handle.read(length)
    if zlib.crc32(text) != checksum:
        raise _damaged(path, "a checksum is wrong")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise _damaged(path, "no object")
    return content


def _read_array(path: Path, handle: BinaryIO, entry: JsonMapping) -> Array:
    dtype = np.dtype(entry["dtype"])
    shape = tuple(entry["shape"])
    if dtype.kind not in NUMERIC_KINDS:
        raise _damaged(path, f"an array of {dtype}")
    if any(type(size) is not int or size < 0 for size in shape) or type(entry["offset"]) is not int:
        raise _damaged(path, f"an array of shape {shape}")
    if math.prod(shape) * dtype.itemsize > os.fstat(handle.fileno()).st_size:
        raise _damaged(path, "it is cut short")  # before so much memory is allocated
    fortran = entry["order"] == "F"
    array = np.empty(shape[::-1] if fortran else shape, dtype)
    flat = array.reshape(-1).view(np.uint8)
    checksum = 0
    handle.seek(entry["offset"])
    for begin in range(0, len(flat), CHECKSUM_CHUNK):
        part = flat[begin : begin + CHECKSUM_CHUNK].data
        if handle.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise _damaged(path, "it is cut short")
        checksum = zlib.crc32(part, checksum)
    if checksum != entry["crc32"]:
        raise _damaged(path, "a checksum is wrong")
    return array.T if fortran else array


def _align(handle: BinaryIO) -> int:
    """Pad with zeros to the next aligned offset, and return it."""
    handle.write(bytes(-handle.tell() % ALIGNMENT))
    return handle.tell()


def _damaged(path: Path, what: str) -> DamagedFileError:
    return DamagedFileError(f"{path}: damaged ({what})")
