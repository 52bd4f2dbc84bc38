"""Labels without a subspace, beside `sgd`: label propagation, SCoDA; the partition challenge's graphs."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks.harness import table
from spectrograd import datasets
from spectrograd.kernels.jit import serial
from spectrograd.metrics import adjusted_rand_index, nmi
from spectrograd.pipeline import Settings, cluster
from spectrograd.solvers.edge_source import ResidentEdges

# SPECTROGRAD_PARTITION=2000000 is the challenge's largest graph.
PARTITION = int(os.environ.get("SPECTROGRAD_PARTITION", 20_000))


def run() -> str:
    return labels_only() + "\n\n" + partition()


@serial
def propagate(indptr: Any, indices: Any, order: Any, labels: Any) -> int:
    """Mutates: labels, each node takes the most frequent one of its neighbours; how many changed."""
    counts = np.zeros(labels.shape[0], np.int32)
    changed = 0
    for i in order:
        best = labels[i]
        for p in range(indptr[i], indptr[i + 1]):
            label = labels[indices[p]]
            counts[label] += 1
            if counts[label] > counts[best]:
                best = label
        for p in range(indptr[i], indptr[i + 1]):
            counts[labels[indices[p]]] = 0
        changed += best != labels[i]
        labels[i] = best
    return changed


@serial
def scoda(heads: Any, tails: Any, n_nodes: int, limit: int) -> Any:
    """One pass (Hollocou et al., arXiv 1703.02955): who has the smaller degree so far joins the other."""
    labels, degrees = np.arange(n_nodes), np.zeros(n_nodes, np.int32)
    for e in range(heads.shape[0]):
        i, j = heads[e], tails[e]
        degrees[i] += 1
        degrees[j] += 1
        if degrees[i] <= limit and degrees[j] <= limit:
            if degrees[i] > degrees[j]:
                labels[j] = labels[i]
            else:
                labels[i] = labels[j]
    return labels


def labels_only(n_nodes: int = 10_000) -> str:
    """Label propagation (until a twentieth changes) and SCoDA on the graphs of the first table."""
    rows = []
    for k, mixing in ((5, 0.2), (8, 0.3), (32, 0.3)):
        made = datasets.make_block_model(n_nodes, k, mixing=mixing, random_state=0)
        matrix, rng = made.graph.matrix, np.random.default_rng(0)
        labels, rounds = np.arange(n_nodes), 0
        while rounds < 20:
            rounds += 1
            if propagate(matrix.indptr, matrix.indices, rng.permutation(n_nodes), labels) < n_nodes / 20:
                break
        edges = ResidentEdges.of(made.graph, rng).edges
        found = {"label propagation": (2 * rounds, labels)}  # each edge is read from both of its ends
        for limit in (2, 5, 10):
            found[f"SCoDA, degrees up to {limit}"] = (1, scoda(edges.heads, edges.tails, n_nodes, limit))
        for name, (reads, given) in found.items():
            n_labels = len(np.unique(given))
            rows.append([f"K={k}", name, reads, f"{nmi(made.labels, given):.3f}", f"{n_labels:,}"])
    text = f"Labels only, no subspace, {n_nodes:,} nodes (reads: how often an edge is read):\n\n"
    return text + table(["graph", "method", "reads", "NMI", "labels"], rows)


def partition() -> str:
    """The static graphs of the streaming-partition challenge, with `auto` and with `sgd`."""
    rows = []
    for n_nodes in [size for size in (20_000, 200_000, 2_000_000) if size <= PARTITION]:
        made = datasets.make_partition_graph(n_nodes, random_state=0)
        k = int(made.labels.max()) + 1
        for solver, params in (("auto", {}), ("sgd", {"epochs": 5})):
            began = time.perf_counter()
            settings = Settings(n_components=k, solver=solver, params=params, seed=0)
            found = cluster(made.graph, settings).labels
            spent = time.perf_counter() - began
            scores = (nmi(made.labels, found), adjusted_rand_index(made.labels, found))
            rows.append([f"{n_nodes:,}", k, f"`{solver}`", f"{spent:.1f}", *(f"{x:.3f}" for x in scores)])
    text = (
        "Graphs like the GraphChallenge's for streaming partition (static, 5 ends inside per 1 outside).\n"
        "The 2017 champion (LOBPCG) published 1,700 s and 50 GB for 2 million nodes:\n\n"
    )
    return text + table(["nodes", "clusters", "solver", "seconds, with labels", "NMI", "ARI"], rows)
