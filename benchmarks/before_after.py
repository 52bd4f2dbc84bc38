"""Two versions of the source on the same graphs, in turns.

`python -m benchmarks.before_after OTHER_TREE [LARGEST]` with a checkout of the other version; graphs of the
shootout of at most so many nodes. CPU seconds, on one thread, the least of several fits; each version is a
process of its own that is asked in turns, so that both meet the same noise.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import table

HERE = Path(__file__).parents[1]
REPEATS = 7
CHILD = """
import sys, time, warnings
import scipy.sparse as sp
warnings.simplefilter("ignore")
from spectrograd import SpectralEmbedding
for line in sys.stdin:
    path, k = line.split()
    matrix = sp.load_npz(path)
    began = time.process_time()
    SpectralEmbedding(int(k), affinity="precomputed", random_state=0).fit(matrix)
    print(time.process_time() - began, flush=True)
"""
FIRST = """
import numpy as np, warnings
warnings.simplefilter("ignore")
from spectrograd import SpectralClustering, datasets
SpectralClustering(5, random_state=0).fit(datasets.make_block_model(20_000, 5, random_state=0).graph)
"""


def main(other: Path, largest: int) -> None:
    """Print ratios after / before, their geometric mean, and what starting costs."""
    from benchmarks.shootout.graphs import cases

    trees = {"before": other, "after": HERE}
    children = {name: _child(tree) for name, tree in trees.items()}
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            matrix = case.build()[0]
            if matrix.shape[0] > largest:
                continue
            path = Path(folder, "graph.npz")
            sp.save_npz(path, sp.csr_array(matrix), compressed=False)
            seconds = _timed(children, f"{path} {case.n_clusters}\n")
            ratios.append(seconds["after"] / seconds["before"])
            rows.append((case.name, *(f"{seconds[name]:.3f}" for name in trees), f"{ratios[-1]:.2f}"))
            print(*rows[-1], flush=True)
    for what, code in (("import spectrograd", "import spectrograd"), ("first fit, nothing compiled", FIRST)):
        seconds = {name: _started(tree, code) for name, tree in trees.items()}
        rows.append(
            (what, *(f"{s:.2f}" for s in seconds.values()), f"{seconds['after'] / seconds['before']:.2f}")
        )
    print(table(("graph", "before s", "after s", "after / before"), rows))
    print(f"\ngeometric mean {np.exp(np.mean(np.log(ratios))):.3f}, load {os.getloadavg()[0]:.1f}")


def _environment(tree: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": str(tree / "src")}


def _child(tree: Path) -> subprocess.Popen[str]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", CHILD], text=True, env=_environment(tree), **pipes)


def _timed(children: dict[str, subprocess.Popen[str]], order: str) -> dict[str, float]:
    """The shortest of several fits of each; the first, which may compile, does not count."""
    found: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(REPEATS + 1):
        for name, child in children.items():
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(order)
            child.stdin.flush()
            found[name].append(float(child.stdout.readline()))
    return {name: min(seconds[1:]) for name, seconds in found.items()}


def _started(tree: Path, code: str) -> float:
    """CPU seconds of the best of three processes that have nothing compiled."""
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            began = _spent_by_children()
            environment = {**_environment(tree), "NUMBA_CACHE_DIR": cache}
            subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, stderr=subprocess.DEVNULL
            )
            seconds.append(_spent_by_children() - began)
    return min(seconds)


def _spent_by_children() -> float:
    """CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(float(sys.argv[2])) if len(sys.argv) > 2 else 200_000)
