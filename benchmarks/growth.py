"""Growth: time of the default embedding against nonzeros, 1e5 to 1e8, on an expander and a geometric graph.

`python -m benchmarks growth`, or with sizes of one's own: `python -m benchmarks.growth 1e5 1e6`. Every run
is a process of its own (`python -m benchmarks.growth FAMILY NONZEROS`), compiled before the timer starts.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import seconds_per_pass, table
from benchmarks.plots import growth_plot

SIZES = (1e5, 1e6, 1e7, 1e8)
LONGEST = 1800
RESULTS = Path(__file__).parent / "results" / "growth.json"

Run = dict[str, Any]


def block_model(n_nonzeros: float) -> Any:
    """Five blocks, mean degree 20."""
    from spectrograd.datasets import make_block_model

    return make_block_model(round(n_nonzeros / 20), 5, random_state=0).graph


def neighbours(n_nonzeros: float) -> Any:
    """The ten nearest neighbours of five Gaussian clouds in the plane."""
    from spectrograd.datasets import make_gaussian_mixture
    from spectrograd.points.knn_graph import knn_graph

    points, _ = make_gaussian_mixture(round(n_nonzeros / 11.4), 5, random_state=0)
    return knn_graph(points, 10)


FAMILIES: dict[str, Callable[[float], Any]] = {"block model": block_model, "k-NN": neighbours}


def run(sizes: tuple[float, ...] = SIZES) -> str:
    """Both families at every size; the page's section, with the slopes."""
    found: dict[str, list[Run]] = {}
    for family in FAMILIES:
        found[family] = []
        for size in sizes:
            one = _alone(family, size)
            print(family, f"{size:.0e}", one, flush=True)
            found[family].append(one)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1))
    return page(found)


def page(found: dict[str, list[Run]]) -> str:
    """A table, the slopes and the picture."""
    rows = [
        (
            family,
            f"{r['nodes']:,}",
            f"{r['nonzeros']:,}",
            r["solver"],
            "yes" if r["converged"] else "no",
            f"{r['seconds']:.3g}",
            f"{1e9 * r['seconds'] / r['nonzeros']:.0f}",
            f"{1e9 * r['pass'] / r['nonzeros']:.1f}",
            f"{r['seconds'] / r['pass']:.0f}",
            f"{r['bytes'] / 1e9:.2f}",
        )
        for family, runs in found.items()
        for r in runs
        if "seconds" in r
    ]
    slopes = [
        f"- {family}: slope {slope(runs):.2f}; of a single pass {slope(runs, 'pass'):.2f}"
        for family, runs in found.items()
        if runs
    ]
    failed = [
        f"- {family} at {r['asked']:.0e} nonzeros: {r['failed']}"
        for family, runs in found.items()
        for r in runs
        if "failed" in r
    ]
    picture = growth_plot(found)
    head = ["family", "nodes", "nonzeros", "solver", "certified", "s"]
    head += ["ns per nonzero", "of a pass", "passes", "peak GB"]
    return "\n\n".join(
        [
            "## Growth",
            "Embedding with the defaults, certificate included (graph in memory, kernels compiled), and the"
            " slope of log time against log nonzeros. A pass is one product with eight columns in float32,"
            " the nodes in the order they came in:",
            table(head, rows),
            "\n".join([*slopes, *failed]),
            f"![time against nonzeros]({picture})",
        ]
    )


def slope(runs: list[Run], of: str = "seconds") -> float:
    """Least squares in the log-log plane."""
    done = [(r["nonzeros"], r[of]) for r in runs if of in r]
    x, y = np.log(np.array(done)).T
    return float(np.polyfit(x, y, 1)[0]) if len(done) > 1 else float("nan")


def _alone(family: str, size: float) -> Run:
    command = [sys.executable, "-m", "benchmarks.growth", family, f"{size:.0f}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return {"asked": size, "failed": f"more than {LONGEST} s, with the making of the graph"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"asked": size, "failed": (done.stderr.strip().splitlines() or ["no answer"])[-1][:120]}
    result: Run = json.loads(lines[-1])
    return result


def _child(family: str, size: float) -> None:
    from spectrograd.pipeline import embed
    from spectrograd.pipeline.settings import Settings

    for small in (2e5, 5e6) if size > 4e6 else (2e5,):  # serial kernels and those for threads
        embed(FAMILIES[family](small), Settings(n_components=5, seed=0))
    graph = FAMILIES[family](size)
    seconds = []
    while sum(seconds) < 2 and len(seconds) < 5:
        fresh = type(graph)(graph.blocks, graph.n_nodes, graph.names)  # nothing cached from the run before
        began = time.perf_counter()
        found = embed(fresh, Settings(n_components=5, seed=0))
        seconds.append(time.perf_counter() - began)
    result = {
        "nodes": graph.n_nodes,
        "nonzeros": graph.n_entries,
        "seconds": min(seconds),
        "solver": " -> ".join(attempt.solver for attempt in found.attempts),
        "converged": found.certificate.converged,
        "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "pass": seconds_per_pass(graph),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in FAMILIES:
        _child(sys.argv[1], float(sys.argv[2]))
    else:
        print(run(tuple(float(word) for word in sys.argv[1:]) or SIZES))
