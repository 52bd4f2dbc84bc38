"""Layouts and starting points: those of networkx where it has any, and something to see where it has none."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, GraphError, MultilayerGraph, layout, umap_init
from spectrograd.layouts import component_positions, pack_in_rows

nx = pytest.importorskip("networkx")


def test_layout_is_that_of_networkx_up_to_signs():
    graph = nx.random_tree(40, seed=3) if hasattr(nx, "random_tree") else nx.random_labeled_tree(40, seed=3)
    theirs = nx.spectral_layout(graph, scale=2, center=(1, 5))
    ours = layout(graph, scale=2, center=(1, 5))
    assert list(ours) == list(graph)
    for column, middle in ((0, 1), (1, 5)):
        a = np.array([theirs[node][column] for node in graph]) - middle
        b = np.array([ours[node][column] for node in graph]) - middle
        assert min(np.abs(a - b).max(), np.abs(a + b).max()) < 1e-5


def test_components_stand_apart():
    graph = nx.disjoint_union_all(
        [nx.grid_2d_graph(8, 8), nx.cycle_graph(12), nx.path_graph(2), nx.empty_graph(1)]
    )
    positions = np.array(list(layout(graph).values()))
    labels = np.repeat([0, 1, 2, 3], [64, 12, 2, 1])
    for one in range(4):
        for other in range(one):
            gaps = positions[labels == one][:, None] - positions[labels == other][None]
            assert np.linalg.norm(gaps, axis=2).min() > 0.02
    assert np.abs(positions).max() == pytest.approx(1)


def test_positions_are_kept_on_the_graph_where_asked_for():
    graph = nx.path_graph(4)
    layout(graph, store_pos_as="pos")
    assert graph.nodes[2]["pos"].shape == (2,)
    assert layout(nx.empty_graph(0)) == {}


def test_other_kinds_of_graphs():
    positions = layout(Graph.from_edges(["a", "b"], ["b", "c"]), dim=3)
    assert set(positions) == {"a", "b", "c"}
    assert positions["a"].shape == (3,)
    assert set(layout(sp.csr_array(np.ones((3, 3)) - np.eye(3)))) == {0, 1, 2}
    one = Graph.from_edges([0], [1])
    with pytest.raises(GraphError, match="several layers"):
        layout(MultilayerGraph.from_layers([one, one]))
    with pytest.raises(ValueError, match="length of center must match dim=2"):
        layout(one, center=(1, 2, 3))


def test_discs_never_overlap():
    rng = np.random.default_rng(0)
    radii = np.sort(rng.random(30))[::-1]
    centers = pack_in_rows(radii)
    apart = np.linalg.norm(centers[:, None] - centers[None], axis=2) - radii[:, None] - radii[None]
    np.fill_diagonal(apart, 1)
    assert apart.min() > -1e-9


@pytest.fixture(scope="module")
def points():
    """Two clouds, far apart: their neighbours make two components."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(600, 4))
    points[300:] += 50
    return points


def test_start_of_umap(points):
    start = umap_init(points)
    assert start.dtype == np.float32
    assert start.shape == (600, 2)
    assert np.abs(start).max() == pytest.approx(10, abs=0.01)
    assert len(np.unique(start, axis=0)) == 600
    first = start[:300]
    second = start[300:]
    assert np.linalg.norm(first[:, None] - second[None], axis=2).min() > 0.1
    np.testing.assert_array_equal(start, umap_init(points))


def test_start_of_tsne(points):
    start = umap_init(points[:300], 3, target="opentsne")
    assert start.shape == (300, 3)
    assert start[:, 0].std() == pytest.approx(1e-4, rel=0.01)
    with pytest.raises(ValueError, match="expected 'umap' or 'opentsne'"):
        umap_init(points, target="pacmap")


def test_umap_takes_it(points):
    umap = pytest.importorskip("umap")
    reducer = umap.UMAP(n_neighbors=10, init=umap_init(points), n_epochs=5, random_state=0)
    assert reducer.fit_transform(points).shape == (600, 2)
    assert umap_init(reducer.graph_).shape == (600, 2)


def test_opentsne_takes_it(points):
    tsne = pytest.importorskip("openTSNE")
    start = umap_init(points, target="opentsne")
    assert tsne.TSNE(initialization=start, n_iter=5, early_exaggeration_iter=5).fit(points).shape == (600, 2)


def test_coordinates_that_a_component_lacks_are_zero():
    graph = Graph.from_edges([0], [1], n_nodes=3)
    assert component_positions(graph, 3, kind="unnormalized").shape == (3, 3)
