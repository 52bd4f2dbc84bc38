"""The paper's own setting of its Table 1, and what it leaves open: data, matrices, methods, scores.

The eigendecomposition takes the aggregated matrix normalised after aggregation, the two other methods the
unnormalised one. Weights, alpha, the rows that k-means gets and the optimizer are not printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from spectrograd.datasets import LayeredData, make_multilayer_gmm
from spectrograd.labels.assign import assign
from spectrograd.metrics import adjusted_rand_index, nmi, purity
from spectrograd.operators.laplacian import Kind, normalize_operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.points.query import Weights
from spectrograd.solvers import Problem, Stopping, make_solver, solve

N_CLUSTERS = 5


@dataclass(frozen=True)
class Reading:
    """One way to fill in what the paper leaves open."""

    name: str = "as in Table 1"
    weights: Weights = "self-tuned"
    alpha: float | str = "auto"
    layers: Kind = "unnormalized"
    unit_rows: bool = True
    separation: float = 1.9


@dataclass(frozen=True)
class Method:
    """A solver, and whether it gets the normalised matrix."""

    name: str
    solver: str
    params: Mapping[str, object] = field(default_factory=dict)
    normalised: bool = False


@dataclass(frozen=True)
class Score:
    """What one method found on one data set."""

    seconds: float
    purity: float
    nmi: float
    ari: float


EIGEN = Method("Eigendecomposition (sparse)", "eigen", {"method": "arpack"}, normalised=True)
FB = Method("Stochastic FB", "stochastic-fb", {"max_iter": 3000})
PRINTED = Method("Proposed, Eq. 19 as printed", "sgd-paper")
UNBIASED = Method("Unbiased (sgd), 10 passes", "sgd", {"epochs": 10})
METHODS = (
    EIGEN,
    Method("the same, unnormalised", "eigen", {"method": "arpack"}),
    FB,
    PRINTED,
    Method("Proposed, each vertex once in M", "sgd-paper", {"gram_update": "unique"}),
    Method("Proposed, plain steps of 1e-3", "sgd-paper", {"optimizer": "sgd"}),
    Method("Proposed, plain steps of 0.1", "sgd-paper", {"optimizer": "sgd", "step_size": 0.1}),
    UNBIASED,
)
READINGS = (
    Reading(),
    Reading("binary weights", weights="binary"),
    *(Reading(f"alpha {alpha:g}", alpha=alpha) for alpha in (0.0, 0.1, 0.5, 2.0)),
    Reading("k-means on raw rows", unit_rows=False),
    Reading("each layer normalised", layers="symmetric"),
    *(Reading(f"means {apart:g} apart instead of 1.9", separation=apart) for apart in (1.5, 2.3)),
)
CLAIMS = (
    *(
        Method(f"batches of {size:,} edges", "sgd-paper", {"batch_size": size})
        for size in (500, 1000, 4000, 16_000)
    ),
    Method("4,000, every edge once per round", "sgd-paper", {"replacement": False}),
    Method("4,000, the same batches every round", "sgd-paper", {"redrawn": False}),
    *(Method(f"{count} iterations", "sgd-paper", {"max_iter": count}) for count in (100, 250, 1000)),
)


@dataclass(frozen=True, eq=False)
class Matrices:
    """Layers merged by Eq. 22 under one reading."""

    data: LayeredData
    plain: SparseOperator
    reading: Reading

    @classmethod
    def draw(cls, n_nodes: int, seed: int, reading: Reading) -> Matrices:
        """Table 1's data of one seed, its layers embedded and merged."""
        data = make_multilayer_gmm(
            n_nodes,
            n_clusters=N_CLUSTERS,
            weights=reading.weights,
            separation=reading.separation,
            random_state=seed,
        )
        settings = Settings(seed=seed)
        merged = merge(
            data.graph, N_CLUSTERS, settings, laplacian=reading.layers, alpha=reading.alpha
        ).operator
        assert isinstance(merged, SparseOperator)
        return cls(data, merged, reading)

    def score(self, method: Method, seed: int) -> Score:
        """Solve, and compare the clusters of the rows with the true ones; the time is the solver's."""
        # layers that are normalised one by one are not normalised again
        again = method.normalised and self.plain.scale is None and self.reading.layers == "unnormalized"
        operator = normalize_operator(self.plain) if again else self.plain
        solver = make_solver(method.solver, **method.params)
        began = time.perf_counter()
        Q = solve(Problem(operator, N_CLUSTERS), solver, seed=seed, stopping=Stopping(tol=0)).Q
        spent = time.perf_counter() - began
        found = assign(Q, N_CLUSTERS, unit_rows=self.reading.unit_rows, random_state=seed).labels
        truth = self.data.labels
        return Score(spent, purity(truth, found), nmi(truth, found), adjusted_rand_index(truth, found))


def over_seeds(n_nodes: int, seeds: Iterable[int], methods: Iterable[Method]) -> dict[str, list[Score]]:
    """Every method on the data of every seed."""
    found: dict[str, list[Score]] = {method.name: [] for method in methods}
    for seed in seeds:
        matrices = Matrices.draw(n_nodes, seed, Reading())
        for method in methods:
            found[method.name].append(matrices.score(method, seed))
    return found


def over_readings(n_nodes: int, seeds: Iterable[int]) -> dict[str, dict[str, list[Score]]]:
    """The exact, the printed and the unbiased method under every reading."""
    found: dict[str, dict[str, list[Score]]] = {}
    for reading in READINGS:
        drawn = [(seed, Matrices.draw(n_nodes, seed, reading)) for seed in seeds]
        found[reading.name] = {
            method.name: [matrices.score(method, seed) for seed, matrices in drawn]
            for method in (EIGEN, PRINTED, UNBIASED)
        }
    return found


def spread(scores: Iterable[Score], name: str) -> tuple[float, float]:
    """Mean and standard deviation of a figure over the seeds."""
    values = np.array([getattr(score, name) for score in scores])
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
