"""Disconnected graphs: nothing is split needlessly, tiny components take no directions and are named."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    metrics,
)
from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.components import connect, indicators, on_all_rows, subgraph, sublayers

KINDS = ("random_walk", "symmetric", "unnormalized")


def together(*matrices):
    return Graph.from_matrix(sp.block_diag(matrices, format="csr"))


def clique(size):
    return np.ones((size, size)) - np.eye(size)


def blocks(n_nodes, k, seed=0):
    return datasets.make_block_model(n_nodes, k, mean_degree=16, random_state=seed)


@pytest.fixture(scope="module")
def specked():
    """Three clusters, ten triangles, two lone nodes."""
    data = blocks(300, 3)
    graph = together(data.graph.matrix, *[clique(3)] * 10, sp.csr_array((2, 2)))
    return graph, data.labels


@pytest.mark.parametrize("kind", KINDS)
def test_specks_take_no_directions(specked, kind):
    graph, labels = specked
    with pytest.warns(
        GraphWarning, match=r"32 of 332 nodes .* excluded \(cluster -1\): 300, 301, 302, 303, 304, \.\.\."
    ):
        model = SpectralClustering(3, laplacian=kind, random_state=0).fit(graph)
    assert metrics.nmi(labels, model.labels_[:300]) > 0.95
    assert (model.labels_[300:] == -1).all()
    assert model.excluded_.tolist() == list(range(300, 332))
    assert not model.embedding_[300:].any()
    assert model.converged_
    assert model.connectivity_.n_components == 13
    assert "13 components, the largest with 300 nodes; 32 nodes excluded" in model.connectivity_.sentence


def test_names_are_told():
    matrix = sp.block_diag([clique(6), sp.csr_array((1, 1))], format="csr")
    graph = Graph.from_matrix(matrix, names=[*"abcdef", "zoe"])
    with pytest.warns(GraphWarning, match=r"1 of 7 nodes .*: zoe;"):
        model = SpectralEmbedding(2, random_state=0).fit(graph)
    assert model.excluded_.tolist() == ["zoe"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_components_are_never_split_when_there_are_enough(kind, k):
    graph = together(clique(10), clique(8), clique(6), clique(5))
    labels = SpectralClustering(k, laplacian=kind, random_state=0).fit_predict(graph)
    components = [set(part) for part in np.split(labels, [10, 18, 24])]
    assert all(len(piece) == 1 for piece in components)
    assert len(set(labels)) == k


def test_whole_components_are_exact_and_balanced():
    graph = together(clique(10), clique(8), clique(6), clique(5))
    model = SpectralClustering(2, random_state=0).fit(graph)
    assert sorted(np.bincount(model.labels_)) == [14, 15]
    assert model.converged_
    assert model.certificate_.sentence == "exact: clusters of whole components cut no edge"
    assert model.solver_ == "components"
    assert model.regularization_.tau == 0


@pytest.mark.parametrize(
    ("n_nodes", "kind"), [*((200, kind) for kind in KINDS), (2500, "random_walk"), (2500, "symmetric")]
)
def test_more_clusters_than_components(n_nodes, kind):
    first, second = blocks(n_nodes, 3), blocks(n_nodes, 2, seed=1)
    graph = together(first.graph.matrix, second.graph.matrix)
    model = SpectralClustering(5, laplacian=kind, random_state=0).fit(graph)
    truth = np.concatenate([first.labels, 3 + second.labels])
    assert metrics.nmi(truth, model.labels_) > 0.95
    assert model.converged_
    np.testing.assert_allclose(model.eigenvalues_[:2], 0, atol=1e-6)
    assert len(model.connectivity_.excluded) == 0


def test_many_tiny_components():
    graph = together(*[clique(2)] * 40)
    model = SpectralClustering(3, random_state=0).fit(graph)
    assert len(set(model.labels_)) == 3
    assert (model.labels_[::2] == model.labels_[1::2]).all()


def test_embedding_of_more_components_than_columns_is_orthonormal_and_drops_the_constant():
    graph = together(*[clique(n) for n in (9, 8, 7, 6)])
    model = SpectralEmbedding(2, random_state=0).fit(graph)
    U = model.embedding_
    D = graph.degrees
    np.testing.assert_allclose(U.T @ (D[:, None] * U), np.eye(2), atol=1e-12)
    np.testing.assert_allclose(D @ U, 0, atol=1e-12)


def test_largest_keeps_one_component(specked):
    graph, labels = specked
    with pytest.warns(GraphWarning, match="32 of 332 nodes"):
        model = SpectralClustering(3, disconnected="largest", random_state=0).fit(graph)
    assert metrics.nmi(labels, model.labels_[:300]) > 0.95
    two = together(clique(10), clique(9))
    with pytest.warns(GraphWarning, match="9 of 19 nodes"):
        model = SpectralClustering(2, disconnected="largest", random_state=0).fit(two)
    assert set(model.labels_[10:]) == {-1}
    assert set(model.labels_[:10]) == {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_regularize_labels_everybody(specked, kind):
    graph, labels = specked
    model = SpectralClustering(3, laplacian=kind, disconnected="regularize", random_state=0).fit(graph)
    assert (model.labels_ >= 0).all()
    assert len(model.excluded_) == 0
    assert model.regularization_.tau == 0.1
    assert model.regularization_.reason.startswith("13 components: 0.1 mean degrees")
    if kind != "unnormalized":  # there tau lifts clusters and tiny components alike
        assert metrics.nmi(labels, model.labels_[:300]) > 0.95


def test_regularize_takes_the_users_number(specked):
    model = SpectralClustering(3, disconnected="regularize", regularization=0.3, random_state=0).fit(
        specked[0]
    )
    assert (model.regularization_.tau, model.regularization_.reason) == (0.3, "asked for")


@pytest.mark.parametrize("cls", [SpectralEmbedding, SpectralClustering])
def test_error_names_the_nodes(cls):
    graph = Graph.from_matrix(sp.block_diag([clique(5), clique(2)]), names=[*"abcde", "yan", "zoe"])
    with pytest.raises(
        GraphError, match=r"2 components; 2 nodes are outside the largest \(yan, zoe\): join or"
    ):
        cls(2, disconnected="error").fit(graph)
    connected = Graph.from_matrix(clique(6))
    assert (
        cls(2, disconnected="error", random_state=0).fit(connected).connectivity_.sentence
        == "the graph is connected"
    )


def test_unknown_policies_and_empty_graphs_are_errors():
    with pytest.raises(
        ValueError, match="disconnected='drop': expected one of components, regularize, largest, error"
    ):
        SpectralClustering(2, disconnected="drop").fit(Graph.from_matrix(clique(5)))
    empty = Graph.from_matrix(sp.csr_array((4, 4)))
    for policy in ("components", "regularize"):
        with pytest.raises(GraphError, match="nodes but no edge"):
            connect(empty, 2, policy)


def test_too_many_clusters_for_what_is_left():
    graph = together(clique(4), sp.csr_array((6, 6)))
    with (
        pytest.warns(GraphWarning),
        pytest.raises(GraphError, match="5 eigenvectors asked of the 4 nodes that are left"),
    ):
        SpectralClustering(5).fit(graph)


def test_one_cluster_is_one_cluster(specked):
    with pytest.warns(GraphWarning):
        model = SpectralClustering(1, random_state=0).fit(specked[0])
    assert set(model.labels_) == {0, -1}


@pytest.mark.parametrize("metric", [None, np.array([1.0, 2.0, 3.0, 4.0, 5.0])])
def test_indicators_are_an_orthonormal_basis_of_the_null_space(metric):
    labels = np.array([0, 0, 1, 2, 1])
    Z = indicators(labels, metric)
    B = np.eye(5) if metric is None else np.diag(metric)
    np.testing.assert_allclose(Z.T @ B @ Z, np.eye(3), atol=1e-12)
    assert np.ptp(Z[:, 0]) < 1e-12
    for label in range(3):
        assert np.ptp(Z[labels == label], axis=0).max() < 1e-12


def test_rows_and_subgraphs():
    graph = Graph.from_edges(["a", "b", "c"], ["b", "c", "d"])
    assert subgraph(graph, np.array([1, 2])).node_names.tolist() == ["b", "c"]
    assert subgraph(graph, np.arange(4)) is graph
    np.testing.assert_array_equal(on_all_rows(np.ones((2, 1)), np.array([0, 2]), 3), [[1], [0], [1]])


@pytest.fixture(scope="module")
def layered():
    """Two layers of 200 nodes; node 200 is in no layer, 201-202 only tied to each other."""
    rows = [blocks(200, 3, seed=s) for s in (0, 1)]
    order = [np.argsort(data.labels, kind="stable") for data in rows]
    pad = np.zeros((3, 3))
    pad[1, 2] = pad[2, 1] = 1
    layers = [
        sp.block_diag([data.graph.matrix[o][:, o], pad], format="csr")
        for data, o in zip(rows, order, strict=True)
    ]
    return MultilayerGraph.from_layers(layers), np.sort(rows[0].labels)


@pytest.mark.parametrize("policy", ["components", "largest"])
def test_layers_are_connected_through_each_other(layered, policy):
    graph, labels = layered
    with pytest.warns(GraphWarning, match="3 of 203 nodes .*: 200, 201, 202;"):
        model = MultilayerSpectralClustering(3, disconnected=policy, random_state=0).fit(graph)
    assert model.labels_.tolist()[200:] == [-1, -1, -1]
    assert metrics.nmi(labels, model.labels_[:200]) > 0.9
    assert [U.shape for U in model.layer_embeddings_] == [(203, 3)] * 2
    assert model.embedding_.shape == (203, 3)


def test_layers_regularize_and_error(layered):
    graph, labels = layered
    model = MultilayerSpectralClustering(3, disconnected="regularize", random_state=0).fit(graph)
    assert (model.labels_ >= 0).all()
    assert metrics.nmi(labels, model.labels_[:200]) > 0.9
    with pytest.raises(GraphError, match="3 components"):
        MultilayerSpectralEmbedding(3, disconnected="error").fit(graph)


def test_sublayers_keep_row_numbers_as_names(layered):
    small = sublayers(layered[0], np.array([5, 7, 9]))
    assert small.node_names.tolist() == [5, 7, 9]


def test_components_of_layers_are_those_of_their_union():
    layers = [Graph.from_edges([0, 3], [1, 4], n_nodes=7), Graph.from_edges([1, 5], [2, 4], n_nodes=7)]
    graph = MultilayerGraph.from_layers(layers)
    expected = connected_components(layers[0].matrix + layers[1].matrix, directed=False)[1]
    assert graph.components.tolist() == expected.tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_a_gap_of_one_rounding_error_is_no_gap():
    star = Graph.from_edges([0, 0, 0], [1, 2, 3])  # eigenvalue 1 twice
    model = SpectralEmbedding(1, regularization=None, random_state=0).fit(star)
    assert not model.converged_
    assert model.certificate_.angle_bound > 1


def test_components_of_symmetric_matrices_are_numbered_by_their_first_nodes():
    rng = np.random.default_rng(0)
    ends = rng.integers(60, size=(2, 40))
    matrix = sp.coo_array((np.ones(40), ends), shape=(60, 60)).tocsr()
    matrix = sp.csr_array(matrix + matrix.T)
    found = Graph.from_matrix(matrix - sp.diags_array(matrix.diagonal())).components
    expected = connected_components(matrix, directed=False)[1]
    np.testing.assert_array_equal(found, expected)


def test_layers_of_which_one_is_connected_are_connected():
    pairs = Graph.from_edges([0, 2, 4], [1, 3, 5])
    path = Graph.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
    for layers in ((pairs, path), (path, pairs)):
        assert not MultilayerGraph(layers, ("a", "b")).components.any()
    assert MultilayerGraph((pairs, pairs), ("a", "b")).components.tolist() == [0, 0, 1, 1, 2, 2]
