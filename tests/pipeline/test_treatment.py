"""Treatment by evidence: which is chosen, why, when nothing is compared, and where the choice is told."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_circles

import spectrograd
from spectrograd import Graph, GraphWarning, SpectralClustering, datasets, metrics
from spectrograd.pipeline import run as run_module
from spectrograd.pipeline import treatment as treatment_module
from spectrograd.pipeline.run import prepare
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.treatment import Candidate, Treatment, after_update
from spectrograd.pipeline.trial import Trial, run_trial
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.settings import RunContext


@pytest.fixture(scope="module")
def circles():
    """Two rings, of which two eigenvectors show one only."""
    points, labels = make_circles(1500, noise=0.08, factor=0.5, random_state=3)
    return points, labels


@pytest.fixture(scope="module")
def ring_model(circles):
    return SpectralClustering(2, affinity="nearest_neighbors", random_state=0).fit(circles[0])


def with_satellites(k: int = 5, seed: int = 0) -> tuple[Graph, np.ndarray]:
    """Neighbours of k Gaussian clusters and of as many small groups far from everything."""
    rng = np.random.default_rng(seed)
    points, labels = datasets.make_gaussian_mixture(1000, k, n_features=3, separation=4, random_state=rng)
    for group in range(k):
        far = 1000 * (group + 1) + rng.normal(size=(30, 3))
        points = np.vstack([points, far])
        labels = np.append(labels, np.full(30, group))
    return knn_graph(points, 10), labels


def test_more_vectors_where_k_of_them_miss_a_cluster(circles, ring_model):
    points, labels = circles
    plain = SpectralClustering(2, affinity="nearest_neighbors", regularization=None, random_state=0).fit(
        points
    )
    assert metrics.nmi(labels, plain.labels_) < 0.6
    assert metrics.nmi(labels, ring_model.labels_) > 0.9
    chosen = ring_model.treatment_
    assert chosen.name == "4 vectors by commute distance"
    assert ring_model.embedding_.shape == (1500, 4)
    assert ring_model.certificate_.converged
    assert [each.name for each in chosen.candidates] == ["2 vectors", "4 vectors by commute distance"]
    first, best = chosen.candidates
    assert best.criterion > first.criterion
    assert f"{best.criterion:.3f} nats" in chosen.reason


def test_neighbours_of_points_are_not_regularised(ring_model):
    assert all(each.tau == 0 for each in ring_model.treatment_.candidates)


def test_more_vectors_are_those_of_the_regularised_graph_where_the_first_are():
    data = datasets.make_block_model(3000, 5, mean_degree=4, random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering(5, random_state=0).fit(data.graph)
    first, rival = model.treatment_.candidates
    assert first.tau == rival.tau == model.regularization_.tau
    assert first.tau > 0
    assert metrics.nmi(data.labels, model.labels_) > 0.5


def test_the_rival_is_certified_where_it_is_taken(monkeypatch):
    """More vectors are one solve more; a certificate is made for them where they win."""
    solves, certified = [], []

    def counted_trial(*args):
        solves.append(run_trial(*args))
        return solves[-1]

    def counted_certificate(self, k, certify=Trial.certified):
        certified.append(k)
        return certify(self, k)

    monkeypatch.setattr(run_module, "choose_by_rough_vectors", lambda *args: None)
    monkeypatch.setattr(treatment_module, "run_trial", counted_trial)
    monkeypatch.setattr(Trial, "certified", counted_certificate)
    data = datasets.make_block_model(1000, 3, mean_degree=6, random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering(3, random_state=0).fit(data.graph)
    assert len(solves) == len(model.treatment_.candidates) - 1 == 1
    assert not any(each.solved.certificate.converged for each in solves)
    assert len(certified) <= 1
    assert model.certificate_.converged


def test_a_winner_that_is_not_certified_is_solved_for_again(circles, monkeypatch):
    monkeypatch.setattr(Trial, "certified", lambda self, k: self.first_columns(k))
    model = SpectralClustering(2, affinity="nearest_neighbors", random_state=0).fit(circles[0])
    assert model.treatment_.name == "4 vectors by commute distance"
    assert model.certificate_.converged


def test_first_columns_of_a_trial_are_certified_on_their_own():
    data = datasets.make_block_model(300, 3, random_state=0)
    settings = Settings(n_components=6, seed=0)
    context = RunContext()
    trial = run_trial(prepare(data.graph, settings, context), settings, context)
    assert not trial.first_columns(3).certificate.converged
    found = trial.certified(3)
    assert found.certificate.converged
    assert found.vectors.shape == (300, 3)
    np.testing.assert_allclose(found.embedding.eigenvalues, trial.first_columns(3).embedding.eigenvalues)


def test_small_components_take_no_clusters_from_the_large_one():
    graph, labels = with_satellites()
    model = SpectralClustering(5, random_state=0).fit(graph)
    assert model.treatment_.candidates[0].name == "whole components"
    plain = SpectralClustering(5, regularization=None).fit(graph)
    found, by_components = (metrics.nmi(labels[:1000], each.labels_[:1000]) for each in (model, plain))
    assert found > by_components + 0.2


def test_vectors_of_a_graph_in_components_are_eigenvectors_without_a_certificate_too():
    """The solve begins with all null vectors: none of them may be lost."""
    graph, _ = with_satellites()
    settings = Settings(n_components=13, seed=0, regularization=None)
    context = RunContext()
    prepared = prepare(graph, replace(settings, n_components=5), context)
    part = replace(prepared, connectivity=replace(prepared.connectivity, groups=None))
    solved = run_trial(part, settings, context)
    vectors = solved.solved.embedding.vectors
    rest = (
        solved.operator @ vectors
        - solved.operator.metric[:, None] * vectors * solved.solved.embedding.eigenvalues
    )
    assert np.linalg.norm(rest) < 1e-2 * np.linalg.norm(solved.operator.metric[:, None] * vectors)


def test_components_of_equal_size_stay_clusters():
    ring = np.arange(40)
    heads = np.concatenate([ring + 40 * part for part in range(3)])
    tails = np.concatenate([(ring + 1) % 40 + 40 * part for part in range(3)])
    model = SpectralClustering(3, random_state=0).fit(Graph.from_edges(heads, tails))
    assert model.treatment_.candidates == ()
    assert metrics.nmi(np.repeat(range(3), 40), model.labels_) == pytest.approx(1)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "the next eigenvalue is"),
        ({"regularization": None}, "regularization was given"),
        ({"regularization": 0.1}, "regularization was given"),
        ({"n_components": 5}, "the number of vectors was given"),
        ({"solver": "lanczos"}, "the solver or the rule for labels was given"),
        ({"assign_labels": "cluster_qr"}, "the solver or the rule for labels was given"),
        ({"laplacian": "unnormalized"}, "not tried with the unnormalized Laplacian"),
    ],
)
def test_nothing_is_compared(params, why):
    data = datasets.make_block_model(300, 3, random_state=0)
    model = SpectralClustering(3, random_state=0, **params).fit(data.graph)
    assert model.treatment_.candidates == ()
    assert why in model.treatment_.reason
    assert model.embedding_.shape[1] == params.get("n_components", 3)


def many_clusters() -> Graph:
    """Fifty-five clusters of twelve nodes among random edges, and some leaves."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(55), 12)
    heads = np.arange(len(labels)).repeat(6)
    tails = labels[heads] * 12 + rng.integers(12, size=len(heads))
    apart = heads != tails
    noise = rng.integers(len(labels), size=(2, 5000))
    noise = noise[:, noise[0] != noise[1]]
    leaves = len(labels) + np.arange(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Graph.from_edges(
            np.concatenate([heads[apart], noise[0], leaves]),
            np.concatenate([tails[apart], noise[1], rng.integers(len(labels), size=40)]),
        )


def test_many_clusters_compare_unit_rows_only():
    """Beyond fifty clusters nothing of more columns is solved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering(55, random_state=0).fit(many_clusters())
    names = [each.name for each in model.treatment_.candidates]
    assert names == ["55 vectors", "55 vectors as unit rows"]
    assert model.embedding_.shape[1] == 55


def test_many_clusters_are_regularised_where_unit_rows_are_better(monkeypatch):
    monkeypatch.setattr(Candidate, "is_better_than", lambda self, first: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering(55, random_state=0).fit(many_clusters())
    chosen = model.treatment_
    assert [each.tau for each in chosen.candidates] == [0.0, 0.0, 0.1]
    assert chosen.name == chosen.candidates[2].name
    assert model.regularization_.tau == 0.1
    assert "its clusters tell more about the edges" in model.regularization_.reason
    assert model.certificate_.converged


def test_one_cluster_that_holds_nearly_everything_is_said_to():
    """Three nodes hang on a random graph of a hundred by a thin thread."""
    rng = np.random.default_rng(0)
    heads, tails = rng.integers(100, size=(2, 1500))
    apart = heads != tails
    heads = np.append(heads[apart], [0, 100, 101])
    tails = np.append(tails[apart], [100, 101, 102])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = Graph.from_edges(heads, tails, np.append(np.ones(apart.sum()), [1e-3, 1, 1]))
    with pytest.warns(GraphWarning, match=r"one cluster holds 97\.1% of the nodes: try regularization=0\.3"):
        model = SpectralClustering(2, regularization=None, random_state=0).fit(graph)
    assert model.treatment_.is_lopsided
    assert model.treatment_.lopsided_sentence in model.treatment_.sentence
    assert "holds 97.1% of the nodes" in model._repr_html_()


def test_new_points_get_the_labels_of_the_rows_beside_them(circles, ring_model):
    points, _ = circles
    again = ring_model.predict(points + 1e-6)
    assert (again == ring_model.labels_).mean() > 0.97


def test_a_saved_model_keeps_the_treatment(circles, ring_model, tmp_path):
    ring_model.save(tmp_path / "model")
    loaded = spectrograd.load(tmp_path / "model")
    assert loaded.treatment_ == ring_model.treatment_
    points = circles[0] + 1e-6
    np.testing.assert_array_equal(loaded.predict(points), ring_model.predict(points))


def test_an_update_keeps_the_treatment():
    graph = knn_graph(make_circles(1500, noise=0.08, factor=0.5, random_state=3)[0], 10)
    model = SpectralClustering(2, random_state=0).fit(graph)
    before = model.labels_.copy()
    model.partial_fit(Graph.from_edges([0, 10], [1, 11], n_nodes=1500))
    assert model.treatment_.rows == "commute"
    assert model.treatment_.reason.startswith("as at the last fit (")
    assert (model.labels_ == before).mean() > 0.97
    model.partial_fit(Graph.from_edges([2], [3], n_nodes=1500))
    assert model.treatment_.reason.count("as at the last fit") == 1


def test_the_number_of_clusters_by_itself(circles):
    """With ``n_clusters="auto"`` the number is found first and kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering("auto", affinity="nearest_neighbors", random_state=0).fit(circles[0])
    assert len(np.unique(model.labels_)) == model.n_clusters_ == model.eigengap_.n_clusters


def test_column_weights_are_those_of_commute_times():
    treatment = Treatment("4 vectors by commute distance", "", "commute", n_null=2)
    weights = treatment.column_weights(np.array([0.0, 0.0, 0.25, 1.0]))
    np.testing.assert_allclose(weights, [0, 0, 1, 0.5])
    assert Treatment("4 vectors", "").column_weights(np.ones(4)) is None


def test_where_it_is_told(ring_model):
    summary = ring_model.treatment_.summary()
    assert summary["candidates"][0] == {
        "name": "2 vectors",
        "n_vectors": 2,
        "tau": 0.0,
        "rows": "soft unit",
        "criterion": ring_model.treatment_.candidates[0].criterion,
        "largest_share": ring_model.treatment_.candidates[0].largest_share,
        "relative": ring_model.treatment_.candidates[0].relative,
    }
    assert "4 vectors by commute distance" in ring_model._repr_html_()
    assert isinstance(ring_model.treatment_.candidates[0], Candidate)


def test_no_treatment_before_labels():
    assert after_update(None, None) is None


def test_another_treatment_must_be_better_by_both_criteria():
    def candidate(criterion: float, relative: float) -> Candidate:
        return Candidate("", 2, 0.0, "soft unit", criterion, 0.5, relative)

    first = candidate(0.50, 0.70)
    assert candidate(0.51, 0.71).is_better_than(first)
    assert not candidate(0.502, 0.702).is_better_than(first)  # by too little
    assert not candidate(0.51, 0.69).is_better_than(first)  # more even clusters alone
    assert not candidate(0.49, 0.71).is_better_than(first)  # one large cluster
