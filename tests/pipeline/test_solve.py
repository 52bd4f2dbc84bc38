"""The portfolio of eigensolvers against LAPACK."""

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
from spectrograd.datasets import make_block_model, make_gaussian_mixture
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.linalg import multigrid as tree
from spectrograd.operators.laplacian import laplacian
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers import Problem, Stopping, make_solver, solve

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
    assert warm.last.matvecs <= cold.last.matvecs


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
    # Ritz values of a float32 basis have a rounding error of 1.2e-7 each
    assert run(operator, name, 3, tol=1e-6).last.objective == pytest.approx(expected, abs=3e-7)


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


# --- hierarchies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_coarse_operators_are_galerkin_products(kind):
    operator = laplacian(neighbours(), kind).random_walk_form()
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
    walk = operator.random_walk_form()
    assert walk.scale is None
    np.testing.assert_allclose(reference.smallest(walk, 5)[0], reference.smallest(operator, 5)[0], atol=1e-10)
    U = np.random.default_rng(0).standard_normal((operator.n_nodes, 2))
    symmetric = laplacian(neighbours(), "symmetric")
    np.testing.assert_allclose(symmetric.from_random_walk(symmetric.to_random_walk(U)), U)
    V = symmetric.to_random_walk(U)
    expected = symmetric.to_random_walk(symmetric @ U)
    other = symmetric.random_walk_form()
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
