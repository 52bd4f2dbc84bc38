"""Layer weights `auto` against equal ones, on sets of block layers that are weak one by one.

python -m benchmarks layer_weights               # the forty sets and the rest, into docs/benchmarks.md
python -m benchmarks.layer_weights FAMILY ...    # some families, on the screen
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import table
from spectrograd import GraphWarning, MultilayerSpectralClustering, metrics
from spectrograd.aggregation import normalize_weights, typical_diagonal
from spectrograd.pipeline.layer_weights import weigh_layers

N_NODES = 1_000
MEAN_DEGREE = 12
N_CLUSTERS = 5
MIXINGS = (0.3, 0.4, 0.5, 0.6, 0.65)
DRAWS = 3
SEEDS = 10
SCALES = (1.0, 1e3, 1e4, 1e2)
# Which clusters a complementary layer can tell apart: those with one number look the same to it.
PARTIAL = ((0, 1, 2, 2, 2), (2, 2, 0, 1, 2), (0, 2, 2, 2, 1))
# Four clusters as the corners of a square: no two layers have anything in common.
CORNERS = ((0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0))
FORTY = ("alike", "complementary", "scales", "missing")
BEYOND = ("unlike", "stranger", "corners", "two of a kind")


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


def measure(chosen: LayerSet) -> tuple[np.ndarray, float]:
    """NMI of equal and auto weights with `projection`, then with `mean`; and how far seeds move weights."""
    scores, moved = [], 0.0
    for draw in range(DRAWS):
        layers, labels = chosen.draw(draw)
        auto = fit(chosen, layers, "projection", "auto")
        models = [
            fit(chosen, layers, "projection", None),
            auto,
            fit(chosen, layers, "mean", None),
            fit(chosen, layers, "mean", auto.layer_weights_),
        ]
        scores.append([metrics.nmi(labels, model.labels_) for model in models])
        if draw == 0:
            moved = spread_over_seeds(auto)
    return np.mean(scores, axis=0), moved


def fit(
    chosen: LayerSet, layers: Sequence[sp.csr_array], aggregation: str, weights: object
) -> MultilayerSpectralClustering:
    """Nodes that no layer has are excluded with a warning, and count as a cluster of their own."""
    options = {"aggregation": aggregation, "layer_weights": weights, "laplacian": chosen.laplacian}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return MultilayerSpectralClustering(chosen.n_clusters, random_state=0, **options).fit(layers)


def spread_over_seeds(model: MultilayerSpectralClustering) -> float:
    """Largest less smallest weight of a layer over seeds, before scales are taken out of the weights."""
    operators, embeddings = model._merged.inputs.operators, model._merged.inputs.embeddings
    scales = np.array([typical_diagonal(operator) for operator in operators])
    weights = [
        normalize_weights(weigh_layers(operators, embeddings, seed).weights * scales, len(scales))
        for seed in range(1, SEEDS + 1)
    ]
    return float(np.ptp(weights, axis=0).max())


def compare(families: Sequence[str]) -> str:
    rows, gains, spreads = [], [], []
    for family, noise, mixing in product(families, (False, True), MIXINGS):
        nmi, moved = measure(LayerSet(family, mixing, noise))
        gains.append([nmi[1] - nmi[0], nmi[3] - nmi[2]])
        spreads.append(moved)
        cells = [f"{value:.3f}" for value in nmi]
        rows.append([family, mixing, "one" if noise else "none", *cells, f"{moved:.3f}"])
        print(*rows[-1], file=sys.stderr, flush=True)
    header = ("layers", "mixing", "noise layers", "equal", "auto", "mean: equal", "mean: auto", "seeds")
    worst, average = np.min(gains, axis=0), np.mean(gains, axis=0)
    summary = (
        f"{len(rows)} sets: auto less equal is at worst {worst[0]:+.3f} and {average[0]:+.3f} on average "
        f"with `projection`, {worst[1]:+.3f} and {average[1]:+.3f} with `mean`; over {SEEDS} seeds no "
        f"weight moves by more than {max(spreads):.3f} (last column)."
    )
    return f"{summary}\n\n{table(header, rows)}"


def run() -> str:
    return "\n\n".join(
        [
            "## Layer weights",
            f"NMI, mean of {DRAWS} draws: three block layers (N={N_NODES:,}, mean degree {MEAN_DEGREE}) "
            "without and with a random one. `mixing` is the share of edges that leave a cluster.",
            compare(FORTY),
            "Harder combinations, not among the forty: layers of unlike quality, a clear layer about other "
            "clusters, layers without anything in common, and two alike beside one that sees the rest.",
            compare(BEYOND),
        ]
    )


if __name__ == "__main__":
    print(compare(sys.argv[1:] or FORTY))
