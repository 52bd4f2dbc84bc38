"""Evidence that outlives added edges: never above the eigenvalue that it speaks of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la

from spectrograd import Graph, datasets
from spectrograd.certificate import exact
from spectrograd.certificate.carried import Growth
from spectrograd.operators.regularized import regularized
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.carrying import carried
from spectrograd.pipeline.graph_changes import EdgeChanges, changed_graph

K = 3


def eigenvalues(graph, kind, tau):
    operator = regularized(graph, kind, tau)
    metric = np.ones(graph.n_nodes) if operator.metric is None else operator.metric
    return la.eigh(operator.to_dense(), np.diag(metric), eigvals_only=True)


def all_known(graph, kind, tau):
    """The certificate of somebody who knows all eigenvalues."""
    values = eigenvalues(graph, kind, tau)
    known = {"gap": values[K] - values[K - 1], "sure": values[K], "missed_probability": 1e-4}
    return replace(exact(K, "dense"), eigenvalues=values[:K], **known)


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize(("tau", "n_new"), [(0.0, 0), (0.3, 0), (0.0, 2)])
def test_the_bound_holds_whatever_edges_come(kind, tau, n_new):
    told = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graph = datasets.make_block_model(90, K, mean_degree=9, mixing=0.1, random_state=seed).graph
        certificate = all_known(graph, kind, tau)
        ends = rng.integers(90, size=(2, int(rng.integers(1, 6))))
        new = np.repeat(np.arange(90, 90 + n_new), 8)
        ends = np.concatenate([ends, [new, rng.integers(90, size=len(new))]], axis=1)
        ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
        changes = EdgeChanges(Graph.from_edges(*ends, rng.choice([0.3, 1.0, 2.0], ends.shape[1])))
        after = changed_graph(graph, changes)
        found = carried(certificate, graph, after, changes, (kind, tau))
        if found is not None:
            told += 1
            assert found.sure < min(eigenvalues(after, kind, tau)[K] + 1e-9, certificate.sure)
            assert found.odds_below(found.sure - 1e-9) == 1e-4
            assert found.odds_below(found.sure) == 1.0
    assert told > 0 or (tau and n_new)


def test_a_cluster_that_the_new_edges_make_is_not_overlooked():
    data = datasets.make_block_model(400, K, mean_degree=20, mixing=0.1, random_state=0)
    certificate = embed(data.graph, Settings(n_components=K, seed=0)).certificate
    some = np.flatnonzero(data.labels == 0)[:30]
    pairs = np.array([(a, b) for a in some for b in some if a < b])
    changes = EdgeChanges(Graph.from_edges(*pairs.T, np.full(len(pairs), 8.0)))
    after = changed_graph(data.graph, changes)
    assert eigenvalues(after, "random_walk", 0.0)[K] < certificate.sure  # there is one more now
    found = carried(certificate, data.graph, after, changes, ("random_walk", 0.0))
    assert found is None or found.sure < eigenvalues(after, "random_walk", 0.0)[K]


def test_nothing_is_said_of_edges_that_go():
    data = datasets.make_block_model(400, K, mean_degree=20, random_state=0)
    result = embed(data.graph, Settings(n_components=K, seed=0))
    entries = data.graph.matrix.tocoo()
    gone = Graph.from_edges(entries.row[:1], entries.col[:1], n_nodes=400)
    for changes in (EdgeChanges(removed=gone), EdgeChanges(gone, mode="set")):
        after = changed_graph(data.graph, changes)
        assert carried(result.certificate, data.graph, after, changes, ("random_walk", 0.0)) is None


def test_no_room_is_no_evidence():
    edges = Graph.from_edges([0, 1], [1, 2]).matrix
    growth = Growth(np.ones(3), np.zeros(3), np.zeros(3), edges)
    assert growth.carried(0.2, 0.3) is None  # nothing was sure above the last eigenvalue
    assert growth.carried(0.5, 0.3) is None  # the edges weigh more than there is room for
