"""What the merged clusters are worth: real views, and a layer of noise."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import DATA, table
from spectrograd import MultilayerGraph, MultilayerSpectralClustering, datasets, metrics
from spectrograd.aggregation import REGISTRY
from spectrograd.pipeline.layer_weights import shuffled

MFEAT = DATA / "mfeat"


def mfeat() -> str:
    """mfeat: six standardised views, 10-NN each, K=10 (NMI)."""
    if not MFEAT.is_dir():
        return f"Not measured: {MFEAT.name} is not there."
    with gzip.open(MFEAT / "labels.csv.gz", "rt") as handle:
        labels = np.loadtxt(handle, delimiter=",", skiprows=1, usecols=1, dtype=int)
    views = {
        path.stem.removeprefix("view_"): _standardised(path) for path in sorted(MFEAT.glob("view_*.npz"))
    }
    rows = []
    for aggregation in REGISTRY:
        cells = []
        for weights in (None, "auto"):
            model = MultilayerSpectralClustering(
                10,
                affinity="nearest_neighbors",
                aggregation=aggregation,
                layer_weights=weights,
                random_state=0,
            )
            began = time.perf_counter()
            nmi = metrics.nmi(labels, model.fit(views).labels_)
            cells += [f"{nmi:.3f}", f"{time.perf_counter() - began:.1f}"]
        rows.append([aggregation, *cells])
    return table(("aggregation", "equal weights", "seconds", "auto weights", "seconds"), rows)


def _standardised(path: Path) -> np.ndarray:
    X = np.load(path)["X"].astype(float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)


def noise(n_nodes: int = 5_000, seeds: tuple[int, ...] = (0, 1)) -> str:
    """A random layer beside three good ones, N=5,000: NMI without it, with it, and its weight."""
    rows = []
    for seed in seeds:
        data = datasets.make_multilayer_gmm(n_nodes, random_state=seed)
        random = shuffled(data.graph.layers[0], np.random.default_rng(seed))
        noisy = MultilayerGraph.from_layers([*data.graph.layers, random])
        for aggregation, weights in (
            ("mean", None),
            ("mean", "auto"),
            ("projection", None),
            ("projection", "auto"),
        ):
            options = {"aggregation": aggregation, "layer_weights": weights, "random_state": 0}
            models = [MultilayerSpectralClustering(5, **options).fit(graph) for graph in (data.graph, noisy)]
            clean, dirty = (metrics.nmi(data.labels, model.labels_) for model in models)
            weight = models[1].layer_weights_[-1]
            rows.append(
                [
                    seed,
                    aggregation,
                    weights or "equal",
                    f"{clean:.3f}",
                    f"{dirty:.3f}",
                    f"{clean - dirty:+.3f}",
                    f"{weight:.2f}",
                ]
            )
    return table(("seed", "aggregation", "weights", "clean", "noisy", "cost", "weight of the noise"), rows)
