"""Variables of MATLAB's ``.mat`` files, chosen by name; read by scipy, packed or not."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd.graph import Array, GraphError
from spectrograd.io.read.arrays import decoding
from spectrograd.io.read.compressed import open_bytes
from spectrograd.notices import on_command_line, setting

MAT_SUFFIX = ".mat"
_HDF5 = b"\x89HDF"
_SHOWN = 12  # variables that an error lists


def load_variable(path: str, key: str | None, what: str) -> Any:
    """The variable of this name, or the only one that can be ``what``: a graph, points or labels.

    Parameters
    ----------
    path : str
    key : str or None
        Its name.
    what : {"graph", "points", "labels"}
        A graph is a square matrix, points are a matrix, labels are a vector or one column per class.

    Returns
    -------
    array or sparse array
        Cells of MATLAB (``X{1}``, ``X{2}``) are called ``X:1``, ``X:2``.
    """
    fits, found = _FITTING[what], load_variables(path)
    fitting = {name: value for name, value in found.items() if fits(value)}
    if key is not None:
        if key not in found:
            raise GraphError(f"{path}: no variable {key!r} in it; there are {_listed(found)}")
        if key not in fitting:
            raise GraphError(f"{path}: the variable {key!r} ({_shape(found[key])}) holds no {what}")
        return fitting[key]
    if not fitting:
        raise GraphError(f"{path}: no variable in it holds {_WANTED[what]}; there are {_listed(found)}")
    if len(fitting) > 1:
        names = list(fitting)
        raise GraphError(
            f"{path}: several variables may be the {what}: {_listed(fitting)}; "
            f"choose one, such as {setting(_keyword(what), names[0])}{_MORE[what]}"
        )
    return next(iter(fitting.values()))


def load_variables(path: str) -> dict[str, Any]:
    """All variables that hold numbers or texts, cells one by one."""
    with open_bytes(path) as handle:
        content = handle.read()
    if content[:4] == _HDF5 or b"MATLAB 7.3" in content[:128]:
        raise GraphError(f"{path}: a .mat file of version 7.3 (HDF5); save it with -v7 in MATLAB first")
    with decoding(path, "not a .mat file that can be read"):
        loaded = scipy.io.loadmat(io.BytesIO(content))
    variables: dict[str, Any] = {}
    for name, value in loaded.items():
        if not name.startswith("__"):
            variables |= _cells(name, value)
    return variables


def _cells(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return {name: value}
    return {f"{name}:{at}": cell for at, cell in enumerate(value.ravel(order="F"), start=1)}


def _is_matrix(value: Any) -> bool:
    numbers = sp.issparse(value) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    return numbers and value.ndim == 2 and min(value.shape) > 1


def _is_square(value: Any) -> bool:
    return _is_matrix(value) and value.shape[0] == value.shape[1]


def _is_labels(value: Any) -> bool:
    """A vector of whole numbers, or a matrix with a single one in every row."""
    if sp.issparse(value):
        value = value.toarray() if value.shape[1] < value.shape[0] else np.empty(0)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.size < 2:
        return False
    if value.ndim == 1 or 1 in value.shape:
        return bool(np.all(value == np.rint(value)))
    return value.ndim == 2 and bool(np.all((value == 0) | (value == 1)) and np.all(value.sum(axis=1) == 1))


def as_labels(value: Any) -> Array:
    """A vector of labels; of one column per class the number of the column."""
    dense: Array = value.toarray() if sp.issparse(value) else np.asarray(value)
    if dense.ndim == 1 or 1 in dense.shape:
        return dense.ravel()
    return np.asarray(dense.argmax(axis=1))


_FITTING: Mapping[str, Callable[[Any], bool]] = {
    "graph": _is_square,
    "points": _is_matrix,
    "labels": _is_labels,
}
_MORE = {"graph": " (several are layers)", "points": " (several are views)", "labels": ""}
_WANTED = {"graph": "a square matrix", "points": "a matrix", "labels": "one label per node"}


def _keyword(what: str) -> str:
    if what != "labels":
        return "key"
    return "label_column" if on_command_line() else "column"


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else " x ".join(map(str, shape))


def _listed(variables: Mapping[str, Any]) -> str:
    shown = [f"{name} ({_shape(value)})" for name, value in list(variables.items())[:_SHOWN]]
    more = len(variables) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "none"
