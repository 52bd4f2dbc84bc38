"""Coordinate-power against plain power iteration: coordinate updates until the same residual.

An update computes one coordinate of one vector, which reads
one column of the matrix. Baselines: ``share=1``, the same solver without choosing coordinates, and the block
method ``power`` with either shift, whose pass is N updates for each of the K vectors. All stop at the same
residual; estimating the shift is not counted, Rayleigh-Ritz inside the solver is. Two graphs: small dense
groups hanging on a large core (localised eigenvectors) and a block model (spread out).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import table, timed
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
N_NODES = 10_000
N_SEEDS = 3
K = 8
SHARES = (1.0, 0.2, 0.05, 0.01)


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


def participation(operator: Any, vectors: Any) -> float:
    """Median over vectors of (sum p)^2 / (N sum p^2), p squared entries: 1 spread out, 1/N one node."""
    p = vectors**2 * (1 if operator.metric is None else operator.metric[:, None])
    return float(np.median(p.sum(axis=0) ** 2 / (len(p) * (p**2).sum(axis=0))))


def shift_matvecs(operator: Any, k: int) -> float:
    """What estimating the positive semidefinite shift costs; about the same for every start."""
    state = State(np.zeros((operator.n_nodes, k)), np.random.default_rng(0))
    Similarity.of(Problem(operator, k), state, "psd")
    return state.matvecs


def contenders() -> list[tuple[str, str, dict[str, Any]]]:
    """Label, solver and parameters."""
    rows = [(f'`power`, `shift="{shift}"`', "power", {"shift": shift}) for shift in ("centre", "psd")]
    common = {"vector_tol": TOLERANCE, "sweeps": 2, "max_iter": 20_000}
    return rows + [
        (f"`coordinate-power`, `share={share:g}`", "coordinate-power", {"share": share} | common)
        for share in SHARES
    ]


def run() -> str:
    """Both graphs: updates, seconds and angles of every contender."""
    graphs = {
        "small cliques on a core": localised_graph(N_NODES, 7, 30, 0),
        "block model": datasets.make_block_model(N_NODES, K, random_state=0).graph,
    }
    # Measured after every iteration, so that no method runs on past the goal.
    every, Power.report_every = Power.report_every, 1
    try:
        rows = [row for title, graph in graphs.items() for row in measure(title, graph)]
    finally:
        Power.report_every = every
    header = ("graph", "participation", "solver", "updates (million): median, least to most")
    return (
        f"Coordinate updates until a relative residual of {TOLERANCE:g}, K = {K}, {N_SEEDS} seeds, "
        "Rayleigh-Ritz included, estimating the shift not:\n\n"
        + table((*header, "s", "largest angle", "certified"), rows)
    )


def measure(title: str, graph: Graph) -> list[list[str]]:
    """A row per contender."""
    operator = laplacian(graph)
    exact = embed(operator, K, Settings(solver="eigen", seed=0)).embedding.vectors
    spread = f"{participation(operator, exact):.3f}"
    rows = []
    for label, solver, params in contenders():
        runs = [
            timed(embed, operator, K, Settings(solver=solver, params=params, tol=TOLERANCE, seed=seed))
            for seed in range(N_SEEDS)
        ]
        found = [result for _, result in runs]
        shift = 0.0 if params.get("shift") == "centre" else shift_matvecs(operator, K)
        counts = [(result.last.matvecs - shift) * graph.n_nodes / 1e6 for result in found]
        angles = [
            largest_principal_angle(result.embedding.vectors, exact, operator.metric) for result in found
        ]
        certified = "yes" if all(result.certificate.converged for result in found) else "no"
        updates = f"{np.median(counts):.2f}, {min(counts):.2f} to {max(counts):.2f}"
        seconds = f"{np.median([seconds for seconds, _ in runs]):.2f}"
        name = f"{title}, {graph.n_nodes:,} nodes"
        rows.append([name, spread, label, updates, seconds, f"{max(angles):.1e}", certified])
    return rows
