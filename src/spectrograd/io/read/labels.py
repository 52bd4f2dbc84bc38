"""Labels in: one integer per node, put in the order of a graph's nodes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import Array, GraphError
from spectrograd.graph.names import as_names
from spectrograd.io.foreign.frames import column_names, column_values
from spectrograd.io.read.compressed import data_suffix
from spectrograd.io.read.parquet import PARQUET_SUFFIX, load_parquet
from spectrograd.io.read.tables import as_integers
from spectrograd.io.read.text import (
    INTEGER,
    STDIN,
    TEXT_SUFFIXES,
    TextFile,
    check_exists,
    data_lines,
    read_rows,
    sniff_delimiter,
    split_line,
)

NODE_COLUMNS = ("node", "id", "node_id", "name", "vertex")
_LABEL_COLUMNS = ("label", "labels", "cluster", "class", "community", "group")
_UNLABELLED = -1


@dataclass(frozen=True, eq=False)
class _Listing:
    """What a label file holds, in its own order; ``lines`` is None where it has no lines."""

    nodes: Sequence[Any] | None
    labels: Array
    lines: list[int] | None = None


def read_labels(path: str | os.PathLike[str], names: ArrayLike | None = None) -> Array:
    """Read one integer label per node.

    Parameters
    ----------
    path : path-like
        Text (``.csv``, ``.tsv``, ``.txt``, also ``.gz``, or ``-``) with a header ``node,label[,...]``,
        with two columns and no header, or with a single column in the order of the nodes; ``.npy``
        in that order; or ``.npz`` or ``.parquet`` as written by :func:`write_labels`.
    names : array of shape (n_nodes,), optional
        The graph's node names: labels come back in their order, -1 for nodes the file leaves out or
        leaves blank. Without them labels come in the order of the file.

    Returns
    -------
    array of int64
        Labels that are not integers are numbered in sorted order.
    """
    path = os.fspath(path)
    suffix = data_suffix(path)
    known = (".npy", ".npz", PARQUET_SUFFIX, *TEXT_SUFFIXES)
    if path != STDIN and suffix not in known:
        raise GraphError(f"{path}: unknown kind of label file; known are {' '.join(known)}")
    if path != STDIN:
        check_exists(path)
    file = TextFile(path)
    if suffix == PARQUET_SUFFIX:
        listing = _load_columns(file)
    else:
        listing = _load_arrays(file) if suffix in (".npy", ".npz") else _read_columns(file)
    return listing.labels if names is None else _aligned(file, listing, np.asarray(names))


def _read_columns(file: TextFile) -> _Listing:
    with file.open() as handle:
        first = next(data_lines(handle), (0, ""))[1]
    delimiter = sniff_delimiter(first, file.suffix, _is_integer)
    if delimiter is None and file.suffix == ".csv" and not all(map(_is_integer, first.split())):
        delimiter = ","  # a single column of labels like "New York"
    fields = [field.lower() for field in split_line(first, delimiter)]
    node_at = next((i for i, field in enumerate(fields) if field in NODE_COLUMNS), None)
    label_at = next((i for i, field in enumerate(fields) if field in _LABEL_COLUMNS), None)
    has_header = label_at is not None and (node_at is not None or len(fields) == 1)
    rows, lines = read_rows(file, delimiter)
    rows, lines = (rows[1:], lines[1:]) if has_header else (rows, lines)
    if not rows:
        raise GraphError(f"{file.name}: no labels in it; each line should be node,label")
    if not has_header:
        if len(fields) > 2:
            raise file.error(lines[0], f"{len(fields)} columns need a header with 'node' and 'label'")
        node_at, label_at = (0, 1) if len(fields) == 2 else (None, 0)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(fields):
            raise file.error(line, f"{len(fields)} columns expected, found {len(row)}")
    nodes = None if node_at is None else [row[node_at] for row in rows]
    return _Listing(nodes, _number_texts([row[label_at or 0] for row in rows]), lines)


def _is_integer(word: str) -> bool:
    return INTEGER.fullmatch(word) is not None


def _load_arrays(file: TextFile) -> _Listing:
    try:
        loaded = np.load(file.path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _Listing(None, _number_array(file, loaded))
        with loaded as archive:
            return _Listing(archive["nodes"].tolist(), _number_array(file, archive["labels"]))
    except KeyError:
        raise GraphError(
            f"{file.name}: an .npz file of labels holds the arrays 'labels' and 'nodes'"
        ) from None
    except GraphError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise GraphError(f"{file.name}: cannot be read as labels ({error})") from None


def _load_columns(file: TextFile) -> _Listing:
    frame = load_parquet(file.path)
    found = {name.lower(): column_values(frame, name) for name in column_names(frame)}
    nodes = next((found[name] for name in NODE_COLUMNS if name in found), None)
    labels = next((found[name] for name in _LABEL_COLUMNS if name in found), None)
    if nodes is None or labels is None:
        raise GraphError(f"{file.name}: columns 'node' and 'label' are needed, found {', '.join(found)}")
    return _Listing(nodes.tolist(), _number_array(file, as_names(labels)))


def _number_array(file: TextFile, labels: Array) -> Array:
    if labels.ndim != 1:
        raise GraphError(f"{file.name}: labels have shape {labels.shape}; one label per node is needed")
    if labels.dtype.kind in "US":
        return _number_texts(labels.astype(str).tolist())
    whole = labels.astype(np.int64) if labels.dtype.kind in "biu" else None
    if whole is None and labels.dtype.kind == "f" and bool(np.all(labels == np.rint(labels))):
        whole = labels.astype(np.int64)
    if whole is None:
        raise GraphError(f"{file.name}: labels must be whole numbers or texts, not {labels.dtype}")
    return whole


def _number_texts(texts: Sequence[str]) -> Array:
    """Integers as they are, other texts by their place in sorted order, blanks as unlabelled."""
    filled = np.fromiter(map(bool, texts), dtype=bool, count=len(texts))
    present = [text for text in texts if text]
    numbers = as_integers(present)
    if numbers is None:
        code = {text: i for i, text in enumerate(sorted(set(present)))}
        numbers = np.fromiter(map(code.__getitem__, present), dtype=np.int64, count=len(present))
    labels = np.full(len(texts), _UNLABELLED, dtype=np.int64)
    labels[filled] = numbers
    return labels


def _aligned(file: TextFile, listing: _Listing, names: Array) -> Array:
    """Put the labels in the order of ``names``."""
    if listing.nodes is None:
        if len(listing.labels) != len(names):
            raise GraphError(f"{file.name}: {len(listing.labels)} labels for {len(names)} nodes")
        return listing.labels
    as_key = _integer_key if names.dtype.kind in "iu" else _text_key
    row_of = {as_key(name): row for row, name in enumerate(names.tolist())}
    if len(row_of) < len(names):
        raise GraphError("the graph's node names are not unique, so labels cannot be matched to them")
    labels = np.full(len(names), _UNLABELLED, dtype=np.int64)
    seen = np.zeros(len(names), dtype=bool)
    for i, node in enumerate(listing.nodes):
        row = row_of.get(as_key(node))
        if row is None or seen[row]:
            what = "is not in the graph" if row is None else "is listed twice"
            message = f"node {node!r} {what}"
            if listing.lines is None:
                raise GraphError(f"{file.name}: {message}")
            raise file.error(listing.lines[i], message)
        seen[row] = True
        labels[row] = listing.labels[i]
    return labels


def _integer_key(node: Any) -> Any:
    return int(node) if _is_integer(str(node)) else node


def _text_key(node: Any) -> Any:
    return str(node).strip()  # names read from text files come without outer blanks
