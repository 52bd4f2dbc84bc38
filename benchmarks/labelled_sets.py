"""Labelled graphs: public ones from a folder of real data, neighbours of points, and generated ones.

Every second set of each family chooses constants (half "choose"), the others judge them (half "judge").
"""

from __future__ import annotations

import csv
import gzip
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets as known
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import DATA
from spectrograd import Graph, datasets
from spectrograd.points.knn_graph import knn_graph

N_NEIGHBOURS = 10
MAX_POINTS = 6000  # of a larger set of points, so many rows drawn at random
Labelled = tuple[Graph, Any]


@dataclass(frozen=True)
class LabelledSet:
    """A graph by name with the class of every node (-1 unknown); ``half`` is "choose" or "judge"."""

    name: str
    family: str
    half: str
    build: Callable[[], Labelled]

    def load(self) -> tuple[Graph, Any, int]:
        """The graph without isolated nodes, the classes, and their number."""
        with warnings.catch_warnings(action="ignore"):
            graph, classes = self.build()
        linked = np.flatnonzero(graph.degrees > 0)
        if len(linked) < graph.n_nodes:
            graph = Graph.from_matrix(sp.csr_array(graph.matrix[linked][:, linked]))
            classes = classes[linked]
        return graph, classes, len(np.unique(classes[classes >= 0]))


def labelled_sets(names: list[str] | None = None) -> Iterator[LabelledSet]:
    """All sets whose data is here; those in ``names`` only, where given."""
    for family, members in (("graph", _graphs()), ("points", _points()), ("generated", _generated())):
        for place, (name, build) in enumerate(members):
            half = "choose" if place % 2 == 0 else "judge"
            if names is None or name in names:
                yield LabelledSet(name, family, half, build)


# --- Public graphs.


def _graphs() -> Iterator[tuple[str, Callable[[], Labelled]]]:
    for folder, layers in (
        ("coauthor_cs", ("coauthor",)),
        ("lastfm_asia", ("friends",)),
        ("facebook_pages", ("edges",)),
        ("email_eu_core", ("email",)),
        ("pubmed", ("citation",)),
        ("github_social", ("edges",)),
        ("facebook_reed", ("edges",)),
        ("facebook_amherst", ("edges",)),
        ("lfr_10000_mu1", ("edges",)),
        ("lfr_10000_mu3", ("edges",)),
        ("acm_papers", ("pap",)),
        ("aucs", ("coauthor", "facebook", "leisure", "lunch", "work")),
    ):
        if (DATA / folder).is_dir():
            yield folder, partial(_read_graph, folder, layers)


def _read_graph(folder: str, layers: tuple[str, ...]) -> Labelled:
    """The sum of some layers of a folder."""
    matrices = [
        sp.csr_array(sp.load_npz(DATA / folder / f"layer_{layer}.npz").astype(np.float64)) for layer in layers
    ]
    return Graph.from_matrix(sp.csr_array(sum(matrices[1:], matrices[0]))), _classes(folder)


def _classes(folder: str) -> Any:
    with gzip.open(DATA / folder / "labels.csv.gz", "rt", newline="") as file:
        return np.array([int(row["label"]) for row in csv.DictReader(file)])


# --- Neighbours of points.


def _points() -> Iterator[tuple[str, Callable[[], Labelled]]]:
    yield from _views()
    yield "digits", partial(_neighbours, lambda: known.load_digits(return_X_y=True))
    yield "iris", partial(_neighbours, lambda: known.load_iris(return_X_y=True))
    yield "wine", partial(_neighbours, lambda: known.load_wine(return_X_y=True))
    yield "breast cancer", partial(_neighbours, lambda: known.load_breast_cancer(return_X_y=True))
    yield "two moons", partial(_neighbours, lambda: known.make_moons(1500, noise=0.12, random_state=3))
    yield (
        "two circles",
        partial(_neighbours, lambda: known.make_circles(1500, noise=0.08, factor=0.5, random_state=3)),
    )
    for seed, k, width in ((1, 26, 4), (2, 26, 8), (3, 10, 2), (4, 50, 6)):
        yield f"mixture in {width}-D, K={k}, satellites", partial(_with_satellites, seed, k, width)


def _views() -> Iterator[tuple[str, Callable[[], Labelled]]]:
    for view in ("fac", "fou", "kar", "mor", "pix", "zer"):
        if (DATA / "mfeat").is_dir():
            yield f"mfeat {view}", partial(_neighbours, partial(_read_points, "mfeat", view))
    if (DATA / "mnist").is_dir():
        yield "mnist", partial(_neighbours, partial(_read_points, "mnist", "pixels"))
    for folder, n_views in (
        ("leaves_100", 3),
        ("three_sources", 3),
        ("bbcsport", 2),
        ("wikipedia_articles", 2),
    ):
        for view in range(n_views if (DATA / folder).is_dir() else 0):
            yield f"{folder} {view}", partial(_read_graph, folder, (f"v{view}",))


def _read_points(folder: str, view: str) -> tuple[Any, Any]:
    points = np.load(DATA / folder / f"view_{view}.npz")["X"].astype(np.float64)
    return (StandardScaler().fit_transform(points) if folder == "mfeat" else points), _classes(folder)


def _neighbours(read: Callable[[], tuple[Any, Any]]) -> Labelled:
    """The graph of the nearest neighbours of points; of many points a sample, in random order."""
    points, classes = read()
    rows = np.random.default_rng(0).permutation(len(points))[:MAX_POINTS]
    scaled = points[rows] if points.shape[1] > 30 else StandardScaler().fit_transform(points[rows])
    return knn_graph(scaled, N_NEIGHBOURS), np.asarray(classes)[rows]


def _with_satellites(seed: int, n_clusters: int, width: int) -> Labelled:
    """Gaussian clusters of uneven sizes and spreads that overlap, and small groups far from all."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 2.2 if width > 2 else 6.0, (n_clusters, width))
    spread = rng.uniform(0.5, 1.3, n_clusters)
    shares = rng.dirichlet(np.full(n_clusters, 4.0))
    classes = rng.choice(n_clusters, 5000, p=shares)
    points = means[classes] + spread[classes, None] * rng.normal(size=(5000, width))
    for _ in range(n_clusters):
        # A group that is far from the rest by itself, as repeated records are: it belongs to some class.
        size = int(rng.integers(N_NEIGHBOURS + 1, 3 * N_NEIGHBOURS))
        near = int(rng.integers(len(points)))
        offset = rng.normal(size=width)
        centre = points[near] + 40 * offset / np.linalg.norm(offset)
        points = np.vstack([points, centre + 0.05 * rng.normal(size=(size, width))])
        classes = np.append(classes, np.full(size, classes[near]))
    order = rng.permutation(len(points))
    return knn_graph(points[order], N_NEIGHBOURS), classes[order]


# --- Generated graphs.


def _generated() -> Iterator[tuple[str, Callable[[], Labelled]]]:
    for seed, n, k, degree, mixing in (
        (1, 4000, 5, 8, 0.3),
        (2, 4000, 8, 12, 0.35),
        (3, 6000, 20, 8, 0.25),
        (4, 6000, 30, 15, 0.45),
        (5, 8000, 100, 10, 0.3),
        (6, 8000, 150, 12, 0.4),
        (7, 10_000, 300, 10, 0.2),
        (8, 9000, 250, 12, 0.35),
    ):
        yield f"power laws, K={k}, mixing {mixing}", partial(power_law_graph, seed, n, k, degree, mixing)
    for seed, k in ((11, 6), (12, 9)):
        yield f"hubs, K={k}", partial(_with_hubs, seed, k)
    for seed, k in ((13, 6), (14, 12)):
        yield f"dangling trees, K={k}", partial(_with_trees, seed, k)
    for seed, k in ((15, 7), (16, 5)):
        yield f"several truths, K={k}", partial(_several_truths, seed, k)
    for seed, degree in ((17, 6), (18, 4)):
        yield f"sparse blocks, degree {degree}", partial(_blocks, seed, degree)


def _blocks(seed: int, degree: int) -> Labelled:
    made = datasets.make_block_model(5000, 5, mean_degree=degree, mixing=0.2, random_state=seed)
    return made.graph, made.labels


def power_law_graph(seed: int, n: int, k: int, mean_degree: float, mixing: float) -> Labelled:
    """A degree-corrected graph whose degrees and cluster sizes follow power laws, as in the LFR benchmark."""
    rng = np.random.default_rng(seed)
    shares = (1 - rng.random(k) * (1 - 0.1**1.0)) ** -1.0  # between 1 and 10: exponent 2
    classes = rng.choice(k, n, p=shares / shares.sum())
    classes[:k] = np.arange(k)  # none is empty
    return Graph.from_edges(*_planted_edges(classes, mean_degree, mixing, rng), n_nodes=n), classes


def _planted_edges(classes: Any, mean_degree: float, mixing: float, rng: Any) -> tuple[Any, Any]:
    """Stubs by a power law of exponent 2.5; the share ``mixing`` is joined at random, the rest inside."""
    n = len(classes)
    weights = (1 - rng.random(n) * (1 - 20**-1.5)) ** (-1 / 1.5)
    stubs = np.repeat(np.arange(n), rng.poisson(weights * mean_degree / weights.mean()))
    stubs = rng.permutation(stubs)
    across = rng.random(len(stubs)) < mixing
    inside = stubs[~across]
    inside = inside[np.argsort(classes[inside], kind="stable")]
    ends = np.concatenate([_pairs(inside), _pairs(stubs[across])])
    ends = ends[ends[:, 0] != ends[:, 1]]
    keys = np.unique(ends.min(axis=1).astype(np.int64) * n + ends.max(axis=1))
    return keys // n, keys % n


def _pairs(stubs: Any) -> Any:
    return stubs[: len(stubs) // 2 * 2].reshape(-1, 2)


def _with_hubs(seed: int, k: int) -> Labelled:
    """Sixty nodes that are joined to a twentieth of all others, whatever the cluster."""
    rng = np.random.default_rng(seed)
    n = 5000
    classes = rng.integers(k, size=n)
    heads, tails = _planted_edges(classes, 8, 0.25, rng)
    hubs = np.repeat(np.arange(60), n // 20)
    others = rng.integers(60, n, len(hubs))
    return Graph.from_edges(np.append(heads, hubs), np.append(tails, others), n_nodes=n), classes


def _with_trees(seed: int, k: int) -> Labelled:
    """A quarter of the nodes hang on the graph in small trees and chains."""
    rng = np.random.default_rng(seed)
    n, n_tree = 6000, 1500
    classes = rng.integers(k, size=n)
    heads, tails = _planted_edges(classes[: n - n_tree], 7, 0.2, rng)
    new = np.arange(n - n_tree, n)
    # Half of them hang on the one before, so that chains grow; the others begin a tree of their own.
    parents = np.where(rng.random(n_tree) < 0.85, new - 1, rng.integers(0, n - n_tree, n_tree))
    parents[0] = 0
    for node, parent in zip(new, parents, strict=True):
        classes[node] = classes[parent]
    return Graph.from_edges(np.append(heads, new), np.append(tails, parents), n_nodes=n), classes


def _several_truths(seed: int, k: int) -> Labelled:
    """The sum of two partitions: one of k clusters, which counts, and a weaker one of three."""
    rng = np.random.default_rng(seed)
    n = 5000
    classes = rng.integers(k, size=n)
    other = rng.integers(3, size=n)
    first = _planted_edges(classes, 7, 0.25, rng)
    second = _planted_edges(other, 4, 0.2, rng)
    heads = np.append(first[0], second[0])
    tails = np.append(first[1], second[1])
    return Graph.from_edges(heads, tails, n_nodes=n), classes
