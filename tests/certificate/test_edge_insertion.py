"""The edge insertion bound: never above the eigenvalue that it bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from spectrograd import Graph, datasets
from spectrograd.certificate import exact_certificate
from spectrograd.certificate.certificate import MAX_MISS_ODDS
from spectrograd.certificate.edge_insertion import PencilUpdate
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.edge_changes import EdgeChanges, changed_graph
from spectrograd.pipeline.update import bound_after_insertion

K = 3


def eigenvalues(graph, kind, tau):
    operator = regularized_laplacian(graph, kind, tau)
    metric = np.ones(graph.n_nodes) if operator.metric is None else operator.metric
    return la.eigh(operator.to_dense(), np.diag(metric), eigvals_only=True)


def all_known(graph, kind, tau):
    """The certificate of somebody who knows all eigenvalues."""
    values = eigenvalues(graph, kind, tau)
    known = {"gap": values[K] - values[K - 1], "complete_below": values[K], "missed_probability": 1e-4}
    return replace(exact_certificate(K, "dense"), eigenvalues=values[:K], **known)


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
        found = bound_after_insertion(certificate, graph, after, changes, (kind, tau))
        if found is not None:
            told += 1
            assert found.complete_below < min(
                eigenvalues(after, kind, tau)[K] + 1e-9, certificate.complete_below
            )
            assert (
                found.odds_below(found.complete_below - 1e-9) == MAX_MISS_ODDS
            )  # at which it was read off, not 1e-4
            assert found.odds_below(found.complete_below) == 1.0
    assert told > 0 or (tau and n_new)


def test_a_cluster_that_the_new_edges_make_is_not_overlooked():
    data = datasets.make_block_model(400, K, mean_degree=20, mixing=0.1, random_state=0)
    certificate = embed(data.graph, Settings(n_components=K, solver="eigen", seed=0)).certificate
    some = np.flatnonzero(data.labels == 0)[:30]
    pairs = np.array([(a, b) for a in some for b in some if a < b])
    changes = EdgeChanges(Graph.from_edges(*pairs.T, np.full(len(pairs), 8.0)))
    after = changed_graph(data.graph, changes)
    assert eigenvalues(after, "random_walk", 0.0)[K] < certificate.complete_below  # there is one more now
    found = bound_after_insertion(certificate, data.graph, after, changes, ("random_walk", 0.0))
    assert found is None or found.complete_below < eigenvalues(after, "random_walk", 0.0)[K]


def changed_at_random(draw, graph, n_new):
    """Some edges gone, some set to other weights, some new, some to new nodes; as the changes of a call."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = graph.n_nodes
    entries = graph.matrix.tocoo()
    once = np.flatnonzero(entries.row < entries.col)
    gone = rng.choice(once, draw(st.integers(0, 4)), replace=False)
    kept = np.setdiff1d(once, gone)
    heads, tails = (np.asarray(of) for of in (entries.row, entries.col))
    touched = rng.choice(kept, draw(st.integers(0, 4)), replace=False)
    new = np.repeat(np.arange(n, n + n_new), 5)
    fresh = rng.integers(n, size=(2, draw(st.integers(0, 4))))
    ends = np.concatenate([[heads[touched], tails[touched]], fresh, [new, rng.integers(n, size=len(new))]], 1)
    ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    edges = removed = None
    if ends.shape[1]:
        edges = Graph.from_edges(*ends, 10 ** rng.uniform(-2, 0.5, ends.shape[1]))
    if len(gone):
        removed = Graph.from_edges(heads[gone], tails[gone], n_nodes=n)
    if edges is None and removed is None:
        return None
    return EdgeChanges(edges, removed, mode=draw(st.sampled_from(["add", "set"])))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_the_bound_holds_whatever_edges_come_and_go(data):
    """Against all eigenvalues: new nodes, regularisation, both metrics, edges gone, set and new."""
    kind = data.draw(st.sampled_from(["random_walk", "symmetric", "unnormalized"]))
    tau, n_new = data.draw(st.sampled_from([(0.0, 0), (0.3, 0), (1.0, 0), (0.0, 2)]))
    seed = data.draw(st.integers(0, 5))
    graph = datasets.make_block_model(90, K, mean_degree=14, mixing=0.1, random_state=seed).graph
    changes = changed_at_random(data.draw, graph, n_new)
    if changes is None:
        return
    certificate = all_known(graph, kind, tau)
    after = changed_graph(graph, changes)
    assume(not len(after.isolated))
    found = bound_after_insertion(certificate, graph, after, changes, (kind, tau))
    event(f"carried: {found is not None}")
    if found is not None:
        assert certificate.eigenvalues[-1] < found.complete_below < certificate.complete_below
        assert found.complete_below < eigenvalues(after, kind, tau)[K] + 1e-9


@pytest.mark.parametrize("kind", ["random_walk", "unnormalized"])
@pytest.mark.parametrize("mode", ["removed", "set"])
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_edges_that_go_leave_evidence(kind, mode, tau):
    data = datasets.make_block_model(400, K, mean_degree=30, mixing=0.1, random_state=0)
    certificate = all_known(data.graph, kind, tau)
    entries = data.graph.matrix.tocoo()
    gone = Graph.from_edges(entries.row[:1], entries.col[:1], [0.5], n_nodes=400)
    changes = EdgeChanges(removed=gone) if mode == "removed" else EdgeChanges(gone, mode="set")
    after = changed_graph(data.graph, changes)
    found = bound_after_insertion(certificate, data.graph, after, changes, (kind, tau))
    assert found is not None
    assert certificate.eigenvalues[-1] < found.complete_below < eigenvalues(after, kind, tau)[K]


def test_the_inequality_for_edges_that_go():
    """``(complete_below - tau) d >= (2 - tau) r``, to the last thousandth."""
    degrees, lost = np.array([10.0, 20.0, 8.0, 9.0]), np.array([1.0, 0.5, 0.0, 0.0])
    growth = PencilUpdate(degrees, -lost, -lost, sp.csr_array((4, 4)), lost)
    complete_below, top = 0.6, 0.1
    best = min((complete_below * d - 2 * r) / (d - r) for d, r in zip(degrees, lost, strict=True))
    assert best - 2e-3 < growth.bound_after(complete_below, top) <= best


def test_little_is_used_up_by_a_single_edge():
    """One edge of weight one at nodes of degree 40: a fortieth of what there is, not a tenth of the way."""
    edges = Graph.from_edges([0], [1], n_nodes=3).matrix
    more = np.array([1.0, 1.0, 0.0])
    growth = PencilUpdate(np.full(3, 40.0), more, more, edges)
    complete_below, top = 0.54, 0.1
    best = complete_below * 40 / 41  # (1 - tau) + 40 (complete_below - tau) >= 1
    assert best - 2e-3 < growth.bound_after(complete_below, top) <= best


def test_no_room_is_no_evidence():
    edges = Graph.from_edges([0, 1], [1, 2]).matrix
    growth = PencilUpdate(np.ones(3), np.zeros(3), np.zeros(3), edges)
    assert growth.bound_after(0.2, 0.3) is None  # nothing was sure above the last eigenvalue
    assert growth.bound_after(0.5, 0.3) is None  # the edges weigh more than there is room for
