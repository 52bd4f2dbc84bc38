"""Results keep their bits: hashes of embeddings, labels and files for fixed seeds, on one thread.

Every case is run twice in this process and once in another; the three hashes agree everywhere. They are
also compared with ``golden_bits.json``, which holds one table of hashes per platform (processor, BLAS,
versions of the numerical libraries): on another platform this comparison is skipped.
``python tests/test_golden_bits.py --write`` adds or replaces the table of the platform it runs on, and takes
cases that changed out of the tables of the others, whose comparison is skipped until it is recorded there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrograd
from spectrograd import (
    MultilayerSpectralClustering,
    SpectralClustering,
    datasets,
    open_store,
    write_graph,
)
from spectrograd.cli import main as command_line
from spectrograd.solvers.checkpoint import SolveCheckpoint
from spectrograd.system import one_thread

GOLDEN_FILE = Path(__file__).with_name("golden_bits.json")
LIBRARIES = ("numpy", "scipy", "numba", "torch")  # whose versions may change the last bits
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
MAX_ITER = 30  # of a solver that does not stop by itself
SOLVERS = (
    *("auto", "chebyshev", "lanczos", "shift-invert", "lobpcg", "multilevel", "sgd", "sgd-paper"),
    *("gradient-descent", "forward-backward", "stochastic-fb", "power", "coordinate-power"),
    *("nystrom", "variational-nystrom", "eigen"),
)
AGGREGATIONS = ("projection", "mean", "power-mean", "geometric", "grassmann", "joint")
EDGE_ROWS = [f"n{i},n{(i * 7 + 1) % 50},{1 + i % 3}" for i in range(400)]

Parts = list[Any]
Case = Callable[[Path], Parts]


# --- The cases: each takes an empty folder and returns arrays and bytes.


@cache
def blocks() -> spectrograd.Graph:
    """A block model of 600 nodes in 4 clusters."""
    return datasets.make_block_model(600, 4, random_state=0).graph


@cache
def layers() -> spectrograd.MultilayerGraph:
    """Three layers over 400 points in 3 clusters."""
    return datasets.make_multilayer_gmm(400, n_layers=3, n_clusters=3, random_state=0).graph


@cache
def weighted_matrix() -> Any:
    """The block model with random weights, symmetric to the last bit in either precision."""
    matrix = blocks().matrix.tocoo()
    pair = np.minimum(matrix.row, matrix.col) * 600 + np.maximum(matrix.row, matrix.col)
    weights = 0.5 + np.random.default_rng(0).random(600 * 600)[pair]
    return type(matrix)((weights.astype(np.float32), (matrix.row, matrix.col)), shape=matrix.shape).tocsr()


def fitted(model: Any) -> Parts:
    """Embedding and labels of a model."""
    return [model.embedding_, model.labels_]


def by_solver(folder: Path, solver: str, **options: Any) -> Parts:
    max_iter = None if solver in ("auto", "eigen") else MAX_ITER
    model = SpectralClustering(4, solver=solver, random_state=0, max_iter=max_iter, **options)
    return fitted(model.fit(blocks()))


def by_aggregation(folder: Path, aggregation: str) -> Parts:
    return fitted(MultilayerSpectralClustering(3, aggregation=aggregation, random_state=0).fit(layers()))


def from_points(folder: Path) -> Parts:
    points = np.random.default_rng(0).standard_normal((500, 3))
    model = SpectralClustering(3, random_state=0).fit(points)
    return [*fitted(model), model.predict(points[:20] + 0.01)]


def from_points_in_float32(folder: Path) -> Parts:
    points = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
    return fitted(SpectralClustering(3, random_state=0).fit(points))


def from_matrix(folder: Path, dtype: str, solver: str) -> Parts:
    model = SpectralClustering(4, affinity="precomputed", solver=solver, random_state=0)
    return fitted(model.fit(weighted_matrix().astype(dtype)))


def from_store(folder: Path, solver: str) -> Parts:
    write_graph(folder / "graph.store", blocks())
    graph = open_store(folder / "graph.store")
    return fitted(SpectralClustering(4, solver=solver, random_state=0).fit(graph))


def from_saved_model(folder: Path) -> Parts:
    SpectralClustering(4, random_state=0).fit(blocks()).save(folder / "model")
    return fitted(spectrograd.load(folder / "model"))


def from_command(folder: Path) -> Parts:
    edges, labels, summary = (folder / name for name in ("edges.csv", "labels.csv", "summary.json"))
    edges.write_text("\n".join(["src,dst,weight", *EDGE_ROWS, ""]))
    words = ["cluster", edges, "-k", "3", "-o", labels, "-q", "--summary-json", summary]
    code = command_line([str(word) for word in words])
    return [np.array(code), labels.read_bytes()]


class Stopped(BaseException):
    """Ends a run right after a checkpoint, as the end of its process would."""


def resumed(folder: Path, solver: str) -> Parts:
    """The result of a run that was stopped after its second checkpoint and resumed."""
    options = {"solver": solver, "tol": 1e-10, "checkpoint": folder / "run", "checkpoint_every": 0.0}
    if solver == "lanczos":
        options["solver_params"] = {"basis_size": 20, "block_size": 2}
    save = SolveCheckpoint.save
    n_saved = 0

    def save_and_stop(*arguments: Any) -> None:
        nonlocal n_saved
        save(*arguments)
        n_saved += 1
        if n_saved == 2:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SolveCheckpoint, "save", save_and_stop)
        with pytest.raises(Stopped):
            SpectralClustering(4, random_state=0, **options).fit(blocks())
    return fitted(SpectralClustering(4, random_state=0, **options).fit(blocks()))


CASES: dict[str, Case] = {
    **{solver: partial(by_solver, solver=solver) for solver in SOLVERS},
    **{f"layers, {name}": partial(by_aggregation, aggregation=name) for name in AGGREGATIONS},
    "points": from_points,
    "points, float32": from_points_in_float32,
    **{
        f"{dtype} matrix, {solver}": partial(from_matrix, dtype=dtype, solver=solver)
        for dtype in ("float32", "float64")
        for solver in ("auto", "chebyshev", "sgd")
    },
    **{f"store, {solver}": partial(from_store, solver=solver) for solver in ("auto", "lanczos", "sgd")},
    "saved model": from_saved_model,
    "command line": from_command,
    **{f"resumed, {solver}": partial(resumed, solver=solver) for solver in ("lanczos", "chebyshev")},
    **{
        f"torch, {solver}": partial(by_solver, solver=solver, engine="torch:cpu")
        for solver in ("chebyshev", "lanczos", "sgd", "sgd-paper")
    },
    "dask, chebyshev": partial(by_solver, solver="chebyshev", engine="dask:2"),
}
PACKAGE_OF = {"torch": "torch", "dask": "distributed"}  # first word of a case -> optional package it needs


# --- Hashes


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit BLAS, OpenMP, numba and torch to one thread."""
    import numba

    n_threads = numba.get_num_threads()
    numba.set_num_threads(1)
    if find_spec("torch"):
        import torch

        n_torch_threads = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        with one_thread():
            yield
    finally:
        numba.set_num_threads(n_threads)
        if find_spec("torch"):
            torch.set_num_threads(n_torch_threads)


def hash_case(name: str) -> str:
    """Run a case in a folder of its own and hash its arrays: types, shapes and bytes."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), single_threaded():
        warnings.simplefilter("ignore")
        for part in CASES[name](Path(folder)):
            if isinstance(part, bytes):
                digest.update(part)
            else:
                digest.update(f"{part.dtype.str} {part.shape}".encode())
                digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def is_available(name: str) -> bool:
    """Whether the optional package that a case needs is installed."""
    package = PACKAGE_OF.get(name.partition(",")[0])
    return package is None or find_spec(package) is not None


def hash_all() -> dict[str, str]:
    """Hashes of all cases that can be run here."""
    return {name: hash_case(name) for name in CASES if is_available(name)}


def platform_key() -> str:
    """Processor, BLAS builds and versions: results of two platforms may differ in their last bits."""
    from llvmlite.binding import get_host_cpu_name
    from threadpoolctl import threadpool_info

    target = os.environ.get("NUMBA_CPU_NAME")
    processor = get_host_cpu_name() + (f" as {target}" if target else "")
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    blas = {f"{each['internal_api']} {each['version']} {each.get('architecture')}" for each in libraries}
    return "; ".join([f"{platform.machine()} {processor}", *sorted(blas), *map(_version, LIBRARIES)])


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def hash_all_in_a_child() -> dict[str, str]:
    """The same from a second process, which has one thread from its start."""
    source = str(Path(spectrograd.__file__).parents[1])
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": source}
    command = [sys.executable, __file__, "--print"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- The tests


@pytest.fixture(scope="module")
def child_hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of a second process, shared by the workers of xdist as far as they find them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    stored = folder / "golden_bits_of_a_child.json"
    if not stored.exists():
        draft = folder / f"golden_bits_{os.getpid()}.json"
        draft.write_text(json.dumps(hash_all_in_a_child()))
        draft.replace(stored)
    return dict(json.loads(stored.read_text()))


@pytest.mark.parametrize("name", CASES)
def test_bits(name, child_hashes):
    if not is_available(name):
        pytest.skip(f"{PACKAGE_OF[name.partition(',')[0]]} is not installed")
    first = hash_case(name)
    assert first == hash_case(name), "two runs in one process differ"
    assert first == child_hashes[name], "two processes differ"
    golden = json.loads(GOLDEN_FILE.read_text()).get(platform_key())
    if golden is None or name not in golden:
        pytest.skip(f"no hash for {platform_key()}: python tests/test_golden_bits.py --write adds it")
    remedy = "unless a change says why, this is a fault; then: python tests/test_golden_bits.py --write"
    assert first == golden[name], f"the result is another than the recorded one; {remedy}"


def write() -> None:
    """Record the hashes of this platform; two processes must agree on them."""
    hashes = hash_all_in_a_child()
    again = hash_all()
    differing = [name for name in hashes if hashes[name] != again[name]]
    if differing:
        raise SystemExit(f"two processes differ: {'; '.join(differing)}")
    golden = json.loads(GOLDEN_FILE.read_text()) if GOLDEN_FILE.exists() else {}
    key = platform_key()
    changed = [name for name in hashes if golden.get(key, {}).get(name) != hashes[name]]
    before = golden.get(key, {})
    replaced = {
        name for name in before if before[name] != hashes.get(name)
    }  # on purpose, so on every platform
    for table in golden.values():
        for name in replaced:
            table.pop(name, None)
    golden[key] = hashes
    GOLDEN_FILE.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{key}: {len(hashes)} hashes; new or changed: {'; '.join(changed) or 'none'}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(json.dumps(hash_all()) + "\n")
    elif sys.argv[1:] == ["--write"]:
        write()
    else:
        raise SystemExit("--write records the hashes of this platform, --print prints them")
