"""The methods around the paper: each agrees with LAPACK where its assumptions hold, and says so where not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel

import reference
from spectrograd import datasets
from spectrograd.graph import Graph
from spectrograd.kernels.baselines import coordinate_rounds
from spectrograd.metrics import largest_principal_angle
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers import Problem, State, make_solver
from spectrograd.solvers.nystrom import nystrom_points, variational_nystrom_points
from spectrograd.solvers.similarity import Similarity

SEEDS = st.integers(0, 2**16)
FEW = settings(max_examples=6, deadline=None, derandomize=True)
METHODS = ["nystrom", "variational-nystrom", "power", "coordinate-power", "stochastic-fb"]


def run(operator, k, name, seed=0, max_iter=None, **params):
    """The result and the largest angle to LAPACK's answer."""
    result = embed(operator, k, Settings(solver=name, params=params, seed=seed, max_iter=max_iter))
    _, exact = reference.smallest(operator, k)
    return result, largest_principal_angle(result.embedding.vectors, exact, operator.metric)


def block_model(seed, n=400, k=3, **options):
    return datasets.make_block_model(n, k, random_state=seed, **options).graph


def smooth_kernel_graph(seed, n=300, k=3):
    points, _ = datasets.make_gaussian_mixture(n, k, separation=6, random_state=seed)
    kernel = rbf_kernel(points, gamma=0.1)
    np.fill_diagonal(kernel, 0)
    return Graph.from_matrix(kernel)


def bipartite(seed, n=200):
    """Two planted pairs of sides: the affinity has eigenvalues -1 as well as 1."""
    rng = np.random.default_rng(seed)
    block = (
        rng.random((n, n)) < np.kron(np.array([[0.2, 0.02], [0.02, 0.2]]), np.ones((n // 2, n // 2)))
    ) * 1.0
    block += np.eye(n)
    return Graph.from_matrix(np.block([[np.zeros((n, n)), block], [block.T, np.zeros((n, n))]]))


def path(n=600):
    """Eigenvalues close to one another, eigenvectors spread out: the worst case for all methods here."""
    return Graph.from_edges(np.arange(n - 1), np.arange(1, n), n_nodes=n)


def merged(seed, n=300):
    data = datasets.make_multilayer_gmm(n, random_state=seed)
    return merge(data.graph, 3, Settings(seed=0)).operator


# --- where the assumptions hold -----------------------------------------------------------------------


@FEW
@given(SEEDS)
def test_nystrom_needs_a_smooth_kernel(seed):
    _, angle = run(laplacian(smooth_kernel_graph(seed)), 3, "nystrom", seed, n_landmarks=150)
    assert angle < 0.1


@FEW
@given(SEEDS)
def test_variational_nystrom_needs_a_smooth_kernel_and_is_never_worse_in_objective(seed):
    operator = laplacian(smooth_kernel_graph(seed))
    best, angle = run(operator, 3, "variational-nystrom", seed, n_landmarks=150)
    plain, _ = run(operator, 3, "nystrom", seed, n_landmarks=150)
    assert angle < 0.1
    assert best.embedding.eigenvalues.sum() <= plain.embedding.eigenvalues.sum() + 1e-9


@FEW
@given(SEEDS, st.sampled_from(["nystrom", "variational-nystrom"]))
def test_walks_make_landmark_methods_exact_on_sparse_graphs(seed, name):
    result, angle = run(laplacian(block_model(seed)), 3, name, seed, n_landmarks=100, walk=40)
    assert angle < 1e-3
    assert result.certificate.converged


@FEW
@given(SEEDS, st.sampled_from(["random_walk", "symmetric", "unnormalized"]))
def test_power_needs_a_gap(seed, kind):
    result, angle = run(laplacian(block_model(seed), kind), 3, "power", seed)
    assert angle < 2e-2
    assert result.certificate.converged


@FEW
@given(SEEDS)
def test_power_starts_again_where_negative_eigenvalues_dominate(seed):
    result, angle = run(laplacian(bipartite(seed)), 2, "power", seed)
    assert any("psd" in event for event in result.last.events)
    assert angle < 2e-2
    assert result.certificate.converged


@FEW
@given(SEEDS, st.sampled_from(["random_walk", "symmetric", "unnormalized"]))
def test_coordinate_power_needs_a_gap(seed, kind):
    result, angle = run(laplacian(block_model(seed), kind), 3, "coordinate-power", seed)
    assert angle < 2e-2
    assert result.certificate.converged


@FEW
@given(SEEDS, st.sampled_from(["random_walk", "symmetric"]))
def test_columns_setting_reaches_its_noise_floor(seed, kind):
    _, angle = run(laplacian(block_model(seed), kind), 3, "stochastic-fb", seed, setting="columns")
    assert angle < 0.35


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["power", "coordinate-power"])
def test_sparse_plus_low_rank_operators(seed, name):
    result, angle = run(merged(seed), 3, name, seed)
    assert result.certificate.converged
    assert angle < 2e-2


# --- where they do not --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", METHODS)
def test_the_certificate_says_so_where_assumptions_fail(name, seed):
    result, angle = run(laplacian(path()), 4, name, seed, max_iter=50)
    assert angle > 0.1
    assert not result.certificate.converged
    assert "NOT converged" in result.certificate.sentence


@pytest.mark.parametrize("name", ["nystrom", "variational-nystrom"])
def test_landmarks_on_a_sparse_graph_are_not_certified(name):
    result, _ = run(laplacian(block_model(0)), 3, name, n_landmarks=50)
    assert not result.certificate.converged


# --- points without a graph ---------------------------------------------------------------------------


@FEW
@given(SEEDS, st.sampled_from([nystrom_points, variational_nystrom_points]))
def test_points_agree_with_the_dense_kernel_matrix(seed, method):
    points, _ = datasets.make_gaussian_mixture(300, 3, separation=6, random_state=seed)
    found = method(points, 3, gamma=0.1, n_landmarks=80, random_state=seed)
    kernel = rbf_kernel(points, gamma=0.1)
    degrees = kernel.sum(axis=1)
    values, exact = la.eigh(np.diag(degrees) - kernel, np.diag(degrees), subset_by_index=(0, 2))
    assert largest_principal_angle(found.embedding.vectors, exact, degrees) < 1e-2
    np.testing.assert_allclose(found.embedding.eigenvalues, values, atol=1e-3)
    np.testing.assert_allclose(found.degrees, degrees, rtol=1e-2)
    assert found.residuals.max() < 1e-2


def test_residuals_of_points_tell_when_the_kernel_is_too_narrow():
    points = np.random.default_rng(0).standard_normal((400, 5))
    for method in (nystrom_points, variational_nystrom_points):
        assert method(points, 3, gamma=1.0, n_landmarks=20, random_state=0).residuals.max() > 0.05


def test_points_take_any_kernel_function():
    points, _ = datasets.make_gaussian_mixture(200, 2, random_state=0)
    by_name = nystrom_points(points, 2, gamma=0.3, random_state=1)
    by_function = nystrom_points(points, 2, kernel=lambda X, Y: rbf_kernel(X, Y, gamma=0.3), random_state=1)
    np.testing.assert_allclose(by_name.embedding.vectors, by_function.embedding.vectors)
    with pytest.raises(ValueError, match="expected 'rbf'"):
        nystrom_points(points, 2, kernel="linear?")


# --- the similarity and the kernel --------------------------------------------------------------------


def operators():
    graph = reference.random_graph(60, np.random.default_rng(1))
    yield from (laplacian(graph, kind) for kind in ("random_walk", "symmetric", "unnormalized"))
    Z = np.random.default_rng(2).standard_normal((60, 4))
    yield SparseOperator(graph, graph.degrees, low_rank=LowRank(Z, np.full(4, 0.1)), lower=-20, upper=60)


@pytest.mark.parametrize("number", range(4))
def test_columns_of_the_similarity(number):
    operator = list(operators())[number]
    problem = Problem(operator, 2)
    similarity = Similarity.of(problem, State(np.zeros((60, 2)), np.random.default_rng(0)))
    A, B = reference.dense_pencil(operator)
    root = np.sqrt(np.diag(B))
    standard = A / np.outer(root, root)
    S = similarity.shift * np.eye(60) - standard
    nodes = np.array([3, 17, 50])
    np.testing.assert_allclose(similarity.columns(nodes), S[:, nodes], atol=1e-12)
    np.testing.assert_allclose(similarity.apply(problem.engine, np.eye(60)), S, atol=1e-12)
    assert np.linalg.eigvalsh(S)[0] > -0.02 * np.linalg.eigvalsh(S)[-1]


def rounds_twin(S, x, size, n_rounds):
    """Coordinate-wise power iteration as the paper writes it, with dense matrices."""
    x = x.copy()
    for _ in range(n_rounds):
        z = S @ x
        change = z / (x @ z / (x @ x)) - x
        chosen = np.argsort(-np.abs(change), kind="stable")[:size]
        x[chosen] += change[chosen]
    return x


@pytest.mark.parametrize("size", [1, 5, 60])
@pytest.mark.parametrize("rank", [0, 3])
def test_coordinate_rounds_against_their_twin(size, rank):
    rng = np.random.default_rng(size + rank)
    matrix = reference.random_graph(60, rng).matrix
    diagonal, P, a = rng.uniform(20, 30, 60), rng.standard_normal((60, rank)), rng.uniform(0, 1, rank)
    M = matrix.toarray() + np.diag(diagonal)
    S = M + (P * a) @ P.T
    x = rng.standard_normal(60)
    expected = rounds_twin(S, x, size, 7)
    z = M @ x
    csr = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)
    theta, _, n_read = coordinate_rounds(csr, diagonal, (P, a), x, z, size, 7)
    np.testing.assert_allclose(x, expected, atol=1e-10)
    np.testing.assert_allclose(z, M @ x, atol=1e-9)
    assert theta > 0
    assert n_read > 0


# --- parameters ---------------------------------------------------------------------------------------


def test_iterations_of_the_settings():
    assert make_solver("stochastic-fb").max_iter == 3000
    assert make_solver("stochastic-fb", setting="columns").max_iter == 600
    assert make_solver("stochastic-fb", setting="columns", max_iter=7).max_iter == 7


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("stochastic-fb", {"setting": "rows"}),
        ("nystrom", {"n_landmarks": 2}),
        ("variational-nystrom", {"walk": 0}),
        ("power", {"shift": "left"}),
        ("coordinate-power", {"share": 0.0}),
        ("coordinate-power", {"sweeps": 0}),
    ],
)
def test_wrong_parameters_are_named(name, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        embed(laplacian(block_model(0)), 3, Settings(solver=name, params=params, seed=0))


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_vectors(name):
    operator = laplacian(knn_graph(np.random.default_rng(0).random((300, 2)), 8))
    first, second = (
        embed(operator, 3, Settings(solver=name, seed=5, max_iter=20)).embedding.vectors for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
