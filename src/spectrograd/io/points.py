"""Points in: one row of coordinates each, with or without a name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import GraphError
from spectrograd.graph.node_names import as_names
from spectrograd.io.columns import NODE_COLUMNS
from spectrograd.io.edge_table import ids_of_texts, unescape_formulas
from spectrograd.io.interop.frames import column_names, column_values
from spectrograd.io.matrices import MAT_SUFFIX, Archive, decoding, load_array, load_variable
from spectrograd.io.parquet import PARQUET_SUFFIX, load_parquet
from spectrograd.io.text import (
    STDIN,
    TEXT_SUFFIXES,
    TextFile,
    check_exists,
    data_suffix,
    is_number,
    read_rows,
    sniff_delimiter,
    split_line,
)
from spectrograd.notices import parameters, setting
from spectrograd.typing import Array

POINT_SUFFIXES = (*TEXT_SUFFIXES, PARQUET_SUFFIX, ".npy", ".npz", MAT_SUFFIX)


@dataclass(frozen=True, eq=False)
class Points:
    """Coordinates, one row per point, and names where the file had any."""

    coordinates: Array
    names: Array | None = None

    def __post_init__(self) -> None:
        if self.names is not None and self.names.shape != self.coordinates.shape[:1]:
            raise GraphError(f"{self.names.size} names for {len(self.coordinates)} points")


def read_points(
    path: str | os.PathLike[str],
    *,
    ignore: Iterable[str] = (),
    key: str | None = None,
    header: bool | None = None,
    format: str | None = None,
) -> Points:
    """Read points from a file.

    Parameters
    ----------
    path : path-like
        A table of numbers (``.csv .tsv .txt .dat .data``, also packed, ``-``, or ``.parquet``), where a
        column ``node``, ``id`` or ``name`` names the points; ``.npy``; ``.npz``, the first array or
        ``embedding``, with names in ``nodes``; or ``.mat``.
    ignore : iterable of str
        Columns that are no coordinates, by their names or, without a header, by their numbers from 1.
    key : str, optional
        Which variable of a ``.mat`` file.
    header : bool, optional
        Whether the first line of a text names the columns; None is where it is not all numbers.
    format : str, optional
        Read the file as if its suffix were this one.
    """
    path = os.fspath(path)
    left_out = set(ignore)
    suffix = data_suffix(path) if format is None else f".{format}"
    if path != STDIN:
        if suffix not in POINT_SUFFIXES:
            known = " ".join(POINT_SUFFIXES)
            raise GraphError(f"{path}: unknown kind of file {suffix!r} for points; known are {known}")
        check_exists(path)
    if suffix == MAT_SUFFIX:
        return Points(_matrix(path, _dense(load_variable(path, key, "points"))))
    if key is not None:
        raise GraphError(f"{path}: {parameters('key')} is for .mat files")
    if suffix in (".npy", ".npz"):
        return _load_arrays(path, suffix)
    if suffix == PARQUET_SUFFIX:
        return _from_parquet(path, left_out)
    return _from_text(TextFile(path, format), left_out, header)


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def _load_arrays(path: str, suffix: str) -> Points:
    with decoding(path, "cannot be read as an array of numbers"):
        if suffix == ".npy":
            return Points(_matrix(path, load_array(path)))
        with Archive(path) as archive:
            if not len(archive):
                raise GraphError(f"{path}: cannot be read as an array of numbers (it holds none)")
            key = "embedding" if "embedding" in archive else next(iter(archive))
            return Points(_matrix(path, archive[key]), archive.get("nodes"))


def _matrix(path: str, array: Array) -> Array:
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or not array.size:
        raise GraphError(
            f"{path}: an array of type {array.dtype} and shape {array.shape}; one row of numbers per point "
            "is needed"
        )
    return array.reshape(len(array), -1)


def _from_parquet(path: str, left_out: set[str]) -> Points:
    with decoding(path, "cannot be read as points"):
        frame = load_parquet(path)
        unwanted = _check_ignored(path, left_out, column_names(frame))
        columns = [name for name in column_names(frame) if name not in unwanted]
        name_at = next((name for name in columns if name.lower() in NODE_COLUMNS), None)
        numbers = [_numeric(path, name, column_values(frame, name)) for name in columns if name != name_at]
        names = None if name_at is None else as_names(column_values(frame, name_at))
        return Points(_stack_columns(path, numbers), names)


def _numeric(path: str, name: str, values: Array) -> Array:
    if values.dtype.kind not in "biuf":
        raise GraphError(
            f"{path}: the column {name!r} holds no numbers; leave it out: {_ignore_setting(name)}"
        )
    return values


def _from_text(file: TextFile, left_out: set[str], said: bool | None) -> Points:
    first = file.first_line
    delimiter = sniff_delimiter(first, file.suffix, is_number)
    fields = split_line(first, delimiter)
    rows, lines = read_rows(file, delimiter)
    has_header = not all(map(is_number, fields)) if said is None else said
    if has_header:
        rows = rows[1:]
        lines = lines[1:]
    if not rows:
        raise GraphError(f"{file.name}: no points in it; each line should hold the coordinates of one")
    header = fields if has_header else [str(i) for i in range(1, len(fields) + 1)]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise file.error(line, f"{len(header)} columns expected, found {len(row)}")
    unwanted = _check_ignored(file.name, left_out, header)
    name_at = next((i for i, name in enumerate(header) if name.lower() in NODE_COLUMNS), None)
    numbers = [
        _parse_column(file, header[at], [row[at] for row in rows], lines)
        for at in range(len(header))
        if at != name_at and header[at] not in unwanted
    ]
    names = None if name_at is None else ids_of_texts(unescape_formulas(row[name_at] for row in rows))[0]
    return Points(_stack_columns(file.name, numbers), names if names is None else as_names(names))


def _parse_column(file: TextFile, name: str, texts: Sequence[str], lines: Sequence[int]) -> Array:
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        at = next(i for i, text in enumerate(texts) if not is_number(text))
        raise file.error(
            lines[at],
            f"{texts[at]!r} in column {name!r} is not a number; fill it, or {_ignore_setting(name)}",
        ) from None


def _ignore_setting(name: str) -> str:
    return setting("ignore", [name])


def _check_ignored(where: str, left_out: set[str], names: Sequence[object]) -> set[str]:
    missing = sorted(left_out - set(names))
    if missing:
        there = ", ".join(map(str, names))
        raise GraphError(f"{where}: no column {missing[0]!r} to ignore; there are {there}")
    return left_out


def _stack_columns(where: str, columns: Sequence[Array]) -> Array:
    if not columns:
        raise GraphError(f"{where}: no column of coordinates is left")
    return np.column_stack(columns).astype(np.float64)
