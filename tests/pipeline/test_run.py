"""Estimator, command and comparison use one pipeline: same graph and seed, same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spectrograd import (
    Graph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
    read_graph,
    write_graph,
)
from spectrograd.cli import main
from spectrograd.graph import GraphWarning
from spectrograd.labels.eigengap import widest_gap
from spectrograd.pipeline import Settings, cluster, embed
from spectrograd.pipeline import run as room
from spectrograd.report.document import suggested_clusters
from spectrograd.solvers.settings import RunContext


def with_whiskers(n_nodes: int, seed: int) -> Graph:
    """A block model with dangling paths: the graph that needs regularisation, soft rows and pieces."""
    data = datasets.make_block_model(n_nodes, 3, random_state=seed)
    coo = data.graph.matrix.tocoo()
    half = coo.row < coo.col
    n_paths, length = 12, 6
    tips = n_nodes + np.arange(n_paths * length).reshape(n_paths, length)
    roots = np.arange(n_paths)[:, None]
    source = np.concatenate([coo.row[half], np.hstack([roots, tips[:, :-1]]).ravel(), [n_nodes + 72]])
    target = np.concatenate(
        [coo.col[half], tips.ravel(), [n_nodes + 73]]
    )  # and a tiny component of two nodes
    return Graph.from_edges(source, target, n_nodes=n_nodes + 74)


@pytest.fixture(scope="module")
def graph():
    return with_whiskers(600, 0)


@pytest.fixture
def stored(graph, tmp_path):
    write_graph(tmp_path / "graph.npz", graph)
    return tmp_path


def command(*args):
    return main([str(arg) for arg in args])


@pytest.fixture
def estimator(graph):
    with pytest.warns(GraphWarning, match="excluded"):
        return SpectralClustering(3, random_state=0).fit(graph)


def test_command_and_estimator_give_the_same_labels(stored, estimator):
    assert command("cluster", stored / "graph.npz", "-k", 3, "-o", stored / "labels.npy", "-q") == 0
    np.testing.assert_array_equal(np.load(stored / "labels.npy"), estimator.labels_)
    assert (estimator.labels_ == -1).sum() == 2
    assert estimator.regularization_.tau > 0  # or this graph compares nothing


def test_command_and_estimator_give_the_same_vectors(graph, stored):
    with pytest.warns(GraphWarning, match="excluded"):
        model = SpectralEmbedding(4, random_state=3).fit(graph)
    assert command("embed", stored / "graph.npz", "-k", 4, "--seed", 3, "-o", stored / "e.npy", "-q") == 0
    np.testing.assert_array_equal(np.load(stored / "e.npy"), model.embedding_)


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev"])
def test_compare_scores_the_labels_that_cluster_makes(graph, stored, solver):
    """Of solvers by name: under "auto" a fit also chooses which vectors make the clusters."""
    truth = np.arange(graph.n_nodes) % 3
    rows = [f"{node},{label}" for node, label in enumerate(truth)]
    (stored / "truth.csv").write_text("node,label\n" + "\n".join(rows) + "\n")
    file, args = stored / "graph.npz", ("-k", 3, "--labels", stored / "truth.csv", "-q", "--summary-json")
    assert command("cluster", file, "-s", solver, *args, stored / "one.json", "-o", stored / "x.npy") == 0
    page = ("-o", stored / "page.html")
    assert command("compare", file, "--solvers", solver, *args, stored / "two.json", *page) == 0
    one, two = (json.loads((stored / name).read_text()) for name in ("one.json", "two.json"))
    assert {key: two["rows"][0][key] for key in one["scores"]} == one["scores"]
    assert two["rows"][0]["max_residual"] == one["certificate"]["max_residual"]


def test_layers_walk_the_same_line(tmp_path):
    data = datasets.make_multilayer_gmm(400, 3, 3, random_state=0)
    for number, layer in enumerate(data.graph.layers):
        write_graph(tmp_path / f"{number}.npz", layer)
    files = [str(tmp_path / f"{number}.npz") for number in range(3)]
    assert main(["cluster", *files, "-k", "3", "-o", str(tmp_path / "l.npy"), "-q"]) == 0
    model = MultilayerSpectralClustering(3, random_state=0).fit(read_graph(*files))
    np.testing.assert_array_equal(np.load(tmp_path / "l.npy"), model.labels_)


def test_threads_bind_the_labels_too(graph, monkeypatch):
    """``n_jobs`` holds for every stage: nothing runs outside the engine's threads."""
    inside = []
    original = room.assign

    class Engine(type(RunContext().engine)):
        depth = 0

        def threads(self):
            from contextlib import contextmanager

            @contextmanager
            def counted():
                Engine.depth += 1
                try:
                    yield
                finally:
                    Engine.depth -= 1

            return counted()

    monkeypatch.setattr(room, "assign", lambda *a, **k: inside.append(Engine.depth) or original(*a, **k))
    with pytest.warns(GraphWarning, match="excluded"):
        cluster(graph, Settings(n_components=3, seed=0), RunContext(Engine(1)))
    assert set(inside) == {1}  # once per treatment


def test_the_hint_of_the_page_is_the_rule_of_auto():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.sort(rng.random(rng.integers(3, 12)))
        values[0] = 0
        expected = widest_gap(values).n_clusters
        assert suggested_clusters(values[:-1].tolist(), float(values[-1])) == expected


def test_a_result_is_one_flat_value(graph):
    with pytest.warns(GraphWarning, match="excluded"):
        result = embed(graph, Settings(n_components=3, seed=0))
    assert result.labels is None
    assert result.vectors.shape == (graph.n_nodes, 3)
    assert not result.vectors[result.connectivity.excluded].any()
    assert set(result.seconds) == {"solve"}
    assert result.operator.n_nodes == len(result.rows) == graph.n_nodes - 2
    with pytest.raises(ValueError, match="no labels to score"):
        result.scores(np.zeros(graph.n_nodes))


def test_stages_are_announced_in_order():
    data = datasets.make_multilayer_gmm(300, 2, 3, random_state=0)
    stages = []
    how = Settings(n_components=3, aggregation="projection", seed=0)
    result = cluster(data.graph, how, RunContext(on_stage=stages.append))
    assert stages == ["layers", "solve", "assign"]
    assert set(result.seconds) == {"layers", "merge", "solve", "assign"}
    assert metrics.nmi(data.labels, result.labels) > 0.5
