"""Graphs out: one function, the suffix says which door."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from spectrograd.extras import need
from spectrograd.graph import Array, Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.names import as_plain
from spectrograd.io.foreign.edges import edge_columns
from spectrograd.io.read.compressed import compression_of, data_suffix
from spectrograd.io.read.graphml import GRAPHML_SUFFIX, graphml_lines
from spectrograd.io.read.matrices import write_mtx, write_npz
from spectrograd.io.read.parquet import PARQUET_SUFFIX, write_parquet
from spectrograd.io.write.dask_frames import dask_frame_to_store, is_dask_frame
from spectrograd.io.write.output import as_field, warn_of_formulas, whole_file, write_text
from spectrograd.notices import warn
from spectrograd.store.batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MATRICES: Mapping[str, Callable[[BinaryIO, Graph], None]] = {".npz": write_npz, ".mtx": write_mtx}
STORE_SUFFIX = ".store"
GRAPH_SUFFIXES = (*_DELIMITERS, PARQUET_SUFFIX, *_MATRICES, GRAPHML_SUFFIX, STORE_SUFFIX)


def write_graph(
    path: str | os.PathLike[str], graph: Graph | MultilayerGraph | Any, *, raw: bool = False
) -> None:
    """Write a graph to a file that :func:`read_graph` reads; it appears whole or not at all.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` or ``.parquet`` (columns ``src,dst[,weight][,layer]``), ``.npz`` (as of
        ``scipy.sparse.save_npz``, with the names beside the matrix), ``.mtx`` (without names) or
        ``.graphml``; text may end in ``.gz`` or ``.zst``. ``.store`` makes a folder for :func:`open_store`
        (weights in float32), which replaces a store of that name.
    graph : Graph or MultilayerGraph
        Or, for a store, a Dask dataframe with the columns of an edge table: its workers write their parts
        beside the store, in parallel. Layers go into tables and stores only. Ids that are no numbers or
        texts are written as their text.
    raw : bool
        Write ids like ``=cmd()`` to ``.csv`` and ``.tsv`` as they are, without a ``'`` before them.
    """
    path = os.fspath(path)
    suffix = check_graph_path(path)
    if suffix == STORE_SUFFIX and is_dask_frame(graph):
        dask_frame_to_store(Path(path), graph, IngestSettings(force=True, edges=True))
        return
    if suffix == STORE_SUFFIX:
        ingest(Path(path), GraphSource(graph), IngestSettings(force=True, edges=True))
        return
    is_table = suffix in (*_DELIMITERS, PARQUET_SUFFIX)
    if isinstance(graph, MultilayerGraph) and not is_table:
        raise GraphError(f"{path}: {suffix} files hold one layer; choose .csv, .tsv or .parquet")
    _warn_of_losses(path, graph, suffix, is_table)
    with whole_file(Path(path)) as handle:
        if suffix == PARQUET_SUFFIX:
            write_parquet(handle, _plain_columns(graph))
        elif is_table:
            columns = _plain_columns(graph)
            warn_of_formulas(columns.values(), raw)
            write_text(handle, _table_lines(columns, _DELIMITERS[suffix], raw))
        elif isinstance(graph, Graph):
            if suffix == GRAPHML_SUFFIX:
                write_text(handle, graphml_lines(graph))
            else:
                _MATRICES[suffix](handle, graph)


def check_graph_path(path: str) -> str:
    """Return the suffix of a path that :func:`write_graph` can write, or refuse it."""
    suffix = data_suffix(path)
    if suffix not in GRAPH_SUFFIXES:
        raise GraphError(f"{path}: cannot write {suffix!r} files; choose one of {' '.join(GRAPH_SUFFIXES)}")
    if compression_of(path) and suffix not in (*_DELIMITERS, ".mtx", GRAPHML_SUFFIX):
        raise GraphError(f"{path}: {suffix} files are packed already; leave {compression_of(path)} away")
    if suffix == PARQUET_SUFFIX:
        need("pyarrow", f"{path}: Parquet")
    return suffix


def _plain_columns(graph: Graph | MultilayerGraph) -> dict[str, Array]:
    return {name: as_plain(column) for name, column in edge_columns(graph).items()}


def _table_lines(columns: Mapping[str, Array], delimiter: str, raw: bool) -> Iterator[str]:
    yield delimiter.join(columns) + "\n"
    for row in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield delimiter.join(as_field(str(field), delimiter, raw) for field in row) + "\n"


def _warn_of_losses(path: str, graph: Graph | MultilayerGraph, suffix: str, is_table: bool) -> None:
    if suffix == ".mtx" and graph.names is not None:
        warn(f"{path}: .mtx files have no room for node names; rows are numbered", GraphWarning)
    layers = graph.layers if isinstance(graph, MultilayerGraph) else (graph,)
    lonely = set.intersection(*(set(layer.isolated.tolist()) for layer in layers)) if is_table else ()
    if lonely:
        warn(
            f"{path}: {len(lonely)} nodes without edges are not in a table; .npz and .graphml keep them",
            GraphWarning,
        )
