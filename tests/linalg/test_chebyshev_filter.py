"""Chebyshev filters against the polynomial itself, and singular values against those of the block."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.polynomial.chebyshev import Chebyshev

import reference
from spectrograd.engines import LocalEngine
from spectrograd.linalg.chebyshev_filter import (
    Filter,
    FilteredSingularValues,
    Filtering,
    damping_coefficients,
    estimate_bulk,
    has_hubs,
)
from spectrograd.linalg.subspace import Coordinates
from spectrograd.operators.laplacian import laplacian

ENGINE = LocalEngine()
N, CUT = 50, 0.6


@pytest.fixture(scope="module")
def walk():
    """An operator in random-walk form, and its dense ``B^-1 A``."""
    operator = laplacian(reference.random_graph(N, np.random.default_rng(0)), "random_walk")
    operator = Coordinates.random_walk(ENGINE, operator).operator
    A, B = reference.dense_pencil(operator)
    return operator, np.linalg.solve(B, A)


def block(k=3):
    return np.random.default_rng(1).standard_normal((N, k))


def polynomial(operator, degree, cut=CUT):
    """``T_m`` that is large below the cut, divided by its value at the lower end."""
    T = Chebyshev.basis(degree, domain=[cut, operator.upper])
    return lambda x: T(x) / T(operator.lower)


def of_matrix(S, function):
    values, V = np.linalg.eig(S)
    return (V * function(values.real)) @ np.linalg.inv(V)


@pytest.mark.parametrize("degree", [0, 1, 2, 7])
def test_a_filter_is_its_polynomial(walk, degree):
    operator, S = walk
    U = block()
    kept = U.copy()
    found = Filter(degree, CUT, operator.upper).apply(ENGINE, operator, U)
    expected = of_matrix(S, polynomial(operator, degree)).real @ U
    assert np.allclose(found, expected, atol=1e-10)
    assert np.array_equal(U, kept)


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_known_products_and_owned_memory_change_nothing(walk, owned, given):
    operator, S = walk
    U = block()
    product = S @ U if given else None
    work = Filtering(
        Filter(5, CUT, operator.upper), ENGINE, operator, U.copy() if owned else U, product, owned=owned
    )
    for _ in range(5):
        work.advance()
    assert work.degree == 5
    assert np.allclose(work.current, of_matrix(S, polynomial(operator, 5)).real @ block(), atol=1e-10)
    assert owned or np.array_equal(U, block())


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("when", [1, 3])
def test_columns_may_be_rotated_on_the_way(walk, owned, when):
    operator, S = walk
    F = np.random.default_rng(2).standard_normal((3, 3))
    work = Filtering(Filter(5, CUT, operator.upper), ENGINE, operator, block(), owned=owned)
    for degree in range(1, 6):
        work.advance()
        if degree == when:
            work.rotate(F)
    assert np.allclose(work.current, of_matrix(S, polynomial(operator, 5)).real @ block() @ F, atol=1e-10)


def test_gains_are_those_of_the_polynomial(walk):
    operator, _ = walk
    for degree in (1, 4, 9):
        smooth, p = Filter(degree, CUT, operator.upper), polynomial(operator, degree)
        for value in (0.0, 0.1, 0.3, 0.59, CUT):
            assert smooth.log_gain(value, operator.lower) == pytest.approx(math.log(p(value)), abs=1e-9)
        assert smooth.log_gain(operator.lower, operator.lower) == 0
        inside = np.linspace(CUT, operator.upper, 50)
        assert np.abs(p(inside)).max() <= math.exp(smooth.log_gain(CUT, operator.lower)) * (1 + 1e-9)


def test_rates_are_those_of_the_hyperbolic_cosine():
    smooth = Filter(3, 1.0, 3.0)
    assert smooth.rate(1.0) == smooth.rate(2.0) == smooth.rate(3.0) == 0
    assert smooth.rate(0.0) == pytest.approx(math.acosh(2))
    assert smooth.rate(-1.0) == pytest.approx(math.acosh(3))


def test_the_value_at_the_lower_end_stays_one():
    coefficients = damping_coefficients(0.0, 0.5, 2.0)
    before, value = 0.0, 1.0
    for _ in range(12):
        a, b, c = next(coefficients)
        before, value = value, a * 0.0 + b * value + c * before
        assert value == pytest.approx(1)


# --- The bulk of a spectrum


def of_quotients(quotients, upper=20.0, n_edges=200):
    return SimpleNamespace(
        quotients=None if quotients is None else np.array(quotients, float),
        upper=upper,
        n_edges=n_edges,
        n_nodes=100,
    )


def test_hubs_are_rows_far_beyond_the_median():
    assert not has_hubs(of_quotients(None))
    assert not has_hubs(of_quotients([1, 1, 1, 4]))
    assert has_hubs(of_quotients([1, 1, 1, 4.1]))


def test_a_bulk_without_hubs_ends_two_deviations_from_its_mean():
    for quotients in (None, [1, 1, 2], [1, 1, 3.0]):
        bulk = estimate_bulk(of_quotients(quotients), 1.0, 1.0)
        assert (bulk.mean, bulk.deviation, bulk.end, bulk.low) == (1.0, 1.0, 3.0, -1.0)
        assert not bulk.has_hubs
    assert estimate_bulk(of_quotients(None, upper=2.0), 1.0, 1.0).end == 2.0


def test_a_bulk_with_hubs_is_that_of_the_other_rows():
    bulk = estimate_bulk(of_quotients([1, 1, 2, 2, 15]), 4.0, 5.0)  # 15 lies beyond 4 + 2 5
    assert bulk.has_hubs
    assert bulk.end == 20.0
    assert bulk.mean == 1.5
    assert bulk.deviation == pytest.approx(math.sqrt(0.25 + 1.5**2 / 4))  # 2 200 / 100 entries of a row
    few = estimate_bulk(of_quotients([1, 1, 2, 2, 15], n_edges=0), 4.0, 5.0)
    assert few.deviation == pytest.approx(math.sqrt(0.25 + 1.5**2))
    assert estimate_bulk(of_quotients([1, 1, 2, 2, 15]), 4.0, 0.1).deviation == 0.1


# --- Singular values of a filtered block


def test_singular_values_are_those_of_the_block_whatever_was_rotated():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((80, 6)))[0] * [900.0, 300, 40, 1, 0.9, 1.1]
    expected = np.linalg.svd(X, compute_uv=False)
    values = FilteredSingularValues(6)
    values.measure(X.T @ X)
    assert values.is_uneven
    assert np.allclose(np.linalg.svd(values.factor, compute_uv=False), expected)
    noise = (expected[3:] ** 2).mean()
    error = math.sqrt((noise / (expected[:3] ** 2 - noise)).sum())
    assert values.error(3) == pytest.approx(error)
    assert values.error(6) == 0
    # evened out, and measured again after a further map
    Y = X @ values.even_out()
    assert np.allclose(Y.T @ Y, np.eye(6), atol=1e-8)
    values.measure(Y.T @ Y)
    assert not values.is_uneven
    assert np.allclose(np.linalg.svd(values.factor, compute_uv=False), expected)
    M = np.diag(rng.uniform(0.5, 2, 80))
    values.measure(Y.T @ M @ M @ Y)
    assert np.allclose(np.linalg.svd(values.factor, compute_uv=False), np.linalg.svd(M @ X, compute_uv=False))


def test_a_block_is_uneven_beyond_a_ratio_of_a_hundred():
    for ratio, uneven in ((99.0, False), (101.0, True)):
        values = FilteredSingularValues(2)
        values.measure(np.diag([1.0, ratio**2]))
        assert values.is_uneven is uneven


def test_a_block_of_zeros_is_told():
    with pytest.raises(FloatingPointError, match="lost all vectors"):
        FilteredSingularValues(3).measure(np.zeros((3, 3)))
    FilteredSingularValues(3).measure(np.diag([0.0, 0.0, 1.0]))  # one direction is left
