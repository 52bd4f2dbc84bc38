"""The numbers of a factor: ``L D L'`` without pivoting, front by front (Duff and Reid 1983).

A front is the dense matrix of a group's columns and the rows below them, its upper triangle. Its first rows
become the group's entries of ``D L'``; what elimination leaves of the rest is added to the parent's front.
"""

import numpy as np

from spectrograd.kernels.jit import inner, serial, shared, side_by_side
from spectrograd.kernels.ldl_symbolic import Fronts, Parts
from spectrograd.kernels.simd import WIDTH, nothing, put, put_first, take, take_first, take_one

PANEL = 8  # columns that are eliminated one by one before the rest of a front is updated
WIDE = 1e7  # operations from which a front above the subtrees is worth all threads
# Columns of a wide front that are eliminated before the rest is updated: they stay in the cache meanwhile.
BLOCK = 64
N_STRIPS = 8  # of a wide front, at most: more than threads, so that one that is late holds up no other


def factorize(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    diagonal: np.ndarray,
    fronts: Fronts,
    parts: Parts,
) -> tuple[np.ndarray, np.ndarray] | None:
    """``diag(diagonal) - W = L D L'`` in the fronts' order: the entries of ``L'`` and D.

    The entries are a row with eight places to spare, since whole registers are read from it. None where a
    pivot is zero.
    """
    # 1. memory: entries of L', pivots, and one stack per part for what is left of its fronts
    widths = np.diff(fronts.columns)
    heights = np.diff(fronts.row_start)
    values = np.empty((1, fronts.entry_start[-1] + WIDTH))
    pivots = np.empty(len(diagonal))
    base = np.zeros(len(widths), np.int64)
    tops = [0]
    for part in (*parts.subtrees, parts.above):
        tops.append(_stack_end(part.groups, fronts.oldest, heights, base, tops[-1]))
    stack = np.empty((1, tops[-1] + WIDTH))
    # 2. subtrees side by side, then the part above them
    matrix = (indptr, indices, weights, diagonal)
    most = 4 * widths.max()

    def work(groups: np.ndarray, top: int) -> bool:
        where = np.empty(len(diagonal), np.int32)
        pack = np.empty((1, most))
        return bool(_factorize(matrix, fronts, groups, values, pivots, where, stack, base, top, pack))

    def work_above(groups: np.ndarray, top: int) -> bool:
        where = np.empty(len(diagonal), np.int32)
        # operations of a front: w columns times (w + r)^2
        wide = (widths * (widths + heights) ** 2)[groups] >= WIDE
        cuts = np.flatnonzero(wide[1:] | wide[:-1]) + 1  # a wide one comes alone
        for run, alone in zip(np.split(groups, cuts), wide[np.append(0, cuts)], strict=True):
            s = run[-1]
            if not alone:
                done = work(run, top)
            else:
                _assemble(matrix, fronts, s, values, where, stack, base, top)
                done = _eliminate_wide(fronts, int(s), values, pivots, stack, top)
                _settle(fronts, s, values, pivots, stack, base, top)
            if not done:
                return False
            top = base[s] + heights[s] ** 2
        return True

    below = [(part.groups, top) for part, top in zip(parts.subtrees, tops, strict=False)]
    above = work_above if below and len(parts.above.groups) else work
    done = all(side_by_side(work, below)) and above(parts.above.groups, tops[-2])
    return (values, pivots) if done else None


def _eliminate_wide(
    fronts: Fronts, s: int, values: np.ndarray, pivots: np.ndarray, stack: np.ndarray, top: int
) -> bool:
    """Mutates: all but the fronts. One front above the subtrees, where threads share its rows."""
    first = int(fronts.columns[s])
    start = int(fronts.entry_start[s])
    w = int(fronts.columns[s + 1]) - first
    r = int(fronts.row_start[s + 1] - fronts.row_start[s])
    m = w + r
    pack = np.empty((1, 4 * w))
    for low in range(0, w, BLOCK):
        high = min(low + BLOCK, w)
        corner = start + low * m + low
        # columns low .. high, and their rows to the end
        if not _eliminate(values, corner, m, (high - low, m - low), pivots, first + low, pack):
            return False
        # their update of the columns that follow, shared among threads
        size = (w - high, m - high)
        source = (start + low * m + high, m, high - low)
        _subtract_wide(values, start + high * m + high, m, size, values, source, pivots, first + low)
    # what is left for the parent: the r x r Schur complement
    _subtract_wide(stack, top, r, (r, r), values, (start + w, m, w), pivots, first)
    return True


def _subtract_wide(
    target: np.ndarray,
    corner: int,
    stride: int,
    size: tuple[int, int],
    values: np.ndarray,
    source: tuple[int, int, int],
    pivots: np.ndarray,
    first: int,
) -> None:
    """Mutates: target. As :func:`_subtract`, strip by strip."""
    (n_rows, n_columns) = size
    (begin, length, rank) = source
    height = max(32, -(-n_rows // (4 * N_STRIPS)) * 4)

    def strip(low: int) -> None:
        shape = (min(height, n_rows - low), n_columns - low)
        place = corner + low * stride + low
        pack = np.empty((1, 4 * rank))
        _subtract(target, place, stride, shape, values, begin + low, length, rank, pivots, first, pack)

    side_by_side(strip, [(low,) for low in range(0, n_rows, height)])


@serial
def _stack_end(groups, oldest, heights, base, top):
    """Mutates: base, where on the stack each front is left. The end of what these groups need from top on."""
    end = top
    for p in range(len(groups)):
        s = groups[p]
        r = heights[s]
        end = max(end, top + r * r)
        # the oldest descendant among the groups before, if there is one
        # binary search: groups are in ascending order
        first = 0
        last = p
        while first < last:
            middle = (first + last) // 2
            if groups[middle] < oldest[s]:
                first = middle + 1
            else:
                last = middle
        # the front takes the place of its oldest child's, which has been added to it by then
        base[s] = base[groups[first]] if first < p else top
        top = base[s] + r * r
    return end


@serial
def _factorize(matrix, fronts, groups, values, pivots, where, stack, base, top, pack):
    """Mutates: values, pivots, and all after; ``where`` is the place of a row in the present front."""
    for s in groups:
        first = fronts.columns[s]
        start = fronts.entry_start[s]
        w = fronts.columns[s + 1] - first
        r = fronts.row_start[s + 1] - fronts.row_start[s]
        # 1. assemble: the matrix, and what the children left
        _assemble(matrix, fronts, s, values, where, stack, base, top)
        # 2. eliminate the group's own columns
        if not _eliminate(values, start, w + r, (w, w + r), pivots, first, pack):
            return False
        # 3. update the rest
        _subtract(stack, top, r, (r, r), values, start + w, w + r, w, pivots, first, pack)
        # 4. divide rows by their pivots, and move the rest down the stack
        _settle(fronts, s, values, pivots, stack, base, top)
        top = base[s] + r * r
    return True


@shared
def _assemble(matrix, fronts, s, values, where, stack, base, top):
    """Mutates: values, where, stack. The front of a group: its part of the matrix and what children left."""
    columns = fronts.columns
    row_start = fronts.row_start
    rows = fronts.rows
    start = fronts.entry_start[s]
    first = columns[s]
    w = columns[s + 1] - columns[s]
    r = row_start[s + 1] - row_start[s]
    m = w + r
    for c in range(w):
        # places of rows in this front: own columns first, then the rows below
        where[first + c] = c
    for q in range(r):
        where[rows[row_start[s] + q]] = w + q
    for q in range(start, start + w * m):
        values[0, q] = 0
    for q in range(r):  # what is below the diagonal is of no account
        for p in range(top + q * r + q, top + (q + 1) * r):
            stack[0, p] = 0
    _add_graph(matrix, fronts.order, fronts.position, first, w, where, values, start, m)
    c = s - 1
    # children from the latest to the oldest: each begins where the one before ends
    while c >= fronts.oldest[s]:
        child = (row_start[c], row_start[c + 1], base[c])
        _add_child(rows, child, stack, where, w, values, start, m, top)
        c = fronts.oldest[c] - 1


@shared
def _settle(fronts, s, values, pivots, stack, base, top):
    """Mutates: values, which become those of ``L'``, and stack, where the front moves to its place."""
    first = fronts.columns[s]
    start = fronts.entry_start[s]
    w = fronts.columns[s + 1] - first
    r = fronts.row_start[s + 1] - fronts.row_start[s]
    m = w + r
    for k in range(w):
        # D L' becomes L'
        inverse = 1 / pivots[first + k]
        for q in range(start + k * m + k, start + (k + 1) * m):
            values[0, q] *= inverse
    if base[s] < top:
        for q in range(r):
            for p in range(q * r + q, (q + 1) * r):
                stack[0, base[s] + p] = stack[0, top + p]


@inner
def _add_graph(matrix, order, position, first, w, where, values, start, m):
    """Mutates: values, to which the group's own rows of the matrix are added."""
    indptr, indices, weights, diagonal = matrix
    for c in range(w):
        v = order[first + c]
        row = start + c * m
        values[0, row + c] += diagonal[v]
        for p in range(indptr[v], indptr[v + 1]):
            i = position[indices[p]]
            if i >= first + c:
                values[0, row + where[i]] -= weights[p]


@inner
def _add_child(rows, child, stack, where, w, values, start, m, top):
    """Mutates: values, stack. What a child left is added to the front of its parent."""
    low, high, source = child
    for a in range(low, high):
        # a row of the child lies in the parent's own columns, or in its rest
        i = where[rows[a]]
        if i < w:
            for b in range(a, high):
                values[0, start + i * m + where[rows[b]]] += stack[0, source + b - low]
        else:
            target = top + (i - w) * (m - w) - w
            for b in range(a, high):
                stack[0, target + where[rows[b]]] += stack[0, source + b - low]
        source += high - low


@shared
def _eliminate(values, corner, stride, size, pivots, first, pack):
    """Mutates: values, pivots, pack. The first w rows of a front, of length m, become those of ``D L'``.

    False where a pivot is zero.
    """
    w, m = size
    for low in range(0, w, PANEL):
        high = min(low + PANEL, w)
        for k in range(low, high):
            row = corner + k * stride
            pivot = values[0, row + k]
            if pivot == 0 or not np.isfinite(pivot):
                return False
            pivots[first + k] = pivot
            for j in range(k + 1, high):
                # within the panel: column by column (the right-looking form)
                factor = values[0, row + j] / pivot
                target = corner + j * stride
                for i in range(j, m):
                    values[0, target + i] -= factor * values[0, row + i]
        if high < w:
            # what the panel takes from the columns behind it, by blocks
            rest = corner + high * stride + high
            begin = corner + low * stride + high
            shape = (w - high, m - high)
            rank = high - low
            _subtract(values, rest, stride, shape, values, begin, stride, rank, pivots, first + low, pack)
    return True


@shared
def _subtract(target, corner, stride, size, source, begin, length, rank, pivots, first, pack):
    """Mutates: target, the upper triangle of which loses ``U' D^-1 U``, four rows by eight columns at a time.

    Rows of U begin at ``begin + k * length``; what falls below the diagonal is of no account.
    """
    n_rows, n_columns = size
    for a in range(0, n_rows, 4):
        for k in range(rank):
            inverse = 1 / pivots[first + k]
            for q in range(4):
                # four rows of D^-1 U side by side, as they are read below
                pack[0, 4 * k + q] = source[0, begin + k * length + a + q] * inverse
        for b in range(a, n_columns, WIDTH):
            s0 = s1 = s2 = s3 = nothing(source)
            for k in range(rank):
                # a 4 x 8 tile of U'D^-1 U in four registers
                u = take(source, 0, begin + k * length + b)
                s0 = s0 + take_one(pack, 0, 4 * k) * u
                s1 = s1 + take_one(pack, 0, 4 * k + 1) * u
                s2 = s2 + take_one(pack, 0, 4 * k + 2) * u
                s3 = s3 + take_one(pack, 0, 4 * k + 3) * u
            place = corner + a * stride + b
            n = n_columns - b
            _lower(target, place, n, s0)
            if a + 1 < n_rows:
                _lower(target, place + stride, n, s1)
            if a + 2 < n_rows:
                _lower(target, place + 2 * stride, n, s2)
            if a + 3 < n_rows:
                _lower(target, place + 3 * stride, n, s3)


@inner
def _lower(target, place, n, lanes):
    """Mutates: eight numbers of target, or the n that are left of a row."""
    if n >= WIDTH:
        put(target, 0, place, take(target, 0, place) - lanes)
    else:
        put_first(target, 0, place, n, take_first(target, 0, place, n) - lanes)


# --- Solves with a factor for many right-hand sides at once: a row of eight stays in registers.


def recur(
    fronts: Fronts,
    parts: Parts,
    values: np.ndarray,
    pivots: np.ndarray,
    metric: np.ndarray,
    work: np.ndarray,
    current: np.ndarray,
    previous: np.ndarray,
    coefficients: tuple[float, float, float],
) -> None:
    """Mutates: work, and previous, which becomes ``a (L D L')^-1 M current + b current + c previous``.

    ``a, b, c = coefficients``; ``metric`` is the diagonal of M. Vectors are in the factor's order and come as
    panels of eight columns, those of ``work`` with the places of the parts behind them. One step of a
    three-term recurrence; ``(1, 0, 0)`` is a plain solve.
    """
    shape = (fronts.columns, fronts.row_start, parts.rows, fronts.entry_start)
    panels = list(zip(work, current, previous, strict=True))
    no_places = parts.stands_for[:0]

    def forward(part, collects, X, Y):
        _forward(shape, values, metric, part, collects, X, Y)

    def backward(part, collects, X, Y, Z):
        _backward(shape, values, pivots, part, collects, X, Y, Z, coefficients)

    def both(X, Y, Z):
        forward(parts.above, parts.stands_for, X, Y)
        backward(parts.above, parts.stands_for, X, Y, Z)

    below = [(part, no_places, *panel) for panel in panels for part in parts.subtrees]
    side_by_side(forward, [job[:-1] for job in below])
    side_by_side(both, panels)
    side_by_side(backward, below)


@serial
def _forward(shape, values, metric, part, collects, X, Y):
    """Mutates: X, which becomes ``L^-1 M Y`` on the part's columns.

    The part above ``collects`` what subtrees left for columns of it at the places from ``len(Y)`` on.
    """
    columns, row_start, rows, entry_start = shape
    for j in range(part.begin, part.end):
        put(X, j, 0, nothing(X))
    for s in part.groups:
        for j in range(columns[s], columns[s + 1]):
            # 1. X = M Y on the part's columns
            put(X, j, 0, metric[j] * take(Y, j, 0))
    for q in range(len(collects)):
        # 2. what subtrees subtracted from columns of this part, at places of its own
        put(X, collects[q], 0, take(X, collects[q], 0) + take(X, len(Y) + q, 0))
    for s in part.groups:
        first = columns[s]
        w = columns[s + 1] - columns[s]
        start = row_start[s]
        stop = row_start[s + 1]
        m = w + stop - start
        entries = entry_start[s]
        for t in range(w - 1):
            # 3. the group's own triangle: x_i -= l_it x_t
            x = take(X, first + t, 0)
            for i in range(t + 1, w):
                put(X, first + i, 0, take(X, first + i, 0) - take_one(values, 0, entries + t * m + i) * x)
        entries += w
        fours = start + (stop - start) // 4 * 4
        for p in range(start, fours, 4):
            # 4. its rows below, four at a time: so many sums stay in registers while t runs
            i0 = rows[p]
            i1 = rows[p + 1]
            i2 = rows[p + 2]
            i3 = rows[p + 3]
            x0 = take(X, i0, 0)
            x1 = take(X, i1, 0)
            x2 = take(X, i2, 0)
            x3 = take(X, i3, 0)
            e = entries + p - start
            for t in range(w):
                x = take(X, first + t, 0)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + 1) * x
                x2 = x2 - take_one(values, 0, e + 2) * x
                x3 = x3 - take_one(values, 0, e + 3) * x
                e += m
            put(X, i0, 0, x0)
            put(X, i1, 0, x1)
            put(X, i2, 0, x2)
            put(X, i3, 0, x3)
        for p in range(fours, stop):
            x0 = take(X, rows[p], 0)
            e = entries + p - start
            for t in range(w):
                x0 = x0 - take_one(values, 0, e) * take(X, first + t, 0)
                e += m
            put(X, rows[p], 0, x0)


@serial
def _backward(shape, values, pivots, part, collects, X, current, previous, coefficients):
    """Mutates: X, which becomes ``L'^-1 D^-1 X``, and previous, as soon as that is known."""
    columns, row_start, rows, entry_start = shape
    a, b, c = coefficients
    n_groups = len(part.groups)
    for r in range(n_groups):
        s = part.groups[n_groups - 1 - r]
        first = columns[s]
        w = columns[s + 1] - columns[s]
        start = row_start[s]
        stop = row_start[s + 1]
        m = w + stop - start
        entries = entry_start[s]
        fours = w // 4 * 4
        for t in range(0, fours, 4):
            j = first + t
            # 1. x_t / d_t minus the rows below, four columns at a time
            x0 = take(X, j, 0) / pivots[j]
            x1 = take(X, j + 1, 0) / pivots[j + 1]
            x2 = take(X, j + 2, 0) / pivots[j + 2]
            x3 = take(X, j + 3, 0) / pivots[j + 3]
            e = entries + t * m + w
            for p in range(start, stop):
                x = take(X, rows[p], 0)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + m) * x
                x2 = x2 - take_one(values, 0, e + 2 * m) * x
                x3 = x3 - take_one(values, 0, e + 3 * m) * x
                e += 1
            put(X, j, 0, x0)
            put(X, j + 1, 0, x1)
            put(X, j + 2, 0, x2)
            put(X, j + 3, 0, x3)
        for t in range(fours, w):
            x0 = take(X, first + t, 0) / pivots[first + t]
            e = entries + t * m + w
            for p in range(start, stop):
                x0 = x0 - take_one(values, 0, e) * take(X, rows[p], 0)
                e += 1
            put(X, first + t, 0, x0)
        for q in range(1, w):
            # 2. the group's own triangle, from its last column to the first
            t = w - 1 - q
            x0 = take(X, first + t, 0)
            for i in range(t + 1, w):
                x0 = x0 - take_one(values, 0, entries + t * m + i) * take(X, first + i, 0)
            put(X, first + t, 0, x0)
        for j in range(first, first + w):
            # 3. the recurrence, as soon as the solution of these columns is known
            sums = a * take(X, j, 0) + b * take(current, j, 0)
            put(previous, j, 0, sums + c * take(previous, j, 0))
    for q in range(len(collects)):
        # subtrees read what they need of the part above at places of their own
        put(X, len(current) + q, 0, take(X, collects[q], 0))


# --- Vectors as panels of eight columns in an order of their own: what a factor works on.


@serial
def to_panels(X, order, panels):
    """Mutates: panels, which become the rows of X in this order; columns that X has not are zero."""
    for panel in range(len(panels)):
        first = panel * WIDTH
        out = panels[panel]
        width = min(WIDTH, X.shape[1] - first)
        for j in range(len(order)):
            i = np.uint32(order[j])
            put(out, j, 0, take(X, i, first) if width == WIDTH else take_first(X, i, first, width))


@serial
def from_panels(panels, position, X):
    """Mutates: X, which becomes the first columns of the panels, row i from place ``position[i]``."""
    for panel in range(len(panels)):
        first = panel * WIDTH
        source = panels[panel]
        width = min(WIDTH, X.shape[1] - first)
        for i in range(len(position)):
            row = take(source, np.uint32(position[i]), 0)
            if width == WIDTH:
                put(X, i, first, row)
            else:
                put_first(X, i, first, width, row)
