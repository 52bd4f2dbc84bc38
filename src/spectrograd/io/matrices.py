"""Adjacency matrices in files: ``.npz`` of ``scipy.sparse.save_npz`` and MatrixMarket ``.mtx[.gz]``."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd.graph import GraphError
from spectrograd.io.text import data_suffix

MATRIX_SUFFIXES = (".npz", ".mtx")
_BROKEN = (ValueError, KeyError, OSError, EOFError, OverflowError, zipfile.BadZipFile, zlib.error)


def read_matrix(path: str) -> Any:
    """Read a square matrix; rows have no names.

    Parameters
    ----------
    path : str
        ``.npz``, ``.mtx`` or ``.mtx.gz``. MatrixMarket headers may say ``pattern`` (every weight is
        one) and ``symmetric`` (one triangle is stored).

    Returns
    -------
    scipy sparse matrix or array, or ndarray
        As stored; :meth:`spectrograd.Graph.from_matrix` checks the weights.
    """
    matrix = _read_npz(path) if data_suffix(path) == ".npz" else _read_mtx(path)
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{path}: the matrix has type {matrix.dtype}; real weights are needed")
    return matrix


def _read_npz(path: str) -> Any:
    try:
        matrix = sp.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # a bad index would crash compiled code later
    except _BROKEN as error:
        raise GraphError(
            f"{path}: not a sparse matrix as saved by scipy.sparse.save_npz ({_npz_content(path, error)}); "
            "save the adjacency matrix with that function"
        ) from None
    return matrix


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
        if path.lower().endswith(".gz"):
            with gzip.open(path) as handle:
                return scipy.io.mmread(handle)
        return scipy.io.mmread(path)
    except _BROKEN as error:
        raise GraphError(f"{path}: not a MatrixMarket file ({str(error).rstrip('. ')})") from None
