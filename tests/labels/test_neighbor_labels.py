"""Labels of weak nodes by their neighbours: large blocks are cut."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd import datasets
from spectrograd.labels import neighbor_labels
from spectrograd.labels.neighbor_labels import follow_neighbours, small_blocks


@pytest.fixture(scope="module")
def data():
    return datasets.make_block_model(400, 3, mean_degree=6, degree_exponent=2.5, random_state=0)


def test_small_blocks_are_the_rows_once_and_in_order(data, monkeypatch):
    (whole,) = small_blocks(data.graph)
    monkeypatch.setattr(neighbor_labels, "BLOCK_ENTRIES", 300)
    cut = list(small_blocks(data.graph))
    assert len(cut) == -(-len(whole.indices) // 300)
    assert [block.start for block in cut] == sorted({block.start for block in cut})
    assert np.array_equal(np.concatenate([block.indices for block in cut]), whole.indices)


def test_cut_blocks_give_the_same_labels(data, monkeypatch):
    noisy = data.labels.copy()
    noisy[::7] = (noisy[::7] + 1) % 3
    added = [4.0]  # more than the degree of half of the nodes
    whole = follow_neighbours([data.graph], noisy, added)
    assert (whole.labels != noisy).any()
    monkeypatch.setattr(neighbor_labels, "BLOCK_ENTRIES", 300)
    assert np.array_equal(follow_neighbours([data.graph], noisy, added).labels, whole.labels)
