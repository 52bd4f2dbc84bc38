"""Tables of one or more layers, united by the names of their nodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from spectrograd.graph import Array, Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.names import number_ids, number_nodes
from spectrograd.io.read.tables import EdgeTable, as_integers
from spectrograd.notices import warn


def join_tables(
    tables: Sequence[EdgeTable], stems: Sequence[str], *, typed: bool = False
) -> Graph | MultilayerGraph:
    """Make a graph of a table without layers, a multilayer graph of several tables or of layers in one.

    Files have no types, so where some ids are texts all are; ``typed`` ids are kept as they are.
    """
    names, columns = _unite_nodes(tables, typed)
    graphs: list[Graph] = []
    labels: list[str] = []
    for table, (rows, cols), stem in zip(tables, columns, stems, strict=True):
        for label, chosen in _layers_of(table):
            weight = None if table.weight is None else table.weight[chosen]
            with about(table.name if label is None else f"{table.name}, layer {label!r}"):
                ends = (rows[chosen], cols[chosen])
                graphs.append(Graph.from_edges(*ends, weight, names=names, directed=table.directed))
            parts = [stem] if len(tables) > 1 or label is None else []
            labels.append(":".join(parts if label is None else [*parts, label]))
    if len(tables) == 1 and tables[0].layer is None:
        return graphs[0]
    return MultilayerGraph(tuple(graphs), unique(labels))


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put a file's name in front of the errors and warnings of the graph built from it."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from None
    for warning in caught:
        if issubclass(warning.category, GraphWarning):
            warn(f"{what}: {warning.message}", warning.category)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def unique(labels: Sequence[str]) -> tuple[str, ...]:
    """Put ``-2``, ``-3`` ... after the labels already taken."""
    taken: list[str] = []
    for label in labels:
        fresh, copy = label, 2
        while fresh in taken:
            fresh, copy = f"{label}-{copy}", copy + 1
        taken.append(fresh)
    return tuple(taken)


def _layers_of(table: EdgeTable) -> Iterator[tuple[str | None, Array | slice]]:
    """Each layer of a table with the rows it takes, in the order of the layers' names."""
    if table.layer is None:
        yield None, slice(None)
        return
    labels = set(table.layer.tolist())
    order = sorted(labels) if as_integers(list(labels)) is None else sorted(labels, key=lambda x: (int(x), x))
    code = {label: i for i, label in enumerate(order)}
    codes = np.fromiter(map(code.__getitem__, table.layer), dtype=np.int64, count=len(table.layer))
    for i, label in enumerate(order):
        yield label, np.flatnonzero(codes == i)


def _unite_nodes(tables: Sequence[EdgeTable], typed: bool) -> tuple[Array, list[tuple[Array, Array]]]:
    """Names of all nodes in the tables, and each table's ends as row numbers."""
    first = tables[0]
    if len(tables) == 1 and first.ids is not None and first.nodes is None and not typed:
        return first.ids, [(first.source, first.target)]
    columns = [column for table in tables for column in _id_columns(table)]
    if typed or all(column.dtype.kind in "iu" for column in columns):
        names, codes = number_nodes(columns)
    else:
        names, codes = number_ids(map(str, column.tolist()) for column in columns)
    ends, at = [], 0
    for table in tables:
        own, at = codes[at:], at + len(_id_columns(table))
        coded = table.ids is not None
        ends.append((own[0][table.source], own[0][table.target]) if coded else (own[0], own[1]))
    return names, ends


def _id_columns(table: EdgeTable) -> list[Array]:
    """The columns that name nodes; the ends come first."""
    columns = [table.source, table.target] if table.ids is None else [table.ids]
    return columns if table.nodes is None else [*columns, table.nodes]
