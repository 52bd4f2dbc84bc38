"""k-means of few rows: as good as scikit-learn's, and without loading it."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from spectrograd.cluster import assign
from spectrograd.lloyd import lloyd


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 20])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_as_good_as_scikit_learn(n_clusters, offset):
    rng = np.random.default_rng(n_clusters)
    rows = rng.standard_normal((7, 3))[rng.integers(7, size=300)] * 4 + rng.standard_normal((300, 3)) + offset
    labels, inertia = lloyd(rows, n_clusters, 10, np.random.default_rng(0))
    centres = np.stack([rows[labels == label].mean(axis=0) for label in range(n_clusters)])
    assert inertia == pytest.approx(((rows - centres[labels]) ** 2).sum(), rel=1e-6)
    gaps = np.linalg.norm(rows[:, None] - centres[None], axis=2)
    assert (gaps[np.arange(300), labels] <= gaps.min(axis=1) + 1e-6).all()  # a fixed point of the iteration
    assert inertia <= 1.02 * KMeans(n_clusters, n_init=10, random_state=0).fit(rows).inertia_


def test_every_cluster_has_members_while_there_are_places():
    rows = np.repeat(np.arange(4.0), [50, 1, 1, 1])[:, None]
    labels, inertia = lloyd(rows, 4, 10, np.random.default_rng(0))
    assert len(set(labels)) == 4
    assert inertia < 1e-20


def test_more_clusters_than_places():
    labels, inertia = lloyd(np.zeros((5, 2)), 3, 2, np.random.default_rng(0))
    assert (inertia, len(labels)) == (0, 5)


def test_assign_takes_either_way_by_size(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(3), 40, axis=0) + 0.05 * rng.standard_normal((120, 3))
    few = assign(rows, 3, random_state=0)
    monkeypatch.setattr("spectrograd.cluster.FEW_ROWS", 10)
    many = assign(rows, 3, random_state=0)
    assert few.inertia == pytest.approx(many.inertia, rel=1e-6)
    assert len({*zip(few.labels.tolist(), many.labels.tolist(), strict=True)}) == 3
