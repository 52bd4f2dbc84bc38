"""Edges in random order, where some of them have changed since they were shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.store.changes import Rows

Array = NDArray[Any]


class Edges(NamedTuple):
    """Edges by row numbers, each once; ``weight`` is None where all are one."""

    source: Array
    target: Array
    weight: Array | None


@dataclass(frozen=True, eq=False)
class ChangedEdges:
    """Edges that are not as they were: ``keys`` of all of them, ascending, and those to be mixed in."""

    keys: Array
    edges: Edges
    rng: np.random.Generator

    @classmethod
    def of_rows(cls, starts: Sequence[int], changes: Sequence[Rows], unit: float) -> ChangedEdges:
        """From the changed entries of all blocks, which hold both directions."""
        keys = np.concatenate([rows.keys(start) for start, rows in zip(starts, changes, strict=True)])
        weight = np.concatenate([rows.weights for rows in changes if rows.weights is not None]) * unit
        once = (keys >> 32) < (keys & 0xFFFFFFFF)
        keys, weight = keys[once], weight[once]
        there = weight > 0
        heads, tails = ((keys[there] >> 32), keys[there] & 0xFFFFFFFF)
        edges = Edges(heads.astype(np.int32), tails.astype(np.int32), weight[there])
        return cls(keys, edges, np.random.default_rng(0))

    def dealt(self, n_parts: int, rng: np.random.Generator) -> Iterator[ChangedEdges]:
        """Parts of the edges drawn at random; all of them know all keys."""
        for part in np.array_split(rng.permutation(len(self.edges.source)), n_parts):
            source, target, weight = self.edges
            assert weight is not None
            yield ChangedEdges(self.keys, Edges(source[part], target[part], weight[part]), rng)

    def mixed(self, old: Edges) -> Edges:
        """Edges as they were, without those that changed, and these among them, in random order."""
        stored = (old.source.astype(np.int64) << 32) | old.target
        at = np.minimum(np.searchsorted(self.keys, stored), len(self.keys) - 1)
        stays = np.flatnonzero(self.keys[at] != stored)
        mixed = self.rng.permutation(len(stays) + len(self.edges.source))
        own = self.edges.weight
        assert own is not None
        weight = None
        if old.weight is not None or (own != 1).any():
            before = np.ones(len(stays)) if old.weight is None else old.weight[stays]
            weight = np.concatenate([before, own])[mixed]
        ends = [
            np.concatenate([column[stays], new])[mixed]
            for column, new in ((old.source, self.edges.source), (old.target, self.edges.target))
        ]
        return Edges(ends[0], ends[1], weight)
