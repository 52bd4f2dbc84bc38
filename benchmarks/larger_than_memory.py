"""A planted graph too large for the memory allowed: made, converted, clustered and scored, stage by stage.

``python -m benchmarks.larger_than_memory FOLDER [--nodes 2e6] [--edges 1e8] [-k 16] [--memory-limit 1GB]``

FOLDER keeps the edge list, the store and ``log.json``; stages that are there already are not run again. The
headline is ``--nodes 2e7 --edges 1e9 -k 10 --memory-limit 6GB``, which wants 50 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.blocks import fill_pages, store
from benchmarks.harness import machine, table
from benchmarks.records import record
from benchmarks.store import anonymous_memory

INSIDE = 0.5  # share of the edges within clusters
SPREAD = 0.4  # expected degree of the i-th node of a cluster falls as i ** -SPREAD: exponent 3.5
LONELY = 0.01  # share of the nodes without an edge
DANGLING = 0.01  # share of the nodes in trees that hang from the rest
ROWS_PER_PART = 10_000_000


def main() -> None:
    """Run what is missing and print the table."""
    wanted = _arguments()
    folder = wanted.folder
    folder.mkdir(parents=True, exist_ok=True)
    log_file = folder / "log.json"
    log: dict[str, Any] = json.loads(log_file.read_text()) if log_file.exists() else {}
    stages = {
        "generate": lambda: generate(folder, int(wanted.nodes), int(wanted.edges), wanted.clusters),
        "convert": lambda: convert(folder, int(wanted.nodes), wanted.memory_limit),
        wanted.name: lambda: cluster(folder, wanted),
    }
    if wanted.in_memory:
        stages["in memory"] = lambda: in_memory(folder, wanted)
    for name, stage in stages.items():
        if name not in log:
            print(f"== {name}", flush=True)
            log[name] = stage()
            log_file.write_text(json.dumps(log, indent=1))
    print(report(log))
    if wanted.write:
        call = f"python -m benchmarks.larger_than_memory FOLDER {' '.join(sys.argv[2:])}"
        block = f"larger_than_memory-{wanted.write}"
        store(block, f"{report(log)} `{call}`.")
        record(block)
        fill_pages()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=float, default=2e6)
    parser.add_argument("--edges", type=float, default=1e8)
    parser.add_argument("-k", "--clusters", type=int, default=16, help="planted")
    parser.add_argument("--columns", type=int, help="clusters asked for, when not those planted")
    parser.add_argument("--memory-limit", default="1GB")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--in-memory", action="store_true", help="also the same solve, without a limit")
    parser.add_argument("--write", metavar="BLOCK", help="store the table for the documentation")
    parser.add_argument("--name", default="cluster", help="of this run in the log")
    return parser.parse_args()


def generate(folder: Path, n_nodes: int, n_edges: int, n_clusters: int) -> dict[str, Any]:
    """Parquet parts of a degree-corrected block model with shuffled ids, lonely nodes and hanging trees."""
    began = time.perf_counter()
    rng = np.random.default_rng(0)
    n_core = int(n_nodes * (1 - LONELY - DANGLING)) // n_clusters * n_clusters
    n_trees = int(n_nodes * DANGLING)
    ids = rng.permutation(n_nodes).astype(np.uint32)
    truth = np.full(n_nodes, -1, np.int32)
    truth[ids[:n_core]] = np.arange(n_core) // (n_core // n_clusters)
    parts = folder / "edges"
    parts.mkdir(exist_ok=True)
    n_random = n_edges - n_trees
    for part, first in enumerate(range(0, n_random, ROWS_PER_PART)):
        ends = np.empty((2, min(ROWS_PER_PART, n_random - first)), np.uint32)
        fill(ends, ids, n_core, n_clusters, 1 / (1 - SPREAD), rng)
        _write(parts / f"{part:04}.parquet", ends)
    tree, parent = n_core + np.arange(n_trees), np.empty(n_trees, np.int64)
    fresh = rng.random(n_trees) < 0.2  # a fifth are roots on the core, the others hang from a node of a tree
    fresh[0] = True
    parent[fresh] = rng.integers(0, n_core, fresh.sum())
    parent[~fresh] = n_core + (rng.random((~fresh).sum()) * np.flatnonzero(~fresh)).astype(np.int64)
    for node, above in zip(tree, parent, strict=True):  # clusters are inherited in order
        truth[ids[node]] = truth[ids[above]]
    _write(parts / "trees.parquet", np.stack([ids[tree], ids[parent]]))
    np.save(folder / "truth.npy", truth)
    size = sum(path.stat().st_size for path in parts.iterdir())
    return {
        "seconds": time.perf_counter() - began,
        "GB": size / 1e9,
        "nodes": n_nodes,
        "edges": n_edges,
        "clusters": n_clusters,
    }


@numba.njit(cache=True)
def fill(ends, ids, n_core, n_clusters, power, rng):  # type: ignore[no-untyped-def]
    """Two ends of every edge: clusters by lot, nodes of a cluster with a falling power of their rank."""
    size = n_core // n_clusters
    for edge in range(ends.shape[1]):
        one = int(n_clusters * rng.random())
        other = one
        if rng.random() >= INSIDE:
            other = (one + 1 + int((n_clusters - 1) * rng.random())) % n_clusters
        ends[0, edge] = ids[one * size + int(size * rng.random() ** power)]
        ends[1, edge] = ids[other * size + int(size * rng.random() ** power)]


def _write(path: Path, ends: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"src": pyarrow.array(ends[0]), "dst": pyarrow.array(ends[1])}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="none", use_dictionary=False)


def convert(folder: Path, n_nodes: int, memory_limit: str) -> dict[str, Any]:
    """`spectrograd convert` of the parts."""
    command = ["convert", str(folder / "edges"), "-o", str(folder / "store"), "--force", "--edges"]
    command += ["--nodes", str(n_nodes), "--duplicates", "first", "--order", "none"]
    found = watched([*command, "--memory-limit", memory_limit], folder / "convert.json")
    found["GB"] = sum(path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file()) / 1e9
    return found


def cluster(folder: Path, wanted: argparse.Namespace) -> dict[str, Any]:
    """`spectrograd cluster` of the store, scored against what was planted."""
    output = folder / f"{wanted.name}.npy"
    k = wanted.columns or wanted.clusters
    command = ["cluster", str(folder / "store"), "-k", str(k), "-o", str(output)]
    command += ["--memory-limit", wanted.memory_limit, "--solver", wanted.solver]
    summary = folder / f"{wanted.name}.json"
    found = watched(command, summary)
    found["summary"] = json.loads(summary.read_text())
    return found | scores(folder, output)


def scores(folder: Path, output: Path) -> dict[str, float]:
    """Against what was planted, on the nodes that have an edge."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    truth, labels = np.load(folder / "truth.npy"), np.load(output)
    planted = truth >= 0
    pair = truth[planted], labels[planted]
    return {"ARI": adjusted_rand_score(*pair), "NMI": normalized_mutual_info_score(*pair)}


IN_MEMORY = """
import sys, time, json
import numpy as np
from spectrograd import SpectralClustering, open_store
store, k, output = sys.argv[1:]
graph = open_store(store).in_memory()
began = time.perf_counter()
model = SpectralClustering(int(k), random_state=0).fit(graph)
print(json.dumps({"solve seconds": time.perf_counter() - began, "certified": model.converged_}))
np.save(output, model.labels_)
"""


def in_memory(folder: Path, wanted: argparse.Namespace) -> dict[str, Any]:
    """The same graph and number of clusters, loaded first."""
    output = folder / "in_memory.npy"
    command = [sys.executable, "-c", IN_MEMORY, str(folder / "store"), str(wanted.clusters), str(output)]
    began = time.perf_counter()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed.splitlines()[-1]) | {"seconds": time.perf_counter() - began}
    return found | scores(folder, output)


def watched(arguments: list[str], summary: Path) -> dict[str, Any]:
    """Seconds, CPU seconds and peak anonymous memory of a command."""
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "spectrograd", *arguments, "--summary-json", str(summary)]
    before, began, peak = os.times(), time.perf_counter(), 0
    process = subprocess.Popen(command)
    while process.poll() is None:
        peak = max(peak, anonymous_memory(process.pid))
        time.sleep(0.25)
    after = os.times()
    if not summary.exists():  # else the summary says whether the result is in doubt
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seconds": time.perf_counter() - began,
        "CPU seconds": used,
        "peak memory GB": peak / 1e9,
        "command": " ".join(["spectrograd", *arguments]),
    }


def report(log: dict[str, Any]) -> str:
    """The stages as a table."""
    made = log["generate"]
    rows = [_row(name, stage) for name, stage in log.items()]
    head = (
        "stage",
        "s",
        "of these solving",
        "CPU s",
        "peak memory GB",
        "GB written",
        "passes",
        "certified",
        "NMI",
        "ARI",
    )
    return (
        f"{made['edges']:,} edges, {made['nodes']:,} nodes, {made['clusters']} planted clusters, half of the "
        f"edges within them, degrees with a heavy tail, {LONELY:.0%} of the nodes without an edge and "
        f"{DANGLING:.0%} in hanging trees, ids shuffled. Memory is anonymous memory, interpreter and "
        f"compiled code included.\n\n{table(head, rows)}\n\nMeasured {machine()}."
    )


def _row(name: str, stage: dict[str, Any]) -> tuple[str, ...]:
    summary = stage.get("summary", {})
    solving = summary.get("seconds", {}).get("solve", stage.get("solve seconds"))
    certified = summary.get("certificate", {}).get("converged", stage.get("certified"))
    figures = [
        (stage["seconds"], ",.0f"),
        (solving, ",.0f"),
        (stage.get("CPU seconds"), ",.0f"),
        (stage.get("peak memory GB"), ".2f"),
        (stage.get("GB"), ".1f"),
        (summary.get("engine", {}).get("passes"), ",d"),
    ]
    cells = [format(value, how) if value is not None else "" for value, how in figures]
    scored = [f"{stage[score]:.3f}" if score in stage else "" for score in ("NMI", "ARI")]
    return name, *cells, {None: "", True: "yes", False: "no"}[certified], *scored


if __name__ == "__main__":
    main()
