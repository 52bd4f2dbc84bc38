"""Treatments chosen by rough vectors: the same as by certified ones, with one certificate, or none of it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh
from sklearn.datasets import make_moons

from spectrograd import Graph, datasets, metrics
from spectrograd.graph import GraphWarning
from spectrograd.labels.eigengap import bulk_edge
from spectrograd.labels.kmeans import rough_labels
from spectrograd.operators.laplacian import TAU, Regularization
from spectrograd.pipeline import rough_choice
from spectrograd.pipeline import run as run_module
from spectrograd.pipeline.rough_choice import KrylovSpace, choose_by_rough_vectors
from spectrograd.pipeline.run import cluster, prepare
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.treatment import BULK_SHARE, CLEAR_RATIO, reason_beyond_doubt
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.settings import RunContext

K = 5
SETTINGS = Settings(n_components=K, n_clusters=K, seed=0)


@pytest.fixture(scope="module")
def doubtful():
    """Two partitions of the same nodes, one weaker: there is no gap after the K-th eigenvalue."""
    strong = datasets.make_block_model(1500, K, mean_degree=20, mixing=0.05, random_state=0).graph.matrix
    weak = datasets.make_block_model(1500, 3, mean_degree=16, mixing=0.05, random_state=1).graph.matrix
    order = np.random.default_rng(0).permutation(1500)
    return Graph.from_matrix(sp.csr_array(strong + weak[order][:, order]))


@pytest.fixture
def embeds(monkeypatch):
    """The calls of the solver by the rough choice."""
    calls = []

    def counted(*args, embed=rough_choice.embed, **params):
        calls.append(args[1])
        return embed(*args, **params)

    monkeypatch.setattr(rough_choice, "embed", counted)
    return calls


def fit(graph, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cluster(graph, replace(SETTINGS, **params))


def test_candidates_are_compared_and_one_is_certified(doubtful, embeds, monkeypatch):
    def forbidden(*args):
        raise AssertionError("another solve")

    monkeypatch.setattr("spectrograd.pipeline.treatment.run_trial", forbidden)
    result = fit(doubtful)
    assert len(embeds) == 1
    assert len(result.treatment.candidates) > 1
    assert result.certificate.converged
    assert result.embedding.n_components == embeds[0]
    assert [attempt.solver for attempt in result.attempts] == ["lanczos"]


def test_the_choice_is_that_of_certified_vectors(doubtful, monkeypatch):
    by_rough = fit(doubtful)
    monkeypatch.setattr(run_module, "choose_by_rough_vectors", lambda *args: None)
    by_certified = fit(doubtful)
    assert by_rough.treatment.name == by_certified.treatment.name
    assert metrics.nmi(by_certified.labels, by_rough.labels) > 0.95
    for rough, certified in zip(
        by_rough.treatment.candidates, by_certified.treatment.candidates, strict=True
    ):
        assert rough.criterion == pytest.approx(certified.criterion, rel=0.03)


def test_vectors_that_stay_rough_leave_the_usual_way(doubtful, monkeypatch):
    monkeypatch.setattr(rough_choice, "ROUGH", 1e-30)
    prepared = prepare(doubtful, SETTINGS)
    assert choose_by_rough_vectors(prepared, SETTINGS, RunContext()) is None
    assert fit(doubtful).certificate.converged


def test_an_embedding_that_is_not_certified_leaves_the_usual_way(doubtful, monkeypatch):
    def uncertified(*args, embed=rough_choice.embed, **params):
        found = embed(*args, **params)
        return replace(found, certificate=replace(found.certificate, converged=False))

    monkeypatch.setattr(rough_choice, "embed", uncertified)
    assert fit(doubtful).certificate.converged


@pytest.mark.parametrize(
    "params",
    [
        {"time_budget": 100.0},
        {"memory_limit": 1 << 40},
        {"tol": 1e-6},
        {"regularization": None},
        {"solver": "lanczos"},
        {"n_clusters": K + 1},
        {"laplacian": "unnormalized"},
    ],
)
def test_what_was_asked_for_leaves_no_choice(doubtful, params):
    settings = replace(SETTINGS, **params)
    assert choose_by_rough_vectors(prepare(doubtful, settings), settings, RunContext()) is None


def test_neighbours_of_points_are_solved_for_once(embeds, monkeypatch):
    """All columns by one solve; K of them are certified where the first treatment stands."""
    widths = []

    def counted(prepared, settings, context, run=rough_choice.run_trial):
        widths.append(settings.n_components)
        return run(prepared, settings, context)

    monkeypatch.setattr(rough_choice, "run_trial", counted)
    points = make_moons(800, noise=0.2, random_state=0)[0]
    result = fit(knn_graph(points, 10), n_components=2, n_clusters=2)
    assert widths == [4]
    assert embeds == []
    assert [each.n_vectors for each in result.treatment.candidates] == [2, 4]
    assert result.certificate.converged
    chosen = next(each for each in result.treatment.candidates if each.name == result.treatment.name)
    assert result.embedding.n_components == chosen.n_vectors
    assert result.regularization.tau == 0


def test_tiny_graphs_are_solved_for_once(monkeypatch):
    data = datasets.make_block_model(120, 5, mean_degree=12, mixing=0.2, random_state=0)
    monkeypatch.setattr(rough_choice.KrylovSpace, "of_graph", None)
    result = fit(data.graph, n_components=3, n_clusters=3)
    assert len(result.treatment.candidates) == 2
    assert result.certificate.converged


def test_components_of_points_are_solved_for_once_too(embeds):
    """Two pairs of touching clusters, far apart: two null vectors, which commute distances leave out."""
    rng = np.random.default_rng(0)
    truth = np.repeat(range(4), 150)
    points = np.column_stack([truth * 3.0 + 60 * (truth > 1), np.zeros(600)]) + rng.normal(0, 1, (600, 2))
    graph = knn_graph(points, 10)
    result = fit(graph, n_components=4, n_clusters=4)
    assert embeds == []
    assert [each.n_vectors for each in result.treatment.candidates] == [4, 7]
    assert result.treatment.n_null == 2
    assert metrics.nmi(truth, result.labels) > 0.6


def test_several_components_leave_the_usual_way():
    data = datasets.make_block_model(600, K, random_state=0)
    two = Graph.from_matrix(sp.block_diag([data.graph.matrix, data.graph.matrix], format="csr"))
    assert choose_by_rough_vectors(prepare(two, SETTINGS), SETTINGS, RunContext()) is None


def test_near_copies_of_an_eigenvalue_are_waited_for(monkeypatch):
    """Five values within .012 of each other: from most starts the last of them is found before the end.

    From some it is not: nothing moves for a sixth of the steps, and then a copy appears (docs/adr/0054).
    """
    data = datasets.make_block_model(5000, 5, mean_degree=6, mixing=0.2, random_state=17)
    prepared = prepare(data.graph, SETTINGS)
    degrees = 1 / np.sqrt(prepared.part.degrees)
    adjacency = sp.diags_array(degrees) @ prepared.part.matrix @ sp.diags_array(degrees)
    truth = 1 - eigsh(adjacency, K + 1, which="LA")[0][::-1]
    n_found = 0
    for seed in range(8):
        monkeypatch.setattr(rough_choice, "SEED", 28 + seed)
        space = KrylovSpace.of_graph(prepared.part, "random_walk", 0.0, K, RunContext().engine)
        rough = space.rough_vectors(K, K + 1, lambda found: False)
        assert rough.n_good > K
        n_found += np.allclose(rough.ritz.values[: K + 1], truth, atol=0.01)
    assert n_found >= 6


def test_a_chain_without_clusters_is_no_clear_case():
    """Its third eigenvalue is four times the second, as that of anything stretched."""
    chain = Graph.from_edges(np.arange(99), np.arange(1, 100))
    block = datasets.make_block_model(300, 3, random_state=0).graph
    decision = Regularization(0.0, "not needed", 0.0)
    assert reason_beyond_doubt(decision, 1e-3, 4.0e-3, 2, chain) == ""
    assert reason_beyond_doubt(decision, 1e-3, 5.1e-3, 2, chain) != ""
    assert reason_beyond_doubt(decision, 0.01, 0.01 * (CLEAR_RATIO + 0.01), 2, block) != ""


def test_vectors_where_noise_begins_are_not_tried():
    """A gap of a tenth only, but the next eigenvalue is where those of a random graph begin."""
    data = datasets.make_block_model(1500, 3, mean_degree=16, mixing=0.5, random_state=0)
    edge = bulk_edge([data.graph])
    result = fit(data.graph, n_components=3, n_clusters=3)
    assert result.treatment.candidates == ()
    assert "random graph begin" in result.treatment.reason
    decision = Regularization(0.0, "not needed", 0.0)
    last = 0.85 * edge
    assert reason_beyond_doubt(decision, last, (BULK_SHARE + 0.01) * edge, 3, data.graph) != ""
    assert reason_beyond_doubt(decision, last, (BULK_SHARE - 0.01) * edge, 3, data.graph) == ""
    localized = Regularization(0.0, "not needed", 0.4)
    assert reason_beyond_doubt(localized, last, edge, 3, data.graph) == ""
    # of a regularised graph noise begins later
    regularised = Regularization(TAU, "localised vectors", 0.8)
    assert reason_beyond_doubt(regularised, last, (BULK_SHARE + 0.01) * edge, 3, data.graph) == ""
    assert reason_beyond_doubt(regularised, last, bulk_edge([data.graph], tau=TAU), 3, data.graph) != ""


def test_clusters_begin_with_the_partition_that_was_compared(doubtful, monkeypatch):
    starts = []

    def seen(*args, start, assign=run_module.assign, **params):
        starts.append(start)
        return assign(*args, start=start, **params)

    monkeypatch.setattr(run_module, "assign", seen)
    result = fit(doubtful)
    assert metrics.nmi(starts[0], result.labels) > 0.95
    assert fit(doubtful, regularization=None).start_labels is None
    assert starts[1] is None
    assert result.start_labels is None  # they have served


def test_rough_labels_begin_with_similar_ones():
    rng = np.random.default_rng(0)
    truth = np.repeat(range(8), 40)
    rows = np.eye(8)[truth] + rng.normal(0, 0.05, (320, 8))
    found = rough_labels(rows, 8, 2, np.random.default_rng(0), similar=truth)
    assert metrics.nmi(truth, found) == pytest.approx(1)
    # an empty cluster of similar labels is no start
    assert metrics.nmi(truth, rough_labels(rows, 8, 2, np.random.default_rng(0), similar=truth % 7)) > 0.9


@pytest.mark.parametrize("n_nodes", [40, 300])
@pytest.mark.parametrize("kind", ["complete", "star", "bipartite"])
def test_more_clusters_than_distinct_rows(kind, n_nodes):
    """All vectors but a few belong to one eigenvalue: rows are alike, and labels come all the same."""
    matrix = np.zeros((n_nodes, n_nodes))
    if kind == "complete":
        matrix[:] = 1
    if kind == "star":
        matrix[0] = 1
    if kind == "bipartite":
        matrix[: n_nodes // 2, n_nodes // 2 :] = 1
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    result = fit(Graph.from_matrix(sp.csr_array(matrix)))
    assert set(result.labels) <= set(range(K))
    assert result.treatment is not None


def test_more_clusters_than_the_evidence_supports_are_said_and_not_refused():
    data = datasets.make_block_model(800, 3, mean_degree=20, mixing=0.1, random_state=0)
    settings = replace(SETTINGS, n_components=12, n_clusters=12)
    with pytest.warns(GraphWarning, match="12 clusters were asked for.*speak clearly for 3"):
        result = cluster(data.graph, settings)
    assert len(np.unique(result.labels)) == 12
    assert result.cluster_verdict.verdict == "weak"
    assert "try another number of them" in result.cluster_verdict.sentence


@pytest.mark.parametrize("params", [{}, {"regularization": None}, {"laplacian": "symmetric"}])
def test_as_many_clusters_as_there_are_need_no_word(params):
    data = datasets.make_block_model(800, 12, mean_degree=20, mixing=0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        cluster(data.graph, replace(SETTINGS, n_components=12, n_clusters=12, **params))


def test_fewer_clusters_than_asked_for_are_said():
    """Three cliques that hardly hang together: their rows in three vectors are three points."""
    blocks = sp.block_diag([np.ones((20, 20)) - np.eye(20)] * 3).tolil()
    for end, other in ((0, 21), (20, 41), (40, 1)):
        blocks[end, other] = blocks[other, end] = 1e-9
    with pytest.warns(GraphWarning, match="8 clusters were asked for and [3-7] found"):
        cluster(Graph.from_matrix(blocks.tocsr()), replace(SETTINGS, n_components=3, n_clusters=8))


def test_a_partition_that_cuts_no_edge_is_compared():
    """Two components of points, each a cluster by itself: no edge joins the clusters of the first."""
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal(size=(90, 2)), rng.normal(size=(300, 2)) + 100])
    result = fit(knn_graph(points, 8), n_components=2, n_clusters=2)
    assert len(np.unique(result.labels)) == 2
    assert all(np.isfinite(each.criterion) for each in result.treatment.candidates)
