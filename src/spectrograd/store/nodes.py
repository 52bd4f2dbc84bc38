"""The nodes of a store: how ids become rows, and the file that turns rows into ids again."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.store.batches import EdgeSource
from spectrograd.store.manifest import INTEGERS, ROWS, TEXTS, Piece, StoreMeta
from spectrograd.store.numbering import NAMES
from spectrograd.store.opened import Store
from spectrograd.store.pieces import write_file

Array = NDArray[Any]


class NewNames(NamedTuple):
    """So many further nodes, and their ids: int64 or texts."""

    n_nodes: int
    names: Array


class Nodes(NamedTuple):
    """How ids become rows: ``row_of`` each id (None: they are rows), and the ids where these are no rows."""

    n_nodes: int
    row_of: Array | None = None
    integers: Array | None = None
    texts: Path | None = None


def given_nodes(draft: Path, source: EdgeSource, n_nodes: int) -> Nodes:
    """Ids that are rows already."""
    names = source.names
    if names is None:
        return Nodes(n_nodes)
    if names.dtype.kind in "iu":
        whole = names.astype(np.int64)
        return Nodes(n_nodes, integers=None if np.array_equal(whole, np.arange(n_nodes)) else whole)
    arrow, parquet = need("pyarrow", "names of nodes"), need("pyarrow.parquet", "names of nodes")
    path = draft / NAMES
    parquet.write_table(arrow.table({"name": [str(name) for name in names.tolist()]}), path)
    return Nodes(n_nodes, texts=path)


def write_names(folder: Path, nodes: Nodes, order: Array | None) -> tuple[str, Piece | None]:
    """The ids in the order of the rows."""
    if nodes.integers is not None:
        ids = nodes.integers if order is None else nodes.integers[order]
        return INTEGERS, write_file(folder, "names.bin", ids)
    if nodes.texts is None:
        return ROWS, None
    if order is not None:
        parquet = need("pyarrow.parquet", "names of nodes")
        parquet.write_table(parquet.read_table(nodes.texts).take(order), nodes.texts)
    data = nodes.texts.read_bytes()
    return TEXTS, Piece(NAMES, 0, len(data), zlib.crc32(data))


def with_names(folder: Path, store: Store, new: NewNames, number: int) -> StoreMeta:
    """The manifest with further nodes behind those that are there; files get this number."""
    meta, after = store.meta, np.arange(store.meta.n_nodes, store.meta.n_nodes + new.n_nodes)
    if store.order is not None:
        grown = np.append(store.order, after).astype(np.int32)
        meta = replace(meta, order=write_file(folder, f"order-{number:03d}.bin", grown))
    if meta.ids == ROWS and new.names.dtype.kind in "iu" and np.array_equal(new.names, after):
        return meta  # ids go on counting
    if (meta.ids == TEXTS) == (new.names.dtype.kind in "iu"):
        kind = "texts" if meta.ids == TEXTS else "integers"
        raise GraphError(f"node {new.names.tolist()[0]!r}: the ids of {folder} are {kind}")
    if meta.ids == TEXTS:
        assert store.names is not None
        arrow, parquet = need("pyarrow", "names of nodes"), need("pyarrow.parquet", "names of nodes")
        path = folder / f"names-{number:03d}.parquet"
        parquet.write_table(arrow.table({"name": [*store.names.tolist(), *new.names.tolist()]}), path)
        data = path.read_bytes()
        return replace(meta, names=Piece(path.name, 0, len(data), zlib.crc32(data)))
    known = np.arange(meta.n_nodes) if store.names is None else store.names
    ids = np.append(known, new.names).astype(np.int64)
    return replace(meta, ids=INTEGERS, names=write_file(folder, f"names-{number:03d}.bin", ids))
