"""The unbiased SGD: its kernels, its source of edges, why the repair works, laws, hand-over, bad input."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numba
import numpy as np
import pytest

import reference
from spectrograd import datasets
from spectrograd.graph.graph import Graph, RowBlock
from spectrograd.kernels.jit import ahead
from spectrograd.kernels.minibatch import group_batches, upper_entries
from spectrograd.kernels.sgd import descend
from spectrograd.metrics import nmi
from spectrograd.operators import LowRank, SparseOperator, laplacian
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, make_solver, solve
from spectrograd.solvers.minibatch import EdgeChunk, ResidentEdges
from spectrograd.solvers.sgd import Descent, effective_batch, pushes

NO_WEIGHTS = np.empty(0, np.float32)


def cut(graph, n_blocks):
    """The same graph in several row blocks."""
    (block,) = graph.blocks
    bounds = np.linspace(0, graph.n_nodes, n_blocks + 1).astype(int)
    parts = []
    for begin, end in pairwise(bounds):
        first, last = block.indptr[begin], block.indptr[end]
        weights = None if block.weights is None else block.weights[first:last]
        indptr = block.indptr[begin : end + 1] - first
        parts.append(RowBlock(int(begin), indptr, block.indices[first:last], weights))
    return Graph(tuple(parts), graph.n_nodes)


def some_edges(n_nodes, n_edges, rng):
    heads = rng.integers(0, n_nodes, n_edges).astype(np.int32)
    tails = ((heads + rng.integers(1, n_nodes, n_edges)) % n_nodes).astype(np.int32)
    return heads, tails, rng.uniform(0.5, 2, n_edges).astype(np.float32)


# --- kernels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_groups_hold_every_edge_twice(weighted, batch_size):
    heads, tails, values = some_edges(30, 50, np.random.default_rng(0))
    groups = group_batches(heads, tails, values if weighted else NO_WEIGHTS, batch_size)
    for batch, first in enumerate(range(0, 50, batch_size)):
        vertices, counts, ptr, partners, weights = (x[batch] for x in groups)
        assert len(set(vertices[:counts])) == counts
        found = []
        for v in range(counts):
            for p in range(ptr[v], ptr[v + 1]):
                found.append((vertices[v], vertices[partners[p]], weights[p] if weighted else 1))
        expected = []
        for e in range(first, min(50, first + batch_size)):
            w = values[e] if weighted else 1
            expected += [(heads[e], tails[e], w), (tails[e], heads[e], w)]
        assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("n_columns", [1, 5, 8, 11])
@pytest.mark.parametrize("n_factors", [0, 3])
@pytest.mark.parametrize("weighted", [True, False])
def test_steps_are_those_of_the_twin(n_columns, n_factors, weighted):
    rng = np.random.default_rng(1)
    n_nodes, batch_size = 60, 12
    heads, tails, values = some_edges(n_nodes, 5 * batch_size - 3, rng)
    rows = tuple(rng.uniform(0.5, 1.5, n_nodes).astype(np.float32) for _ in range(4))
    low_rank = rng.standard_normal((n_nodes, n_factors)).astype(np.float32), rng.uniform(0, 1, n_factors)
    U = np.zeros((n_nodes, -(-n_columns // 8) * 8), np.float32)
    U[:, :n_columns] = rng.standard_normal((n_nodes, n_columns))
    start = U[:, :n_columns].copy()
    M, Y = reference.gram(start, start, rows[1]), low_rank[0].T.astype(float) @ start
    steps, mass = np.linspace(0.3, 0.1, 5), float(rows[1].sum())
    used = values if weighted else np.ones_like(values)
    expected = reference.descend(heads, tails, used, rows, low_rank, batch_size, steps, mass, start, M, Y)
    groups = group_batches(heads, tails, values if weighted else NO_WEIGHTS, batch_size)
    assert descend(groups, np.stack(rows, axis=1), low_rank, steps, mass, U, M, Y) == 5
    assert not U[:, n_columns:].any()
    for found, twin in zip((U[:, :n_columns], M, Y), expected, strict=True):
        np.testing.assert_allclose(found, twin, rtol=2e-3, atol=2e-4 * np.abs(twin).max(initial=1))


def test_upper_entries_of_a_block():
    heads, tails = np.empty(3, np.int32), np.empty(3, np.int32)
    positions = np.empty(3, np.int64)
    indptr, indices = (
        np.array([0, 2, 4]),
        np.array([1, 3, 0, 2], np.int32),
    )  # rows 1 and 2 of a path with a chord
    assert upper_entries(1, indptr, indices, heads, tails, positions, 1) == 2
    assert (heads[1], tails[1], positions[1]) == (1, 3, 1)


@pytest.mark.parametrize("shared", [0, 1 << 40])
def test_the_same_bits_for_any_number_of_threads(monkeypatch, shared):
    graph = datasets.make_block_model(3000, 4, mean_degree=40, random_state=0).graph
    before, found = numba.get_num_threads(), []
    monkeypatch.setattr("spectrograd.solvers.sgd.THREADS_THRESHOLD", shared)
    try:
        for n_threads in sorted({1, min(2, before)}):
            numba.set_num_threads(n_threads)
            solver = make_solver("sgd", epochs=2, batch_size=10_000)
            found.append(solve(Problem(laplacian(graph), 4), solver, seed=0).Q)
    finally:
        numba.set_num_threads(before)
    operator = laplacian(graph)
    source = ResidentEdges.of(graph, np.random.default_rng(0))
    descent = Descent.of(operator, source, 500)
    U = descent.pad_rows(np.random.default_rng(1).standard_normal((3000, 4)))
    chunk = next(source.chunks(0, 10_000))
    groups = group_batches(chunk.heads, chunk.tails, NO_WEIGHTS, 500)
    moved = []
    for kernel in (descend, descend.serial):
        V = U.copy()
        M, Y = reference.gram(V[:, :4], V[:, :4], descent.metric), np.zeros((0, 4))
        kernel(groups, descent.nodes, descent.low_rank, np.full(20, 0.5), descent.total_mass, V, M, Y)
        moved.append(V)
    np.testing.assert_array_equal(found[0], found[-1])
    np.testing.assert_array_equal(moved[0], moved[1])


def test_what_is_made_ahead_comes_in_order_and_nothing_is_left_running():
    made = []

    def items():
        for number in range(5):
            made.append(number)
            yield number

    assert list(ahead(items())) == list(range(5))
    made.clear()
    few = ahead(items())
    assert next(few) == 0
    few.close()
    assert len(made) <= 2  # at most the next one was begun

    def failing():
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        list(ahead(failing()))


def test_m_is_measured_by_visits_and_not_by_chunks(monkeypatch):
    graph, calls, measured = (
        datasets.make_block_model(2000, 4, random_state=0).graph,
        [],
        Descent.measure,
    )
    monkeypatch.setattr("spectrograd.solvers.sgd.EDGES_CHUNK", 500)  # forty chunks per epoch
    monkeypatch.setattr(Descent, "measure", lambda self, *args: calls.append(1) or measured(self, *args))
    solver, problem = make_solver("sgd", epochs=1), Problem(laplacian(graph), 4)
    solver.step(problem, solver.init(problem, np.random.default_rng(0)))
    assert len(calls) == 2  # ten edges per node, measured after five


# --- the source of edges ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 4])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("many", [1, 1 << 20])
def test_an_epoch_has_every_edge_once(monkeypatch, n_blocks, weighted, many):
    monkeypatch.setattr("spectrograd.solvers.minibatch.MANY", many)
    graph = reference.random_graph(90, np.random.default_rng(0), weighted=weighted)
    source = ResidentEdges.of(cut(graph, n_blocks), np.random.default_rng(1))
    W, seen = graph.matrix.toarray(), []
    for epoch in range(2):
        chunks = list(source.chunks(epoch, 48))
        assert all(len(chunk.heads) <= 48 + 15 for chunk in chunks)
        keys = np.concatenate([chunk.heads.astype(int) * 90 + chunk.tails for chunk in chunks])
        upper = np.flatnonzero(np.triu(W).ravel())
        np.testing.assert_array_equal(np.sort(keys), upper)
        if weighted:
            weights = np.concatenate([chunk.weights for chunk in chunks])
            np.testing.assert_allclose(weights, W.ravel()[keys], rtol=1e-6)
        seen.append(keys)
    assert not np.array_equal(*seen)
    np.testing.assert_array_equal(source.counts, (W > 0).sum(axis=1))


# --- why the repair works ---------------------------------------------------------------------------


def test_q_is_the_chance_to_be_in_a_batch():
    counts = np.array([0, 1, 5, 200])
    np.testing.assert_allclose(1 / pushes(counts, 0.1)[1:], 1 - 0.9 ** counts[1:])
    np.testing.assert_array_equal(pushes(counts, 1.0), 1)  # all edges: the full gradient
    assert [effective_batch(4000, n) for n in (0, 10, 6400, 50_000)] == [1, 1, 100, 256]
    assert effective_batch(100, 10**9) == 100
    assert effective_batch(4000, 100_000) == 390


def test_the_restricted_gradient_is_unbiased_only_with_the_push():
    """In expectation over batches it is ``p`` times the full gradient; without 1 / q_i it is not."""
    rng = np.random.default_rng(0)
    graph = reference.random_graph(300, rng, weighted=False)
    operator = laplacian(graph)
    A, B = reference.dense_pencil(operator)
    U = rng.standard_normal((300, 3))
    inverse = np.linalg.inv(U.T @ B @ U)
    full = (A @ U - B @ U @ inverse @ U.T @ A @ U) @ inverse
    heads, tails = np.nonzero(np.triu(graph.matrix.toarray()))
    n_edges, size, n_draws = len(heads), 80, 4000
    push = pushes(np.bincount(np.concatenate([heads, tails])), size / n_edges)
    sums = {True: np.zeros_like(U), False: np.zeros_like(U)}
    for _ in range(n_draws):
        chosen = rng.choice(n_edges, size, replace=False)
        h, t = heads[chosen], tails[chosen]
        G = np.zeros_like(U)
        np.add.at(G, h, U[h] - U[t])
        np.add.at(G, t, U[t] - U[h])
        touched = np.zeros((300, 1))
        touched[h] = touched[t] = 1
        back = touched * (B @ U @ inverse @ U.T @ G)
        for repaired in sums:
            sums[repaired] += (G - back * (push[:, None] if repaired else 1)) @ inverse
    errors = {
        repaired: np.linalg.norm(total / n_draws / (size / n_edges) - full) / np.linalg.norm(full)
        for repaired, total in sums.items()
    }
    # left: the noise of the draws, and a node's own edge, one of the 80 of any batch that touches it
    assert errors[True] < 0.1
    assert errors[False] > 0.3


@pytest.fixture(scope="module")
def large():
    """Where the paper's own settings learn nothing (NMI .004)."""
    return datasets.make_block_model(30_000, 5, random_state=0)


def labels_of(Q, k):
    from sklearn.cluster import KMeans

    rows = Q / np.linalg.norm(Q, axis=1, keepdims=True)
    return KMeans(k, n_init=3, random_state=0).fit_predict(rows)


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_three_passes_find_clear_clusters(large, kind):
    problem = Problem(laplacian(large.graph, kind), 5)
    solution = solve(problem, make_solver("sgd", epochs=3), seed=0)
    assert solution.last.edges_seen == 3 * large.graph.n_edges
    assert nmi(large.labels, labels_of(solution.Q, 5)) > 0.99


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_averaging_takes_out_the_noise_of_the_last_steps(kind):
    made = datasets.make_block_model(1500, 4, random_state=0)
    operator, sines = laplacian(made.graph, kind), []
    exact = reference.smallest(operator, 4)[1]
    for averaging in (False, True):
        solver = make_solver("sgd", epochs=4, averaging=averaging)
        solution = solve(Problem(operator, 4), solver, seed=0)
        assert solution.last.matvecs == 4 * averaging
        sines.append(reference.largest_sine(solution.Q, exact, operator.metric))
    assert sines[1] < 0.8 * sines[0]


def test_without_the_push_nothing_is_learnt(large, monkeypatch):
    monkeypatch.setattr("spectrograd.solvers.sgd.pushes", lambda counts, share: np.ones(len(counts)))
    solution = solve(Problem(laplacian(large.graph), 5), make_solver("sgd", epochs=3), seed=0)
    assert nmi(large.labels, labels_of(solution.Q, 5)) < 0.2


# --- laws -------------------------------------------------------------------------------------------


class Given:
    """A source whose order of edges the test decides."""

    def __init__(self, chunk, counts):
        self.chunk, self.counts, self.n_edges = chunk, counts, len(chunk.heads)

    def chunks(self, epoch, size):
        yield self.chunk


def test_permuting_the_nodes_permutes_the_rows():
    rng = np.random.default_rng(0)
    graph = reference.random_graph(200, rng)
    source = ResidentEdges.of(graph, rng)
    order = rng.permutation(200)  # node i of the second graph is node order[i] of the first
    place = np.argsort(order).astype(np.int32)
    heads, tails, weights = source.edges
    permuted = laplacian(Graph.from_matrix(graph.matrix[order][:, order]))
    other = Given(EdgeChunk(place[heads], place[tails], weights), source.counts[order])
    U, found = rng.standard_normal((200, 3)), []
    for operator, edges, start in (
        (laplacian(graph), Given(source.edges, source.counts), U),
        (permuted, other, U[order]),
    ):
        descent = Descent.of(operator, edges, 5)
        rows = descent.pad_rows(start)
        M = reference.gram(rows[:, :3], rows[:, :3], descent.metric)
        steps = np.linspace(1, 0, descent.n_batches)
        descent.run(descent.group_chunk(edges.chunk), steps, rows, M, np.zeros((0, 3)))
        found.append(rows)
    np.testing.assert_allclose(found[1], found[0][order], rtol=1e-3, atol=1e-3 * np.abs(found[0]).max())


@pytest.mark.parametrize("factor", [2.0**-90, 1e-30, 3.0, 1e30])
@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_weights_of_any_size_give_the_same_subspace(factor, kind):
    graph = reference.random_graph(300, np.random.default_rng(0))
    found = []
    for W in (graph.matrix, graph.matrix * factor):
        operator = laplacian(Graph.from_matrix(W), kind)
        Q = solve(Problem(operator, 3), make_solver("sgd", epochs=1), seed=0).Q
        found.append(np.linalg.qr(Q)[0])
    assert reference.largest_sine(*found) < (1e-5 if np.log2(factor).is_integer() else 1e-2)


def test_rotating_the_columns_of_the_start_keeps_the_span(large):
    rng = np.random.default_rng(0)
    operator = laplacian(large.graph)
    start, found = rng.standard_normal((30_000, 5)), []
    for rotation in (np.eye(5), np.linalg.qr(rng.standard_normal((5, 5)))[0] * rng.uniform(0.5, 2, 5)):
        problem = Problem(operator, 5, start=start @ rotation)
        found.append(solve(problem, make_solver("sgd", epochs=0.2), seed=0).Q)
    assert reference.largest_sine(*found, operator.metric) < 1e-3


def test_many_visits_do_not_overflow():
    """Rows about double at every visit: after a few hundred of them float32 ends."""
    graph = datasets.make_block_model(400, 2, mean_degree=80, random_state=0).graph
    solution = solve(Problem(laplacian(graph), 2), make_solver("sgd", epochs=30), seed=0)
    assert solution.last.iteration == 30
    assert not any("diverged" in event or "re-ortho" in event for event in solution.last.events)


# --- parts that are no edges ------------------------------------------------------------------------


def test_nodes_without_edges_follow_the_low_rank_part():
    """Regularisation ties them to all others: their row is the mean of the rows, over 1 - lambda."""
    W = datasets.make_block_model(2000, 3, random_state=0).graph.matrix.tolil()
    W[:5] = 0
    W[:, :5] = 0
    operator = regularized_laplacian(Graph.from_matrix(W.tocsr()), "random_walk", 0.1)
    vectors = embed(operator, 3, Settings(solver="chebyshev", seed=0)).embedding.vectors
    solution = solve(Problem(operator, 3), make_solver("sgd", epochs=8), seed=0)
    assert reference.largest_sine(solution.Q, vectors, operator.metric) < 0.2
    assert np.abs(solution.Q[:5]).max() > 0


def test_absent_nodes_of_a_layer_stay_zero():
    W = reference.random_graph(200, np.random.default_rng(0)).matrix.tolil()
    W[:5] = 0
    W[:, :5] = 0
    operator = laplacian(Graph.from_matrix(W.tocsr()), allow_isolated=True)
    Q = solve(Problem(operator, 3), make_solver("sgd"), seed=0).Q
    np.testing.assert_array_equal(Q[:5], 0)


def test_a_low_rank_part_changes_the_subspace():
    """Subtracting ``Z Z'`` with a heavy weight makes Z the first eigenvector."""
    graph = datasets.make_block_model(1000, 2, random_state=0).graph
    z = np.random.default_rng(0).standard_normal((1000, 1)) / np.sqrt(1000)
    plain = laplacian(graph, "unnormalized")
    operator = replace(plain, low_rank=LowRank(z, np.array([60.0])), lower=-60.0)
    solution = solve(Problem(operator, 2), make_solver("sgd", epochs=10), seed=0)
    exact = reference.smallest(operator, 2)[1]
    assert reference.largest_sine(solution.Q, exact) < 0.3


# --- hand-over --------------------------------------------------------------------------------------


def polish(operator, **options):
    return embed(operator, 5, Settings(solver="sgd", seed=0, **options))


def test_without_a_tolerance_it_stops_after_its_epochs(large):
    result = polish(laplacian(large.graph))
    assert (result.stop_reason, result.last.iteration) == ("done", 5)
    assert not result.certificate.converged
    assert "NOT converged" in result.certificate.sentence


@pytest.mark.parametrize("polish_solver", ["lanczos", "chebyshev"])
def test_it_hands_over_until_the_certificate_is_met(large, polish_solver):
    operator = laplacian(large.graph)
    result = polish(operator, params={"epochs": 3, "polish": True, "polish_solver": polish_solver})
    last = result.last
    assert result.certificate.converged
    assert last.edges_seen == 3 * large.graph.n_edges
    assert last.matvecs > 0
    assert f"polished by {polish_solver} after 3 passes over the edges" in last.events
    if polish_solver == "lanczos":
        scratch = embed(operator, 5, Settings(solver=polish_solver, params={"block_size": 5}, seed=0))
        assert last.matvecs + 3 * 5 < scratch.last.matvecs


def test_a_tolerance_makes_it_hand_over(large):
    result = polish(laplacian(large.graph), tol=1e-4)
    assert result.certificate.converged
    assert result.last.matvecs > 0


# --- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"epochs": 0},
        {"epochs": float("nan")},
        {"batch_size": 0},
        {"step_size": -1.0},
        {"step_size": float("inf")},
        {"polish_solver": "magic"},
    ],
)
def test_bad_parameters_are_named(params):
    (name,) = params
    problem = Problem(laplacian(reference.random_graph(30, np.random.default_rng(0))), 2)
    with pytest.raises(ValueError, match=f"{name}="):
        solve(problem, make_solver("sgd", **params), seed=0)


def test_a_part_of_an_epoch_says_what_it_misses():
    graph = reference.random_graph(500, np.random.default_rng(0))
    solution = solve(Problem(laplacian(graph), 2), make_solver("sgd", epochs=0.1), seed=0)
    assert "0.1 passes over the edges miss about" in " ".join(solution.last.events)
    assert solution.last.edges_seen == pytest.approx(0.1 * graph.n_edges, abs=31)  # whole batches
    assert np.isfinite(solution.Q).all()


TINY = {
    "one edge": ([0], [1], 1),
    "triangle": ([0, 1, 2], [1, 2, 0], 2),
    "star": ([0, 0, 0, 0], [1, 2, 3, 4], 2),
    "two pieces": ([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3], 2),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("batch_size", [1, 10**9])
def test_tiny_graphs_are_finite(name, batch_size):
    heads, tails, k = TINY[name]
    operator = laplacian(Graph.from_edges(heads, tails))
    Q = solve(Problem(operator, k), make_solver("sgd", batch_size=batch_size), seed=0).Q
    np.testing.assert_allclose(Q.T @ (operator.metric[:, None] * Q), np.eye(k), atol=1e-8)


def test_a_complete_graph_and_more_vectors_than_clusters():
    W = np.ones((80, 80)) - np.eye(80)
    Q = solve(Problem(laplacian(Graph.from_matrix(W)), 12), make_solver("sgd"), seed=0).Q
    assert np.isfinite(Q).all()


def test_an_operator_without_edges_is_refused():
    empty = Graph((RowBlock(0, np.zeros(11, np.int64), np.empty(0, np.int32), None),), 10)
    with pytest.raises(ValueError, match="needs edges"):
        solve(Problem(SparseOperator(empty, np.ones(10)), 2), make_solver("sgd"), seed=0)


def test_a_diverging_run_backs_off_and_says_so(large):
    """A good start and steps as long as the rows: the subspace is lost, the run goes back."""
    operator = laplacian(large.graph)
    start = embed(operator, 5, Settings(solver="chebyshev", seed=0)).embedding.vectors
    solution = solve(Problem(operator, 5, start=start), make_solver("sgd", epochs=2, step_size=100.0), seed=0)
    assert "diverged, step halved" in " ".join(solution.last.events)
    assert reference.largest_sine(solution.Q, start, operator.metric) < 0.5
