"""Batches of edges, from which a store is made: their sources, the settings of ingest, and the first pass.

The first pass (:class:`Spool`) writes the edges to disk as pairs of integers and counts the ids.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from spectrograd.graph import Graph, GraphError, MultilayerGraph, RowBlock
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.store.format import MAX_NODES
from spectrograd.system import machine_memory
from spectrograd.typing import Array

Item = TypeVar("Item")
# Of the machine's memory, where no limit is given: the rest is for other processes and the page cache.
DEFAULT_MEMORY_SHARE = 0.5
EDGE_BATCH = 1 << 20  # edges: the cost of a batch is negligible, and several fit into memory


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
    """An id is no integer: the source has to be read as texts."""


class EdgeSource(Protocol):
    """Edges that can be listed repeatedly."""

    @property
    def n_nodes(self) -> int | None:
        """Number of nodes where ids are row numbers; else None."""

    @property
    def names(self) -> Array | None:
        """Names of the rows, or None."""

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """List all edges, by integer ids unless ``texts``; raise :class:`NotIntegers` where an id is none."""

    def layers(self) -> list[tuple[int, str]]:
        """Codes and names of the layers in their order; complete after all edges were listed."""

    @property
    def multilayer(self) -> bool:
        """Whether the graph has layers, even if there is only one."""


Duplicates = Literal["sum", "max", "first"]
Order = Literal["none", "bfs", "labelprop", "auto"]


def silent(stage: str, done: int, total: int | None) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class IngestSettings:
    """Settings of the ingest.

    ``progress`` is called with a stage, the edges done and, where it is known, their total number. Blocks
    are of 16 MB: several fit into any memory limit, and reading one takes far longer than requesting it.
    """

    duplicates: Duplicates = "sum"
    order: Order = "none"
    edges: bool = False
    memory_limit: int = field(default_factory=lambda: int(DEFAULT_MEMORY_SHARE * machine_memory()))
    force: bool = False
    seed: int = 0
    block_bytes: int = 16 << 20
    progress: Callable[[str, int, int | None], None] = silent


@dataclass(frozen=True, eq=False)
class GraphSource:
    """The edges of a graph in memory, or of another store, with its rows and names."""

    graph: Graph | MultilayerGraph

    @property
    def n_nodes(self) -> int | None:
        """Number of nodes."""
        return self.graph.n_nodes

    @property
    def _order(self) -> Array | None:
        """The order of a store's rows, which is undone."""
        return getattr(self.graph.layers[0], "input_order", None)

    @property
    def names(self) -> Array | None:
        """Names of the nodes in the order of the input."""
        order = self._order
        names = self.graph.names
        if order is None or names is None:
            return names
        input_names = np.empty_like(names)
        input_names[order] = names
        return input_names

    @property
    def multilayer(self) -> bool:
        """Whether it has layers."""
        return isinstance(self.graph, MultilayerGraph)

    def layers(self) -> list[tuple[int, str]]:
        """Codes and names of the layers in the order of the graph."""
        names = self.graph.layer_names if isinstance(self.graph, MultilayerGraph) else ("graph",)
        return list(enumerate(names))

    def batches(self, *, texts: bool) -> Iterator[EdgeBatch]:
        """List every edge once, smaller end first."""
        order = self._order
        for code, layer in enumerate(self.graph.layers):
            for block in layer.blocks:
                for batch in _upper_entries(block, code):
                    if order is not None:
                        source = order[batch.source]
                        target = order[batch.target]
                        batch = batch._replace(source=source.astype(np.int64), target=target.astype(np.int64))
                    yield batch


def _upper_entries(block: RowBlock, code: int) -> Iterator[EdgeBatch]:
    for low in range(0, len(block.indices), EDGE_BATCH):
        entries = np.arange(low, min(len(block.indices), low + EDGE_BATCH))
        # the row of each entry
        source = block.start + np.searchsorted(block.indptr, entries, side="right") - 1
        target = block.indices[entries].astype(np.int64)
        is_upper = source < target
        weight = None if block.weights is None else block.weights[entries][is_upper].astype(np.float64)
        yield EdgeBatch(source[is_upper], target[is_upper], weight, code)


def in_background(items: Iterable[Item], ready: int = 1) -> Iterator[Item]:
    """Iterate over the items while another thread makes the next ``ready`` ones."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(ready)
    stopped = threading.Event()

    def offer(kind: str, item: object) -> None:
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

    # In the caller's context: whether signs are accepted is decided there.
    here = contextvars.copy_context()
    maker = threading.Thread(target=here.run, args=(make,), name="spectrograd source", daemon=True)
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


# --- First pass: edges go to disk as pairs of integers, and ids are counted


class NotRowNumbers(Exception):
    """Integer ids that are too large for a table of counts: they have to be numbered first."""


class Listed(NamedTuple):
    """A batch of the listed edges, without loops: int32 ends, float64 weights or None."""

    source: Array
    target: Array
    weight: Array | None


@dataclass
class SpooledLayer:
    """The edges of a layer on disk, in segments; ``imbalance`` is 0 if all are listed in both directions."""

    path: Path
    segments: list[tuple[int, bool]] = field(default_factory=list)
    imbalance: int = 0
    n_loops: int = 0

    @property
    def n_edges(self) -> int:
        """Number of listed edges."""
        return sum(n for n, _ in self.segments)

    @property
    def weighted(self) -> bool:
        """Whether any segment has weights."""
        return any(weighted for _, weighted in self.segments)

    @property
    def both_ways(self) -> bool:
        """Whether the list holds each edge in both directions."""
        return self.imbalance == 0 and self.n_edges > 0

    def read(self) -> Iterator[Listed]:
        """Read all segments; where one of them has weights, the others have ones."""
        weighted = self.weighted
        with open(self.path, "rb") as handle:
            for n, own in self.segments:
                source, target = (np.fromfile(handle, np.int32, n) for _ in range(2))
                weight = np.fromfile(handle, np.float64, n) if own else np.ones(n) if weighted else None
                yield Listed(source, target, weight)


class Spool:
    """Writes batches of edges with integer ids to disk and counts how often each id occurs.

    ``max_id`` is the largest id that the table of counts may hold.
    """

    def __init__(self, folder: Path, max_id: int) -> None:
        self.folder = folder
        self.max_id = min(max_id, MAX_NODES)
        self.counts = np.zeros(1024, np.int32)
        self.layers: dict[int, SpooledLayer] = {}
        self._handles: dict[int, IO[bytes]] = {}

    def add(self, batch: EdgeBatch) -> None:
        """Write a batch."""
        from spectrograd.kernels.edge_lists import keep_edges

        source = batch.source
        target = batch.target
        weight = batch.weight
        layer = self.open_layer(batch.layer)
        if len(source) == 0:
            return
        low = min(int(source.min()), int(target.min()))
        high = max(int(source.max()), int(target.max()))
        if low < 0 or high > self.max_id:  # kernels do not check
            raise NotRowNumbers(low if low < 0 else high)
        if high >= len(self.counts):
            # doubled, so that all growth together costs no more than the last table
            grown = np.zeros(min(self.max_id, 2 * high) + 1, np.int32)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        check_weights(source, target, weight)
        bits = None if weight is None else weight.view(np.uint64)
        ends = np.empty((2, len(source)), np.int32)  # without loops
        n_edges, imbalance = keep_edges(source, target, bits, self.counts, ends)
        # a sum of hashes modulo 2^64 over all batches, 0 if both directions are there (``keep_edges``)
        layer.imbalance = (layer.imbalance + int(imbalance)) % 2**64
        layer.n_loops += len(source) - n_edges
        if weight is not None and n_edges < len(source):
            weight = weight[source != target]
        handle = self._handles[batch.layer]
        for part in (ends[0, :n_edges], ends[1, :n_edges], weight):
            if part is not None:
                handle.write(np.ascontiguousarray(part).data)
        layer.segments.append((int(n_edges), weight is not None))

    def open_layer(self, code: int) -> SpooledLayer:
        """Return the layer of this code; a new one is empty."""
        if code not in self.layers:
            self.layers[code] = SpooledLayer(self.folder / f"listed-{code:03d}.tmp")
            self._handles[code] = open(self.layers[code].path, "wb")  # noqa: SIM115 (see close)
        return self.layers[code]

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles.values():
            handle.close()

    @property
    def n_listed(self) -> int:
        """Number of edges written, of all layers."""
        return sum(layer.n_edges for layer in self.layers.values())


def check_weights(source: Any, target: Any, weight: Array | None) -> None:
    """Refuse the first weight that is not finite, or negative where signs are not accepted."""
    if weight is None:
        return
    bad = is_invalid(weight)
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(
            f"weight of edge ({source[at]}, {target[at]}) is {weight[at]}; "
            f"weights {explain_weight(weight[at])}"
        )
