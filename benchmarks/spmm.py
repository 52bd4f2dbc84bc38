"""SpMM kernel against scipy's `csr @ dense` on a random graph of ten million nonzeros."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.harness import best_of, table
from spectrograd import datasets
from spectrograd.operators.laplacian import laplacian


def run(n_nodes: int = 500_000, mean_degree: float = 20.0) -> str:
    graph = datasets.make_block_model(n_nodes, 5, mean_degree=mean_degree, random_state=0).graph
    operator = laplacian(graph, "unnormalized")
    rng = np.random.default_rng(0)
    rows = []
    for dtype in (np.float32, np.float64):
        matrix = graph.matrix.astype(dtype)
        typed = operator.astype(dtype)
        for columns in (5, 8, 16):
            U = rng.standard_normal((n_nodes, columns)).astype(dtype)
            _ = typed @ U  # compile outside the timer
            # interleaved, so that a noisy neighbour meets both
            products = (partial(matrix.__matmul__, U), partial(typed.__matmul__, U))
            pairs = [tuple(best_of(product, 2) for product in products) for _ in range(5)]
            peer, ours = (min(times) for times in zip(*pairs, strict=True))
            per_entry = ours / graph.n_entries * 1e9
            rows.append(
                (
                    np.dtype(dtype).name,
                    columns,
                    f"{peer:.3f}",
                    f"{ours:.3f}",
                    f"{per_entry:.1f}",
                    f"{peer / ours:.2f}x",
                )
            )
    head = ("type", "columns", "scipy s", "ours s", "ours ns/nonzero", "ratio")
    return (
        f"## SpMM: one pass over {graph.n_entries:,} nonzeros\n\n"
        "`Operator @ U` (Laplacian, 2 threads) against `scipy.sparse.csr_array @ U` (adjacency only):\n\n"
        + table(head, rows)
    )
