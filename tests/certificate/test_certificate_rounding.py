"""A certificate speaks of the matrix that was given, not of the one that rounding makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import SpectralEmbedding
from spectrograd.aggregation import Layers, layer_operators, make_aggregation
from spectrograd.graph import MultilayerGraph
from spectrograd.operators.laplacian import LowRank, laplacian, regularized_laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed

KINDS = ["random_walk", "symmetric", "unnormalized"]


def path(weights):
    return sp.csr_array(sp.diags_array([weights, weights], offsets=[1, -1]))


@pytest.mark.parametrize("solver", ["auto", "eigen", "shift-invert", "chebyshev", "lanczos"])
@pytest.mark.parametrize("weights", [[1, 1e-20, 1e-20, 1], [1e30, 1e-30, 1e-30, 1e30]])
def test_edges_lost_in_the_degrees_are_not_certified(weights, solver):
    """``1 + 1e-20 == 1``: the degrees do not know of the light edges, which decide the second vector."""
    model = SpectralEmbedding(
        2, drop_first=False, affinity="precomputed", laplacian="unnormalized", solver=solver,
        regularization=None, random_state=0,
    ).fit(path(np.array(weights, dtype=float)))  # fmt: skip
    assert model.converged_ is False
    assert "cannot be certified" in model.certificate_.sentence


def test_what_the_light_edges_do_not_decide_is_certified():
    """The first three vectors are the pairs and the single node, whatever ties them."""
    model = SpectralEmbedding(
        3, drop_first=False, affinity="precomputed", laplacian="unnormalized", regularization=None
    ).fit(path(np.array([1, 1e-20, 1e-20, 1])))
    truth = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]]).T / np.sqrt([2, 1, 2])
    assert model.converged_
    assert reference.largest_sine(model.embedding_, truth, None) < 1e-10


def operators():
    rng = np.random.default_rng(3)
    graph = reference.random_graph(90, rng, mean_degree=12)
    yield from (laplacian(graph, kind) for kind in KINDS)
    yield from (regularized_laplacian(graph, kind, 0.3) for kind in KINDS)
    factors = np.linalg.qr(rng.standard_normal((90, 3)))[0]
    yield replace(laplacian(graph, "symmetric"), low_rank=LowRank(factors, np.full(3, 0.5)), lower=-0.5)
    layers = MultilayerGraph.from_layers([graph, reference.random_graph(90, rng)])
    for name in ("mean", "power-mean", "geometric"):
        given = Layers(layer_operators(layers, "symmetric"), np.ones(2))
        yield make_aggregation(name).aggregate(given)


@pytest.mark.parametrize("number", range(10))
def test_products_are_within_the_rounding_that_is_claimed(number):
    """In float32 against float64, for vectors of unit length in the operator's own norms."""
    operator = list(operators())[number]
    mass = np.ones(90) if operator.metric is None else operator.metric
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((90, 1)).astype(np.float32) / np.sqrt(mass)[:, None]
        x = x.astype(np.float32).astype(np.float64)
        error = (operator @ x.astype(np.float32)).astype(np.float64) - operator @ x
        length = np.sqrt((mass[:, None] * x**2).sum())
        off = np.sqrt((error**2 / mass[:, None]).sum()) / length
        assert 0 < off <= operator.rounding(np.float32)
    assert operator.rounding(np.float64) < operator.rounding(np.float32)


def test_an_eigenvalue_that_a_laplacian_cannot_have_is_objected_to():
    """Degrees that are too small, as if edges had been lost: an eigenvalue is negative."""
    operator = laplacian(reference.random_graph(60, np.random.default_rng(0)), "unnormalized")
    assert embed(operator, 3, Settings(seed=0)).certificate.converged
    wrong = embed(replace(operator, diagonal=0.99 * operator.diagonal), 3, Settings(seed=0)).certificate
    assert not wrong.converged
    assert "below all that the operator can have" in wrong.sentence


def test_residuals_and_intervals_include_the_rounding():
    operator = laplacian(reference.random_graph(60, np.random.default_rng(0)), "unnormalized")
    found = embed(operator, 3, Settings(solver="eigen", seed=0)).certificate
    assert (found.residuals >= found.rounding).all()
    assert found.rounding >= np.finfo(float).eps * operator.diagonal.max()
    np.testing.assert_allclose(np.ptp(found.intervals, axis=1), 2 * found.residuals, rtol=1e-2)
