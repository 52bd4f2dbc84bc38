"""Lloyd's algorithm: it agrees with the obvious form, and its laws hold."""

from __future__ import annotations

from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from spectrograd.labels.kmeans import WIDE, assign_to_centers, descend


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_rows", "n_columns", "n_centres"), [(40, 1, 2), (2_500, 3, 8), (5_000, 9, 17)])
def test_a_look_is_what_it_says(dtype, n_rows, n_columns, n_centres):
    rng = np.random.default_rng(n_centres)
    rows = rng.standard_normal((n_rows, n_columns)).astype(dtype)
    centres = rng.standard_normal((n_centres, n_columns))
    found = assign_to_centers(rows, centres)
    labels, gaps, tallies = reference.assign_rows(rows, centres)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.gaps, gaps, atol=1e-12)
    np.testing.assert_allclose(np.column_stack([found.sums, found.sizes, found.use]), tallies, atol=1e-4)
    means = [
        rows[labels == c].mean(axis=0, dtype=np.float64) for c in range(n_centres) if (labels == c).any()
    ]
    spread = ((rows - np.array(means)[np.unique(labels, return_inverse=True)[1]]) ** 2).sum()
    assert found.inertia == pytest.approx(spread, rel=1e-5)


def test_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    rows, centres = rng.standard_normal((9_000, 5)), rng.standard_normal((6, 5))
    alone = assign_to_centers(rows, centres)
    for n_threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        numba.set_num_threads(n_threads)
        shared = assign_to_centers(rows, centres, worth_threads=1)
        for name in ("labels", "gaps", "sums", "sizes", "use"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(shared, name))


def test_wide_rows_in_single_precision_go_to_their_centres():
    rng = np.random.default_rng(0)
    truth = rng.integers(WIDE, size=3_000)
    rows = (np.eye(WIDE)[truth] + 0.1 * rng.standard_normal((3_000, WIDE))).astype(np.float32)
    found = assign_to_centers(rows, np.eye(WIDE))
    labels, gaps, tallies = reference.assign_rows(rows, np.eye(WIDE))
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.gaps, gaps, rtol=1e-9)
    np.testing.assert_allclose(found.sums, tallies[:, :-2], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.use, tallies[:, -1], rtol=1e-5)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_inertia_never_grows_and_the_end_is_a_fixed_point(n_centres, n_columns, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, (60, n_columns)).astype(np.float64)  # with ties and equal rows
    start = rows[:n_centres]
    inertia = [descend(rows, start, max_steps=steps).inertia for steps in range(6)]
    assert all(after <= before * (1 + 1e-12) + 1e-9 for before, after in pairwise(inertia))
    found = descend(rows, start)
    again = assign_to_centers(rows, found.means(rows))
    assert again.inertia == pytest.approx(found.inertia, abs=1e-9)


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_permuted_rows_have_permuted_labels(seed):
    rng = np.random.default_rng(seed)
    rows, order = rng.standard_normal((200, 3)), rng.permutation(200)
    one = descend(rows, rows[:4])
    two = descend(rows[order], rows[:4])
    np.testing.assert_array_equal(one.labels[order], two.labels)


def test_a_centre_without_rows_moves_to_the_row_that_is_worst_off():
    rows = np.array([[0.0], [0.1], [0.2], [9.0]])
    found = assign_to_centers(rows, np.array([[0.0], [-50.0]]))
    assert found.sizes.tolist() == [4, 0]
    np.testing.assert_allclose(found.means(rows), [[2.325], [9.0]])
