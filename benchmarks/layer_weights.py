"""Layer weights `auto` against equal ones, on sets of block layers that are weak one by one.

python -m benchmarks layer_weights               # all of it, into docs/benchmarks.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

N_NODES = 1_000
MEAN_DEGREE = 12
N_CLUSTERS = 5
MIXINGS = (0.3, 0.4, 0.5, 0.6, 0.65)
DRAWS = 3
SCALES = (1.0, 1e3, 1e4, 1e2)
# Which clusters a complementary layer can tell apart: those with one number look the same to it.
PARTIAL = ((0, 1, 2, 2, 2), (2, 2, 0, 1, 2), (0, 2, 2, 2, 1))
# Four clusters as the corners of a square: no two layers have anything in common.
CORNERS = ((0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0))


@dataclass(frozen=True)
class LayerSet:
    """What the layers of one set are like; `draw` makes them."""

    family: str
    mixing: float
    noise: bool

    @property
    def laplacian(self) -> str:
        return "unnormalized" if self.family == "scales" else "symmetric"

    @property
    def n_clusters(self) -> int:
        return len(CORNERS[0]) if self.family in ("corners", "two of a kind") else N_CLUSTERS

    def draw(self, seed: int) -> tuple[list[sp.csr_array], np.ndarray]:
        """Adjacency matrices and the true labels."""
        rng = np.random.default_rng(seed)
        labels = np.arange(N_NODES) % self.n_clusters
        layers = [block_layer(seen, mixing, rng) for seen, mixing in self._plan(labels, rng)]
        if self.noise:
            layers.append(block_layer(labels, 1.0, rng))
        if self.family == "missing":
            layers = [without_nodes(layer, 0.2, rng) for layer in layers]
        if self.family == "scales":
            layers = [layer * scale for layer, scale in zip(layers, SCALES, strict=False)]
        return layers, labels

    def _plan(self, labels: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, float]]:
        """Per layer, the groups it sees and the share of its edges that are random."""
        random_share = self.n_clusters / (self.n_clusters - 1)  # `mixing` is the share that leaves a cluster
        groups = {"complementary": PARTIAL, "corners": CORNERS, "two of a kind": CORNERS[:1] + CORNERS[:2]}
        for at in range(3):
            seen = np.asarray(groups[self.family][at])[labels] if self.family in groups else labels
            unlike = (-0.25, 0.0, 0.15)[at] if self.family == "unlike" else 0.0
            yield seen, (self.mixing + unlike) * random_share
        if self.family == "stranger":
            yield rng.permutation(labels), self.mixing * random_share


def block_layer(groups: np.ndarray, mixing: float, rng: np.random.Generator) -> sp.csr_array:
    """Random edges, a share `mixing` of them between any two nodes, the rest inside a group."""
    n_edges = N_NODES * MEAN_DEGREE // 2
    order, begins, sizes = np.argsort(groups, kind="stable"), *_extents(groups)
    one = rng.integers(N_NODES, size=n_edges)
    mate = order[(begins[groups[one]] + rng.random(n_edges) * sizes[groups[one]]).astype(int)]
    other = np.where(rng.random(n_edges) < mixing, rng.integers(N_NODES, size=n_edges), mate)
    kept = one != other
    half = sp.coo_array((np.ones(kept.sum()), (one[kept], other[kept])), shape=(N_NODES, N_NODES)).tocsr()
    return sp.csr_array(((half + half.T) > 0).astype(float))


def _extents(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.bincount(groups)
    return np.cumsum(sizes) - sizes, sizes


def without_nodes(layer: sp.csr_array, share: float, rng: np.random.Generator) -> sp.csr_array:
    """The layer without the edges of so many of its nodes."""
    kept = sp.diags_array((rng.random(layer.shape[0]) >= share).astype(float))
    return sp.csr_array(kept @ layer @ kept)
