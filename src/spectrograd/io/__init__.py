"""Doors of the house: files in, files out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from spectrograd.graph import Array, Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.io.matrices import MATRIX_SUFFIXES, read_matrix
from spectrograd.io.results import read_labels, write_embedding, write_labels
from spectrograd.io.tables import EdgeTable, as_integers, read_table
from spectrograd.io.text import STDIN, TEXT_SUFFIXES, check_exists, data_suffix

__all__ = ["read_graph", "read_labels", "write_embedding", "write_labels"]

_T = TypeVar("_T")


def read_graph(*sources: str | os.PathLike[str]) -> Graph | MultilayerGraph:
    """Read a graph from a file, or a multilayer graph from several.

    Parameters
    ----------
    *sources : path-like
        Edge lists ``.csv .tsv .txt .edges .el`` with columns ``src,dst[,weight][,layer]`` (with
        ``.gz`` too, and ``-`` for standard input), ``.npz`` of ``scipy.sparse.save_npz`` or
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
    ...     _ = path.write_text("src,dst,weight\\nann,bob,2\\nbob,cid,1\\n")
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
    if path != STDIN and suffix not in (*TEXT_SUFFIXES, *MATRIX_SUFFIXES):
        known = " ".join((*TEXT_SUFFIXES, *MATRIX_SUFFIXES))
        raise GraphError(f"{path}: unknown kind of file {suffix!r}; known are {known} (and .gz of text)")
    if path != STDIN:
        check_exists(path)
    return "matrix" if suffix in MATRIX_SUFFIXES else "table"


def _join_matrices(paths: Sequence[str]) -> Graph | MultilayerGraph:
    graphs = [_in_file(path, lambda path=path: Graph.from_matrix(read_matrix(path))) for path in paths]
    if len(graphs) == 1:
        return graphs[0]
    for path, graph in zip(paths, graphs, strict=True):
        if graph.n_nodes != graphs[0].n_nodes:
            raise GraphError(
                f"{path} has {graph.n_nodes} nodes, {paths[0]} has {graphs[0].n_nodes}: "
                "matrices have no node names, so all layers must have the same size"
            )
    return MultilayerGraph(tuple(graphs), _unique([_stem(path) for path in paths]))
