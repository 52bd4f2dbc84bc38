"""``joint`` against two stages: passes over the edges for the same quality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.harness import table
from spectrograd import datasets, metrics
from spectrograd.aggregation import Layers, layer_operators, without_absent
from spectrograd.aggregation.joint import RESIDUAL_FACTOR, JointPasses, JointState, run
from spectrograd.labels.assign import assign
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.solvers import Problem, Stopping, solve
from spectrograd.solvers.settings import RunContext

K, ALPHA, TOL = 5, 0.5, 1e-4


@dataclass(frozen=True)
class MergeAlone(JointPasses):
    """The second stage with the steps of ``joint``: the layers are given and stay."""

    given: tuple[np.ndarray, ...] = ()

    def init(self, problem: Problem, rng: np.random.Generator) -> JointState:
        """A random merged block beside the layers."""
        start = rng.standard_normal((problem.n_nodes, self._width(problem)))
        Q = problem.orthonormalize(start, rng).Q
        state = JointState(Q, rng, blocks=[Q, *self.given], settled=np.ones(len(self.given), dtype=bool))
        self._set_unmeasured(state)
        state.residuals[1:] = 0
        self._measure(problem, state)
        return state


def same_steps(layers: Layers, seed: int) -> tuple[float, float, np.ndarray]:
    """Passes of the layers, each with the steps and to the accuracy of ``joint``, and of the merge after."""
    count, upper = len(layers.operators), sum(op.upper for op in layers.operators)
    limit, edges = RESIDUAL_FACTOR * TOL * upper, sum(op.graph.n_edges for op in layers.operators)
    passes, bases = 0.0, []
    for operator in layers.operators:
        enough = limit * operator.upper / (upper + ALPHA * count)
        alone = JointPasses(Layers((without_absent(operator),), np.ones(1)), np.zeros(1), settle=enough)
        found = solve(Problem(operator, K), alone, stopping=Stopping(None, enough), seed=seed)
        passes += found.last.edges_seen / edges
        bases.append(found.Q[:, K:])
    second = MergeAlone(layers, np.full(count, ALPHA), settle=limit, given=tuple(bases))
    merged = solve(Problem(layers.operators[0], K), second, stopping=Stopping(None, limit), seed=seed)
    return passes, merged.last.edges_seen / edges, merged.Q[:, :K]


def joint(n_nodes: int = 4_000, seeds: tuple[int, ...] = (0, 1)) -> str:
    """`joint` against two stages, three layers, N=4,000: a pass reads every edge of every layer once."""
    rows = []
    for seed in seeds:
        data = datasets.make_multilayer_gmm(n_nodes, random_state=seed)
        layers = Layers(layer_operators(data.graph, "symmetric"), np.ones(data.graph.n_layers))
        ways = [
            (
                "two stages, ARPACK to 1e-6",
                *_two_stages(data.graph, Settings("eigen", {"tol": 1e-6}, seed=seed)),
            ),
            (
                "two stages, block Lanczos to 1e-4",
                *_two_stages(data.graph, Settings("lanczos", tol=TOL, seed=seed)),
            ),
            ("two stages, the steps of joint", *same_steps(layers, seed)),
        ]
        solution, merged, _ = run(layers, K, Settings(seed=seed, tol=TOL), RunContext())
        n_edges = sum(layer.n_edges for layer in data.graph.layers)
        ways.append(("joint", solution.last.edges_seen / n_edges, 0.0, merged))
        for name, first, second, vectors in ways:
            cells = [f"{passes:.0f}" for passes in (first, second, first + second)]
            rows.append([seed, name, *cells, f"{_nmi(vectors, data.labels):.3f}"])
    return table(("seed", "way", "layers", "merge", "passes", "NMI"), rows)


def by_mini_batches(sizes: tuple[int, ...] = (4_000, 10_000)) -> str:
    """`joint` by passes and by mini-batches throughout, Table 1's data."""
    rows = []
    for n_nodes, seed in ((n_nodes, seed) for n_nodes in sizes for seed in (0, 1)):
        data = datasets.make_multilayer_gmm(n_nodes, random_state=seed)
        for steps in ("passes", "sgd"):
            options = {"steps": steps}
            found = merge(data.graph, K, Settings(seed=seed), aggregation="joint", aggregation_params=options)
            assert found.result is not None
            every = [found.result, *found.layers]
            scored = [_nmi(one.embedding.vectors, data.labels) for one in every]
            n_edges = sum(layer.n_edges for layer in data.graph.layers)
            passes = f"{found.result.last.edges_seen / n_edges:.0f}"
            met = "yes" if found.result.certificate.converged else "no"
            rows.append([f"{n_nodes:,}", seed, f"`{steps}`", passes, met, *(f"{x:.3f}" for x in scored)])
    head = ("nodes", "seed", "steps", "passes", "certificate met", "NMI", "layer 1", "2", "3")
    return "`joint`, three layers of k-NN graphs, K=5:\n\n" + table(head, rows)


def _nmi(vectors: np.ndarray, truth: np.ndarray) -> float:
    return metrics.nmi(truth, assign(vectors, K, unit_rows=True, random_state=0).labels)


def _two_stages(graph, settings: Settings) -> tuple[float, float, np.ndarray]:  # type: ignore[no-untyped-def]
    stages = merge(graph, K, settings)
    found = stages.embed(K, settings)
    layers = float(np.mean([layer.last.matvecs for layer in stages.layers])) / K
    return layers, found.last.matvecs / K, found.embedding.vectors
