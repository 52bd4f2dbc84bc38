"""An engine whose multivectors let nobody look inside, and row blocks that forget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.engines.base import Cost, Engine, Work
from spectrograd.engines.numpy_engine import NumpyEngine
from spectrograd.graph import Graph
from spectrograd.graph.graph import RowBlock

MAX_SAMPLED_ROWS = 20_000  # that may come to the host, but for the output


class RefusingMultiVector:
    """Has a shape and a dtype; row blocks are the engine's secret."""

    def __init__(self, blocks):
        self._blocks = blocks
        self.shape = (sum(len(block) for block in blocks), blocks[0].shape[1])
        self.dtype = blocks[0].dtype

    def __deepcopy__(self, memo):
        return self

    def _refuse(self, *_, **__):
        raise AssertionError("a solver looked into a multivector")

    __array__ = __array_ufunc__ = __array_function__ = _refuse
    __getitem__ = __setitem__ = __len__ = __iter__ = __bool__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __lt__ = __gt__ = _refuse
    __iadd__ = __isub__ = __imul__ = __itruediv__ = _refuse


class RefusingEngine(Engine):
    """Seven methods, as any engine with its own multivectors; counts how often all rows came to the host."""

    def __init__(self, n_blocks=3, per_round=0.0):
        self.work, self.cost = Work(), Cost(per_round)
        self.gathers, self.n_blocks = 0, n_blocks
        self._plain = NumpyEngine()

    def from_numpy(self, rows):
        return RefusingMultiVector([block.copy() for block in np.array_split(rows, self.n_blocks)])

    def to_numpy(self, X, indices=None):
        if indices is None:
            self.gathers += 1
            return _open(X).copy()
        assert len(indices) <= MAX_SAMPLED_ROWS, "that many rows are no sample"
        return _open(X)[indices]

    def map_blocks(self, function, *multivectors):
        return RefusingMultiVector(self.gather_blocks(function, *multivectors))

    def gather_blocks(self, function, *multivectors):
        starts = np.cumsum([0, *(len(block) for block in multivectors[0]._blocks)])
        parts = zip(*(multivector._blocks for multivector in multivectors), strict=True)
        return [function(int(start), *blocks) for start, blocks in zip(starts, parts, strict=False)]

    def spmm(self, operator, X):
        vectors = {name: _open(getattr(operator, name)) for name in ("diagonal", "scale", "metric")}
        return self.from_numpy(self._plain.spmm(replace(operator, **vectors), _open(X)))

    def gram(self, X, Y, metric=None, *, symmetric=False):
        return self._plain.gram(_open(X), _open(Y), _open(metric))

    def combine(self, X, C, Y=None, E=None):
        return self.from_numpy(self._plain.combine(_open(X), C, _open(Y), E))


def _open(multivector):
    return None if multivector is None else np.concatenate(multivector._blocks)


class ForgetfulBlocks:
    """Row blocks that are made anew in each sweep; one is overwritten when the next but one is read."""

    def __init__(self, blocks):
        self._blocks = blocks
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        given = []
        for block in self._blocks:
            weights = None if block.weights is None else block.weights.copy()
            given.append(RowBlock(block.start, block.indptr.copy(), block.indices.copy(), weights))
            if len(given) > 2:
                _forget(given.pop(0))
            yield given[-1]
        for block in given:
            _forget(block)


def _forget(block):
    block.indices[:] = 0
    block.indptr[:] = 0
    if block.weights is not None:
        block.weights[:] = np.nan


def cut(graph, n_blocks, *, streamed=False):
    """The same graph in row blocks, in memory or as a stream."""
    matrix, blocks = graph.matrix, []
    for rows in np.array_split(np.arange(graph.n_nodes), n_blocks):
        part = matrix[rows[0] : rows[-1] + 1]
        weights = part.data.copy() if graph.is_weighted else None
        blocks.append(
            RowBlock(int(rows[0]), part.indptr.astype(np.int64), part.indices.astype(np.int32), weights)
        )
    return Graph(ForgetfulBlocks(blocks) if streamed else tuple(blocks), graph.n_nodes, graph.names)
