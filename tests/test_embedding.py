"""The sort and the signs of eigenvectors."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.embedding import arrange, peaks


def plainly(vectors, eigenvalues):
    """The same in one stroke."""
    order = np.argsort(eigenvalues, kind="stable")
    vectors = vectors[:, order]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(order))])
    return vectors * np.where(signs == 0, 1, signs), eigenvalues[order]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("n_rows", [3, 30_000])  # one slice, and several
def test_arranged_in_slices_as_in_one_stroke(n_rows, ascending, dtype):
    rng = np.random.default_rng(0)
    vectors, values = rng.standard_normal((n_rows, 6)).astype(dtype), rng.standard_normal(6)
    vectors[:, 2] = 0
    vectors[:, 4] = np.where(np.arange(n_rows) % 2, -1, 1)  # ties: the first entry decides
    vectors[:, 5] = -vectors[:, 4]
    given = vectors.copy()
    found = arrange(vectors, np.sort(values) if ascending else values, None)
    expected = plainly(given, np.sort(values) if ascending else values)
    np.testing.assert_array_equal(found.vectors, expected[0])
    np.testing.assert_array_equal(found.eigenvalues, expected[1])
    assert found.vectors.dtype == dtype
    found.vectors[:] = 7  # an array of its own
    np.testing.assert_array_equal(vectors, given)


def test_peaks_keep_their_signs():
    vectors = np.random.default_rng(1).standard_normal((50_000, 3))
    vectors[[10, 40_000, 25_000], [0, 1, 2]] = -9, 9, -8
    assert peaks(vectors).tolist() == [-9, 9, -8]
    assert peaks(np.empty((0, 2))).tolist() == [0, 0]
