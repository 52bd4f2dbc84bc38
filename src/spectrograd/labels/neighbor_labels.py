"""Nodes without evidence of their own take the cluster of their neighbours: one pass after k-means.

Regularisation adds ``tau`` to every degree (:mod:`spectrograd.operators.laplacian`), so of the equation
``(1 - lambda) (d_i + tau) u_i = sum_j w_ij u_j + tau mean(u)`` of a node the share ``tau / (d_i + tau)`` is
the same for all nodes: it pulls the row of a node of low degree to the mean of all rows, whoever its
neighbours are. Such a row says little, and k-means puts it wherever the mean lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spectrograd.graph import Graph, RowBlock
from spectrograd.typing import Array

# A branch is followed as long as it has less than this part of a cluster's fair share of the volume: the
# same bound as that of localised eigenvectors, below which a piece is no cluster.
TINY_SHARE = 0.1
MAX_DEPTH = 1000  # edges of a chain that is followed: more rounds would cost more than they gain
BLOCK_ENTRIES = 1 << 22  # entries of a block whose temporaries are made together


@dataclass(frozen=True, eq=False)
class Followed:
    """Labels after the pass, the rows that moved, and the confidence of each label (None: not known)."""

    labels: Array
    membership: Array | None
    moved: Array


def follow_neighbours(
    layers: Sequence[Graph], labels: Array, added: Sequence[float], membership: Array | None = None
) -> Followed:
    """Give every node without evidence of its own the cluster of its neighbours.

    Without evidence are (a) nodes with a single neighbour, and those of a tree that hangs by one edge, from
    its leaves as far as the branch has less than a tenth of a cluster's fair share of the volume: they get
    the cluster of the node that the branch hangs on; and (b) nodes whose degree is below what regularisation
    added to it, so that more than half of their row is the mean of all rows: they get the cluster that most
    of the weight of their edges leads to, counting neighbours with evidence only. No cluster is emptied: one
    that is made of such nodes alone keeps the branches of one node, together with that node.

    Parameters
    ----------
    layers
        Graphs on the same rows; neighbours are those in any of them. On disk they are read once.
    labels : array of shape (n,)
        Cluster of every row, -1 where it takes no part.
    added
        What regularisation added to every degree, one number per layer.
    membership : array of shape (n,), optional
        Confidence in the labels. A node that follows takes that of the node it hangs on, or the lead of the
        winner in the weight of its edges.

    Examples
    --------
    >>> star = Graph.from_edges([0, 0, 0, 1, 4, 5], [1, 2, 3, 2, 0, 4])  # 3 hangs on 0, and 5 on 4
    >>> follow_neighbours([star], np.array([0, 0, 0, 1, 1, 1]), [0.0]).labels.tolist()
    [0, 0, 0, 0, 1, 1]
    """
    degrees = sum(layer.degrees for layer in layers)
    weak = np.asarray((degrees < sum(added)) & (labels >= 0))
    seen = _read_neighbours(layers, labels, weak)
    new = labels.copy()
    sure = None if membership is None else membership.copy()
    # 1. (b): weak nodes take the cluster that most of their edges lead to
    voted = np.flatnonzero(seen.best >= 0)
    new[voted] = seen.best[voted]
    if sure is not None:
        sure[voted] = seen.lead[voted]
    # 2. (a): branches, from the root back to the leaves
    n_clusters = int(labels.max(initial=0)) + 1
    rounds = _branches(seen, np.asarray(degrees), n_clusters)
    for rows, roots in reversed(rounds):
        new[rows] = new[roots]
        if sure is not None:
            sure[rows] = sure[roots]
    # 3. no cluster is emptied
    if _refill(labels, new, seen):
        for rows, roots in rounds[:1]:
            new[rows] = new[roots]
    return Followed(new, sure, np.flatnonzero(new != labels))


@dataclass(frozen=True, eq=False)
class _Seen:
    """Neighbours of each row, and votes for its cluster, from one pass over the edges.

    ``counts`` and ``union``: how many entries it has, and the exclusive or of the rows they lead to, which of
    a single neighbour is that neighbour. ``best`` is the cluster that a weak row is led to (-1: none), and
    ``lead`` by how much of its weight more than to the next.
    """

    counts: Array
    union: Array
    best: Array
    lead: Array


def _read_neighbours(layers: Sequence[Graph], labels: Array, weak: Array) -> _Seen:
    n = len(labels)
    several = len(layers) > 1
    n_clusters = int(labels.max(initial=0)) + 1
    counts = np.zeros(n, np.int64)
    union = np.zeros(n, np.int64)
    best = np.full(n, -1, np.int64)
    lead = np.zeros(n, np.float32)
    row_of = np.cumsum(weak) - 1
    votes = np.zeros((int(weak.sum()), n_clusters)) if several else np.zeros((0, n_clusters))
    for layer in layers:
        for block in small_blocks(layer):
            span = slice(block.start, block.stop)
            sizes = np.diff(block.indptr)
            counts[span] += sizes
            filled = np.flatnonzero(sizes)
            if len(filled):
                starts = block.indptr[:-1][filled].astype(np.int64)
                # exclusive or of a row's neighbours: of a single one it is that
                # one, and removing one is another xor
                joined = np.bitwise_xor.reduceat(block.indices.astype(np.int64), starts)
                union[block.start + filled] ^= joined
            rows = block.start + np.flatnonzero(weak[span])
            if len(rows):
                own = _votes(block, rows, labels, weak, n_clusters)
                if several:
                    votes[row_of[rows]] += own
                else:
                    best[rows], lead[rows] = _winners(own, labels[rows])
    if several and len(votes):
        # Two layers with the same edge would hide each other: distinct neighbours are counted below.
        rows = np.flatnonzero(weak)
        best[rows], lead[rows] = _winners(votes, labels[rows])
    if several:
        counts, union = _distinct(layers, n)
    return _Seen(counts, union, best, lead)


def small_blocks(layer: Graph) -> Iterator[RowBlock]:
    """The blocks of a graph, cut such that what is made of one stays small."""
    for block in layer.blocks:
        n_cuts = max(1, -(-len(block.indices) // BLOCK_ENTRIES))
        edges = np.linspace(block.start, block.stop, n_cuts + 1).astype(np.int64)
        for start, stop in pairwise(edges):
            if stop > start:
                yield block if n_cuts == 1 else block.between(int(start), int(stop))


def _distinct(layers: Sequence[Graph], n: int) -> tuple[Array, Array]:
    """Neighbours of every row in any layer, each counted once; more than one of them is as good as two."""
    first = np.full(n, n, np.int64)
    last = np.full(n, -1, np.int64)
    for layer in layers:
        for block in small_blocks(layer):
            filled = np.flatnonzero(np.diff(block.indptr))
            if len(filled):
                starts = block.indptr[:-1][filled]
                rows = block.start + filled
                indices = block.indices.astype(np.int64)
                first[rows] = np.minimum(first[rows], np.minimum.reduceat(indices, starts))
                last[rows] = np.maximum(last[rows], np.maximum.reduceat(indices, starts))
    counts = np.where(last < 0, 0, np.where(first == last, 1, 1 << 40))  # branches of one edge only
    return counts, np.where(counts == 1, first, 0)


def _votes(block: RowBlock, rows: Array, labels: Array, weak: Array, n_clusters: int) -> Array:
    """Weight of the edges of some rows to each cluster, counting neighbours with evidence."""
    local = rows - block.start
    sizes = np.diff(block.indptr)[local]
    # positions of all entries of the chosen rows, without a loop over them
    at = np.repeat(block.indptr[:-1][local] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    ends = block.indices[at]
    weights = np.ones(len(at)) if block.weights is None else block.weights[at]
    weights = np.where(weak[ends] | (labels[ends] < 0), 0.0, weights)
    place = np.repeat(np.arange(len(rows)), sizes) * n_clusters + np.maximum(labels[ends], 0)
    return np.bincount(place, weights, len(rows) * n_clusters).reshape(len(rows), n_clusters)


def _winners(votes: Array, own: Array) -> tuple[Array, Array]:
    """The cluster with most votes, the own one among equals; -1 where nobody votes."""
    if not len(votes):
        return np.empty(0, np.int64), np.empty(0, np.float32)
    at = np.arange(len(votes))
    total = votes.sum(axis=1)
    best = np.argmax(votes, axis=1)
    best = np.where(votes[at, own] >= votes[at, best], own, best)
    top = votes[at, best]
    rest = votes.copy()
    rest[at, best] = 0
    lead = np.divide(top - rest.max(axis=1), total, out=np.zeros(len(votes)), where=total > 0)
    return np.where(total > 0, best, -1), lead.astype(np.float32)


def _branches(seen: _Seen, degrees: Array, n_clusters: int) -> list[tuple[Array, Array]]:
    """Rounds of rows that hang on one other row each, leaves first: (rows, what they hang on)."""
    counts = seen.counts.copy()
    union = seen.union.copy()
    volume = degrees.astype(np.float64)
    most = TINY_SHARE * float(degrees.sum()) / n_clusters
    rows = np.flatnonzero(counts == 1)
    rounds: list[tuple[Array, Array]] = []
    while len(rows) and len(rounds) < MAX_DEPTH:
        roots = union[rows]
        pair = (counts[roots] == 1) & (roots > rows)  # two that have only each other: one is the root
        rows = rows[~pair]
        roots = roots[~pair]
        rounds.append((rows, roots))
        # cut the leaves off: their roots lose a neighbour, and gain their volume
        counts[rows] = 0
        np.subtract.at(counts, roots, 1)
        np.bitwise_xor.at(union, roots, rows)
        np.add.at(volume, roots, volume[rows])
        touched = np.unique(roots)
        rows = touched[(counts[touched] == 1) & (volume[touched] < most)]
    return rounds


def _refill(before: Array, after: Array, seen: _Seen) -> bool:
    """Give a cluster that lost all its rows one node back, with its tree; whether there was one."""
    n_clusters = int(before.max(initial=-1)) + 1
    had, has = (np.bincount(each[each >= 0], minlength=n_clusters) for each in (before, after))
    emptied = np.flatnonzero((had > 0) & (has == 0))
    for cluster in emptied:
        rows = np.flatnonzero(before == cluster)
        leaves = rows[seen.counts[rows] == 1]
        if not len(leaves):
            after[rows] = cluster
            continue
        root = int(np.bincount(seen.union[leaves]).argmax())
        hanging = np.flatnonzero((seen.counts == 1) & (seen.union == root))
        after[np.append(hanging, root)] = cluster
    return bool(len(emptied))
