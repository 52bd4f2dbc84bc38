"""Graphs on disk: as those in memory, but blocks are streamed and the rest is read when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from spectrograd.graph import Graph, GraphError, MultilayerGraph, RowBlock
from spectrograd.graph.cleaning import CleanArrays
from spectrograd.graph.traversal import Search
from spectrograd.memory import as_bytes
from spectrograd.store.changed_edges import ChangedEdges, Edges
from spectrograd.store.folder import MANIFEST
from spectrograd.store.manifest import EdgePiece, LayerMeta, load_meta
from spectrograd.store.opened import BlockStream, Store
from spectrograd.store.urls import RemotePath, StorePath, store_path

Array = NDArray[Any]


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path or a URL is a folder with a manifest in it."""
    return (store_path(path) / MANIFEST).is_file()


def open_store(
    path: str | os.PathLike[str] | RemotePath, *, memory_limit: int | str | None = None
) -> StoredGraph | MultilayerGraph:
    """Open a graph on disk; nothing but its description is read yet.

    Parameters
    ----------
    path : path-like or URL
        A folder made by ``spectrograd convert`` or :func:`spectrograd.write_graph`.
    memory_limit : int or str, optional
        Bytes (or ``"2GB"``) that reading may hold: its buffers, and with the rest as many of the first blocks
        as fit, which then are read once only. None: the buffers alone.

    Returns
    -------
    StoredGraph or MultilayerGraph
        A :class:`~spectrograd.Graph` whose blocks are streamed; it goes on with the same data when the store
        is replaced meanwhile. ``in_memory()`` loads it.
    """
    store = _opened(store_path(path))
    store.pin(as_bytes(memory_limit))
    graphs = tuple(StoredGraph(store, layer) for layer in range(len(store.meta.layers)))
    if not store.meta.multilayer:
        return graphs[0]
    return MultilayerGraph(graphs, tuple(layer.name for layer in store.meta.layers))


def _opened(path: StorePath) -> Store:
    """All files of one version: where a writer has put the next one there meanwhile, that one is opened."""
    while True:
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
    """Which manifest there is: each is a file of its own. Behind a URL nobody can tell."""
    if isinstance(path, RemotePath):
        return None
    try:
        found = os.stat(path / MANIFEST)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


class StoredGraph(Graph):
    """A graph on disk. Its blocks are streamed; degrees, names, components come from the store."""

    def __init__(self, store: Store, layer: int, dtype: DTypeLike = np.float64) -> None:
        meta = store.meta.layers[layer]
        self.__dict__.update(  # past the dataclass: it would want the names now
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
        """Never: see :meth:`in_memory`."""
        return False

    @property
    def n_entries(self) -> int:
        """Stored entries of the adjacency matrix: each edge counts twice."""
        return self.meta.n_entries

    @property
    def is_weighted(self) -> bool:
        """Whether any weight differs from one."""
        return self.meta.weighted

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
        """Whether nodes are known by the row numbers of the input."""
        return self.store.meta.names is None

    @property
    def entries_before(self) -> tuple[Array, Array]:
        """First rows of the blocks, and the number of rows, with the entries before each."""
        rows = [0, *(block.start + block.n_rows for block in self.meta.blocks)]
        return np.array(rows), np.cumsum([0, *(block.n_entries for block in self.meta.blocks)])

    def rows_between(self, start: int, stop: int) -> list[RowBlock]:
        """Rows start .. stop, copied; only blocks with some of them are read."""
        return [block.copy() for block in self.blocks.between(start, stop)]

    @property
    def place(self) -> StorePlace:
        """Where this graph is, for another process."""
        return StorePlace(
            self.store.path.absolute(), self.store.meta.fingerprint, self.layer, self.blocks.dtype
        )

    @cached_property
    def longest_row(self) -> int:
        """Most neighbours of a node: seen on the way by whoever read all blocks before."""
        if not self.store.longest.keys() >= set(self.meta.blocks):
            for _ in self.blocks:
                pass
        return max((self.store.longest[piece] for piece in self.meta.blocks), default=0)

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
        """The component of every node (int32), numbered as their first nodes come; read when asked for."""
        return self.store.components(self.meta)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the disk so far, by all layers of the store."""
        return self.store.files.counters.bytes_read

    @property
    def sweeps(self) -> int:
        """How many times all blocks of a layer were read."""
        return self.store.files.counters.sweeps

    def edge_chunks(self, seed: int, epoch: int = 0) -> Iterator[Edges]:
        """Every edge once, in chunks that were drawn at random; each epoch takes them in another order."""
        if not self.meta.edges:
            raise GraphError(
                f"{self.store.path}: has no edges in random order; convert the graph again with --edges"
            )
        order = np.random.default_rng([seed, epoch]).permutation(len(self.meta.edges))
        shares = self._shares(len(order), np.random.default_rng([seed, epoch, 1]))
        for piece, raw in self.store.sweep(tuple(self.meta.edges[at] for at in order)):
            yield self._edges(piece, raw) if shares is None else next(shares).mixed(self._edges(piece, raw))

    @property
    def sample(self) -> Edges | None:
        """Random edges, about ten ends per node; None where the graph has hardly more."""
        piece = self.meta.sample
        if piece is None:
            return None
        found, part = self._edges(piece, self.store.files.read(piece)), piece.n_edges / max(1, self.n_edges)
        shares = self._shares(max(1, round(1 / part)), np.random.default_rng(0))
        return found if shares is None else next(shares).mixed(found)

    def _shares(self, n_parts: int, rng: np.random.Generator) -> Iterator[ChangedEdges] | None:
        """The changed edges, dealt out at random to so many parts; None where there are none."""
        if not self.meta.delta:
            return None
        pieces = [self.store.rows_of(piece, self.store.files.read(piece)) for piece in self.meta.delta]
        starts = [piece.start for piece in self.meta.delta]
        return ChangedEdges.of_rows(starts, pieces, self.meta.weight_unit).dealt(n_parts, rng)

    def _edges(self, piece: EdgePiece, raw: Array) -> Edges:
        source, target = raw[: 8 * piece.n_edges].view(np.int32).reshape(2, -1)
        self.store.check_rows(piece, source, target)
        weight = None
        if piece.weighted:
            weight = raw[8 * piece.n_edges :].view(np.float32) * self.meta.weight_unit
            if not np.isfinite(weight.sum(dtype=np.float64)) or (len(weight) and weight.min() < 0):
                raise self.store.damaged(piece, "weights that are none")
        return Edges(source, target, weight)

    def astype(self, dtype: DTypeLike) -> StoredGraph:
        """The same graph, its weights turned into another type block by block."""
        return StoredGraph(self.store, self.layer, dtype)

    def shares_nodes(self, other: Graph) -> bool:
        """Whether the rows of both stand for the same nodes."""
        return (isinstance(other, StoredGraph) and other.store is self.store) or super().shares_nodes(other)

    def in_memory(self) -> Graph:
        """The graph in memory, its nodes in the order of the input."""
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
        order, names = self.store.order, self.names
        if order is not None:
            place = np.argsort(order)
            matrix = graph.matrix[place][:, place].sorted_indices()
            graph = Graph._from_clean_csr(matrix, None)
            names = None if self.store.meta.names is None or names is None else names[place]
        return Graph(graph.blocks, graph.n_nodes, names)

    blocks: BlockStream

    @property
    def matrix(self) -> sp.csr_array:
        """Not there."""
        self._refuse()

    @property
    def pattern(self) -> tuple[Array, Array]:
        """Not there."""
        self._refuse()

    @property
    def search(self) -> Search:
        """Not there."""
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
    """A graph on disk by name: what is sent to another process instead of its numbers."""

    path: StorePath
    fingerprint: str
    layer: int
    dtype: np.dtype[Any]

    def open(self, digest: str = "") -> StoredGraph:
        """The graph; an error where another one has taken its place.

        Where a change of this ``digest`` is all that came after it, the graph with this change.
        """
        meta = load_meta(self.path)
        followed = bool(digest) and meta.last_change == (self.fingerprint, digest)
        if meta.fingerprint != self.fingerprint and not followed:
            raise GraphError(f"{self.path}: was replaced meanwhile; open it again")
        if not 0 <= self.layer < len(meta.layers):
            raise GraphError(f"{self.path}: has no layer {self.layer}")
        return StoredGraph(Store(self.path, meta), self.layer, self.dtype)
