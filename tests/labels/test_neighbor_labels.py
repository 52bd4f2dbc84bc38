"""Labels of weak nodes by their neighbours: large blocks are cut."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from spectrograd import Graph, datasets
from spectrograd.labels import neighbor_labels
from spectrograd.labels.neighbor_labels import follow_neighbours, small_blocks


@pytest.fixture(scope="module")
def data():
    return datasets.make_block_model(400, 3, mean_degree=6, degree_exponent=2.5, random_state=0)


def test_small_blocks_are_the_rows_once_and_in_order(data, monkeypatch):
    (whole,) = small_blocks(data.graph)
    monkeypatch.setattr(neighbor_labels, "BLOCK_ENTRIES", 300)
    cut = list(small_blocks(data.graph))
    assert len(cut) == -(-len(whole.indices) // 300)
    assert [block.start for block in cut] == sorted({block.start for block in cut})
    assert np.array_equal(np.concatenate([block.indices for block in cut]), whole.indices)


def test_cut_blocks_give_the_same_labels(data, monkeypatch):
    noisy = data.labels.copy()
    noisy[::7] = (noisy[::7] + 1) % 3
    added = [4.0]  # more than the degree of half of the nodes
    whole = follow_neighbours([data.graph], noisy, added)
    assert (whole.labels != noisy).any()
    monkeypatch.setattr(neighbor_labels, "BLOCK_ENTRIES", 300)
    assert np.array_equal(follow_neighbours([data.graph], noisy, added).labels, whole.labels)


# --- Against the rule, row by row


def weak_rows_by_votes(layers, labels, added):
    """Labels of nodes whose degree is below what was added, by the edges to nodes with evidence."""
    degrees = sum(layer.degrees for layer in layers)
    W = sum(layer.matrix.toarray() for layer in layers)
    weak = (degrees < sum(added)) & (labels >= 0)
    new, lead = labels.copy(), np.zeros(len(labels))
    for row in np.flatnonzero(weak):
        votes = [W[row, (labels == c) & ~weak].sum() for c in range(labels.max() + 1)]
        if sum(votes) > 0:
            new[row] = labels[row] if votes[labels[row]] >= max(votes) else int(np.argmax(votes))
            rest = [vote for c, vote in enumerate(votes) if c != new[row]]
            lead[row] = (votes[new[row]] - max(rest)) / sum(votes)
    return new, lead


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_weak_nodes_take_the_cluster_most_of_their_weight_leads_to(n_layers, weighted):
    rng = np.random.default_rng(n_layers)
    layers = [reference.random_graph(120, rng, weighted=weighted, mean_degree=6) for _ in range(n_layers)]
    labels = rng.integers(-1, 4, 120)
    added = [float(np.median(layer.degrees)) for layer in layers]
    found = follow_neighbours(layers, labels, added, np.full(120, 0.5, np.float32))
    new, lead = weak_rows_by_votes(layers, labels, added)
    assert np.array_equal(found.labels, new)  # on a ring with chords no node hangs by one edge
    moved = np.flatnonzero(new != labels)
    assert np.array_equal(found.moved, moved)
    assert len(moved) > 10
    assert np.allclose(found.membership[moved], lead[moved], atol=1e-6)
    assert (found.membership[labels < 0] == 0.5).all()


def with_branches(extra):
    """Two cliques of ten joined by an edge, and further edges."""
    rows, cols = np.triu_indices(10, 1)
    pairs = [*zip(rows, cols, strict=True), *zip(rows + 10, cols + 10, strict=True), (0, 10), *extra]
    return Graph.from_edges(*np.array(pairs).T)


CORE = np.repeat([0, 1], 10)


def test_chains_and_trees_follow_the_node_they_hang_on():
    graph = with_branches([(3, 20), (20, 21), (21, 22), (21, 23), (15, 24)])
    labels = np.append(CORE, [1, 1, 0, 1, 0])
    found = follow_neighbours([graph], labels, [0.0], np.linspace(0, 1, 25).astype(np.float32))
    assert found.labels.tolist() == [*CORE, 0, 0, 0, 0, 1]
    assert found.moved.tolist() == [20, 21, 23, 24]
    assert np.allclose(found.membership[20:], np.linspace(0, 1, 25)[[3, 3, 3, 3, 15]])


def test_a_branch_as_heavy_as_a_tenth_of_a_cluster_is_followed_no_further():
    """Of a volume of 204 a tenth of a half is 10.2: five edges of a chain hang on node 25, and not six."""
    chain = [(3, 20), *((at, at + 1) for at in range(20, 30))]
    labels = np.append(CORE, [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1])
    found = follow_neighbours([with_branches(chain)], labels, [0.0])
    assert found.labels[20:].tolist() == [1] * 5 + [0] * 6


def test_a_pair_that_has_only_each_other_gets_one_cluster():
    graph = with_branches([(20, 21)])
    assert len(set(follow_neighbours([graph], np.append(CORE, [0, 1]), [0.0]).labels[20:])) == 1


def test_neighbours_in_several_layers_are_counted_once():
    """Node 20 hangs on 3 in both layers: one neighbour. Node 21 has another in each: two."""
    one = with_branches([(3, 20), (3, 21)])
    other = with_branches([(3, 20), (15, 21)])
    found = follow_neighbours([one, other], np.append(CORE, [1, 1]), [0.0, 0.0])
    assert found.labels[20:].tolist() == [0, 1]


def test_a_cluster_of_leaves_keeps_its_branches():
    graph = with_branches([(3, 20), (3, 21), (15, 22)])
    found = follow_neighbours([graph], np.append(CORE, [2, 2, 2]), [0.0])
    assert np.flatnonzero(found.labels == 2).tolist() == [3, 20, 21]
    assert found.labels[22] == 1


def test_a_cluster_of_weak_nodes_without_leaves_stays():
    rows, cols = np.triu_indices(10, 1)
    ends = [10, 11, 10, 0, 1, 2], [11, 12, 12, 10, 11, 12]
    graph = Graph.from_edges(np.append(rows, ends[0]), np.append(cols, ends[1]))
    labels = np.append(np.zeros(10, int), [1, 1, 1])
    assert follow_neighbours([graph], labels, [5.0]).labels.tolist() == labels.tolist()
