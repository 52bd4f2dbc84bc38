"""Long lists of edges become the same graph by compiled code as by scipy, with the same words."""

import warnings

import numpy as np
import pytest

from spectrograd.graph import Graph
from spectrograd.graph import validation as undirected


def listed(kind):
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 5000, (2, 9000))
    weights = rng.integers(1, 9, 9000) / 8.0  # sums are exact in any order
    if kind == "once":
        pairs = np.unique(np.sort([rows, cols], axis=0)[:, rows != cols], axis=1)
        return pairs[0], pairs[1], None
    if kind == "both ways":
        return np.concatenate([rows, cols]), np.concatenate([cols, rows]), np.tile(weights, 2)
    if kind == "some answered":
        return np.concatenate([rows, cols[:500]]), np.concatenate([cols, rows[:500]]), None
    if kind == "repeated, with zeros":
        return np.tile(rows, 3), np.tile(cols, 3), np.tile(np.where(weights > 0.5, weights, 0), 3)
    return rows, cols, np.where(np.arange(9000) == 7, 1.7e308, weights)  # too large to be summed blindly


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["once", "both ways", "some answered", "repeated, with zeros", "huge"])
def test_compiled_or_not_the_graph_and_the_warnings_are_the_same(monkeypatch, kind, directed):
    rows, cols, weights = listed(kind)
    found = []
    for worth in (1, 10**9):
        monkeypatch.setattr(undirected, "MIN_COMPILED_EDGES", worth)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph = Graph.from_edges(rows, cols, weights, n_nodes=5000, directed=directed)
        (block,) = graph.blocks
        found.append((block, [str(warning.message) for warning in caught]))
    (ours, said), (scipys, expected) = found
    assert said == expected
    assert (ours.weights is None) == (scipys.weights is None) == (kind == "once")
    for name in ("indptr", "indices", "weights"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(scipys, name))
        if getattr(ours, name) is not None:
            assert getattr(ours, name).dtype == getattr(scipys, name).dtype
