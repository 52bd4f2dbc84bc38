"""A fill-reducing order: approximate minimum degree (Amestoy, Davis and Duff 1996).

The graph that elimination leaves is never formed. In the quotient graph an eliminated pivot is an *element*,
which stands for the clique of its variables; a variable's list holds its elements first, then the
variables it still neighbours by an edge of its own. Lists only shrink, so all fit where the graph was.
"""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels._jit import inner, serial

NONE = -1
# A row of the table, which is half a cache line: where the list begins, its entries, those of them that
# are elements; vertices the variable stands for (negative in the newest element, 0 where it is none any
# more); its degree; a mark (0 where an element was absorbed); its hash, and who follows in that bucket.
START, LENGTH, ELEMENTS, WIDTH, DEGREE, MARK, KEY, NEXT = range(8)
NODE, BELOW = range(2)  # a ticket: a variable, and the ticket below it on the pile
MOST = 2**30


class Pivots(NamedTuple):
    """The pivots in order, and their tree.

    Vertices that go together with pivot ``p`` lead to it along ``into`` (-1 at p itself); ``width[p]``
    counts them, p included. ``below[p]`` later vertices are neighbours of the pivot, and the update
    of them is complete when the later pivot ``parent[p]`` (or none, -1) goes. The last ``n_hubs`` have
    so many neighbours that they were left out, and count for nobody's ``below``.
    """

    order: np.ndarray
    into: np.ndarray
    parent: np.ndarray
    width: np.ndarray
    below: np.ndarray
    n_hubs: int


def minimum_degree(indptr, indices):
    """The pivots of a graph; a symmetric pattern, of which the diagonal is left out."""
    n, n_entries = len(indptr) - 1, len(indices)
    table = np.zeros((n, 8), np.int32)
    lists = np.empty(n_entries + n_entries // 5 + 2 * n + 1, np.int32)  # with elbow room
    into, parent, head, bucket = (np.full(n + 1, NONE, np.int32) for _ in range(4))
    tickets = np.empty((3 * n + 1, 2), np.int32)  # ticket 0 says which is the next
    order = np.empty(n, np.int32)
    args = (indptr, indices, table, lists, tickets, (into, parent, head, bucket), order)
    n_pivots, n_hubs = _eliminate(*args)
    return Pivots(order[:n_pivots], into, parent, table[:, WIDTH].copy(), table[:, DEGREE].copy(), n_hubs)


@serial
def _eliminate(indptr, indices, table, lists, tickets, links, order):
    """Mutates: all but the graph. How many pivots there are, and how many of them are hubs."""
    into, parent, head, bucket = links
    free = _copy_graph(indptr, indices, table, lists)
    n_hubs = _set_hubs_aside(table, order)
    _file_all(table, tickets, head)
    n = len(table)
    n_pivots, left, least, flag, longest = 0, n - n_hubs, 0, 2, 0
    while left > 0:
        me, least = _next_pivot(table, tickets, head, least)
        in_place = table[me, ELEMENTS] == 0
        if not in_place and free + least >= len(lists):
            free = _compress(table, lists, free)
        first, last, degree = _new_element(table, lists, parent, me, free)
        _measure_outside(table, lists, first, last, flag)
        went = _update_degrees(table, lists, bucket, into, parent, me, first, last, flag)
        degree -= went
        longest = max(longest, degree)
        flag = _fresh(table, flag + longest)
        flag = _fresh(table, _join_equals(table, lists, bucket, into, first, last, flag))
        width = went - table[me, WIDTH]
        left -= width
        if tickets[0, NODE] + last - first > len(tickets):
            _file_all(table, tickets, head)
        least, end = _file_again(table, lists, tickets, head, first, last, degree, left, least)
        if not in_place:
            free = end
        table[me, WIDTH], table[me, DEGREE], table[me, LENGTH] = width, degree, end - first
        if end == first:
            table[me, MARK] = 0  # nothing depends on it any more: a root
        order[n_pivots] = me
        n_pivots += 1
    for h in range(n_hubs):  # they wait at the end of the array
        i = order[n - n_hubs + h]
        table[i, WIDTH], table[i, DEGREE] = 1, 0
        order[n_pivots + h] = i
    return n_pivots + n_hubs, n_hubs


@inner
def _copy_graph(indptr, indices, table, lists):
    """Mutates: table, lists, which become those of a graph without elements. Where free space begins."""
    end = 0
    for i in range(len(table)):
        table[i, START] = end
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] != i:
                lists[end] = indices[p]
                end += 1
        table[i, LENGTH] = table[i, DEGREE] = end - table[i, START]
        table[i, WIDTH] = table[i, MARK] = 1
    return end


@inner
def _set_hubs_aside(table, order):
    """Mutates: table, order, at the end of which vertices of very many neighbours wait: their number."""
    n = len(table)
    many, n_hubs = max(16, int(10 * np.sqrt(n))), 0
    for r in range(n):
        i = n - 1 - r
        if table[i, DEGREE] > many:
            n_hubs += 1
            order[n - n_hubs] = i
            table[i, WIDTH] = table[i, LENGTH] = 0
    return n_hubs


@inner
def _file(tickets, head, i, degree):
    """Mutates: tickets, head. A ticket for variable i on the pile of its degree; older ones become invalid."""
    t = tickets[0, NODE]
    tickets[t, NODE], tickets[t, BELOW], head[degree] = i, head[degree], t
    tickets[0, NODE] = t + 1


@inner
def _file_all(table, tickets, head):
    """Mutates: tickets, head. One ticket for every variable outside the newest element."""
    for degree in range(len(head)):
        head[degree] = NONE
    tickets[0, NODE] = 1
    for r in range(len(table)):
        i = len(table) - 1 - r
        if table[i, WIDTH] > 0 and table[i, ELEMENTS] >= 0:
            _file(tickets, head, i, table[i, DEGREE])


@inner
def _next_pivot(table, tickets, head, least):
    """Mutates: head. The variable of the first valid ticket, and its degree."""
    while True:
        while head[least] == NONE:
            least += 1
        t = head[least]
        head[least] = tickets[t, BELOW]
        i = tickets[t, NODE]
        if table[i, DEGREE] == least and table[i, WIDTH] > 0 and table[i, ELEMENTS] >= 0:
            return i, least


@inner
def _compress(table, lists, free):
    """Mutates: table, lists. Living lists move together; returns where free space begins."""
    for j in range(len(table)):
        if table[j, LENGTH] > 0 and table[j, MARK] != 0:
            p = table[j, START]
            table[j, START] = lists[p]  # its first entry waits here, and its owner stands there
            lists[p] = -j - 2
    source, end = 0, 0
    while source < free:
        j = -lists[source] - 2
        source += 1
        if j >= 0:
            lists[end] = table[j, START]
            table[j, START] = end
            for q in range(1, table[j, LENGTH]):
                lists[end + q] = lists[source + q - 1]
            end += table[j, LENGTH]
            source += table[j, LENGTH] - 1
    return end


@inner
def _new_element(table, lists, parent, me, free):
    """Mutates: all. The neighbours of pivot me, through its elements (absorbed) and edges: where, how many."""
    n_elements, own = table[me, ELEMENTS], table[me, START]
    n_own = table[me, LENGTH] - n_elements
    first = own if n_elements == 0 else free
    end, degree = first, 0
    table[me, WIDTH] = -table[me, WIDTH]
    for k in range(n_elements + 1):
        p, length = own + k, n_own
        if k < n_elements:
            e = lists[own + k]
            p, length = table[e, START], table[e, LENGTH]
            parent[e], table[e, MARK] = me, 0
        for q in range(p, p + length):
            i = lists[q]
            width = table[i, WIDTH]
            if width > 0:
                degree += width
                table[i, WIDTH] = -width
                lists[end] = i
                end += 1
    table[me, START], table[me, LENGTH], table[me, ELEMENTS] = first, end - first, NONE
    return first, end, degree


@inner
def _measure_outside(table, lists, first, last, flag):
    """Mutates: marks; that of an element becomes ``flag`` + how much of it lies outside the new one."""
    for p in range(first, last):
        i = lists[p]
        start, width = table[i, START], -table[i, WIDTH]
        for q in range(start, start + table[i, ELEMENTS]):
            e = lists[q]
            mark = table[e, MARK]
            if mark >= flag:
                table[e, MARK] = mark - width
            elif mark != 0:
                table[e, MARK] = table[e, DEGREE] + flag - width


@inner
def _update_degrees(table, lists, bucket, into, parent, me, first, last, flag):
    """Mutates: all. Prune the lists of the element's variables, bound their degrees, file them by a hash.

    A variable without other neighbours goes with the pivot: returns how many vertices do.
    """
    went = 0
    for p in range(first, last):
        i = lists[p]
        start = table[i, START]
        stop, middle = start + table[i, LENGTH], start + table[i, ELEMENTS]
        end, degree, key = start, 0, 0
        for q in range(start, middle):
            e = lists[q]
            mark = table[e, MARK]
            if mark > flag:
                degree += mark - flag
                lists[end] = e
                end += 1
                key += e
            elif mark != 0:  # it lies within the new one
                parent[e], table[e, MARK] = me, 0
        table[i, ELEMENTS] = end - start + 1
        edges = end
        for q in range(middle, stop):
            j = lists[q]
            if table[j, WIDTH] > 0:
                degree += table[j, WIDTH]
                lists[end] = j
                end += 1
                key += j
        if degree == 0:
            into[i] = me
            went -= table[i, WIDTH]
            table[i, WIDTH] = table[i, LENGTH] = 0
            continue
        table[i, DEGREE] = min(table[i, DEGREE], degree)
        lists[end], lists[edges], lists[start] = lists[edges], lists[start], me
        table[i, LENGTH] = end - start + 1
        key %= len(bucket)
        table[i, NEXT], table[i, KEY], bucket[key] = bucket[key], key, i
    return went


@inner
def _join_equals(table, lists, bucket, into, first, last, flag):
    """Mutates: all. Variables with the same lists become one; returns the next flag."""
    for p in range(first, last):
        i = lists[p]
        if table[i, WIDTH] == 0:
            continue
        key = table[i, KEY]
        i, bucket[key] = bucket[key], NONE
        while i != NONE and table[i, NEXT] != NONE:
            start, length = table[i, START], table[i, LENGTH]
            for q in range(start + 1, start + length):
                table[lists[q], MARK] = flag
            before, j = i, table[i, NEXT]
            while j != NONE:
                same = table[j, LENGTH] == length and table[j, ELEMENTS] == table[i, ELEMENTS]
                q, stop = table[j, START] + 1, table[j, START] + length
                while same and q < stop:
                    same = table[lists[q], MARK] == flag
                    q += 1
                if same:
                    into[j] = i
                    table[i, WIDTH] += table[j, WIDTH]
                    table[j, WIDTH] = table[j, LENGTH] = 0
                    table[before, NEXT] = table[j, NEXT]
                else:
                    before = j
                j = table[j, NEXT]
            flag += 1
            i = table[i, NEXT]
    return flag


@inner
def _file_again(table, lists, tickets, head, first, last, degree, left, least):
    """Mutates: table, lists, head. The element's variables get tickets for their new degrees."""
    end = first
    for p in range(first, last):
        i = lists[p]
        width = -table[i, WIDTH]
        if width > 0:
            table[i, WIDTH] = width
            bound = min(table[i, DEGREE] + degree - width, left - width)
            table[i, DEGREE] = bound
            _file(tickets, head, i, bound)
            least = min(least, bound)
            lists[end] = i
            end += 1
    return least, end


@inner
def _fresh(table, flag):
    """Mutates: marks, where the flag would overflow. A flag that no mark has reached."""
    if flag < MOST:
        return flag
    for i in range(len(table)):
        if table[i, MARK] != 0:
            table[i, MARK] = 1
    return 2
