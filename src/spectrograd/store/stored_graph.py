"""Graphs on disk: an open store, its row blocks as a stream, and the graph whose blocks are streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from spectrograd.graph import Graph, GraphError, MultilayerGraph, RowBlock
from spectrograd.graph.graph import Search
from spectrograd.graph.node_names import as_names
from spectrograd.graph.validation import CleanArrays
from spectrograd.serialization.codec import DamagedFileError
from spectrograd.serialization.folders import MANIFEST, RemotePath, StorePath, store_path
from spectrograd.store.format import (
    INTEGERS,
    BlockSegment,
    EdgeSegment,
    LayerMeta,
    Segment,
    StoreMeta,
    load_meta,
)
from spectrograd.store.reader import N_BUFFERS, ReadAhead, files_of
from spectrograd.store.row_blocks import row_sums
from spectrograd.store.shuffled_edges import ChangedEdges, Edges, Rows
from spectrograd.system import as_bytes, need
from spectrograd.typing import Array

SUM_ROUNDING = 1e-9  # of a degree: both are sums in float64 of the same numbers, maybe in another order


class Store:
    """An open store: its files, its nodes, and the blocks that stay in memory."""

    def __init__(self, path: StorePath, meta: StoreMeta) -> None:
        self.path = path
        self.meta = meta
        self.files = files_of(path, sorted({segment.file for segment in meta.segments}))
        self.pool: list[Array] = []
        self.pinned: dict[BlockSegment, Array] = {}
        self.checked: set[Segment] = set()  # segments whose structure was checked
        self.longest: dict[
            BlockSegment, int
        ] = {}  # largest number of entries in a row, of blocks read so far
        self.summed: set[BlockSegment] = set()  # blocks whose row sums were compared with the degrees
        self.cached_degrees: dict[Segment, Array] = {}
        self._to_pin: set[BlockSegment] = set()

    def pin(self, memory_limit: int | None) -> None:
        """Mark the first blocks to be kept in memory, as many as fit into the limit beside the buffers."""
        if memory_limit is None:
            return
        # A fixed prefix and no LRU cache: a scan that is longer than the
        # cache would evict each block before its turn.
        blocks = [block for layer in self.meta.layers for block in layer.blocks]
        spare = memory_limit - N_BUFFERS * max(block.n_bytes for block in blocks)
        if spare < 0:
            raise GraphError(
                f"{self.path}: memory_limit={memory_limit:,} is less than the buffers of the reader; "
                f"at least {memory_limit - spare:,} bytes are needed"
            )
        for block in blocks:
            spare -= block.n_bytes
            if spare < 0:
                return
            self._to_pin.add(block)

    def is_kept(self, block: BlockSegment) -> bool:
        """Whether a block stays in memory once it was read."""
        return block in self._to_pin

    def stream(self, segments: tuple[Any, ...]) -> Iterator[tuple[Any, Array]]:
        """Iterate over segments and their bytes: from memory where a segment is pinned, else read ahead."""
        pinned = {segment: self.pinned[segment] for segment in segments if segment in self.pinned}
        ahead = iter(
            ReadAhead(self.files, [segment for segment in segments if segment not in pinned], self.pool)
        )
        for segment in segments:
            raw = pinned.get(segment)
            if raw is None:
                _, raw = next(ahead)
            if segment in self._to_pin and segment not in self.pinned:
                self.pinned[segment] = raw.copy()
            yield segment, raw
        for _ in ahead:  # lets the reading thread end
            pass
        self.files.counters.passes += 1

    def check_rows(self, segment: Segment, *columns: Array) -> None:
        """Refuse row numbers out of range, once for each segment: kernels do not check them."""
        if segment in self.checked:
            return
        for rows in columns:
            if len(rows) and int(rows.view(np.uint32).max()) >= self.meta.n_nodes:
                raise self.damage_error(segment, "a node number is out of range")
        self.checked.add(segment)

    @cached_property
    def is_signed(self) -> bool:
        """Whether a layer has negative weights."""
        return any(layer.weights[0] < 0 for layer in self.meta.layers)

    def rows_of(self, segment: BlockSegment, raw: Array) -> Rows:
        """Interpret the bytes of a block; its structure and weights are checked once, since kernels do not.

        Pointers ascend from 0 to the number of entries, columns are nodes, weights are finite and, but in
        a signed layer, not negative. Checksums do not replace this check: a forged store has valid ones.
        """
        rows = Rows.of_bytes(segment, raw)
        if segment in self.checked:
            return rows
        if not _ascends(rows.indptr, segment.n_entries):
            raise self.damage_error(segment, "row pointers do not ascend")
        if rows.weights is not None and len(rows.weights):
            low = float(rows.weights.min())  # a NaN is the least and the largest
            high = float(rows.weights.max())
            least = -np.inf if self.is_signed else 0.0
            if not (least <= low <= high < np.inf and low > -np.inf):
                raise self.damage_error(segment, f"weights from {low:g} to {high:g}")
        self.check_rows(segment, rows.columns)
        return rows

    def degrees(self, layer: LayerMeta) -> Array:
        """Weighted degrees of a layer (float64, one per node), read once."""
        degrees = self.cached_degrees.get(layer.degrees)
        if degrees is None:
            degrees = self.files.read(layer.degrees).view(np.float64)
            degrees.flags.writeable = False
            self.cached_degrees[layer.degrees] = degrees
        return degrees

    def components(self, layer: LayerMeta) -> Array:
        """Read the component of every node (int32); not cached."""
        segment = layer.components
        if segment is None:
            return np.zeros(self.meta.n_nodes, np.int32)
        components = self.files.read(segment).view(np.int32)
        if int(components.view(np.uint32).max()) >= layer.n_components:
            raise self.damage_error(segment, f"a component that is none of {layer.n_components:,}")
        return components

    def damage_error(self, segment: Segment, what: str) -> GraphError:
        """Return an error that names file and offset."""
        return DamagedFileError(
            f"{self.path / segment.file} (byte {segment.offset:,}): damaged ({what}); convert the graph again"
        )

    @cached_property
    def order(self) -> Array | None:
        """Which row of the input each row is (int32, one per node); None where they are the same."""
        if self.meta.order is None:
            return None
        raw = self.files.read(self.meta.order)
        if len(raw) != 4 * self.meta.n_nodes:
            raise self.damage_error(self.meta.order, "no order of the nodes")
        order = raw.view(np.int32)
        if len(order) != self.meta.n_nodes or not np.array_equal(np.sort(order), np.arange(len(order))):
            raise self.damage_error(self.meta.order, "no order of the nodes")
        return order

    @cached_property
    def names(self) -> Array | None:
        """The id of every row; None where rows are the ids."""
        segment = self.meta.names
        if segment is None:
            return self.order
        raw = self.files.read(segment)
        if self.meta.ids == INTEGERS:
            if len(raw) != 8 * self.meta.n_nodes:
                raise self.damage_error(segment, f"{len(raw):,} bytes for {self.meta.n_nodes:,} ids")
            names = raw.view(np.int64)
        else:
            arrow = need("pyarrow", "names of nodes")
            parquet = need("pyarrow.parquet", "names of nodes")
            try:
                table = parquet.read_table(arrow.BufferReader(raw))
                names = as_names(table.column("name").to_pylist())
            except (arrow.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
                raise self.damage_error(segment, f"no table of names: {error}") from None
        if len(names) != self.meta.n_nodes:
            raise self.damage_error(segment, f"{len(names)} names for {self.meta.n_nodes} nodes")
        names.flags.writeable = False
        return names


@dataclass(frozen=True, eq=False)
class BlockStream:
    """The row blocks of a layer; every iteration reads them again.

    A block is valid until the next but one, or as long as it is referenced.
    """

    store: Store
    layer: LayerMeta
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float64))

    def __iter__(self) -> Iterator[RowBlock]:
        for segment, rows in self.rows(self.layer.blocks):
            self._compare_degrees(segment, rows)
            yield self._block(segment, rows)

    def _compare_degrees(self, segment: BlockSegment, rows: Rows) -> None:
        """Refuse degrees that are not the sums of the rows, in the first pass after degrees were read.

        A certificate holds for the pencil that was solved, so with other degrees it would hold for another
        graph. Parts of a graph that workers read are not compared: no worker has all degrees.
        """
        degrees = self.store.cached_degrees.get(self.layer.degrees)
        if degrees is None or segment in self.store.summed:
            return
        stored = degrees[segment.start : segment.start + segment.n_rows]
        sums = row_sums(rows.indptr, rows.weights, self.layer.weight_unit)
        if not np.allclose(sums, stored, rtol=SUM_ROUNDING, atol=0.0):
            raise self.store.damage_error(
                self.layer.degrees, f"degrees are not the sums of row {segment.start:,} on"
            )
        self.store.summed.add(segment)

    def between(self, start: int, stop: int) -> Iterator[RowBlock]:
        """Read the rows ``start .. stop`` only."""
        segments = [p for p in self.layer.blocks if p.start < stop and p.start + p.n_rows > start]
        for segment, rows in self.rows(segments):
            yield self._block(segment, rows).between(start, stop)

    def rows(self, blocks: Sequence[BlockSegment]) -> Iterator[tuple[BlockSegment, Rows]]:
        """Read some blocks, with the changes of their rows merged in."""
        changes = {segment.start: segment for segment in self.layer.delta}
        order: list[BlockSegment] = []
        for block in blocks:
            order += [block, changes[block.start]] if block.start in changes else [block]
        stream = self.store.stream(tuple(order))
        for segment, raw in stream:
            # the block, and the changes of its rows, which the stream delivers right after it
            rows = self.store.rows_of(segment, raw)
            if segment.start in changes:
                rows = rows.with_changes(self.store.rows_of(*next(stream)), self.layer.weight_unit)
            yield segment, rows

    def _block(self, segment: BlockSegment, rows: Rows) -> RowBlock:
        if segment not in self.store.longest:
            self.store.longest[segment] = int(np.diff(rows.indptr).max(initial=0))
        rows.indptr.flags.writeable = rows.columns.flags.writeable = False
        values = None
        if rows.weights is not None:
            values = np.multiply(rows.weights, self.layer.weight_unit, dtype=self.dtype)
            values.flags.writeable = self.dtype != np.float64  # as in memory: kernels are compiled for either
        return RowBlock(segment.start, rows.indptr, rows.columns, values)


def _ascends(indptr: Array, n_entries: int) -> bool:
    return bool(indptr[0] == 0 and indptr[-1] == n_entries and np.all(indptr[1:] >= indptr[:-1]))


# --- Graphs on disk


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path or a URL is a folder with a manifest in it."""
    return (store_path(path) / MANIFEST).is_file()


def open_store(
    path: str | os.PathLike[str] | RemotePath, *, memory_limit: int | str | None = None
) -> StoredGraph | MultilayerGraph:
    """Open a graph on disk; only its manifest is read.

    Parameters
    ----------
    path : path-like or URL
        A folder made by ``spectrograd convert`` or :func:`spectrograd.write_graph`.
    memory_limit : int or str, optional
        Bytes (or ``"2GB"``) that reading may use: for its buffers, and beyond for as many of the first blocks
        as fit, which then are read only once. None: the buffers alone.

    Returns
    -------
    StoredGraph or MultilayerGraph
        A :class:`~spectrograd.Graph` whose blocks are streamed; its data stay the same when the store is
        replaced meanwhile. ``in_memory()`` loads it.
    """
    store = _open_consistently(store_path(path))
    store.pin(as_bytes(memory_limit))
    graphs = tuple(StoredGraph(store, layer) for layer in range(len(store.meta.layers)))
    if not store.meta.multilayer:
        return graphs[0]
    return MultilayerGraph(graphs, tuple(layer.name for layer in store.meta.layers))


def _open_consistently(path: StorePath) -> Store:
    """Open all files of one version; where a writer has replaced it meanwhile, open the next one."""
    while True:
        # The manifest names the files: it must be the same before and after they are opened.
        before = _version(path)
        try:
            store = Store(path, load_meta(path))
        except (GraphError, FileNotFoundError):
            if _version(path) == before:
                raise
            continue
        if _version(path) == before:
            return store


def _version(path: StorePath) -> tuple[int, int] | None:
    """Identify the manifest, each of which is a file of its own; None behind a URL."""
    if isinstance(path, RemotePath):
        return None
    try:
        status = os.stat(path / MANIFEST)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class StoredGraph(Graph):
    """A graph on disk: its blocks are streamed; degrees, names and components are read from the store."""

    def __init__(self, store: Store, layer: int, dtype: DTypeLike = np.float64) -> None:
        meta = store.meta.layers[layer]
        self.__dict__.update(  # not by the dataclass, which would read the names now
            store=store,
            layer=layer,
            meta=meta,
            blocks=BlockStream(store, meta, np.dtype(dtype)),
            n_nodes=store.meta.n_nodes,
        )

    store: Store
    layer: int
    meta: LayerMeta

    @property
    def is_resident(self) -> bool:
        """False: see :meth:`in_memory`."""
        return False

    @property
    def n_entries(self) -> int:
        """Stored entries of the adjacency matrix: each edge counts twice."""
        return self.meta.n_entries

    @property
    def is_weighted(self) -> bool:
        """Whether any weight differs from one."""
        return self.meta.weighted

    @property
    def is_signed(self) -> bool:
        """Whether any weight is negative."""
        return self.meta.weights[0] < 0

    @cached_property
    def names(self) -> Array | None:
        """The id of every row; None where rows are the ids."""
        return self.store.names

    @cached_property
    def input_names(self) -> Array:
        """The id of every node in the order of the input, which is that of all results."""
        order = self.input_order
        if self.ids_are_rows:
            return np.arange(self.n_nodes)
        if order is None:
            return self.node_names
        names = np.empty_like(self.node_names)
        names[order] = self.node_names
        return names

    @property
    def ids_are_rows(self) -> bool:
        """Whether the ids of nodes are the row numbers of the input."""
        return self.store.meta.names is None

    @property
    def entries_before(self) -> tuple[Array, Array]:
        """First rows of the blocks, and the number of rows, with the entries before each."""
        rows = [0, *(block.start + block.n_rows for block in self.meta.blocks)]
        return np.array(rows), np.cumsum([0, *(block.n_entries for block in self.meta.blocks)])

    def rows_between(self, start: int, stop: int) -> list[RowBlock]:
        """Return the rows ``start .. stop`` as copied blocks; only blocks with some of them are read."""
        return [block.copy() for block in self.blocks.between(start, stop)]

    @property
    def place(self) -> StorePlace:
        """The location of this graph, for another process."""
        return StorePlace(
            self.store.path.absolute(), self.store.meta.fingerprint, self.layer, self.blocks.dtype
        )

    @cached_property
    def longest_row(self) -> int:
        """Largest number of neighbours of a node; one pass, unless all blocks were read before."""
        if not self.store.longest.keys() >= set(self.meta.blocks):
            for _ in self.blocks:
                pass
        return max((self.store.longest[segment] for segment in self.meta.blocks), default=0)

    @property
    def input_order(self) -> Array | None:
        """Which row of the input each row is (int32, one per node); None where they are the same."""
        return self.store.order

    @cached_property
    def degrees(self) -> Array:
        """Weighted degrees, float64, one per node."""
        return self.store.degrees(self.meta)

    @property
    def components(self) -> Array:
        """The component of every node (int32), numbered by their first nodes; read at every call."""
        return self.store.components(self.meta)

    @property
    def bytes_from_disk(self) -> int:
        """Bytes of a pass that are read from the disk: those of all blocks that do not stay in memory."""
        return sum(block.n_bytes for block in self.meta.blocks if not self.store.is_kept(block))

    @property
    def bytes_read(self) -> int:
        """Bytes read from the disk so far, by all layers of the store."""
        return self.store.files.counters.bytes_read

    @property
    def passes(self) -> int:
        """Number of passes over all blocks of a layer."""
        return self.store.files.counters.passes

    def edge_chunks(self, seed: int, epoch: int = 0) -> Iterator[Edges]:
        """Iterate over all edges, each once, in random chunks, in another order each epoch."""
        if not self.meta.edges:
            raise GraphError(
                f"{self.store.path}: has no edges in random order; convert the graph again with --edges"
            )
        # chunks in another order each epoch; within a chunk edges stay as
        # they were shuffled when it was written
        order = np.random.default_rng([seed, epoch]).permutation(len(self.meta.edges))
        shares = self._shares(len(order), np.random.default_rng([seed, epoch, 1]))
        for segment, raw in self.store.stream(tuple(self.meta.edges[at] for at in order)):
            edges = self._edges(segment, raw)
            yield edges if shares is None else next(shares).mix(edges)

    @property
    def sample(self) -> Edges | None:
        """Random edges, about ten ends per node; None where the graph has hardly more."""
        segment = self.meta.sample
        if segment is None:
            return None
        edges = self._edges(segment, self.store.files.read(segment))
        sampled_share = segment.n_edges / max(1, self.n_edges)
        shares = self._shares(max(1, round(1 / sampled_share)), np.random.default_rng(0))
        return edges if shares is None else next(shares).mix(edges)

    def _shares(self, n_parts: int, rng: np.random.Generator) -> Iterator[ChangedEdges] | None:
        """Deal the changed edges to random parts; None where there are none."""
        if not self.meta.delta:
            return None
        segments = [
            self.store.rows_of(segment, self.store.files.read(segment)) for segment in self.meta.delta
        ]
        starts = [segment.start for segment in self.meta.delta]
        return ChangedEdges.of_rows(starts, segments, self.meta.weight_unit).deal(n_parts, rng)

    def _edges(self, segment: EdgeSegment, raw: Array) -> Edges:
        source, target = raw[: 8 * segment.n_edges].view(np.int32).reshape(2, -1)
        self.store.check_rows(segment, source, target)
        weight = None
        if segment.weighted:
            weight = raw[8 * segment.n_edges :].view(np.float32) * self.meta.weight_unit
            if not np.isfinite(weight.sum(dtype=np.float64)) or (
                len(weight) and weight.min() < 0 and not self.is_signed
            ):
                raise self.store.damage_error(segment, "weights that are none")
        return Edges(source, target, weight)

    def astype(self, dtype: DTypeLike) -> StoredGraph:
        """Return the graph with weights that are converted to another type block by block."""
        return StoredGraph(self.store, self.layer, dtype)

    def shares_nodes(self, other: Graph) -> bool:
        """Whether the rows of both stand for the same nodes."""
        return (isinstance(other, StoredGraph) and other.store is self.store) or super().shares_nodes(other)

    def in_memory(self) -> Graph:
        """Load the graph into memory, its nodes in the order of the input."""
        starts = np.zeros(self.n_nodes + 1, np.int64)
        columns = np.empty(self.n_entries, np.int32)
        weights = np.ones(self.n_entries, self.blocks.dtype) if self.is_weighted else None
        for block in self.blocks:
            first = starts[block.start]
            starts[block.start : block.stop + 1] = first + block.indptr
            columns[first : first + len(block.indices)] = block.indices
            if weights is not None and block.weights is not None:
                weights[first : first + len(block.indices)] = block.weights
        graph = Graph._from_arrays(CleanArrays(starts, columns, weights), None)
        order = self.store.order
        names = self.names
        if order is not None:
            # rows in the order of the input: undo the reordering of the store
            rows = np.argsort(order)
            matrix = graph.matrix[rows][:, rows].sorted_indices()
            graph = Graph._from_clean_csr(matrix, None)
            names = None if self.store.meta.names is None or names is None else names[rows]
        return Graph(graph.blocks, graph.n_nodes, names)

    blocks: BlockStream

    @property
    def matrix(self) -> sp.csr_array:
        """Not available on disk: raises an error."""
        self._refuse()

    @property
    def pattern(self) -> tuple[Array, Array]:
        """Not available on disk: raises an error."""
        self._refuse()

    @property
    def search(self) -> Search:
        """Not available on disk: raises an error."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        size = self.n_entries * (12 if self.is_weighted else 4) + 8 * self.n_nodes
        raise GraphError(
            f"this graph is on disk ({self.store.path}): this step needs it in memory; "
            f"load it with read_graph(path) or in_memory() (about {max(1, size / 1e6):,.0f} MB)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePlace.open, (self.place,)


class StorePlace(NamedTuple):
    """The location of a graph on disk: sent to another process instead of the graph."""

    path: StorePath
    fingerprint: str
    layer: int
    dtype: np.dtype

    def open(self, digest: str = "") -> StoredGraph:
        """Open the graph; an error where it was replaced meanwhile.

        If a change of this ``digest`` was applied since, and no other, the graph with this change.
        """
        meta = load_meta(self.path)
        followed = bool(digest) and meta.last_change == (self.fingerprint, digest)
        if meta.fingerprint != self.fingerprint and not followed:
            raise GraphError(f"{self.path}: was replaced meanwhile; open it again")
        if not 0 <= self.layer < len(meta.layers):
            raise GraphError(f"{self.path}: has no layer {self.layer}")
        return StoredGraph(Store(self.path, meta), self.layer, self.dtype)
