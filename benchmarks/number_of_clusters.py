"""How many clusters? Four rules on twenty small sets whose number is known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn import datasets as known
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks.cluster_verdict import real_graphs
from benchmarks.harness import table
from spectrograd import Graph, datasets
from spectrograd.labels.eigengap import Eigengap
from spectrograd.pipeline import Settings, cluster, embed
from spectrograd.points.knn_graph import knn_graph

MOST_NODES = 6_000  # of real graphs
MOST = 15  # clusters looked for by the rules that cluster for every number
COPIES, DROPPED = 3, 0.2  # perturbed copies of the graph, and the share of edges each has lost


@dataclass(frozen=True, eq=False)
class Case:
    """A graph and the number of clusters it was made with."""

    name: str
    graph: Graph
    n_clusters: int

    @cached_property
    def eigengap(self) -> Eigengap:
        """What ``n_clusters="auto"`` looks at, its second look included."""
        found = _quietly(embed, self.graph, Settings(n_components="auto", seed=0)).eigengap
        assert isinstance(found, Eigengap)
        return found


def cases() -> Iterator[Case]:
    """Points with 10 neighbours each, then graphs."""
    for name, points, k in _points():
        yield Case(name, knn_graph(StandardScaler().fit_transform(points), 10), k)
    for k, degree, mixing, exponent in (
        (2, 20, 0.2, None),
        (5, 20, 0.2, None),
        (12, 20, 0.2, None),
        (4, 12, 0.3, None),
        (6, 20, 0.3, None),
        (4, 20, 0.2, 2.5),
    ):
        data = datasets.make_block_model(
            600, k, mean_degree=degree, mixing=mixing, degree_exponent=exponent, random_state=0
        )
        kind = "degree-corrected blocks" if exponent else "blocks"
        yield Case(f"{kind}, mixing {mixing:g}, degree {degree}", data.graph, k)


def _points() -> Iterator[tuple[str, Any, int]]:
    yield "two circles", known.make_circles(800, noise=0.05, factor=0.5, random_state=0)[0], 2
    yield "two moons", known.make_moons(600, noise=0.08, random_state=0)[0], 2
    for k, separation in ((3, 5), (5, 5), (8, 5), (5, 4)):
        points = datasets.make_gaussian_mixture(600, k, n_features=8, separation=separation, random_state=1)[
            0
        ]
        yield f"mixture, separation {separation}", points, k
    blobs = known.make_blobs(600, centers=3, random_state=170)[0]
    yield "stretched blobs", blobs @ [[0.6, -0.6], [-0.4, 0.8]], 3
    yield "blobs of three widths", known.make_blobs(600, cluster_std=[1.0, 2.5, 0.5], random_state=170)[0], 3
    rng = np.random.default_rng(0)
    corners = rng.normal(0, 0.15, (600, 2)) + np.array([[i % 3, i % 9 // 3] for i in range(600)])
    yield "grid of nine", corners, 9
    line = rng.normal(0, 0.2, (600, 2)) + np.array([[1.2 * (i % 4), 0] for i in range(600)])
    yield "four in a row", line, 4
    yield "iris", known.load_iris().data, 3
    yield "wine", known.load_wine().data, 3
    yield "breast cancer", known.load_breast_cancer().data, 2
    yield "digits", known.load_digits().data[:900], 10


def fresh_cases() -> Iterator[Case]:
    """Graphs that had no part in choosing any constant of the rule."""
    for seed in (31, 32, 33):
        points = [
            ("circles", 2, known.make_circles(700, noise=0.06, factor=0.45, random_state=seed)[0]),
            ("moons", 2, known.make_moons(900, noise=0.06, random_state=seed)[0]),
        ]
        for k, apart, width in ((2, 5, 3), (4, 5, 8), (6, 5, 8), (7, 4, 8), (10, 6, 10), (3, 4, 2)):
            mixed = datasets.make_gaussian_mixture(
                800, k, n_features=width, separation=apart, random_state=seed
            )
            points.append(("mixture", k, mixed[0]))
        points += [("blobs", k, known.make_blobs(700, centers=k, random_state=seed)[0]) for k in (3, 5, 7)]
        yield from (Case(name, knn_graph(rows, 10), k) for name, k, rows in points)
        for k, mixing, exponent in (
            (3, 0.2, None),
            (7, 0.25, None),
            (9, 0.3, None),
            (5, 0.2, 2.5),
            (10, 0.2, 2.5),
        ):
            made = datasets.make_block_model(
                700, k, mixing=mixing, degree_exponent=exponent, random_state=seed
            )
            yield Case("blocks", made.graph, k)


def many_clusters() -> Iterator[Case]:
    """Numbers beyond those that the first look can find."""
    for seed in (31, 32, 33):
        for k, width in ((25, 10), (30, 12), (42, 16), (50, 20)):
            points = datasets.make_gaussian_mixture(
                60 * k, k, n_features=width, separation=5, random_state=seed
            )[0]
            yield Case("mixture", knn_graph(points, 10), k)
            made = datasets.make_block_model(60 * k, k, mixing=0.2, random_state=seed)
            yield Case("blocks", made.graph, k)


def _on_fresh_cases() -> str:
    """What the rule does on graphs it was not chosen by."""
    real = (
        Case(case.name, case.graph, case.n_clusters)
        for half in (0, 1)
        for case in real_graphs(half)
        if case.graph.n_nodes <= MOST_NODES
    )
    return "\n".join(
        [
            "On other graphs; the constants of `auto` were chosen on none of the first two kinds:\n",
            _counts("small graphs of these kinds", fresh_cases()),
            _counts("mixtures and block models of 25 to 50 clusters", many_clusters()),
            _counts("real layers, beside their number of classes", real),
        ]
    )


def _counts(kind: str, cases: Iterator[Case]) -> str:
    """How often the rule is right, in a line."""
    gaps = [(case.eigengap, case.n_clusters) for case in cases]
    right = sum(gap.n_clusters == known for gap, known in gaps)
    clear = [(gap, known) for gap, known in gaps if gap.clear]
    clear_right = sum(gap.n_clusters == known for gap, known in clear)
    return (
        f"- {len(gaps)} {kind}: the number is found in {right}. It is called clear in {len(clear)}, of which "
        f"{clear_right} are right; the others come with a warning."
    )


def eigengap(case: Case) -> int:
    """The rule of ``n_clusters="auto"``."""
    return case.eigengap.n_clusters


def plain_gap(case: Case) -> int:
    """The largest difference of neighbouring eigenvalues."""
    return 2 + int(np.argmax(case.eigengap.gaps[1:]))


def modularity(case: Case) -> int:
    """The number whose clustering has the largest modularity (Newman and Girvan, 2004)."""
    return 2 + int(np.argmax([_modularity(case.graph, _labels(case.graph, k)) for k in range(2, MOST + 1)]))


def stability(case: Case) -> int:
    """The number whose clusterings of graphs that lost some edges agree best (mean ARI)."""
    copies = [_thinned(case.graph, seed) for seed in range(COPIES)]
    scores = []
    for k in range(2, MOST + 1):
        whole = _labels(case.graph, k)
        scores.append(np.mean([adjusted_rand_score(whole, _labels(copy, k)) for copy in copies]))
    return 2 + int(np.argmax(np.round(scores, 2)))


RULES: dict[str, Callable[[Case], int]] = {
    "auto": eigengap,
    "largest gap": plain_gap,
    "modularity": modularity,
    "stability": stability,
}


def run() -> str:
    rows, right = [], dict.fromkeys(RULES, 0)
    for case in cases():
        found = {name: rule(case) for name, rule in RULES.items()}
        for name, k in found.items():
            right[name] += k == case.n_clusters
        gap = case.eigengap
        doubt = "" if gap.clear else ", ".join(map(str, gap.candidates))
        marked = [f"**{k}**" if k == case.n_clusters else str(k) for k in found.values()]
        rows.append([case.name, f"{case.graph.n_nodes:,}", str(case.n_clusters), *marked, doubt])
    rows.append(["right", "", "", *(f"{count} of {len(rows)}" for count in right.values()), ""])
    header = ("data", "nodes", "known", *RULES, "auto warns, and names")
    return (
        "## The number of clusters\n\nWhat each rule finds; bold is right. `auto` looks at the eigenvalues of"
        f" one or two solves; modularity and stability cluster for every number from 2 to {MOST}:\n\n"
        + table(header, rows)
        + f"\n\n{_on_fresh_cases()}"
    )


def _labels(graph: Graph, k: int) -> Any:
    return _quietly(cluster, graph, Settings(n_components=k, seed=0, n_init=3)).labels


def _modularity(graph: Graph, labels: Any) -> float:
    matrix = graph.matrix.tocoo()
    total = matrix.data.sum()
    inside = matrix.data[labels[matrix.row] == labels[matrix.col]].sum() / total
    degrees = np.bincount(labels - labels.min(), graph.degrees) / total
    return float(inside - (degrees**2).sum())


def _thinned(graph: Graph, seed: int) -> Graph:
    matrix = graph.matrix.tocoo()
    once = np.flatnonzero(matrix.row < matrix.col)
    kept = once[np.random.default_rng(seed).random(len(once)) > DROPPED]
    ends = matrix.row[kept], matrix.col[kept]
    return Graph.from_edges(*ends, matrix.data[kept], n_nodes=graph.n_nodes)


def _quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)
