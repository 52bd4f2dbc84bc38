"""Many clusters: `compressive` against `chebyshev` on block models, and over a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.harness import table

# SPECTROGRAD_COMPRESSIVE=0.1 is the quick form: sizes are multiplied by it.
SCALE = float(os.environ.get("SPECTROGRAD_COMPRESSIVE", 1))
# Nodes, clusters, mixing (share of the edges between clusters), memory limit of a store.
CASES = (
    (10_000, 100, 0.3, None),
    (40_000, 400, 0.2, None),
    (1_000_000, 100, 0.3, 600_000_000),
)
# A process of its own, so that its largest memory is that of one run; a small graph first, to compile.
SCRIPT = """
import json, resource, sys, tempfile, time
from spectrograd import datasets, open_store, write_graph
from spectrograd.metrics import adjusted_rand_index
from spectrograd.pipeline import Settings, cluster
n_nodes, k, mixing, limit, solver = json.loads(sys.argv[1])
def run(n, k):
    made = datasets.make_block_model(n, k, mixing=mixing, random_state=0)
    graph, labels = made.graph, made.labels
    if limit is not None:
        folder = tempfile.mkdtemp() + "/graph.store"
        write_graph(folder, graph)
        del made, graph
        graph = open_store(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    settings = Settings(n_components=k, solver=solver, seed=0, regularization=None, memory_limit=limit)
    found = cluster(graph, settings)
    return found, labels, time.process_time() - began, before, graph.n_edges
run(5_000, 10)
found, labels, seconds, before, n_edges = run(n_nodes, k)
mixed = found.certificate.mixed
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([
    n_edges, found.matvecs, found.passes, seconds, found.vectors.shape[1], before / 1024, most / 1024,
    adjusted_rand_index(labels, found.labels), found.converged,
    None if mixed is None else [mixed.count, mixed.standard_error, mixed.agreement, mixed.is_good],
]))
"""


def run() -> str:
    rows = []
    for n_nodes, k, mixing, limit in CASES:
        n = max(2_000, int(SCALE * n_nodes))
        for solver in ("compressive", "chebyshev") if limit is None else ("compressive",):
            rows.append(measure(n, k, mixing, limit, solver))
    text = (
        "Block models of mean degree 20, labels included (`regularization=None`). CPU seconds of the whole\n"
        "run. The statement of `compressive`: eigenvalues counted, agreement of two halves of columns.\n\n"
    )
    head = ["nodes", "edges", "K", "mixing", "solver", "columns", "passes", "matvecs", "CPU s"]
    return text + table([*head, "MB at most (before)", "ARI", "statement"], rows)


def measure(n: int, k: int, mixing: float, limit: int | None, solver: str) -> list[object]:
    """One row: a run in a process of its own."""
    given = json.dumps([n, k, mixing, limit, solver])
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, given]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    n_edges, matvecs, passes, seconds, width, before, most, ari, converged, mixed = json.loads(done.stdout)
    statement = "certified" if converged else "not certified"
    if mixed is not None:
        count, error, agreement, good = mixed
        verdict = "good" if good else "doubtful"
        statement = f"{count:.0f} +- {error:.0f}, agreement {agreement:.2f}: {verdict}"
    where = f"{n:,}" if limit is None else f"{n:,} (store)"
    cells = [f"{passes:.0f}", f"{matvecs:,}", f"{seconds:.1f}", f"{most:,.0f} ({before:,.0f})", f"{ari:.3f}"]
    return [where, f"{n_edges:,}", k, mixing, f"`{solver}`", width, *cells, statement]
