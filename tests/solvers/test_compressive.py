"""``compressive``: clusters from few columns, with a statement in the place of a certificate."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import Graph, SpectralClustering, SpectralEmbedding, datasets, open_store, write_graph
from spectrograd.engines import LocalEngine, make_engine
from spectrograd.graph import GraphWarning
from spectrograd.linalg.step_filter import (
    ChebyshevTerms,
    Moments,
    apply_step,
    jackson_factors,
    step_coefficients,
)
from spectrograd.metrics import adjusted_rand_index
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import Settings, cluster
from spectrograd.solvers import Problem, make_solver, solve
from spectrograd.solvers.settings import RunContext

K = 60
KINDS = ["random_walk", "unnormalized"]


@pytest.fixture(scope="module")
def blocks():
    """Sixty clusters with a clear gap."""
    return datasets.make_block_model(3000, K, random_state=0)


@pytest.fixture(scope="module")
def small():
    """An operator whose spectrum is known, in both metrics."""
    graph = datasets.make_block_model(300, 6, random_state=0).graph
    return {kind: laplacian(graph, kind) for kind in KINDS}


def run(graph, k=K, *, engine=None, **params):
    settings = Settings(n_components=k, solver="compressive", seed=0, params=params, regularization=None)
    return cluster(graph, settings, RunContext(engine=engine or LocalEngine()))


def loaded(operator):
    return LocalEngine().load_operator(operator.random_walk_form())


# --- the filter and the count ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degree", [1, 2, 9])
def test_the_filter_is_that_of_its_numpy_twin(small, kind, degree):
    operator = loaded(small[kind])
    X = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    edge = 0.3 * operator.upper
    expected = reference.step_filter(small[kind].random_walk_form(), X, edge, degree)
    np.testing.assert_allclose(
        apply_step(LocalEngine(), operator, X.copy(), edge, degree), expected, atol=2e-5
    )


def test_the_damped_step_stays_between_zero_and_one():
    """Jackson's kernel is positive, so nothing oscillates; far from the edge the step is flat."""
    t = np.linspace(-1, 1, 2001)
    for edge in (-0.8, 0.1):
        for degree in (3, 20, 60):
            h = np.polynomial.chebyshev.chebval(t, step_coefficients(edge, degree))
            assert h.min() >= -1e-12
            assert h.max() <= 1 + 1e-12
    assert h[t < -0.3].min() > 0.97
    assert h[t > 0.5].max() < 0.01
    assert jackson_factors(60)[-1] < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_spectrum(small, kind):
    operator = loaded(small[kind])
    X = np.random.default_rng(0).standard_normal((300, 2))
    moments = Moments(ChebyshevTerms(LocalEngine(), operator, X.copy()))
    moments.extend(5)
    A, B = reference.dense_pencil(small[kind].random_walk_form())
    values, vectors = np.linalg.eig(np.linalg.solve(B, A))
    t = 2 * values.real / operator.upper - 1
    weights = np.linalg.solve(vectors, X).real * (vectors.T @ B @ X).real
    expected = np.cos(np.arange(11)[:, None] * np.arccos(np.clip(t, -1, 1))) @ weights
    np.testing.assert_allclose(moments.columns, expected, atol=1e-6 * X.size)


def test_eigenvalues_outside_of_the_bounds_are_an_error(small):
    operator = replace(loaded(small["random_walk"]), upper=0.8)
    moments = Moments(
        ChebyshevTerms(LocalEngine(), operator, np.random.default_rng(0).standard_normal((300, 2)))
    )
    with pytest.raises(FloatingPointError, match="outside of the operator's bounds"):
        moments.extend(30)


def test_the_count_meets_the_truth_within_its_error():
    """Six eigenvalues lie in front of the gap; the count over seeds has the error that it states."""
    operator = laplacian(datasets.make_block_model(400, 6, mixing=0.1, random_state=0).graph)
    deviations = []
    for seed in range(20):
        mixed = solve(Problem(operator, 6), make_solver("compressive", n_columns=5), seed=seed).evidence.mixed
        truth = (reference.smallest(operator, 40)[0] < mixed.edge).sum()
        deviations.append((mixed.count - truth) / mixed.standard_error)
    assert abs(np.mean(deviations)) < 1.5
    assert np.quantile(np.abs(deviations), 0.8) < 4


# --- clusters ----------------------------------------------------------------------------------------


def test_few_columns_find_sixty_clusters(blocks):
    result = run(blocks.graph)
    assert adjusted_rand_index(blocks.labels, result.labels) > 0.95
    assert result.vectors.shape == (3000, 19)  # 3 log2 60 and the constant
    mixed = result.certificate.mixed
    assert mixed.is_good
    assert abs(mixed.count - K) < 3 * mixed.standard_error + 1.5
    settings = Settings(n_components=K, solver="chebyshev", seed=0, regularization=None)
    assert result.matvecs < 0.6 * cluster(blocks.graph, settings).matvecs


def test_nothing_claims_eigenvectors(blocks):
    result = run(blocks.graph)
    assert not result.converged
    assert result.certificate.angle_bound == np.inf
    assert np.isinf(result.certificate.residuals).all()
    assert (
        "18 columns mix the first 60 eigenvectors and have converged to none" in result.certificate.sentence
    )
    assert result.certificate.summary()["mixed_columns"]["good"]


def test_a_graph_without_clusters_says_so():
    result = run(datasets.make_block_model(2000, 1, mean_degree=8, random_state=0).graph, 40)
    assert not result.certificate.mixed.is_good
    assert "doubtful: " in result.certificate.sentence
    assert "the clusters depend on the random columns" in result.certificate.sentence


def test_estimators_return_the_columns(blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a good statement is no reason for a warning
        model = SpectralClustering(K, solver="compressive", random_state=0).fit(blocks.graph)
    assert not model.converged_
    assert model.embedding_.shape == (3000, 19)
    assert adjusted_rand_index(blocks.labels, model.labels_) > 0.95
    vectors = SpectralEmbedding(K, solver="compressive", random_state=0).fit_transform(blocks.graph)
    assert vectors.shape[1] < K


def test_a_store_gives_the_same_clusters(blocks, tmp_path):
    write_graph(tmp_path / "graph.store", blocks.graph)
    result = run(open_store(tmp_path / "graph.store"))
    assert adjusted_rand_index(blocks.labels, result.labels) > 0.95
    assert result.certificate.mixed.is_good


def test_tensors_give_the_same_clusters(blocks):
    pytest.importorskip("torch")
    result = run(blocks.graph, engine=make_engine("torch"))
    assert adjusted_rand_index(blocks.labels, result.labels) > 0.95
    assert result.certificate.mixed.is_good


def test_components_and_isolated_nodes_are_left_out():
    """Nodes that take no part have zeros, and are not counted."""
    matrix = datasets.make_block_model(1500, 30, random_state=0).graph.matrix
    graph = Graph.from_matrix(sp.block_diag([matrix, sp.csr_array((3, 3))]).tocsr())
    with pytest.warns(GraphWarning):
        result = run(graph, 30)
    assert (result.labels[1500:] == -1).all()


# --- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "params", "message"),
    [
        (1, {}, "n_components=1 has nothing to tell apart"),
        (6, {"n_columns": 2}, "n_columns=2 cannot tell 6 clusters apart: at least 3 are needed"),
        (6, {"degree": 3}, "degree=3: at least 6"),
    ],
)
def test_bad_numbers_are_refused(small, k, params, message):
    with pytest.raises(ValueError, match=message):
        solve(Problem(small["random_walk"], k), make_solver("compressive", **params), seed=0)


def test_as_many_clusters_as_nodes_are_refused(small):
    with pytest.raises(ValueError, match="only 300 nodes"):
        Problem(small["random_walk"], 300)


def test_qr_needs_more_columns(blocks):
    settings = Settings(n_components=K, solver="compressive", assign_labels="cluster_qr", seed=0)
    with pytest.raises(ValueError, match="cluster_qr needs at least one column per cluster: 19 columns"):
        cluster(blocks.graph, settings)
