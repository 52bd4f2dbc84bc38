"""Cold start: what the first fit on a machine costs, with an empty compile cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.harness import table

SCRIPT = """
import json, sys, time
began = time.perf_counter()
from spectrograd import SpectralClustering, MultilayerSpectralClustering, datasets
data = datasets.make_block_model({n_nodes}, 5, random_state=0)
imported = time.perf_counter()
SpectralClustering(5, random_state=0).fit(data.graph)
fitted = time.perf_counter()
if {multilayer}:
    layers = datasets.make_multilayer_gmm({n_nodes}, random_state=0)
    MultilayerSpectralClustering(5, random_state=0).fit(layers.graph)
done = time.perf_counter()
print(json.dumps([imported - began, fitted - imported, done - fitted, "numba" in sys.modules]))
"""


def run() -> str:
    rows = []
    for label, n_nodes, multilayer in (
        ("default fit, 2,000 nodes", 2000, False),
        ("default fit, 20,000 nodes", 20_000, False),
        ("default and multilayer fit, 20,000 nodes", 20_000, True),
    ):
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"NUMBA_CACHE_DIR": cache}
            script = SCRIPT.format(n_nodes=n_nodes, multilayer=multilayer)
            for attempt in ("first process", "second process"):
                output = subprocess.run(
                    [sys.executable, "-c", script],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                imported, fitted, more, compiled = json.loads(output)
                rows.append(
                    (label, attempt, f"{imported:.2f}", f"{fitted + more:.2f}", "yes" if compiled else "no")
                )
    head = ("what", "when", "import and data, s", "fit, s", "numba loaded")
    return "## Cold start\n\nEach pair of processes begins with an empty compile cache:\n\n" + table(
        head, rows
    )
