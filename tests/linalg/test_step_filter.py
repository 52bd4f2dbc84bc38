"""Damped steps, Chebyshev moments and densities of eigenvalues, against dense matrices."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial import chebyshev

import reference
from spectrograd.engines import LocalEngine
from spectrograd.linalg.step_filter import (
    ChebyshevTerms,
    Moments,
    SpectralDensity,
    StepQuality,
    apply_step,
    jackson_factors,
    step_coefficients,
)
from spectrograd.linalg.subspace import Coordinates
from spectrograd.operators.base import DenseOperator
from spectrograd.operators.laplacian import laplacian

ENGINE = LocalEngine()
N = 40


@pytest.fixture(scope="module", params=[(0.0, 2.0), (-0.5, 4.0)])
def walk(request):
    """An operator in random-walk form of either bounds, its dense ``B^-1 A`` and B."""
    operator = laplacian(reference.random_graph(N, np.random.default_rng(0)), "random_walk")
    bounds = request.param
    operator = replace(Coordinates.random_walk(ENGINE, operator).operator, lower=bounds[0], upper=bounds[1])
    A, B = reference.dense_pencil(operator)
    return operator, np.linalg.solve(B, A), B


def block(k=3):
    return np.random.default_rng(1).standard_normal((N, k))


def of_matrix(S, function):
    values, V = np.linalg.eig(S)
    return ((V * function(values.real)) @ np.linalg.inv(V)).real


def test_jackson_factors_are_those_of_the_paper():
    """Weisse et al. 2006, Eq. 71, with N = degree + 1."""
    for degree in (1, 5, 20):
        n = degree + 1
        expected = [
            (
                (n - m + 1) * math.cos(math.pi * m / (n + 1))
                + math.sin(math.pi * m / (n + 1)) / math.tan(math.pi / (n + 1))
            )
            / (n + 1)
            for m in range(n)
        ]
        assert np.allclose(jackson_factors(degree), expected)
    assert jackson_factors(50)[0] == pytest.approx(1)


@pytest.mark.parametrize("edge", [-0.7, 0.0, 0.4])
def test_coefficients_of_a_step_are_its_integrals(edge):
    """``c_m = (2 - [m = 0]) / pi  int h(cos t) cos(m t) dt``, times Jackson's factors."""
    degree, n = 8, 200_000
    angles = np.pi * (np.arange(n) + 0.5) / n
    step = np.cos(angles) <= edge
    plain = [(2 - (m == 0)) * (step * np.cos(m * angles)).mean() for m in range(degree + 1)]
    assert np.allclose(step_coefficients(edge, degree), plain * jackson_factors(degree), atol=1e-4)


def test_edges_outside_of_the_interval_are_its_ends():
    assert np.allclose(step_coefficients(1.5, 4), [1, 0, 0, 0, 0], atol=1e-12)
    assert np.allclose(step_coefficients(-1.5, 4), 0, atol=1e-12)


def test_a_step_falls_between_one_and_zero():
    x = np.linspace(-1, 1, 500)
    y = chebyshev.chebval(x, step_coefficients(0.2, 60))
    assert (np.diff(y) < 1e-9).all()
    assert y[x < 0.05].min() > 0.98
    assert abs(y[x > 0.35]).max() < 0.02


@pytest.mark.parametrize("degree", [1, 2, 6])
def test_terms_are_chebyshev_polynomials(walk, degree):
    operator, S, _ = walk
    terms = ChebyshevTerms(ENGINE, operator, block())
    for _ in range(degree):
        terms.advance()
    middle, half = (operator.upper + operator.lower) / 2, (operator.upper - operator.lower) / 2
    expected = of_matrix((S - middle * np.eye(N)) / half, lambda x: chebyshev.Chebyshev.basis(degree)(x))
    assert terms.degree == degree
    assert np.allclose(terms.current, expected @ block(), atol=1e-10)


@pytest.mark.parametrize("steps", [(1,), (2,), (6,), (2, 5)])
def test_moments_are_quadratic_forms_of_the_terms(walk, steps):
    operator, S, B = walk
    moments = Moments(ChebyshevTerms(ENGINE, operator, block()))
    for degree in steps:
        moments.extend(degree)
    middle, half = (operator.upper + operator.lower) / 2, (operator.upper - operator.lower) / 2
    T = [
        of_matrix((S - middle * np.eye(N)) / half, chebyshev.Chebyshev.basis(m))
        for m in range(2 * steps[-1] + 1)
    ]
    expected = [np.einsum("ij,ij->j", block(), B @ t @ block()) for t in T]
    assert np.allclose(moments.columns, expected, atol=1e-8)


def test_moments_that_grow_are_told():
    """An eigenvalue beyond the bounds."""
    operator = DenseOperator(np.diag(np.append(np.linspace(0, 1, N - 1), 3.0)), 0.0, 1.0)
    with pytest.raises(FloatingPointError, match="outside"):
        Moments(ChebyshevTerms(ENGINE, operator, block())).extend(4)


def test_a_density_counts_eigenvalues(walk):
    """With one column for each unit vector the moments are exact."""
    operator, S, B = walk
    moments = Moments(ChebyshevTerms(ENGINE, operator, np.eye(N) / np.sqrt(np.diag(B))))
    moments.extend(30)
    density = moments.density(N)
    values = np.sort(np.linalg.eigvals(S).real)
    total = density.weights.mean(axis=1)
    assert total.sum() == pytest.approx(N)
    points = np.array([density.point_at(value) for value in values])
    assert (total * density.points).sum() == pytest.approx(jackson_factors(60)[1] * points.sum())
    at = np.array([density.value_at(point) for point in density.points])
    for value in (0.5, 1.0, 1.3):
        assert total[at < value].sum() == pytest.approx((values < value).sum(), abs=2.5)


def of_values(values, degree=80, bounds=(0.0, 4.0), columns=1):
    """The density of given eigenvalues."""
    lower, upper = bounds
    points = 2 * (np.asarray(values) - lower) / (upper - lower) - 1
    moments = np.array([chebyshev.Chebyshev.basis(m)(points).sum() for m in range(2 * degree + 1)])
    return SpectralDensity.of(np.repeat(moments[:, None], columns, axis=1), bounds)


GROUPS = np.concatenate([np.linspace(0.0, 0.3, 5), np.linspace(1.5, 3.8, 45)])


def test_points_and_values_are_maps_of_each_other():
    density = of_values(GROUPS, bounds=(1.0, 5.0))
    assert density.value_at(-1.0) == 1.0
    assert density.value_at(0.5) == 4.0
    assert density.point_at(density.value_at(0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize("columns", [1, 3])
def test_an_edge_lies_in_the_gap(columns):
    edge = of_values(GROUPS, columns=columns).find_edge(5)
    assert 0.4 < edge.value < 1.4
    assert edge.count == pytest.approx(5, abs=0.3)
    assert edge.standard_error == pytest.approx(0 if columns > 1 else edge.count, abs=1e-9)


def test_the_error_of_a_count_is_that_of_its_columns():
    one, other = (of_values(np.concatenate([np.linspace(0, 0.3, n), GROUPS[5:]])) for n in (4, 6))
    density = SpectralDensity(one.points, np.hstack([one.weights, other.weights]), one.bounds)
    edge = density.find_edge(5)
    assert edge.count == pytest.approx(5, abs=0.3)
    assert edge.standard_error == pytest.approx(1, abs=0.05)  # 4 and 6: a deviation of 2^1/2 over 2^1/2


def test_a_step_in_a_gap_is_good_and_one_in_a_bulk_is_not():
    density = of_values(GROUPS)
    assert density.quality(0.9, 40).is_good
    assert density.least_degree(0.9, 4) is None
    least = density.least_degree(0.9, 60)
    assert density.quality(0.9, least).is_good
    assert not density.quality(0.9, least - 1).is_good
    assert not density.quality(1.5, least).is_good
    assert density.quality(-1.0, 10) == StepQuality(1.0, 0.0)


def test_the_quality_is_that_of_the_filtered_squares():
    density = of_values(GROUPS, degree=400)
    found = density.quality(0.9, 12)
    squares = chebyshev.chebval(GROUPS / 2 - 1, step_coefficients(0.9 / 2 - 1, 12)) ** 2
    below = GROUPS < 0.9
    assert found.noise == pytest.approx(squares[~below].sum() / squares.sum(), rel=0.05)
    flatness = squares[below].sum() ** 2 / ((squares[below] ** 2).sum() * below.sum())
    assert found.flatness == pytest.approx(flatness, rel=0.02)


@pytest.mark.parametrize(
    ("noise", "flatness", "good"), [(0.1, 0.9, True), (0.11, 0.9, False), (0.1, 0.89, False)]
)
def test_what_is_good_enough(noise, flatness, good):
    assert StepQuality(noise, flatness).is_good is good


@pytest.mark.parametrize("degree", [1, 9])
def test_a_step_applied_is_its_polynomial(walk, degree):
    operator, S, _ = walk
    middle, half = (operator.upper + operator.lower) / 2, (operator.upper - operator.lower) / 2
    coefficients = step_coefficients((0.8 - middle) / half, degree)
    expected = (
        of_matrix((S - middle * np.eye(N)) / half, lambda x: chebyshev.chebval(x, coefficients)) @ block()
    )
    assert np.allclose(apply_step(ENGINE, operator, block(), 0.8, degree), expected, atol=1e-10)
