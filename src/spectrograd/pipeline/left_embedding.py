"""An embedding that is left with the workers that found it, until somebody asks for its rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.embedding import Embedding, arrange
from spectrograd.engines.protocol import Engine, Tall
from spectrograd.operators.protocol import Operator

Array = NDArray[Any]


class LeftEmbedding(Embedding):
    """Rows on the workers of an engine, ``tall`` (N x K) in the order of the graph's rows.

    ``order`` says which row of the result each of them is; None where that is the same.
    """

    engine: Engine
    tall: Tall
    order: Array | None

    def __init__(
        self,
        engine: Engine,
        tall: Tall,
        eigenvalues: Array,
        names: Array | None = None,
        order: Array | None = None,
    ) -> None:
        self.__dict__.update(  # past the dataclass: it would want the vectors now
            engine=engine, tall=tall, eigenvalues=eigenvalues, names=names, order=order
        )

    @cached_property
    def vectors(self) -> Array:
        """N x K, gathered when first asked for."""
        rows = self.engine.rows(self.tall)
        if self.order is None:
            return rows
        found = np.empty_like(rows)
        found[self.order] = rows
        return found

    @property
    def n_components(self) -> int:
        """Number of columns."""
        return int(self.tall.shape[1])

    def without_first(self) -> LeftEmbedding:
        """Drop the trivial vector."""
        rest = self.engine.columns(self.tall, slice(1, None))
        return LeftEmbedding(self.engine, rest, self.eigenvalues[1:], self.names, self.order)

    def of_nodes(self, order: Array, masked: Array, names: Array | None) -> LeftEmbedding:
        """In float32, as rows of the result; those that are masked are zero."""
        tall = self.engine.cast(self.tall, np.float32)
        if len(masked):
            taking_part = np.ones((tall.shape[0], 1), np.float32)
            taking_part[masked] = 0
            tall = self.engine.scaled(tall, self.engine.put(taking_part))
        same = np.array_equal(order, np.arange(len(order)))
        return LeftEmbedding(self.engine, tall, self.eigenvalues, names, None if same else order)


def embedding_of(engine: Engine, operator: Operator, Q: Tall, values: Array) -> Embedding:
    """The columns of Q in order and with their signs; on the host, unless the edges are not there either."""
    if not (engine.leaves_rows and operator.is_streamed):
        return arrange(engine.rows(Q), values, operator.names)
    order = np.argsort(values, kind="stable")
    signs = np.where(engine.statistics(Q).peaks < 0, -1.0, 1.0)
    tall = engine.combine(Q, np.diag(signs)[:, order])
    return LeftEmbedding(engine, tall, values[order], operator.names)
