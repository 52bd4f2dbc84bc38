"""Parquet, in and out, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from spectrograd.extras import need
from spectrograd.graph import Array
from spectrograd.io.foreign.frames import edge_table
from spectrograd.io.read.arrays import decoding
from spectrograd.io.read.columns import Chosen
from spectrograd.io.read.tables import EdgeTable

PARQUET_SUFFIX = ".parquet"


def read_parquet(path: str, chosen: Chosen | None = None) -> EdgeTable:
    """Read an edge list with the columns ``src,dst[,weight][,layer]``, or their synonyms."""
    with decoding(path, "not a Parquet file"):
        return edge_table(load_parquet(path), path, chosen)


def load_parquet(path: str) -> Any:
    """Read a whole file as a pyarrow Table."""
    need("pyarrow", f"{path}: Parquet")
    parquet = need("pyarrow.parquet", f"{path}: Parquet")
    with decoding(path, "not a Parquet file"):
        return parquet.read_table(path)


def write_parquet(handle: BinaryIO, columns: Mapping[str, Array]) -> None:
    """Write columns to an open file."""
    arrow = need("pyarrow", "Parquet")
    need("pyarrow.parquet", "Parquet").write_table(arrow.table(dict(columns)), handle)


def write_row_groups(handle: BinaryIO, groups: Iterable[Mapping[str, Array]]) -> None:
    """Write the same columns in several parts to an open file."""
    arrow, parquet = need("pyarrow", "Parquet"), need("pyarrow.parquet", "Parquet")
    writer = None
    for columns in groups:
        part = arrow.table(dict(columns))
        if writer is None:
            repeated = [name for name, column in columns.items() if column.dtype.kind in "iU"]
            # a dictionary of floats that hardly ever repeat only takes time and memory
            writer = parquet.ParquetWriter(handle, part.schema, use_dictionary=repeated)
        writer.write_table(part)
    if writer is not None:
        writer.close()
