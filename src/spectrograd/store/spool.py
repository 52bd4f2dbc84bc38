"""The first pass: edges as they are listed go to disk as pairs of integers, and their ends are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import GraphError
from spectrograd.store.batches import EdgeBatch
from spectrograd.store.manifest import MOST_NODES

Array = NDArray[Any]


class NotRowNumbers(Exception):
    """Integer ids too far apart to be counted in a table: they have to be numbered first."""


class Listed(NamedTuple):
    """Edges as they are listed, without loops: int32 ends, float64 weights or None."""

    source: Array
    target: Array
    weight: Array | None


@dataclass
class SpooledLayer:
    """The edges of one layer on disk, in segments; ``imbalance`` is 0 where all go both ways."""

    path: Path
    segments: list[tuple[int, bool]] = field(default_factory=list)
    imbalance: int = 0
    n_loops: int = 0

    @property
    def n_edges(self) -> int:
        """Edges as they are listed."""
        return sum(n for n, _ in self.segments)

    @property
    def weighted(self) -> bool:
        """Whether any part came with weights."""
        return any(weighted for _, weighted in self.segments)

    @property
    def both_ways(self) -> bool:
        """Whether the list holds each edge in both directions."""
        return self.imbalance == 0 and self.n_edges > 0

    def read(self) -> Iterator[Listed]:
        """All segments; where one of them has weights, all have."""
        weighted = self.weighted
        with open(self.path, "rb") as handle:
            for n, own in self.segments:
                source, target = (np.fromfile(handle, np.int32, n) for _ in range(2))
                weight = np.fromfile(handle, np.float64, n) if own else np.ones(n) if weighted else None
                yield Listed(source, target, weight)


class Spool:
    """Takes batches of integer ids and counts how often each occurs.

    ``most`` is the largest id for which there is room to count.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, min(most, MOST_NODES)
        self.counts = np.zeros(1024, np.int32)
        self.layers: dict[int, SpooledLayer] = {}
        self._handles: dict[int, Any] = {}

    def add(self, batch: EdgeBatch) -> None:
        """Take a batch."""
        from spectrograd.kernels.ingest.rows import keep_edges

        source, target, weight = batch.source, batch.target, batch.weight
        layer = self.open_layer(batch.layer)
        if len(source) == 0:
            return
        low = min(int(source.min()), int(target.min()))
        high = max(int(source.max()), int(target.max()))
        if low < 0 or high > self.most:  # kernels do not look
            raise NotRowNumbers(low if low < 0 else high)
        if high >= len(self.counts):
            grown = np.zeros(min(self.most, 2 * high) + 1, np.int32)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        check_weights(source, target, weight)
        bits = None if weight is None else weight.view(np.uint64)
        kept = np.empty((2, len(source)), np.int32)
        n_kept, imbalance = keep_edges(source, target, bits, self.counts, kept)
        layer.imbalance = (layer.imbalance + int(imbalance)) % 2**64
        layer.n_loops += len(source) - n_kept
        if weight is not None and n_kept < len(source):
            weight = weight[source != target]
        handle = self._handles[batch.layer]
        for part in (kept[0, :n_kept], kept[1, :n_kept], weight):
            if part is not None:
                handle.write(np.ascontiguousarray(part).data)
        layer.segments.append((int(n_kept), weight is not None))

    def open_layer(self, code: int) -> SpooledLayer:
        """The layer of this code; new ones begin empty."""
        if code not in self.layers:
            self.layers[code] = SpooledLayer(self.folder / f"listed-{code:03d}.tmp")
            self._handles[code] = open(self.layers[code].path, "wb")  # noqa: SIM115 (see close)
        return self.layers[code]

    def close(self) -> None:
        """Close the files; they can be read now, or are removed with their folder."""
        for handle in self._handles.values():
            handle.close()

    @property
    def n_listed(self) -> int:
        """Edges taken, of all layers."""
        return sum(layer.n_edges for layer in self.layers.values())


def check_weights(source: Any, target: Any, weight: Array | None) -> None:
    """Refuse the first weight that is not finite or negative."""
    if weight is None:
        return
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(
            f"weight of edge ({source[at]}, {target[at]}) is {weight[at]}; "
            "weights must be finite and not negative"
        )
