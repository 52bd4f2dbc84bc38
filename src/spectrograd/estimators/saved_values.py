"""Fitted values as JSON and arrays, and back: plain values, arrays, and a fixed list of our own frozen ones.

No pickle: a model from a stranger can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

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
from spectrograd.store.plain_values import PlainReader, PlainWriter
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
    "Lists": ("points.search.lists", ()),
    "ListIndex": ("points.search.list_search", ()),
    "KnownPoints": ("points.new_points", ()),
    "PointRows": ("estimators.row_makers", ()),
    "KernelRows": ("estimators.row_makers", ("keys",)),
    "MatrixRows": ("estimators.row_makers", ()),
    "DistanceRows": ("estimators.row_makers", ()),
    "Knowledge": ("estimators.living", ("remoteness",)),
    "Answer": ("estimators.living", ()),
    "ClusterVerdict": ("pipeline.cluster_verdict", ()),
    "Attempt": ("pipeline.embedded", ()),
    "Progress": ("solvers.protocol", ()),
}
LOST = {"Answer": ("scores", "names")}  # fields that a saved value does without


@dataclass(eq=False)
class Writer(PlainWriter):
    """Arrays become files of the folder, each once."""

    folder: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    _seen: dict[int, tuple[str, Array]] = field(default_factory=dict)

    def other(self, value: Any, where: str) -> Any:
        """Sparse matrices, and what is in the list above."""
        if isinstance(value, StoredGraph):
            path, fingerprint, layer, dtype = value.place
            return {"store": [str(path), fingerprint, layer, str(dtype)]}
        if isinstance(value, Recall):
            return {"recall": value.summary()}
        if sp.issparse(value):
            csr = sp.csr_array(value)
            parts = [self.encode(getattr(csr, name), f"{where}.{name}") for name in _CSR]
            return {"sparse": [*parts, list(csr.shape)]}
        if is_dataclass(value) and type(value).__name__ in KINDS:
            return self._dataclass(value, where)
        if isinstance(value, tuple):  # with names
            return self.encode(tuple(value), where)
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

    def array(self, array: Array, where: str) -> dict[str, Any]:
        """A file of its own, or names as they are."""
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
class Reader(PlainReader):
    """The way back; arrays are mapped, not read."""

    folder: Path
    digest: str = ""  # of a change that stores may have taken in since
    ahead: list[StoredGraph] = field(default_factory=list)  # those that have
    listed = tuple

    def array(self, kept: Any) -> Array:
        """Mapped; nothing is ever written back, but kernels are compiled for arrays that could be."""
        return np.asarray(np.load(self.folder / Path(kept).name, mmap_mode="c", allow_pickle=False))

    def other(self, value: Mapping[str, Any]) -> Any:
        """As :meth:`Writer.other` has it."""
        if "kind" in value:
            return self._dataclass(value)
        if "sparse" in value:
            *parts, shape = value["sparse"]
            data, indices, indptr = map(self.decode, parts)
            matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape))
            matrix.check_format(full_check=True)  # one pass: compiled code does not look
            return matrix
        if "store" in value:
            path, fingerprint, layer, dtype = value["store"]
            return self._stored(StorePlace(Path(path), str(fingerprint), int(layer), np.dtype(dtype)))
        if "recall" in value:
            return Recall.from_summary(value["recall"])
        return np.fromiter(value["names"], dtype=object, count=len(value["names"]))

    def _stored(self, place: StorePlace) -> StoredGraph:
        graph = place.open(self.digest)
        if graph.store.meta.fingerprint != place.fingerprint:
            self.ahead.append(graph)
        return graph

    def _dataclass(self, value: Mapping[str, Any]) -> Any:
        kind = value["kind"]
        made = getattr(import_module(f"spectrograd.{KINDS[kind][0]}"), kind)
        found = made(**{name: self.decode(item) for name, item in value["fields"].items()})
        for name, item in value["derived"].items():
            if name in KINDS[kind][1]:
                found.__dict__[name] = self.decode(item)  # where a cached property keeps its value
        if kind == "Graph":
            found.check_structure()
        elif kind == "Lists":
            _check_lists(found)
        return found


def _check_lists(lists: Any) -> None:
    """Refuse lists of points that compiled code would read beyond their ends."""
    centres, order, begin, offsets = lists.centres, lists.order, lists.begin, lists.offsets
    n_points = len(order)
    fits = centres.ndim == offsets.ndim == 2 and offsets.shape == (n_points, centres.shape[1])
    fits = fits and begin.shape == (len(centres) + 1,) and begin[0] == 0 and begin[-1] == n_points
    if not (fits and (begin[1:] >= begin[:-1]).all() and order.dtype.kind == begin.dtype.kind == "i"):
        raise GraphError("lists of points that do not fit together")
    if n_points and order.min() < 0:
        raise GraphError("lists of points: a number is out of range")


_CSR = ("data", "indices", "indptr")
