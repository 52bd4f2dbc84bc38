"""Nodes in an order that keeps neighbours near: when, and that nobody notices."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from spectrograd.datasets import make_block_model, make_gaussian_mixture
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.graph.ordering import LENGTH_WINDOW, length_order, near_order, reordered
from spectrograd.kernels.graph import permute
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.pipeline import embed
from spectrograd.pipeline.settings import Settings
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.settings import RunContext

SOON = Thresholds(reordered_from=4500, near=1500)


@pytest.fixture(scope="module")
def scattered():
    """Neighbours in five dimensions, rows shuffled."""
    points, _ = make_gaussian_mixture(5000, 4, n_features=5, random_state=0)
    return knn_graph(points, 10)


def test_a_geometric_graph_gains(scattered):
    order = near_order(scattered, SOON)
    assert sorted(order.tolist()) == list(range(5000))
    moved = reordered(scattered, order)
    assert near_order(moved, SOON) is None  # it is in order now
    expected = scattered.matrix.toarray()[np.ix_(order, order)]
    np.testing.assert_array_equal(moved.matrix.toarray(), expected)


@pytest.mark.parametrize("weighted", [True, False])
def test_any_order_of_any_graph(weighted):
    """Long rows and empty ones too, and rows stay sorted."""
    rng = np.random.default_rng(3)
    rows, cols = rng.integers(0, 900, (2, 4000))
    rows, cols = np.append(rows, np.zeros(700, int)), np.append(cols, np.arange(50, 750))
    keep = rows != cols
    edges = np.unique(np.sort(np.column_stack([rows, cols])[keep], axis=1), axis=0)
    weights = rng.random(len(edges)) + 0.1 if weighted else None
    graph = Graph.from_edges(*edges.T, weights, n_nodes=1000)
    order = rng.permutation(1000).astype(np.int32)
    moved = reordered(graph, order)
    np.testing.assert_array_equal(moved.matrix.toarray(), graph.matrix.toarray()[np.ix_(order, order)])
    assert moved.is_weighted == weighted
    some = np.full(len(moved.pattern[1]), -1, np.int32)  # the kernel leaves other rows alone
    permute(30, 90, *graph.pattern, None, order, np.argsort(order), moved.pattern[0], some, None)
    low, high = moved.pattern[0][[30, 90]]
    np.testing.assert_array_equal(some[low:high], moved.pattern[1][low:high])
    assert (some[:low] == -1).all()
    assert (some[high:] == -1).all()
    indptr, indices = moved.pattern
    assert all((np.diff(indices[a:b]) > 0).all() for a, b in pairwise(indptr))


def test_an_expander_does_not():
    assert near_order(make_block_model(5000, 3, random_state=0).graph, SOON) is None


def test_small_graphs_stay_as_they_are(scattered):
    assert near_order(scattered) is None
    assert length_order(scattered, thresholds=Thresholds(small=5000)) is None


@pytest.mark.parametrize("first", [False, True])
def test_long_rows_come_first_in_each_window(first):
    graph = make_block_model(5000, 3, mean_degree=8, degree_exponent=2.5, random_state=0).graph
    before = np.random.default_rng(0).permutation(5000).astype(np.int32) if first else None
    order = length_order(graph, before)
    places = np.arange(5000) if before is None else before
    lengths = np.diff(graph.pattern[0])[order]
    for start in range(0, 5000, LENGTH_WINDOW):
        window = slice(start, start + LENGTH_WINDOW)
        assert sorted(order[window]) == sorted(places[window])
        assert (np.diff(lengths[window]) <= 0).all()


def test_rows_of_one_length_and_very_long_ones_stay():
    n = 6000
    nodes = np.arange(n)
    ring = Graph.from_edges(nodes, (nodes + 1) % n, n_nodes=n)
    assert length_order(ring) is None
    assert length_order(ring, nodes[::-1]) is not None  # the order that was given
    dense = make_block_model(5000, 3, mean_degree=60, random_state=0).graph
    assert length_order(dense) is None


@pytest.mark.parametrize("solver", ["chebyshev", "lanczos", "shift-invert"])
def test_rows_come_back_in_the_order_of_the_nodes(scattered, monkeypatch, solver):
    plain = embed(scattered, Settings(n_components=4, solver=solver, seed=0))
    used = []
    monkeypatch.setattr(
        "spectrograd.pipeline.single.reordered", lambda g, o: used.append(o) or reordered(g, o)
    )
    moved = embed(
        scattered, Settings(n_components=4, solver=solver, seed=0), RunContext(LocalEngine(thresholds=SOON))
    )
    assert len(used) == 1
    overlap = plain.vectors.T @ (scattered.degrees[:, None] * moved.vectors)
    np.testing.assert_allclose(np.linalg.svd(overlap, compute_uv=False), 1, atol=2e-3)


def test_nodes_excluded_and_a_start_keep_their_places(scattered):
    edges = scattered.matrix.tocoo()
    with_tiny_component = Graph.from_edges(
        np.append(edges.row, 5000), np.append(edges.col, 5001), np.append(edges.data, 1.0), n_nodes=5002
    )
    settings = Settings(n_components=3, solver="chebyshev", seed=0)
    context = RunContext(LocalEngine(thresholds=SOON))
    with pytest.warns(UserWarning, match="excluded"):
        first = embed(with_tiny_component, settings, context)
    assert not first.vectors[5000:].any()
    with pytest.warns(UserWarning, match="excluded"):
        again = embed(with_tiny_component, replace(settings, seed=1), context, start=first.vectors)
    assert again.matvecs < first.matvecs / 2
