"""A factor cut into parts: subtrees that threads can work on side by side, and what lies above them."""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels.ldl.fronts import Fronts

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
    widths, n = np.diff(fronts.columns).astype(np.float64), len(fronts.order)
    work = widths * (widths + np.diff(fronts.row_start)) ** 2
    total = float(work.sum())
    roots = _roots(fronts.oldest, work, (SMALLEST * total, largest * total)) if total >= worth else []
    rows, place, inside = fronts.rows.copy(), np.empty(n, np.int32), np.zeros(len(work), bool)
    subtrees, stands_for, end = [], [np.empty(0, np.int32)], n
    for root in roots:
        oldest, begin = int(fronts.oldest[root]), end
        low, middle, high = fronts.row_start[[oldest, root, root + 1]]
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
    last, n = size <= limits[1], len(work)
    # a subtree is a range of groups that ends with its root: is there a later one which begins no later?
    begins = np.minimum.accumulate(np.where(last, oldest, n)[::-1])[::-1]
    maximal = last & (np.append(begins[1:], n) > np.arange(n)) & (size >= limits[0])
    roots = np.flatnonzero(maximal)
    return roots[np.argsort(-size[roots], kind="stable")]
