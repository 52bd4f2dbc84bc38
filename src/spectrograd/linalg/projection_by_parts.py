"""Rayleigh-Ritz where memory is short: products are made of some columns at a time.

:func:`spectrograd.linalg.subspace.rayleigh_ritz` holds the basis Q, its product and a rotated copy. Here
every part ``Q_p`` of the columns has a pass of its own,

    W_p = B^-1 A Q_p - Q H_p    with    H_p = Q' A Q_p,

of which ``H_p`` and the Gram matrix of ``W_p`` are kept. For a Ritz vector ``Q y`` with value theta

    B^-1 A Q y - theta Q y = sum_p W_p y_p + Q (H y - theta y),

so its residual is at most ``sum_p |W_p y_p| + |H y - theta y|``. That is the residual itself where the
columns of Q are Ritz vectors already, for y has one part then. Elsewhere it is larger: by about the root of
the number of parts, for parts of a random basis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.linalg as la

from spectrograd.engines.base import Engine, MultiVector
from spectrograd.linalg.subspace import Coordinates
from spectrograd.typing import Array


@dataclass(frozen=True, eq=False)
class ProjectionByParts:
    """``H = Q'AQ`` (m x m), and of every part of the columns its span and the Gram matrix of ``W_p``."""

    H: Array
    spans: tuple[slice, ...]
    grams: tuple[Array, ...]

    def ritz(self, n_exact: int = 0) -> tuple[Array, Array]:
        """Ritz values (m,), and the rotation (m x m); the first ``n_exact`` columns are null vectors."""
        H = (self.H + self.H.T) / 2
        values, Y = la.eigh(H[n_exact:, n_exact:])
        return np.append(np.zeros(n_exact), values), la.block_diag(np.eye(n_exact), Y)

    def residuals(self, values: Array, Y: Array) -> Array:
        """A bound on the residual of each Ritz vector, in B of ``B^-1 A q - theta q``."""
        bounds = np.linalg.norm(self.H @ Y - Y * values, axis=0)
        for span, M in zip(self.spans, self.grams, strict=True):
            part = Y[span]
            bounds += np.sqrt(np.maximum((part * (M @ part)).sum(axis=0), 0.0))
        return np.asarray(bounds)


def project_by_parts(
    engine: Engine, walk: Coordinates, metric: MultiVector, blocks: Sequence[MultiVector], n_columns: int
) -> ProjectionByParts:
    """Project on the orthonormal columns of all blocks, with ``2 n_columns`` more in memory at any time.

    Parameters
    ----------
    engine, walk
        The operator in random-walk form, in which products need no copy.
    metric
        Of the coordinates in which the blocks are orthonormal; None for ones.
    blocks
        Multivectors of N rows, m columns together.
    n_columns
        Columns that are multiplied at once.
    """
    ends = np.cumsum([block.shape[1] for block in blocks])
    H = np.empty((ends[-1], ends[-1]))
    spans = []
    grams = []
    for block, end in zip(blocks, ends.tolist(), strict=True):
        start = end - block.shape[1]
        for chosen in parts_of(block.shape[1], n_columns):
            span = slice(start + chosen.start, start + chosen.stop)
            # 1. B^-1 A Q_p, and H_p
            rest = multiply_columns(engine, walk, block, chosen)
            H[:, span] = np.vstack([engine.gram(other, rest, metric) for other in blocks])
            # 2. W_p = B^-1 A Q_p - Q H_p, in its place
            same = np.eye(rest.shape[1])
            for other, C in zip(blocks, np.split(H[:, span], ends[:-1]), strict=True):
                rest = engine.combine_inplace(rest, same, other, -C)
            spans.append(span)
            grams.append(engine.gram(rest, rest, metric, symmetric=True))
    return ProjectionByParts(H, tuple(spans), tuple(grams))


def parts_of(width: int, n_columns: int) -> Iterator[slice]:
    """Cut columns into parts of nearly equal size, ``n_columns`` at most.

    Examples
    --------
    >>> [(part.start, part.stop) for part in parts_of(10, 4)]
    [(0, 3), (3, 6), (6, 10)]
    """
    n_parts = -(-width // n_columns)
    bounds = [width * part // n_parts for part in range(n_parts + 1)]
    return (slice(start, stop) for start, stop in pairwise(bounds))


def multiply_columns(engine: Engine, walk: Coordinates, X: MultiVector, chosen: slice) -> MultiVector:
    """``B^-1 A`` times some columns of X, in the coordinates of X: one pass."""
    part = walk.transform(engine.columns(X, chosen))
    product = engine.recurrence(walk.operator, part, part, (1.0, 0.0, 0.0))
    del part  # the next line needs its memory
    return walk.inverse_transform(product)


def replace_columns(engine: Engine, X: MultiVector, chosen: slice, columns: MultiVector) -> MultiVector:
    """Put other columns in the place of the chosen ones; may mutate X."""
    same = np.eye(X.shape[1])
    kept = same.copy()
    kept[chosen] = 0
    return engine.combine_inplace(X, kept, columns, same[chosen])
