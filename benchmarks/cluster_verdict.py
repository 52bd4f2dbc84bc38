"""The cluster verdict: how often "clear" is said of graphs without clusters, and of graphs with known ones.

Constants of the verdict are chosen on the even seeds and on every other real graph (``half=0``), and judged
on the others (``half=1``). Real graphs are read from the data folder.
"""

from __future__ import annotations

import csv
import gzip
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import DATA, table
from spectrograd import Graph, datasets
from spectrograd.metrics import nmi
from spectrograd.pipeline import Settings, cluster
from spectrograd.pipeline.cluster_verdict import CLEAR, NONE, NOT_JUDGED, WEAK, ClusterVerdict
from spectrograd.points.knn_graph import knn_graph

N_SEEDS = 8  # of every setting and half
NUMBERS = (2, 3, 5, 10, 20, 40)  # of clusters asked for
DEGREES = (2, 3, 4, 6, 10, 20, 50)
DEGREE_LAWS = ("equal", "Poisson", "log-normal", "power 3", "power 2.5", "power 2.1")
DIMENSIONS = (1, 2, 3, 4, 6, 10, 20)
CLOUDS = ("cube", "normal", "sphere", "strip")
STRIP = 8.0  # length over width
MIXINGS = (0.1, 0.2, 0.3, 0.4, 0.5)
SEPARATIONS = (3.0, 4.0, 5.0)
FOUND = 0.5  # NMI with the planted clusters
VERDICTS = (CLEAR, WEAK, NONE, NOT_JUDGED)


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, the number of clusters asked for, and the known ones (None where there are none)."""

    kind: str
    name: str
    n_clusters: int
    graph: Graph
    labels: Any = None


def random_degrees(law: str, n_nodes: int, mean: float, rng: np.random.Generator) -> Any:
    """Degrees of a law with about the mean that is asked for."""
    if law == "equal":
        return np.full(n_nodes, round(mean))
    if law == "Poisson":
        return rng.poisson(mean, n_nodes)
    tail = rng.lognormal(0, 1, n_nodes) if law == "log-normal" else None
    if tail is None:
        tail = 1 + rng.pareto(float(law.split()[1]) - 1, n_nodes)
    return np.minimum(np.round(tail * mean / tail.mean()), n_nodes // 4).astype(int)


def joined_at_random(degrees: Any, rng: np.random.Generator) -> Graph:
    """The configuration model without loops, its largest component."""
    ends = rng.permutation(np.repeat(np.arange(len(degrees)), degrees))
    rows = ends[: len(ends) // 2]
    cols = ends[len(ends) // 2 : 2 * (len(ends) // 2)]
    apart = rows != cols
    matrix = sp.coo_array((np.ones(apart.sum()), (rows[apart], cols[apart])), shape=(len(degrees),) * 2)
    matrix = sp.csr_array(matrix + matrix.T)
    matrix.data[:] = 1
    _, component = sp.csgraph.connected_components(matrix, directed=False)
    largest = np.flatnonzero(component == np.bincount(component).argmax())
    return Graph.from_matrix(sp.csr_array(matrix[largest][:, largest]))


def random_graphs(half: int) -> Iterator[Case]:
    """Graphs joined at random: nothing to find."""
    for degree in DEGREES:
        for law in DEGREE_LAWS:
            for seed in range(half, 2 * N_SEEDS, 2):
                rng = np.random.default_rng((seed, degree, DEGREE_LAWS.index(law), 1))
                n_nodes = int(rng.choice([300, 1000, 2500]))
                k = int(rng.choice(NUMBERS))
                graph = joined_at_random(random_degrees(law, n_nodes, degree, rng), rng)
                yield Case("random", f"{law}, degree {degree}", k, graph)


def even_cloud(shape: str, n_points: int, dimension: int, rng: np.random.Generator) -> Any:
    """Points without clusters."""
    if shape == "cube":
        return rng.random((n_points, dimension))
    if shape == "strip":
        return rng.random((n_points, dimension)) * [STRIP, *[1.0] * (dimension - 1)]
    points = rng.standard_normal((n_points, dimension + (shape == "sphere")))
    return points / np.linalg.norm(points, axis=1, keepdims=True) if shape == "sphere" else points


def even_clouds(half: int) -> Iterator[Case]:
    """Neighbours of points spread evenly: cells can be cut well, but their borders are arbitrary."""
    for dimension in DIMENSIONS:
        for shape in CLOUDS:
            for seed in range(half, 2 * N_SEEDS, 2):
                rng = np.random.default_rng((seed, dimension, CLOUDS.index(shape), 2))
                n_points = int(rng.choice([200, 600, 1500]))
                n_neighbours = int(rng.choice([5, 10, 20]))
                k = int(rng.choice(NUMBERS))
                graph = knn_graph(even_cloud(shape, n_points, dimension, rng), n_neighbours)
                yield Case("even cloud", f"{shape}, dimension {dimension}", k, graph)


def planted_clusters(half: int) -> Iterator[Case]:
    """Block models and mixtures of Gaussians, from easy to hopeless."""
    for mixing in MIXINGS:
        for exponent in (None, 2.5):
            for seed in range(half, 2 * N_SEEDS, 2):
                rng = np.random.default_rng((seed, round(10 * mixing), 3 + (exponent is None)))
                degree = float(rng.choice([6, 10, 20]))
                k = int(rng.choice([2, 4, 8]))
                data = datasets.make_block_model(
                    1000, k, mean_degree=degree, mixing=mixing, degree_exponent=exponent, random_state=seed
                )
                yield Case("planted", f"blocks, mixing {mixing:g}", k, data.graph, data.labels)
    for separation in SEPARATIONS:
        for seed in range(half, 2 * N_SEEDS, 2):
            rng = np.random.default_rng((seed, round(separation), 5))
            k = int(rng.choice([2, 4, 8]))
            points, labels = datasets.make_gaussian_mixture(
                800, k, n_features=int(rng.choice([2, 5, 10])), separation=separation, random_state=seed
            )
            yield Case("planted", f"mixture, separation {separation:g}", k, knn_graph(points, 10), labels)


def real_graphs(half: int) -> Iterator[Case]:
    """Every other labelled layer of the folder of real graphs, in the order of their names."""
    layers = [path for path in sorted(DATA.glob("*/layer_*.npz")) if (path.parent / "labels.csv.gz").exists()]
    layers = [path for path in layers if path.parent.name != "codex_relations"]  # most nodes miss most layers
    for path in layers[half::2]:
        with gzip.open(path.parent / "labels.csv.gz", "rt") as lines:
            labels = np.array([int(row["label"]) for row in csv.DictReader(lines)])
        matrix = sp.csr_array(sp.load_npz(path).astype(float))
        n_clusters = len(np.unique(labels[labels >= 0]))
        if np.bincount(sp.csgraph.connected_components(matrix, directed=False)[1]).max() < 2 * n_clusters:
            continue  # only pieces: ``coauthor`` of AUCS
        name = f"{path.parent.name} {path.stem.removeprefix('layer_')}"
        yield Case("real", name, n_clusters, Graph.from_matrix(matrix), labels)


def cases(half: int) -> Iterator[Case]:
    """All cases of a half: 0 to choose by, 1 to judge by."""
    yield from random_graphs(half)
    yield from even_clouds(half)
    yield from planted_clusters(half)
    yield from real_graphs(half)


@dataclass(frozen=True, eq=False)
class Judged:
    """The verdict of a case, and the agreement with its known clusters (NMI)."""

    kind: str
    name: str
    verdict: ClusterVerdict
    agreement: float | None


def judge(case: Case) -> Judged:
    """The verdict of the default pipeline."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cluster(case.graph, Settings(n_components=case.n_clusters, seed=0, disconnected="largest"))
    verdict = result.cluster_verdict
    assert verdict is not None
    assert result.labels is not None
    if case.labels is None:
        return Judged(case.kind, case.name, verdict, None)
    part = (case.labels >= 0) & (result.labels >= 0)
    agreement = float(nmi(case.labels[part], result.labels[part]))
    kind = case.kind
    if kind == "planted":
        kind = "planted, found" if agreement > FOUND else "planted, not found"
    return Judged(kind, case.name, verdict, agreement)


KINDS = ("random", "even cloud", "planted, not found", "planted, found", "real")


def run() -> str:
    """How the verdicts fall on both halves, and every real graph of the second."""
    halves = [[judge(case) for case in cases(half)] for half in (0, 1)]
    rows = []
    for kind in KINDS:
        for half, use in zip(halves, ("chosen on", "judged on"), strict=True):
            counts = Counter(each.verdict.verdict for each in half if each.kind == kind)
            rows.append([kind, use, counts.total(), *(counts[verdict] for verdict in VERDICTS)])
    real = [
        [each.name, each.verdict.n_clusters, f"{each.agreement or 0:.2f}", each.verdict.short]
        for each in halves[1]
        if each.kind == "real"
    ]
    explanation = (
        "What `cluster_verdict_` says of graphs that had no part in choosing its thresholds (judged on), and "
        "of those that had (chosen on). *Random*: configuration models with equal, Poisson, log-normal and "
        f"power-law degrees, {DEGREES[0]} to {DEGREES[-1]} in the mean. *Even cloud*: neighbours of points "
        f"without clusters in {DIMENSIONS[0]} to {DIMENSIONS[-1]} dimensions: cubes, normal clouds, spheres, "
        f"and strips {STRIP:g} times as long as wide. Of both, `clear` is wrong. *Planted*: block models and "
        f"mixtures of Gaussians from easy to hopeless; those found (NMI above {FOUND:g}) have clusters. "
        "*Real*: graphs with known classes, which need not be where a graph is cut best."
    )
    return "\n\n".join(
        [
            "### How often it is wrong",
            explanation,
            table(("graphs", "half", "number", *VERDICTS), rows),
            "The real graphs that were judged on, with the known number of classes:",
            table(("graph", "clusters", "NMI with the classes", "verdict"), real),
        ]
    )
