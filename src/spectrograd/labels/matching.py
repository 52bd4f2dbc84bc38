"""Clusters that keep their names, embeddings their directions: matched on the nodes both know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spectrograd.typing import Array, JsonObject

# Of a cluster's nodes, what must have come from (or gone to) another for the two to be kin.
KIN = 0.25


@dataclass(frozen=True)
class LabelChanges:
    """The fate of the clusters between two clusterings.

    Attributes
    ----------
    moved
        Nodes that changed their cluster, after the names were matched.
    common
        Nodes that both clusterings know.
    split, merged
        ``(old, new)`` pairs: an old cluster and the clusters it went to; the clusters that went into a
        new one, and that one.
    appeared, died
        New clusters that come from no old one, old clusters that went into no new one.
    """

    moved: int
    common: int
    split: tuple[tuple[int, tuple[int, ...]], ...] = ()
    merged: tuple[tuple[tuple[int, ...], int], ...] = ()
    appeared: tuple[int, ...] = ()
    died: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """The changes in plain words."""
        sentences = [f"{self.moved:,} of {self.common:,} nodes changed their cluster"]
        sentences += [f"cluster {old} split into {_enumerate(new)}" for old, new in self.split]
        sentences += [f"clusters {_enumerate(old)} merged into {new}" for old, new in self.merged]
        sentences += [f"cluster {new} appeared" for new in self.appeared]
        sentences += [f"cluster {old} died" for old in self.died]
        return "; ".join(sentences)

    def summary(self) -> JsonObject:
        """The entries of ``--summary-json``."""
        return {
            "moved": self.moved,
            "common": self.common,
            "split": [[old, list(new)] for old, new in self.split],
            "merged": [[list(old), new] for old, new in self.merged],
            "appeared": list(self.appeared),
            "died": list(self.died),
            "sentence": self.sentence,
        }


def align_labels(before: Array, after: Array, more: Array | None = None) -> tuple[Array, LabelChanges]:
    """Rename new clusters so that as many nodes as possible keep their label.

    An optimal assignment on the contingency table; clusters without an old partner take free numbers.

    Parameters
    ----------
    before, after : arrays of shape (n_common,)
        Labels of the nodes both know; -1 for none.
    more : array of shape (n,), optional
        New labels to rename, of all nodes; ``after`` when not given.

    Examples
    --------
    >>> labels, changes = align_labels(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 2]))
    >>> labels.tolist(), changes.sentence
    ([0, 0, 1, 2], '1 of 4 nodes changed their cluster; cluster 1 split into 1 and 2')
    """
    from scipy.optimize import linear_sum_assignment

    everything = after if more is None else more
    n_old, n_new = (int(max(labels.max(initial=-1) + 1, 0)) for labels in (before, everything))
    both = (before >= 0) & (after >= 0)
    table = np.zeros((n_old, n_new), dtype=np.int64)
    # 1. contingency table: old cluster x new cluster, nodes known to both
    np.add.at(table, (before[both], after[both]), 1)
    new_name = np.full(n_new, -1)
    # 2. the assignment that keeps most labels (Kuhn 1955)
    for old, new in zip(*linear_sum_assignment(table, maximize=True), strict=True):
        if table[old, new]:
            new_name[new] = old
    # 3. free numbers for new clusters:
    # numbers of clusters that are gone come last: no new cluster should be taken for an old one
    unused = [name for name in range(n_old + n_new) if name not in set(new_name.tolist())]
    free = iter([name for name in unused if name >= n_old] if n_new > n_old else unused)
    for new in np.flatnonzero(new_name < 0):
        new_name[new] = next(free)
    renamed = np.where(everything >= 0, new_name[everything], everything)
    aligned = np.where(after >= 0, new_name[after], after)
    moved = int((aligned != before)[both].sum())
    return renamed, _changes(table, new_name, moved, int(both.sum()))


def _changes(table: Array, name: Array, moved: int, common: int) -> LabelChanges:
    """Relate old and new clusters: kin where a good part of either came from, or went to, the other."""
    # of each old cluster, where its nodes went; of each new one, where they came from
    share_out = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    share_in = table / np.maximum(table.sum(axis=0, keepdims=True), 1)
    # a split: parts of the old that make up new clusters; a merger: parts of the new that were whole clusters
    parts = (share_out > KIN) & (share_in > 0.5)
    sources = (share_in > KIN) & (share_out > 0.5)
    split = _groups(parts)
    merged = _groups(sources.T)
    kin = (share_out > KIN) | (share_in > KIN)
    was_there = table.sum(axis=1) > 0
    return LabelChanges(
        moved,
        common,
        tuple((old, tuple(sorted(int(name[new]) for new in several))) for old, several in split),
        tuple((several, int(name[new])) for new, several in merged),
        tuple(sorted(int(name[new]) for new in np.flatnonzero(~kin.any(axis=0)))),
        tuple(int(old) for old in np.flatnonzero(was_there & ~kin.any(axis=1))),
    )


def _groups(related: Array) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (one, tuple(np.flatnonzero(row).tolist())) for one, row in enumerate(related) if int(row.sum()) > 1
    ]


def rotation_onto(before: Array, after: Array) -> Array:
    """The orthogonal matrix R of shape (k, k) that brings ``after @ R`` closest to ``before`` (Procrustes).

    Parameters
    ----------
    before, after : arrays of shape (n_common, k)
        Rows of the same nodes.
    """
    left, _, right = np.linalg.svd(np.asarray(after.T @ before, dtype=np.float64))
    return np.asarray(left @ right)


def _enumerate(numbers: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])])


# --- Which cluster is number 0, 1, 2 ...

ROWS_AT_ONCE = 1 << 16  # temporaries of so many rows stay in the cache


def in_order(labels: Array, n_clusters: int) -> Array:
    """Clusters numbered as they first appear: a rounding error elsewhere must not permute them. -1 stays."""
    first = np.full(n_clusters + 1, len(labels))  # the last place is that of -1
    blocks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(labels), ROWS_AT_ONCE)]
    for block in reversed(blocks):
        own = labels[block]
        first[own[::-1]] = block.start + np.arange(len(own))[::-1]  # the last to be written is the first row
    number = np.append(np.argsort(np.argsort(first[:-1])), -1)
    numbered = np.empty(len(labels), np.int64)
    for block in blocks:
        numbered[block] = number[labels[block]]
    return numbered
