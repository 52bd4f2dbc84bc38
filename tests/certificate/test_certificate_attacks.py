"""What was once certified and wrong: light edges of a hub, no gap, excluded nodes, a known probe."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from spectrograd import SpectralClustering, SpectralEmbedding
from spectrograd.certificate.certificate import probe_seed
from spectrograd.certificate.lanczos_probe import Guards, LanczosProbeEvidence, Recurrence, run_lanczos_probe
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.io import write_graph
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.laplacian import laplacian, masked_laplacian, regularized_laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.store import open_store

KINDS = ["random_walk", "symmetric", "unnormalized"]


def light_hub(n_light, weight=2.9e-8):
    """Two cliques and a hub with one heavy edge and many light ones, tied by threads of 1e-7."""
    W = np.zeros((26 + n_light, 26 + n_light))
    W[:12, :12] = W[12:24, 12:24] = 1 - np.eye(12)
    W[24, 25], W[24, 26:] = 1, weight
    W[0, 12] = W[12, 24] = 1e-7
    return np.maximum(W, W.T)


def judge(model, W, tau=0.0):
    """Whether it converged; the certificate is held against the eigenvectors of the regularised matrix."""
    W = W + tau * W.sum(axis=1).mean() / len(W)
    root = np.sqrt(W.sum(axis=1))
    values, T = np.linalg.eigh(np.eye(len(W)) - W / np.outer(root, root))
    vectors = model.embedding_
    k, certificate = vectors.shape[1], model.certificate_
    assert (values < certificate.complete_below).sum() <= k
    Q = np.linalg.qr(vectors * root[:, None])[0]
    first = T[:, :k]
    sine = np.linalg.norm(Q - first @ (first.T @ Q), 2)
    assert not model.converged_ or sine <= certificate.angle_bound + 1e-6
    return model.converged_


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["auto", "chebyshev", "lanczos"])
@pytest.mark.parametrize("n_light", [300, 1000])
def test_light_edges_of_a_hub_are_not_lost(solver, n_light):
    """In float32 they are: their component seems to lie far away, and nobody missed it."""
    W = light_hub(n_light)
    for seed in range(6):
        model = SpectralClustering(2, affinity="precomputed", random_state=seed, solver=solver).fit(W)
        judge(model, W, model.regularization_.tau)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["auto", "chebyshev", "lanczos"])
def test_light_edges_of_a_longer_hub_are_not_lost(solver):
    W = light_hub(2974)
    model = SpectralClustering(2, affinity="precomputed", random_state=0, solver=solver, regularization=None)
    judge(model.fit(W), W)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["auto", "chebyshev", "lanczos"])
def test_light_edges_of_a_hub_on_disk(solver, tmp_path):
    W = light_hub(1000).astype(np.float32).astype(np.float64)
    write_graph(tmp_path / "g.store", Graph.from_matrix(W))
    for seed in range(2):
        model = SpectralClustering(2, random_state=seed, solver=solver, regularization=None)
        judge(model.fit(open_store(tmp_path / "g.store")), W)


def test_guards_are_believed_as_measured():
    """A guard vector of which the solver says that it is far away and exact, and that is neither."""
    graph = make_block_model(600, 3, mean_degree=14, random_state=0).graph
    operator = laplacian(graph, "symmetric")
    values, T = np.linalg.eigh(operator.to_dense())
    found = np.ascontiguousarray(T[:, [0, 2]])
    ritz = Ritz(values[[0, 2]], found, operator @ found)
    missed = T[:, 1:2].astype(np.float32)
    lie = Guards(missed, np.array([0.9]), np.array([0.0]))
    seen = run_lanczos_probe(LocalEngine(), operator, ritz, np.random.default_rng(0), beyond=0.9, guards=lie)
    assert seen.lowest <= values[1] + 1e-6
    assert seen.odds_below(values[2] + 1e-3) == 1


def test_rounding_weakens_the_evidence():
    recurrence = Recurrence((1.0,) * 8, (0.3,) * 8)
    odds = [
        LanczosProbeEvidence(0.5, 8, None, recurrence, 1.0, 0.5, 0.05, noise).odds_below(0.3)
        for noise in (0, 1e-2, 0.3)
    ]
    assert odds[0] < odds[1] < odds[2] == 1


def test_attempts_share_the_level():
    recurrence = Recurrence((1.0,) * 8, (0.3,) * 8)
    one, four = (
        LanczosProbeEvidence(0.5, 8, None, recurrence, 1.0, looks=looks).odds_below(0.3)
        for looks in (1.0, 4.0)
    )
    assert four == pytest.approx(4 * one)


# --- no gap, no convergence ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["lanczos", "sgd", "chebyshev", "eigen"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_number_as_tolerance_does_not_certify_without_a_gap(solver, stored, tmp_path):
    """K cuts through an eigenvalue that comes eight times."""
    if stored and solver == "eigen":
        pytest.skip("needs all of the matrix")
    i, W = np.arange(256), np.zeros((256, 256))
    for b in range(8):
        W[i, i ^ (1 << b)] = 1
    graph = Graph.from_matrix(W)
    if stored:
        write_graph(tmp_path / "g.store", graph)
        graph = open_store(tmp_path / "g.store")
    model = SpectralEmbedding(
        7, drop_first=False, solver=solver, tol=1e-5, random_state=0, regularization=None
    ).fit(graph)
    assert not model.converged_
    assert model.certificate_.angle_bound == np.inf
    assert model.certificate_.summary()["angle_bound"] == 1
    assert "sine" not in model.certificate_.sentence


# --- the null vector ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.3])
@pytest.mark.parametrize("solver", ["lanczos", "chebyshev", "power"])
def test_the_first_vector_of_a_laplacian_is_exact(kind, tau, solver):
    graph = make_block_model(900, 3, mean_degree=16, random_state=1).graph
    operator = regularized_laplacian(graph, kind, tau)
    found = embed(operator, 3, Settings(solver=solver, seed=0)).embedding
    first = found.vectors[:, 0]
    shape = operator.null_vector
    np.testing.assert_allclose(first / first[0], shape / shape[0], rtol=1e-12)
    assert found.eigenvalues[0] == 0
    inside = found.vectors[:, 1:].T @ (first if operator.metric is None else operator.metric * first)
    assert np.abs(inside).max() < 1e-10 * np.linalg.norm(first)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_vector_over_a_disk_is_exact_to_its_precision(kind, tmp_path):
    graph = make_block_model(3000, 3, mean_degree=16, random_state=1).graph
    write_graph(tmp_path / "g.store", graph)
    stored = open_store(tmp_path / "g.store")
    model = SpectralEmbedding(3, drop_first=False, laplacian=kind, regularization=None, random_state=0)
    first = model.fit(stored).embedding_[:, 0]
    shape = np.sqrt(graph.degrees) if kind == "symmetric" else np.ones(3000)
    assert model.converged_
    np.testing.assert_allclose(first / first[0], shape / shape[0], rtol=1e-6)


def test_several_null_vectors_are_all_there():
    """Of a graph in two components the known vector is one of two, and both are found."""
    piece = reference.random_graph(60, np.random.default_rng(0)).matrix.toarray()
    W = np.block([[piece, np.zeros_like(piece)], [np.zeros_like(piece), piece]])
    found = embed(laplacian(Graph.from_matrix(W)), 2, Settings(solver="eigen", seed=0)).embedding
    Q, halves = np.linalg.qr(found.vectors)[0], np.repeat(np.eye(2), 60, axis=0) / np.sqrt(60)
    assert np.linalg.norm(Q - halves @ (halves.T @ Q)) < 1e-10


# --- excluded nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 4, 5])
def test_excluded_nodes_do_not_enter_the_result(kind, k, tmp_path):
    path = Graph.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5], n_nodes=7)  # node 6 is isolated
    write_graph(tmp_path / "g.store", path)
    settings = {"drop_first": False, "random_state": 0, "regularization": None, "laplacian": kind}
    with pytest.warns(UserWarning, match="not connected"):
        model = SpectralEmbedding(k, **settings).fit(open_store(tmp_path / "g.store"))
    rest = laplacian(Graph.from_edges([0, 1, 2, 3, 4], [1, 2, 3, 4, 5]), kind)
    np.testing.assert_allclose(model.eigenvalues_, reference.smallest(rest, k)[0], atol=1e-5)
    assert model.converged_


@pytest.mark.parametrize("kind", KINDS)
def test_excluded_rows_lie_at_the_upper_end(kind):
    graph = Graph.from_edges([0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 4], [1, 1, 1, 5, 7, 3], n_nodes=8)
    operator = masked_laplacian(graph, kind, 0.0, np.array([4, 5, 6, 7]))
    values = np.linalg.eigvalsh(operator.standard_form().to_dense())
    np.testing.assert_allclose(values[-4:], operator.upper, rtol=1e-5)
    assert values[-1] <= operator.upper * (1 + 1e-12)


def test_weight_on_excluded_rows_is_objected_to():
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], n_nodes=7)
    operator = masked_laplacian(graph, "symmetric", 0.0, np.array([5, 6]))
    certificate = embed(operator, 6, Settings(solver="eigen", seed=0)).certificate
    assert not certificate.converged
    assert "excluded" in certificate.sentence


# --- the seed of the probe ----------------------------------------------------------------------------


def test_the_probe_depends_on_the_graph_and_on_what_was_found():
    graph = reference.random_graph(80, np.random.default_rng(0))
    operator, values = laplacian(graph), np.array([0.0, 0.2, 0.4])
    other = laplacian(reference.random_graph(80, np.random.default_rng(1)))
    seeds = {
        probe_seed(1, operator, values),
        probe_seed(2, operator, values),
        probe_seed(1, other, values),
        probe_seed(1, operator, values + 0.01),
        probe_seed(1, operator),
    }
    assert len(seeds) == 5


def test_the_probe_does_not_depend_on_last_digits_or_on_the_scale():
    graph = reference.random_graph(80, np.random.default_rng(0))
    operator, values = laplacian(graph), np.array([0.0, 0.25, 0.5, 1.0])
    scaled = laplacian(Graph.from_matrix(1024 * graph.matrix))
    assert probe_seed(1, scaled, values) == probe_seed(1, operator, values)
    for noise in (1e-15, -1e-15, 1e-9, -1e-9):
        assert probe_seed(1, operator, values + noise) == probe_seed(1, operator, values)
