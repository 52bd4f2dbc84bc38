"""The Dask engine on real worker processes over TCP: the contract of engines, and results as on ``local``."""

from __future__ import annotations

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

import test_engines as contract  # noqa: E402
from refusing import cut  # noqa: E402

from spectrograd import MultilayerGraph, datasets, metrics  # noqa: E402
from spectrograd.engines import make_engine  # noqa: E402
from spectrograd.engines.cluster import placed_graph as cutting  # noqa: E402
from spectrograd.engines.cluster.connect import EngineError  # noqa: E402
from spectrograd.engines.cluster.owners import reassigned  # noqa: E402
from spectrograd.engines.dask_engine import DaskEngine  # noqa: E402
from spectrograd.graph import Graph  # noqa: E402
from spectrograd.operators.laplacian import laplacian  # noqa: E402
from spectrograd.operators.protocol import OfferError  # noqa: E402
from spectrograd.pipeline import Settings, cluster, embed  # noqa: E402
from spectrograd.solvers import Problem, make_solver, solve  # noqa: E402

graphs = contract.graphs


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture
def engine(client):
    return make_engine(client)


# --- the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize(
    ("kind", "where"), [("random_walk", "whole"), ("symmetric", "seven"), ("unnormalized", "stream")]
)
def test_products(engine, graphs, kind, where, tau):
    contract.test_products(engine, graphs, kind, where, tau)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_recurrence_and_residuals(engine, graphs, dtype):
    contract.test_a_recurrence_and_residuals(engine, graphs, dtype)


def test_the_other_verbs(engine, graphs):
    contract.test_algebra_and_rows(engine)
    contract.test_statistics(engine, True)
    contract.test_nearest(engine)
    contract.test_talls_that_share_a_sweep_are_of_one_type(engine, graphs)
    contract.test_localised_vectors_are_told_on_every_engine(engine, graphs)
    contract.test_labels_on_every_engine(engine, 1.0)
    drawn = engine.rows(engine.random(9000, 2, 5, np.float32))
    np.testing.assert_array_equal(drawn, contract.gaussian_rows(0, 9000, 2, 5, np.float32))


@pytest.mark.parametrize("name", contract.ANYWHERE)
def test_a_solver_for_every_engine(engine, graphs, name):
    contract.test_a_solver_for_every_engine(engine, graphs, name, "whole", "symmetric")


# --- the same results as on local -----------------------------------------------------------------------


def sine(found, expected):
    """Of the largest angle between two subspaces, both orthonormal after this."""
    Q, P = (np.linalg.qr(vectors)[0] for vectors in (found, expected))
    return np.linalg.norm(Q - P @ (P.T @ Q), 2)


def three_layers():
    layers = [datasets.make_block_model(1500, 3, random_state=seed).graph for seed in (0, 1, 2)]
    return MultilayerGraph(tuple(layers), ("a", "b", "c"))


def neighbours():
    from spectrograd.points.neighbors import knn_graph

    rng = np.random.default_rng(0)
    points = np.repeat(3.5 * np.eye(4, 8), 300, axis=0) + rng.standard_normal((1200, 8))
    return knn_graph(points, 15)


def blocks():
    return datasets.make_block_model(10_000, 4, random_state=0).graph  # large enough for compiled kernels


CASES = {"blocks": blocks, "neighbours": neighbours, "layers": three_layers}


@pytest.mark.parametrize("case", CASES)
def test_the_same_subspace_and_labels_as_local(client, case):
    graph = CASES[case]()
    k = 3 if case == "layers" else 4
    how = {"n_components": k, "n_clusters": k, "tol": 1e-8, "seed": 0, "solver": "chebyshev"}
    far, near = (cluster(graph, Settings(**how, engine=make_engine(name))) for name in (client, "local"))
    assert sine(far.vectors, near.vectors) < 1e-3
    assert metrics.score(near.labels, far.labels)["ari"] >= 0.99
    assert far.certificate.converged
    assert far.passes > 0  # there was something to solve
