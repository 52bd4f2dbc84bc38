"""Row blocks of a graph on a device: resident while they fit, else streamed slice by slice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from spectrograd.graph import Graph
from spectrograd.graph.graph import RowBlock
from spectrograd.typing import Array

Tensor = Any  # of torch, which is not imported for a name
MAX_SLICE_ENTRIES = 1 << 24  # entries sent at a time: 64 MB of columns, 2 ms of a bus, far below 2^31


class BlockSlice(NamedTuple):
    """Rows start .. stop of W, or a part of them: slices of a long row add up."""

    start: int
    stop: int
    matrix: Tensor


class HostSlice(NamedTuple):
    """A slice on the host: row pointers from zero, int32 as columns are; no weights where all are one."""

    start: int
    indptr: Array
    indices: Array
    weights: Array | None


def host_slices(block: RowBlock, most: int = MAX_SLICE_ENTRIES) -> Iterator[HostSlice]:
    """A row block in slices of at most ``most`` entries; a row that is longer is split.

    Examples
    --------
    >>> block = RowBlock(5, np.array([0, 1, 6]), np.arange(6, dtype=np.int32), None)
    >>> [(block_slice.start, block_slice.indptr.tolist()) for block_slice in host_slices(block, 3)]
    [(5, [0, 1, 3]), (6, [0, 3])]
    """
    indptr = block.indptr
    for low in range(0, max(1, int(indptr[-1])), most):
        high = min(low + most, int(indptr[-1]))
        # rows that have entries in [low, high): the first and the last may be cut
        first = int(np.searchsorted(indptr, low, side="right")) - 1
        last = max(int(np.searchsorted(indptr, high, side="left")), first + 1)
        if low == 0:
            first = 0
        # row pointers of the slice, from zero
        own = np.clip(indptr[first : last + 1], low, high) - low
        weights = None if block.weights is None else block.weights[low:high]
        yield HostSlice(block.start + first, own.astype(np.int32), block.indices[low:high], weights)


@dataclass
class DeviceBlocks:
    """Row blocks as sparse tensors of a device.

    Graphs whose blocks are in memory are kept on the device, the latest ones, up to ``most_bytes`` in all;
    others, and those that are a stream, are sent anew in every pass, one slice at a time.
    """

    torch: ModuleType
    device: Any
    most_bytes: float
    block_slice: int = MAX_SLICE_ENTRIES
    _kept: dict[int, tuple[Graph, list[BlockSlice], int]] = field(default_factory=dict, repr=False)
    _ones: dict[Any, Tensor] = field(default_factory=dict, repr=False)

    def slices(self, graph: Graph, dtype: object) -> Iterator[BlockSlice]:
        """Iterate over the slices of W, with weights in a type of torch."""
        # 1. a stream, or too large to stay: sent anew in every pass
        if not graph.is_resident or _bytes(graph) > self.most_bytes:
            return (
                self._send(block_slice, graph.n_nodes, dtype)
                for b in graph.blocks
                for block_slice in self._cut(b)
            )
        if id(graph) not in self._kept:
            # 2. the first pass of a graph that may stay: weights as they are, cast when they are used
            self._reserve(_bytes(graph))
            sent = [self._send(p, graph.n_nodes, None) for b in graph.blocks for p in self._cut(b)]
            self._kept[id(graph)] = graph, sent, _bytes(graph)  # with the graph: its id stays its own
        return (self._with_type(block_slice, dtype) for block_slice in self._kept[id(graph)][1])

    def _cut(self, block: RowBlock) -> Iterator[HostSlice]:
        return host_slices(block, self.block_slice)

    def _reserve(self, size: int) -> None:
        """Mutates: the oldest graphs go."""
        while self._kept and sum(kept for *_, kept in self._kept.values()) + size > self.most_bytes:
            del self._kept[next(iter(self._kept))]

    def _send(self, block_slice: HostSlice, n_nodes: int, dtype: object) -> BlockSlice:
        """On the device; without a type, weights as they are and none where all are one."""
        indptr = self.move(block_slice.indptr)
        indices = self.move(block_slice.indices)
        values = None if block_slice.weights is None else self.move(block_slice.weights)
        stop = block_slice.start + len(block_slice.indptr) - 1
        parts = BlockSlice(block_slice.start, stop, (indptr, indices, values, n_nodes))
        return parts if dtype is None else self._with_type(parts, dtype)

    def _with_type(self, block_slice: BlockSlice, dtype: object) -> BlockSlice:
        indptr, indices, values, n_nodes = block_slice.matrix
        if values is None:
            values = self._unit(len(indices), dtype)
        shape = (block_slice.stop - block_slice.start, n_nodes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # said once per process
            matrix = self.torch.sparse_csr_tensor(
                indptr, indices, values.to(dtype), size=shape, check_invariants=False
            )
        return BlockSlice(block_slice.start, block_slice.stop, matrix)

    def _unit(self, count: int, dtype: object) -> Tensor:
        """Ones, shared by all slices."""
        ones = self._ones.get(dtype)
        if ones is None or len(ones) < count:
            ones = self._ones[dtype] = self.torch.ones(count, dtype=dtype, device=self.device)
        return ones[:count]

    def move(self, array: Array) -> Tensor:
        """A host array on the device; through pinned memory, so that copies overlap with products.

        On the host itself it is not copied, and never written to.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            tensor = self.torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)


def _bytes(graph: Graph) -> int:
    """Bytes of the blocks of a resident graph on a device."""
    return sum(
        4 * len(b.indptr) + b.indices.nbytes + (0 if b.weights is None else b.weights.nbytes)
        for b in graph.blocks
    )
