"""Parquet edge lists that may be larger than memory, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.io.read.columns import assign_roles
from spectrograd.store.batches import AT_ONCE, NotIntegers

Array = NDArray[Any]
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

    def _batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        arrow, parquet = (
            need("pyarrow", f"{self.path}: Parquet"),
            need("pyarrow.parquet", f"{self.path}: Parquet"),
        )
        try:
            with parquet.ParquetFile(self.path) as file:
                roles = self._roles(file)
                at = 0
                for batch in file.iter_batches(AT_ONCE, columns=list(roles.values())):
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

    def _weight(self, at: int, columns: dict[str, Any]) -> Array | None:
        if "weight" not in columns:
            return None
        weight: Array = columns["weight"].cast("float64").to_numpy(zero_copy_only=False).copy()
        bad = ~np.isfinite(weight) | (weight < 0)
        if bad.any():
            row = int(np.argmax(bad))
            raise GraphError(
                f"{self.path}, row {at + row}: weight {weight[row]} must be finite and not negative"
            )
        return weight

    def _layer(self, columns: dict[str, Any]) -> Any:
        return arrow_labels(columns["layer"].cast("string")) if "layer" in columns else None


def arrow_labels(column: Any) -> tuple[Array, list[str]]:
    """The layer of every edge as a small number, and the names of these."""
    coded = column.dictionary_encode()
    return coded.indices.to_numpy(), [str(label) for label in coded.dictionary.to_pylist()]
