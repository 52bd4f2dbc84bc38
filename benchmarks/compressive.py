"""Many clusters: `compressive` against `chebyshev` in memory, and over stores larger than their limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.harness import table
from benchmarks.larger_than_memory import convert, generate, scores, watched

# SPECTROGRAD_COMPRESSIVE=0.1 is the quick form: sizes are multiplied by it.
SCALE = float(os.environ.get("SPECTROGRAD_COMPRESSIVE", 1))
SOLVERS = ("compressive", "chebyshev")
MEAN_DEGREE = 20
MOST_SECONDS = 400  # of a run in memory


class Case(NamedTuple):
    """A graph in memory; ``mixing`` is the share of the edges between clusters."""

    kind: str
    n_nodes: int
    n_clusters: int
    mixing: float


CASES = (
    Case("block model", 10_000, 100, 0.3),
    Case("block model", 40_000, 400, 0.2),
    Case("power laws", 100_000, 400, 0.15),
    Case("power laws", 100_000, 1_000, 0.15),
)
# Nodes, edges, clusters, memory limit: of benchmarks.larger_than_memory, half of the edges within clusters.
STORES = ((200_000, 10_000_000, 100, "500MB"), (2_000_000, 100_000_000, 100, "2GB"))
# A process of its own, so that its largest memory is that of one run; a small graph first, to compile.
SCRIPT = """
import json, resource, sys, time
from benchmarks.labelled_sets import power_law_graph
from spectrograd import datasets
from spectrograd.metrics import adjusted_rand_index
from spectrograd.pipeline import Settings, cluster
kind, n_nodes, k, mixing, degree, solver = json.loads(sys.argv[1])
def run(n, k):
    if kind == "power laws":
        graph, labels = power_law_graph(0, n, k, degree, mixing)
    else:
        made = datasets.make_block_model(n, k, mean_degree=degree, mixing=mixing, random_state=0)
        graph, labels = made.graph, made.labels
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    found = cluster(graph, Settings(n_components=k, solver=solver, seed=0, regularization=None))
    return found, labels, time.process_time() - began, before, graph.n_edges
run(5_000, 10)
found, labels, seconds, before, n_edges = run(n_nodes, k)
mixed = found.certificate.mixed
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "edges": n_edges, "columns": found.vectors.shape[1], "passes": found.passes, "matvecs": found.matvecs,
    "CPU seconds": seconds, "peak memory GB": most / 1e6, "before": before / 1e6,
    "ARI": adjusted_rand_index(labels, found.labels), "certified": found.converged,
    "mixed": None if mixed is None else mixed.summary(),
}))
"""


def run() -> str:
    rows = [in_memory(case, solver) for case in CASES for solver in SOLVERS]
    rows += [on_disk(*sizes) for sizes in STORES]
    text = (
        f"Block models and power laws of mean degree {MEAN_DEGREE}, labels included (`regularization=None`); "
        "stores of `benchmarks.larger_than_memory`, half of their edges within clusters, by the command line "
        "(regularised where the evidence says so). CPU seconds of the whole run. The statement of "
        "`compressive`: eigenvalues counted, agreement of two halves of the columns. Memory is the largest "
        "resident set, and before the run; over a store anonymous memory.\n\n"
    )
    head = ["graph", "nodes", "edges", "K", "mixing", "solver", "columns", "passes", "matvecs", "CPU s"]
    return text + table([*head, "GB at most", "ARI", "statement"], rows)


def in_memory(case: Case, solver: str) -> list[object]:
    """One row: a run in a process of its own."""
    n = max(2_000, int(SCALE * case.n_nodes))
    given = json.dumps([case.kind, n, case.n_clusters, case.mixing, MEAN_DEGREE, solver])
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, given]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        row = [case.kind, f"{n:,}", "", f"{case.n_clusters:,}", f"{case.mixing:g}", f"`{solver}`"]
        return [*row, "", "", "", f"more than {MOST_SECONDS}", "", "", ""]
    found = json.loads(done.stdout)
    memory = f"{found['peak memory GB']:.2f} ({found['before']:.2f})"
    return _row(case.kind, n, case.n_clusters, f"{case.mixing:g}", solver, found, memory)


def on_disk(n_nodes: int, n_edges: int, k: int, limit: str) -> list[object]:
    """One row: made, converted and clustered within a limit, in a folder that is removed."""
    n = int(SCALE * n_nodes)
    with TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, n, int(SCALE * n_edges), k)
        convert(folder, n, limit)
        output = folder / "labels.npy"
        command = ["cluster", str(folder / "store"), "-k", str(k), "-o", str(output), "--memory-limit", limit]
        run = watched([*command, "--solver", "compressive"], folder / "run.json")
        summary = json.loads((folder / "run.json").read_text())
        found = run | scores(folder, output) | summary["solver"]
    found["edges"] = summary["graph"]["n_edges"]
    found["mixed"] = summary["certificate"]["mixed_columns"]
    found["certified"] = False
    found["columns"] = found["mixed"]["n_columns"] + 1
    return _row(f"store, limit {limit}", n, k, "0.5", "compressive", found, f"{found['peak memory GB']:.2f}")


def _row(
    kind: str, n: int, k: int, mixing: str, solver: str, found: dict[str, Any], memory: str
) -> list[object]:
    mixed = found["mixed"]
    statement = "certified" if found["certified"] else "not certified"
    if mixed is not None:
        verdict = "good" if mixed["good"] else "doubtful"
        counted = f"{mixed['count']:.0f} +- {mixed['standard_error']:.0f}"
        statement = f"{counted}, agreement {mixed['agreement']:.2f}: {verdict}"
    sizes = [kind, f"{n:,}", f"{found['edges']:,}", f"{k:,}", mixing, f"`{solver}`", found["columns"]]
    work = [f"{found['passes']:.0f}", f"{found['matvecs']:,.0f}", f"{found['CPU seconds']:,.1f}"]
    return [*sizes, *work, memory, f"{found['ARI']:.3f}", statement]
