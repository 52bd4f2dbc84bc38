"""Matrices in files: ``.npz`` of ``scipy.sparse.save_npz``, MatrixMarket ``.mtx``, and ``.mat`` (in only)."""

from __future__ import annotations

import zipfile
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd.graph import Array, Graph, GraphError, Recall
from spectrograd.graph.names import as_plain
from spectrograd.io.read.arrays import Archive, decoding
from spectrograd.io.read.compressed import data_suffix
from spectrograd.io.read.matlab import MAT_SUFFIX, load_variable
from spectrograd.io.read.mtx import read_mtx
from spectrograd.notices import parameters

MATRIX_SUFFIXES = (".npz", ".mtx", MAT_SUFFIX)
NAMES, RECALL = "names", "knn_recall"
_COMPRESSED = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}
_MOST_NODES = 2**31 - 1  # columns are 32-bit integers


def read_matrix(path: str, suffix: str | None = None, key: str | None = None) -> tuple[Any, Array | None]:
    """Read a square matrix and, where it has any, the names of its rows.

    Parameters
    ----------
    path : str
        ``.npz``, ``.mtx`` or ``.mat``, the latter two also packed. MatrixMarket headers may say ``pattern``
        (every weight is one) and ``symmetric`` (one triangle is stored).
    suffix : str, optional
        The format, where the path's own suffix is another.
    key : str, optional
        Which variable of a ``.mat`` file; needed where several could be a graph.

    Returns
    -------
    matrix : scipy sparse matrix or array, or ndarray
        As stored; :meth:`spectrograd.Graph.from_matrix` checks the weights.
    names : array or None
        The array ``names`` of an ``.npz`` file, as :func:`spectrograd.io.write_graph` leaves it there.
    """
    suffix = data_suffix(path) if suffix is None else suffix
    if key is not None and suffix != MAT_SUFFIX:
        raise GraphError(f"{path}: {suffix} files hold one matrix; {parameters('key')} is for .mat files")
    names = None
    if suffix == ".npz":
        matrix, names = _read_npz(path)
    else:
        matrix = read_mtx(path) if suffix == ".mtx" else load_variable(path, key, "graph")
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{path}: the matrix has type {matrix.dtype}; real weights are needed")
    return matrix, names


def write_npz(handle: BinaryIO, graph: Graph) -> None:
    """Write as ``scipy.sparse.save_npz`` does (which also reads it), with names and recall as arrays more."""
    sp.save_npz(handle, graph.matrix)
    beside = {} if graph.names is None else {NAMES: as_plain(graph.names)}
    if graph.recall is not None:
        beside[RECALL] = np.array([graph.recall, graph.recall.error, graph.recall.n_rows])
    for name, array in beside.items():
        with zipfile.ZipFile(handle, "a") as archive, archive.open(f"{name}.npy", "w") as entry:
            np.lib.format.write_array(entry, array, allow_pickle=False)


def read_recall(path: str, suffix: str | None = None) -> Recall | None:
    """The recall that :func:`write_npz` left beside a graph of nearest neighbours."""
    if (suffix or data_suffix(path)) != ".npz":
        return None
    with decoding(path, "the recall of its neighbours cannot be read"), Archive(path) as archive:
        found = archive.get(RECALL)
        return None if found is None else Recall(*found.tolist())


def write_mtx(handle: BinaryIO, graph: Graph) -> None:
    """Write the lower triangle; names have no place in it."""
    field = "real" if graph.is_weighted else "pattern"
    scipy.io.mmwrite(handle, graph.matrix.tocoo(), field=field, symmetry="symmetric", precision=17)


def _read_npz(path: str) -> tuple[Any, Array | None]:
    what = "not a sparse matrix as saved by scipy.sparse.save_npz"
    with decoding(path, what, "save the adjacency matrix with that function"), _opened(path) as archive:
        matrix = _assembled(archive)
    with decoding(path, "the names of its nodes cannot be read"), Archive(path) as archive:
        return matrix, archive.get(NAMES)


def _opened(path: str) -> Archive:
    try:
        return Archive(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"not an .npz file: {error}") from None


def _assembled(archive: Archive) -> Any:
    """The matrix whose parts ``scipy.sparse.save_npz`` wrote."""
    if "format" not in archive:
        raise ValueError(f"it holds the arrays {', '.join(archive) or 'none'}")
    kind = bytes(archive["format"].item()).decode("ascii")
    shape = tuple(int(size) for size in archive["shape"])
    if len(shape) != 2 or min(shape) < 0 or max(shape) > _MOST_NODES:
        raise ValueError(f"shape {shape}")
    if kind in _COMPRESSED:
        parts = (archive["data"], archive["indices"], archive["indptr"])
        return _COMPRESSED[kind](parts, shape=shape)
    if kind == "coo":
        coords = archive["coords"] if "coords" in archive else (archive["row"], archive["col"])
        return sp.coo_array((archive["data"], tuple(coords)), shape=shape)
    if kind == "dia":
        return sp.dia_array((archive["data"], archive["offsets"]), shape=shape)
    raise ValueError(f"unknown sparse format {kind!r}")
