"""Matrices in files: ``.npz`` of ``scipy.sparse.save_npz`` and MatrixMarket ``.mtx``, in and out."""

from __future__ import annotations

import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd.graph import Array, Graph, GraphError
from spectrograd.graph.names import as_plain
from spectrograd.io.read.compressed import compression_of, data_suffix, open_bytes

MATRIX_SUFFIXES = (".npz", ".mtx")
NAMES = "names"
_BROKEN = (ValueError, KeyError, OSError, EOFError, OverflowError, zipfile.BadZipFile, zlib.error)


def read_matrix(path: str) -> tuple[Any, Array | None]:
    """Read a square matrix and, where it has any, the names of its rows.

    Parameters
    ----------
    path : str
        ``.npz``, ``.mtx``, ``.mtx.gz`` or ``.mtx.zst``. MatrixMarket headers may say ``pattern`` (every
        weight is one) and ``symmetric`` (one triangle is stored).

    Returns
    -------
    matrix : scipy sparse matrix or array, or ndarray
        As stored; :meth:`spectrograd.Graph.from_matrix` checks the weights.
    names : array or None
        The array ``names`` of an ``.npz`` file, as :func:`spectrograd.io.write_graph` leaves it there.
    """
    matrix, names = _read_npz(path) if data_suffix(path) == ".npz" else (_read_mtx(path), None)
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{path}: the matrix has type {matrix.dtype}; real weights are needed")
    return matrix, names


def write_npz(handle: BinaryIO, graph: Graph) -> None:
    """Write as ``scipy.sparse.save_npz`` does (which also reads it), with the names as one array more."""
    sp.save_npz(handle, graph.matrix)
    if graph.names is not None:
        with zipfile.ZipFile(handle, "a") as archive, archive.open(f"{NAMES}.npy", "w") as entry:
            np.lib.format.write_array(entry, as_plain(graph.names), allow_pickle=False)


def write_mtx(handle: BinaryIO, graph: Graph) -> None:
    """Write the lower triangle; names have no place in it."""
    field = "real" if graph.is_weighted else "pattern"
    scipy.io.mmwrite(handle, graph.matrix.tocoo(), field=field, symmetry="symmetric", precision=17)


def _read_npz(path: str) -> tuple[Any, Array | None]:
    try:
        matrix = sp.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # a bad index would crash compiled code later
    except _BROKEN as error:
        raise GraphError(
            f"{path}: not a sparse matrix as saved by scipy.sparse.save_npz ({_npz_content(path, error)}); "
            "save the adjacency matrix with that function"
        ) from None
    with np.load(path, allow_pickle=False) as archive:
        names = archive[NAMES] if NAMES in archive.files else None
    return matrix, names


def _npz_content(path: str, error: Exception) -> str:
    """Say what an .npz file holds instead of a sparse matrix, when it is one at all."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
    except (*_BROKEN, AttributeError, TypeError):
        return "not an .npz file"
    return f"{error}" if "format" in names else f"it holds the arrays {', '.join(names) or 'none'}"


def _read_mtx(path: str) -> Any:
    try:
        if compression_of(path):
            with open_bytes(path) as handle:
                return scipy.io.mmread(handle)
        return scipy.io.mmread(path)
    except GraphError:
        raise
    except _BROKEN as error:
        raise GraphError(f"{path}: not a MatrixMarket file ({str(error).rstrip('. ')})") from None
