"""Clusters of rows that stay on an engine: order, excluded rows, numbers, confidence, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.engines import LocalEngine
from spectrograd.labels.assign import assign_distributed

ENGINE = LocalEngine()
TRUTH = np.random.default_rng(1).integers(3, size=200)
ROWS = np.eye(3)[TRUTH] + 0.05 * np.random.default_rng(0).standard_normal((200, 3))
NOBODY = np.array([], int)
OPTIONS = {"n_init": 3, "norm_regularization": 0.0, "random_state": 0}


def first_seen(labels):
    """Numbered as they appear; -1 stays."""
    names = list(dict.fromkeys(label for label in labels if label >= 0))
    return np.array([names.index(label) if label >= 0 else -1 for label in labels])


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("excluded", [NOBODY, np.array([0, 7, 199])])
def test_labels_come_in_the_order_of_the_result(shuffled, excluded):
    order = np.random.default_rng(2).permutation(200) if shuffled else None
    found, on_engine = assign_distributed(ENGINE, ROWS, order, 3, excluded=excluded, **OPTIONS)
    truth = TRUTH.copy()
    places = np.arange(200) if order is None else order
    truth[places] = TRUTH
    truth[excluded] = -1
    assert np.array_equal(found.labels, first_seen(truth))
    assert np.array_equal(on_engine[:, 0], found.labels[places])
    assert found.membership[found.labels >= 0].min() > 0.5
    unit = ROWS / np.linalg.norm(ROWS, axis=1)[:, None]
    part = found.labels[places] >= 0
    own = found.labels[places][part]
    means = np.array([unit[part][own == c].mean(axis=0) for c in range(3)])
    assert found.inertia == pytest.approx(((unit[part] - means[own]) ** 2).sum(), rel=0.01)


@pytest.mark.parametrize("n_clusters", [0, 201])
def test_numbers_of_clusters_that_do_not_fit_are_refused(n_clusters):
    with pytest.raises(ValueError, match=r"with 200 rows it must be in 1\.\.200"):
        assign_distributed(ENGINE, ROWS, None, n_clusters, excluded=NOBODY, **OPTIONS)


def test_an_embedding_that_is_not_finite_is_refused():
    rows = ROWS.copy()
    rows[3, 1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        assign_distributed(ENGINE, rows, None, 3, excluded=NOBODY, **OPTIONS)
