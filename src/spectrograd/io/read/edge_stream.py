"""Edges of files, listed batch by batch: what a store is made of."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import GraphError
from spectrograd.io.read.compressed import data_suffix
from spectrograd.io.read.join import unique
from spectrograd.io.read.parquet import PARQUET_SUFFIX
from spectrograd.io.read.parquet_stream import ParquetEdges
from spectrograd.io.read.tables import as_integers
from spectrograd.io.read.text import TEXT_SUFFIXES
from spectrograd.io.read.text_stream import TextEdges
from spectrograd.store import is_store
from spectrograd.store.batches import EdgeBatch

Array = NDArray[Any]
STREAMED_SUFFIXES = (*TEXT_SUFFIXES, PARQUET_SUFFIX)


@dataclass(eq=False)
class FileSource:
    """Edges of files; the files of one group are parts of one layer, or share a layer column.

    Parameters
    ----------
    groups : mapping
        Names of layers to their files, text (also packed) or Parquet. A single group is no layer by itself.
    columns : mapping
        Roles (``src``, ``dst``, ``weight``, ``layer``) to columns with names that are not the usual ones.
    n_nodes : int, optional
        Ids are row numbers below this one, and rows without edges are nodes, too.
    header : bool, optional
        Whether the first line of a text names the columns; None finds out.
    format : str, optional
        What the suffix of the files would say, had they other names.
    """

    groups: Mapping[str, Sequence[str]]
    columns: Mapping[str, str] = field(default_factory=dict)
    n_nodes: int | None = None
    header: bool | None = None
    format: str | None = None
    names: Array | None = None
    _codes: dict[tuple[int, str], int] = field(default_factory=dict)
    _doors: dict[str, TextEdges | ParquetEdges] = field(default_factory=dict)
    _versions: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and time of every file

    @property
    def multilayer(self) -> bool:
        """Whether there are several groups, or a layer column."""
        return len(self.groups) > 1 or any(label for _, label in self._codes)

    def layers(self) -> list[tuple[int, str]]:
        """By group, then by label: as numbers where all labels are."""
        numbers = as_integers([label for _, label in self._codes if label]) is not None
        keys = sorted(self._codes, key=lambda key: (key[0], int(key[1] or 0) if numbers else 0, key[1]))
        stems = list(self.groups) if len(self.groups) > 1 else [""]
        texts = [":".join(filter(None, (stems[group], label))) or "graph" for group, label in keys]
        return [(self._codes[key], name) for key, name in zip(keys, unique(texts), strict=True)]

    def _code(self, group: int, label: str) -> int:
        return self._codes.setdefault((group, label), len(self._codes))

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """All edges of all files."""
        for group, paths in enumerate(self.groups.values()):
            for path in paths:
                yield from self._file(group, path, texts)

    def _file(self, group: int, path: str, texts: bool) -> Iterator[EdgeBatch]:
        if path not in self._doors:  # kept: what it finds out about columns it says once
            suffix = data_suffix(path) if self.format is None else f".{self.format}"
            if suffix == PARQUET_SUFFIX:
                self._doors[path] = ParquetEdges(path, self.columns)
            else:
                self._doors[path] = TextEdges(path, self.columns, self.header, self.format)
        door = self._doors[path]
        found, seen = False, self._versions.setdefault(path, _version(path))
        for source, target, weight, labels in door.texts() if texts else door.integers():
            found = True
            if labels is None:
                yield EdgeBatch(source, target, weight, self._code(group, ""))
                continue
            for at, name in enumerate(labels[1]):
                chosen = np.flatnonzero(labels[0] == at)
                ends = _taken(source, chosen), _taken(target, chosen)
                yield EdgeBatch(*ends, None if weight is None else weight[chosen], self._code(group, name))
        if _version(path) != seen:
            raise GraphError(f"{path}: changed while it was read; convert it again when it is whole")
        if not found:
            raise GraphError(f"{path}: empty, no edges in it")


def _version(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _taken(column: Any, chosen: Array) -> Any:
    return column[chosen] if isinstance(column, np.ndarray) else column.take(chosen)


def files_of(argument: str) -> list[str]:
    """The files that a folder, a pattern or a path stands for."""
    if os.path.isdir(argument) and not is_store(argument):
        inside = sorted(path for path in Path(argument).iterdir() if not path.name.startswith("."))
        files = [str(path) for path in inside if path.is_file()]
        if not files:
            raise GraphError(f"{argument}: a folder without files in it")
        return files
    if not os.path.exists(argument) and glob.has_magic(argument):
        matched = sorted(glob.glob(argument))
        if not matched:
            raise GraphError(f"{argument}: no file matches")
        return matched
    return [argument]
