"""The certificate of the first k columns of a wider solve speaks of those k, in memory and over a store."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la
from sklearn.datasets import make_circles

from spectrograd import Graph, SpectralClustering, datasets, metrics, open_store, write_graph
from spectrograd.certificate.certificate import GOOD_ANGLE
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import Settings
from spectrograd.pipeline.solve import certify_first_columns, embed

N_WIDE = 12


def nested_blocks(n=2_100):
    """Three groups of seven blocks each: jumps after 3 and, smaller, after 21 eigenvalues; the groups."""
    rng = np.random.default_rng(0)
    i = rng.integers(n, size=n * 33 // 2)
    kind = rng.random(len(i))
    block = i % 21
    same = block + 21 * rng.integers(100, size=len(i))
    near = block // 7 * 7 + rng.integers(7, size=len(i)) + 21 * rng.integers(100, size=len(i))
    j = np.where(kind < 24 / 33, same, np.where(kind < 32 / 33, near, rng.integers(n, size=len(i))))
    other = i != j
    return Graph.from_edges(i[other], j[other], n_nodes=n), np.arange(n) % 21 // 7


@pytest.fixture(params=["memory", "store"])
def nested(request, tmp_path):
    graph, groups = nested_blocks()
    if request.param == "store":
        write_graph(tmp_path / "graph.store", graph)
        graph = open_store(tmp_path / "graph.store")
    return graph, groups


@pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")
def test_as_many_clusters_as_were_chosen(nested):
    graph, groups = nested
    model = SpectralClustering("auto", random_state=0, regularization=None).fit(graph)
    values = model.eigengap_.eigenvalues
    assert model.n_clusters_ == model.eigengap_.n_clusters == 3
    assert model.embedding_.shape == (graph.n_nodes, 3)
    assert metrics.score(groups, model.labels_)["ari"] > 0.99
    assert model.converged_
    assert model.certificate_.gap == pytest.approx(values[3] - values[2], rel=1e-3)
    assert values[2] < model.certificate_.complete_below < values[3]


def test_narrowing_reads_a_store_no_more(tmp_path):
    """A probe of its own would take as many passes as the solve."""
    graph, _ = nested_blocks()
    write_graph(tmp_path / "graph.store", graph)
    graph = open_store(tmp_path / "graph.store")
    operator = laplacian(graph)
    settings = Settings(n_components=21, seed=0)
    wide = embed(operator, 21, settings)
    assert wide.certificate.converged
    before = graph.passes
    found = certify_first_columns(operator, wide, 3, settings)
    assert graph.passes == before
    assert found.certificate.converged
    assert found.embedding.vectors.shape == (graph.n_nodes, 3)


def test_a_model_of_circles_does_not_ask_for_a_refit_at_once():
    points, _ = make_circles(3_000, noise=0.05, factor=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SpectralClustering("auto", random_state=0).fit(points[:2_900])
        values = model.eigengap_.eigenvalues
        assert model.n_clusters_ == 2
        assert model.certificate_.gap == pytest.approx(values[2] - values[1], rel=1e-3)
        assert (values < model.certificate_.complete_below).sum() == 2
        model.partial_fit(points[2_900:])
    assert not model.refit_advised_, model.refit_reason_


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev", "shift-invert", "eigen", "lobpcg"])
@pytest.mark.parametrize("believed", [True, False])
def test_never_wrong_of_the_first_k(solver, believed):
    """Whatever the wide solve knew, and where its own certificate failed: judged by all eigenvalues."""
    for seed in range(3):
        graph = datasets.make_block_model(700, 4, mean_degree=12, mixing=0.2, random_state=seed).graph
        operator = laplacian(graph, "symmetric")
        truth, vectors = la.eigh(operator.to_dense())
        settings = Settings(n_components=N_WIDE, seed=seed, solver=solver)
        wide = embed(operator, N_WIDE, settings)
        if not believed:
            wide = replace(wide, certificate=replace(wide.certificate, complete_below=-np.inf))
        for k in (2, 4, 7, N_WIDE - 1):
            found = certify_first_columns(operator, wide, k, settings)
            certificate = found.certificate
            assert certificate.gap < truth[k] - truth[k - 1] + 1e-3
            assert (truth < certificate.complete_below).sum() <= k
            Q = np.linalg.qr(found.embedding.vectors)[0]
            V = vectors[:, :k]
            sine = float(np.linalg.norm(V - Q @ (Q.T @ V), 2))
            assert not certificate.converged or sine <= min(certificate.angle_bound, GOOD_ANGLE) + 1e-7
        assert certify_first_columns(operator, wide, 4, settings).certificate.converged
