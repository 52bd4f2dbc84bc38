"""Parquet, in and out, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import Chosen, assign_roles
from spectrograd.io.edge_table import EdgeTable
from spectrograd.io.interop.frames import edge_table
from spectrograd.io.matrices import decoding
from spectrograd.store.edge_batches import EDGE_BATCH, NotIntegers
from spectrograd.system import need
from spectrograd.typing import Array, JsonObject

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
    arrow = need("pyarrow", "Parquet")
    parquet = need("pyarrow.parquet", "Parquet")
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


# --- Parquet edge lists that may be larger than memory, batch by batch.

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
NUMBERS = (*INTEGERS, "uint64", "halffloat", "float", "double")


@dataclass
class ParquetEdges:
    """One Parquet file."""

    path: str
    columns: Mapping[str, str]
    _found: dict[str, str] | None = None

    def integers(self) -> Iterator[tuple[Array, Array, Array | None, Any]]:
        """Batches of integer ids."""
        for at, columns in self._batches():
            ends = [columns[end] for end in ("src", "dst")]
            if any(str(end.type) not in INTEGERS for end in ends):
                raise NotIntegers
            source, target = (end.to_numpy().astype(np.int64, copy=False) for end in ends)
            yield source, target, self._weight(at, columns), self._layer(columns)

    def texts(self) -> Iterator[tuple[Any, Any, Array | None, Any]]:
        """Batches of ids as texts."""
        for at, columns in self._batches():
            ends = [columns[end] for end in ("src", "dst")]
            if any(str(end.type) in ("float", "double", "halffloat") for end in ends):
                raise GraphError(f"{self.path}: ids are fractions; store them as integers or texts")
            try:
                source, target = (end.cast("string") for end in ends)
            except Exception as error:
                raise GraphError(f"{self.path}: ids that are no texts ({error})") from None
            yield source, target, self._weight(at, columns), self._layer(columns)

    def _batches(self) -> Iterator[tuple[int, JsonObject]]:
        arrow = need("pyarrow", f"{self.path}: Parquet")
        parquet = need("pyarrow.parquet", f"{self.path}: Parquet")
        try:
            with parquet.ParquetFile(self.path) as file:
                roles = self._roles(file)
                at = 0
                for batch in file.iter_batches(EDGE_BATCH, columns=list(roles.values())):
                    columns = {role: batch.column(name) for role, name in roles.items()}
                    for role, column in columns.items():
                        if column.null_count:
                            row = at + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                            raise GraphError(f"{self.path}, row {row}: the column {roles[role]!r} is empty")
                    yield at, columns
                    at += len(batch)
        except (arrow.ArrowException, OSError) as error:
            raise GraphError(f"{self.path}: not a Parquet file ({' '.join(str(error).split())})") from None

    def _roles(self, file: Any) -> dict[str, str]:
        """Where the columns are: as when the file is read into memory."""
        if self._found is None:
            schema = file.schema_arrow

            def is_number(at: int) -> bool:
                return str(schema.field(at).type) in NUMBERS

            roles = assign_roles(self.path, schema.names, self.columns, is_number)
            named = zip(roles, schema.names, strict=True)
            self._found = {role: name for role, name in named if role is not None}
        return self._found

    def _weight(self, at: int, columns: JsonObject) -> Array | None:
        if "weight" not in columns:
            return None
        weight: Array = columns["weight"].cast("float64").to_numpy(zero_copy_only=False).copy()
        bad = is_invalid(weight)
        if bad.any():
            row = int(np.argmax(bad))
            raise GraphError(
                f"{self.path}, row {at + row}: weight {weight[row]} {explain_weight(weight[row])}"
            )
        return weight

    def _layer(self, columns: JsonObject) -> Any:
        return arrow_labels(columns["layer"].cast("string")) if "layer" in columns else None


def arrow_labels(column: Any) -> tuple[Array, list[str]]:
    """The layer of every edge as a small number, and the names of these."""
    coded = column.dictionary_encode()
    return coded.indices.to_numpy(), [str(label) for label in coded.dictionary.to_pylist()]
