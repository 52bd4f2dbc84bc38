"""The nodes of a store: how ids become rows, and the file that turns rows into ids again."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.store.batches import EdgeSource
from spectrograd.store.manifest import INTEGERS, ROWS, TEXTS, Piece
from spectrograd.store.numbering import NAMES
from spectrograd.store.pieces import write_file

Array = NDArray[Any]


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
