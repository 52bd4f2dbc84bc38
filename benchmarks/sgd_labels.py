"""Labels: methods without a subspace (label propagation, SCoDA), and `auto` beside `sgd`."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks.harness import table
from benchmarks.sgd import CASES, HUBS
from spectrograd import datasets
from spectrograd.kernels.jit import serial
from spectrograd.metrics import nmi
from spectrograd.pipeline import Settings, cluster
from spectrograd.solvers.minibatch import ResidentEdges


def run() -> str:
    return labels_only() + "\n\n" + auto_or_sgd()


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


def auto_or_sgd() -> str:
    """Labels where no tolerance is asked for: what `auto` does, and a few passes of `sgd`."""
    rows = []
    for n_nodes in (2_000, 10_000, 100_000):  # the first to compile
        for case in (*CASES, HUBS):
            made = datasets.make_block_model(
                n_nodes, case.k, mixing=case.mixing, degree_exponent=case.exponent, random_state=0
            )
            row: list[Any] = [case.name, f"{n_nodes:,}"]
            for solver, params in (("auto", {}), ("sgd", {"epochs": 3})):
                began = time.perf_counter()
                settings = Settings(n_components=case.k, solver=solver, params=params, seed=0)
                found = cluster(made.graph, settings).labels
                row += [f"{time.perf_counter() - began:.2f}", f"{nmi(made.labels, found):.3f}"]
            rows.append(row)
    head = ["graph", "nodes", "`auto`, s", "NMI", "`sgd`, 3 passes, s", "NMI"]
    busy = f"on a machine whose load was {os.getloadavg()[0]:.0f}"
    return f"Labels and certificate, no tolerance asked for, {busy}:\n\n" + table(
        head, rows[len(CASES) + 1 :]
    )
