"""What only the torch engine has: devices, slices of rows, streams to a device, and its memory."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from refusing import cut

from spectrograd import datasets
from spectrograd.engines import LocalEngine, make_engine
from spectrograd.engines.torch_blocks import DeviceBlocks, host_slices
from spectrograd.graph import Graph
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.run import cluster
from spectrograd.pipeline.settings import Settings
from spectrograd.solvers import Problem, Stopping, make_solver, solve
from spectrograd.solvers.settings import RunContext
from spectrograd.system import MissingExtra

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
N, K = 1200, 4


@pytest.fixture(scope="module")
def model():
    return datasets.make_block_model(N, K, random_state=1)


def small_pieces(most_bytes=np.inf, block_slice=700):
    engine = make_engine("torch:cpu")
    engine.blocks.most_bytes, engine.blocks.block_slice = most_bytes, block_slice
    return engine


# --- devices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torch:cuda:99", "torch:tpu", "torch:cuda:x", "torch:cpu:1"])
def test_a_device_that_is_not_there_is_one_clear_error(name):
    with pytest.raises(ValueError, match=r"engine='torch:.*torch:cpu"):
        make_engine(name)


def test_torch_alone_takes_what_is_there():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert make_engine("torch").device.type == expected


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"spectrograd\[torch\]"):
        make_engine("torch")


def test_a_local_fit_never_loads_torch():
    code = (
        "import sys; from spectrograd import SpectralClustering, datasets;"
        "graph = datasets.make_block_model(200, 2, random_state=0).graph;"
        "SpectralClustering(2, affinity='precomputed', random_state=0).fit(graph);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- slices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 300, 10**6])
def test_pieces_are_the_block(most):
    """Rows of any length, empty ones among them, are cut and put together again."""
    rng = np.random.default_rng(0)
    W = (rng.random((30, 30)) < 0.3) * rng.random((30, 30))
    W[4:7] = W[:, 4:7] = W[29] = W[:, 29] = 0
    graph = Graph.from_matrix(np.triu(W, 1) + np.triu(W, 1).T)
    dense = np.zeros((30, 30))
    for block in cut(graph, 3).blocks:
        for start, indptr, indices, weights in host_slices(block, most):
            assert len(indices) <= most
            rows = start + np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            np.add.at(dense, (rows, indices), weights)
    np.testing.assert_array_equal(dense, graph.matrix.toarray())


@pytest.mark.parametrize("most_bytes", [np.inf, 0])
def test_a_hub_is_split_and_a_graph_without_room_is_streamed(most_bytes):
    others = np.arange(1, 2000)
    graph = Graph.from_edges(np.r_[np.zeros(1999, int), others[:-1]], np.r_[others, others[1:]], n_nodes=2000)
    engine, X = small_pieces(most_bytes), np.random.default_rng(0).standard_normal((2000, 3))
    operator = laplacian(graph)
    found = engine.to_numpy(engine.apply(engine.load_operator(operator), engine.from_numpy(X)))
    np.testing.assert_allclose(found, operator @ X, atol=1e-9)
    assert bool(engine.blocks._kept) == (most_bytes > 0)


def test_old_graphs_make_room(model):
    engine = small_pieces(most_bytes=1.5 * 4 * (model.graph.n_entries + N))
    for _ in range(3):
        copy = Graph(model.graph.blocks, N)
        engine.apply(engine.load_operator(laplacian(copy)), engine.from_numpy(np.zeros((N, 1), np.float32)))
    assert len(engine.blocks._kept) == 1


# --- the same results as local ------------------------------------------------------------------------


def sine(operator, P, Q):
    """Of the largest angle between two subspaces in the metric."""
    engine = LocalEngine()
    P, Q = (orthonormalize(engine, X, operator.metric).Q for X in (P, Q))
    rest = Q - P @ engine.gram(P, Q, operator.metric)
    return np.sqrt(np.linalg.norm(engine.gram(rest, rest, operator.metric), 2))


@pytest.mark.parametrize(
    "name", ["lanczos", "chebyshev", "power", "gradient-descent", "forward-backward", "sgd"]
)
def test_subspaces_equal_those_of_local(model, name):
    """The stochastic one by its hand-over."""
    operator, params = laplacian(model.graph), {"polish": True} if name == "sgd" else {}
    found = []
    for engine in (LocalEngine(), make_engine("torch:cpu")):
        solution = solve(
            Problem(operator, K, engine),
            make_solver(name, max_iter=5000, **params),
            stopping=Stopping(tol=1e-8),
            seed=0,
        )
        assert solution.stop_reason == "converged"
        found.append(engine.to_numpy(solution.Q))
    assert sine(operator, *found) < 1e-4


@pytest.mark.parametrize("solver", ["auto", "lanczos", "chebyshev"])
def test_the_whole_line(model, solver):
    """Certificate and labels through the pipeline."""
    results = [
        cluster(model.graph, Settings(n_components=K, solver=solver, seed=0), RunContext(engine))
        for engine in (LocalEngine(), make_engine("torch:cpu"))
    ]
    local, device = results
    assert device.certificate.converged
    np.testing.assert_array_equal(device.labels, local.labels)
    np.testing.assert_allclose(device.eigenvalues, local.eigenvalues, atol=1e-6)


# --- memory -------------------------------------------------------------------------------------------


class Peak(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the bytes of all tensors that operations make, and how many were alive at once."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.most = {}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage):
        import weakref

        where = storage.data_ptr()
        if where in self.alive or storage.nbytes() == 0:
            return
        self.alive[where] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, where)

    def _gone(self, where):
        self.now -= self.alive.pop(where, 0)


def peak_of_a_solve(mean_degree, n_nodes, most_bytes, solver=None):
    """Bytes on the device at once, slices of the graph being copied there as to a card."""
    graph = datasets.make_block_model(n_nodes, K, mean_degree=mean_degree, random_state=0).graph
    engine = small_pieces(most_bytes, block_slice=10_000)
    engine.blocks.move = lambda array: torch.tensor(np.asarray(array))
    problem = Problem(laplacian(graph), K, engine)
    with Peak() as peak:
        solution = solve(problem, solver or make_solver("chebyshev"), stopping=Stopping(tol=1e-3), seed=0)
    assert solution.stop_reason == ("done" if solver else "converged")
    return peak.most


def test_memory_is_a_few_talls_and_the_pieces_in_flight():
    """A streamed solve never holds the graph: four times the edges take no more memory."""
    n, in_flight = 10_000, 2 * 10_000 * (4 + 4)  # columns and ones of a block_slice, and of the next
    few, many = (peak_of_a_solve(degree, n, most_bytes=0) for degree in (20, 80))
    assert abs(many - few) < in_flight
    multivector = 8 * n * (K + 4)  # columns of the filter, guards included, in float64
    assert (
        1.5 * multivector < many < in_flight + 8 * multivector
    )  # three blocks of float32 are the least it needs
    kept = peak_of_a_solve(80, n, most_bytes=np.inf)
    assert kept > many + 0.8 * (4 * 80 * n)  # a graph that fits stays there


def test_memory_of_sgd_is_a_few_talls_and_the_edges_in_flight(monkeypatch):
    """The edges are sent a chunk at a time: four times as many take no more memory."""
    monkeypatch.setattr("spectrograd.solvers.sgd_base.EDGES_CHUNK", 10_000)
    n, in_flight = 10_000, 2 * 10_000 * (4 + 4)  # both ends of a chunk, and of the next
    solver = make_solver("sgd", epochs=0.2, batch_size=300)
    few, many = (peak_of_a_solve(degree, n, 0, solver) for degree in (20, 80))
    assert abs(many - few) < in_flight
    assert many < in_flight + 8 * (8 * n * K)
    assert peak_of_a_solve(80, n, np.inf, solver) > many + 8 * 40 * n  # edges that fit stay there


def test_what_is_sent_to_a_card_goes_through_pinned_memory():
    """Copies then overlap with products; the CPU takes the array as it is."""
    calls = []

    class Sent:
        def pin_memory(self):
            calls.append("pinned")
            return self

        def to(self, device, *, non_blocking):
            calls.append((device, non_blocking))
            return self

    card = SimpleNamespace(type="cuda")
    blocks = DeviceBlocks(SimpleNamespace(from_numpy=lambda array: Sent()), card, 0)
    blocks.move(np.arange(3))
    assert calls == ["pinned", (card, True)]
    array = np.arange(3)
    assert make_engine("torch:cpu").blocks.move(array).data_ptr() == array.ctypes.data


def test_peaks_are_counted():
    with Peak() as peak:
        for _ in range(5):
            kept = torch.zeros(1000, dtype=torch.float64)
            view, another = kept[5:], torch.zeros(500, dtype=torch.float64)
    assert len(view) + len(another) == 1495
    assert 12_000 <= peak.most <= 24_000  # a loop holds the old ones until the new ones are there
