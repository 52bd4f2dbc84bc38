"""The second verdict: clusters against what chance gives; and nodes that follow their neighbours."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralClustering,
    SpectralClustering,
    datasets,
    open_store,
)
from spectrograd.labels.neighbor_labels import follow_neighbours
from spectrograd.pipeline import Settings, cluster
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest


def random_graph(n, degree, seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(n * degree // 2, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    matrix = sp.coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n)).tocsr()
    matrix = sp.csr_array(matrix + matrix.T)
    matrix.data[:] = 1
    return Graph.from_matrix(matrix)


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_have_no_clear_clusters(seed):
    model = SpectralClustering(5, random_state=seed).fit(random_graph(1000, 10, seed))
    assert model.cluster_verdict_.verdict == "none beyond chance"
    assert "random graph" in model.cluster_verdict_.sentence


@pytest.mark.parametrize("seed", range(3))
def test_strong_blocks_are_clear(seed):
    data = datasets.make_block_model(1000, 5, mixing=0.2, random_state=seed)
    model = SpectralClustering(5, random_state=seed).fit(data.graph)
    assert model.cluster_verdict_.verdict == "clear"


def test_leaves_follow_their_only_neighbour_under_regularisation():
    rng = np.random.default_rng(0)
    core = datasets.make_block_model(600, 3, mixing=0.1, random_state=0).graph.matrix.tocoo()
    hosts = rng.integers(600, size=300)
    rows = np.concatenate([core.row, hosts])
    cols = np.concatenate([core.col, 600 + np.arange(300)])
    keep = rows < cols
    graph = Graph.from_edges(rows[keep], cols[keep])
    model = SpectralClustering(3, regularization=1.0, random_state=0).fit(graph)
    matrix = graph.matrix
    leaves = np.flatnonzero(np.diff(matrix.indptr) == 1)
    assert len(leaves) >= 300
    assert (model.labels_[leaves] == model.labels_[matrix.indices[matrix.indptr[leaves]]]).all()


def test_no_cluster_is_emptied():
    star = Graph.from_edges([0, 0, 0, 1], [1, 2, 3, 2])
    found = follow_neighbours([star], np.array([0, 0, 0, 1]), [0.0])
    assert found.labels[3] == found.labels[0]
    assert set(found.labels) == {0, 1}


def stored(path, graph, **how):
    ingest(path, GraphSource(graph), IngestSettings(block_bytes=1 << 16, order="bfs", **how))
    return open_store(path)


def dense_blocks(seed=0):
    """Four blocks, their nodes one block after the other."""
    data = datasets.make_block_model(1500, 4, mean_degree=30, mixing=0.2, random_state=seed)
    order = np.argsort(data.labels, kind="stable")
    return Graph.from_matrix(sp.csr_array(data.graph.matrix[order][:, order]))


@pytest.mark.parametrize("weighted", [False, True])
def test_over_a_store_the_verdict_rests_on_a_sample_and_takes_no_pass(tmp_path, weighted):
    graph = dense_blocks()
    if weighted:
        upper = sp.triu(graph.matrix, format="coo")
        rng = np.random.default_rng(0)
        graph = Graph.from_edges(upper.row, upper.col, rng.uniform(0.5, 1.5, upper.nnz))
    disk = stored(tmp_path / "graph.store", graph)
    settings = Settings(n_components=4, seed=0)
    here, there = cluster(graph, settings), cluster(disk, settings)
    one, other = here.cluster_verdict, there.cluster_verdict
    assert disk.passes == there.passes
    assert one.verdict == other.verdict == "clear"
    assert other.strength == pytest.approx(one.strength, abs=0.05)
    assert other.conductance == pytest.approx(one.conductance, abs=0.03)


def test_a_random_graph_on_disk_has_no_clusters(tmp_path):
    disk = stored(tmp_path / "graph.store", random_graph(1500, 30, 0))
    verdict = cluster(disk, Settings(n_components=4, seed=0)).cluster_verdict
    assert verdict.verdict == "none beyond chance"


def test_a_regularised_store_is_read_once_more_for_its_leaves(tmp_path):
    disk = stored(tmp_path / "graph.store", dense_blocks())
    result = cluster(disk, Settings(n_components=4, seed=0, regularization=0.5))
    assert result.cluster_verdict.verdict == "clear"
    assert disk.passes == result.passes


def test_a_store_with_shuffled_edges_but_no_sample_is_judged_by_a_chunk(tmp_path):
    graph = datasets.make_block_model(1500, 4, mean_degree=10, mixing=0.1, random_state=0).graph
    settings = Settings(n_components=4, seed=0)
    disk = stored(tmp_path / "shuffled.store", graph, edges=True)
    assert disk.sample is None
    result = cluster(disk, settings)
    assert result.cluster_verdict.verdict == "clear"
    assert disk.passes == result.passes
    bare = cluster(stored(tmp_path / "bare.store", graph), settings).cluster_verdict
    assert bare.verdict == "not judged"
    assert "no sample of its edges" in bare.sentence


@pytest.mark.parametrize("tau", ["auto", 0.3])
@pytest.mark.parametrize("on_disk", [False, True])
def test_layers_are_judged_together(tmp_path, tau, on_disk):
    graph = MultilayerGraph((dense_blocks(0), dense_blocks(1)), ("first", "second"))
    source = stored(tmp_path / "graph.store", graph) if on_disk else graph
    result = cluster(source, Settings(n_components=4, seed=0, regularization=tau))
    assert result.cluster_verdict.verdict == "clear"
    assert result.cluster_verdict.eigenvalue is None


def test_random_layers_have_no_clusters():
    layers = [random_graph(1000, 12, seed) for seed in range(2)]
    model = MultilayerSpectralClustering(4, random_state=0).fit(layers)
    assert model.cluster_verdict_.verdict == "none beyond chance"


def test_a_run_out_of_time_judges_nothing():
    context = RunContext(labelled_by=-np.inf)
    verdict = cluster(dense_blocks(), Settings(n_components=4, seed=0), context).cluster_verdict
    assert (verdict.verdict, verdict.reason) == ("not judged", "out of time")


@pytest.mark.parametrize("seed", range(3))
def test_clusters_smaller_than_a_neighbourhood_are_not_clear(seed):
    """Forty cells of 200 even points look compact; each is hardly larger than what a node is joined to."""
    points = np.random.default_rng(seed).random((200, 2))
    verdict = SpectralClustering(40, random_state=seed).fit(points).cluster_verdict_
    assert verdict.verdict == "weak"
    if verdict.confidence >= verdict.needed_confidence:
        assert "graphs without clusters can look the same" in verdict.sentence


def test_an_even_cloud_of_points_has_no_clear_clusters():
    """A strip of noise in many dimensions is the worst of those that the margin was chosen by."""
    points = np.random.default_rng(2).random((600, 10)) * [8, *[1] * 9]
    model = SpectralClustering(5, n_neighbors=5, random_state=0).fit(points)
    assert model.cluster_verdict_.verdict == "weak"


@pytest.mark.parametrize("seed", range(4))
def test_nothing_shows_below_three_deviations_of_the_draws(seed):
    """Draws of small graphs differ much: a strength beyond them shows something, and no margin is added."""
    data = datasets.make_block_model(80, 6, mean_degree=5, mixing=0.35, random_state=seed)
    verdict = SpectralClustering(6, random_state=0).fit(data.graph).cluster_verdict_
    shows = verdict.strength >= max(0.08, 3 * verdict.chance_spread)
    assert (verdict.verdict != "none beyond chance") == shows
