"""Fitted values as JSON and arrays, and back: plain values, arrays, and a fixed list of our own frozen ones.

No pickle: a model from a stranger can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.graph import GraphError, Recall
from spectrograd.store.stored import StoredGraph, StorePlace

Array = NDArray[Any]
# What may stand in a saved model -> where it lives, and which of its derived values are worth keeping.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Graph": ("graph.graph", ()),
    "RowBlock": ("graph.graph", ()),
    "MultilayerGraph": ("graph.multilayer", ()),
    "Connectivity": ("graph.pieces", ()),
    "Certificate": ("certificate.certificate", ()),
    "Regularization": ("operators.regularized", ()),
    "Eigengap": ("labels.eigengap", ()),
    "LabelChanges": ("labels.alignment", ()),
    "NearestCluster": ("labels.nearest_cluster", ()),
    "Extension": ("pipeline.extension", ()),
    "LayerRule": ("pipeline.extension", ()),
    "Remoteness": ("pipeline.outliers", ()),
    "KnownPoints": ("points.new_points", ()),
    "PointRows": ("estimators.row_makers", ("known",)),
    "KernelRows": ("estimators.row_makers", ("keys",)),
    "MatrixRows": ("estimators.row_makers", ()),
    "DistanceRows": ("estimators.row_makers", ()),
    "Knowledge": ("estimators.living", ("remoteness",)),
    "Answer": ("estimators.living", ()),
    "Attempt": ("pipeline.embedded", ()),
    "Progress": ("solvers.protocol", ()),
}
LOST = {"PointRows": ("matrix",), "Answer": ("scores", "names")}  # fields that a saved value does without


@dataclass(eq=False)
class Writer:
    """Turns values into JSON; arrays become files of the folder, each once."""

    folder: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    _seen: dict[int, tuple[str, Array]] = field(default_factory=dict)

    def encode(self, value: Any, where: str) -> Any:
        """The value as JSON; ``where`` names it, for files and errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, StoredGraph):
            path, fingerprint, layer, dtype = value.place
            return {"store": [str(path), fingerprint, layer, str(dtype)]}
        if isinstance(value, Recall):
            return {"recall": value.summary()}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if sp.issparse(value):
            csr = sp.csr_array(value)
            parts = [self.encode(getattr(csr, name), f"{where}.{name}") for name in _CSR]
            return {"sparse": [*parts, list(csr.shape)]}
        if isinstance(value, list | tuple):
            return {"list": [self.encode(item, f"{where}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self.encode(item, f"{where}.{name}") for name, item in value.items()}}
        if is_dataclass(value) and type(value).__name__ in KINDS:
            return self._dataclass(value, where)
        raise GraphError(f"{where} is of type {type(value).__name__}, which a saved model cannot hold")

    def _dataclass(self, value: Any, where: str) -> dict[str, Any]:
        kind = type(value).__name__
        lost = LOST.get(kind, ())
        held = {f.name: None if f.name in lost else getattr(value, f.name) for f in fields(value)}
        derived = (
            {}
            if getattr(value, "extension", value) is None
            else {n: getattr(value, n) for n in KINDS[kind][1]}
        )
        return {
            "kind": kind,
            "fields": {name: self.encode(item, f"{where}.{name}") for name, item in held.items()},
            "derived": {name: self.encode(item, f"{where}.{name}") for name, item in derived.items()},
        }

    def _array(self, array: Array, where: str) -> dict[str, Any]:
        if array.dtype == object:
            listed = array.tolist()
            if not all(isinstance(name, str | int) for name in listed):
                raise GraphError(
                    f"{where}: names other than numbers and texts cannot be saved; rename the nodes"
                )
            return {"names": listed}
        if id(array) not in self._seen:
            file = f"{where}.npy"
            np.save(self.folder / file, array, allow_pickle=False)
            content = (self.folder / file).read_bytes()
            self.files[file] = {"bytes": len(content), "crc32": zlib.crc32(content)}
            self._seen[id(array)] = (file, array)  # the array too, or its id might be used again
        return {"array": self._seen[id(array)][0]}


@dataclass(frozen=True, eq=False)
class Reader:
    """The way back; arrays are mapped, not read."""

    folder: Path

    def decode(self, value: Any) -> Any:
        """The value behind its JSON."""
        if not isinstance(value, dict):
            return value
        if "array" in value:
            path = self.folder / Path(value["array"]).name
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        if "kind" in value:
            return self._dataclass(value)
        if "list" in value:
            return tuple(self.decode(item) for item in value["list"])
        if "dict" in value:
            return {name: self.decode(item) for name, item in value["dict"].items()}
        if "sparse" in value:
            *parts, shape = value["sparse"]
            data, indices, indptr = map(self.decode, parts)
            return sp.csr_array((data, indices, indptr), shape=tuple(shape))
        if "store" in value:
            path, fingerprint, layer, dtype = value["store"]
            return StorePlace(Path(path), fingerprint, int(layer), np.dtype(dtype)).open()
        if "recall" in value:
            return Recall.from_summary(value["recall"])
        if "names" in value:
            return np.fromiter(value["names"], dtype=object, count=len(value["names"]))
        return float(value["float"])

    def _dataclass(self, value: Mapping[str, Any]) -> Any:
        kind = value["kind"]
        made = getattr(import_module(f"spectrograd.{KINDS[kind][0]}"), kind)
        found = made(**{name: self.decode(item) for name, item in value["fields"].items()})
        for name, item in value["derived"].items():
            if name in KINDS[kind][1]:
                found.__dict__[name] = self.decode(item)  # where a cached property keeps its value
        return found


_CSR = ("data", "indices", "indptr")
