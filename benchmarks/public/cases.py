"""The graphs and points of the public benchmark, by family; those whose data is not here are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import DATA
from benchmarks.shootout.graphs import labels_of_file
from spectrograd import datasets
from spectrograd.points.knn_graph import knn_graph

FAMILIES = ("embedding", "labels", "small", "small-labels", "large", "layers", "points")
NEIGHBORS = 10


@dataclass(frozen=True)
class Case:
    """Data by name: ``build`` returns a matrix, points or a list of layers, and classes or None."""

    family: str
    name: str
    ks: tuple[int, ...]
    build: Callable[[], tuple[Any, Any]]


# Single graphs of more than 5,000 nodes: the numbers of vectors, the first of them for labels.
SINGLE = {
    ("coauthor_cs", "layer_coauthor"): (15, 8, 32, 100),
    ("lastfm_asia", "layer_friends"): (18, 10, 32, 100),
    ("pubmed", "layer_citation"): (3, 8, 16, 50),
    ("facebook_pages", "layer_edges"): (4, 10, 16, 32, 100),
    ("github_social", "layer_edges"): (2, 8, 16, 50),
    ("lfr_10000_mu1", "layer_edges"): (120, 10, 50),
    ("lfr_10000_mu3", "layer_edges"): (120, 10, 50),
    ("luxembourg_osm", "layer_road"): (8, 32),
    ("road_ny", "layer_road"): (8, 16),
}
SMALL = {
    ("three_sources", "layer_v0"): (6,),
    ("bbcsport", "layer_v0"): (5, 16),
    ("facebook_reed", "layer_edges"): (6, 16),
    ("email_eu_core", "layer_email"): (10, 42),
    ("leaves_100", "layer_v0"): (8, 100),
    ("facebook_amherst", "layer_edges"): (7, 32),
    ("wikipedia_articles", "layer_v0"): (10, 32),
    ("acm_papers", "layer_pap"): (3, 16),
}
VIEWS = ("fac", "fou", "kar", "mor", "pix", "zer")
LAYERS = {"three_sources": 6, "bbcsport": 5, "wikipedia_articles": 10, "leaves_100": 100, "acm_papers": 3}


def cases(quick: bool = False) -> Iterator[Case]:
    """Every case whose data is here."""
    for (name, part), ks in SINGLE.items():
        if (DATA / name / f"{part}.npz").exists():
            build = partial(read_layer, name, part)
            yield Case("embedding", name, ks[:2] if quick else ks, build)
            yield Case("labels", name, ks[:1], build)
    if (DATA / "mnist").is_dir():
        for n in (10_000,) if quick else (10_000, 70_000):
            build = partial(_neighbours_of, partial(_mnist, n))
            yield Case("embedding", f"mnist {n:,} k-NN", (10, 32), build)
            yield Case("labels", f"mnist {n:,} k-NN", (10,), build)
    yield from _small_cases()
    for n, k, degree, exponent in _large_sizes(quick):
        made = partial(_blocks, n, k, degree, exponent)
        name = f"{'heavy tail' if exponent else 'block model'} {n:,} nodes"
        yield Case("large", name, (k,), made)
    yield from _layer_cases()
    yield from _point_cases()


def _large_sizes(quick: bool) -> tuple[tuple[int, int, float, float | None], ...]:
    """Nodes, K, mean degree and exponent of the degrees; 10 million edges, or one million if quick."""
    if quick:
        return (30_000, 16, 67, 2.5), (100_000, 10, 20, None), (100_000, 16, 20, None)
    return (300_000, 16, 67, 2.5), (1_000_000, 10, 20, None), (1_000_000, 16, 20, None)


def _small_cases() -> Iterator[Case]:
    """Graphs of 100 to 5,000 nodes."""
    named: list[tuple[str, tuple[int, ...], Any]] = []
    for n, k in ((100, 4), (1_000, 5), (5_000, 8)):
        named.append((f"block model {n:,}", (k,), partial(_blocks, n, k, 12, None)))
    for (name, part), ks in SMALL.items():
        if (DATA / name / f"{part}.npz").exists():
            named.append((name, ks, partial(read_layer, name, part)))
    named.append(("digits k-NN", (10, 32), partial(_neighbours_of, _digits)))
    if (DATA / "mfeat").is_dir():
        named.append(("mfeat kar k-NN", (10,), partial(_neighbours_of, partial(_view, "mfeat", "kar"))))
    for name, ks, build in named:
        yield Case("small", name, ks, build)
        yield Case("small-labels", name, ks[:1], build)


def _layer_cases() -> Iterator[Case]:
    for name, k in LAYERS.items():
        if (DATA / name).is_dir():
            parts = sorted(path.stem for path in (DATA / name).glob("layer_*.npz"))
            yield Case("layers", name, (k,), partial(_layers_of, name, tuple(parts)))
    if (DATA / "mfeat").is_dir():
        yield Case("layers", "mfeat six views", (10,), _mfeat_layers)
    yield Case("layers", "three planar layers", (5,), _made_layers)


def _point_cases() -> Iterator[Case]:
    yield Case("points", "digits", (10,), _digits)
    yield Case("points", "breast cancer", (2,), partial(_scikit_set, "load_breast_cancer"))
    yield Case("points", "two moons 5,000", (2,), _moons)
    yield Case("points", "20,000 points in 16 dimensions", (8,), _mixture)
    if (DATA / "mfeat").is_dir():
        yield Case("points", "mfeat fac", (10,), partial(_view, "mfeat", "fac"))
    if (DATA / "mnist").is_dir():
        yield Case("points", "mnist 10,000", (10,), partial(_mnist, 10_000))


# --- Data


def read_layer(name: str, part: str) -> tuple[sp.csr_array, Any]:
    """A graph of the data folder without isolated nodes, and its classes: its largest component.

    Peers cannot treat several components, and their degrees divide.
    """
    matrix = sp.csr_array(sp.load_npz(DATA / name / f"{part}.npz").astype(np.float64))
    labels = labels_of_file(DATA / name / "labels.csv.gz")
    return largest_component(matrix, labels)


def largest_component(matrix: sp.csr_array, labels: Any) -> tuple[sp.csr_array, Any]:
    """The largest component of a graph, and its classes."""
    _, component = sp.csgraph.connected_components(matrix, directed=False)
    inside = component == np.bincount(component).argmax()
    part = sp.csr_array(matrix[inside][:, inside])
    part.indices = part.indices.astype(np.int32)
    part.indptr = part.indptr.astype(np.int32)
    return part, None if labels is None else labels[inside]


def _neighbours_of(build: Callable[[], tuple[Any, Any]]) -> tuple[sp.csr_array, Any]:
    points, labels = build()
    return largest_component(knn_graph(points, NEIGHBORS).matrix, labels)


def _blocks(n: int, k: int, degree: float, exponent: float | None) -> tuple[sp.csr_array, Any]:
    data = datasets.make_block_model(n, k, mean_degree=degree, degree_exponent=exponent, random_state=0)
    return largest_component(data.graph.matrix, data.labels)


def _layers_of(name: str, parts: tuple[str, ...]) -> tuple[list[sp.csr_array], Any]:
    matrices = [sp.csr_array(sp.load_npz(DATA / name / f"{part}.npz").astype(np.float64)) for part in parts]
    return matrices, labels_of_file(DATA / name / "labels.csv.gz")


def _mfeat_layers() -> tuple[list[sp.csr_array], Any]:
    views = [_view("mfeat", view) for view in VIEWS]
    return [knn_graph(points, NEIGHBORS).matrix for points, _ in views], views[0][1]


def _made_layers() -> tuple[list[sp.csr_array], Any]:
    data = datasets.make_multilayer_gmm(10_000, random_state=0)
    return [layer.matrix for layer in data.graph.layers], data.labels


def _view(name: str, view: str) -> tuple[Any, Any]:
    points = np.load(DATA / name / f"view_{view}.npz")["X"].astype(np.float64)
    scale = np.maximum(points.std(axis=0), 1e-9)
    return (points - points.mean(axis=0)) / scale, labels_of_file(DATA / name / "labels.csv.gz")


def _mnist(n: int) -> tuple[Any, Any]:
    points = np.load(DATA / "mnist" / "view_pixels.npz")["X"][:n].astype(np.float32)
    labels = labels_of_file(DATA / "mnist" / "labels.csv.gz")
    return points, labels[:n]


def _digits() -> tuple[Any, Any]:
    return _scikit_set("load_digits")


def _scikit_set(name: str) -> tuple[Any, Any]:
    import sklearn.datasets

    data = getattr(sklearn.datasets, name)()
    scale = np.maximum(data.data.std(axis=0), 1e-9)
    return data.data / (1.0 if name == "load_digits" else scale), data.target


def _moons() -> tuple[Any, Any]:
    from sklearn.datasets import make_moons

    points, labels = make_moons(5_000, noise=0.08, random_state=0)
    return points, labels


def _mixture() -> tuple[Any, Any]:
    return datasets.make_gaussian_mixture(20_000, 8, n_features=16, random_state=0)
