"""The portfolio of eigensolvers against LAPACK, and their kernels against plain-NumPy twins."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd.aggregation import Layers, layer_operators, projection
from spectrograd.datasets import make_block_model, make_gaussian_mixture, make_multilayer_gmm
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.kernels import coarsen, dense, recurrence
from spectrograd.laplacian import laplacian
from spectrograd.neighbors import knn_graph
from spectrograd.solvers import Problem, Stopping, make_solver, solve
from spectrograd.solvers import hierarchy as tree
from spectrograd.solvers.auto import choose, plan
from spectrograd.solvers.embed import Settings, embed

SOLVERS = ["lanczos", "chebyshev", "lobpcg", "shift-invert", "multilevel"]
PARAMS = {"shift-invert": {"memory_limit": 1e12}}
KINDS = ["random_walk", "symmetric", "unnormalized"]
FORMS = ["parallel", "serial"]
K = 4


@cache
def block_model():
    return make_block_model(700, K, mean_degree=14, mixing=0.15, random_state=1).graph


@cache
def neighbours():
    points, _ = make_gaussian_mixture(800, K, separation=4.5, random_state=3)
    return knn_graph(points, 8)


@cache
def copies():
    """Four identical rings with chords, hung from one hub by weak links: eigenvalues come in threes."""
    rng = np.random.default_rng(0)
    one = reference.random_graph(120, rng).matrix.toarray()
    W = np.zeros((481, 481))
    for c in range(4):
        W[120 * c : 120 * (c + 1), 120 * c : 120 * (c + 1)] = one
        W[480, 120 * c] = W[120 * c, 480] = 0.01
    return Graph.from_matrix(W)


@cache
def multipartite():
    """Complete multipartite, and sparse paths to give it size: highly symmetric."""
    W = sp.block_diag([np.ones((30, 30)) - np.eye(30)] * 6).toarray()
    for c in range(6):
        a, b = 30 * c, 30 * ((c + 1) % 6)
        W[a, b] = W[b, a] = 0.5
    return Graph.from_matrix(W)


@cache
def path():
    n = 600
    return Graph.from_edges(np.arange(n - 1), np.arange(1, n), n_nodes=n)


@cache
def merged():
    """The projection of two layers: sparse plus low rank, negative eigenvalues."""
    graph = MultilayerGraph.from_layers([neighbours(), knn_graph(np.random.default_rng(4).random((800, 2)))])
    operators = layer_operators(graph, "symmetric")
    bases = tuple(reference.smallest(operator, K)[1] for operator in operators)
    return projection.aggregate(Layers(operators, np.ones(2), bases))


def run(operator, name, k=K, *, tol=1e-7, start=None, max_iter=None, **params):
    problem = Problem(operator, k, start=start)
    width = operator.upper - operator.lower
    solver = make_solver(name, **PARAMS.get(name, {}), **params)
    return solve(problem, solver, stopping=Stopping(max_iter, tol * width), seed=0)


def check(operator, solution, k=K, *, accuracy=1e-6):
    values, _ = reference.smallest(operator, k)
    A, B = reference.dense_pencil(operator)
    Q = solution.Q
    assert np.isfinite(Q).all()
    np.testing.assert_allclose(Q.T @ B @ Q, np.eye(k), atol=1e-9)
    found = np.linalg.eigvalsh(Q.T @ A @ Q)
    np.testing.assert_allclose(found, values, atol=accuracy * (operator.upper - operator.lower))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", [block_model, neighbours], ids=lambda g: g.__name__)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_agrees_with_lapack(name, graph, kind):
    operator = laplacian(graph(), kind)
    solution = run(operator, name, tol=1e-6)
    assert solution.stop_reason in ("converged", "done")
    check(operator, solution)
    _, V = reference.smallest(operator, K)
    assert reference.largest_sine(solution.Q, V, operator.metric) < 0.02


@pytest.mark.parametrize("k", [4, 7, 8])
@pytest.mark.parametrize("graph", [copies, multipartite], ids=lambda g: g.__name__)
@pytest.mark.parametrize("name", SOLVERS)
def test_repeated_eigenvalues_are_not_skipped(name, graph, k):
    operator = laplacian(graph())
    check(operator, run(operator, name, k), k)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_path_has_a_tiny_gap(name):
    operator = laplacian(path())
    values, _ = reference.smallest(operator, K)
    solution = run(operator, name, tol=1e-7)
    check(operator, solution, accuracy=1e-6)
    assert solution.last.objective == pytest.approx(values.sum(), rel=0.01)


@pytest.mark.parametrize("name", SOLVERS)
def test_low_rank_operators(name):
    operator = merged()
    check(operator, run(operator, name, tol=1e-6))


@pytest.mark.parametrize("name", ["lanczos", "chebyshev", "lobpcg", "multilevel"])
def test_a_good_start_saves_work(name):
    operator = laplacian(neighbours(), "symmetric")
    _, V = reference.smallest(operator, K)
    rng = np.random.default_rng(0)
    start = V @ rng.standard_normal((K, K)) + 1e-6 * rng.standard_normal(V.shape)
    cold, warm = run(operator, name), run(operator, name, start=start)
    check(operator, warm)
    assert warm.last.passes <= cold.last.passes


@pytest.mark.parametrize("name", SOLVERS)
def test_useless_starts_are_survived(name):
    operator = laplacian(block_model())
    start = np.ones((operator.n_nodes, K))
    start[3, 1] = np.nan
    start[:, 2] = 0
    check(operator, run(operator, name, start=start))


@pytest.mark.parametrize("name", SOLVERS)
def test_one_vector_and_tiny_graphs(name):
    triangle = laplacian(Graph.from_edges([0, 1, 2, 3, 3], [1, 2, 0, 0, 1]))
    for k in (1, 2, 3):
        check(triangle, run(triangle, name, k), k)


@pytest.mark.parametrize("name", ["lanczos", "chebyshev", "lobpcg", "multilevel"])
def test_max_iter_is_honoured_and_measurements_decrease(name):
    operator = laplacian(path())
    solution = run(operator, name, tol=0.0, max_iter=3)
    assert solution.stop_reason == "max_iter"
    assert solution.last.iteration == 3
    objectives = [p.objective for p in solution.history]
    assert objectives == sorted(objectives, reverse=True)
    assert np.isfinite(solution.Q).all()


@pytest.mark.parametrize("name", ["lanczos", "chebyshev", "lobpcg", "multilevel"])
def test_the_angle_bound_holds(name):
    for graph in (block_model(), neighbours()):
        operator = laplacian(graph)
        solution = run(operator, name, tol=0.0, angle=0.03)
        assert solution.stop_reason == "done"
        _, V = reference.smallest(operator, K)
        assert reference.largest_sine(solution.Q, V, operator.metric) < 0.03


@pytest.mark.parametrize("name", SOLVERS)
def test_the_compiled_path(name):
    """Above SMALL nodes passes are compiled; solvers must agree there too."""
    operator = laplacian(make_block_model(5000, 3, mean_degree=30, random_state=0).graph)
    if name == "shift-invert":
        points, _ = make_gaussian_mixture(5000, 3, random_state=0)
        operator = laplacian(knn_graph(points))
    expected = run(operator, "eigen", 3).last.objective
    assert run(operator, name, 3, tol=1e-6).last.objective == pytest.approx(expected, abs=1e-7)


def test_single_precision_changes_to_double_when_it_must():
    operator = laplacian(block_model())
    for name in ("chebyshev", "lanczos"):
        assert run(operator, name, tol=1e-10).last.residual < 2.1e-10
        single = run(operator, name, tol=0.0, max_iter=6, precision="single")
        assert 1e-9 < single.last.residual < 1e-4


# --- shift-invert and preconditioners ----------------------------------------------------------------


def test_shift_invert_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="GB, the limit is"):
        solve(Problem(laplacian(block_model()), K), make_solver("shift-invert", memory_limit=1e5))


def test_lobpcg_with_amg():
    pytest.importorskip("pyamg")
    operator = laplacian(neighbours())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, amg = run(operator, "lobpcg"), run(operator, "lobpcg", preconditioner="amg")
    check(operator, amg)
    assert amg.last.iteration < plain.last.iteration / 2


def test_without_pyamg_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ImportError, match=r"pip install spectrograd\[amg\]"):
        run(laplacian(neighbours()), "lobpcg", preconditioner="amg")
    with pytest.raises(ValueError, match="expected None or 'amg'"):
        run(laplacian(neighbours()), "lobpcg", preconditioner="ilu")


# --- kernels -----------------------------------------------------------------------------------------


def form_of(kernel, form):
    return kernel if form == "parallel" else kernel.serial


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [5, 8, 19])
def test_recurrence(form, weighted, dtype, n_columns):
    rng = np.random.default_rng(0)
    operator = laplacian(reference.random_graph(400, rng, weighted=weighted)).astype(dtype)
    block = operator.graph.blocks[0]
    U, previous = rng.standard_normal((2, 400, n_columns)).astype(dtype)
    coefficients = tuple(dtype(c) for c in (0.7, -0.3, 0.2))
    update = (rng.standard_normal(400).astype(dtype), rng.standard_normal((1, n_columns)).astype(dtype))
    for metric, rank_one in ((operator.metric, None), (operator.metric, update), (None, None)):
        rows = (0, block.indptr, block.indices)
        args = (rows, block.weights, operator.diagonal, metric, coefficients, rank_one, U)
        out = np.zeros_like(U)
        expected = reference.recurrence_rows(*args, previous, out)
        form_of(recurrence.recurrence_rows, form)(*args, previous, out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)
        reused = previous.copy()
        form_of(recurrence.recurrence_rows, form)(*args, reused, reused)
        np.testing.assert_array_equal(reused, out)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [4, 8, 19])
def test_combine(form, width):
    rng = np.random.default_rng(0)
    U, V, C, E = (rng.standard_normal(s) for s in ((3000, 5), (3000, 2), (5, width), (2, width)))
    kernel = form_of(dense.combine, form)
    np.testing.assert_allclose(kernel(U, C, V, E), reference.combine(U, C, V, E), atol=1e-12)
    np.testing.assert_allclose(kernel(U, C, None, None), reference.combine(U, C, None, None), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residual(form, dtype):
    rng = np.random.default_rng(0)
    Q, AQ = rng.standard_normal((2, 3000, 6)).astype(dtype)
    values, metric = rng.random(4), (1 + rng.random(3000)).astype(dtype)
    for b in (metric, None):
        R, squares = form_of(dense.residual, form)(Q, AQ, values, b, True)
        expected, expected_squares = reference.residual(Q, AQ, values, b)
        np.testing.assert_allclose(R, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_allclose(squares, expected_squares, rtol=1e-4 if dtype == np.float32 else 1e-12)
        nothing, norms = form_of(dense.residual, form)(Q, AQ, values, b, False)
        assert nothing.size == 0
        assert np.array_equal(norms, squares)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [True, False])
def test_coarsening(form, weighted):
    rng = np.random.default_rng(0)
    graph = reference.random_graph(500, rng, weighted=weighted)
    b = graph.blocks[0]
    part, n = coarsen.match(b.indptr, b.indices, b.weights, graph.degrees, 3)
    sizes = np.bincount(part, minlength=n)
    assert sizes.min() >= 1
    assert sizes.max() <= 3
    assert n <= 250
    begin, order = coarsen.members(part, n)
    assert all(set(part[order[begin[c] : begin[c + 1]]]) == {c} for c in range(n))
    indptr, indices, weights = form_of(coarsen.galerkin, form)(
        b.indptr, b.indices, b.weights, part, begin, order
    )
    coarse = sp.csr_array((weights, indices, indptr), shape=(n, n)).toarray()
    np.testing.assert_allclose(coarse, reference.galerkin(graph.matrix.toarray(), part), atol=1e-12)
    P = np.eye(n)[part]
    R, X, C = rng.standard_normal((500, 3)), rng.standard_normal((500, 3)), rng.standard_normal((n, 3))
    restricted = form_of(coarsen.restrict, form)(begin, order, graph.degrees, R)
    np.testing.assert_allclose(restricted, P.T @ (graph.degrees[:, None] * R), atol=1e-10)
    np.testing.assert_allclose(form_of(coarsen.restrict, form)(begin, order, None, R), P.T @ R, atol=1e-12)
    expected = X + P @ C
    form_of(coarsen.add_prolonged, form)(part, C, X)
    np.testing.assert_allclose(X, expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_coarse_operators_are_galerkin_products(kind):
    operator = laplacian(neighbours(), kind).walk_form()
    chain = tree.build(operator, coarsest=60)
    assert len(chain) >= 2
    for fine, coarse in pairwise(chain):
        A, B = reference.dense_pencil(fine.operator)
        P = np.eye(coarse.operator.n_nodes)[fine.part]
        coarse_A, coarse_B = reference.dense_pencil(coarse.operator)
        np.testing.assert_allclose(coarse_A, P.T @ A @ P, atol=1e-10)
        np.testing.assert_allclose(coarse_B, P.T @ B @ P, atol=1e-10)


def test_walk_form_is_the_same_pencil():
    operator = merged()
    walk = operator.walk_form()
    assert walk.scale is None
    np.testing.assert_allclose(reference.smallest(walk, 5)[0], reference.smallest(operator, 5)[0], atol=1e-10)
    U = np.random.default_rng(0).standard_normal((operator.n_nodes, 2))
    symmetric = laplacian(neighbours(), "symmetric")
    np.testing.assert_allclose(symmetric.from_walk(symmetric.to_walk(U)), U)
    V = symmetric.to_walk(U)
    expected = symmetric.to_walk(symmetric @ U)
    other = symmetric.walk_form()
    np.testing.assert_allclose((other @ V) / other.metric[:, None], expected, atol=1e-12)


def test_multilevel_survives_expanders():
    """Coarse graphs of an expander stay dense; no dense matrix of their size may be formed."""
    graph = make_block_model(9000, 3, mean_degree=40, random_state=0).graph
    operator = laplacian(graph)
    solution = run(operator, "multilevel", 3, tol=1e-4)
    assert solution.last.objective == pytest.approx(
        run(operator, "lanczos", 3, tol=1e-5).last.objective, rel=1e-3
    )
    assert any("not a geometric graph" in event for event in solution.last.events)


def test_auto_tells_geometric_graphs_from_expanders():
    points, _ = make_gaussian_mixture(3000, 3, random_state=0)
    flat, tangled = knn_graph(points), make_block_model(3000, 3, random_state=0).graph
    assert choose(Problem(laplacian(flat), 3)).name == "shift-invert"
    choices = plan(Problem(laplacian(tangled), 3))
    assert [choice.name for choice in choices] == ["lanczos", "chebyshev", "lanczos"]
    assert dict(choices[0].params) == {"block_size": 1}
    larger = make_block_model(5000, 3, random_state=0).graph
    assert choose(Problem(laplacian(larger), 8)) == choices[0]._replace(
        reason=choose(Problem(laplacian(larger), 3)).reason
    )
    assert choose(Problem(laplacian(larger), 9)).name == "chebyshev"
    assert "dense" in choose(Problem(laplacian(path()), 3)).reason


def test_repeated_eigenvalues_on_a_small_graph():
    """A ring of five copies of an expander: 0 and two pairs, of which one vector alone sees one each."""
    copy = make_block_model(300, 1, mean_degree=20, random_state=0).graph.matrix
    ring = sp.csr_array(np.roll(np.eye(5), 1, axis=1) + np.roll(np.eye(5), -1, axis=1))
    operator = laplacian(Graph.from_matrix(sp.kron(sp.eye_array(5), copy) + sp.kron(ring, sp.eye_array(300))))
    exact = np.linalg.eigvalsh(operator.standard_form().to_dense())[:6]
    assert exact[2] - exact[1] < 1e-9 < 0.1 < exact[5] - exact[4]
    found = embed(operator, 5, Settings(seed=0))
    assert found.attempts[0].solver == "lanczos"
    assert found.certificate.converged
    np.testing.assert_allclose(found.embedding.eigenvalues, exact[:5], atol=1e-4)


def test_escalations_and_their_reasons_are_kept(monkeypatch):
    """Every attempt is told, and the history runs on through all of them."""
    from spectrograd.solvers import embed as room
    from spectrograd.solvers.auto import Choice
    from spectrograd.solvers.embed import Settings

    plan = (Choice("gradient-descent", "too slow on purpose"), Choice("lanczos", "escalated: to finish"))
    monkeypatch.setattr(room, "plan", lambda problem: plan)
    graph = make_block_model(600, 3, random_state=0).graph
    result = room.embed(laplacian(graph), 3, Settings(seed=0, max_iter=5))
    assert [(a.solver, a.reason) for a in result.attempts] == [(c.name, c.reason) for c in plan]
    assert "NOT converged" in result.attempts[0].outcome
    assert result.attempts[1].outcome == result.certificate.sentence
    assert result.choice.name == "lanczos"
    events = [event for progress in result.solution.history for event in progress.events]
    assert "auto picked gradient-descent: too slow on purpose" in events
    assert "auto picked lanczos: escalated: to finish" in events
    for count in ("iteration", "passes", "seconds"):
        values = [getattr(progress, count) for progress in result.solution.history]
        assert values == sorted(values)
    assert result.solution.last.iteration == sum(a.iterations for a in result.attempts)
    asked = room.embed(laplacian(graph), 3, Settings(solver="lanczos", seed=0))
    assert [(a.solver, a.reason) for a in asked.attempts] == [("lanczos", "asked for")]
    assert asked.solution.history[0].events == ()


def test_entries_left():
    rng = np.random.default_rng(2)
    W = reference.random_graph(200, rng).matrix
    part, n = coarsen.match(W.indptr, W.indices, W.data, np.ones(200), 3)
    begin, order = coarsen.members(part, n)
    chosen = rng.choice(n, n // 2, replace=False)
    found = coarsen.entries_left(W.indptr, W.indices, part, begin, order, chosen)
    assert found == reference.entries_left(W, part, chosen)
    assert 0 < found < 1


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_the_paper_are_certified_by_a_factorisation(kind):
    """Their first eigenvalues are far apart from the K-th: filters must not drown it."""
    for layer in make_multilayer_gmm(6_000, random_state=0).graph.layers:
        result = embed(laplacian(layer, kind), 5, Settings(seed=0))
        assert [attempt.solver for attempt in result.attempts] == ["shift-invert"]
        assert result.certificate.converged
        assert not result.solution.last.events
