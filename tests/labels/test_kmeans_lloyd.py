"""Lloyd's algorithm: both forms agree with the obvious one, and its laws hold."""

from __future__ import annotations

from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from spectrograd.kernels import nearest
from spectrograd.kernels.nearest import CHUNK
from spectrograd.labels.kmeans import assign_to_centers, centre_table, descend

FORMS = pytest.mark.parametrize("compiled", [False, True])


@FORMS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_rows", "n_columns", "n_centres"), [(40, 1, 2), (2_500, 3, 8), (1_100, 9, 17)])
def test_a_look_is_what_it_says(compiled, dtype, n_rows, n_columns, n_centres):
    rng = np.random.default_rng(n_centres)
    rows = rng.standard_normal((n_rows, n_columns)).astype(dtype)
    centres = rng.standard_normal((n_centres, n_columns))
    found = assign_to_centers(rows, centres, compiled=compiled)
    labels, gaps, tallies = reference.assign_rows(rows, centres)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.gaps, gaps, atol=1e-12)
    np.testing.assert_allclose(np.column_stack([found.sums, found.sizes, found.use]), tallies, atol=1e-4)
    means = [
        rows[labels == c].mean(axis=0, dtype=np.float64) for c in range(n_centres) if (labels == c).any()
    ]
    spread = ((rows - np.array(means)[np.unique(labels, return_inverse=True)[1]]) ** 2).sum()
    assert found.inertia == pytest.approx(spread, rel=1e-5)


def test_the_kernel_adds_up_chunk_by_chunk():
    rng = np.random.default_rng(0)
    rows, centres = rng.standard_normal((3 * CHUNK + 5, 4)), rng.standard_normal((3, 4))
    labels, gaps = np.full(len(rows), -1), np.zeros(len(rows))
    tallies = np.zeros((4, 3, 6))
    nearest.assign_rows(1, 4, rows, centres, centre_table(centres), labels, gaps, tallies)
    assert (labels[:CHUNK] == -1).all()
    assert not tallies[0].any()
    expected = reference.assign_rows(rows[CHUNK:], centres)
    np.testing.assert_array_equal(labels[CHUNK:], expected[0])
    np.testing.assert_allclose(tallies.sum(axis=0), expected[2], atol=1e-9)
    np.testing.assert_allclose(tallies[3], reference.assign_rows(rows[3 * CHUNK :], centres)[2], atol=1e-9)


def test_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    rows, centres = rng.standard_normal((9_000, 5)), rng.standard_normal((6, 5))
    alone = assign_to_centers(rows, centres, compiled=True)
    for n_threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        numba.set_num_threads(n_threads)
        shared = assign_to_centers(rows, centres, compiled=True, worth_threads=1)
        for name in ("labels", "gaps", "sums", "sizes", "use"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(shared, name))


def test_few_versions_are_compiled():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for n_columns in (2, 9):
            rows = rng.standard_normal((100, n_columns)).astype(dtype)
            descend(rows, rows[:3].astype(np.float64), compiled=True)
    assert len(nearest.assign_rows.signatures) == 2


@FORMS
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_inertia_never_grows_and_the_end_is_a_fixed_point(compiled, n_centres, n_columns, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, (60, n_columns)).astype(np.float64)  # with ties and equal rows
    start = rows[:n_centres]
    inertia = [descend(rows, start, compiled=compiled, max_steps=steps).inertia for steps in range(6)]
    assert all(after <= before * (1 + 1e-12) + 1e-9 for before, after in pairwise(inertia))
    found = descend(rows, start, compiled=compiled)
    again = assign_to_centers(rows, found.means(rows), compiled=compiled)
    assert again.inertia == pytest.approx(found.inertia, abs=1e-9)


@FORMS
@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_permuted_rows_have_permuted_labels(compiled, seed):
    rng = np.random.default_rng(seed)
    rows, order = rng.standard_normal((200, 3)), rng.permutation(200)
    one = descend(rows, rows[:4], compiled=compiled)
    two = descend(rows[order], rows[:4], compiled=compiled)
    np.testing.assert_array_equal(one.labels[order], two.labels)


@FORMS
def test_a_centre_without_rows_moves_to_the_row_that_is_worst_off(compiled):
    rows = np.array([[0.0], [0.1], [0.2], [9.0]])
    found = assign_to_centers(rows, np.array([[0.0], [-50.0]]), compiled=compiled)
    assert found.sizes.tolist() == [4, 0]
    np.testing.assert_allclose(found.means(rows), [[2.325], [9.0]])


def test_both_forms_walk_the_same_way():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((3_000, 6))
    plain, compiled = (descend(rows, rows[:7], compiled=form) for form in (False, True))
    np.testing.assert_array_equal(plain.labels, compiled.labels)
    assert plain.inertia == pytest.approx(compiled.inertia)
