"""The quotient graph: what elimination leaves of a graph, in the memory that the graph took.

An eliminated pivot is an *element*, which stands for the clique of its variables; a variable's list holds its
elements first, then the variables it still neighbours by an edge of its own. Lists only shrink.
"""

import numpy as np

from spectrograd.kernels.jit import inner

NONE = -1
# What is known of a vertex is half a cache line: where the list begins, its entries, those of them that
# are elements; vertices the variable stands for (negative in the newest element, 0 where it is none any
# more); its degree; a mark (0 where an element was absorbed); its hash, and who follows in that bucket.
FIELDS = ("start", "length", "elements", "width", "degree", "mark", "key", "next")
VERTEX = np.dtype([(field, np.int32) for field in FIELDS], align=True)
MOST = 2**30


@inner
def copy_graph(indptr, indices, table, lists):
    """Mutates: table, lists, which become those of a graph without elements. Where free space begins."""
    end = 0
    for i in range(len(table)):
        own, start = table[i], end
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] != i:
                lists[end] = indices[p]
                end += 1
        own.start = start
        own.length = own.degree = end - start
        own.width = own.mark = 1
    return end


@inner
def compress(table, lists, free):
    """Mutates: table, lists. Living lists move together; returns where free space begins."""
    for j in range(len(table)):
        own = table[j]
        if own.length > 0 and own.mark != 0:
            p = own.start
            own.start = lists[p]  # its first entry waits here, and its owner stands there
            lists[p] = -j - 2
    source, end = 0, 0
    while source < free:
        j = -lists[source] - 2
        source += 1
        if j >= 0:
            own = table[j]
            lists[end] = own.start
            own.start = end
            for q in range(1, own.length):
                lists[end + q] = lists[source + q - 1]
            end += own.length
            source += own.length - 1
    return end


@inner
def new_element(table, lists, parent, me, free):
    """Mutates: all. The neighbours of pivot me, by edges and elements, which it absorbs: where, how many."""
    pivot = table[me]
    n_elements, own = pivot.elements, pivot.start
    n_own = pivot.length - n_elements
    first = own if n_elements == 0 else free
    end, degree = first, 0
    pivot.width = -pivot.width
    for k in range(n_elements + 1):
        p, length = own + k, n_own
        if k < n_elements:
            e = lists[own + k]
            element = table[e]
            p, length = element.start, element.length
            parent[e], element.mark = me, 0
        for q in range(p, p + length):
            i = lists[q]
            other = table[i]
            width = other.width
            if width > 0:
                degree += width
                other.width = -width
                lists[end] = i
                end += 1
    pivot.start, pivot.length, pivot.elements = first, end - first, NONE
    return first, end, degree


@inner
def measure_outside(table, lists, first, last, flag):
    """Mutates: marks; that of an element becomes ``flag`` + how much of it lies outside the new one."""
    for p in range(first, last):
        own = table[lists[p]]
        start, width = own.start, -own.width
        for q in range(start, start + own.elements):
            element = table[lists[q]]
            mark = element.mark
            if mark >= flag:
                element.mark = mark - width
            elif mark != 0:
                element.mark = element.degree + flag - width


@inner
def update_degrees(table, lists, bucket, into, parent, me, first, last, flag):
    """Mutates: all. Prune the lists of the element's variables, bound their degrees, file them by a hash.

    A variable without other neighbours goes with the pivot: returns how many vertices do.
    """
    went = 0
    for p in range(first, last):
        i = lists[p]
        own = table[i]
        start = own.start
        stop, middle = start + own.length, start + own.elements
        end, degree, key = start, 0, 0
        for q in range(start, middle):
            e = lists[q]
            element = table[e]
            mark = element.mark
            if mark > flag:
                degree += mark - flag
                lists[end] = e
                end += 1
                key += e
            elif mark != 0:  # it lies within the new one
                parent[e], element.mark = me, 0
        own.elements = end - start + 1
        edges = end
        for q in range(middle, stop):
            j = lists[q]
            width = table[j].width
            if width > 0:
                degree += width
                lists[end] = j
                end += 1
                key += j
        if degree == 0:
            into[i] = me
            went -= own.width
            own.width = own.length = 0
            continue
        own.degree = min(own.degree, degree)
        lists[end], lists[edges], lists[start] = lists[edges], lists[start], me
        own.length = end - start + 1
        key %= len(bucket)
        own.next, own.key, bucket[key] = bucket[key], key, i
    return went


@inner
def join_equals(table, lists, bucket, into, first, last, flag):
    """Mutates: all. Variables with the same lists become one; returns the next flag."""
    for p in range(first, last):
        own = table[lists[p]]
        if own.width == 0:
            continue
        key = own.key
        i, bucket[key] = bucket[key], NONE
        while i != NONE:
            own = table[i]
            if own.next == NONE:
                break
            start, length = own.start, own.length
            for q in range(start + 1, start + length):
                table[lists[q]].mark = flag
            before, j = i, own.next
            while j != NONE:
                other = table[j]
                same = other.length == length and other.elements == own.elements
                q, stop = other.start + 1, other.start + length
                while same and q < stop:
                    same = table[lists[q]].mark == flag
                    q += 1
                if same:
                    into[j] = i
                    own.width += other.width
                    other.width = other.length = 0
                    table[before].next = other.next
                else:
                    before = j
                j = other.next
            flag += 1
            i = own.next
    return flag


@inner
def fresh(table, flag):
    """Mutates: marks, where the flag would overflow. A flag that no mark has reached."""
    if flag < MOST:
        return flag
    for i in range(len(table)):
        if table[i].mark != 0:
            table[i].mark = 1
    return 2
