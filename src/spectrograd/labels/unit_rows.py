"""Rows of unit length, or nearly so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TINY = 1e-200  # squares of lengths that are not trusted


def unit_rows(rows: Array, softness: float = 0.0) -> Array:
    """Rows (n, k) of unit length; see :func:`~spectrograd.labels.assign` for ``softness``."""
    lengths = row_lengths(rows)
    return _divided(rows, lengths, float(np.median(lengths)) * softness**0.5 if softness else 0.0)


def soft_unit(rows: Array, length: float) -> Array:
    """The same where the length that others are compared with is known: rows much shorter stay short."""
    return _divided(rows, row_lengths(rows), length)


def _divided(rows: Array, lengths: Array, length: float) -> Array:
    lengths = np.hypot(lengths, length) if length else lengths
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths[:, None], dtype=rows.dtype)


def row_lengths(rows: Array) -> Array:
    """Lengths of rows (n, k), whatever their order of magnitude."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    lengths = np.sqrt(squares)
    odd = np.flatnonzero(~((squares > TINY) & (squares < 1 / TINY)))
    if len(odd):  # the squares have left the range of numbers, or are zero
        largest = np.abs(rows[odd]).max(axis=1).astype(np.float64)
        scaled = rows[odd] / np.where(largest == 0, 1, largest)[:, None]
        lengths[odd] = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return np.asarray(lengths)
