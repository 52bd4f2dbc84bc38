"""Coordinate-power against plain power iteration: coordinate updates until the same residual.

Run ``python benchmarks/coordinate_power.py``. An update computes one coordinate of one vector, which reads
one column of the matrix. Baselines: ``share=1``, the same solver without choosing coordinates, and the block
method ``power`` with either shift, whose pass is N updates for each of the K vectors. All stop at the same
residual; estimating the shift is not counted, Rayleigh-Ritz inside the solver is. Two graphs: small dense
groups hanging on a large core (localised eigenvectors) and a block model (spread out).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

from spectrograd import datasets
from spectrograd.graph import Graph
from spectrograd.metrics import largest_principal_angle
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, State
from spectrograd.solvers.power import Power
from spectrograd.solvers.similarity import Similarity

TOLERANCE = 5e-5


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


def participation(operator, vectors) -> float:
    """Median over vectors of (sum p)^2 / (N sum p^2), p squared entries: 1 spread out, 1/N one node."""
    p = vectors**2 * (1 if operator.metric is None else operator.metric[:, None])
    return float(np.median(p.sum(axis=0) ** 2 / (len(p) * (p**2).sum(axis=0))))


def shift_matvecs(operator, k: int) -> float:
    """What estimating the positive semidefinite shift costs; about the same for every start."""
    state = State(np.zeros((operator.n_nodes, k)), np.random.default_rng(0))
    Similarity.of(Problem(operator, k), state, "psd")
    return state.matvecs


def contenders(shares: list[float]) -> list[tuple[str, str, dict]]:
    """Label, solver and parameters."""
    rows = [(f"power, shift={shift}", "power", {"shift": shift}) for shift in ("centre", "psd")]
    common = {"vector_tol": TOLERANCE, "sweeps": 2, "max_iter": 20_000}
    return rows + [
        (f"coordinate-power, share={share:g}", "coordinate-power", {"share": share} | common)
        for share in shares
    ]


def report(title: str, graph: Graph, k: int, shares: list[float], seeds: range) -> None:
    operator = laplacian(graph)
    exact = embed(operator, k, Settings(solver="eigen", seed=0)).embedding.vectors
    print(f"\n{title}: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, K = {k}, ", end="")
    print(f"median participation ratio {participation(operator, exact):.3f}")
    print(f"{'':32} {'updates (million): median, least..most':>40} {'seconds':>8} {'angle':>8}  good")
    for label, solver, params in contenders(shares):
        counts, seconds, angles, good = [], [], [], True
        for seed in seeds:
            began = time.perf_counter()
            result = embed(operator, k, Settings(solver=solver, params=params, tol=TOLERANCE, seed=seed))
            seconds.append(time.perf_counter() - began)
            matvecs = result.last.matvecs
            if params.get("shift") != "centre":
                matvecs -= shift_matvecs(operator, k)
            counts.append(matvecs * graph.n_nodes / 1e6)
            angles.append(largest_principal_angle(result.embedding.vectors, exact, operator.metric))
            good = good and result.certificate.converged
        spread = f"{np.median(counts):.2f}, {min(counts):.2f}..{max(counts):.2f}"
        print(f"{label:32} {spread:>40} {np.median(seconds):8.2f} {max(angles):8.1e}  {good}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    Power.report_every = 1  # measure after every iteration, so that no method runs on past the goal
    shares, seeds = [1.0, 0.2, 0.05, 0.01], range(options.seeds)
    report("localised", localised_graph(options.nodes, 7, 30, 0), 8, shares, seeds)
    block_model = datasets.make_block_model(options.nodes, 8, random_state=0).graph
    report("not localised", block_model, 8, shares, seeds)


if __name__ == "__main__":
    main()
