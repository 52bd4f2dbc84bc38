"""The bound on the angle between Ritz vectors and eigenvectors, and the cut it needs."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.certificate.certificate import GOOD_ANGLE, needed_cut, sine_bound


def rough_ritz_pairs(seed, n=60, k=5, noise=1e-2):
    """Ritz pairs of a perturbed eigenspace of a random matrix, its next eigenvalue, and the true sine."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    values = np.concatenate([np.sort(rng.uniform(-20, -12, k)), values[k:]])  # a gap after the k-th
    A = vectors * values @ vectors.T
    Q = np.linalg.qr(vectors[:, :k] + noise * rng.standard_normal((n, k)) * rng.uniform(0, 1, k) ** 3)[0]
    theta, Y = np.linalg.eigh(Q.T @ A @ Q)
    Q = Q @ Y
    R = A @ Q - Q * theta
    sine = np.linalg.norm(vectors[:, k:].T @ Q, 2)
    return theta, np.linalg.norm(R, axis=0), values[k], sine


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_holds_and_is_sharper_than_one_gap_for_all_columns(seed):
    theta, residuals, beyond, sine = rough_ritz_pairs(seed)
    bound = sine_bound(theta, residuals, beyond)
    assert sine <= bound * (1 + 1e-12)
    assert bound < np.linalg.norm(residuals) / (beyond - theta[-1])


def test_without_a_gap_nothing_is_bounded():
    assert sine_bound(np.array([0.0, 1.0]), np.zeros(2), 1.0) == np.inf
    assert needed_cut(np.array([0.0, 1.0]), 0.9, np.ones(2)) == 1.0
    assert needed_cut(np.array([0.0, 1.0]), 1 + 1e-15, np.full(2, 1e-13)) == 1.0  # no number between


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_the_lowest_that_the_angle_needs(seed):
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(0, 1, 6))
    lowest = 1 + rng.uniform(0.1, 1)
    residuals = 10.0 ** rng.uniform(-6, -1, 6)
    tau = needed_cut(values, lowest, residuals)
    gap = lowest - values[-1]
    low, high = values[-1] + 0.05 * gap, values[-1] + 0.5 * gap
    assert low <= tau <= high
    if low < tau < high:
        assert 0.97 * GOOD_ANGLE <= sine_bound(values, residuals, tau) <= GOOD_ANGLE
    elif tau == low:
        assert sine_bound(values, residuals, tau) <= GOOD_ANGLE
