"""``partial_fit``: models that follow their graph."""

from __future__ import annotations

import warnings

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import spectrograd
from spectrograd import (
    Graph,
    GraphError,
    MultilayerGraph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
)
from spectrograd.aggregation import Layers, layer_operators
from spectrograd.pipeline import Settings, cluster, solve


@pytest.fixture(scope="module")
def blocks():
    return datasets.make_block_model(600, 3, random_state=0)


def edges_inside(labels, count, seed):
    rng = np.random.default_rng(seed)
    src = rng.integers(len(labels), size=count)
    dst = np.array([rng.choice(np.flatnonzero(labels == labels[node])) for node in src])
    return pd.DataFrame({"src": src, "dst": dst})[src != dst].drop_duplicates()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_many_updates_are_as_good_as_a_fit(blocks):
    model = SpectralClustering(3, random_state=0).fit(blocks.graph)
    first = model.labels_
    for seed in range(20):
        model.partial_fit(edges_inside(blocks.labels, 6, seed))
        assert not model.refit_advised_
    assert (model.labels_ == first).mean() > 0.98
    again = SpectralClustering(3, random_state=0).fit(model._training_data.graph)
    assert metrics.nmi(blocks.labels, model.labels_) >= metrics.nmi(blocks.labels, again.labels_) - 0.01
    assert model.certificate_.converged


def test_new_nodes_come_last_and_get_a_cluster(blocks):
    model = SpectralClustering(3, random_state=0).fit(blocks.graph)
    friends = np.flatnonzero(blocks.labels == blocks.labels[0])[:6]
    model.partial_fit(networkx.Graph([("newcomer", int(friend)) for friend in friends]))
    assert model.names_[-1] == "newcomer"
    assert model.labels_[-1] == model.labels_[0]
    assert model.embedding_.shape == (601, 3)


def test_removal_undoes_an_addition(blocks):
    model = SpectralEmbedding(2, random_state=0, solver="eigen").fit(blocks.graph)
    change = edges_inside(blocks.labels, 10, 0)
    there = np.asarray(blocks.graph.matrix[change.src.to_numpy(), change.dst.to_numpy()]).ravel() > 0
    change = change[~there]
    model.partial_fit(change).partial_fit(remove=change)
    assert (model._training_data.graph.matrix != blocks.graph.matrix).nnz == 0


def test_a_cluster_that_splits_is_noticed():
    """Two of four planted clusters are held together, and come apart edge by edge."""
    data = datasets.make_block_model(800, 4, mean_degree=24, mixing=0.1, random_state=0)
    rng = np.random.default_rng(0)
    one, two = (np.flatnonzero(data.labels == cluster) for cluster in (0, 1))
    ties = np.unique(np.column_stack([rng.choice(one, 2400), rng.choice(two, 2400)]), axis=0)
    rows, cols = np.vstack([ties, ties[:, ::-1]]).T
    bridge = sp.coo_array((np.ones(len(rows)), (rows, cols)), shape=(800, 800)).tocsr()
    model = SpectralClustering(3, random_state=0).fit(Graph.from_matrix(data.graph.matrix + bridge))
    advised = []
    present = np.asarray(data.graph.matrix[ties[:, 0], ties[:, 1]]).ravel() == 0
    for part in np.array_split(ties[present], 8):
        model.partial_fit(remove=pd.DataFrame({"src": part[:, 0], "dst": part[:, 1]}))
        advised.append(model.refit_advised_)
    assert not advised[0]
    assert any(advised[3:])
    assert "refit is advised" in model.update_sentence_


def test_points_are_added():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    X = np.array([[0, 0], [6, 0], [0, 6.0]])[truth] + rng.standard_normal((400, 2))
    model = SpectralClustering(3, random_state=0).fit(X[:350]).partial_fit(X[350:])
    assert model.labels_.shape == (400,)
    assert metrics.nmi(truth, model.labels_) > 0.95
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_layers_follow():
    layers = datasets.make_multilayer_gmm(300, 2, 3, random_state=0).graph
    model = MultilayerSpectralClustering(3, random_state=0).fit(layers)
    before = model.labels_
    chosen = model.aggregation_
    name = layers.layer_names[0]
    model.partial_fit(pd.DataFrame({"src": [300, 300], "dst": [0, 1], "layer": [name, name]}))
    assert model.labels_.shape == (301,)
    assert (model.labels_[:300] == before).mean() > 0.8
    assert model.aggregation_ == chosen
    assert model.aggregation_reason_.startswith("as at the last fit (")


def test_an_aggregation_that_was_chosen_is_kept_by_a_loaded_model(tmp_path):
    data = datasets.make_multilayer_gmm(300, 2, 3, random_state=0)
    layers = data.graph
    model = MultilayerSpectralClustering(3, random_state=0).fit(layers)
    model.save(tmp_path / "model")
    rng = np.random.default_rng(0)
    edges = rng.integers(300, size=(2, 1500))
    edges = edges[:, edges[0] < edges[1]]
    change = pd.DataFrame({"src": edges[0], "dst": edges[1], "layer": layers.layer_names[1]})
    loaded = spectrograd.load(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(change)
        loaded.partial_fit(change)
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    assert loaded.aggregation_reason_ == model.aggregation_reason_
    np.testing.assert_array_equal(loaded.layer_weights_, model.layer_weights_)


def test_a_choice_of_an_aggregation_that_has_lost_its_evidence_is_said():
    """Some nodes, or all of them, swap their places in both layers: the clusters say nothing about them."""
    data = datasets.make_multilayer_gmm(300, 2, 3, random_state=0)
    graph = data.graph
    result = cluster(graph, Settings(n_components=3, seed=0))
    chosen = result.merged.chosen
    assert chosen.doubt(result.merged.inputs, result.labels) == ""
    order = np.random.default_rng(0).permutation(300)
    for n_moved, doubtful in ((3, False), (300, True)):
        moved = np.arange(300)
        moved[:n_moved] = moved[:n_moved][np.argsort(order[:n_moved])]
        layers = [layer.matrix[moved][:, moved] for layer in graph.layers]
        inputs = Layers(layer_operators(MultilayerGraph.from_layers(layers), "symmetric"), np.ones(2))
        assert bool(chosen.doubt(inputs, result.labels)) == doubtful


def test_a_loaded_model_goes_on(blocks, tmp_path):
    model = SpectralClustering(3, random_state=0).fit(blocks.graph)
    model.save(tmp_path / "model")
    change = edges_inside(blocks.labels, 20, 0)
    loaded = spectrograd.load(tmp_path / "model").partial_fit(change)
    np.testing.assert_array_equal(loaded.labels_, model.partial_fit(change).labels_)
    loaded.save(tmp_path / "model")
    assert spectrograd.load(tmp_path / "model").drift_ == loaded.drift_


BAD = [
    ({"X": pd.DataFrame({"src": [0], "dst": ["zed"]}), "new_nodes": "refuse"}, "'zed' is not in the graph"),
    ({"remove": pd.DataFrame({"src": [0], "dst": [0]})}, "."),
    ({"X": pd.DataFrame({"src": [0], "dst": [1], "weight": [-1.0]})}, "negative"),
    ({"X": pd.DataFrame({"src": [0], "dst": [1], "weight": [np.nan]})}, "finite"),
    ({"X": np.ones((3, 2))}, "partial_fit takes edges"),
    ({}, "nothing to change"),
    ({"X": pd.DataFrame({"src": [0], "dst": [1]}), "mode": "replace"}, "mode='replace'"),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_changes_leave_the_model_as_it_was(blocks, changes, message):
    model = SpectralClustering(3, random_state=0).fit(blocks.graph)
    before = dict(vars(model))
    if message == ".":  # an edge that is not there
        rows = np.flatnonzero(np.asarray(blocks.graph.matrix[[0]].todense()).ravel() == 0)
        changes = {"remove": pd.DataFrame({"src": [0], "dst": [int(rows[1])]})}
        message = "to remove is not in the graph"
    with pytest.raises(ValueError, match=message):
        model.partial_fit(**changes)
    assert all(vars(model)[name] is value for name, value in before.items())


def test_graph_errors_are_value_errors():
    assert issubclass(GraphError, ValueError)


def test_evidence_from_before_the_change_stands_in_memory(monkeypatch):
    """Edges that come lower no eigenvalue by more than a bound: no probe is run for them."""
    data = datasets.make_block_model(5000, 3, mean_degree=30, random_state=0)
    model = SpectralClustering(3, random_state=0).fit(data.graph)
    probes = []
    probe = solve.run_lanczos_probe
    monkeypatch.setattr(solve, "run_lanczos_probe", lambda *a, **k: probes.append(1) or probe(*a, **k))
    model.partial_fit(edges_inside(data.labels, 60, 0))
    assert model.update_action_ == "kept"
    assert model.certificate_.converged
    assert probes == []
    # a node that loses most of its edges: the bound says nothing, and a probe is asked
    ends = np.flatnonzero(data.graph.matrix[[0]].toarray()[0])[:20]
    model.partial_fit(remove=pd.DataFrame({"src": np.zeros(len(ends), int), "dst": ends}))
    assert model.certificate_.converged
    assert probes
