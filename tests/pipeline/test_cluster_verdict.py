"""The second verdict: clusters against what chance gives; and nodes that follow their neighbours."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, SpectralClustering, datasets
from spectrograd.labels.neighbor_labels import follow_neighbours


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
