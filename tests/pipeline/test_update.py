"""Graphs that change: exact matrices, and embeddings that follow them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, GraphError, MultilayerGraph, SpectralClustering, SpectralEmbedding, datasets
from spectrograd.metrics import largest_principal_angle
from spectrograd.operators.laplacian import Regularization
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.edge_changes import EdgeChanges, changed_graph, changed_layers
from spectrograd.pipeline.update import Before, update
from spectrograd.solvers.settings import RunContext


@pytest.fixture(scope="module")
def blocks():
    return datasets.make_block_model(600, 3, random_state=0)


def more_edges(data, count, seed=0):
    """Edges that are not there yet, most of them inside clusters."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(data.graph.n_nodes, size=(2, 20 * count))
    free = (src < dst) & (np.asarray(data.graph.matrix[src, dst]).ravel() == 0)
    alike = free & ((data.labels[src] == data.labels[dst]) | (rng.random(len(src)) < 0.1))
    pairs = np.unique(np.column_stack([src[alike], dst[alike]]), axis=0)[:count]
    return Graph.from_edges(*pairs.T, n_nodes=data.graph.n_nodes)


def test_a_thousand_updates_end_in_the_graph_built_at_once():
    rng = np.random.default_rng(0)
    weights: dict[tuple[int, int], float] = {}
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [0.1, 0.7, 0.3])
    weights |= {(0, 1): 0.1, (1, 2): 0.7, (2, 3): 0.3}
    for _ in range(1000):
        one, two = sorted(rng.choice(30, 2, replace=False).tolist())
        value = float(rng.random())
        if (one, two) in weights and rng.random() < 0.3:
            graph = changed_graph(graph, EdgeChanges(removed=Graph.from_edges([one], [two])))
            del weights[one, two]
        elif rng.random() < 0.5:
            graph = changed_graph(graph, EdgeChanges(Graph.from_edges([one], [two], [value]), mode="set"))
            weights[one, two] = value
        else:
            graph = changed_graph(graph, EdgeChanges(Graph.from_edges([one], [two], [value])))
            weights[one, two] = weights.get((one, two), 0.0) + value
    row_of = {int(name): row for row, name in enumerate(graph.node_names)}
    ends = [[row_of[end] for end in pair] for pair in weights]
    built = Graph.from_edges(*np.array(ends).T, list(weights.values()), n_nodes=graph.n_nodes)
    assert (built.matrix != graph.matrix).nnz == 0
    np.testing.assert_array_equal(built.degrees, graph.degrees)


def test_numbers_go_on_counting_and_names_are_appended():
    path = Graph.from_matrix(sp.csr_array(np.eye(3, k=1) + np.eye(3, k=-1)))
    assert changed_graph(path, EdgeChanges(Graph.from_edges([2], [3]))).names is None
    mixed = changed_graph(path, EdgeChanges(Graph.from_edges(["0"], ["new"])))
    assert mixed.node_names.tolist() == [0, 1, 2, "new"]
    assert mixed.n_edges == 3


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("'zed' is not in the graph", {"edges": ("ann", "zed"), "new_nodes": "refuse"}),
        (r"edge \(ann, cid\) to remove is not in the graph", {"removed": ("ann", "cid")}),
        ("'zed' is not in the graph", {"removed": ("ann", "zed")}),
    ],
)
def test_changes_that_are_refused(message, changes):
    graph = Graph.from_edges(["ann", "bob"], ["bob", "cid"])
    made = {
        name: Graph.from_edges([value[0]], [value[1]]) if isinstance(value, tuple) else value
        for name, value in changes.items()
    }
    with pytest.raises(GraphError, match=message):
        changed_graph(graph, EdgeChanges(**made))


def test_options_are_checked():
    edge = Graph.from_edges([0], [1])
    with pytest.raises(ValueError, match="mode='replace'"):
        EdgeChanges(edge, mode="replace")
    with pytest.raises(ValueError, match="new_nodes='maybe'"):
        EdgeChanges(edge, new_nodes="maybe")
    with pytest.raises(ValueError, match="nothing to change"):
        EdgeChanges()


def test_layers_change_one_by_one():
    layers = MultilayerGraph.from_layers(
        {"a": Graph.from_edges(["x"], ["y"]), "b": Graph.from_edges(["y"], ["z"])}
    )
    change = MultilayerGraph.from_layers({"b": Graph.from_edges(["x"], ["new"])})
    after = changed_layers(layers, EdgeChanges(change))
    assert after.node_names.tolist() == ["x", "y", "z", "new"]
    assert [layer.n_edges for layer in after.layers] == [1, 2]
    with pytest.raises(GraphError, match="layer 'c' is unknown"):
        changed_layers(layers, EdgeChanges(MultilayerGraph.from_layers({"c": change.layers[0]})))


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_a_correction_meets_the_certificate(blocks, kind, tau):
    settings = Settings(n_components=3, seed=0, laplacian=kind, regularization=tau)
    before = embed(blocks.graph, settings)
    graph = changed_graph(blocks.graph, EdgeChanges(more_edges(blocks, 60)))
    done = update(
        graph, before.vectors, settings, RunContext(), Before(before.regularization, before.certificate.gap)
    )
    assert done.action == "kept"
    exact = embed(graph, Settings(n_components=3, seed=0, laplacian=kind, regularization=tau, solver="eigen"))
    angle = largest_principal_angle(done.result.vectors, exact.vectors, exact.operator.metric)
    assert np.sin(angle) <= done.result.certificate.angle_bound
    assert 0.0005 < done.drift < 0.2


def test_a_large_change_is_solved(blocks):
    settings = Settings(n_components=3, seed=0)
    before = embed(blocks.graph, settings)
    order = np.random.default_rng(0).permutation(600)
    shuffled = Graph.from_matrix(blocks.graph.matrix[order][:, order])
    done = update(
        shuffled,
        before.vectors,
        settings,
        RunContext(),
        Before(before.regularization, before.certificate.gap),
    )
    assert done.result.certificate.converged
    assert done.drift > 0.9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", [{"solver": "compressive"}, {"solver": "sgd"}, {"time_budget": 1e-9}])
def test_changes_of_a_model_whose_gap_was_not_measured_are_solved(blocks, settings):
    model = SpectralClustering(3, random_state=0, **settings).fit(blocks.graph)
    model.partial_fit(more_edges(blocks, 5))
    assert model.update_action_ != "kept" or model.converged_


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_changes_of_a_graph_without_a_gap_are_solved(kind):
    """Triangles that share one node have the same eigenvalue many times: K cuts through it."""
    blades = np.arange(1, 61, 2)
    rows, cols = np.append(np.zeros(60, int), blades), np.append(np.arange(1, 61), blades + 1)
    model = SpectralEmbedding(3, laplacian=kind, drop_first=False, regularization=None, random_state=0)
    model.fit(Graph.from_edges(rows, cols))
    model.certificate_ = replace(model.certificate_, gap=0.0)  # whether rounding leaves 1e-17 is chance
    model.partial_fit(Graph.from_edges([1], [60], n_nodes=61))
    assert model.update_action_ == "warm start"
    assert not model.converged_


def test_a_piece_that_comes_off_is_a_refit(blocks):
    settings = Settings(n_components=3, seed=0)
    before = embed(blocks.graph, settings)
    apart = sp.block_diag(
        [blocks.graph.matrix, datasets.make_block_model(300, 2, random_state=1).graph.matrix]
    )
    start = np.vstack([before.vectors, np.zeros((300, 3))])
    done = update(
        Graph.from_matrix(apart.tocsr()),
        start,
        settings,
        RunContext(),
        Before(Regularization(0.0, "off"), 0.1),
    )
    assert done.action == "refit"
    assert done.result.certificate.converged
