"""Parquet, in and out, by pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from spectrograd.extras import need
from spectrograd.graph import Array, GraphError
from spectrograd.io.foreign.frames import edge_table
from spectrograd.io.read.tables import EdgeTable

PARQUET_SUFFIX = ".parquet"


def read_parquet(path: str) -> EdgeTable:
    """Read an edge list with the columns ``src,dst[,weight][,layer]``, or their synonyms."""
    return edge_table(load_parquet(path), path)


def load_parquet(path: str) -> Any:
    """Read a whole file as a pyarrow Table."""
    arrow = need("pyarrow", f"{path}: Parquet")
    parquet = need("pyarrow.parquet", f"{path}: Parquet")
    try:
        return parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise GraphError(f"{path}: not a Parquet file ({' '.join(str(error).split())})") from None


def write_parquet(handle: BinaryIO, columns: Mapping[str, Array]) -> None:
    """Write columns to an open file."""
    arrow = need("pyarrow", "Parquet")
    need("pyarrow.parquet", "Parquet").write_table(arrow.table(dict(columns)), handle)
