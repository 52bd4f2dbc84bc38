"""Matrices of features from files: in memory, or read again from the disk in every pass."""

from __future__ import annotations

import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from spectrograd.graph import GraphError
from spectrograd.graph.feature_rows import FeatureRows
from spectrograd.io.columns import NODE_COLUMNS
from spectrograd.io.interop.anndata import H5AD_SUFFIX, names_of_cells
from spectrograd.io.matrices import NPZ_SUFFIX, Archive, decoding
from spectrograd.io.parquet import PARQUET_SUFFIX
from spectrograd.io.points import Points, read_points
from spectrograd.io.text import check_exists, data_suffix
from spectrograd.system import need
from spectrograd.typing import Array, Matrix

BLOCK_BYTES = 64 << 20  # of rows that are in memory at a time
CSR_ARRAYS = {"indptr", "indices", "data", "shape"}  # of scipy.sparse.save_npz
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_features(
    path: str | os.PathLike[str], *, memory_limit: int | None = None, **how: Any
) -> tuple[FeatureRows | Any, Array | None]:
    """The features in a file and, where it has any, the names of its rows.

    Parameters
    ----------
    path : path-like
        A sparse matrix of ``scipy.sparse.save_npz``, the ``X`` of an AnnData's ``.h5ad``, or any file of
        :func:`spectrograd.read_points`.
    memory_limit : int, optional
        Bytes; a sparse ``.npz``, a ``.h5ad`` or a ``.parquet`` that takes more than half of it stays on the
        disk, and every pass reads it.
    **how
        As of :func:`spectrograd.read_points`.

    Returns
    -------
    features : FeatureRows, or array or sparse matrix of shape (n_rows, n_features)
    names : array of shape (n_rows,) or None
    """
    path = os.fspath(path)
    suffix = data_suffix(path)
    check_exists(path)
    streams = memory_limit is not None and os.path.getsize(path) > memory_limit / 2
    if suffix == NPZ_SUFFIX:
        with decoding(path, "cannot be read as a matrix of features"), Archive(path) as archive:
            if set(archive) >= CSR_ARRAYS:
                stream = NpzFeatures.open(path)
                names = archive.get("names")
                return (stream if streams else sp.csr_array(sp.load_npz(path))), names
    if suffix == H5AD_SUFFIX:
        cells = H5adFeatures.open(path)
        return (cells if streams else cells.between(0, cells.n_rows)), cells.names()
    if suffix == PARQUET_SUFFIX and streams:
        opened = ParquetFeatures.open(path)
        return opened, opened.names()
    points: Points = read_points(path, **how)
    return points.coordinates, points.names


@dataclass(frozen=True, eq=False)
class StreamedFeatures(FeatureRows, ABC):
    """Rows of features on a disk; ``kept`` marks the rows that take part."""

    path: str
    n_rows: int
    n_features: int
    n_stored: int
    kept: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows that take part, and features."""
        return (self.n_rows if self.kept is None else int(self.kept.sum()), self.n_features)

    @property
    def n_entries(self) -> int:
        """Stored numbers."""
        return self.n_stored

    @abstractmethod
    def read(self) -> Iterator[Any]:
        """All rows of the file, in blocks."""

    def blocks(self) -> Iterator[tuple[int, Matrix]]:
        """The rows that take part, in blocks."""
        at = 0  # of the file
        start = 0  # of the rows that take part
        for block in self.read():
            chosen = block if self.kept is None else block[self.kept[at : at + block.shape[0]]]
            at += block.shape[0]
            if chosen.shape[0]:
                yield start, chosen
            start += chosen.shape[0]

    def take(self, rows: Array) -> FeatureRows:
        """Some rows, ascending: the others are skipped as they are read."""
        every = np.arange(self.n_rows) if self.kept is None else np.flatnonzero(self.kept)
        kept = np.zeros(self.n_rows, bool)
        kept[every[rows]] = True
        return replace(self, kept=kept)


@dataclass(frozen=True, eq=False)
class NpzFeatures(StreamedFeatures):
    """A CSR matrix in the file of ``scipy.sparse.save_npz``, packed or not."""

    @classmethod
    def open(cls, path: str) -> NpzFeatures:
        """Read the shape and the row pointers' length; nothing else."""
        with Archive(path) as archive:
            n_rows, n_features = (int(size) for size in archive["shape"])
            form = archive["format"].item() if "format" in archive else b"csr"
        if form not in (b"csr", "csr"):
            raise GraphError(f"{path}: a matrix of features in the form {form!r}; save it as CSR")
        stream = cls(path, n_rows, n_features, n_stored=0)
        return replace(stream, n_stored=int(stream.indptr[-1]))

    @cached_property
    def indptr(self) -> Array:
        """Row pointers."""
        with Archive(self.path) as archive:
            return archive["indptr"].astype(np.int64)

    def read(self) -> Iterator[sp.csr_array]:
        """Rows in blocks of some megabytes; columns and numbers come side by side from the archive."""
        rows = self.indptr
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open("indices.npy") as columns,
            archive.open("data.npy") as numbers,
        ):
            kinds = (_kind_of(columns), _kind_of(numbers))
            step = BLOCK_BYTES // (kinds[0].itemsize + kinds[1].itemsize)
            for first, last in _row_blocks(rows, step):
                count = int(rows[last] - rows[first])
                indices = _next_numbers(columns, kinds[0], count, self.path)
                values = _as_floats(_next_numbers(numbers, kinds[1], count, self.path))
                _check_columns(indices, self.n_features, self.path)
                pointers = rows[first : last + 1] - rows[first]
                yield sp.csr_array((values, indices, pointers), shape=(last - first, self.n_features))


def _kind_of(stream: Any) -> np.dtype:
    """The type of the numbers of an ``.npy`` member, whose header is read."""
    version = np.lib.format.read_magic(stream)
    kind: np.dtype = _HEADERS[version](stream)[2]
    return kind


def _next_numbers(stream: Any, kind: DTypeLike, count: int, path: str) -> Array:
    kind = np.dtype(kind)
    content = stream.read(count * kind.itemsize)
    if len(content) < count * kind.itemsize:
        raise GraphError(f"{path}: ends early; save the matrix again")
    return np.frombuffer(content, kind)


@dataclass(frozen=True, eq=False)
class ParquetFeatures(StreamedFeatures):
    """The number columns of a Parquet file, dense, by its row groups."""

    columns: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: str) -> ParquetFeatures:
        """Read the schema; a column ``node``, ``id`` or ``name`` names the rows."""
        parquet = need("pyarrow.parquet", f"reading {path}")
        with decoding(path, "cannot be read as features"):
            file = parquet.ParquetFile(path)
            names = [name for name in file.schema_arrow.names if name.lower() not in NODE_COLUMNS]
            n_rows = file.metadata.num_rows
        return cls(path, n_rows, len(names), n_rows * len(names), columns=tuple(names))

    def names(self) -> Array | None:
        """Names of the rows, where a column has them."""
        parquet = need("pyarrow.parquet", f"reading {self.path}")
        file = parquet.ParquetFile(self.path)
        named = [name for name in file.schema_arrow.names if name.lower() in NODE_COLUMNS]
        return np.array(file.read(columns=named[:1])[named[0]].to_pylist()) if named else None

    def read(self) -> Iterator[Array]:
        """Rows in batches of some megabytes, as float32."""
        parquet = need("pyarrow.parquet", f"reading {self.path}")
        size = max(1, BLOCK_BYTES // (8 * max(1, self.n_features)))
        with decoding(self.path, "cannot be read as features"):
            for batch in parquet.ParquetFile(self.path).iter_batches(size, columns=list(self.columns)):
                columns = [np.asarray(column, dtype=np.float32) for column in batch.columns]
                yield np.ascontiguousarray(np.column_stack(columns))


@dataclass(frozen=True, eq=False)
class H5adFeatures(StreamedFeatures):
    """The matrix ``X`` of an AnnData in a ``.h5ad`` file, CSR or dense: cells by genes or peaks."""

    @classmethod
    def open(cls, path: str) -> H5adFeatures:
        """Read the shape and how many numbers are stored."""
        h5py = need("h5py", f"reading {path}")
        with decoding(path, "cannot be read as an AnnData"), h5py.File(path) as file:
            if "X" not in file or "obs" not in file:
                raise GraphError(f"{path}: holds no cells and features (obs, X)")
            X = file["X"]
            form = "dense" if hasattr(X, "dtype") else X.attrs.get("encoding-type")
            if form not in ("dense", "csr_matrix"):
                raise GraphError(f"{path}: X is stored as {form!r}: save it as CSR, whose rows are cells")
            n_rows, n_features = (int(size) for size in (X.shape if form == "dense" else X.attrs["shape"]))
            n_stored = n_rows * n_features if form == "dense" else int(X["data"].shape[0])
        return cls(path, n_rows, n_features, n_stored)

    def names(self) -> Array:
        """Names of the cells."""
        h5py = need("h5py", f"reading {self.path}")
        with decoding(self.path, "cannot be read as an AnnData"), h5py.File(self.path) as file:
            return names_of_cells(file)

    def read(self) -> Iterator[Any]:
        """Cells in blocks of some megabytes, as float32 or float64."""
        h5py = need("h5py", f"reading {self.path}")
        with decoding(self.path, "cannot be read as an AnnData"), h5py.File(self.path) as file:
            X = file["X"]
            yield from self._dense_blocks(X) if hasattr(X, "dtype") else self._sparse_blocks(X)

    def _dense_blocks(self, X: Any) -> Iterator[Array]:
        step = max(1, BLOCK_BYTES // (8 * max(1, self.n_features)))
        for first in range(0, self.n_rows, step):
            yield _as_floats(X[first : first + step])

    def _sparse_blocks(self, X: Any) -> Iterator[sp.csr_array]:
        rows = X["indptr"][:].astype(np.int64)
        if (
            len(rows) != self.n_rows + 1
            or rows[0] != 0
            or rows[-1] != self.n_stored
            or (np.diff(rows) < 0).any()
        ):
            raise GraphError(f"{self.path}: the row pointers of X do not fit its entries")
        for first, last in _row_blocks(rows, BLOCK_BYTES // (X["data"].dtype.itemsize + 4)):
            part = slice(int(rows[first]), int(rows[last]))
            indices = X["indices"][part]
            _check_columns(indices, self.n_features, self.path)
            values = _as_floats(X["data"][part])
            pointers = rows[first : last + 1] - rows[first]
            yield sp.csr_array((values, indices, pointers), shape=(last - first, self.n_features))


def _row_blocks(rows: Array, n_entries: int) -> Iterator[tuple[int, int]]:
    """First rows and the rows after the last of blocks of about so many entries, by the row pointers."""
    first = 0
    while first < len(rows) - 1:
        last = int(np.searchsorted(rows, rows[first] + n_entries, side="right")) - 1
        last = min(max(last, first + 1), len(rows) - 1)
        yield first, last
        first = last


def _check_columns(indices: Array, n_features: int, path: str) -> None:
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < n_features:
        raise GraphError(f"{path}: a column is out of range")


def _as_floats(values: Array) -> Array:
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
