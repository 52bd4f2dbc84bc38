"""What a model remembers of its last fit, so that clusters keep their names and columns their directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph.names import NodeRows
from spectrograd.labels.alignment import LabelChanges, align_labels, rotation_onto

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Past:
    """The last fit.

    Attributes
    ----------
    names : array of shape (n_nodes,)
    embedding : array of shape (n_nodes, k)
    labels : array of shape (n_nodes,) or None
    named
        Whether names tell who a node is; rows of arrays are told by their number, as long as it stays.
    grown
        Whether new nodes can only have come after the old ones.
    """

    names: Array
    embedding: Array
    labels: Array | None
    named: bool
    grown: bool = False

    @classmethod
    def of(cls, model: Any, *, grown: bool = False) -> Past | None:
        """What a fitted model leaves behind; None before its first fit."""
        if not hasattr(model, "_knowledge"):
            return None
        labels = getattr(model, "labels_", None)
        return cls(model.names_, model.embedding_, labels, model._knowledge.makers is None, grown)

    def common(self, names: Array, named: bool) -> tuple[Array, Array]:
        """Row numbers then and now of the nodes that both fits know."""
        if self.grown:
            return np.arange(len(self.names)), np.arange(len(self.names))
        if self.named and named:
            then = NodeRows(self.names).rows(names)
            return then[then >= 0], np.flatnonzero(then >= 0)
        if self.named != named or len(names) != len(self.names):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.arange(len(names)), np.arange(len(names))

    def renamed(self, labels: Array, names: Array, named: bool) -> tuple[Array, LabelChanges | None]:
        """New labels under the old names, and what became of the clusters."""
        then, now = self.common(names, named)
        if self.labels is None or not len(then):
            return labels, None
        return align_labels(self.labels[then], labels[now], labels)

    def rotation(self, embedding: Array, names: Array, named: bool) -> Array | None:
        """What turns a new embedding onto the old one; None where they do not compare."""
        then, now = self.common(names, named)
        if embedding.shape[1] != self.embedding.shape[1] or len(then) < embedding.shape[1]:
            return None
        return rotation_onto(self.embedding[then], embedding[now])
