"""Sets of layers with known classes: public ones, and generated ones."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks import layer_families
from benchmarks.harness import DATA
from benchmarks.layer_weights import LayerSet
from spectrograd import MultilayerGraph, datasets
from spectrograd.points.knn_graph import knn_graph
from spectrograd.typing import Array

N_NEIGHBORS = 10


@dataclass(frozen=True, eq=False)
class LabelledLayers:
    """Layers over the same nodes, and the class of each node (-1: unknown)."""

    name: str
    graph: MultilayerGraph
    classes: Array

    @property
    def n_clusters(self) -> int:
        """Number of known classes."""
        return len(np.unique(self.classes[self.classes >= 0]))


def _classes(folder: Path) -> Array:
    with gzip.open(folder / "labels.csv.gz", "rt", newline="") as lines:
        return np.array([int(row["label"]) for row in csv.DictReader(lines)])


def _layers(folder: Path) -> MultilayerGraph:
    """Every ``layer_NAME.npz`` of a folder."""
    paths = sorted(folder.glob("layer_*.npz"))
    named = {path.stem.removeprefix("layer_"): sp.load_npz(path).astype(float) for path in paths}
    return MultilayerGraph.from_layers(named)


def _views(folder: Path, names: str) -> MultilayerGraph:
    """k-NN graphs of standardised views of points."""
    layers = {}
    for name in names.split():
        X = np.load(folder / f"view_{name}.npz")["X"].astype(float)
        layers[name] = knn_graph((X - X.mean(axis=0)) / X.std(axis=0), N_NEIGHBORS)
    return MultilayerGraph.from_layers(layers)


def _authors(folder: Path) -> MultilayerGraph:
    """Who wrote with whom, and whose keywords are alike (cosine)."""
    from sklearn.preprocessing import normalize
    from sklearn.random_projection import SparseRandomProjection

    words = normalize(sp.load_npz(folder / "view_keywords.npz").astype(float))
    few = SparseRandomProjection(64, random_state=0).fit_transform(words)
    points = normalize(few.toarray())
    coauthors = sp.load_npz(folder / "layer_coauthor.npz").astype(float)
    return MultilayerGraph.from_layers({"coauthor": coauthors, "keywords": knn_graph(points, N_NEIGHBORS)})


REAL: Mapping[str, tuple[str, Callable[[Path], MultilayerGraph]]] = {
    "aucs": ("aucs", _layers),
    "three_sources": ("three_sources", _layers),
    "bbcsport": ("bbcsport", _layers),
    "leaves_100": ("leaves_100", _layers),
    "wikipedia_articles": ("wikipedia_articles", _layers),
    "acm_papers": ("acm_papers", _layers),
    "mfeat six views": ("mfeat", lambda folder: _views(folder, "fac fou kar mor pix zer")),
    "mfeat fou mor zer": ("mfeat", lambda folder: _views(folder, "fou mor zer")),
    "mfeat fac mor": ("mfeat", lambda folder: _views(folder, "fac mor")),
    "mfeat kar pix": ("mfeat", lambda folder: _views(folder, "kar pix")),
    "coauthor_cs": ("coauthor_cs", _authors),
    "codex_relations": ("codex_relations", _layers),
}


def _mixture(n_nodes: int, n_layers: int, n_clusters: int, separation: float) -> Callable[[], LabelledLayers]:
    def draw() -> LabelledLayers:
        drawn = datasets.make_multilayer_gmm(
            n_nodes, n_layers, n_clusters, separation=separation, random_state=1
        )
        return LabelledLayers("", drawn.graph, drawn.labels)

    return draw


def _blocks(family: str, mixing: float, noise: bool) -> Callable[[], LabelledLayers]:
    def draw() -> LabelledLayers:
        layers, labels = LayerSet(family, mixing, noise).draw(1)
        return LabelledLayers("", MultilayerGraph.from_layers(layers), labels)

    return draw


def _one_good_layer() -> LabelledLayers:
    """One layer with clusters among three random ones."""
    layers, labels = LayerSet("alike", 0.4, True).draw(2)
    rng = np.random.default_rng(2)
    shuffled = [layer[order][:, order] for layer in layers[1:3] for order in [rng.permutation(len(labels))]]
    return LabelledLayers("", MultilayerGraph.from_layers([layers[0], *shuffled, layers[3]]), labels)


def _family(name: str, seed: int) -> Callable[[], LabelledLayers]:
    def draw() -> LabelledLayers:
        layers, classes = layer_families.draw(name, seed)
        return LabelledLayers("", MultilayerGraph.from_layers(layers), classes)

    return draw


GENERATED: Mapping[str, Callable[[], LabelledLayers]] = {
    "mixtures, 2,000 x 3": _mixture(2_000, 3, 5, 1.9),
    "mixtures, 1,000 x 5, K=8": _mixture(1_000, 5, 8, 1.5),
    "mixtures, 20,000 x 3": _mixture(20_000, 3, 5, 1.9),
    "blocks alike": _blocks("alike", 0.6, False),
    "blocks and a random layer": _blocks("alike", 0.5, True),
    "one good layer among four": _one_good_layer,
    "blocks that complete each other": _blocks("complementary", 0.4, False),
    "... and a random layer": _blocks("complementary", 0.4, True),
    "corners of a square": _blocks("corners", 0.4, False),
    "layers of unlike quality": _blocks("unlike", 0.6, False),
    "a layer about other clusters": _blocks("stranger", 0.4, False),
    "nodes missing from layers": _blocks("missing", 0.5, True),
} | {f"{name} {seed}": _family(name, seed) for name in layer_families.FAMILIES for seed in (1, 2)}


def names() -> list[str]:
    """Every set that can be made here."""
    real = [name for name, (kind, _) in REAL.items() if (DATA / kind).is_dir()]
    return [*real, *GENERATED]


def load(name: str) -> LabelledLayers:
    """The set of that name."""
    if name in GENERATED:
        drawn = GENERATED[name]()
        return LabelledLayers(name, drawn.graph, drawn.classes)
    kind, read = REAL[name]
    return LabelledLayers(name, read(DATA / kind), _classes(DATA / kind))
