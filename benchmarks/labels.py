"""Labels of graphs whose classes are known: the default against every fixed treatment, and against peers.

``python -m benchmarks labels [--write] [--sets NAME,NAME,...]``. The half "choose" of the sets chose the
constants of ``spectrograd.pipeline.treatment``; the half "judge" had no part in that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from benchmarks.harness import table
from benchmarks.labelled_sets import LabelledSet, labelled_sets
from spectrograd import Graph, metrics
from spectrograd.pipeline import Result, Settings, cluster, embed
from spectrograd.pipeline.run import label

FIXED = ("K vectors", "tau .1", "tau .3", "by localisation")
SCIKIT_LEARN = ("k-means", "discretize", "cluster_qr")
OWN_NUMBER = ("Leiden", "Infomap")  # they find the number of clusters themselves
MANY = 60  # clusters, beyond which scikit-learn's k-means gets one start instead of its ten
MAX_INFOMAP_EDGES = 200_000  # beyond, it takes minutes
LONG = 5.0  # CPU seconds, beside which compiling is little: such runs are not repeated
DISASTER = 0.5  # of the best candidate's NMI
TOLERATED = 0.03  # below the better of {K vectors, tau .1}

INTRODUCTION = """\
## Labels on labelled graphs

NMI against known classes with K = their number; every second set of a family (half *choose*) chose the
constants, the others (half *judge*) had no part in that. *default* is `SpectralClustering(K)`; the next four
are one treatment for all graphs: K eigenvectors, those of the graph regularised with tau .1 or .3, and tau by
localised vectors alone. The label rules of scikit-learn (sk) are on the eigenvectors that its embedding
computes, here by `eigsh` of the normalised adjacency, since its own call takes minutes on social networks;
beyond 60 clusters its k-means gets one start instead of ten.
Leiden (modularity) and Infomap, both of igraph, find a number of clusters of their own."""


@dataclass(frozen=True)
class Row:
    """What every method found on a set: NMI by method (None: did not run), and CPU seconds of ours."""

    case: LabelledSet
    k: int
    scores: dict[str, float | None]
    seconds: tuple[float, float]  # of the default, and of the same without a comparison
    chosen: str

    @property
    def default(self) -> float:
        """NMI of the default."""
        return float(self.scores["default"] or 0.0)


def run(names: Sequence[str] = ()) -> str:
    """Measure the sets (all, or those named) and put them into tables."""
    rows = [_measure(case) for case in labelled_sets(list(names) or None)]
    halves = [(half, [row for row in rows if row.case.half == half]) for half in ("judge", "choose")]
    texts = [_summary(half, part) for half, part in halves if part]
    return f"{INTRODUCTION}\n\n" + "\n\n".join(texts) + "\n\n" + _details(rows)


def _measure(case: LabelledSet) -> Row:
    graph, classes, k = case.load()
    plain = {"n_components": k, "n_clusters": k, "seed": 0}

    def score(labels: Any) -> float:
        return metrics.score(classes, labels)["nmi"]

    with warnings.catch_warnings(action="ignore"):
        seconds, best = _timed(lambda: cluster(graph, Settings(**plain)))
        before, localised = _timed(lambda: _without_comparison(graph, Settings(**plain)))
        scores: dict[str, float | None] = {"default": score(best.labels)}
        for name, tau in (("K vectors", None), ("tau .1", 0.1), ("tau .3", 0.3)):
            scores[name] = score(cluster(graph, Settings(**plain, regularization=tau)).labels)
        scores["by localisation"] = score(localised.labels)
        for name, labels in _scikit_learn(graph, k).items():
            scores[f"sk {name}"] = None if labels is None else score(labels)
        for name, labels in _own_number(graph).items():
            scores[name] = None if labels is None else score(labels)
    chosen = "" if best.treatment is None else best.treatment.name
    row = Row(case, k, scores, (seconds, before), chosen)
    print(f"{case.name}: {chosen}, {row.default:.3f}", flush=True)
    return row


def _without_comparison(graph: Graph, settings: Settings) -> Result:
    """The first treatment only."""
    return label(embed(graph, settings), settings)


def _timed(function: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of a call, and what it returned; of a short one those of the second: the first compiles."""
    seconds = 0.0
    for _ in range(2):
        began = time.process_time()
        found = function()
        seconds = time.process_time() - began
        if seconds > LONG:
            break
    return seconds, found


def _scikit_learn(graph: Graph, k: int) -> dict[str, Any]:
    """Three label rules on the rows of ``D^-1/2 v``; None where the eigenvectors do not converge."""
    from sklearn.cluster import KMeans
    from sklearn.cluster._spectral import cluster_qr, discretize

    scale = 1 / np.sqrt(graph.degrees)
    adjacency = sp.csr_array(sp.diags_array(scale) @ graph.matrix @ sp.diags_array(scale))
    try:
        if k >= graph.n_nodes // 3:
            raise ArpackNoConvergence("too many", np.empty(0), np.empty((0, 0)))
        shifted = sp.csr_array(adjacency + sp.eye_array(graph.n_nodes))
        start = np.random.default_rng(0).random(graph.n_nodes)
        vectors = eigsh(shifted, k, which="LA", tol=1e-4, v0=start)[1][:, ::-1]
    except ArpackNoConvergence:
        return dict.fromkeys(SCIKIT_LEARN)
    rows = scale[:, None] * vectors
    rules: dict[str, Callable[[], Any]] = {
        "k-means": lambda: KMeans(k, n_init=10 if k <= MANY else 1, random_state=0).fit(rows).labels_,
        "discretize": lambda: discretize(rows, random_state=0),
        "cluster_qr": lambda: cluster_qr(rows),
    }
    found = {}
    for name, rule in rules.items():
        try:
            found[name] = rule()
        except (np.linalg.LinAlgError, ValueError):
            found[name] = None
    return found


def _own_number(graph: Graph) -> dict[str, Any]:
    """Leiden on modularity and Infomap, where igraph is installed."""
    try:
        import igraph
    except ImportError:
        return dict.fromkeys(OWN_NUMBER)
    upper = sp.triu(graph.matrix, k=1).tocoo()
    made = igraph.Graph(n=graph.n_nodes, edges=np.column_stack([upper.row, upper.col]).tolist())
    igraph.set_random_number_generator(__import__("random").Random(0))
    weights = upper.data.tolist()
    found = {"Leiden": made.community_leiden("modularity", weights, n_iterations=5).membership}
    few = graph.n_edges <= MAX_INFOMAP_EDGES
    found["Infomap"] = made.community_infomap(edge_weights=weights, trials=3).membership if few else None
    return found


# --- Tables.


def _summary(half: str, rows: list[Row]) -> str:
    """Mean NMI of every method that ran on all sets, and how often the default fails."""
    names = list(rows[0].scores)
    means, of_default = [], []
    for name in names:
        ran = [row for row in rows if row.scores[name] is not None]
        means.append(f"{np.mean([float(row.scores[name] or 0) for row in ran]):.3f}" if ran else "")
        of_default.append(f"{np.mean([row.default for row in ran]):.3f} ({len(ran)})" if ran else "")
    below = [row for row in rows if _shortfall(row) > TOLERATED]
    shortfalls = ", ".join(f"{row.case.name} {_shortfall(row):.2f}" for row in below)
    lost = [row.case.name for row in rows if row.default < DISASTER * _best_of_ours(row)]
    ratios = [row.seconds[0] / max(row.seconds[1], 1e-9) for row in rows]
    small = [row.seconds[0] / max(row.seconds[1], 1e-9) for row in rows if row.k <= 10]
    return (
        f"Half *{half}*, {len(rows)} sets, mean NMI:\n\n"
        + table(("", *names), [["mean", *means], ["default on the same sets", *of_default]])
        + f"\n\nMore than {TOLERATED} below the better of K vectors and tau .1: "
        + f"{len(below)} of {len(rows)}"
        + (f" ({shortfalls})" if shortfalls else "")
        + f". Less than half of our best: {', '.join(lost) or 'none'}. CPU time of the default in units of "
        + f"that of its first treatment alone: geometric mean {_geometric(ratios):.2f}"
        + (f", K up to 10 {_geometric(small):.2f}" if small else "")
        + f", largest {max(ratios):.1f}."
    )


def _shortfall(row: Row) -> float:
    return max(float(row.scores[name] or 0) for name in ("K vectors", "tau .1")) - row.default


def _best_of_ours(row: Row) -> float:
    return max(float(row.scores[name] or 0) for name in ("default", *FIXED))


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _details(rows: list[Row]) -> str:
    """One line per set; the best of ours is bold."""
    names = list(rows[0].scores)
    lines = []
    for row in rows:
        best = _best_of_ours(row)
        cells = []
        for name in names:
            value = row.scores[name]
            text = "" if value is None else f"{value:.3f}"
            ours = name in ("default", *FIXED)
            cells.append(f"**{text}**" if ours and value is not None and value >= best - 5e-4 else text)
        chosen = row.chosen.replace(" of the graph regularised with tau =", ", tau")
        lines.append([row.case.name, row.case.half, str(row.k), *cells, chosen])
    return table(("set", "half", "K", *names, "chosen"), lines)
