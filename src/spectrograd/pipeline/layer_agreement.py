"""Which layers agree: distances and overlaps between their subspaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Squared distance, per dimension, below which two layers say the same thing.
SAME = 1e-6


def layer_distances(embeddings: Sequence[Array]) -> Array:
    """Pairwise squared projection distances ``(K_s + K_t) / 2 - |U^s' U^t|^2`` (Eq. 20)."""
    overlap = _overlaps(embeddings)
    widths = np.array([U.shape[1] for U in embeddings], dtype=float)
    distances = (widths[:, None] + widths) / 2 - overlap
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.maximum(distances, 0.0))


def copies(embeddings: Sequence[Array]) -> Array:
    """Which layers have the same subspace: a symmetric table of booleans, true on its diagonal."""
    widths = np.array([U.shape[1] for U in embeddings])
    near = layer_distances(embeddings) <= SAME * np.maximum(widths, 1)
    return np.asarray(near & np.equal.outer(widths, widths))


def _overlaps(embeddings: Sequence[Array]) -> Array:
    return np.array([[float(np.sum((U.T @ V) ** 2)) for V in embeddings] for U in embeddings])


def pairwise_agreement(embeddings: Sequence[Array]) -> Array:
    """Overlap of every two subspaces, from 0 (chance) to 1 (the same).

    The trivial vectors of any two layers nearly coincide; they say nothing and are taken out.
    """
    inner = [_without_trivial(U) for U in embeddings]
    overlap = _overlaps(inner)
    widths = np.array([max(1, U.shape[1]) for U in inner], dtype=float)
    room = np.minimum.outer(widths, widths)
    chance = np.outer(widths, widths) / len(embeddings[0])
    return np.asarray(np.clip((overlap - chance) / np.maximum(room - chance, 1e-12), 0.0, 1.0))


def node_agreement(layer: Array, merged: Array) -> Array:
    """Per node, the share of its place in the merged embedding that the layer's subspace holds too.

    With the projection ``P`` onto the layer's subspace and the rows ``u_i`` of the merged one (both without
    their trivial vectors), ``<(P U)_i, u_i> / |u_i|^2``, cut to [0, 1]. Weighted with ``|u_i|^2`` the
    scores add up to the overlap of the two subspaces.
    """
    P, U = (_without_trivial(np.linalg.qr(basis)[0]) for basis in (layer, merged))
    shared = np.einsum("ij,ij->i", P @ (P.T @ U), U)
    lengths = np.einsum("ij,ij->i", U, U)
    share = np.divide(shared, lengths, out=np.zeros(len(U)), where=lengths > 0)
    return np.asarray(np.clip(share, 0.0, 1.0))


def _without_trivial(U: Array) -> Array:
    """The subspace without its most constant direction (that of ``sqrt(degree)`` or ones)."""
    if U.shape[1] < 2:
        return U[:, :0]
    direction = U.sum(axis=0)
    length = np.linalg.norm(direction)
    if length == 0:
        return U
    basis = np.linalg.qr(np.column_stack([direction / length, np.eye(U.shape[1])]))[0]
    return np.asarray(U @ basis[:, 1:])
