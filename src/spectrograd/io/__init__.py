"""Doors of the house: files in, files out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from spectrograd.graph import Array, Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.io.infomap import INFOMAP_SUFFIX, looks_like_infomap, read_infomap
from spectrograd.io.labels import read_labels
from spectrograd.io.matrices import MATRIX_SUFFIXES, read_matrix
from spectrograd.io.mpx import MPX_SUFFIX, read_mpx
from spectrograd.io.results import write_embedding, write_labels
from spectrograd.io.tables import EdgeTable, as_integers, read_table
from spectrograd.io.text import STDIN, TEXT_SUFFIXES, check_exists, data_suffix

__all__ = ["read_graph", "read_labels", "write_embedding", "write_labels"]


def read_graph(*sources: str | os.PathLike[str]) -> Graph | MultilayerGraph:
    r"""Read a graph from a file, or a multilayer graph from several.

    Parameters
    ----------
    *sources : path-like
        Edge lists ``.csv .tsv .txt .edges .el`` with columns ``src,dst[,weight][,layer]`` (with
        ``.gz`` too, and ``-`` for standard input), Infomap's ``*Multilayer`` / ``*Intra`` files
        (``.net`` or any text), multinet's ``.mpx``, ``.npz`` of ``scipy.sparse.save_npz`` or
        MatrixMarket ``.mtx[.gz]``. Several sources are the layers of one multilayer graph, named
        after the files; so are the values of a ``layer`` column.

    Returns
    -------
    Graph or MultilayerGraph
        Nodes of edge lists are united by name over all layers and sorted; a node absent from a layer
        is isolated there. Matrices have no names: their rows are matched by number.

    Raises
    ------
    GraphError
        With the file and, for edge lists, the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "friends.csv")
    ...     _ = path.write_text("src,dst,weight\nann,bob,2\nbob,cid,1\n")
    ...     graph = read_graph(path)
    >>> graph, graph.node_names.tolist()
    (Graph(n_nodes=3, n_edges=2, weighted), ['ann', 'bob', 'cid'])
    """
    paths = [os.fspath(source) for source in sources]
    if not paths:
        raise GraphError("no file given; name at least one edge list or matrix")
    if paths.count(STDIN) > 1:
        raise GraphError("standard input ('-') can be only one of the layers")
    kinds = [_kind(path) for path in paths]
    if len(set(kinds)) > 1:
        matrix, table = paths[kinds.index("matrix")], paths[kinds.index("table")]
        raise GraphError(
            f"{matrix} is a matrix without node names, {table} is an edge list with names; "
            "give all layers as matrices or all as edge lists"
        )
    return _join_matrices(paths) if kinds[0] == "matrix" else _join_tables(paths)


def _kind(path: str) -> str:
    suffix = data_suffix(path)
    tables = (*TEXT_SUFFIXES, INFOMAP_SUFFIX, MPX_SUFFIX)
    if path != STDIN and suffix not in (*tables, *MATRIX_SUFFIXES):
        known = " ".join((*tables, *MATRIX_SUFFIXES))
        raise GraphError(f"{path}: unknown kind of file {suffix!r}; known are {known} (and .gz of text)")
    if path != STDIN:
        check_exists(path)
    return "matrix" if suffix in MATRIX_SUFFIXES else "table"


def _join_matrices(paths: Sequence[str]) -> Graph | MultilayerGraph:
    graphs = []
    for path in paths:
        matrix = read_matrix(path)
        with _about(path):
            graphs.append(Graph.from_matrix(matrix))
    if len(graphs) == 1:
        return graphs[0]
    for path, graph in zip(paths, graphs, strict=True):
        if graph.n_nodes != graphs[0].n_nodes:
            raise GraphError(
                f"{path} has {graph.n_nodes} nodes, {paths[0]} has {graphs[0].n_nodes}: "
                "matrices have no node names, so all layers must have the same size"
            )
    return MultilayerGraph(tuple(graphs), _unique([_stem(path) for path in paths]))


def _join_tables(paths: Sequence[str]) -> Graph | MultilayerGraph:
    return join_edges(list(map(_read_edges, paths)), [_stem(path) for path in paths])


def join_edges(tables: Sequence[EdgeTable], stems: Sequence[str]) -> Graph | MultilayerGraph:
    """Edge tables as one graph, or as layers on the union of their nodes; ``stems`` name the layers."""
    names, ends = _unite_nodes(tables)
    graphs: list[Graph] = []
    labels: list[str] = []
    for table, (rows, cols), stem in zip(tables, ends, stems, strict=True):
        for label, chosen in _layers_of(table):
            about = table.name if label is None else f"{table.name}, layer {label!r}"
            weight = None if table.weight is None else table.weight[chosen]
            with _about(about):
                graphs.append(Graph.from_edges(rows[chosen], cols[chosen], weight, names=names))
            parts = [stem] if len(tables) > 1 or label is None else []
            labels.append(":".join(parts if label is None else [*parts, label]))
    if len(tables) == 1 and tables[0].layer is None:
        return graphs[0]
    return MultilayerGraph(tuple(graphs), _unique(labels))


def _read_edges(path: str) -> EdgeTable:
    suffix = data_suffix(path)
    if suffix == MPX_SUFFIX:
        return read_mpx(path)
    if suffix == INFOMAP_SUFFIX or (path != STDIN and looks_like_infomap(path)):
        return read_infomap(path)
    return read_table(path)


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


def _unite_nodes(tables: Sequence[EdgeTable]) -> tuple[Array, list[tuple[Array, Array]]]:
    """Sorted names of all nodes in the tables, and each table's ends as row numbers."""
    columns = [ends for table in tables for ends in (table.source, table.target)]
    if all(table.has_integer_ids for table in tables):
        names, codes = _number_integers(columns)
    else:
        names, codes = _number_texts([map(str, column.tolist()) for column in columns])
    return names, list(zip(codes[::2], codes[1::2], strict=True))


def _number_integers(columns: Sequence[Array]) -> tuple[Array, list[Array]]:
    low = min(int(column.min()) for column in columns)
    span = max(int(column.max()) for column in columns) - low + 1
    if span > 4 * sum(map(len, columns)):
        names, codes = np.unique(np.concatenate(columns), return_inverse=True)
        return names, np.split(codes, np.cumsum([len(column) for column in columns])[:-1])
    # Ids close together: a table of those present is many times faster than a sort.
    present = np.zeros(span, dtype=bool)
    for column in columns:
        present[column - low] = True
    row_of = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, [row_of[column - low] for column in columns]


def _number_texts(columns: Sequence[Iterator[str]]) -> tuple[Array, list[Array]]:
    texts = [list(column) for column in columns]
    names = sorted(set().union(*texts))
    row_of = {name: row for row, name in enumerate(names)}
    codes = [np.fromiter(map(row_of.__getitem__, text), dtype=np.int64, count=len(text)) for text in texts]
    return np.array(names), codes


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Put a file's name in front of the errors and warnings of the graph built from it."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from None
    for warning in caught:
        if issubclass(warning.category, GraphWarning):
            warnings.warn(f"{what}: {warning.message}", warning.category, stacklevel=5)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _stem(path: str) -> str:
    return "stdin" if path == STDIN else Path(path.removesuffix(".gz")).stem


def _unique(labels: Sequence[str]) -> tuple[str, ...]:
    """Put ``-2``, ``-3`` ... after the labels already taken."""
    taken: list[str] = []
    for label in labels:
        fresh, copy = label, 2
        while fresh in taken:
            fresh, copy = f"{label}-{copy}", copy + 1
        taken.append(fresh)
    return tuple(taken)
