"""Hubs of unnormalised Laplacians over a store: filters end where the spectrum does, and say so if not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la

from spectrograd import Graph, datasets, open_store, write_graph
from spectrograd.linalg.chebyshev_filter import Bulk, estimate_bulk, has_hubs
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.plan import plan
from spectrograd.solvers import Problem, chebyshev_few_passes, lanczos_few_passes


def star(n):
    return Graph.from_edges(np.zeros(n - 1, int), np.arange(1, n))


def with_hub(n=3_000, n_rays=600):
    """Four blocks, and one node that is linked to a fifth of all."""
    graph = datasets.make_block_model(n, 4, mean_degree=20, mixing=0.2, random_state=0).graph
    entries = graph.matrix.tocoo()
    once = entries.row < entries.col
    ends = np.random.default_rng(0).choice(n - 1, n_rays, replace=False)
    heads = np.concatenate([entries.row[once], np.full(n_rays, n - 1)])
    return Graph.from_edges(heads, np.concatenate([entries.col[once], ends]), n_nodes=n)


@pytest.fixture(scope="module")
def hub_spectrum():
    """All eigenvalues of the graph with a hub, and its first four vectors: dense, and once."""
    dense = laplacian(with_hub(), "unnormalized").to_dense()
    return la.eigvalsh(dense), la.eigh(dense, subset_by_index=[0, 3])[1]


def on_disk(path, graph):
    write_graph(path / "graph.store", graph)
    return open_store(path / "graph.store")


def settings(solver, k, **more):
    params = {"polish": True} if solver == "sgd" else {}
    fixed = {"laplacian": "unnormalized", "regularization": None, "seed": 0}
    return Settings(n_components=k, solver=solver, params=params, **fixed, **more)


@pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")
@pytest.mark.parametrize("solver", ["chebyshev", "sgd", "lanczos", "auto"])
@pytest.mark.parametrize("n", [60, 120, 3_000])
def test_a_star_ends_in_an_honest_no(tmp_path, solver, n):
    """Its second eigenvalue is there n - 2 times: no two columns can be certified."""
    result = embed(on_disk(tmp_path, star(n)), settings(solver, 2))
    assert np.isfinite(result.vectors).all()
    assert not result.converged
    assert result.certificate.max_residual < n


@pytest.mark.parametrize("solver", ["sgd", "lanczos", "auto"])
def test_blocks_beside_a_hub_are_found(tmp_path, hub_spectrum, solver):
    graph = with_hub()
    truth, V = hub_spectrum
    disk = on_disk(tmp_path, graph)
    result = embed(disk, settings(solver, 4))
    assert result.converged, result.certificate.sentence
    np.testing.assert_allclose(result.eigenvalues, truth[:4], atol=0.02)
    Q = np.linalg.qr(np.asarray(result.vectors, float))[0]
    assert np.linalg.norm(V - Q @ (Q.T @ V), 2) <= result.certificate.angle_bound + 1e-6
    if solver == "auto":
        assert disk.passes < 80  # half of what filters take before they give in, and Krylov after them
        assert len(result.attempts) == 1


def test_filters_go_first_where_no_basis_fits(tmp_path):
    problem = Problem(laplacian(on_disk(tmp_path, with_hub()), "unnormalized"), 4)
    assert plan(problem)[0].name == "lanczos"
    assert plan(problem, memory_limit=1)[0].name == "chebyshev"


@pytest.mark.parametrize("seed", range(5))
def test_no_eigenvalue_beyond_the_bound(seed):
    rng = np.random.default_rng(seed)
    for n in (2, 5, 40):
        W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.4) * 10 ** rng.uniform(-3, 3, (n, n)), 1)
        W[0, 1:] += rng.random(n - 1)
        operator = laplacian(Graph.from_matrix(W + W.T), "unnormalized")
        largest = la.eigvalsh(operator.to_dense())[-1]
        degrees = np.sort(operator.graph.degrees)
        assert largest <= operator.upper * (1 + 1e-12)
        assert operator.upper == pytest.approx(degrees[-2:].sum())
    assert laplacian(star(60), "unnormalized").upper == 60  # which is its last eigenvalue


def test_the_bulk_is_that_of_the_other_rows(hub_spectrum):
    operator = laplacian(with_hub(), "unnormalized")
    values = hub_spectrum[0]
    seen = estimate_bulk(operator, float(values.mean()), float(values.std()))
    assert seen.end == operator.upper > values[-1]
    assert values[3] < seen.low < values[len(values) // 10]
    plain = laplacian(datasets.make_block_model(600, 3, mean_degree=20, random_state=0).graph)
    assert not has_hubs(plain)
    assert estimate_bulk(plain, 1.0, 0.2) == Bulk(1.0, 0.2, 1.4)


def too_low(operator, mean, deviation):
    return Bulk(mean, deviation, min(operator.upper, mean + 2 * deviation))


@pytest.mark.parametrize(
    ("solver", "module"), [("chebyshev", chebyshev_few_passes), ("lanczos", lanczos_few_passes)]
)
def test_a_filter_that_ends_too_low_begins_again_and_says_so(tmp_path, monkeypatch, solver, module):
    """Where no hub is known: by a semicircle, half of the spectrum of this graph lies beyond the end."""
    monkeypatch.setattr(module, "estimate_bulk", too_low)
    monkeypatch.setattr(module, "has_hubs", lambda operator: False, raising=False)
    result = embed(on_disk(tmp_path, with_hub()), settings(solver, 4, max_iter=30))
    assert np.isfinite(result.vectors).all()
    told = [event for progress in result.history for event in progress.events]
    assert any("the spectrum goes on beyond" in event for event in told)
