"""The fill of a factor, estimated before it is made: what no single thin cut may hide."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, datasets, knn_graph
from spectrograd.linalg import ldl as fill
from spectrograd.linalg.ldl import estimate_factor_size, estimate_fill, levels

MANY = 40  # entries per edge: roads and planes have fewer, block models and social graphs more


def expanders(n_parts: int, *, linked: bool) -> Graph:
    """Several random graphs of 1,500 nodes and degree 12, alone or one edge after the other in a chain."""
    one = {"n_nodes": 1_500, "n_clusters": 2, "mixing": 0.5, "mean_degree": 12}  # mixed evenly: no clusters
    parts = [datasets.make_block_model(**one, random_state=seed).graph for seed in range(n_parts)]
    matrix = sp.block_diag([part.matrix for part in parts], format="lil")
    for part in range(n_parts - 1) if linked else ():
        a, b = 1_500 * part + 7, 1_500 * (part + 1) + 3
        matrix[a, b] = matrix[b, a] = 1
    return Graph.from_matrix(sp.csr_array(matrix))


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("n_parts", [2, 8])
def test_a_bottleneck_does_not_hide_what_it_joins(n_parts, linked):
    graph = expanders(n_parts, linked=linked)
    alone = estimate_fill(expanders(1, linked=False))
    assert estimate_fill(graph) > 0.5 * n_parts * alone
    assert estimate_fill(graph) > MANY * graph.n_edges


def test_planar_graphs_keep_their_little_fill():
    points = np.random.default_rng(0).random((8_000, 2))
    graph = knn_graph(points, 10)
    assert estimate_fill(graph) < MANY * graph.n_edges / 4


def test_clusters_in_the_plane_are_no_tube():
    # five clouds one after the other: their factor was estimated at 17 times its operations
    points, _ = datasets.make_gaussian_mixture(9_000, 5, random_state=0)
    graph = knn_graph(points, 10, connect=True)
    assert estimate_factor_size(graph).operations < 8 * graph.factor_layout[1].operations


def test_few_components_are_looked_at_whatever_their_number(monkeypatch):
    many = Graph.from_matrix(sp.block_diag([np.ones((5, 5)) - np.eye(5)] * 2_000, format="csr"))
    calls = []
    monkeypatch.setattr(fill, "levels", lambda *given: calls.append(1) or levels(*given))
    assert estimate_fill(many) < 40 * many.n_edges
    assert len(calls) <= 2 * fill.MAX_SEARCHED_COMPONENTS


def test_a_tree_fills_nothing_however_wide_its_levels():
    n = 5_000
    parents = (np.random.default_rng(0).random(n - 1) * np.arange(1, n)).astype(int)
    tree = Graph.from_edges(np.arange(1, n), parents)
    assert estimate_fill(tree) < 3 * n


def test_a_dense_graph_has_few_entries_per_edge_and_no_cheap_factor():
    dense = datasets.make_block_model(800, 2, mixing=0.5, mean_degree=300, random_state=0).graph
    found = estimate_factor_size(dense)
    assert found.entries < MANY * dense.n_edges
    assert found.operations > 800**3 / 30


@pytest.mark.parametrize(("noise", "dims", "n_neighbors"), [(0.5, 50, 15), (0.1, 5, 10)])
def test_a_long_tube_is_cut_many_times(noise, dims, n_neighbors):
    # cells along a trajectory: the plan took a factor of 1.2e10 operations for one of 2e7
    rng = np.random.default_rng(0)
    time = np.sort(rng.random(10_000))
    curve = np.stack([np.sin(3 * np.pi * time), np.cos(2 * np.pi * time), 4 * time], axis=1)
    points = curve @ rng.normal(size=(3, dims)) * 2 + noise * rng.normal(size=(10_000, dims))
    graph = knn_graph(points, n_neighbors, connect=True)
    true = graph.factor_layout[1].operations
    assert 0.2 * true < estimate_factor_size(graph).operations < 10 * true
