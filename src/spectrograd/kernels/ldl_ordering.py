"""The quotient graph: what elimination leaves of a graph, in the memory that the graph took.

An eliminated pivot is an *element*, which stands for the clique of its variables; a variable's list holds its
elements first, then the variables it still neighbours by an edge of its own. Lists only shrink.
"""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels.jit import inner, serial

NONE = -1
# What is known of a vertex is half a cache line: where the list begins, its entries, those of them that
# are elements; vertices the variable stands for (negative in the newest element, 0 where it is none any
# more); its degree; a mark (0 where an element was absorbed); its hash, and who follows in that bucket.
FIELDS = ("start", "length", "elements", "width", "degree", "mark", "key", "next")
VERTEX = np.dtype([(field, np.int32) for field in FIELDS], align=True)
MAX_FLAG = 2**30  # of a mark, which is int32: flags grow with each pivot


@inner
def copy_graph(indptr, indices, table, lists):
    """Mutates: table, lists, which become those of a graph without elements. Where free space begins."""
    end = 0
    for i in range(len(table)):
        own = table[i]
        start = end
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
    """Mutates: table, lists. Lists in use move together; returns where free space begins."""
    for j in range(len(table)):
        own = table[j]
        if own.length > 0 and own.mark != 0:
            p = own.start
            own.start = lists[p]  # its first entry waits here, and its owner stands there
            lists[p] = -j - 2
    source = 0
    end = 0
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
    n_elements = pivot.elements
    own = pivot.start
    n_own = pivot.length - n_elements
    first = own if n_elements == 0 else free
    end = first
    degree = 0
    pivot.width = -pivot.width
    # the union of the pivot's elements (absorbed by the new one) and of its own edges
    for k in range(n_elements + 1):
        p = own + k
        length = n_own
        if k < n_elements:
            e = lists[own + k]
            element = table[e]
            p = element.start
            length = element.length
            parent[e] = me
            element.mark = 0
        for q in range(p, p + length):
            i = lists[q]
            other = table[i]
            width = other.width
            # not yet in the union; a negative width marks those that are
            if width > 0:
                degree += width
                other.width = -width
                lists[end] = i
                end += 1
    pivot.start = first
    pivot.length = end - first
    pivot.elements = NONE
    return first, end, degree


@inner
def measure_outside(table, lists, first, last, flag):
    """Mutates: marks; that of an element becomes ``flag`` + how much of it lies outside the new one."""
    for p in range(first, last):
        own = table[lists[p]]
        start = own.start
        width = -own.width
        for q in range(start, start + own.elements):
            element = table[lists[q]]
            mark = element.mark
            # met before in this round: one more variable of it lies inside the new element
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
        stop = start + own.length
        middle = start + own.elements
        end = start
        degree = 0
        key = 0
        for q in range(start, middle):
            e = lists[q]
            element = table[e]
            mark = element.mark
            # |Le \ Lp|: what the element has outside of the new one (Amestoy et al. 1996, Algorithm 2)
            if mark > flag:
                degree += mark - flag
                lists[end] = e
                end += 1
                key += e
            elif mark != 0:  # it lies within the new one
                parent[e] = me
                element.mark = 0
        own.elements = end - start + 1
        edges = end
        for q in range(middle, stop):
            j = lists[q]
            # edges to variables inside the new element are covered by it, and dropped
            width = table[j].width
            if width > 0:
                degree += width
                lists[end] = j
                end += 1
                key += j
        # mass elimination: no neighbour but the new element
        if degree == 0:
            into[i] = me
            went -= own.width
            own.width = own.length = 0
            continue
        own.degree = min(own.degree, degree)
        # the new element takes the first place of the list; the two it displaces move behind
        lists[end], lists[edges], lists[start] = lists[edges], lists[start], me
        own.length = end - start + 1
        # equal lists have equal sums: only variables of one bucket are compared
        key %= len(bucket)
        own.next = bucket[key]
        own.key = key
        bucket[key] = i
    return went


@inner
def join_equals(table, lists, bucket, into, first, last, flag):
    """Mutates: all. Variables with the same lists become one; returns the next flag."""
    for p in range(first, last):
        own = table[lists[p]]
        if own.width == 0:
            continue
        key = own.key
        i = bucket[key]
        bucket[key] = NONE
        while i != NONE:
            own = table[i]
            if own.next == NONE:
                break
            start = own.start
            length = own.length
            # mark the list of i, and compare it with the others of its bucket
            for q in range(start + 1, start + length):
                table[lists[q]].mark = flag
            before = i
            j = own.next
            while j != NONE:
                other = table[j]
                same = other.length == length and other.elements == own.elements
                q = other.start + 1
                stop = other.start + length
                while same and q < stop:
                    same = table[lists[q]].mark == flag
                    q += 1
                # indistinguishable: j is eliminated together with i from now on
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
def unused_flag(table, flag):
    """Mutates: marks, where the flag would overflow. A flag that no mark has reached."""
    if flag < MAX_FLAG:
        return flag
    for i in range(len(table)):
        if table[i].mark != 0:
            table[i].mark = 1
    return 2


# --- A fill-reducing order: approximate minimum degree (Amestoy, Davis and Duff 1996).

TICKET = np.dtype([("node", np.int32), ("below", np.int32)])  # a variable, the ticket below it on the pile


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


def minimum_degree(indptr: np.ndarray, indices: np.ndarray) -> Pivots:
    """The pivots of a graph; a symmetric pattern, of which the diagonal is left out."""
    n = len(indptr) - 1
    n_entries = len(indices)
    table = np.zeros(n, VERTEX)
    lists = np.empty(n_entries + n_entries // 5 + 2 * n + 1, np.int32)  # with a fifth of free space
    into, parent, head, bucket = (np.full(n + 1, NONE, np.int32) for _ in range(4))
    tickets = np.empty(3 * n + 1, TICKET)  # ticket 0 says which is the next
    order = np.empty(n, np.int32)
    args = (indptr, indices, table, lists, tickets, (into, parent, head, bucket), order)
    n_pivots, n_hubs = _eliminate(*args)
    return Pivots(order[:n_pivots], into, parent, table["width"].copy(), table["degree"].copy(), n_hubs)


@serial
def _eliminate(indptr, indices, table, lists, tickets, links, order):
    """Mutates: all but the graph. How many pivots there are, and how many of them are hubs."""
    into, parent, head, bucket = links
    free = copy_graph(indptr, indices, table, lists)
    n_hubs = _exclude_hubs(table, order)
    _file_all(table, tickets, head)
    n = len(table)
    n_pivots = 0
    left = n - n_hubs
    longest = 0
    # int64, because numba would compile a version of its own for a constant
    least = np.int64(0)
    flag = np.int64(2)
    while left > 0:
        # 1. the variable of least (approximate) degree is the pivot
        me, least = _next_pivot(table, tickets, head, least)
        pivot = table[me]
        in_place = pivot.elements == 0
        if not in_place and free + least >= len(lists):
            free = compress(table, lists, free)
        # 2. its neighbours become the new element, Lp
        first, last, degree = new_element(table, lists, parent, me, free)
        # 3. how much of each old element lies outside Lp
        measure_outside(table, lists, first, last, flag)
        # 4. new lists and degree bounds of the variables of Lp
        went = update_degrees(table, lists, bucket, into, parent, me, first, last, flag)
        degree -= went
        longest = max(longest, degree)
        flag = unused_flag(table, flag + longest)
        # 5. variables with equal lists become one
        flag = unused_flag(table, join_equals(table, lists, bucket, into, first, last, flag))
        width = went - pivot.width
        left -= width
        # 6. tickets for the new degrees; void ones are thrown away when the pile is full
        if tickets[0].node + last - first > len(tickets):
            _file_all(table, tickets, head)
        least, end = _file_again(table, lists, tickets, head, first, last, degree, left, least)
        if not in_place:
            free = end
        pivot.width = width
        pivot.degree = degree
        pivot.length = end - first
        if end == first:
            pivot.mark = 0  # nothing depends on it any more: a root
        order[n_pivots] = me
        n_pivots += 1
    for h in range(n_hubs):  # they wait at the end of the array
        i = order[n - n_hubs + h]
        table[i].width = 1
        table[i].degree = 0
        order[n_pivots + h] = i
    return n_pivots + n_hubs, n_hubs


@inner
def _exclude_hubs(table, order):
    """Mutates: table, order, at the end of which vertices of very many neighbours wait: their number."""
    n = len(table)
    many = max(16, int(10 * np.sqrt(n)))
    n_hubs = 0
    for r in range(n):
        i = n - 1 - r
        own = table[i]
        if own.degree > many:
            n_hubs += 1
            order[n - n_hubs] = i
            own.width = own.length = 0
    return n_hubs


@inner
def _file(tickets, head, i, degree):
    """Mutates: tickets, head. A ticket for variable i on the pile of its degree; its older ones are void."""
    t = tickets[0].node
    ticket = tickets[t]
    ticket.node = i
    ticket.below = head[degree]
    head[degree] = t
    tickets[0].node = t + 1


@inner
def _file_all(table, tickets, head):
    """Mutates: tickets, head. One ticket for every variable outside the newest element."""
    for degree in range(len(head)):
        head[degree] = NONE
    tickets[0].node = 1
    for r in range(len(table)):
        i = len(table) - 1 - r
        own = table[i]
        if own.width > 0 and own.elements >= 0:
            _file(tickets, head, i, np.int64(own.degree))


@inner
def _next_pivot(table, tickets, head, least):
    """Mutates: head. The variable of the first valid ticket, and its degree."""
    while True:
        while head[least] == NONE:
            least += 1
        t = head[least]
        head[least] = tickets[t].below
        i = np.int64(tickets[t].node)
        own = table[i]
        # a ticket of an older degree, or of a variable that is gone, is void
        if own.degree == least and own.width > 0 and own.elements >= 0:
            return i, least


@inner
def _file_again(table, lists, tickets, head, first, last, degree, left, least):
    """Mutates: table, lists, head. The element's variables get tickets for their new degrees."""
    end = first
    for p in range(first, last):
        i = np.int64(lists[p])
        own = table[i]
        width = -own.width
        if width > 0:
            own.width = width
            # the bound of Amestoy et al. (1996, Eq. 4.2), and no more than is left
            bound = min(own.degree + degree - width, left - width)
            own.degree = bound
            _file(tickets, head, i, bound)
            least = min(least, bound)
            lists[end] = i
            end += 1
    return least, end
