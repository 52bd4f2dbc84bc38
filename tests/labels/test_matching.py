"""Clusters keep their names."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.labels import matching
from spectrograd.labels.matching import align_labels, in_order, rotation_onto


@pytest.fixture
def labels():
    return np.repeat([0, 1, 2], 30)


def test_a_permutation_is_undone(labels):
    renamed, changes = align_labels(labels, np.array([2, 0, 1])[labels])
    np.testing.assert_array_equal(renamed, labels)
    assert (changes.moved, changes.split, changes.merged, changes.appeared, changes.died) == (
        0,
        (),
        (),
        (),
        (),
    )


def test_split(labels):
    after = labels.copy()
    after[18:30] = 3
    renamed, changes = align_labels(labels, after[::1])
    assert changes.split == ((0, (0, 3)),)
    assert "cluster 0 split into 0 and 3" in changes.sentence
    assert (renamed[:18] == 0).all()


def test_merger(labels):
    renamed, changes = align_labels(labels, np.array([0, 1, 1])[labels])
    assert changes.merged == (((1, 2), 1),) or changes.merged == (((1, 2), 2),)
    assert set(np.unique(renamed)) in ({0, 1}, {0, 2})
    assert not changes.appeared


def test_birth_and_death(labels):
    more = np.concatenate([labels, np.full(20, 3)])
    renamed, changes = align_labels(labels, labels, more)
    assert changes.appeared == (3,)
    assert (renamed[90:] == 3).all()
    rest = labels < 2
    _, changes = align_labels(labels[rest], labels[rest], labels[rest])
    assert changes.died == ()
    scattered = np.where(labels == 2, np.arange(90) % 5 + 2, labels)
    _, changes = align_labels(labels, np.where(scattered >= 2, -1, scattered))
    assert changes.moved == 0


def test_nodes_set_aside_stay_aside(labels):
    after = labels.copy()
    after[:3] = -1
    renamed, _ = align_labels(labels, after)
    assert (renamed[:3] == -1).all()


def test_rotation_is_undone():
    rng = np.random.default_rng(0)
    before = rng.standard_normal((50, 4))
    turn, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    np.testing.assert_allclose(before @ turn @ rotation_onto(before, before @ turn), before, atol=1e-12)


@pytest.mark.parametrize("rows_at_once", [1, 3, 1 << 16])
def test_clusters_are_numbered_as_they_first_appear(rows_at_once, monkeypatch):
    monkeypatch.setattr(matching, "ROWS_AT_ONCE", rows_at_once)
    labels = np.array([3, -1, 3, 0, 1, 0, 3, -1, 1])  # 2 has no row
    assert in_order(labels, 4).tolist() == [0, -1, 0, 1, 2, 1, 0, -1, 2]
