"""The shape of a spectrum: laws of known power, counts of known eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.engines import LocalEngine
from spectrograd.linalg.spectral_shape import SpectralShape, spectral_shape
from spectrograd.operators.base import DenseOperator

ENGINE = LocalEngine()


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_power_law_is_followed_between_and_beyond_its_counts(power):
    """``value = number^power``, so the distance to the next is about ``power number^(power - 1)``."""
    counts = np.array([3.0, 10, 40, 200, 1000])
    shape = SpectralShape(counts**power, counts)
    for k in (2, 3, 20, 40, 150):
        value, distance = shape.near(k)
        assert value == pytest.approx(k**power)
        assert distance == pytest.approx(power * k ** (power - 1))
        top = 1000**power
        assert shape.crowding(k) == pytest.approx(max(1.5, (top - value) / distance))
    assert shape.near(1) == pytest.approx((1.5**power, power * 1.5**power))  # a lone vector counts as 1.5
    assert shape.near(5000)[0] == 1000**power


def test_powers_have_bounds():
    flat = SpectralShape(np.array([1.0, 1.0001]), np.array([2.0, 2000.0]))
    assert flat.near(100)[1] == pytest.approx(flat.near(100)[0] * 0.02 / 100)
    steep = SpectralShape(np.array([1e-3, 10.0]), np.array([50.0, 51.0]))
    assert steep.near(50)[1] == pytest.approx(steep.near(50)[0] * 2 / 50)
    assert steep.crowding(10**9) == 1.5
    low = SpectralShape(np.array([1e-9, 1.1e-9, 10.0]), np.array([2.0, 3, 4]))
    # a distance counts as a millionth of the width at least
    assert low.crowding(2) == pytest.approx(1e6)


def test_counts_are_those_of_the_spectrum():
    n = 900
    values = np.linspace(0.1, 2, n) ** 2 / 2
    shape = spectral_shape(ENGINE, DenseOperator(np.diag(values), 0.0, 2.0))
    assert len(shape.values) == 20
    assert shape.basis is not None
    for value, count in zip(shape.values, shape.counts, strict=True):
        assert count == pytest.approx((values < value).sum(), abs=0.08 * n)
    assert (np.diff(shape.counts) >= 0).all()
    assert shape.counts[0] >= 1.01


def test_null_vectors_are_left_out_and_the_lower_end_is_taken_off():
    values = np.append(np.full(5, 1.0), np.linspace(2.0, 3.0, 95))
    shape = spectral_shape(ENGINE, DenseOperator(np.diag(values), 1.0, 3.0))
    assert shape.values.min() > 0.5
    assert shape.values.max() == pytest.approx(2.0, abs=0.02)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("matrix", [np.diag([0.0, 1, 1, 1, 1]), np.full((30, 30), np.inf)])
def test_a_spectrum_of_one_value_or_none_has_no_shape(matrix):
    """A complete graph's; weights that single precision does not hold."""
    shape = spectral_shape(ENGINE, DenseOperator(matrix, 0.0, 2.0))
    assert shape.basis is None
    assert (shape.values.tolist(), shape.counts.tolist()) == ([1.0, 2.0], [1.5, len(matrix)])


def test_two_values_have_a_shape():
    shape = spectral_shape(ENGINE, DenseOperator(np.diag([0.5, 0.9, 1.1, 1.3, 1.7]), 0.0, 2.0))
    assert shape.basis is not None
    assert len(shape.values) == 2


def test_small_operators_take_few_steps_and_a_limit_leaves_room():
    values = np.linspace(0, 2, 12)
    shape = spectral_shape(ENGINE, DenseOperator(np.diag(values), 0.0, 2.0))
    assert shape.basis is not None
    assert shape.basis.done == 4
    assert shape.basis.limit == 4
    roomy = spectral_shape(ENGINE, DenseOperator(np.diag(np.linspace(0, 2, 90)), 0.0, 2.0), 10, 25)
    assert roomy.basis is not None
    assert (roomy.basis.done, roomy.basis.limit) == (10, 25)
