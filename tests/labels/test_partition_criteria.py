"""Criteria of a partition: laws, a twin in plain loops, and input that does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrograd import Graph, datasets
from spectrograd.labels.partition_criteria import (
    cluster_shares,
    edge_information,
    information_within_components,
    partition_criterion,
    volume_entropy,
)

pytestmark = pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")


def random_case(seed: int, n: int = 40, k: int = 4) -> tuple[Graph, np.ndarray]:
    """A weighted graph and labels that have nothing to do with it."""
    rng = np.random.default_rng(seed)
    heads, tails = rng.integers(n, size=(2, 5 * n))
    apart = heads != tails
    graph = Graph.from_edges(heads[apart], tails[apart], rng.uniform(0.5, 2, apart.sum()), n_nodes=n)
    return graph, rng.integers(k, size=n)


def twin_information(graph: Graph, labels: np.ndarray) -> float:
    """The same by loops over the entries."""
    k = labels.max() + 1
    e = np.zeros((k, k))
    matrix = graph.matrix.tocoo()
    for i, j, w in zip(matrix.row, matrix.col, matrix.data, strict=True):
        if labels[i] >= 0 and labels[j] >= 0:
            e[labels[i], labels[j]] += w
    e /= e.sum()
    a = e.sum(axis=0)
    return sum(e[r, s] * np.log(e[r, s] / (a[r] * a[s])) for r in range(k) for s in range(k) if e[r, s] > 0)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=20, deadline=None)
def test_information_is_that_of_its_twin(seed, some_excluded):
    graph, labels = random_case(seed)
    if some_excluded:
        labels[::7] = -1
    shares = cluster_shares(graph, labels)
    twin = twin_information(graph, labels)
    assert edge_information(shares) == pytest.approx(twin, abs=1e-12)
    assert partition_criterion(graph, labels) == pytest.approx(
        twin / volume_entropy(shares) ** 0.5, abs=1e-12
    )


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_laws(seed):
    graph, labels = random_case(seed)
    shares = cluster_shares(graph, labels)
    np.testing.assert_allclose(shares, shares.T, atol=1e-15)
    assert shares.sum() == pytest.approx(1)
    information = edge_information(shares)
    assert -1e-12 <= information <= volume_entropy(shares) + 1e-12
    # Names of clusters and units of weights play no part.
    renamed = np.array([2, 0, 3, 1])[labels]
    heavier = Graph.from_matrix(7.0 * graph.matrix)
    for other in (cluster_shares(graph, renamed), cluster_shares(heavier, labels)):
        assert edge_information(other) == pytest.approx(edge_information(shares), abs=1e-12)
    # Two clusters that are joined tell less.
    joined = cluster_shares(graph, np.minimum(labels, 2))
    assert edge_information(joined) <= information + 1e-12


def test_planted_clusters_win():
    data = datasets.make_block_model(600, 4, random_state=0)
    moved = data.labels.copy()
    moved[::5] = (moved[::5] + 1) % 4
    best, worse = (cluster_shares(data.graph, labels) for labels in (data.labels, moved))
    assert edge_information(best) > edge_information(worse)


def test_one_cluster_that_holds_nearly_everything_loses():
    """Cutting a pair of nodes off costs one edge, fewer than any border between clusters."""
    data = datasets.make_block_model(300, 2, mixing=0.3, random_state=1)
    n = data.graph.n_nodes
    matrix = data.graph.matrix.tocoo()
    graph = Graph.from_edges(np.append(matrix.row, [0, n]), np.append(matrix.col, [n, n + 1]), n_nodes=n + 2)
    planted = np.append(data.labels, [data.labels[0]] * 2)
    lopsided = (np.arange(n + 2) >= n).astype(int)
    assert partition_criterion(graph, planted) > 2 * partition_criterion(graph, lopsided)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_information_within_components_is_the_mean_over_them(seed):
    parts = [random_case(seed + at, n) for at, n in enumerate((30, 20, 12))]
    graph = Graph.from_matrix(sp.block_diag([part.matrix for part, _ in parts], format="csr"))
    labels = np.concatenate([own for _, own in parts])
    components = graph.components
    volumes = np.bincount(components, graph.degrees)
    expected = 0.0
    for c in range(components.max() + 1):
        rows = np.flatnonzero(components == c)
        if len(rows) > 1:
            part = Graph.from_matrix(graph.matrix[rows][:, rows])
            expected += volumes[c] / volumes.sum() * twin_information(part, labels[rows])
    assert information_within_components(graph, labels) == pytest.approx(expected, abs=1e-12)


def test_groupings_of_many_components_are_all_alike():
    """Edges that no grouping of cliques cuts do not tell which grouping is meant; other layers do."""
    cliques = Graph.from_matrix(sp.block_diag([np.ones((20, 20)) - np.eye(20)] * 6, format="csr"))
    one, other = (np.repeat(np.array(groups), 20) for groups in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]))
    assert partition_criterion(cliques, one) == partition_criterion(cliques, other) == 0
    pairs = datasets.make_block_model(120, 2, random_state=0)
    order = np.argsort(pairs.labels, kind="stable")
    guide = Graph.from_matrix(pairs.graph.matrix[order][:, order])
    classes = np.sort(pairs.labels)
    assert partition_criterion([cliques, guide], classes) > partition_criterion([cliques, guide], other)
    # as many components as clusters are clusters
    assert partition_criterion(cliques, np.repeat(np.arange(6), 20)) > 1


def test_layers_count_alike_whatever_their_units():
    first, labels = random_case(1)
    second, _ = random_case(2)
    alone = [partition_criterion(layer, labels) for layer in (first, second)]
    heavy = Graph.from_matrix(1e6 * second.matrix)
    assert partition_criterion([first, heavy], labels) == pytest.approx(np.mean(alone))
    weighted = partition_criterion([first, heavy], labels, [3, 1])
    assert weighted == pytest.approx(0.75 * alone[0] + 0.25 * alone[1])


def test_no_edge_takes_part():
    """A layer without edges between nodes that take part says nothing, and costs no other its say."""
    graph, labels = random_case(3)
    empty = Graph.from_edges([0], [1], n_nodes=graph.n_nodes)
    labels[:2] = -1
    assert not cluster_shares(empty, labels, 4).any()
    assert partition_criterion(empty, labels) == 0
    assert partition_criterion([graph, empty], labels) == partition_criterion(graph, labels)


def test_input_that_does_not_fit():
    graph, labels = random_case(4)
    with pytest.raises(ValueError, match=r"labels have shape \(39,\) for 40 nodes"):
        cluster_shares(graph, labels[1:])
    with pytest.raises(ValueError, match="a label is 3; with 2 clusters it must be below 2"):
        cluster_shares(graph, labels, 2)
    with pytest.raises(ValueError, match="2 weights for 1 layers"):
        partition_criterion(graph, labels, [1, 1])
