"""Breadth-first searches and the fill of a factor that they bound."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import datasets
from spectrograd.graph import Graph
from spectrograd.graph import graph as search
from spectrograd.kernels import graph as levels
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.linalg import ldl as fill
from spectrograd.linalg.ldl import estimate_fill
from spectrograd.points.knn_graph import knn_graph


def matrix_of(kind):
    """From a path to an expander, in one piece and in several."""
    rng = np.random.default_rng(1)
    if kind == "components":
        parts = [reference.random_graph(n, rng, mean_degree=2).matrix for n in (9, 30, 5)]
        return sp.csr_array(sp.block_diag([*parts, sp.csr_array((2, 2))]))
    if kind == "expanders":  # each large enough for steps from below
        return sp.csr_array(
            sp.block_diag([reference.random_graph(n, rng, mean_degree=12).matrix for n in (60, 80)])
        )
    if kind == "whiskers":  # chains of two hang at an expander: not all are met by one step from below
        core = sp.triu(reference.random_graph(100, rng, mean_degree=20).matrix)
        ends, chain = np.arange(100, 130), np.arange(30)
        sources = np.r_[core.row, chain, ends]
        return Graph.from_edges(sources, np.r_[core.col, ends, ends + 30], n_nodes=160).matrix
    if kind == "path":
        return Graph.from_edges(np.arange(49), np.arange(1, 50)).matrix
    return reference.random_graph(150, rng, mean_degree={"sparse": 2, "expander": 20}[kind]).matrix


KINDS = ["components", "whiskers", "expanders", "path", "sparse", "expander"]


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("kind", KINDS)
def test_components_and_levels_in_one_search(kind, small):
    W = matrix_of(kind)
    component, first, _ = search.search(W.indptr, W.indices, Thresholds(small=small))
    np.testing.assert_array_equal(component, reference.component_of(W))
    assert first.widths.tolist() == reference.level_widths(W.toarray(), 0)
    assert first.size == (component == 0).sum()
    assert reference.level_of(W.toarray(), 0)[first.last] == len(first.widths) - 1


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [5, 40])
def test_levels_from_any_vertex(kind, small, source):
    W = matrix_of(kind)
    widths, last = search.levels(W.indptr, W.indices, source, Thresholds(small=small))
    assert widths.tolist() == reference.level_widths(W.toarray(), source)
    assert reference.level_of(W.toarray(), source)[last] == len(widths) - 1


def test_kernels_follow_their_twins():
    W = matrix_of("expanders")
    component, widths, last, order = levels.search_all(W.indptr, W.indices)
    assert sorted(order.tolist()) == list(range(W.shape[0]))
    np.testing.assert_array_equal(component, reference.component_of(W))
    again, end = levels.level_widths(W.indptr, W.indices, 0)
    assert widths.tolist() == again.tolist() == reference.level_widths(W.toarray(), 0)
    assert last == end


def test_one_vertex_is_a_level():
    nothing = np.array([0, 0]), np.empty(0, np.int32)
    for small in (0, 4096):
        component, first, _ = search.search(*nothing, Thresholds(small=small))
        assert (component.tolist(), first.widths.tolist(), first.last) == ([0], [1], 0)


def test_a_graph_is_searched_once():
    graph = Graph.from_matrix(matrix_of("expander"))
    assert graph.search is graph.search
    halves = [rows_of(graph, 0, 70), rows_of(graph, 70, 150)]
    in_blocks = Graph(tuple(halves), graph.n_nodes)
    np.testing.assert_array_equal(in_blocks.search.component, graph.search.component)
    assert in_blocks.search.first.widths.tolist() == graph.search.first.widths.tolist()


def rows_of(graph, start, stop):
    (block,) = graph.blocks
    span = slice(block.indptr[start], block.indptr[stop])
    weights = None if block.weights is None else block.weights[span]
    pointers = block.indptr[start : stop + 1] - block.indptr[start]
    return type(block)(start, pointers, block.indices[span], weights)


# --- fill -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flat():
    return knn_graph(np.random.default_rng(0).uniform(size=(2000, 2)), 8, connect=True)


@pytest.fixture(scope="module")
def tangled():
    return datasets.make_block_model(1500, 3, random_state=0).graph


def test_fill_is_told_before_the_factor(flat, tangled):
    assert estimate_fill(flat) < 30 * flat.n_edges
    assert estimate_fill(tangled) > 10 * tangled.n_edges
    components = Graph.from_matrix(sp.block_diag([flat.matrix, tangled.matrix]))
    assert estimate_fill(components) > estimate_fill(tangled) / 2  # the worst component decides
    in_order = Graph.from_matrix(sp.block_diag([tangled.matrix, flat.matrix]))
    assert estimate_fill(in_order) >= estimate_fill(tangled)


def test_compiled_or_not_the_fill_is_the_same(flat):
    graph, large = Graph(flat.blocks, flat.n_nodes), Thresholds(small=0)
    graph.__dict__["search"] = search.search(*graph.pattern, large)
    with mock.patch.object(fill, "levels", partial(search.levels, thresholds=large)):
        compiled = estimate_fill(graph)
    assert compiled == pytest.approx(estimate_fill(flat), rel=0.3)  # from another vertex of the last level


def test_an_expander_is_searched_once_and_a_plane_twice(flat, tangled):
    for graph, n_more in ((flat, 1), (tangled, 0)):
        graph = Graph(graph.blocks, graph.n_nodes)
        with mock.patch.object(fill, "levels", wraps=search.levels) as again:
            ratio = estimate_fill(graph, enough=160 * graph.n_edges) / graph.n_edges
        assert again.call_count == n_more
        assert (ratio > 40) == (n_more == 0)
