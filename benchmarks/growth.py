"""Growth: time of the default embedding against nonzeros, 1e5 to 1e8, on an expander and a geometric graph.

`python -m benchmarks growth`, or with sizes of one's own: `python -m benchmarks.growth 1e5 1e6`. Every run
is a process of its own (`python -m benchmarks.growth FAMILY NONZEROS`), compiled before the timer starts.
Beside each embedding stand one pass over the edges and the memory bandwidth that a triad reaches in the same
process: bytes that a pass must move, over that bandwidth, are the roof.
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

from benchmarks.harness import memory_bandwidth, seconds_per_pass, table
from benchmarks.plots import growth_plot

SIZES = (1e5, 1e6, 1e7, 1e8)
ALL_SECONDS = 900  # of all runs together: the largest come last and get what is left
N_COLUMNS = 8  # of a pass, in float32
CACHE_LINE = 64  # bytes that come with every neighbour that no cache holds
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
    return knn_graph(points, 10, n_jobs=-1)


FAMILIES: dict[str, Callable[[float], Any]] = {"block model": block_model, "k-NN": neighbours}


def run(sizes: tuple[float, ...] = SIZES) -> str:
    """Both families at every size; the page's section, with the slopes."""
    found: dict[str, list[Run]] = {family: [] for family in FAMILIES}
    end = time.monotonic() + ALL_SECONDS
    for size in sorted(sizes):
        for family, runs in found.items():
            one = _alone(family, size, end - time.monotonic())
            print(family, f"{size:.0e}", one, flush=True)
            runs.append(one)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(found, indent=1))
    return page(found)


def page(found: dict[str, list[Run]]) -> str:
    """A table, the slopes and the picture."""
    done = [(family, r) for family, runs in found.items() for r in runs if "seconds" in r]
    rows = [
        (
            family,
            f"{r['nodes']:,}",
            f"{r['nonzeros']:,}",
            r["solver"],
            "yes" if r["converged"] else "no",
            f"{r['seconds']:.3g}",
            f"{1e9 * r['seconds'] / r['nonzeros']:.0f}",
            f"{r['seconds'] / r['pass']:.0f}",
            f"{r['peak'] / 1e9:.2f}",
        )
        for family, r in done
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
    head = ["family", "nodes", "nonzeros", "solver", "certified", "s"]
    head += ["ns per nonzero", "passes", "peak GB"]
    return "\n\n".join(
        [
            "## Growth",
            "Embedding with the defaults, certificate included (graph in memory, kernels compiled), and the"
            " slope of log time against log nonzeros. A pass is one product with eight columns in float32,"
            " the nodes in the order they came in:",
            table(head, rows),
            "\n".join([*slopes, *failed]),
            _roof_table(done),
            f"![time against nonzeros]({growth_plot(found)})",
        ]
    )


def _roof_table(done: list[tuple[str, Run]]) -> str:
    """One pass beside the bandwidth of memory."""
    rows = []
    for family, r in done:
        bandwidth, seconds = r["bandwidth"], r["pass"]
        least, lines = r["bytes_least"], r["bytes_by_lines"]
        rows.append(
            (
                family,
                f"{r['nodes']:,}",
                f"{1e9 * seconds / r['nonzeros']:.1f}",
                f"{1e-9 * bandwidth:.1f}",
                f"{1e9 * least / bandwidth / r['nonzeros']:.1f}",
                f"{least / bandwidth / seconds:.0%}",
                f"{r['far']:.0%}",
                f"{1e9 * lines / bandwidth / r['nonzeros']:.1f}",
                f"{lines / bandwidth / seconds:.0%}",
            )
        )
    head = ["family", "nodes", "ns per nonzero of a pass", "triad, GB/s", "roof, ns", "reached"]
    head += ["far neighbours", "roof by lines, ns", "reached"]
    return (
        "The roof of that pass: the bytes it must move over the bandwidth of a triad in the same process. The"
        " first roof counts every number once; the second, for neighbours too far away for a core's cache, a"
        f" whole line of {CACHE_LINE} bytes each. More than the second roof is reached where a larger cache"
        " holds the vectors:\n\n" + table(head, rows)
    )


def pass_bytes(graph: Any) -> tuple[float, float, float]:
    """Bytes of one pass: every number once, and by lines of far neighbours; the share of those."""
    from spectrograd.graph.ordering import share_near

    indptr, indices = graph.pattern
    weights = 4 * len(indices) if graph.is_weighted else 0
    block = 4 * N_COLUMNS * graph.n_nodes
    scales = 2 * 4 * graph.n_nodes  # diagonal and scale of the Laplacian
    # U is read, scaled into V, V read, the product written; writing reads a line first
    least = indptr.nbytes + indices.nbytes + weights + scales + 6 * block
    sample = np.random.default_rng(0).integers(0, len(indices), 100_000)
    heads = np.searchsorted(indptr, sample, side="right") - 1
    far = 1 - share_near(heads, indices[sample])
    return float(least), least - block + far * CACHE_LINE * len(indices), far


def slope(runs: list[Run], of: str = "seconds") -> float:
    """Least squares in the log-log plane."""
    done = [(r["nonzeros"], r[of]) for r in runs if of in r]
    x, y = np.log(np.array(done)).T
    return float(np.polyfit(x, y, 1)[0]) if len(done) > 1 else float("nan")


def _alone(family: str, size: float, left: float) -> Run:
    if left <= 0:
        return {"asked": size, "failed": f"not begun: {ALL_SECONDS} s were over"}
    command = [sys.executable, "-m", "benchmarks.growth", family, f"{size:.0f}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return {"asked": size, "failed": f"more than {left:.0f} s, with the making of the graph"}
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
    least = 2 if size < 4e6 else 1  # a plan may take a solver that the smaller graph did not compile
    while len(seconds) < least or (sum(seconds) < 2 and len(seconds) < 5):
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
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "pass": seconds_per_pass(graph, N_COLUMNS),
        "bandwidth": memory_bandwidth(),
    }
    result |= dict(zip(("bytes_least", "bytes_by_lines", "far"), pass_bytes(graph), strict=True))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in FAMILIES:
        _child(sys.argv[1], float(sys.argv[2]))
    else:
        print(run(tuple(float(word) for word in sys.argv[1:]) or SIZES))
