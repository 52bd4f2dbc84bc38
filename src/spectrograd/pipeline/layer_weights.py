"""Which layers agree: distances between their subspaces, how much structure each has, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.aggregation import typical_diagonal, without_absent
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import Operator, laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solving import embed

Array = NDArray[Any]
# Squared distance, per dimension, below which two layers say the same thing.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class LayerScores:
    """Per layer, all in [0, 1] but the weights.

    Attributes
    ----------
    structure
        How far the layer's eigenvalues lie below those of a random graph with the same degrees: 0 is
        a random graph, 1 is perfect clusters.
    agreement
        Mean overlap of its subspace with those of the other layers, beyond what chance gives.
    copies
        How many layers have this same subspace, itself included.
    weights
        ``structure x min(1, agreement / median agreement) / copies``, over the layer's median degree
        where the Laplacians are unnormalised, so that no layer wins by the scale of its weights.
    """

    structure: Array
    agreement: Array
    copies: Array
    weights: Array


def layer_distances(embeddings: Sequence[Array]) -> Array:
    """Pairwise squared projection distances ``(K_s + K_t) / 2 - |U^s' U^t|^2`` (Eq. 20)."""
    overlap = _overlaps(embeddings)
    widths = np.array([U.shape[1] for U in embeddings], dtype=float)
    distances = (widths[:, None] + widths) / 2 - overlap
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.maximum(distances, 0.0))


def weigh_layers(
    operators: Sequence[Operator], embeddings: Sequence[Array], seed: int | None = None
) -> LayerScores:
    """Weights that follow structure and agreement; see :class:`LayerScores` for the rule.

    Relative to the median, so layers that agree little, but equally, all keep their weight; with
    two layers agreement cannot tell which is wrong, and structure decides alone.
    """
    rng = np.random.default_rng(seed)
    structure = np.array([_structure(op, U, rng) for op, U in zip(operators, embeddings, strict=True)])
    widths = np.array([U.shape[1] for U in embeddings])
    distances = layer_distances(embeddings)
    same = (distances <= SAME * np.maximum(widths, 1)) & np.equal.outer(widths, widths)
    copies = same.sum(axis=1)
    agreement = _agreement(embeddings, same)
    voters = (structure > 0) & (
        same.argmax(axis=1) == np.arange(len(same))
    )  # the first of each set of copies
    typical = float(np.median(agreement[voters])) if voters.any() else 0.0
    trust = np.minimum(1.0, agreement / typical) if typical > 0 else np.ones(len(agreement))
    scales = np.array([typical_diagonal(operator) or 1.0 for operator in operators])
    weights = structure * trust / copies / scales
    if not weights.sum() > 0:  # nothing to go by: every layer that has an embedding counts the same
        weights = (widths > 0).astype(float)
    return LayerScores(structure, agreement, copies, weights)


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


def _agreement(embeddings: Sequence[Array], same: Array) -> Array:
    """Mean overlap with the layers that are no copies."""
    excess = pairwise_agreement(embeddings)
    others = np.where(same, 0.0, 1.0 / same.sum(axis=0))  # copies share one voice here too
    counted = others.sum(axis=1)
    return np.asarray(np.where(counted > 0, (excess * others).sum(axis=1) / np.maximum(counted, 1e-12), 1.0))


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


def _structure(operator: Operator, U: Array, rng: np.random.Generator) -> float:
    """``1 - Tr(U' L_sym U) / the same of a shuffled layer``, at least 0: no scale of weights in it."""
    k = U.shape[1]
    if k < 2 or operator.graph.n_edges == 0:
        return 0.0
    own = without_absent(laplacian(operator.graph, "symmetric", allow_isolated=True))
    if operator.scale is None:  # unnormalised: D^1/2 U spans nearly the same as L_sym's eigenvectors
        U = np.linalg.qr(np.sqrt(operator.graph.degrees)[:, None] * U)[0]
    found = float(np.sum(U * (own @ U)))
    null = without_absent(laplacian(shuffled(operator.graph, rng), "symmetric", allow_isolated=True))
    settings = Settings(solver="eigen", params={"tol": 1e-3}, seed=int(rng.integers(2**31)))
    expected = float(embed(null, k, settings).embedding.eigenvalues.sum())
    return float(np.clip(1 - found / expected, 0.0, 1.0)) if expected > 0 else 0.0


def shuffled(graph: Graph, rng: np.random.Generator) -> Graph:
    """A random graph with (nearly) the same degrees and the same weights: ends joined anew."""
    upper = sp.triu(graph.matrix, format="coo")
    ends = rng.permutation(np.concatenate([upper.row, upper.col]))
    rows, cols = np.split(ends, 2)
    keep = rows != cols
    one_way = sp.coo_array((upper.data[keep], (rows[keep], cols[keep])), shape=graph.matrix.shape).tocsr()
    return Graph._from_clean_csr(sp.csr_array(one_way + one_way.T), graph.names)
