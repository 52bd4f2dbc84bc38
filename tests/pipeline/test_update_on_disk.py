"""Models of graphs on disk follow their store, and stores follow the runs that were made of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import spectrograd
from spectrograd import Graph, GraphError, SpectralClustering, datasets, metrics, open_store, read_graph
from spectrograd.cli import main
from spectrograd.pipeline.memory_estimate import resident_bytes, streamed_bytes
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest


@pytest.fixture
def grown(tmp_path):
    """A store of a block model without its last nodes and some of its edges; those, and the truth."""
    data = datasets.make_block_model(6_000, 4, mean_degree=20, random_state=0)
    shuffled = np.random.default_rng(0).permutation(6_000)
    entries = data.graph.matrix[shuffled][:, shuffled].tocoo()
    rng = np.random.default_rng(1)
    once = entries.row < entries.col
    later = (entries.col >= 5_980) | (rng.random(len(entries.col)) < 0.005)
    old, new = once & ~later, once & later
    path = tmp_path / "graph.store"
    graph = Graph.from_edges(entries.row[old], entries.col[old], n_nodes=5_980)
    ingest(path, GraphSource(graph), IngestSettings(edges=True, block_bytes=1 << 16, order="bfs"))
    change = np.column_stack([entries.row[new], entries.col[new]])
    return path, change, data.labels[shuffled]


def fitted(path, room_for_steps=12 * 4 * 4):
    disk = open_store(path)
    limit = streamed_bytes(disk, 4) + room_for_steps * disk.n_nodes
    assert limit < resident_bytes(disk, 4)
    return SpectralClustering(4, memory_limit=f"{limit}", random_state=0).fit(path)


def test_partial_fit_changes_the_store_and_follows_it(grown, tmp_path):
    path, change, truth = grown
    model = fitted(path)
    sweeps_of_fit = model.graph_.passes
    assert not model.graph_.is_resident
    friends = np.flatnonzero(model.labels_ == model.labels_[0])[:5]
    assert model.predict(Graph.from_edges(friends, [9_000] * 5)) == model.labels_[0]
    model.save(tmp_path / "model")
    model = spectrograd.load(tmp_path / "model")
    before = model.labels_.copy()
    model.partial_fit(Graph.from_edges(*change.T))
    assert model.update_action_ == "kept"
    assert model.certificate_.converged
    assert len(model.labels_) == 6_000
    assert metrics.score(truth, model.labels_)["ari"] > 0.98
    assert (model.labels_[:5_980] == before).mean() > 0.99  # clusters keep their numbers
    disk = open_store(path)
    assert disk.meta.delta
    assert disk.n_edges == model.graph_.n_edges
    assert model.graph_.passes <= sweeps_of_fit / 2  # no probe: the evidence of the fit is carried over
    with pytest.raises(GraphError, match=r"was replaced meanwhile"):
        spectrograd.load(tmp_path / "model")


def test_new_nodes_of_a_graph_on_disk_are_placed_as_in_memory(grown):
    path, change, truth = grown
    model, memory = fitted(path), SpectralClustering(4, random_state=0).fit(read_graph(path))
    assert not model.graph_.is_resident
    newcomers = change[(change[:, 1] >= 5_980) & (change[:, 0] < 5_980)]
    asked = Graph.from_edges(*newcomers.T)
    labels, names = model.predict(asked), model.new_names(asked)
    assert metrics.score(truth[names], labels)["ari"] > 0.95
    scores = model.score_samples(asked)
    assert memory.new_names(asked).tolist() == names.tolist()
    np.testing.assert_allclose(scores, memory.score_samples(asked), atol=0.1)
    entries = read_graph(path).matrix[:10]
    np.testing.assert_allclose(model.transform(entries), model.embedding_[:10], atol=1e-3)


def test_updates_rest_on_the_probe_of_the_fit_as_long_as_it_reaches(grown):
    path, _, truth = grown
    model, rng, actions = fitted(path), np.random.default_rng(0), []
    for _ in range(4):
        sure, ends = model.certificate_.complete_below, rng.integers(5_980, size=(2, 100))
        model.partial_fit(Graph.from_edges(*np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)))
        actions.append(model.update_action_)
        assert model.certificate_.converged
        assert model.update_action_ == "warm start" or model.certificate_.complete_below < sure
        exact = SpectralClustering(4, random_state=0).fit(read_graph(path))
        assert model.certificate_.complete_below < exact.certificate_.eigenvalues[-1] + exact.certificate_.gap
        assert metrics.score(truth[:5_980], model.labels_)["ari"] > 0.98
    assert actions[0] == "kept"


def test_a_command_takes_changes_into_store_and_run(grown, tmp_path, monkeypatch, capsys):
    path, change, truth = grown
    monkeypatch.chdir(tmp_path)
    np.savetxt("new.csv", change, fmt="%d", delimiter=",", header="src,dst", comments="")
    assert main(["cluster", str(path), "-k", "4", "--run", "run", "-o", "labels.csv", "-q"]) == 0
    command = ["update", str(path), "new.csv", "--run", "run", "-o", "labels.csv", "--summary-json", "s.json"]
    assert main(command) == 0
    assert json.loads((tmp_path / "s.json").read_text())["update"]["action"] == "kept"
    labels = np.genfromtxt("labels.csv", delimiter=",", skip_header=1, dtype=int)
    assert labels[:, 0].tolist() == list(range(6_000))
    assert metrics.score(truth, labels[:, 1])["ari"] > 0.98
    there = read_graph(path).matrix
    assert np.asarray(there[change[:, 0], change[:, 1]]).all()
    capsys.readouterr()
    assert main(["update", str(path), "--remove", "new.csv", "--run", "run", "-o", "labels.csv"]) == 0
    assert open_store(path).n_edges == read_graph(path).n_edges == there.nnz // 2 - len(change)
    assert main(["cluster", str(path), "-k", "4", "--run", "other", "-o", "labels.csv", "-q"]) == 0
    assert main(["update", str(path), "new.csv", "--run", "other", "-o", "labels.csv", "-q"]) == 0
    capsys.readouterr()
    assert main(["update", str(path), "--remove", "new.csv", "--run", "run", "-o", "labels.csv"]) == 2
    assert "is not as it was when the run was saved" in capsys.readouterr().err
    assert main(["update", str(path), "new.csv", "--run", "run", "-o", "labels.csv"]) == 0
    assert "the store has this change already" in capsys.readouterr().err


def test_edges_that_go_rest_on_the_probe_of_the_fit_too(grown):
    """A correction without a probe; the gap of the fit is its lower bound, so nothing cries refit."""
    path, _, truth = grown
    model = fitted(path)
    sweeps_of_fit, sure = model.graph_.passes, model.certificate_.complete_below
    assert 0 < model.certificate_.gap_bound <= model.certificate_.gap
    entries = read_graph(path).matrix.tocoo()
    once = np.flatnonzero(entries.row < entries.col)
    gone = np.random.default_rng(0).choice(once, 10, replace=False)
    model.partial_fit(remove=Graph.from_edges(entries.row[gone], entries.col[gone]))
    assert model.update_action_ == "kept"
    assert model.certificate_.converged
    assert model.graph_.passes <= sweeps_of_fit / 2
    exact = SpectralClustering(4, random_state=0).fit(read_graph(path))
    assert model.certificate_.complete_below < min(
        sure, exact.certificate_.eigenvalues[-1] + exact.certificate_.gap
    )
    assert metrics.score(truth[:5_980], model.labels_)["ari"] > 0.98
    assert not model.refit_advised_, model.refit_reason_
