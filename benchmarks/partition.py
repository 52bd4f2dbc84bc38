"""Many clusters: `sgd` beside `auto` on graphs of the GraphChallenge's kind; see `graph_challenge`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.harness import table

# SPECTROGRAD_PARTITION=20000 is the quick form.
LARGEST = int(os.environ.get("SPECTROGRAD_PARTITION", 200_000))
WAYS = (("auto", {}), ("sgd", {"epochs": 3}))
# A process of its own, so that its largest memory is that of one run. Small graphs first: to compile.
SCRIPT = """
import json, resource, sys, time
from spectrograd import datasets
from spectrograd.metrics import adjusted_rand_index, nmi
from spectrograd.pipeline import Settings, cluster
n_nodes, solver, params = json.loads(sys.argv[1])
for size in (2_000, n_nodes):
    made = datasets.make_partition_graph(size, random_state=0)
    k = int(made.labels.max()) + 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    found = cluster(made.graph, Settings(n_components=k, solver=solver, params=params, seed=0)).labels
    seconds = time.perf_counter() - began
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([
    k, made.graph.n_edges, seconds, most / 2**20, before / 2**20,
    nmi(made.labels, found), adjusted_rand_index(made.labels, found),
]))
"""


def run() -> str:
    rows = []
    for n_nodes in [size for size in (20_000, 200_000) if size <= LARGEST]:
        for solver, params in WAYS:
            given = json.dumps([n_nodes, solver, params])
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", SCRIPT, given],
                check=True,
                capture_output=True,
                text=True,
            )
            k, n_edges, seconds, most, before, *scores = json.loads(done.stdout)
            cells = [f"{seconds:.1f}", f"{most:.2f} ({before:.2f})", *(f"{x:.3f}" for x in scores)]
            rows.append([f"{n_nodes:,}", f"{n_edges:,}", k, f"`{solver}`", *cells])
    text = (
        "Graphs like the GraphChallenge's for streaming partition (static, 5 ends inside per 1 outside),\n"
        "labels included; `sgd` with 3 passes:\n\n"
    )
    memory = "GiB at most (before the run)"
    return text + table(["nodes", "edges", "clusters", "solver", "seconds", memory, "NMI", "ARI"], rows)
