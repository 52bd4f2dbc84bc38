"""``read_graph``, and the registry of file formats: which function reads a file, by its suffix.

A new format is a function and a line in :data:`READERS`; ``docs/add_a_reader.md`` shows both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.validation import accept_signs
from spectrograd.io.columns import Chosen, chosen_columns
from spectrograd.io.edge_table import EdgeTable, join_tables, name_in_messages, read_table, unique_names
from spectrograd.io.gml import GML_SUFFIX, read_gml
from spectrograd.io.graphml import GRAPHML_SUFFIX, read_graphml
from spectrograd.io.interop.anndata import H5AD_SUFFIX, read_h5ad
from spectrograd.io.matrices import (
    MAT_SUFFIX,
    MTX_SUFFIX,
    NPZ_SUFFIX,
    read_mat,
    read_mtx_matrix,
    read_npz,
    read_recall,
)
from spectrograd.io.pajek import (
    EDGELIST_SUFFIX,
    INFOMAP_SUFFIX,
    MPX_SUFFIX,
    has_attributes,
    looks_like_infomap,
    read_attributes,
    read_mpx,
    read_net,
)
from spectrograd.io.parquet import PARQUET_SUFFIX, read_parquet
from spectrograd.io.text import STDIN, TEXT_SUFFIXES, TextFile, check_exists, data_suffix, without_compression
from spectrograd.notices import parameters, setting
from spectrograd.store import StoredGraph, is_store, open_store
from spectrograd.typing import Array


@dataclass(frozen=True)
class ReadOptions:
    """How to read files whose names and content leave it open.

    Attributes
    ----------
    chosen : mapping of role to column
        Roles are ``src``, ``dst``, ``weight`` and ``layer``; columns go by name, or by number from 1.
    header : bool or None
        Whether the first line of a text table names its columns; None decides by the text itself.
    format : str or None
        Stands in place of the suffix.
    keys : tuple of str
        Variables of a ``.mat`` file; several are layers.
    """

    chosen: Chosen = field(default_factory=dict)
    header: bool | None = None
    format: str | None = None
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and f".{self.format}" not in READERS:
            formats = ", ".join(suffix.removeprefix(".") for suffix in READERS)
            raise GraphError(f"unknown format {self.format!r}; known are {formats}")

    def suffix(self, path: str) -> str:
        """The suffix that decides the format of a file, without ``.gz`` or ``.zst``."""
        return data_suffix(path) if self.format is None else f".{self.format}"

    def text_file(self, path: str) -> TextFile:
        """The file, opened as text of this format."""
        return TextFile(path, self.format)


@dataclass(frozen=True)
class Reader:
    """The function that reads a file format: one of three kinds, by what the format holds.

    Attributes
    ----------
    columns : callable, optional
        ``(path, options) -> EdgeTable``, of a table whose columns the user may choose.
    edges : callable, optional
        ``(path) -> EdgeTable``, of a file that says itself what its edges are.
    matrix : callable, optional
        ``(path, key) -> (matrix, names)``, of a square matrix; names of the rows, or None.
    """

    columns: Callable[[str, ReadOptions], EdgeTable] | None = None
    edges: Callable[[str], EdgeTable] | None = None
    matrix: Callable[[str, str | None], tuple[Any, Array | None]] | None = None


def read_text_table(path: str, options: ReadOptions) -> EdgeTable:
    """Read an edge list in text: columns, networkx's attributes in braces, or Infomap's sections."""
    file = options.text_file(path)
    if path != STDIN and looks_like_infomap(file):
        _refuse_choice(path, options)
        return read_net(path)
    if has_attributes(file):
        return read_attributes(file, options.chosen)
    return read_table(file, options.chosen, options.header)


def read_parquet_table(path: str, options: ReadOptions) -> EdgeTable:
    """Read the edges of a Parquet file."""
    return read_parquet(path, options.chosen)


# Suffix -> reader. Error messages list the formats in this order.
READERS: Mapping[str, Reader] = {
    **dict.fromkeys((*TEXT_SUFFIXES, EDGELIST_SUFFIX), Reader(columns=read_text_table)),
    INFOMAP_SUFFIX: Reader(edges=read_net),
    MPX_SUFFIX: Reader(edges=read_mpx),
    PARQUET_SUFFIX: Reader(columns=read_parquet_table),
    GRAPHML_SUFFIX: Reader(edges=read_graphml),
    GML_SUFFIX: Reader(edges=read_gml),
    NPZ_SUFFIX: Reader(matrix=read_npz),
    MTX_SUFFIX: Reader(matrix=read_mtx_matrix),
    MAT_SUFFIX: Reader(matrix=read_mat),
    H5AD_SUFFIX: Reader(matrix=read_h5ad),
}


def read_graph(
    *sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    layer: str | int | None = None,
    header: bool | None = None,
    format: str | None = None,
    key: str | Sequence[str] | None = None,
    signed: bool = False,
) -> Graph | MultilayerGraph:
    r"""Read a graph from a file, or a multilayer graph from several.

    Parameters
    ----------
    *sources : path-like, or one list of them
        Edge lists ``.csv .tsv .txt .dat .data .edges .el .parquet`` with columns
        ``src,dst[,weight][,layer]`` (and ``-``: text from standard input), networkx's ``.edgelist``,
        ``.graphml``, ``.gml``, Pajek's ``.net``, Infomap's ``*Multilayer`` / ``*Intra``
        files (``.net`` or any text), multinet's ``.mpx``, ``.npz`` of
        ``scipy.sparse.save_npz`` or :func:`write_graph`, MatrixMarket ``.mtx``, MATLAB's ``.mat``, the
        neighbours in AnnData's ``.h5ad``. All but ``.npz``, ``.parquet`` and ``.h5ad`` may be packed
        (``.gz``, ``.zst``). Several sources are the layers of one multilayer graph, named after the files; so
        are the values of a ``layer`` column. A store (a folder
        made by ``spectrograd convert``) is loaded into memory; :func:`open_store` leaves it on disk.
    source, target, weight, layer : str or int, optional
        Columns of tables that go by other names, or their numbers counted from 1; ``weight="none"``: every
        row counts one. Columns that are not used are named in a warning.
    header : bool, optional
        Whether the first line of a text table names the columns. None finds out: known names, names over
        columns of numbers, and names that never come again (with a warning) are a header.
    format : str, optional
        Read the files as if their suffix were this one: ``"csv"``, ``"edgelist"``, ``"mtx"``, ...
    key : str or list of str, optional
        The variable of a ``.mat`` file that is the graph, or the neighbours of a ``.h5ad`` file; several are
        layers.
    signed : bool
        Whether weights may be negative: ``laplacian="signed"`` takes them.

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
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    with accept_signs(signed):
        return _read(_paths(sources), ReadOptions(chosen, header, format, keys))


def _read(paths: list[str], options: ReadOptions) -> Graph | MultilayerGraph:
    """The graph of some files, or several as layers."""
    if not paths:
        raise GraphError("no file given; name at least one edge list or matrix")
    if paths.count(STDIN) > 1:
        raise GraphError("standard input ('-') can be only one of the layers")
    if any(is_store(path) for path in paths):
        _refuse_choice(paths[0], options)
        return _load_stores(paths)
    kinds = [_kind(path, options) for path in paths]
    if len(set(kinds)) > 1:
        matrix = paths[kinds.index("matrix")]
        table = paths[kinds.index("table")]
        raise GraphError(
            f"{matrix} is a matrix without node names, {table} is an edge list with names; "
            "give all layers as matrices or all as edge lists"
        )
    if kinds[0] == "matrix":
        _refuse_choice(paths[0], options)
        return _join_matrices(paths, options)
    if options.keys:
        raise GraphError(
            f"{paths[0]}: a table has columns, no variables; {parameters('key')} is for .mat files"
        )
    tables = [_read_edges(path, options) for path in paths]
    return join_tables(tables, [_stem(path) for path in paths])


def _paths(sources: Sequence[object]) -> list[str]:
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


def _refuse_choice(path: str, options: ReadOptions) -> None:
    if options.chosen or options.header is not None:
        kind = options.suffix(path) or "such"
        names = parameters("source", "target", "weight", "layer", "header")
        raise GraphError(f"{path}: {kind} files have no columns to choose from; leave {names} away")


def _load_stores(paths: Sequence[str]) -> Graph | MultilayerGraph:
    """The store in memory; several are layers, matched by the names of their nodes."""
    for path in paths:
        if not is_store(path):
            raise GraphError(f"{path} is no store, but another layer is; convert it first")
    opened = [open_store(path) for path in paths]
    if len(opened) > 1:
        single = {
            _stem(path): graph
            for path, graph in zip(paths, opened, strict=True)
            if isinstance(graph, StoredGraph)
        }
        if len(single) < len(paths):
            raise GraphError(
                "stores that are layers of one graph must hold one layer each, under different names"
            )
        return MultilayerGraph.from_layers({name: graph.in_memory() for name, graph in single.items()})
    if isinstance(opened[0], StoredGraph):
        return opened[0].in_memory()
    layers = tuple(layer.in_memory() for layer in opened[0].layers if isinstance(layer, StoredGraph))
    return MultilayerGraph(layers, opened[0].layer_names)


def _kind(path: str, options: ReadOptions) -> str:
    """``"matrix"`` or ``"table"``; a path that cannot be read is refused."""
    suffix = options.suffix(path)
    if path != STDIN and suffix not in READERS:
        raise GraphError(
            f"{path}: unknown kind of file {suffix!r}; known are {' '.join(READERS)} "
            "(and .gz or .zst of them); "
            f"{setting('format', 'txt')} reads it as a table whatever its name"
        )
    if path != STDIN:
        check_exists(path)
    elif suffix and suffix not in (*TEXT_SUFFIXES, EDGELIST_SUFFIX):
        raise GraphError(f"standard input is read as text; {suffix} has to be a file")
    return "matrix" if suffix in READERS and READERS[suffix].matrix else "table"


def _join_matrices(paths: Sequence[str], options: ReadOptions) -> Graph | MultilayerGraph:
    if len(options.keys) > 1 and len(paths) > 1:
        raise GraphError(f"several files and several variables: give one file, or one {parameters('key')}")
    asked = [(path, key) for path in paths for key in (options.keys or (None,))]
    graphs = []
    for path, key in asked:
        suffix = options.suffix(path)
        read = READERS[suffix].matrix
        assert read is not None
        matrix, names = read(path, key)
        with name_in_messages(path if key is None else f"{path}, {key}"):
            graph = Graph.from_matrix(matrix, names=names)
            graphs.append(replace(graph, recall=read_recall(path, suffix)))
    if len(graphs) == 1:
        return graphs[0]
    stems = unique_names([str(key) if len(paths) == 1 else _stem(path) for path, key in asked])
    if all(graph.names is not None for graph in graphs):
        return MultilayerGraph.from_layers(dict(zip(stems, graphs, strict=True)))
    for (path, key), graph in zip(asked, graphs, strict=True):
        if graph.n_nodes != graphs[0].n_nodes:
            this, first = (path, paths[0]) if len(paths) > 1 else (str(key), str(asked[0][1]))
            raise GraphError(
                f"{this} has {graph.n_nodes} nodes, {first} has {graphs[0].n_nodes}: "
                "matrices have no node names, so all layers must have the same size"
            )
    return MultilayerGraph(tuple(graphs), stems)


def _read_edges(path: str, options: ReadOptions) -> EdgeTable:
    # Standard input has no suffix: it is read as text.
    reader = READERS.get(options.suffix(path), READERS[".txt"])
    if reader.columns is not None:
        return reader.columns(path, options)
    _refuse_choice(path, options)
    assert reader.edges is not None  # matrices were read before
    return reader.edges(path)


def _stem(path: str) -> str:
    return "stdin" if path == STDIN else Path(without_compression(path)).stem
