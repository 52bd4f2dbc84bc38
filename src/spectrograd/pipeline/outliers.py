"""How far a new row lies from the training data, on a scale on which training data is uniform.

The statistic of a new row is compared with the same statistic of every training row; the score is the share
of training rows that lie less far out. A row drawn like the training data has a score that is uniform on
[0, 1], up to ties and to the little that training rows have shaped their own surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.labels.unit_rows import row_lengths

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Remoteness:
    """The statistic of the training rows, ascending."""

    training: Array

    @classmethod
    def of(cls, statistic: Array) -> Remoteness:
        """From the statistic of every training row that takes part."""
        return cls(np.sort(np.asarray(statistic, dtype=np.float64)))

    def score(self, statistic: Array) -> Array:
        """Share of training rows that lie less far out; 1 beyond all of them."""
        below = np.searchsorted(self.training, statistic, side="left")
        return np.where(np.isinf(statistic), 1.0, below / max(1, len(self.training)))


def disagreement(vectors: Array, rows: Sequence[sp.csr_array], weights: Sequence[float]) -> Array:
    """How little the neighbours of a row agree where it belongs: 0 all in one direction, 1 in all of them.

    ``1 - |sum_j w_j r_j| / sum_j w_j`` with r the rows of the embedding at unit length; of several layers the
    weighted mean over those that know the row. Infinite where none does.

    Parameters
    ----------
    vectors : array of shape (n_nodes, k)
        The training rows.
    rows : per layer a sparse matrix of shape (n, n_nodes)
    weights
        Of the layers.
    """
    lengths = row_lengths(vectors)
    directions = vectors / np.where(lengths > 0, lengths, 1)[:, None]
    total, mass = np.zeros(rows[0].shape[0]), np.zeros(rows[0].shape[0])
    for matrix, weight in zip(rows, weights, strict=True):
        degrees = np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()
        known = degrees > 0
        share = row_lengths(matrix @ directions) / np.where(known, degrees, 1)
        total += np.where(known, weight * (1 - share), 0.0)
        mass += np.where(known, weight, 0.0)
    return np.asarray(np.where(mass > 0, total / np.where(mass > 0, mass, 1), np.inf))
