"""``make bounds``: every kernel with bounds checks, on graphs large enough to reach it.

An index outside of an array raises ``IndexError`` here; elsewhere it reads or writes what is not its own.
Three steps: the runs of ``spectrograd warm-up``, every solver on graphs beyond all thresholds, and the tests
of the kernels. Kernels that none of them has called are named, and fail the check. Parallel kernels run in
their serial form, which is the same source: numba loses what a thread of a parallel loop raises.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
CHECKED = "SPECTROGRAD_BOUNDS_CHECKED"
N_NODES = 60_000  # beyond parallel_rows and reordered_from; 600,000 entries are worth threads
DIRECT_NODES = 3_000  # for solvers that form N x N numbers


def start_again() -> int:
    """Run this file with bounds checks and a cache of its own: compiled code without checks must not load."""
    with tempfile.TemporaryDirectory() as cache:
        checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache, CHECKED: "1"}
        folders = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
        environment = os.environ | checks | {"PYTHONPATH": folders}
        return subprocess.run([sys.executable, __file__], env=environment, check=False).returncode


def make_parallel_kernels_serial(jit: ModuleType) -> None:
    """Mutates: the module that compiles kernels, before any of them is imported."""

    def parallel(function: Callable[..., object]) -> Callable[..., object]:
        compiled = jit.serial(function)

        def call(*args: object) -> object:
            return compiled(*args)

        call.parallel = call.serial = compiled  # type: ignore[attr-defined]
        return call

    jit.parallel = parallel


def check_that_checks_are_on(jit: ModuleType) -> None:
    """An index beyond the end must raise, or the rest of this file shows nothing."""
    import numpy as np

    def beyond(values):
        return values[len(values)]

    try:
        jit.serial(beyond)(np.zeros(3))
    except IndexError:
        return
    raise SystemExit("numba does not check bounds: NUMBA_BOUNDSCHECK has no effect")


def run_all_solvers() -> None:
    """Each solver for some iterations: weighted and not, few and many columns, in memory, merged, signed."""
    from spectrograd import Graph, MultilayerGraph, datasets
    from spectrograd.pipeline import Settings, cluster, embed
    from spectrograd.solvers import REGISTRY

    large = datasets.make_block_model(N_NODES, 5, mean_degree=10, degree_exponent=2.5, random_state=0).graph
    weights = large.matrix.copy()
    weights.data = 1.0 + (weights.indices % 3 + weights.tocoo().row % 3)
    weighted = Graph.from_matrix(weights)
    small = datasets.make_block_model(DIRECT_NODES, 5, random_state=0).graph
    for name in REGISTRY:
        for graph in (small, large, weighted):
            if graph is not small and name in ("eigen", "shift-invert", "nystrom", "variational-nystrom"):
                continue
            for n_components in (2, 5, 12):
                embed(graph, Settings(n_components=n_components, solver=name, max_iter=3, seed=0))
        print(f"  {name}", file=sys.stderr, flush=True)
    layers = MultilayerGraph.from_layers([large, weighted])
    cluster(layers, Settings(n_components=5, seed=0))


def test_kernels() -> int:
    """Run the tests of the packages that call kernels directly."""
    import pytest

    # tests of threads ask for the parallel forms, which there are none of here
    no_threads = "--ignore-glob=*/test_jit*.py"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=1200", no_threads]
    places = ("kernels", "linalg", "store", "io", "points")
    return int(pytest.main([*options, *(str(ROOT / "tests" / place) for place in places)]))


def kernels() -> Iterator[tuple[str, object]]:
    """Name and dispatcher of every compiled function of ``spectrograd.kernels``."""
    import spectrograd.kernels as package

    for info in pkgutil.iter_modules(package.__path__, "spectrograd.kernels."):
        module = importlib.import_module(info.name)
        for name, found in vars(module).items():
            dispatcher = getattr(found, "serial", found)
            if hasattr(dispatcher, "overloads") and dispatcher.py_func.__module__ == info.name:
                yield f"{info.name.rpartition('.')[2]}.{name}", dispatcher


def main() -> int:
    """Run everything, and name what was not reached."""
    if CHECKED not in os.environ:
        return start_again()
    warnings.simplefilter("ignore")
    jit = importlib.import_module("spectrograd.kernels.jit")
    make_parallel_kernels_serial(jit)
    check_that_checks_are_on(jit)
    from spectrograd.pipeline.warm_up import warm_up

    # 1. what runs of every kind call
    for done in warm_up(tuple(sys.argv[1:])):
        print(f"{done.kind}: {done.n_compiled} kernels, {done.seconds:.0f} s", file=sys.stderr, flush=True)
    # 2. every solver on large graphs
    run_all_solvers()
    # 3. tests that call kernels directly
    failed = test_kernels()
    every = dict(kernels())
    left = sorted(name for name, dispatcher in every.items() if not dispatcher.overloads)
    print(f"{len(every) - len(left)} of {len(every)} kernels called with bounds checks, no index outside")
    if left:
        print("not reached:", ", ".join(left))
    return int(bool(left or failed))


if __name__ == "__main__":
    sys.exit(main())
