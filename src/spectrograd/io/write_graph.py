"""Writing of files that appear whole or not at all, packed as their suffix says; graphs as edge tables."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.node_names import as_plain
from spectrograd.graph.validation import accept_signs
from spectrograd.io.convert import dask_frame_to_store, is_dask_frame
from spectrograd.io.edge_table import MARK, escape_formula, is_formula
from spectrograd.io.graphml import GRAPHML_SUFFIX, graphml_lines
from spectrograd.io.interop.frames import edge_columns
from spectrograd.io.matrices import write_mtx, write_npz
from spectrograd.io.parquet import PARQUET_SUFFIX, write_parquet
from spectrograd.io.text import COMMENTS, compression_of, data_suffix, packed
from spectrograd.notices import warn
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest
from spectrograd.system import need
from spectrograd.typing import Array

_STANDARD_STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}
_DESCRIPTOR = re.compile(r"/dev/(?:(stdin|stdout|stderr)|fd/(\d{1,9}))")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside the target, then move over it: no reader ever sees half a file.

    A pipe, a device or a descriptor (``/dev/fd/3``, ``/dev/stdout``) is written into.
    """
    if is_stream(path):
        with naming(path), open_stream(path) as handle, packed(handle, str(path)) as out:
            yield out
        return
    target = Path(os.path.realpath(path))  # write through a link, do not replace it
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {target.parent} does not exist; create it first")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with naming(path), open(draft, "x+b") as handle, packed(handle, str(path)) as out:
            yield out
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def descriptor_of(path: str | os.PathLike[str]) -> int | None:
    """The number of the open file that a path such as ``/dev/fd/3`` or ``/dev/stdout`` stands for."""
    match = _DESCRIPTOR.fullmatch(os.fspath(path))
    if match is None:
        return None
    return _STANDARD_STREAMS[match[1]] if match[1] else int(match[2])


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe, a device or a descriptor: nothing that a new file may take the place of."""
    if descriptor_of(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:  # nothing there yet, or a link to nothing
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def open_stream(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a pipe, a device or a descriptor for writing; a descriptor goes on where it is."""
    descriptor = descriptor_of(path)
    return open(path if descriptor is None else os.dup(descriptor), "wb")


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in the errors of writing to it: a full disk does not say which."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8 to a file that appears whole or not at all."""
    with whole_file(Path(path)) as handle:
        handle.write(text.encode("utf-8"))


def write_text(handle: BinaryIO, lines: Iterator[str]) -> None:
    """Write lines as UTF-8; closing the file is left to its owner."""
    text = TextIOWrapper(handle, encoding="utf-8", newline="")
    text.writelines(lines)
    text.detach()  # flushes


def as_field(text: str, delimiter: str, raw: bool) -> str:
    """A text as one field of a data line, quoted where it must be; formulas get a mark, unless ``raw``."""
    return quoted(text if raw else escape_formula(text), delimiter)


def warn_of_formulas(columns: Iterable[Array], raw: bool) -> None:
    """Say how many ids get a mark, so that no spreadsheet runs them."""
    texts = (column.tolist() for column in columns if column.dtype.kind == "U")
    marked = set() if raw else {text for column in texts for text in column if is_formula(text)}
    if marked:
        warn(
            f"{len(marked)} ids begin as formulas of spreadsheets do: {MARK} is written before them and "
            "dropped on reading; --raw (raw=True) keeps them as they are",
            GraphWarning,
        )


def quoted(text: str, delimiter: str) -> str:
    """Quote a name that would not be read back as one field of a data line."""
    if (
        text.startswith(COMMENTS)
        or text != text.strip()
        or any(c in text for c in (delimiter, '"', "\n", "\r"))
    ):
        return '"' + text.replace('"', '""') + '"'
    return text


# --- Graphs out: one function, the suffix says which reader.

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
        with accept_signs(graph.is_signed):  # they were accepted where the graph was made
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
    layers = graph.layers
    lonely = set.intersection(*(set(layer.isolated.tolist()) for layer in layers)) if is_table else ()
    if lonely:
        warn(
            f"{path}: {len(lonely)} nodes without edges are not in a table; .npz and .graphml keep them",
            GraphWarning,
        )
