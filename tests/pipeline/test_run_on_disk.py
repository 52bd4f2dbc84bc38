"""The pipeline over a graph on disk gives what it gives in memory, in the order of the input."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import (
    Graph,
    GraphError,
    GraphWarning,
    MultilayerGraph,
    SpectralClustering,
    datasets,
    metrics,
    open_store,
    write_graph,
)
from spectrograd.cli import main
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian, masked_laplacian, regularized_laplacian
from spectrograd.pipeline import Settings, cluster, embed
from spectrograd.pipeline.memory_estimate import resident_bytes, streamed_bytes
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest


def stored(path, graph, order="none"):
    ingest(path, GraphSource(graph), IngestSettings(edges=True, block_bytes=1 << 16, order=order))
    return open_store(path)


def sine(U, V):
    """Of the largest angle between two subspaces."""
    U, V = np.linalg.qr(U)[0], np.linalg.qr(V)[0]
    return np.linalg.norm(V - U @ (U.T @ V), 2)


def block_model():
    return datasets.make_block_model(4_500, 4, mean_degree=16, random_state=0).graph


def with_specks():
    """A block model, a chain of three nodes and some without an edge, and nodes in random order."""
    matrix = block_model().matrix.tocoo()
    n, upper = matrix.shape[0], matrix.row < matrix.col
    source = np.append(matrix.row[upper], [n + 3, n + 4])
    target = np.append(matrix.col[upper], [n + 4, n + 5])
    place = np.random.default_rng(1).permutation(n + 9)
    names = np.array([f"node {i:05}" for i in range(n + 9)])
    return Graph.from_edges(place[source], place[target], n_nodes=n + 9, names=names)


def neighbours():
    points = np.random.default_rng(0).normal(size=(4_200, 6)) + 5 * np.eye(6)[np.arange(4_200) % 4]
    return knn_graph(points, 8, connect=True)


def three_layers():
    return datasets.make_multilayer_gmm(1_500, 3, 4, random_state=0).graph


@pytest.mark.parametrize(
    ("make", "order"),
    [(block_model, "none"), (with_specks, "bfs"), (neighbours, "bfs"), (three_layers, "bfs")],
)
def test_the_result_is_that_of_the_graph_in_memory(tmp_path, make, order):
    graph = make()
    disk = stored(tmp_path / "graph.store", graph, order)
    settings = Settings(
        n_components=4, seed=0, aggregation="projection"
    )  # "auto" compares merges in memory only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        here, there = cluster(graph, settings), cluster(disk, settings)
    assert there.certificate.converged
    assert not disk.is_resident
    metric = 1.0 if isinstance(graph, MultilayerGraph) else np.sqrt(graph.degrees)[:, None]
    assert sine(here.vectors * metric, there.vectors * metric) < 0.03
    assert metrics.score(here.labels, there.labels)["ari"] >= 0.99
    assert here.connectivity.excluded.tolist() == there.connectivity.excluded.tolist()
    assert np.all(there.vectors[there.connectivity.excluded] == 0)
    names = graph.node_names
    assert disk.input_names.tolist() == names.tolist()
    found = there.embedding.names
    assert (np.arange(len(names)) if found is None else found).tolist() == names.tolist()


def test_sweeps_are_few_and_none_is_only_for_the_probe(tmp_path):
    disk = stored(tmp_path / "graph.store", block_model())
    result = embed(disk, Settings(n_components=4, seed=0))
    assert result.certificate.converged
    assert disk.passes == result.passes <= 12
    assert disk.bytes_read > 0


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_masked_rows_leave_the_wanted_end_alone(kind, tau):
    whole = datasets.make_block_model(60, 2, mean_degree=8, random_state=0).graph
    whole = sp.triu(whole.matrix, format="coo")
    source, target = np.append(whole.row, [60, 61]), np.append(whole.col, [61, 62])
    graph = Graph.from_edges(source, target, n_nodes=65)
    part = Graph.from_edges(whole.row, whole.col, n_nodes=60)
    expected = regularized_laplacian(part, kind, tau)
    found = masked_laplacian(graph, kind, tau, np.arange(60, 65))
    values = np.linalg.eigvalsh(_standard(found))
    assert values[:10] == pytest.approx(np.linalg.eigvalsh(_standard(expected))[:10], abs=1e-9)
    inside = np.linalg.eigvalsh(_standard(found)[60:, 60:])
    assert inside.min() >= 0.75 * found.upper - 1e-9
    assert values.max() <= found.upper + 1e-9


def test_nothing_masked_is_the_plain_laplacian():
    graph = datasets.make_block_model(50, 2, mean_degree=8, random_state=0).graph
    plain, same = laplacian(graph), masked_laplacian(graph, "random_walk", 0.0, np.empty(0, np.int64))
    assert np.array_equal(plain.to_dense(), same.to_dense())
    assert np.array_equal(plain.metric, same.metric)


def _standard(operator):
    return operator.standard_form().to_dense()


def tight(disk, k):
    """A limit that the stream fits, but not the graph in memory: its blocks are few and small."""
    least = streamed_bytes(disk, k)
    assert least < resident_bytes(disk, k)
    return least


def test_estimators_stream_what_does_not_fit(tmp_path):
    graph, path = with_specks(), tmp_path / "graph.store"
    disk = stored(path, graph, "bfs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        here = SpectralClustering(4, random_state=0).fit(graph)
        there = SpectralClustering(4, random_state=0, memory_limit=f"{tight(disk, 4)}").fit(path)
        loaded = SpectralClustering(4, random_state=0).fit(str(path))
    assert there.solver_ == "chebyshev"
    assert "on disk" in there.solver_reason_
    assert there.names_.tolist() == loaded.names_.tolist() == graph.names.tolist()
    assert metrics.score(here.labels_, there.labels_)["ari"] >= 0.99
    assert np.array_equal(here.labels_, loaded.labels_)
    with pytest.raises(GraphError, match=r"memory_limit=5MB is too little for 4 vectors: at least \d+MB"):
        SpectralClustering(4, memory_limit="5MB").fit(path)


def test_commands_stream_what_does_not_fit(tmp_path, capsys):
    graph, path, resident = with_specks(), tmp_path / "graph.store", tmp_path / "graph.npz"
    limit = str(tight(stored(path, graph, "bfs"), 4))
    write_graph(resident, graph)
    run = ["cluster", str(path), "-k", "4", "-q", "--memory-limit", limit]
    out, here, summary = (tmp_path / name for name in ("labels.csv", "here.csv", "run.json"))
    assert main([*run, "-o", str(out), "--summary-json", str(summary)]) == 0
    assert main(["cluster", str(resident), "-k", "4", "-q", "-o", str(here)]) == 0
    one, other = (np.genfromtxt(p, delimiter=",", skip_header=1, dtype=str) for p in (out, here))
    assert one[:, 0].tolist() == other[:, 0].tolist()
    assert metrics.score(one[:, 1].astype(int), other[:, 1].astype(int))["ari"] >= 0.99
    report = json.loads(summary.read_text())["io"]
    assert 0 < report["passes_over_disk"] <= 30
    assert json.loads(summary.read_text())["solver"]["passes"] == report["passes_over_disk"]
    assert report["bytes_read"] > graph.n_entries * 4
    capsys.readouterr()
    assert main([*run, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "solver   chebyshev: the graph is on disk" in said
    assert f"memory   about {int(limit) / 1e6:,.0f} MB" in said
    assert main(["embed", str(path), "-k", "4", "--memory-limit", "5MB"]) == 2
    assert "at least" in capsys.readouterr().err


def test_conductance_of_a_graph_on_disk(tmp_path):
    graph = with_specks()
    disk = stored(tmp_path / "graph.store", graph, "bfs")
    labels = np.random.default_rng(0).integers(3, size=graph.n_nodes)
    assert metrics.conductance(disk, labels) == pytest.approx(metrics.conductance(graph, labels))


@pytest.mark.parametrize("engine", ["local", "torch:cpu"])
def test_sgd_reads_the_shuffled_edges_of_a_store(tmp_path, engine):
    if engine != "local":
        pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
    data = datasets.make_block_model(5_000, 4, mean_degree=30, random_state=0)
    disk = stored(tmp_path / "graph.store", data.graph, "bfs")
    found = cluster(disk, Settings(n_components=4, seed=0, solver="sgd"), RunContext(make_engine(engine)))
    assert metrics.score(data.labels, found.labels)["ari"] >= 0.97


def test_the_papers_method_reads_chunks_of_a_store(tmp_path):
    data = datasets.make_block_model(4_500, 3, mean_degree=30, mixing=0.2, random_state=0)
    disk = stored(tmp_path / "graph.store", data.graph, "bfs")
    settings = Settings(n_components=3, seed=0, solver="sgd-paper", max_iter=300)
    here, there = cluster(data.graph, settings), cluster(disk, settings)
    assert disk.bytes_read > 300 * 4_000 * 8  # every batch came from the disk
    scores = [metrics.score(data.labels, found.labels)["nmi"] for found in (here, there)]
    assert scores[1] > scores[0] - 0.05
    with pytest.raises(ValueError, match="batch='nodes' needs the graph in memory"):
        cluster(disk, Settings(n_components=3, seed=0, solver="sgd-paper", params={"batch": "nodes"}))


def test_the_sum_of_layers_needs_them_in_memory(tmp_path):
    disks = tuple(stored(tmp_path / f"{name}.store", block_model()) for name in "ab")
    graph = MultilayerGraph(disks, ("a", "b"))
    with pytest.raises(ValueError, match="'sum' needs the layers in memory: choose 'mean' or 'projection'"):
        embed(graph, Settings(n_components=3, aggregation="sum", seed=0))
