"""From edges as they are listed to sorted rows, by counting: no array ever holds all of them."""

import numpy as np

from spectrograd.kernels.graph import edge_hash
from spectrograd.kernels.jit import inner, serial

RUN = 16  # entries that are sorted by insertion before runs are merged
# Rules for an edge that is listed several times.
SUM = 0
MAX = 1
FIRST = 2


@serial
def keep_edges(source, target, bits, counts, kept):
    """Mutates: counts of the ends, and kept (2 x edges, int32), those that are no loops: how many, a hash.

    The hash of a list is 0 if it holds every edge as often in one direction as in the other, with the same
    weights (``bits``, read as integers; or None); else with odds of about 2^-60.
    """
    n_kept = 0
    total = np.uint64(0)
    for e in range(len(source)):
        i = source[e]
        j = target[e]
        counts[i] += 1
        counts[j] += 1
        if i == j:
            continue
        # + for i < j, - for i > j: a list that holds both directions of each edge sums to zero
        hashed = edge_hash(i, j, np.uint64(1) if bits is None else bits[e])
        total += hashed if i < j else np.uint64(0) - hashed
        kept[0, n_kept] = i
        kept[1, n_kept] = j
        n_kept += 1
    return n_kept, total


@serial
def count_rows(source, target, weights, row_of, counts, sums, parent):
    """Mutates: source and target become rows; counts of entries; sums of ``|w|``; parent, a union-find.

    ``row_of`` may be None (ends are rows), ``weights`` too (sums stay as they are).
    """
    for e in range(len(source)):
        if row_of is not None:
            source[e] = row_of[source[e]]
            target[e] = row_of[target[e]]
        i = source[e]
        j = target[e]
        counts[i] += 1
        counts[j] += 1
        if weights is not None:
            sums[i] += abs(weights[e])
            sums[j] += abs(weights[e])
            if weights[e] == 0:  # an edge that will not be there
                continue
        # union by number: i and j are in one component
        i = _root(parent, i)
        j = _root(parent, j)
        if i < j:  # the smaller is the root: components are then numbered as their first nodes come
            parent[j] = i
        elif j < i:
            parent[i] = j


@inner
def _root(parent, i):
    """Mutates: parent, whose paths are halved on the way up (Tarjan and van Leeuwen 1984)."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@serial
def label_roots(parent):
    """Mutates: parent becomes the number of each node's component: how many there are."""
    n_found = 0
    for i in range(len(parent)):  # a root stands before its nodes, and so do all parents
        if parent[i] == i:
            parent[i] = n_found
            n_found += 1
        else:
            parent[i] = parent[parent[i]]
    return n_found


@serial
def scatter_entries(source, target, weights, bucket_of, ends, keys, values):
    """Mutates: keys and values, both directions of the edges by bucket of their row; ends of the buckets.

    A key is ``row << 32 | column``. Inside a bucket entries stand as they are listed. Weights and values may
    be None.
    """
    ends[:] = 0
    for e in range(len(source)):
        # 1. count the entries of each bucket, both directions of an edge
        ends[bucket_of[source[e]]] += 1
        ends[bucket_of[target[e]]] += 1
    total = 0
    for b in range(len(ends)):
        # 2. where each bucket begins
        total, ends[b] = total + ends[b], total
    for e in range(len(source)):
        i = np.int64(source[e])
        j = np.int64(target[e])
        # 3. scatter: the begin of a bucket moves on and is its end when all are placed
        p = ends[bucket_of[i]]
        ends[bucket_of[i]] = p + 1
        keys[p] = (i << 32) | j
        q = ends[bucket_of[j]]
        ends[bucket_of[j]] = q + 1
        keys[q] = (j << 32) | i
        if values is not None:
            values[p] = weights[e]
            values[q] = weights[e]


@serial
def sort_entries(keys, weights, first_row, indptr, columns, values, rule, factor):
    """Mutates: indptr, columns and values of the rows from ``first_row`` on, sorted: how many are left.

    Entries of the same edge become one by ``rule``: SUM (times ``factor``), MAX or FIRST. Weights of 0 go.
    ``weights`` may be None: all are one.
    """
    n_rows = len(indptr) - 1
    indptr[:] = 0
    for p in range(len(keys)):
        # 1. count the entries of each row
        indptr[(keys[p] >> 32) - first_row + 1] += 1
    longest = 0
    for r in range(n_rows):
        longest = max(longest, indptr[r + 1])
        indptr[r + 1] += indptr[r]
    for p in range(len(keys)):
        # 2. counting sort by row; columns stay as they are listed
        r = (keys[p] >> 32) - first_row
        q = indptr[r]
        indptr[r] = q + 1
        columns[q] = np.int32(keys[p] & 0xFFFFFFFF)
        values[q] = 1.0 if weights is None else weights[p]
    for r in range(n_rows, 0, -1):
        # 3. the pointers moved on to the end of their rows: shift them back
        indptr[r] = indptr[r - 1]
    indptr[0] = 0
    other_columns = np.empty(longest, columns.dtype)
    other_values = np.empty(longest, values.dtype)
    n_left = 0
    begin = indptr[0]
    for r in range(n_rows):
        end = indptr[r + 1]
        # 4. sort each row by columns, and merge entries of the same edge
        sort_row(columns[begin:end], values[begin:end], other_columns, other_values)
        n_left = _merge_row(columns, values, begin, end, n_left, rule, factor)
        begin = end
        indptr[r + 1] = n_left
    return n_left


@inner
def _merge_row(columns, values, begin, end, out, rule, factor):
    """Mutates: one entry per column, moved to ``out``: where the next row goes."""
    p = begin
    while p < end:
        column = columns[p]
        value = values[p]
        p += 1
        # entries of one edge stand side by side now
        while p < end and columns[p] == column:
            if rule == SUM:
                value += values[p]
            elif rule == MAX:
                value = max(value, values[p])
            p += 1
        if rule == SUM:
            value *= factor
        if value != 0:
            columns[out] = column
            values[out] = value
            out += 1
    return out


@inner
def sort_row(columns, values, other_columns, other_values):
    """Mutates: a row, by ascending columns, equal ones as they were (merge sort); the others are scratch."""
    n = len(columns)
    for low in range(0, n, RUN):
        # insertion sort of runs: equal columns keep their order
        for p in range(low + 1, min(low + RUN, n)):
            column = columns[p]
            value = values[p]
            q = p
            while q > low and columns[q - 1] > column:
                columns[q] = columns[q - 1]
                values[q] = values[q - 1]
                q -= 1
            columns[q] = column
            values[q] = value
    width = RUN
    while width < n:
        for low in range(0, n - width, 2 * width):
            middle = low + width
            high = min(low + 2 * width, n)
            # in order already, as most rows of real files are
            if columns[middle - 1] <= columns[middle]:
                continue
            # the left run moves to scratch, and both are merged in its
            # place; the right one is never overtaken
            for p in range(low, middle):
                other_columns[p - low] = columns[p]
                other_values[p - low] = values[p]
            left = 0
            right = middle
            out = low
            while left < width:
                if right < high and columns[right] < other_columns[left]:
                    columns[out] = columns[right]
                    values[out] = values[right]
                    right += 1
                else:
                    columns[out] = other_columns[left]
                    values[out] = other_values[left]
                    left += 1
                out += 1
        width *= 2


@serial
def spread_labels(first, indptr, columns, labels, sizes, most, votes, touched):
    """Mutates: labels of the rows from ``first`` on, and their sizes; votes (all zero), touched are scratch.

    Each node takes the label most of its neighbours have, if fewer than ``most`` nodes have it: groups of
    neighbours that fit into a cache. Ties go to the label it has, then to the smaller one.
    """
    for r in range(len(indptr) - 1):
        own = labels[first + r]
        n_touched = 0
        for p in range(indptr[r], indptr[r + 1]):
            # votes of the neighbours, and which labels have any: only those are cleared
            label = labels[columns[p]]
            if votes[label] == 0:
                touched[n_touched] = label
                n_touched += 1
            votes[label] += 1
        best = own
        for t in range(n_touched):
            label = touched[t]
            # more votes; ties go to the node's own label, then to the smaller one
            more = votes[label] > votes[best] or (
                votes[label] == votes[best] and best != own and label < best
            )
            if label != own and more and sizes[label] < most:
                best = label
        for t in range(n_touched):
            votes[touched[t]] = 0
        if best != own:
            sizes[own] -= 1
            sizes[best] += 1
            labels[first + r] = best


# --- Listed edges as rows of a symmetric matrix, in place; directions of each edge are counted.


@serial
def scatter_directions(source, target, weights, starts, keys, values):
    """Mutates: starts of the rows (n + 1, int64), and entries of both directions: keys (uint32) and values.

    A key is twice the column, and one more where the edge is listed the other way. Inside a row entries stand
    as they are listed. Without weights (None) values stay what they were. Loops are left out: returns
    how many, and the first.
    """
    starts[:] = 0
    n_loops = 0
    first_loop = -1
    n_rows = len(starts) - 1
    for e in range(len(source)):
        i = source[e]
        j = target[e]
        if i != j:
            # 1. count both directions of each edge that is no loop
            starts[i + 1] += 1
            starts[j + 1] += 1
        else:
            first_loop = e if n_loops == 0 else first_loop
            n_loops += 1
    for r in range(n_rows):
        starts[r + 1] += starts[r]
    for e in range(len(source)):
        i = source[e]
        j = target[e]
        if i == j:
            continue
        # 2. place them: the key's lowest bit says in which direction the edge was listed
        p = starts[i]
        q = starts[j]
        starts[i] = p + 1
        starts[j] = q + 1
        keys[p] = 2 * j
        keys[q] = 2 * i + 1
        if weights is not None:
            values[p] = values[q] = weights[e]
    for r in range(n_rows, 0, -1):
        starts[r] = starts[r - 1]
    starts[0] = 0
    return n_loops, first_loop


@serial
def merge_directions(first, last, starts, keys, values, sizes):
    """Mutates: rows ``first : last``: sorted, one entry per column at the begin of each; sizes of the rows.

    An entry becomes its column and the sum of both directions; those of weight 0 go. Returns how many were
    listed in the direction of their row, in both, and with another weight in one than in the other (or none).
    """
    longest = 0
    for r in range(first, last):
        longest = max(longest, starts[r + 1] - starts[r])
    other_keys = np.empty(longest, keys.dtype)
    other_values = np.empty(longest, values.dtype)
    n_listed = 0
    n_both = 0
    n_unequal = 0
    for r in range(first, last):
        p = starts[r]
        end = starts[r + 1]
        # by column, and for one column forward before backward
        sort_row(keys[p:end], values[p:end], other_keys, other_values)
        out = p
        while p < end:
            column = keys[p] >> np.uint32(1)
            ways = 0
            forward = 0.0
            backward = 0.0
            while p < end and keys[p] >> np.uint32(1) == column:
                if keys[p] & np.uint32(1):
                    backward = backward + values[p]
                    ways = ways | 2
                else:
                    forward = forward + values[p]
                    ways = ways | 1
                p += 1
            n_listed += ways != 2
            n_both += ways == 3
            # listed in one direction only, backward is 0: unequal as well
            n_unequal += forward != backward
            keys[out] = column
            values[out] = forward + backward
            out += forward + backward != 0
        sizes[r] = out - starts[r]
    return n_listed, n_both, n_unequal


@serial
def close_gaps(starts, sizes, keys, values):
    """Mutates: rows of these sizes, wherever they begin, are moved together; starts are those of before."""
    total = 0
    for r in range(len(sizes)):
        begin = starts[r]
        starts[r] = total
        for p in range(begin, begin + sizes[r]):
            keys[total] = keys[p]
            values[total] = values[p]
            total += 1
    starts[len(sizes)] = total


# --- Rows of a stored graph with the changes that were made since.


@serial
def merge_rows(rows, old_weights, changes, one, indptr, columns, weights):
    """Mutates: indptr, columns and weights become the rows with their changes; how many entries there are.

    ``rows`` are row pointers and columns (ascending in each row), ``changes`` those of the same rows with
    their weights; ``old_weights`` may be None: all are ``one``. A changed entry takes the place of the one
    that is there, or a place of its own; with a weight of zero it goes. The arrays have space for all.
    """
    starts, old_columns = rows
    change_starts, new_columns, new_weights = changes
    n = 0
    indptr[0] = 0
    for i in range(len(starts) - 1):
        e = starts[i]
        end = starts[i + 1]
        for c in range(change_starts[i], change_starts[i + 1]):
            # 1. old entries before the changed one
            while e < end and old_columns[e] < new_columns[c]:
                columns[n] = old_columns[e]
                weights[n] = one if old_weights is None else old_weights[e]
                e = e + 1
                n = n + 1
            # 2. the changed one takes the place of the old, or goes
            if e < end and old_columns[e] == new_columns[c]:
                e += 1
            if new_weights[c] != 0:
                columns[n] = new_columns[c]
                weights[n] = new_weights[c]
                n += 1
        while e < end:
            columns[n] = old_columns[e]
            weights[n] = one if old_weights is None else old_weights[e]
            e = e + 1
            n = n + 1
        indptr[i + 1] = n
    return n
