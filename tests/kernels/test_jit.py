"""Kernels in threads and processes, and what is compiled when."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import numpy as np
import pytest
from test_kernels import batch_of_edges, columns, grouped

from spectrograd import kernels
from spectrograd.engines import LocalEngine
from spectrograd.kernels import minibatch as batch
from spectrograd.kernels import multivector as dense
from spectrograd.kernels import spmm
from spectrograd.kernels.jit import OTHER, announce_compiling, kind_of
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import REGISTRY, Problem, Stopping, make_solver, solve

# --- threads ----------------------------------------------------------------------------------------


def outputs_of_every_parallel_kernel(graphs):
    """One call of each, on sizes of several chunks, with everything it returns or writes."""
    rng = np.random.default_rng(11)
    graph = graphs[True]
    (block,) = graph.blocks
    U, Z = columns(1300, 5, rng), columns(1300, 6, rng)
    out = np.empty_like(U)
    degrees = graph.degrees.copy()
    rows = (0, block.indptr, block.indices)
    spmm.multiply(rows, block.weights, degrees, None, U, U, out, True)
    multivector = columns(20 * dense.CHUNK, 5, rng)
    groups = grouped(*batch_of_edges(graph, rng, 4000))
    vertices = groups[0]
    row_part = (rng.random(len(vertices)), rng.random(1300))
    G, H = batch.batch_gradient(groups, row_part, Z, columns(6, 5, rng), U, True)
    moments = (np.zeros((1300, 15)), np.array([0.9, 0.999]))
    rates = np.full(len(vertices), 1e-3)
    changes = batch.move_rows(vertices, G, (np.eye(5), H), rates, degrees, Z, moments, U)
    return [
        out,
        dense.gram(multivector, multivector, None, False, True),
        G,
        H,
        U,
        moments[0],
        *changes,
    ]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_same_bits_for_any_number_of_threads(graphs):
    before = numba.get_num_threads()
    try:
        results = []
        for n_threads in (1, 2, 2):
            numba.set_num_threads(n_threads)
            results.append([array.tobytes() for array in outputs_of_every_parallel_kernel(graphs)])
    finally:
        numba.set_num_threads(before)
    assert results[0] == results[1] == results[2]


PRELUDE = """
import sys, threading, multiprocessing as mp
import numpy as np, numba
from spectrograd.kernels.spmm import multiply

U = np.random.default_rng(0).standard_normal((60_000, 5))
indptr, indices = np.arange(60_001), np.random.default_rng(1).permutation(60_000).astype(np.int32)

def once(_=None, threaded=True):
    out = np.empty_like(U)
    multiply((0, indptr, indices), None, U[:, 0].copy(), None, U, U, out, threaded)
    return out
"""


def run_script(body, **environment):
    """Run Python in a process of its own: an abort of the threading layer must not take pytest along."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(body)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize("layer", ["default", "workqueue"])
def test_two_python_threads_at_once(layer):
    """Workqueue aborts the process when entered twice; the lock must prevent that."""
    body = """
        expected, wrong = once(), []
        def work():
            for _ in range(150):
                if not np.array_equal(once(), expected):
                    wrong.append(1)
        workers = [threading.Thread(target=work) for _ in range(2)]
        [w.start() for w in workers]; [w.join() for w in workers]
        print(numba.threading_layer(), len(wrong))
    """
    environment = {} if layer == "default" else {"NUMBA_THREADING_LAYER": layer}
    done = run_script(body, **environment)
    assert done.returncode == 0, done.stderr
    used, wrong = done.stdout.split()
    assert wrong == "0"
    assert layer in ("default", used)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_after_a_fork():
    body = """
        expected = once()
        with mp.get_context("fork").Pool(2) as pool:
            results = pool.map_async(once, range(4)).get(60)
        assert all(np.array_equal(r, expected) for r in results)
        assert np.array_equal(once(), expected)
        print("fine")
    """
    done = run_script(body)
    assert done.stdout.strip() == "fine", done.stderr


def test_in_spawned_processes(tmp_path):
    script = tmp_path / "spawned.py"
    body = """
    if __name__ == "__main__":
        expected = once()
        with mp.get_context("spawn").Pool(2) as pool:
            results = pool.map_async(once, range(4)).get(100)
        assert all(np.array_equal(r, expected) for r in results)
        print("fine")
    """
    script.write_text(textwrap.dedent(PRELUDE) + textwrap.dedent(body))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout.strip() == "fine", done.stderr


COLD_OR_WARM = """
import hashlib
import numpy as np
from spectrograd import SpectralEmbedding
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.operators.laplacian import laplacian

graph = make_block_model(9000, 5, mean_degree=16, random_state=0).graph
operator, engine = laplacian(graph), LocalEngine()
X = np.random.default_rng(0).standard_normal((9000, 5))
product = engine.apply(operator, X)
found = [product, engine.gram(X, product, operator.metric)]
found.append(SpectralEmbedding(5, solver="lanczos", max_iter=4, random_state=0).fit(graph).embedding_)
print(*(hashlib.sha256(array.tobytes()).hexdigest() for array in found))
"""


def test_same_bits_from_a_cold_and_from_a_warm_cache(tmp_path):
    """The process that compiles its kernels, and the next one, which loads them.

    A helper that is not inlined into its kernel has two copies, and each of the two processes runs another.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COLD_OR_WARM]
    how = {"env": environment, "capture_output": True, "text": True, "timeout": 280, "check": True}
    cold, warm = (subprocess.run(command, **how).stdout for _ in range(2))
    assert any(tmp_path.rglob("*.nbc")), "nothing was compiled: the test compares nothing"
    assert cold == warm


def test_functions_that_kernels_call_are_part_of_them():
    """All of them are inlined: of what is not, there are two copies, and their bits may differ."""
    found = {}
    for info in pkgutil.walk_packages(kernels.__path__, "spectrograd.kernels."):
        module = vars(importlib.import_module(info.name))
        for kernel in module.values():
            kernel = getattr(kernel, "parallel", kernel)
            if hasattr(kernel, "targetoptions"):
                called = [module.get(name) for name in kernel.py_func.__code__.co_names]
                for other in called:
                    if hasattr(other, "targetoptions"):
                        found[f"{info.name}.{other.__name__}"] = other.targetoptions.get("forceinline", False)
    assert len(found) > 50
    assert [name for name, inlined in found.items() if not inlined] == []


# --- compilation ------------------------------------------------------------------------------------


def test_serial_and_parallel_forms_do_not_share_a_cache(tmp_path):
    """Numba's disk cache knows names, not flags: whichever form came first would stand for both."""
    body = """
        once(threaded={threaded})
        try:
            print(numba.threading_layer())
        except ValueError:
            print("none")
    """
    seen = [
        run_script(body.format(threaded=threaded), NUMBA_CACHE_DIR=str(tmp_path)).stdout.strip()
        for threaded in (False, True, False)
    ]
    assert seen[0] == "none"
    assert seen[1] in ("tbb", "omp", "workqueue")
    assert seen[2] == "none"


def test_no_version_is_compiled_for_a_constant(tmp_path):
    """Numba makes a type of ``0``: a kernel that gets it first and a variable later is compiled twice."""
    body = """
        from spectrograd.kernels import graph as traversal
        from spectrograd.kernels import ldl_numeric, ldl_ordering, ldl_symbolic
        import scipy.sparse as sp
        path = sp.diags_array([np.ones(99), np.ones(99)], offsets=[-1, 1]).tocsr()
        graph = path.indptr, path.indices
        traversal.search_all(*graph), traversal.level_widths(*graph, 5)
        fronts = ldl_symbolic.arrange_fronts(*graph, ldl_ordering.minimum_degree(*graph))
        ldl_numeric.factorize(*graph, path.data, np.full(100, 3.0), fronts, ldl_symbolic.cut(fronts))
        for module in (traversal, ldl_ordering, ldl_symbolic, ldl_numeric):
            for name, kernel in vars(module).items():
                if hasattr(kernel, "for_kernels_only") and kernel.py_func.__module__ == module.__name__:
                    print(name, len(kernel.signatures))
    """
    lines = run_script(body, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split("\n")[:-1]
    assert "update_degrees 1" in lines
    assert [line for line in lines if not line.endswith((" 0", " 1"))] == []  # 0: of a kernel not called here


def dispatchers():
    """Every compiled function of ours by name."""
    found = {}
    for info in pkgutil.walk_packages(kernels.__path__, "spectrograd.kernels."):
        module, room = importlib.import_module(info.name), info.name.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.startswith("_") or hasattr(value, "for_kernels_only"):
                continue
            if hasattr(value, "signatures"):
                found[f"{room}.{name}"] = value
            elif hasattr(value, "serial") and inspect.isfunction(value):
                found[f"{room}.{name}"] = value.parallel
                found[f"{room}.{name}.serial"] = value.serial
    return found


def test_every_module_of_kernels_says_what_it_is_for():
    """Before the first kernel of a kind is compiled its kind is printed: no module may be without one."""
    names = {key.partition(".")[0] for key in dispatchers()}
    assert {name for name in names if kind_of(f"spectrograd.kernels.{name}") == OTHER} == set()
    assert kind_of("spectrograd.kernels.spmm") == "products of sparse matrices"
    assert kind_of("spectrograd.points.distances") == OTHER
    assert kind_of("sklearn.cluster") is None


def test_every_kernel_is_compared_with_a_twin():
    """A kernel that no test names has no twin; add one to ``reference.py``."""
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    called = {key.removesuffix(".serial") for key in dispatchers()}
    assert called >= {
        "spmm.laplacian_rows",
        "multivector.gram_chunks",
        "minibatch.batch_gradient",
        "minibatch.move_rows",
    }
    missing = [key for key in called if not re.search(rf"\b{key.partition('.')[2]}\b", tests)]
    assert not missing


@pytest.mark.parametrize("name", REGISTRY)
def test_a_second_run_compiles_nothing(graphs, name):
    counts, engine = [], LocalEngine(thresholds=Thresholds(small=100))
    for seed in range(2):
        problem = Problem(laplacian(graphs[True]), 3 + seed, engine)  # another width is no other type
        solve(problem, make_solver(name), stopping=Stopping(max_iter=3), seed=seed)
        counts.append({key: len(value.signatures) for key, value in dispatchers().items()})
    assert sum(counts[0].values()) > 0
    assert counts[0] == counts[1]


def test_calling_twice_with_the_same_types_compiles_nothing(graphs):
    outputs_of_every_parallel_kernel(graphs)
    before = {key: len(value.signatures) for key, value in dispatchers().items()}
    outputs_of_every_parallel_kernel(graphs)
    assert {key: len(value.signatures) for key, value in dispatchers().items()} == before


def test_the_default_fit_of_a_small_graph_never_imports_numba():
    body = """
    import sys
    import spectrograd
    assert "numba" not in sys.modules
    data = spectrograd.datasets.make_block_model(2000, 3, random_state=0)
    model = spectrograd.SpectralClustering(3, random_state=0).fit(data.graph)
    print("numba" in sys.modules, model.converged_, len(model.labels_))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.split() == ["False", "True", "2000"], done.stderr


def test_functions_of_no_module_are_compiled():
    """pynndescent has some; a listener that fails ends their compilation."""

    def double(x):
        return 2 * x

    double.__module__ = None
    announce_compiling()
    assert numba.njit(double)(3) == 6
