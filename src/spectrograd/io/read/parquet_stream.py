"""Parquet edge lists that may be larger than memory, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import GraphError
from spectrograd.io.read.tables import role_of
from spectrograd.store.batches import AT_ONCE, NotIntegers

Array = NDArray[Any]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@dataclass
class ParquetEdges:
    """One Parquet file."""

    path: str
    columns: Mapping[str, str]

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
                roles = self._roles(file.schema_arrow.names)
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

    def _roles(self, names: list[str]) -> dict[str, str]:
        found = dict(self.columns)
        for name in names:
            role = role_of(name)
            if role and role not in self.columns and name not in self.columns.values():
                if role in found:
                    raise GraphError(
                        f"{self.path}: {found[role]!r} and {name!r} both name the {role} column; drop one"
                    )
                found[role] = name
        missing = [name for name in found.values() if name not in names]
        if missing or not {"src", "dst"} <= set(found):
            what = f"no column {missing[0]!r}" if missing else "no columns 'src' and 'dst'"
            raise GraphError(
                f"{self.path}: {what} among {', '.join(names)}; say which they are (--source, --target)"
            )
        return found

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
