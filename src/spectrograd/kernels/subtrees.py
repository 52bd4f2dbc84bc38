"""A factor cut into parts: subtrees that threads can work on side by side, and what lies above them."""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels.fronts import Fronts

LARGEST, SMALLEST = 1 / 8, 1 / 800  # of all operations: what a part may be
WORTH_CUTTING = 5e6  # operations; a smaller factor is done before threads are awake


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


def cut(fronts: Fronts, largest: float = LARGEST, worth: float = WORTH_CUTTING) -> Parts:
    """Maximal subtrees with at most a share of the operations; the same for any number of threads."""
    widths = np.diff(fronts.columns).astype(np.float64)
    done = np.concatenate([[0.0], np.cumsum(widths * (widths + np.diff(fronts.row_start)) ** 2)])
    runs = _runs(fronts.oldest, done, largest * done[-1]) if done[-1] >= worth else []
    runs = [(first, last) for first, last in runs if done[last] - done[first] >= SMALLEST * done[-1]]
    n, rows = len(fronts.order), fronts.rows.copy()
    place = np.empty(n, np.int32)
    inside = np.zeros(len(widths), bool)
    subtrees, stands_for = [], [np.empty(0, np.int32)]
    end = n
    for first, last in runs:
        begin = end
        for root in _roots(fronts.oldest, first, last):
            low, high = fronts.row_start[fronts.oldest[root]], fronts.row_start[root + 1]
            above = fronts.rows[fronts.row_start[root] : high]
            place[above] = np.arange(end, end + len(above))
            stands_for.append(above)
            end += len(above)
            outside = low + np.flatnonzero(fronts.rows[low:high] >= fronts.columns[root + 1])
            rows[outside] = place[fronts.rows[outside]]
        inside[first:last] = True
        subtrees.append(Part(np.arange(first, last, dtype=np.int32), begin, end))
    subtrees.sort(key=lambda part: done[part.groups[0]] - done[part.groups[-1] + 1])
    above = Part(np.flatnonzero(~inside).astype(np.int32), end, end)
    return Parts(tuple(subtrees), above, rows, np.concatenate(stands_for), float(done[-1]))


def _runs(oldest: np.ndarray, done: np.ndarray, limit: float) -> list[tuple[int, int]]:
    """Ranges of groups that are one maximal subtree or several neighbouring ones, within the limit."""
    runs: list[tuple[int, int]] = []
    s = len(oldest) - 1
    while s >= 0:
        first = int(oldest[s])
        if done[s + 1] - done[first] > limit:
            s -= 1
            continue
        if runs and runs[-1][0] == s + 1 and done[runs[-1][1]] - done[first] <= limit:
            runs[-1] = (first, runs[-1][1])
        else:
            runs.append((first, s + 1))
        s = first - 1
    return runs


def _roots(oldest: np.ndarray, first: int, last: int) -> list[int]:
    """The roots of the subtrees that make up a range of groups."""
    roots, s = [], last - 1
    while s >= first:
        roots.append(s)
        s = int(oldest[s]) - 1
    return roots
