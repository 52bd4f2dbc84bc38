"""Coordinate-power against plain power iteration: coordinate updates until the same residual.

Run ``python benchmarks/coordinate_power.py``. Both are the same solver, ``share=1`` being plain power
iteration with deflation; an update reads one column of the matrix for one vector. Two graphs: one with
localised eigenvectors (small dense groups hanging on a large core), one without (a block model).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

from spectrograd import datasets
from spectrograd.graph import Graph
from spectrograd.laplacian import laplacian
from spectrograd.metrics import largest_principal_angle
from spectrograd.solvers.embed import Settings, embed


def localised_graph(n_core: int, n_groups: int, group_size: int, seed: int) -> Graph:
    """A random core with small cliques, each tied to it by two edges: their indicators are eigenvectors."""
    rng = np.random.default_rng(seed)
    core = datasets.make_block_model(n_core, 1, mean_degree=20, random_state=seed).graph.matrix
    clique = np.ones((group_size, group_size)) - np.eye(group_size)
    W = sp.block_diag([core, *[clique] * n_groups]).tolil()
    for group in range(n_groups):
        first = n_core + group * group_size
        for member in (first, first + 1 + group % (group_size - 1)):
            anchor = int(rng.integers(n_core))
            W[member, anchor] = W[anchor, member] = 1.0
    return Graph.from_matrix(sp.csr_array(W))


def updates(operator, k: int, share: float, seed: int):
    """Coordinate updates, seconds and the result of one run; the shift's estimate is not counted."""
    settings = Settings(
        solver="coordinate-power", params={"share": share, "sweeps": 2, "max_iter": 20_000}, seed=seed
    )
    before = embed(operator, k, Settings(solver="nystrom", params={"n_landmarks": k}, seed=seed))
    began = time.perf_counter()
    result = embed(operator, k, settings)
    seconds = time.perf_counter() - began
    estimate = before.solution.last.passes - k / operator.n_nodes
    return (result.solution.last.passes - estimate) * operator.n_nodes, seconds, result


def report(title: str, graph: Graph, k: int, shares: list[float], seeds: range) -> None:
    operator = laplacian(graph)
    exact = embed(operator, k, Settings(solver="eigen", seed=0)).embedding.vectors
    print(f"\n{title}: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, K = {k}")
    print(f"{'share':>7} {'updates (million)':>18} {'against plain':>14} {'seconds':>8} {'angle':>9}  good")
    plain = None
    for share in shares:
        runs = [updates(operator, k, share, seed) for seed in seeds]
        count, seconds = (float(np.median([run[i] for run in runs])) for i in (0, 1))
        plain = count if plain is None else plain
        angles = [largest_principal_angle(run[2].embedding.vectors, exact, operator.metric) for run in runs]
        good = all(run[2].certificate.converged for run in runs)
        print(
            f"{share:7.3f} {count / 1e6:18.2f} {plain / count:13.1f}x {seconds:8.2f} "
            f"{max(angles):9.1e}  {good}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    shares, seeds = [1.0, 0.2, 0.05, 0.01], range(options.seeds)
    report("localised", localised_graph(options.nodes, 7, 30, 0), 8, shares, seeds)
    report(
        "not localised", datasets.make_block_model(options.nodes, 8, random_state=0).graph, 8, shares, seeds
    )


if __name__ == "__main__":
    main()
