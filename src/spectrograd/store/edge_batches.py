"""What a store is made of: batches of edges, from whatever can list them as often as it is asked to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from spectrograd.graph import Graph, GraphError, MultilayerGraph, RowBlock
from spectrograd.store.format import MOST_NODES
from spectrograd.system import machine_memory
from spectrograd.typing import Array

Item = TypeVar("Item")
SHARE = 0.5  # of the machine's memory, where no limit is given: the rest is for others and the page cache
AT_ONCE = 1 << 20  # edges of a batch: enough to forget what a batch costs, few enough to hold some of them


class EdgeBatch(NamedTuple):
    """Some edges of one layer.

    ``source`` and ``target`` are int64 arrays, or pyarrow arrays of texts; ``weight`` is float64 or None (all
    are one); ``layer`` is the code of the layer.
    """

    source: Any
    target: Any
    weight: Array | None = None
    layer: int = 0


class NotIntegers(Exception):
    """Some id is no integer: the source has to be read as texts."""


class EdgeSource(Protocol):
    """Edges that can be listed again and again."""

    @property
    def n_nodes(self) -> int | None:
        """Where ids are rows already, how many there are; else None."""

    @property
    def names(self) -> Array | None:
        """The names of these rows, if they have any."""

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """List all edges; integer ids unless ``texts``, and :class:`NotIntegers` where some are none."""

    def layers(self) -> list[tuple[int, str]]:
        """Codes and names of the layers in their order, known once all edges were listed."""

    @property
    def multilayer(self) -> bool:
        """Whether it is a graph of layers, even if there is only one."""


Duplicates = Literal["sum", "max", "first"]
Order = Literal["none", "bfs", "labelprop", "auto"]


def silent(stage: str, done: int, total: int | None) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class IngestSettings:
    """How a store is made.

    ``progress`` is called with a stage, the edges done and, where it is known, how many there are. Blocks are
    of 16 MB: some fit into any memory limit, and reading one takes far longer than asking for it.
    """

    duplicates: Duplicates = "sum"
    order: Order = "none"
    edges: bool = False
    memory_limit: int = field(default_factory=lambda: int(SHARE * machine_memory()))
    force: bool = False
    seed: int = 0
    block_bytes: int = 16 << 20
    progress: Callable[[str, int, int | None], None] = silent


@dataclass(frozen=True, eq=False)
class GraphSource:
    """The edges of a graph in memory, or of another store: rows and names as they are."""

    graph: Graph | MultilayerGraph

    @property
    def n_nodes(self) -> int | None:
        """Rows."""
        return self.graph.n_nodes

    @property
    def _order(self) -> Array | None:
        """The order of a store's rows, which is undone."""
        first = self.graph.layers[0]
        return getattr(first, "input_order", None)

    @property
    def names(self) -> Array | None:
        """The graph's."""
        order, names = self._order, self.graph.names
        if order is None or names is None:
            return names
        placed = np.empty_like(names)
        placed[order] = names
        return placed

    @property
    def multilayer(self) -> bool:
        """Whether it has layers."""
        return isinstance(self.graph, MultilayerGraph)

    def layers(self) -> list[tuple[int, str]]:
        """In the graph's order."""
        names = self.graph.layer_names if isinstance(self.graph, MultilayerGraph) else ("graph",)
        return list(enumerate(names))

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """Every edge once, smaller end first."""
        order = self._order
        for code, layer in enumerate(self.graph.layers):
            for block in layer.blocks:
                for batch in _upper_entries(block, code):
                    if order is not None:
                        source, target = order[batch.source], order[batch.target]
                        batch = batch._replace(source=source.astype(np.int64), target=target.astype(np.int64))
                    yield batch


def _upper_entries(block: RowBlock, code: int) -> Iterator[EdgeBatch]:
    for low in range(0, len(block.indices), AT_ONCE):
        places = np.arange(low, min(len(block.indices), low + AT_ONCE))
        source = block.start + np.searchsorted(block.indptr, places, side="right") - 1
        target = block.indices[places].astype(np.int64)
        once = source < target
        weight = None if block.weights is None else block.weights[places][once].astype(np.float64)
        yield EdgeBatch(source[once], target[once], weight, code)


def in_background(items: Iterable[Item], ready: int = 1) -> Iterator[Item]:
    """The same items, made by another thread while the last ones are at work."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(ready)
    stopped = threading.Event()

    def offer(kind: str, item: Any) -> None:
        while not stopped.is_set():
            try:
                return waiting.put((kind, item), timeout=0.1)
            except queue.Full:
                continue

    def make() -> None:
        try:
            for item in items:
                offer("item", item)
                if stopped.is_set():
                    return
            offer("end", None)
        except BaseException as error:
            offer("error", error)

    maker = threading.Thread(target=make, name="spectrograd source", daemon=True)
    maker.start()
    try:
        while True:
            kind, item = waiting.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        stopped.set()
        maker.join()


# --- The first pass: edges as they are listed go to disk as pairs of integers, and their ends are counted.


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
        from spectrograd.kernels.edge_lists import keep_edges

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
