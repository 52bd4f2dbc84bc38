"""Zero silently wrong results: whatever the graph and the solver, a certificate that says yes is right."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import campaign
import campaign_kinds
import campaign_large
import reference
from spectrograd.certificate import Certificate
from spectrograd.datasets import make_block_model, make_gaussian_mixture
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph

FAMILIES = {}
SOLVERS = ("chebyshev", "lanczos", "multilevel", "shift-invert", "lobpcg", "eigen", "power", "sgd")


def family(function):
    FAMILIES[function.__name__] = function
    return function


@family
def block_model(n, rng):
    return make_block_model(n, 4, mean_degree=10, random_state=int(rng.integers(1e6))).graph


@family
def degree_corrected(n, rng):
    seed = int(rng.integers(1e6))
    return make_block_model(n, 3, mean_degree=10, degree_exponent=2.5, random_state=seed).graph


@family
def nearest_neighbours(n, rng):
    points, _ = make_gaussian_mixture(n, 4, random_state=int(rng.integers(1e6)))
    return knn_graph(points, 6)


@family
def random_weights(n, rng):
    return reference.random_graph(n, rng, mean_degree=6)


@family
def grid(n, rng):
    side = int(np.sqrt(n))
    line = sp.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
    return Graph.from_matrix(
        sp.csr_array(sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line))
    )


@family
def ring(n, rng):  # every eigenvalue but the first comes twice
    return Graph.from_edges(np.arange(n), (np.arange(n) + 1) % n)


@family
def copies(n, rng):  # equal components: every eigenvalue comes five times
    piece = reference.random_graph(n // 5, rng).matrix
    return Graph.from_matrix(sp.csr_array(sp.block_diag([piece] * 5)))


@family
def bridge(n, rng):  # two cliques and a long path
    half, path = 20, n - 40
    clique = np.ones((half, half)) - np.eye(half)
    W = sp.lil_array((n, n))
    W[:half, :half], W[n - half :, n - half :] = clique, clique
    for i in range(half - 1, half + path):
        W[i, i + 1] = W[i + 1, i] = 1
    return Graph.from_matrix(sp.csr_array(W))


@family
def bipartite(n, rng):
    return Graph.from_edges(rng.integers(0, n // 2, 5 * n), n // 2 + rng.integers(0, n // 2, 5 * n))


@family
def tree(n, rng):
    child = np.arange(1, n)
    return Graph.from_edges(child, (rng.random(n - 1) * child).astype(int))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(200))
def test_converged_means_right(number):
    rng = np.random.default_rng(number)
    names = list(FAMILIES)
    graph = FAMILIES[names[number % len(names)]](int(rng.integers(80, 300)), rng)
    graph = Graph.from_matrix(graph.matrix[graph.degrees > 0][:, graph.degrees > 0])
    solver = SOLVERS[number // len(names) % len(SOLVERS)]
    operator = laplacian(graph, ("random_walk", "symmetric", "unnormalized")[number % 3])
    if number % 7 == 0 and solver != "multilevel":
        factors = np.linalg.qr(rng.standard_normal((graph.n_nodes, 3)))[0]
        operator = replace(operator, low_rank=LowRank(factors, np.full(3, 0.3)), lower=operator.lower - 0.3)
    k = int(rng.integers(2, 7))
    result = embed(operator, k, Settings(solver=solver, seed=number, time_budget=3))
    certificate = result.certificate
    if not certificate.converged:
        return
    truth = reference.smallest(operator, k)[1]
    sine = reference.largest_sine(result.embedding.vectors, truth, operator.metric)
    assert sine <= certificate.angle_bound + 1e-6
    assert certificate.angle_bound <= 0.03


@pytest.mark.parametrize("tenth", range(30))
def test_ten_cases_of_the_campaign(tenth):
    """Scales from 1e-200 to 1e200, weights that differ by 1e30, warm starts: ``make fuzz`` has more."""
    ends = {number: campaign.judged(number) for number in range(10 * tenth, 10 * tenth + 10)}
    assert not {n: end for n, end in ends.items() if end[0] in (campaign.WRONG, campaign.CRASHED)}


@pytest.mark.parametrize("number", range(1, 25))
def test_a_case_with_long_rows(number):
    """Hubs, stores, numeric tolerances, numbers of clusters found: ``make fuzz`` has more."""
    outcome, sentence = campaign_large.judged(number)
    assert outcome not in (campaign.WRONG, campaign.CRASHED), sentence


@pytest.mark.parametrize("tenth", range(6))
def test_ten_cases_of_hard_kinds(tenth):
    """Equal eigenvalues, threads, signs, edges that come later: ``make fuzz`` has more."""
    ends = {number: campaign_kinds.judged(number) for number in range(10 * tenth, 10 * tenth + 10)}
    assert not {n: end for n, end in ends.items() if end[0] in (campaign.WRONG, campaign.CRASHED)}


def test_hard_kinds_would_be_noticed():
    """Other vectors, or further eigenvalues below, under a certificate that was good."""
    number = next(n for n in range(100) if campaign_kinds.judged(n)[0] == campaign.RIGHT)
    given = campaign_kinds.case(number)
    n, rng = given.W.shape[0], np.random.default_rng(0)
    known = np.linalg.eigvalsh(campaign_kinds.standard(given.W, given.kind)[0])
    zeros = np.zeros(given.k)
    good = Certificate(zeros, zeros, 0.0, 1.0, 0.01, 0.0, 0, "", True)
    for certificate in (good, replace(good, complete_below=float(known[-1]) + 1)):
        model = SimpleNamespace(
            embedding_=rng.standard_normal((n, given.k)),
            eigenvalues_=known[: given.k],
            certificate_=certificate,
            converged_=True,
        )
        assert campaign_kinds.compared(replace(given, change=None), model)[0] == campaign.WRONG


def test_the_campaign_would_notice():
    """A wrong result with a good certificate, and eigenvalues that are not there."""
    number = next(n for n in range(0, 1000, len(campaign.SOLVERS)) if campaign.judged(n)[0] == campaign.RIGHT)
    given = campaign.case(number)
    n = len(given.W)
    vectors = np.random.default_rng(0).standard_normal((n, given.k))
    for judge in (campaign.truth, campaign._exact_truth):
        sine, distances = judge(given, vectors, np.full(given.k, -given.W.max()))
        assert sine > 0.03
        assert (distances >= 0.99 * (given.W.max() if given.kind == "unnormalized" else 0) - 1e-9).all()


def test_most_of_them_do_converge():
    """The test above would pass if nothing ever converged."""
    good = 0
    for number in range(10):
        rng = np.random.default_rng(number)
        operator = laplacian(block_model(200, rng))
        good += embed(operator, 4, Settings(solver=SOLVERS[number % 4], seed=number)).certificate.converged
    assert good == 10


def test_the_wrong_end_of_the_spectrum_is_not_certified():
    """The power method of the paper finds eigenvalues near 2 on a bipartite graph, with small residuals."""
    operator = laplacian(bipartite(200, np.random.default_rng(0)), "symmetric")
    settings = Settings(solver="power", params={"shift": "centre"}, seed=0)
    assert not embed(operator, 3, settings).certificate.converged
