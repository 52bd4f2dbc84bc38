"""Multilayer benchmarks: aggregations on mfeat, a noisy layer, joint against two stages, the Yelp schema.

python -m benchmarks.multilayer mfeat --data DIR     # DIR/view_*.npz and DIR/labels.csv.gz
python -m benchmarks.multilayer noise | joint | yelp [--nodes N] [--seeds 3]
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np

from spectrograd import MultilayerGraph, MultilayerSpectralClustering, datasets, metrics
from spectrograd.aggregation import REGISTRY, Layers, layer_operators, without_absent
from spectrograd.aggregation.agreement import shuffled
from spectrograd.aggregation.joint import LOOSER, Joint
from spectrograd.aggregation.merge import merge
from spectrograd.cluster import assign
from spectrograd.solvers import Problem, Stopping, solve
from spectrograd.solvers.embed import Settings, embed


def mfeat(options: argparse.Namespace) -> None:
    """Six standardised views, 10-NN each, every aggregation with and without automatic weights."""
    folder = Path(options.data)
    with gzip.open(folder / "labels.csv.gz", "rt") as handle:
        labels = np.loadtxt(handle, delimiter=",", skiprows=1, usecols=1, dtype=int)
    views = {}
    for path in sorted(folder.glob("view_*.npz")):
        X = np.load(path)["X"].astype(float)
        views[path.stem.removeprefix("view_")] = (X - X.mean(axis=0)) / np.where(
            X.std(axis=0) > 0, X.std(axis=0), 1
        )
    print("| aggregation | layer_weights | NMI | ARI | purity | seconds |\n|---|---|---|---|---|---|")
    for aggregation in REGISTRY:
        for weights in (None, "auto"):
            model = MultilayerSpectralClustering(
                10,
                affinity="nearest_neighbors",
                aggregation=aggregation,
                layer_weights=weights,
                random_state=0,
            )
            began = time.perf_counter()
            scores = metrics.score(labels, model.fit(views).labels_)
            row = " | ".join(f"{scores[name]:.3f}" for name in ("nmi", "ari", "purity"))
            print(f"| {aggregation} | {weights} | {row} | {time.perf_counter() - began:.1f} |", flush=True)


def noise(options: argparse.Namespace) -> None:
    """What a random layer with the same degrees costs."""
    print("| seed | aggregation | layer_weights | NMI clean | NMI with noise | cost | weight of the noise |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        data = datasets.make_multilayer_gmm(options.nodes, random_state=seed)
        random = shuffled(data.graph.layers[0], np.random.default_rng(seed))
        noisy = MultilayerGraph.from_layers([*data.graph.layers, random])
        for aggregation, weights in (
            ("mean", None),
            ("mean", "auto"),
            ("projection", None),
            ("projection", "auto"),
        ):
            models = [
                MultilayerSpectralClustering(
                    5,
                    aggregation=aggregation,
                    layer_weights=weights,
                    random_state=0,
                    solver_params={"tol": 1e-6},
                ).fit(graph)
                for graph in (data.graph, noisy)
            ]
            clean, dirty = (metrics.nmi(data.labels, model.labels_) for model in models)
            print(
                f"| {seed} | {aggregation} | {weights} | {clean:.3f} | {dirty:.3f} | {clean - dirty:+.3f} "
                f"| {models[1].layer_weights_[-1]:.2f} |",
                flush=True,
            )


def two_stage_passes(
    graph: MultilayerGraph, seed: int, tol: float, merge_tol: float
) -> tuple[float, float, np.ndarray]:
    """Passes of the layers and of the merge with the filter and the stopping rule of ``joint``, one by one.

    A single layer under ``Joint`` without attraction is that layer's own problem; passes of layers are
    averaged by their edges, so that one pass reads every edge of every layer once, as for ``joint``.
    """
    operators = layer_operators(graph, "symmetric")
    limit = LOOSER * tol * sum(op.upper for op in operators)
    bases, passes = [], 0.0
    for operator in operators:
        alone = Layers((without_absent(operator),), np.ones(1))
        solver = Joint(alone, np.zeros(1))
        run = solve(Problem(operator, 5), solver, stopping=Stopping(None, limit), seed=seed)
        bases.append(run.Q[:, 5:])
        passes += run.last.passes * operator.graph.n_edges / graph.n_edges
    settled = Settled(
        Layers(operators, np.ones(len(operators))), np.full(len(operators), 0.5), bases=tuple(bases)
    )
    merge_limit = limit * merge_tol / tol
    run = solve(Problem(operators[0], 5), settled, stopping=Stopping(None, merge_limit), seed=seed)
    return passes, run.last.passes, run.Q[:, :5]


class Settled(Joint):
    """The merge alone: the layers' bases are given and stay; it starts from their common directions."""

    def __init__(self, *args: object, bases: tuple[np.ndarray, ...]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        object.__setattr__(self, "bases", bases)
        object.__setattr__(self, "epochs", 0)

    def init(self, problem, rng):  # type: ignore[no-untyped-def]
        """Start from the top left singular vectors of all bases."""
        width = problem.n_components + self.guard
        common = np.linalg.svd(np.hstack(self.bases), full_matrices=False)[0]
        state = super().init(problem, rng)
        state.blocks[0], state.passes = np.ascontiguousarray(common[:, :width]), 0.0
        self._measure(problem, state)
        return state

    def _measure(self, problem, state):  # type: ignore[no-untyped-def]
        state.blocks = [
            state.blocks[0],
            *(_padded(U, state.blocks[0].shape[1], state.rng) for U in self.bases),
        ]
        super()._measure(problem, state)
        state.residuals = state.residuals[:1]


def _padded(U: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    fresh = rng.standard_normal((len(U), width - U.shape[1]))
    return np.hstack([U, fresh - U @ (U.T @ fresh)])


def joint(options: argparse.Namespace) -> None:
    """Passes over the edges against NMI, for several tolerances: one run, or two stages of the same steps."""
    print("| seed | method | tol | passes: layers | merge | total | NMI |\n|---|---|---|---|---|---|---|")
    for seed in range(options.seeds):
        data = datasets.make_multilayer_gmm(options.nodes, random_state=seed)
        settings = Settings(seed=seed, params={"tol": 1e-6})
        apart = merge(data.graph, 5, settings)
        merged = embed(apart.operator, 5, settings)
        mean = float(np.mean([layer.solution.last.passes for layer in apart.layers]))
        rows = [("two stages, ARPACK", 1e-6, mean, merged.solution.last.passes, merged.embedding.vectors)]
        for tol in (3e-3, 1e-3, 3e-4, 1e-4):
            together = merge(data.graph, 5, Settings(seed=seed, tol=tol), aggregation="joint").result
            assert together is not None
            rows.append(("joint", tol, together.solution.last.passes, 0.0, together.embedding.vectors))
        for tol in (1e-4, 3e-5, 1e-5, 3e-6):
            rows.append(("two stages, same steps", tol, *two_stage_passes(data.graph, seed, tol, 1e-3)))
        for method, tol, first, second, vectors in rows:
            found = assign(vectors, 5, unit_rows=True, random_state=0).labels
            passes = f"{first:.0f} | {second:.0f} | {first + second:.0f}"
            print(
                f"| {seed} | {method} | {tol:g} | {passes} | {metrics.nmi(data.labels, found):.3f} |",
                flush=True,
            )


def yelp(options: argparse.Namespace) -> None:
    """The paper's second table on made-up files in the Yelp schema."""
    with tempfile.TemporaryDirectory() as folder:
        datasets.write_yelp_like(folder, options.nodes, seed=0)
        began = time.perf_counter()
        data = datasets.load_yelp(folder, cache=None, n_jobs=-1)
    print(f"read and scored in {time.perf_counter() - began:.1f} s: {data.graph}", flush=True)
    # votes are whole numbers: places with more than five businesses are components of their own, and
    # ARPACK at full precision would hunt for every copy of the eigenvalue zero
    merged = merge(data.graph, 3, Settings(seed=0, params={"tol": 1e-3}))
    print(f"layers {merged.seconds['layers']:.1f} s\n")
    print("| method | seconds | iterations | purity | NMI | RI | ARI |\n|---|---|---|---|---|---|---|")
    for name, params in (
        ("eigen", {"method": "arpack"}),
        ("stochastic-fb", {"max_iter": 3000}),
        ("sgd-paper", {"max_iter": 500}),
    ):
        if name != "eigen":
            embed(merged.operator, 3, Settings(solver=name, max_iter=2, seed=0))  # compile
        result = embed(merged.operator, 3, Settings(solver=name, params=params, seed=0))
        found = assign(result.embedding.vectors, 3, unit_rows=True, random_state=0).labels
        scores = " | ".join(f"{value:.3f}" for value in metrics.score(data.labels, found).values())
        solution = result.solution
        print(f"| {name} | {solution.seconds:.2f} | {solution.last.iteration} | {scores} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["mfeat", "noise", "joint", "yelp"])
    parser.add_argument("--data", default="../shared/data/mfeat")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    {"mfeat": mfeat, "noise": noise, "joint": joint, "yelp": yelp}[options.what](options)


if __name__ == "__main__":
    main()
