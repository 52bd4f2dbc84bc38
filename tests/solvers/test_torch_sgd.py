"""Both stochastic solvers in tensors: their parts against plain sums, their labels against exact ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

import reference
from spectrograd import datasets, metrics
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian, regularized_laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.pipeline.run import cluster
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, Stopping, choose_variant, make_solver, solve
from spectrograd.solvers.minibatch import edge_source
from spectrograd.solvers.settings import RunContext
from spectrograd.solvers.torch_minibatch import SentEdges, TorchBatches, TorchEdges

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
N, K = 40, 4
KINDS = ["random_walk", "symmetric", "unnormalized"]


def operator_of(kind, rank):
    rng = np.random.default_rng(0)
    operator = laplacian(reference.random_graph(N, rng), kind)
    if rank == 0:
        return operator
    Z = la.qr(rng.standard_normal((N, rank)), mode="economic")[0]
    return replace(operator, low_rank=LowRank(Z, rng.uniform(0.3, 1.5, rank)), lower=-1.5)


# --- a batch ------------------------------------------------------------------------------------------


def batch_of(operator, positions, U):
    engine = make_engine("torch:cpu")
    edges = TorchEdges.of(engine, operator)
    rows = TorchBatches.of(engine, operator, edges.counts)
    padded = rows.pad_rows(torch.tensor(U))
    M, Y = rows.measure(padded)
    return rows, rows.batch(edges.at(torch.tensor(positions)), padded, Y), padded, M, Y


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_part_of_the_operator(kind, rank):
    operator, U = operator_of(kind, rank), np.random.default_rng(1).standard_normal((N, K))
    n_edges = operator.graph.n_edges
    positions = np.random.default_rng(2).integers(0, n_edges, 60)  # some edges twice
    _, batch, *_ = batch_of(operator, positions, U)
    heads, tails, weights = TorchEdges.of(make_engine("torch:cpu"), operator).at(torch.tensor(positions))
    heads, tails = heads.numpy(), tails.numpy()
    weights = np.ones(60) if weights is None else weights.numpy()
    vertices, counts = np.unique(np.concatenate([heads, tails]), return_counts=True)
    Z = np.zeros((N, 0)) if operator.low_rank is None else operator.low_rank.factors
    C = np.zeros((0, K)) if operator.low_rank is None else operator.low_rank.coefficients[:, None] * (Z.T @ U)
    shares = counts / np.diff(operator.graph.matrix.indptr)[vertices]
    expected, H = reference.batch_gradient(
        heads, tails, weights, (shares, operator.row_term), Z, C, U, vertices
    )
    size = len(vertices)
    np.testing.assert_array_equal(batch.vertices.numpy()[:size], vertices)
    assert (batch.vertices.numpy()[size:] == N).all()
    assert not batch.gradient[size:].any()
    np.testing.assert_allclose(batch.gradient.numpy()[:size], expected, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(batch.projected.numpy(), H, atol=1e-4 * np.abs(H).max())


@pytest.mark.parametrize("kind", KINDS)
def test_all_edges_are_the_operator(kind):
    operator, U = operator_of(kind, 3), np.random.default_rng(1).standard_normal((N, K))
    _, batch, *_ = batch_of(operator, np.arange(operator.graph.n_edges), U)
    expected = operator @ U
    np.testing.assert_allclose(batch.gradient.numpy()[:N], expected, atol=1e-5 * np.abs(expected).max())


def test_gram_matrices_follow_the_rows():
    operator, U = operator_of("random_walk", 3), np.random.default_rng(1).standard_normal((N, K))
    source, batch, padded, M, Y = batch_of(operator, np.arange(9), U)
    source.move(batch, 0.1 * batch.gradient, padded, M, Y)
    exact = source.measure(padded)
    np.testing.assert_allclose(M.numpy(), exact[0].numpy(), rtol=1e-9)
    np.testing.assert_allclose(Y.numpy(), exact[1].numpy(), atol=1e-6)
    assert not padded[-1].any()  # the row that fills batches up
    changed = np.flatnonzero((padded[:-1].numpy() != U.astype(np.float32)).any(axis=1))
    assert set(changed) <= set(batch.vertices.numpy())


def test_a_gram_matrix_without_a_factor_moves_nothing():
    source, *_ = batch_of(operator_of("random_walk", 0), np.arange(5), np.ones((N, K)))
    inverse, good = source.inverse(torch.ones((K, K), dtype=torch.float64))
    assert not good
    assert not inverse.any()


# --- runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "params"), [("sgd", {}), ("sgd-paper", {"step_size": 2e-3})])
def test_labels_are_those_of_the_exact_vectors(name, params, kind):
    """NMI within .01 of the exact embedding's."""
    model = datasets.make_block_model(2000, K, random_state=3)
    scores = []
    for solver, engine in (("eigen", "local"), (name, "torch:cpu")):
        settings = Settings(
            n_components=K,
            n_clusters=K,
            laplacian=kind,
            solver=solver,
            params=params if solver == name else {},
            seed=0,
        )
        labels = cluster(model.graph, settings, RunContext(make_engine(engine))).labels
        scores.append(metrics.score(model.labels, labels)["nmi"])
    assert scores[1] > scores[0] - 0.01


def steps(name, n_steps, seed=0):
    operator = regularized_laplacian(
        datasets.make_block_model(500, 3, random_state=0).graph, "random_walk", 0.1
    )
    problem = Problem(operator, 3, make_engine("torch:cpu"))
    solver = choose_variant(problem, make_solver(name, batch_size=100))
    state = solver.init(problem, np.random.default_rng(seed))
    for _ in range(n_steps):
        state = solver.step(problem, state)
    return state.U.tensor


@pytest.mark.parametrize("name", ["sgd", "sgd-paper"])
def test_the_same_seed_gives_the_same_bits_where_torch_is_asked_for_them(name):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(steps(name, 2), steps(name, 2))
        assert not torch.equal(steps(name, 2), steps(name, 2, seed=1))
    finally:
        torch.use_deterministic_algorithms(before)


class HostLooks(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts when a number leaves the device for the host."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        self.count += name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["sgd", "sgd-paper"])
def test_the_host_does_not_look_at_batches(name):
    """Fifty batches or two hundred: the host looks as often, for it looks at whole chunks."""
    looks = []
    for size in (400, 100):
        operator = laplacian(datasets.make_block_model(3000, 3, random_state=0).graph)
        problem = Problem(operator, 3, make_engine("torch:cpu"))
        more = {} if name == "sgd" else {"refresh": 20_000 // size}
        solver = choose_variant(problem, make_solver(name, batch_size=size, **more))
        object.__setattr__(solver, "report_every", 10**9)
        state = solver.init(problem, np.random.default_rng(0))
        with HostLooks() as mode:
            solver.step(problem, state)
        looks.append(mode.count)
    assert looks[0] == looks[1] < 10


# --- the hand-over ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blocks():
    return datasets.make_block_model(1200, K, random_state=2)


@pytest.mark.parametrize("polish_solver", ["lanczos", "chebyshev"])
def test_it_hands_over_on_the_device(blocks, monkeypatch, polish_solver):
    """As the local one: epochs and passes are counted, and the subspace never leaves the device."""
    operator, engine = laplacian(blocks.graph), make_engine("torch:cpu")
    monkeypatch.setattr(type(engine), "to_numpy", lambda *_: pytest.fail("rows came to the host"))
    solver = make_solver("sgd", epochs=2, polish=True, polish_solver=polish_solver)
    solution = solve(Problem(operator, K, engine), solver, stopping=Stopping(tol=1e-8), seed=0)
    assert solution.stop_reason == "converged"
    assert solution.last.edges_seen == 2 * blocks.graph.n_edges
    assert solution.last.matvecs > 0
    assert f"polished by {polish_solver} after 2 passes over the edges" in solution.last.events
    exact = reference.smallest(operator, K)[1]
    assert reference.largest_sine(solution.Q.tensor.numpy(), exact, operator.metric) < 1e-4


def test_a_tolerance_makes_it_hand_over(blocks):
    settings = Settings(solver="sgd", tol=1e-4, seed=0)
    context = RunContext(make_engine("torch:cpu"))
    result = embed(laplacian(blocks.graph), K, settings, context)
    assert result.certificate.converged
    assert result.last.matvecs > 0


def test_a_part_of_an_epoch_is_a_part(blocks):
    problem = Problem(laplacian(blocks.graph), K, make_engine("torch:cpu"))
    solution = solve(problem, make_solver("sgd", epochs=1.5), seed=0)
    size = blocks.graph.n_edges // 64  # at most of a batch
    assert solution.last.edges_seen == pytest.approx(1.5 * blocks.graph.n_edges, abs=size)


@pytest.mark.parametrize("params", [{"epochs": 0}, {"batch_size": 0}, {"polish_solver": "magic"}])
def test_bad_parameters_are_named(blocks, params):
    (name,) = params
    problem = Problem(laplacian(blocks.graph), K, make_engine("torch:cpu"))
    with pytest.raises(ValueError, match=f"{name}="):
        solve(problem, make_solver("sgd", **params), seed=0)


# --- edges that do not fit the device -----------------------------------------------------------------


def test_edges_without_room_are_sent_chunk_by_chunk(blocks, monkeypatch):
    """Every edge once per epoch, and the labels of an epoch whose edges stay there."""
    monkeypatch.setattr("spectrograd.solvers.sgd_base.EDGES_CHUNK", 3000)
    engine, sent = make_engine("torch:cpu"), []
    engine.blocks.most_bytes, move = 0, engine.blocks.move
    monkeypatch.setattr(engine.blocks, "move", lambda array: sent.append(len(array)) or move(array))
    settings = Settings(n_components=K, n_clusters=K, solver="sgd", seed=0, params={"epochs": 3})
    found = cluster(blocks.graph, settings, RunContext(engine))
    assert metrics.score(blocks.labels, found.labels)["nmi"] > 0.95
    pairs = SentEdges(engine, edge_source(blocks.graph, np.random.default_rng(0))).chunks(0, 3000)
    sent.clear()
    ends = np.concatenate([np.stack([c.heads.numpy(), c.tails.numpy()], axis=1) for c in pairs])
    assert max(sent) <= 3000
    W = sp.triu(blocks.graph.matrix).tocoo()
    assert {tuple(pair) for pair in ends.tolist()} == set(zip(W.row.tolist(), W.col.tolist(), strict=True))
    assert len(ends) == blocks.graph.n_edges


def test_averaging_is_not_offered_and_says_so(blocks):
    problem = Problem(laplacian(blocks.graph), K, make_engine("torch:cpu"))
    with pytest.raises(ValueError, match="solver 'sgd' on engine 'torch' has no parameter 'averaging'"):
        solve(problem, make_solver("sgd", averaging=True), seed=0)


def test_the_papers_algorithm_backs_off_without_its_moments(blocks):
    problem = Problem(laplacian(blocks.graph), 3, make_engine("torch"))
    solver = choose_variant(problem, make_solver("sgd-paper"))
    state = solver.init(problem, np.random.default_rng(0))
    state.moments += 1
    step_size = state.step_size
    state = solver.back_off(problem, state)
    assert state.step_size == step_size / 2
    assert not state.moments.any()
