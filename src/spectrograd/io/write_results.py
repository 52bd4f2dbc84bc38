"""Results out: one row per node, the node's name beside it wherever the format has a place for it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.engines.base import Engine, MultiVector
from spectrograd.graph import GraphError
from spectrograd.graph.node_names import as_plain
from spectrograd.io.parquet import PARQUET_SUFFIX, write_row_groups
from spectrograd.io.text import ZSTD, compression_of, data_suffix
from spectrograd.io.write_graph import as_field, warn_of_formulas, whole_file, write_text
from spectrograd.system import need, resolve_path
from spectrograd.typing import Array, JsonObject

if TYPE_CHECKING:
    from spectrograd.engines.dask.engine import DaskEngine

Writer = Callable[[BinaryIO, Array, Array], None]
ROWS_PER_BLOCK = 1 << 14  # as Python's own numbers they take some megabytes
ROW_GROUP = 1 << 21  # numbers in a part of a Parquet file: fewer make a larger file


def write_embedding(
    path: str | os.PathLike[str], vectors: ArrayLike, names: ArrayLike | None = None, *, raw: bool = False
) -> None:
    """Write the embedding, one row per node; the file appears whole or not at all.

    Parameters
    ----------
    path : path-like
        ``.npy`` (vectors only), ``.npz`` (arrays ``embedding`` and ``nodes``), ``.csv``, ``.tsv``,
        ``.parquet`` (columns ``node,e0,e1,...``), ``.w2v`` or ``.vec`` (word2vec text);
        text may be packed as ``.gz`` or ``.zst``.
    vectors : array of shape (n_nodes, n_components)
        Text formats keep every bit of it.
    names : array of shape (n_nodes,), optional
        Node names; row numbers when not given.
    raw : bool
        Write ids like ``=cmd()`` to ``.csv`` and ``.tsv`` as they are. Otherwise they get a ``'`` before
        them, so that no spreadsheet runs them; our readers drop it.
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise ValueError(
            f"vectors have shape {array.shape} and type {array.dtype}; one row of numbers per node is needed"
        )
    _write(path, _EMBEDDING_WRITERS, array, names, raw)


def write_labels(
    target: str | os.PathLike[str] | TextIO,
    labels: ArrayLike,
    names: ArrayLike | None = None,
    *,
    raw: bool = False,
) -> None:
    """Write a label per node, to a file (which appears whole or not at all) or as CSV to a stream.

    Parameters
    ----------
    target : path-like or text stream
        ``.csv``, ``.tsv``, ``.parquet`` (columns ``node,label``), ``.npy`` (labels only) or ``.npz``
        (arrays ``labels`` and ``nodes``).
    labels : array of shape (n_nodes,)
        Cluster numbers.
    names : array of shape (n_nodes,), optional
        Node names; row numbers when not given.
    raw : bool
        Write ids like ``=cmd()`` to ``.csv`` and ``.tsv`` as they are. Otherwise they get a ``'`` before
        them, so that no spreadsheet runs them; our readers drop it.
    """
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"labels have shape {array.shape}; one label per node is needed")
    array = as_plain(array)
    if isinstance(target, str | os.PathLike):
        _write(target, _LABEL_WRITERS, array, names, raw)
    else:
        target.writelines(_table_lines(array, _check_names(names, len(array)), ",", raw))


def _write(
    path: str | os.PathLike[str],
    writers: Mapping[str, Writer],
    values: Array,
    names: ArrayLike | None,
    raw: bool,
) -> None:
    path = Path(path)
    suffix, writer = _choose_writer(str(path), writers)
    nodes = _check_names(names, len(values))
    if suffix in _DELIMITERS:
        writer = partial(_write_table, delimiter=_DELIMITERS[suffix], raw=raw)
        warn_of_formulas((nodes, values), raw)
    with whole_file(path) as handle:
        writer(handle, values, nodes)


def check_embedding_path(path: str) -> None:
    """Raise an error where :func:`write_embedding` cannot write the format that a path names."""
    _choose_writer(path, _EMBEDDING_WRITERS)


def check_labels_path(path: str) -> None:
    """Raise an error where :func:`write_labels` cannot write the format that a path names."""
    _choose_writer(path, _LABEL_WRITERS)


def _choose_writer(path: str, writers: Mapping[str, Writer]) -> tuple[str, Writer]:
    """Return the suffix of a path and its writer, once the packages that it needs are found."""
    suffix = data_suffix(path)
    packing = compression_of(path)
    if suffix not in writers:
        raise ValueError(f"{path}: cannot write {suffix!r} files; choose one of {' '.join(writers)}")
    if packing and suffix not in _TEXT_SUFFIXES:
        raise ValueError(f"{path}: {suffix} files are not packed; leave {packing} away")
    if packing == ZSTD:
        need("pyarrow", f"{path}: a file packed by zstd")
    if suffix == PARQUET_SUFFIX:
        need("pyarrow.parquet", "Parquet")
    return suffix, writers[suffix]


def _check_names(names: ArrayLike | None, n_nodes: int) -> Array:
    nodes = np.arange(n_nodes) if names is None else as_plain(names)  # no pickles: nothing to hand on
    if len(nodes) != n_nodes:
        raise ValueError(f"{len(nodes)} node names for {n_nodes} rows")
    return nodes


def _write_npy(handle: BinaryIO, values: Array, nodes: Array) -> None:
    np.save(handle, values, allow_pickle=False)


def _npz_writer(key: str) -> Writer:
    def write(handle: BinaryIO, values: Array, nodes: Array) -> None:
        arrays: JsonObject = {key: values, "nodes": nodes}
        np.savez(handle, **arrays)

    return write


def _write_table(
    handle: BinaryIO, values: Array, nodes: Array, delimiter: str = ",", raw: bool = False
) -> None:
    write_text(handle, _table_lines(values, nodes, delimiter, raw))


def _write_word2vec(handle: BinaryIO, values: Array, nodes: Array) -> None:
    def lines() -> Iterator[str]:
        yield f"{values.shape[0]} {values.shape[1]}\n"
        for rows in _blocks(len(values)):
            words = nodes[rows].astype(str).tolist()
            broken = next((word for word in words if len(word.split()) != 1), None)
            if broken is not None:
                raise ValueError(
                    f"node name {broken!r} holds blanks, which word2vec text cannot; choose .csv or .npz"
                )
            yield from (f"{w} {' '.join(row)}\n" for w, row in zip(words, _texts(values[rows]), strict=True))

    write_text(handle, lines())


def _write_parquet(handle: BinaryIO, values: Array, nodes: Array) -> None:
    def columns(rows: slice) -> dict[str, Array]:
        part = values[rows]
        return dict(zip(_column_names(values), [nodes[rows], *np.atleast_2d(part.T)], strict=True))

    n_columns = max(1, values.size // max(1, len(values)))
    write_row_groups(handle, map(columns, _blocks(len(values), max(1, ROW_GROUP // n_columns))))


def _column_names(values: Array) -> list[str]:
    return ["node", "label"] if values.ndim == 1 else ["node", *(f"e{i}" for i in range(values.shape[1]))]


def _blocks(n_rows: int, size: int = ROWS_PER_BLOCK) -> Iterator[slice]:
    """All rows, so many at a time: what they are turned into is never all there at once."""
    return (slice(start, start + size) for start in range(0, max(1, n_rows), size))


def _table_lines(values: Array, nodes: Array, delimiter: str, raw: bool) -> Iterator[str]:
    yield delimiter.join(_column_names(values)) + "\n"
    for rows in _blocks(len(values)):
        names = nodes[rows].tolist()
        if nodes.dtype.kind not in "iu":  # numbers need no quotes
            names = [as_field(str(name), delimiter, raw) for name in names]
        for name, row in zip(names, _texts(values[rows]), strict=True):
            fields = row if values.dtype.kind in "biuf" else [as_field(text, delimiter, raw) for text in row]
            yield f"{name}{delimiter}{delimiter.join(fields)}\n"


def _texts(values: Array) -> Iterator[list[str]]:
    """Each row as texts from which its numbers can be read back exactly."""
    # Nine digits pin a float32; repr would print the seventeen of its float64 neighbour.
    text: Callable[[Any], str] = "{:.9g}".format if values.dtype == np.float32 else str
    if values.ndim == 1:
        return ([text(value)] for value in values.tolist())
    return (list(map(text, row)) for row in values.tolist())


_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_TEXT_SUFFIXES = (*_DELIMITERS, ".w2v", ".vec")
_EMBEDDING_WRITERS: Mapping[str, Writer] = {
    ".npy": _write_npy,
    ".npz": _npz_writer("embedding"),
    ".csv": _write_table,
    ".tsv": _write_table,
    ".w2v": _write_word2vec,
    ".vec": _write_word2vec,
    ".parquet": _write_parquet,
}
_LABEL_WRITERS: Mapping[str, Writer] = {
    ".csv": _write_table,
    ".tsv": _write_table,
    ".npy": _write_npy,
    ".npz": _npz_writer("labels"),
    ".parquet": _write_parquet,
}


# --- Results as a folder of Parquet files, each written by the worker that has its rows.

SUFFIX = ".parquet"


def is_folder_of_parts(path: str | os.PathLike[str] | None) -> bool:
    """Whether a target is written as ``name.parquet/``."""
    return path is not None and str(path).endswith(("/", os.sep))


def check_parts(path: str | os.PathLike[str]) -> None:
    """Refuse a target that is no folder of parts, or one that holds anything else."""
    target = Path(path)
    if target.suffix != SUFFIX:
        raise ValueError(f"{path}: a folder of parts is written as Parquet; call it name{SUFFIX}/")
    need("pyarrow.parquet", f"{path}: Parquet")
    if not resolve_path(target).parent.is_dir():
        raise ValueError(f"{path}: the folder {resolve_path(target).parent} does not exist; create it first")
    if target.exists() and not (target.is_dir() and all(map(_is_part, target.iterdir()))):
        raise ValueError(f"{path}: is there already and no folder of parts; choose another name")


def write_parts(
    path: str | os.PathLike[str], values: object, nodes: Array | None, *, engine: Engine | None = None
) -> list[Path]:
    """Write an embedding or labels as a folder of Parquet files, which appears whole or not at all.

    Parameters
    ----------
    path : path-like
        ``name.parquet/``. Parts that are there are replaced, anything else is refused. With an engine it must
        be on a file system that its workers share with this process.
    values : array or multivector
        Vectors (n_nodes, n_components) or labels (n_nodes,); with an ``engine``, a multivector of it, whose
        rows never come here.
    nodes : array of shape (n_nodes,), optional
        Names, in the order of the rows; row numbers when not given.
    engine : Engine, optional
        Whose workers write, one file each. Without one there is one file.

    Returns
    -------
    list of Path
        The parts; columns are those of :func:`write_embedding` and :func:`write_labels`.
    """
    check_parts(path)
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    draft.mkdir()
    try:
        if engine is None:
            names = [_write_part(str(draft), 0, np.asarray(values), nodes)]
        else:
            names = _by_workers(engine, draft, values, nodes)
        missing = [name for name in names if not (draft / name).is_file()]
        if missing:
            raise GraphError(
                f"{path}: {missing[0]} was written by a worker but is not here; the folder must be on a file "
                "system that all workers share"
            )
        if target.exists():
            shutil.rmtree(target)
        os.replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [target / name for name in names]


def _by_workers(engine: Engine, folder: Path, values: MultiVector, nodes: Array | None) -> list[str]:
    multivectors = (
        () if nodes is None else (engine.from_numpy(np.ascontiguousarray(as_plain(nodes))[:, None]),)
    )
    dask_engine = cast("DaskEngine", engine)  # no other engine leaves a result with workers
    return dask_engine.each_block("write", partial(_write_block, str(folder)), values, *multivectors)


def _write_block(folder: str, start: int, values: Array, nodes: Array | None = None) -> str:
    """Runs on a worker; written beside its name and moved there, so that it may be done again."""
    flat = values[:, 0] if values.dtype.kind in "iu" else values
    try:
        return _write_part(folder, start, flat, None if nodes is None else nodes[:, 0])
    except OSError as error:  # Dask takes its own for a lost worker
        from spectrograd.engines.dask.tasks import address

        raise GraphError(
            f"worker {address()}: {error}; results are written by the workers, so the folder must be on a "
            "file system that all of them share"
        ) from None


def _write_part(folder: str, start: int, values: Array, nodes: Array | None) -> str:
    name = f"part-{start:012d}{SUFFIX}"
    write = write_labels if values.ndim == 1 else write_embedding
    write(Path(folder, name), values, np.arange(start, start + len(values)) if nodes is None else nodes)
    return name


def _is_part(path: Path) -> bool:
    return path.name.startswith("part-") and path.suffix == SUFFIX
