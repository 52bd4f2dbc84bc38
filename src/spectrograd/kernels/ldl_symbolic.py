"""The shape of a factor before its numbers: which columns are alike, and which rows each group reaches."""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels.jit import serial
from spectrograd.kernels.ldl_ordering import NONE, Pivots, minimum_degree

# A pivot joins its parent where less than a share of the entries become zeros: the fewer columns the two
# have, the more is allowed, since a group costs time however small it is.
FEW = 4
SEVERAL = 24
MANY_ZEROS = 0.3
SOME_ZEROS = 0.1
FEW_ZEROS = 0.05
# A pivot of the tree: its first child that is left, its sibling, its first descendant and itself by number.
BRANCH = np.dtype([(field, np.int32) for field in ("child", "sibling", "first", "group")], align=True)


class Fronts(NamedTuple):
    """Groups of neighbouring columns of L with the same rows below them, children before parents.

    Column j stands for node ``order[j]``, which is its inverse ``position``. Group ``s`` has the columns
    ``columns[s] : columns[s + 1]``, the rows ``rows[row_start[s] : row_start[s + 1]]`` below them
    (ascending), its entries from ``entry_start[s]`` on, and its descendants are ``oldest[s] : s``.
    """

    order: np.ndarray
    position: np.ndarray
    columns: np.ndarray
    row_start: np.ndarray
    rows: np.ndarray
    entry_start: np.ndarray
    oldest: np.ndarray


def arrange_fronts(indptr: np.ndarray, indices: np.ndarray, pivots: Pivots) -> Fronts:
    """Mutates: pivots. The fronts of a graph with these pivots."""
    n = len(indptr) - 1
    n_pivots = len(pivots.order)
    # 1. hubs last; 2. join groups whose rows differ little (supernode amalgamation, Ashcraft and Grimes 1989)
    _put_hubs_above(pivots)
    joined = np.arange(n, dtype=np.int32)
    zeros = np.zeros(n)
    _join_small(pivots.order, pivots.parent, pivots.width, pivots.below, joined, zeros)
    # 3. number the groups in postorder: descendants are a range
    tree = np.full((n, 4), NONE, np.int32).view(BRANCH)[:, 0]
    kept, up, oldest = (np.empty(n_pivots, np.int32) for _ in range(3))
    n_groups = _postorder(pivots.order, pivots.parent, joined, tree, kept, up, oldest)
    kept = kept[:n_groups]
    up = up[:n_groups]
    oldest = oldest[:n_groups]
    # 4. columns and rows of each group
    columns, row_start = (np.concatenate([[0], np.cumsum(a[kept])]) for a in (pivots.width, pivots.below))
    order, position, owner = (np.empty(n, np.int32) for _ in range(3))
    rows = np.empty(row_start[-1], np.int32)
    seen = np.full(n_groups, NONE, np.int32)
    _number(pivots.into, joined, tree, columns[:-1].copy(), order, position, owner)
    _list_rows(indptr, indices, (order, position, owner), up, row_start, rows, seen)
    # 5. entries: w columns of w + r rows each
    widths = np.diff(columns)
    entry_start = np.concatenate([[0], np.cumsum(widths * (widths + np.diff(row_start)))])
    return Fronts(order, position, columns, row_start, rows[: row_start[-1]], entry_start, oldest)


def _put_hubs_above(pivots: Pivots) -> None:
    """Mutates: pivots. The hubs become a chain above all others."""
    if pivots.n_hubs > 0:
        others, hubs = np.split(pivots.order, [-pivots.n_hubs])
        pivots.below[others] += pivots.n_hubs
        pivots.below[hubs] = np.arange(pivots.n_hubs)[::-1]
        pivots.parent[others[pivots.parent[others] == NONE]] = hubs[0]
        pivots.parent[hubs] = np.append(hubs[1:], NONE)


@serial
def _join_small(order, parent, width, below, joined, zeros):
    """Mutates: the tree of the pivots, and joined: the pivot that each joins, itself where it stays."""
    n_pivots = len(order)
    for k in range(n_pivots):
        c = order[k]
        p = parent[c]
        if p != NONE:
            w = width[c] + width[p]
            # zeros that the joined group would store: columns of c reach the rows of p as well
            wasted = zeros[c] + zeros[p] + width[c] * float(width[p] + below[p] - below[c])
            share = wasted / (w * (w + below[p]))
            if share < (MANY_ZEROS if w <= FEW else SOME_ZEROS if w <= SEVERAL else FEW_ZEROS):
                joined[c] = p
                width[p] = w
                zeros[p] = wasted
    for k in range(n_pivots):  # parents first
        c = order[n_pivots - 1 - k]
        joined[c] = joined[joined[c]]
    for k in range(n_pivots):
        c = order[k]
        if parent[c] != NONE:
            parent[c] = joined[parent[c]]


@serial
def _postorder(order, parent, joined, tree, kept, up, oldest):
    """Mutates: the last four. The kept pivots, children before parents and descendants together.

    Returns their number; ``up`` and ``oldest`` say parent and first descendant by number.
    """
    for k in range(len(order)):
        c = order[len(order) - 1 - k]
        p = parent[c]
        # children are linked in reverse, so that the first child is the first in order
        if joined[c] == c and p != NONE:
            tree[c].sibling = tree[p].child
            tree[p].child = c
    done = 0
    for k in range(len(order)):
        c = order[k]
        if joined[c] != c or parent[c] != NONE:
            continue
        tree[c].first = done
        while c != NONE:
            own = tree[c]
            # depth first without a stack: a pivot without children left is numbered
            child = own.child
            if child != NONE:  # its children first, and then it has none left
                own.child = tree[child].sibling
                tree[child].first = done
                c = child
            else:
                kept[done] = c
                oldest[done] = own.first
                own.group = done
                done += 1
                c = parent[c]
    for s in range(done):
        p = parent[kept[s]]
        up[s] = tree[p].group if p != NONE else NONE
    return done


@serial
def _number(into, joined, tree, free, order, position, owner):
    """Mutates: all but joined and tree. The order of the nodes, its inverse, the group of every column."""
    for v in range(len(order)):
        p = v
        # path halving, as in union-find
        while into[p] != NONE:
            if into[into[p]] != NONE:
                into[p] = into[into[p]]  # shorter for those who follow
            p = into[p]
        s = tree[joined[p]].group
        order[free[s]] = v
        position[v] = free[s]
        owner[free[s]] = s
        free[s] += 1


@serial
def _list_rows(indptr, indices, places, up, row_start, rows, seen):
    """Mutates: the last three. An edge puts its later end below all groups on the way up from the other.

    Space for the rows of each group begins at ``row_start``; hubs may leave gaps, which are closed.
    """
    order, position, owner = places
    end = row_start.copy()
    for i in range(len(order)):
        v = order[i]
        mine = owner[i]
        for p in range(indptr[v], indptr[v + 1]):
            j = position[indices[p]]
            if j < i:
                s = owner[j]
                # row i is below all groups on the path from the edge's
                # earlier end (Liu 1990, the row subtree)
                while s != mine and seen[s] != i:
                    seen[s] = i
                    rows[end[s]] = i
                    end[s] += 1
                    s = up[s]
    total = 0
    for s in range(len(seen)):
        # close the gaps
        first = row_start[s]
        row_start[s] = total
        for p in range(first, end[s]):
            rows[total] = rows[p]
            total += 1
    row_start[len(seen)] = total


# --- A factor cut into parts: subtrees that threads can work on side by side, and what lies above them.

# What a part may be, as a share of all operations.
MAX_PART_SHARE = 1 / 8
MIN_PART_SHARE = 1 / 800
MIN_OPERATIONS = 5e6  # of a factor that is cut; a smaller one is done before threads are awake


class Part(NamedTuple):
    """``groups`` of fronts, children before parents, and the places that are theirs alone.

    A subtree adds to rows above it. While others do the same, it adds to places ``begin : end`` behind the
    columns instead, which the part above collects.
    """

    groups: np.ndarray
    begin: int
    end: int


class Parts(NamedTuple):
    """Subtrees, largest first, and the part ``above`` them all.

    ``rows`` are the rows of the fronts with each subtree's own places in them, and the place n + q stands for
    the column ``stands_for[q]``. ``operations`` is what all of it takes, about.
    """

    subtrees: tuple[Part, ...]
    above: Part
    rows: np.ndarray
    stands_for: np.ndarray
    operations: float

    @property
    def n_places(self) -> int:
        """Columns, and the places behind them."""
        return self.above.end


def cut(fronts: Fronts, largest: float = MAX_PART_SHARE, worth: float = MIN_OPERATIONS) -> Parts:
    """Maximal subtrees with at most a share of the operations; the same for any number of threads."""
    widths = np.diff(fronts.columns).astype(np.float64)
    n = len(fronts.order)
    # operations of each front, and of all
    work = widths * (widths + np.diff(fronts.row_start)) ** 2
    total = float(work.sum())
    roots = _roots(fronts.oldest, work, (MIN_PART_SHARE * total, largest * total)) if total >= worth else []
    rows = fronts.rows.copy()
    place = np.empty(n, np.int32)
    inside = np.zeros(len(work), bool)
    subtrees = []
    stands_for = [np.empty(0, np.int32)]
    end = n
    for root in roots:
        oldest = int(fronts.oldest[root])
        begin = end
        low, middle, high = fronts.row_start[[oldest, root, root + 1]]
        # rows of the subtree's root: all that it adds to outside
        above = fronts.rows[middle:high]  # all rows beyond the subtree
        end += len(above)
        place[above] = np.arange(begin, end)
        stands_for.append(above)
        outside = low + np.flatnonzero(fronts.rows[low:high] >= fronts.columns[root + 1])
        rows[outside] = place[fronts.rows[outside]]
        inside[oldest : root + 1] = True
        subtrees.append(Part(np.arange(oldest, root + 1, dtype=np.int32), begin, end))
    rest = Part(np.flatnonzero(~inside).astype(np.int32), end, end)
    return Parts(tuple(subtrees), rest, rows, np.concatenate(stands_for), total)


def _roots(oldest: np.ndarray, work: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """The roots of maximal subtrees within the upper limit, largest first, without those below the lower."""
    done = np.concatenate([[0.0], np.cumsum(work)])
    size = done[1:] - done[oldest]
    last = size <= limits[1]
    n = len(work)
    # a subtree is a range of groups that ends with its root: is there a later one which begins no later?
    begins = np.minimum.accumulate(np.where(last, oldest, n)[::-1])[::-1]
    maximal = last & (np.append(begins[1:], n) > np.arange(n)) & (size >= limits[0])
    roots = np.flatnonzero(maximal)
    return roots[np.argsort(-size[roots], kind="stable")]


# --- Order and shape of a triangular factor: what depends on the pattern alone, and serves every shift.


def lay_out(indptr, indices) -> tuple[Fronts, Parts]:
    """The fronts of a factor under minimum degree, and the parts in which threads work on them."""
    fronts = arrange_fronts(indptr, indices, minimum_degree(indptr, indices))
    return fronts, cut(fronts)
