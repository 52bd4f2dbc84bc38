"""Labels in: one integer per node, put in the order of a graph's nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.node_names import as_names
from spectrograd.io.columns import LABEL_COLUMNS, NODE_COLUMNS, is_column_number
from spectrograd.io.edge_table import as_integers, unescape_formulas
from spectrograd.io.graphml import GRAPHML_SUFFIX, node_attribute
from spectrograd.io.interop.frames import column_names, column_values
from spectrograd.io.matrices import MAT_SUFFIX, Archive, as_labels, decoding, load_array, load_variable
from spectrograd.io.parquet import PARQUET_SUFFIX, load_parquet
from spectrograd.io.text import (
    INTEGER,
    STDIN,
    TEXT_SUFFIXES,
    Row,
    TextFile,
    check_exists,
    data_suffix,
    read_rows,
    sniff_delimiter,
    split_line,
)
from spectrograd.notices import on_command_line, parameters, warn
from spectrograd.typing import Array

JSON_SUFFIX = ".json"
_UNLABELLED = -1
_LARGEST = 2.0**63


@dataclass(frozen=True, eq=False)
class _Listing:
    """What a label file holds, in its own order; ``lines`` is None where it has no lines."""

    nodes: Sequence[Any] | None
    labels: Array
    lines: list[int] | None = None
    classes: tuple[str, ...] = ()  # what the numbers stand for, where labels are texts


def read_labels(
    path: str | os.PathLike[str], names: ArrayLike | None = None, *, column: str | int | None = None
) -> Array:
    """Read one integer label per node.

    Parameters
    ----------
    path : path-like
        Text (``.csv``, ``.tsv``, ``.txt``, ``.dat``, also ``.gz``, or ``-``) with a header
        ``node,label[,...]``, with two columns and no header, or with a single column in the order of the
        nodes; ``.npy`` in that order; ``.graphml`` whose nodes have an attribute ``label`` (class, community,
        ...); ``.json`` with lists of nodes under ``communities`` (as of cdlib) or a label per node; ``.mat``;
        or ``.npz`` or ``.parquet`` as written by :func:`write_labels`.
    names : array of shape (n_nodes,), optional
        The graph's node names: labels come back in their order, -1 for nodes the file leaves out or
        leaves blank. Without them labels come in the order of the file.
    column : str or int, optional
        The column of a table that holds the labels, by name or by number counted from 1; the attribute of
        ``.graphml``, the variable of ``.mat``.

    Returns
    -------
    array of int64
        Labels that are not integers are numbered in sorted order.
    """
    return read_classes(path, names, column)[0]


def read_classes(
    path: str | os.PathLike[str], names: ArrayLike | None = None, column: str | int | None = None
) -> tuple[Array, tuple[str, ...]]:
    """Read labels as :func:`read_labels` does, and the texts that their numbers stand for.

    Returns
    -------
    labels : array of int64
    classes : tuple of str
        ``classes[label]`` is the text; empty where labels are integers.
    """
    path = os.fspath(path)
    suffix = data_suffix(path)
    known = (".npy", ".npz", PARQUET_SUFFIX, GRAPHML_SUFFIX, JSON_SUFFIX, MAT_SUFFIX, *TEXT_SUFFIXES)
    if path != STDIN and suffix not in known:
        raise GraphError(f"{path}: unknown kind of label file; known are {' '.join(known)}")
    if path != STDIN:
        check_exists(path)
    file = TextFile(path)
    rows = None if names is None else _Rows(np.asarray(names))
    listing = _listing(file, suffix, rows, None if column is None else str(column))
    if listing.nodes is not None and len(listing.nodes) != len(listing.labels):
        raise GraphError(f"{file.name}: {len(listing.labels)} labels for {len(listing.nodes)} nodes")
    return listing.labels if rows is None else _align(file, listing, rows), listing.classes


def _column_word() -> str:
    return parameters("label_column" if on_command_line() else "column")


def _listing(file: TextFile, suffix: str, rows: _Rows | None, column: str | None) -> _Listing:
    """Whatever the file holds."""
    if suffix == PARQUET_SUFFIX:
        return _load_columns(file, column)
    if suffix == GRAPHML_SUFFIX:
        return _load_attribute(file, column)
    if suffix == MAT_SUFFIX:
        labels = as_labels(load_variable(file.path, column, "labels"))
        return _Listing(None, _number_array(file, labels))
    if column is not None and suffix in (".npy", ".npz", JSON_SUFFIX):
        raise GraphError(f"{file.name}: {suffix} files have no columns; leave {_column_word()} away")
    if suffix == JSON_SUFFIX:
        return _load_communities(file)
    return _load_arrays(file) if suffix in (".npy", ".npz") else _read_columns(file, rows, column)


def _load_communities(file: TextFile) -> _Listing:
    """Lists of nodes, one per community, as cdlib writes them; or an object of node to label."""
    with decoding(file.name, "not JSON"), file.open() as handle:
        content = json.load(handle)
    if isinstance(content, dict) and "communities" in content:
        content = content["communities"]
    if isinstance(content, dict) and not any(isinstance(label, list | dict) for label in content.values()):
        texts = ["" if label is None else str(label) for label in content.values()]
        return _Listing(list(content), _number_texts(texts), classes=_classes(texts))
    if isinstance(content, dict):
        content = list(content.values())
    if not isinstance(content, list) or not all(isinstance(members, list) for members in content):
        raise GraphError(f"{file.name}: neither lists of nodes, one per community, nor a label per node")
    nodes = [node for members in content for node in members]
    labels = np.repeat(np.arange(len(content)), [len(members) for members in content])
    if len(set(map(str, nodes))) < len(nodes):
        raise GraphError(f"{file.name}: some nodes are in several communities; one label per node is needed")
    return _Listing(nodes, labels)


class _Rows:
    """The row of each node of the graph, however a file spells its name."""

    def __init__(self, names: Array) -> None:
        self._key = _integer_key if names.dtype.kind in "iu" else _text_key
        self._row_of = {self._key(name): row for row, name in enumerate(names.tolist())}
        self.n_nodes = len(names)
        if len(self._row_of) < len(names):
            raise GraphError("the graph's node names are not unique, so labels cannot be matched to them")

    def get(self, node: object) -> int | None:
        """The row of a node, or None where the graph has no such node."""
        return self._row_of.get(self._key(node))


def _read_columns(file: TextFile, graph: _Rows | None, column: str | None) -> _Listing:
    first = file.first_line
    delimiter = sniff_delimiter(first, file.suffix, _is_integer)
    if delimiter is None and file.suffix == ".csv" and not all(map(_is_integer, first.split())):
        delimiter = ","  # a single column of labels like "New York"
    fields = split_line(first, delimiter)
    rows, lines = read_rows(file, delimiter)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(fields):
            raise file.error(line, f"{len(fields)} columns expected, found {len(row)}")
    if column is None:
        header = _header(file, rows, lines, graph)
        has_header = header is not None
        if header is None and len(fields) > 2:
            raise file.error(
                lines[0] if lines else 1,
                f"{len(fields)} columns need a header with 'node' and 'label', or say which holds the "
                f"labels: {_column_word()}",
            )
        node_at, label_at = header or ((0, 1) if len(fields) == 2 else (None, 0))
    else:
        node_at, label_at, has_header = _chosen_column(file, rows, lines, graph, column)
    if has_header:
        rows = rows[1:]
        lines = lines[1:]
    if not rows:
        raise GraphError(f"{file.name}: no labels in it; each line should be node,label")
    nodes = None if node_at is None else unescape_formulas(row[node_at] for row in rows)
    texts = unescape_formulas(row[label_at] for row in rows)
    return _Listing(nodes, _number_texts(texts), lines, _classes(texts))


def _header(
    file: TextFile, rows: Sequence[Row], lines: Sequence[int], graph: _Rows | None
) -> tuple[int | None, int] | None:
    """Where a header says that nodes and labels are; None where the first line is none.

    A header has names we know, or its first cell is no node of the graph and its second no label of others.
    """
    fields = [field.lower() for field in rows[0]] if rows else []
    node_at = next((i for i, field in enumerate(fields) if field in NODE_COLUMNS), None)
    label_at = next((i for i, field in enumerate(fields) if field in LABEL_COLUMNS), None)
    if label_at is not None and (node_at is not None or len(fields) == 1):
        return node_at, label_at
    if len(fields) != 2:
        return None
    place = node_at or 0
    if graph is None:
        return None if node_at is None else (place, 1 - place)
    if graph.get(rows[0][place]) is not None or rows[0][1 - place] in {row[1 - place] for row in rows[1:]}:
        return None
    if node_at is None:
        warn(
            f"{file.name}, line {lines[0]}: taken as the header, since {rows[0][0]!r} is no node",
            GraphWarning,
        )
    return place, 1 - place


def _chosen_column(
    file: TextFile, rows: Sequence[Row], lines: Sequence[int], graph: _Rows | None, column: str
) -> tuple[int | None, int, bool]:
    """Where nodes and the labels that were asked for stand, and whether the first line is a header."""
    fields = list(rows[0]) if rows else []
    if column in fields:
        label_at = fields.index(column)
    elif is_column_number(column) and int(column) <= len(fields):
        label_at = int(column) - 1
    else:
        there = ", ".join(map(repr, fields))
        raise file.error(lines[0] if lines else 1, f"no column {column!r} among {there}, nor so many columns")
    others = [at for at in range(len(fields)) if at != label_at]
    if not others:
        return None, label_at, column in fields
    usual = (at for at in others if fields[at].lower() in NODE_COLUMNS)
    matching = (
        at for at in others if graph is not None and all(graph.get(row[at]) is not None for row in rows[1:])
    )
    node_at = next(usual, next(matching, others[0]))
    if column in fields or fields[node_at].lower() in NODE_COLUMNS:
        return node_at, label_at, True
    stranger = graph is not None and graph.get(fields[node_at]) is None
    return node_at, label_at, stranger and fields[label_at] not in {row[label_at] for row in rows[1:]}


def _is_integer(word: str) -> bool:
    return INTEGER.fullmatch(word) is not None


def _load_arrays(file: TextFile) -> _Listing:
    with decoding(file.name, "cannot be read as labels"):
        if data_suffix(file.path) == ".npy":
            labels = load_array(file.path)
            return _Listing(None, _number_array(file, labels), classes=_classes_of(labels))
        with Archive(file.path) as archive:
            if not {"nodes", "labels"} <= set(archive):
                raise GraphError(f"{file.name}: an .npz file of labels holds the arrays 'labels' and 'nodes'")
            nodes = archive["nodes"].ravel().tolist()
            labels = archive["labels"]
            return _Listing(nodes, _number_array(file, labels), classes=_classes_of(labels))


def _load_columns(file: TextFile, column: str | None) -> _Listing:
    with decoding(file.name, "cannot be read as labels"):
        frame = load_parquet(file.path)
        if column is not None and column not in column_names(frame):
            there = ", ".join(map(repr, column_names(frame)))
            raise GraphError(f"{file.name}: no column {column!r} among {there}")
        found = {name.lower(): column_values(frame, name) for name in column_names(frame)}
        asked = None if column is None else found.pop(column.lower())
        nodes = next((found.pop(name) for name in NODE_COLUMNS if name in found), None)
        labels = asked
        if labels is None:
            labels = next((found[name] for name in LABEL_COLUMNS if name in found), None)
        if labels is None and len(found) == 1:  # beside the nodes there is nothing else it could be
            labels = next(iter(found.values()))
        if nodes is None or labels is None:
            there = ", ".join(column_names(frame))
            raise GraphError(
                f"{file.name}: columns 'node' and 'label' are needed, found {there}; say which holds "
                f"the labels: {_column_word()}"
            )
        labels = as_names(labels)
        return _Listing(nodes.tolist(), _number_array(file, labels), classes=_classes_of(labels))


def _load_attribute(file: TextFile, column: str | None) -> _Listing:
    wanted = LABEL_COLUMNS if column is None else (column,)
    found = node_attribute(file.path, wanted)
    if found is None:
        there = ", ".join(wanted)
        raise GraphError(f"{file.name}: its nodes have no attribute for labels; one of {there} is needed")
    nodes, texts, _ = found
    return _Listing(nodes, _number_texts(texts), classes=_classes(texts))


def _number_array(file: TextFile, labels: Array) -> Array:
    if labels.ndim != 1:
        raise GraphError(f"{file.name}: labels have shape {labels.shape}; one label per node is needed")
    if labels.dtype.kind in "US":
        return _number_texts(labels.astype(str).tolist())
    if labels.dtype.kind not in "biuf":
        raise GraphError(f"{file.name}: labels must be whole numbers or texts, not {labels.dtype}")
    whole = np.abs(labels.astype(np.float64)) < _LARGEST  # false for NaN too
    if labels.dtype.kind == "f":
        whole &= labels == np.rint(labels)
    if not whole.all():
        at = int(np.argmin(whole))
        raise GraphError(
            f"{file.name}: labels must be whole numbers or texts, not {labels.dtype} "
            f"(row {at} holds {labels[at]})"
        )
    return labels.astype(np.int64)


def _number_texts(texts: Sequence[str]) -> Array:
    """Integers as they are, other texts by their place in sorted order, blanks as unlabelled."""
    filled = np.fromiter(map(bool, texts), dtype=bool, count=len(texts))
    present = [text for text in texts if text]
    numbers = as_integers(present)
    if numbers is None:
        code = {text: i for i, text in enumerate(_classes(texts))}
        numbers = np.fromiter(map(code.__getitem__, present), dtype=np.int64, count=len(present))
    labels = np.full(len(texts), _UNLABELLED, dtype=np.int64)
    labels[filled] = numbers
    return labels


def _classes(texts: Sequence[str]) -> tuple[str, ...]:
    """The distinct texts in sorted order; none where all are integers."""
    present = {text for text in texts if text}
    return () if as_integers(list(present)) is not None else tuple(sorted(present))


def _classes_of(labels: Array) -> tuple[str, ...]:
    return _classes(labels.astype(str).tolist()) if labels.dtype.kind in "US" else ()


def _align(file: TextFile, listing: _Listing, rows: _Rows) -> Array:
    """Put the labels in the order of the graph's nodes."""
    if listing.nodes is None:
        if len(listing.labels) != rows.n_nodes:
            raise GraphError(f"{file.name}: {len(listing.labels)} labels for {rows.n_nodes} nodes")
        return listing.labels
    labels = np.full(rows.n_nodes, _UNLABELLED, dtype=np.int64)
    seen = np.zeros(rows.n_nodes, dtype=bool)
    for i, node in enumerate(listing.nodes):
        row = rows.get(node)
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


def _text_key(node: object) -> Any:
    return str(node).strip()  # names read from text files come without outer blanks
