"""``n_clusters="auto"``: the eigengap tells, and its data come with the result."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_circles

from spectrograd import (
    Graph,
    GraphWarning,
    MultilayerSpectralClustering,
    SpectralClustering,
    datasets,
    metrics,
)
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS, MAX_CLUSTERS, widest_gap
from spectrograd.pipeline.memory_estimate import resident_bytes
from spectrograd.points.knn_graph import knn_graph


@pytest.mark.parametrize("k", [2, 5, 12])
def test_block_models(k):
    data = datasets.make_block_model(1200, k, random_state=0)
    model = SpectralClustering("auto", random_state=0).fit(data.graph)
    assert model.n_clusters_ == k
    assert model.n_clusters == "auto"
    assert metrics.nmi(data.labels, model.labels_) > 0.9
    assert model.embedding_.shape == (1200, k)
    assert model.converged_
    gap = model.eigengap_
    assert len(gap.eigenvalues) == FIRST_MAX_CLUSTERS + 1
    np.testing.assert_allclose(gap.gaps, np.diff(gap.eigenvalues))
    assert np.argmax(gap.jumps[1:]) == k - 2
    np.testing.assert_allclose(model.eigenvalues_, gap.eigenvalues[:k], atol=1e-12)


@pytest.mark.parametrize("k", [3, 8])
def test_neighbour_graphs(k):
    X, labels = datasets.make_gaussian_mixture(2000, k, n_features=8, separation=5, random_state=1)
    model = SpectralClustering("auto", random_state=0).fit(knn_graph(X, 10))
    assert model.n_clusters_ == k
    assert metrics.nmi(labels, model.labels_) > 0.9


def test_two_circles_are_two_clusters_and_doubts_are_told():
    points, labels = make_circles(800, noise=0.05, factor=0.5, random_state=0)
    with pytest.warns(
        match="no clear number: 2 clusters were taken, but the eigenvalues speak nearly as well for 12;"
    ):
        model = SpectralClustering("auto", random_state=0).fit(knn_graph(points, 10))
    assert model.n_clusters_ == 2
    assert model.eigengap_.ambiguous
    assert model.eigengap_.candidates == (2, 12)
    assert metrics.nmi(labels, model.labels_) > 0.9


def test_a_clear_number_is_taken_without_a_word(recwarn):
    data = datasets.make_block_model(600, 4, random_state=0)
    gap = SpectralClustering("auto", random_state=0).fit(data.graph).eigengap_
    assert (gap.candidates, gap.ambiguous) == ((4,), False)
    assert len(gap.runners_up) == 2
    assert 4 not in gap.runners_up
    assert not [w for w in recwarn if "clusters were taken" in str(w.message)]


@pytest.mark.parametrize("k", [28, 45])
def test_more_eigenvalues_are_asked_for_where_the_first_do_not_decide(k, recwarn):
    data = datasets.make_block_model(60 * k, k, mean_degree=20, mixing=0.2, random_state=0)
    model = SpectralClustering("auto", random_state=0).fit(data.graph)
    assert model.n_clusters_ == k
    assert model.eigengap_.clear
    assert len(model.eigengap_.eigenvalues) == MAX_CLUSTERS + 1
    assert model.embedding_.shape == (60 * k, k)
    assert model.converged_
    assert not [w for w in recwarn if "no clear number" in str(w.message)]


def test_graphs_without_a_clear_number_are_said_to_have_none():
    rng = np.random.default_rng(0)
    ends = rng.integers(1500, size=(9000, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    random = Graph.from_edges(*ends.T)
    cloud = knn_graph(rng.standard_normal((1000, 5)), 10)  # one cluster
    for graph in (random, cloud):
        with pytest.warns(GraphWarning, match="no clear number: .* clusters were taken, but the eigenvalues"):
            model = SpectralClustering("auto", random_state=0).fit(graph)
        assert not model.eigengap_.clear
        assert model.eigengap_.sentence.startswith("no clear number")
        assert model.eigengap_.summary()["clear"] is False


def test_a_jump_far_below_the_edge_of_the_bulk_is_not_clear():
    halves = [0, 0.18, *np.linspace(0.37, 0.48, 19)]  # as in a graph of friends in six years
    assert widest_gap(halves, edge=0.35).clear
    assert not widest_gap(halves, edge=0.7).clear
    assert not widest_gap(halves).clear
    assert widest_gap([0, 0.01, *np.linspace(0.37, 0.48, 19)]).clear  # a ratio that no bulk is needed for


def test_pieces_that_hang_on_by_an_edge_are_no_clear_number():
    """The eigenvalue of a clique of four is far below the others, and its vector lives on four nodes."""
    random = datasets.make_block_model(600, 1, mean_degree=14, random_state=0).graph.matrix
    clique = np.ones((4, 4)) - np.eye(4)
    joined = sp.lil_array(sp.block_diag([random, clique]))
    joined[0, 600] = joined[600, 0] = 1
    with pytest.warns(GraphWarning, match="no clear number: 2 clusters .* count pieces"):
        model = SpectralClustering("auto", random_state=0).fit(Graph.from_matrix(joined.tocsr()))
    assert widest_gap(model.eigengap_.eigenvalues, model.eigengap_.bulk_edge).clear  # by eigenvalues alone
    assert not model.eigengap_.clear


def test_a_second_look_keeps_to_memory_and_time():
    data = datasets.make_block_model(1680, 28, mean_degree=20, mixing=0.2, random_state=0)
    for limit in ({"memory_limit": resident_bytes(data.graph, 21)}, {"time_budget": 1e-3}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SpectralClustering("auto", random_state=0, **limit).fit(data.graph)
        assert len(model.eigengap_.eigenvalues) == FIRST_MAX_CLUSTERS + 1


def test_layers_are_counted_by_the_sum_of_their_laplacians():
    data = datasets.make_multilayer_gmm(600, 3, 4, separation=4, random_state=0)
    model = MultilayerSpectralClustering("auto", random_state=0).fit(data.graph)
    assert model.n_clusters_ == 4
    assert len(model.eigengap_.eigenvalues) == FIRST_MAX_CLUSTERS + 1


def test_components_count():
    clique = np.ones((9, 9)) - np.eye(9)
    for n_components_of_graph in (3, 30):  # fewer and more than are looked for
        model = SpectralClustering("auto", random_state=0).fit(
            Graph.from_matrix(sp.block_diag([clique] * n_components_of_graph))
        )
        assert model.n_clusters_ == n_components_of_graph
        assert len(set(model.labels_)) == n_components_of_graph


def test_small_graphs_and_given_numbers():
    path = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4])
    assert SpectralClustering("auto", random_state=0).fit(path).n_clusters_ in (2, 3)
    model = SpectralClustering(2, random_state=0).fit(path)
    assert (model.n_clusters_, model.eigengap_) == (2, None)
    with pytest.raises(ValueError, match="needs at least 3 eigenvalues, the graph gave 2"):
        widest_gap([0.0, 1.0])
    with pytest.raises(ValueError, match="n_clusters='many': expected a whole number"):
        SpectralClustering("many").fit(path)
