"""Memory of a fit beyond the graph itself: it must grow like N K, not like the edges or N^2."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.harness import table

SCRIPT = """
import ctypes, json, resource, sys, threading, time
import numpy as np
from spectrograd import SpectralClustering, datasets
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, Stopping, make_solver, solve

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

def peak_during(f):
    before, peak, stop = resident(), [0], threading.Event()
    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], resident() - before)
            time.sleep(0.002)
    thread = threading.Thread(target=watch); thread.start()
    try: f()
    finally: stop.set(); thread.join()
    return peak[0]

def fit(graph):
    problem = Problem(laplacian(graph, "random_walk"), 5)
    solve(problem, make_solver("{solver}"), stopping=Stopping(max_iter={steps}), seed=0)

fit(datasets.make_block_model(5000, 5, random_state=0).graph)  # compile and load first
graph = datasets.make_block_model({n_nodes}, 5, random_state=0).graph
graph.degrees
ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what making the graph left behind
size = sum(b.indices.nbytes + b.indptr.nbytes for b in graph.blocks)
print(json.dumps([size, peak_during(lambda: fit(graph))]))
"""


def run() -> str:
    rows = []
    for solver, steps in (("chebyshev", 10), ("lanczos", 5), ("sgd", 3), ("sgd-paper", 100)):
        for n_nodes in (10_000, 100_000, 1_000_000):
            script = SCRIPT.format(solver=solver, n_nodes=n_nodes, steps=steps)
            output = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True
            )
            size, peak = json.loads(output.stdout)
            rows.append(
                (
                    solver,
                    f"{n_nodes:,}",
                    f"{size / 1e6:.1f}",
                    f"{peak / 1e6:.1f}",
                    f"{peak / (n_nodes * 5 * 8):.1f}",
                )
            )
    head = ("solver", "N", "graph, MB", "fit beyond it, MB", "in units of one N x K float64 array")
    return "## Memory\n\nBlock models of mean degree 20, K = 5; peak resident memory:\n\n" + table(head, rows)
