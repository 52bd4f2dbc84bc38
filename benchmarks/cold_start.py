"""Cold start: what the first fit on a machine costs, with an empty compile cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import table

SCRIPT = """
import json, sys, time
began = time.perf_counter()
from spectrograd import SpectralClustering, MultilayerSpectralClustering, datasets
data = datasets.make_block_model({n_nodes}, 5, random_state=0)
imported = time.perf_counter()
SpectralClustering(5, random_state=0).fit(data.graph)
if {multilayer}:
    layers = datasets.make_multilayer_gmm({n_nodes}, random_state=0)
    MultilayerSpectralClustering(5, random_state=0).fit(layers.graph)
done = time.perf_counter()
print(json.dumps([imported - began, done - imported, time.process_time(), "numba" in sys.modules]))
"""


def run() -> str:
    rows = []
    for label, n_nodes, multilayer in (
        ("default fit, 2,000 nodes", 2000, False),
        ("default fit, 20,000 nodes", 20_000, False),
        ("default and multilayer fit, 20,000 nodes", 20_000, True),
    ):
        attempts = zip(("first process", "second process"), fit_twice(n_nodes, multilayer), strict=True)
        for attempt, (imported, fitted, busy, compiled) in attempts:
            seconds = (f"{spent:.2f}" for spent in (imported, fitted, busy))
            rows.append((label, attempt, *seconds, "yes" if compiled else "no"))
    head = ("what", "when", "import and data, s", "fit, s", "all, s of all threads", "numba loaded")
    return "## Cold start\n\nEach pair of processes begins with an empty compile cache:\n\n" + table(
        head, rows
    )


def fit_twice(n_nodes: int, multilayer: bool) -> list[tuple[float, float, float, bool]]:
    """Two processes that begin with an empty cache: seconds to import, to fit, busy; numba loaded."""
    script = SCRIPT.format(n_nodes=n_nodes, multilayer=multilayer)
    with tempfile.TemporaryDirectory() as cache:
        how: Any = {"env": os.environ | {"NUMBA_CACHE_DIR": cache}, "capture_output": True, "text": True}
        command = [sys.executable, "-c", script]
        return [json.loads(subprocess.run(command, check=True, **how).stdout) for _ in range(2)]
