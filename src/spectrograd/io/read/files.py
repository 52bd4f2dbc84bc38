"""Files in: which door a path takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.io.read.columns import Chosen, chosen_columns
from spectrograd.io.read.compressed import data_suffix, without_compression
from spectrograd.io.read.graphml import GRAPHML_SUFFIX, read_graphml
from spectrograd.io.read.infomap import INFOMAP_SUFFIX, looks_like_infomap, read_infomap
from spectrograd.io.read.join import about, join_tables, unique
from spectrograd.io.read.matrices import MATRIX_SUFFIXES, read_matrix, read_recall
from spectrograd.io.read.mpx import MPX_SUFFIX, read_mpx
from spectrograd.io.read.parquet import PARQUET_SUFFIX, read_parquet
from spectrograd.io.read.tables import EdgeTable, read_table
from spectrograd.io.read.text import STDIN, TEXT_SUFFIXES, check_exists

_READERS: Mapping[str, Callable[[str], EdgeTable]] = {
    MPX_SUFFIX: read_mpx,
    GRAPHML_SUFFIX: read_graphml,
    INFOMAP_SUFFIX: read_infomap,
}
TABLE_SUFFIXES = (*TEXT_SUFFIXES, INFOMAP_SUFFIX, MPX_SUFFIX, PARQUET_SUFFIX, GRAPHML_SUFFIX)


def read_graph(
    *sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    layer: str | None = None,
) -> Graph | MultilayerGraph:
    r"""Read a graph from a file, or a multilayer graph from several.

    Parameters
    ----------
    *sources : path-like, or one list of them
        Edge lists ``.csv .tsv .txt .edges .el .parquet`` with columns ``src,dst[,weight][,layer]`` (and
        ``-``: text from standard input), ``.graphml``, Infomap's ``*Multilayer`` / ``*Intra`` files (``.net``
        or any text), multinet's ``.mpx``, ``.npz`` of ``scipy.sparse.save_npz`` or :func:`write_graph`,
        MatrixMarket ``.mtx``. Text may be packed (``.gz``, ``.zst``). Several sources are the layers of one
        multilayer graph, named after the files; so are the values of a ``layer`` column.
    source, target, weight, layer : str, optional
        Columns of tables that go by other names; ``weight="none"``: every row counts one. Columns that are
        not used are named in a warning.

    Returns
    -------
    Graph or MultilayerGraph
        Nodes of edge lists are united by name over all layers and sorted; a node absent from a layer
        is isolated there. Matrices without names are matched by row number.

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
    chosen = chosen_columns(source=source, target=target, weight=weight, layer=layer)
    paths = _paths(sources)
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
    if kinds[0] == "matrix":
        _refuse_choice(paths[0], chosen)
        return _join_matrices(paths)
    return join_tables([_read_edges(path, chosen) for path in paths], [_stem(path) for path in paths])


def _paths(sources: Sequence[Any]) -> list[str]:
    """The paths, whether given one by one or as a list."""
    paths: list[str] = []
    for given in sources:
        for path in given if isinstance(given, list | tuple) else (given,):
            if not isinstance(path, str | os.PathLike):
                raise GraphError(
                    f"read_graph takes paths, not a {type(path).__name__}; for graphs in memory use Graph, "
                    "MultilayerGraph.from_layers or the from_... functions"
                )
            paths.append(os.fspath(path))
    return paths


def _refuse_choice(path: str, chosen: Chosen) -> None:
    if chosen:
        raise GraphError(
            f"{path}: {data_suffix(path)} files have no columns to choose from; leave --source, --target, "
            "--weight and --layer away"
        )


def _kind(path: str) -> str:
    suffix = data_suffix(path)
    if path != STDIN and suffix not in (*TABLE_SUFFIXES, *MATRIX_SUFFIXES):
        known = " ".join((*TABLE_SUFFIXES, *MATRIX_SUFFIXES))
        raise GraphError(
            f"{path}: unknown kind of file {suffix!r}; known are {known} (and .gz or .zst of text)"
        )
    if path != STDIN:
        check_exists(path)
    return "matrix" if suffix in MATRIX_SUFFIXES else "table"


def _join_matrices(paths: Sequence[str]) -> Graph | MultilayerGraph:
    graphs = []
    for path in paths:
        matrix, names = read_matrix(path)
        with about(path):
            graphs.append(replace(Graph.from_matrix(matrix, names=names), recall=read_recall(path)))
    if len(graphs) == 1:
        return graphs[0]
    stems = unique([_stem(path) for path in paths])
    if all(graph.names is not None for graph in graphs):
        return MultilayerGraph.from_layers(dict(zip(stems, graphs, strict=True)))
    for path, graph in zip(paths, graphs, strict=True):
        if graph.n_nodes != graphs[0].n_nodes:
            raise GraphError(
                f"{path} has {graph.n_nodes} nodes, {paths[0]} has {graphs[0].n_nodes}: "
                "matrices have no node names, so all layers must have the same size"
            )
    return MultilayerGraph(tuple(graphs), stems)


def _read_edges(path: str, chosen: Chosen) -> EdgeTable:
    suffix = data_suffix(path)
    if suffix == PARQUET_SUFFIX:
        return read_parquet(path, chosen)
    reader = _READERS.get(suffix)
    if reader is None and path != STDIN and looks_like_infomap(path):
        reader = read_infomap
    if reader is None:
        return read_table(path, chosen)
    _refuse_choice(path, chosen)
    return reader(path)


def _stem(path: str) -> str:
    return "stdin" if path == STDIN else Path(without_compression(path)).stem
