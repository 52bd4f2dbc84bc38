"""A fill-reducing order: approximate minimum degree (Amestoy, Davis and Duff 1996)."""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels.jit import inner, serial
from spectrograd.kernels.ldl.quotient import (
    NONE,
    VERTEX,
    compress,
    copy_graph,
    fresh,
    join_equals,
    measure_outside,
    new_element,
    update_degrees,
)

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
    n, n_entries = len(indptr) - 1, len(indices)
    table = np.zeros(n, VERTEX)
    lists = np.empty(n_entries + n_entries // 5 + 2 * n + 1, np.int32)  # with elbow room
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
    n_hubs = _set_hubs_aside(table, order)
    _file_all(table, tickets, head)
    n = len(table)
    n_pivots, left, longest = 0, n - n_hubs, 0
    least, flag = np.int64(0), np.int64(2)  # of a constant, numba would compile a version of its own
    while left > 0:
        me, least = _next_pivot(table, tickets, head, least)
        pivot = table[me]
        in_place = pivot.elements == 0
        if not in_place and free + least >= len(lists):
            free = compress(table, lists, free)
        first, last, degree = new_element(table, lists, parent, me, free)
        measure_outside(table, lists, first, last, flag)
        went = update_degrees(table, lists, bucket, into, parent, me, first, last, flag)
        degree -= went
        longest = max(longest, degree)
        flag = fresh(table, flag + longest)
        flag = fresh(table, join_equals(table, lists, bucket, into, first, last, flag))
        width = went - pivot.width
        left -= width
        if tickets[0].node + last - first > len(tickets):
            _file_all(table, tickets, head)
        least, end = _file_again(table, lists, tickets, head, first, last, degree, left, least)
        if not in_place:
            free = end
        pivot.width, pivot.degree, pivot.length = width, degree, end - first
        if end == first:
            pivot.mark = 0  # nothing depends on it any more: a root
        order[n_pivots] = me
        n_pivots += 1
    for h in range(n_hubs):  # they wait at the end of the array
        i = order[n - n_hubs + h]
        table[i].width, table[i].degree = 1, 0
        order[n_pivots + h] = i
    return n_pivots + n_hubs, n_hubs


@inner
def _set_hubs_aside(table, order):
    """Mutates: table, order, at the end of which vertices of very many neighbours wait: their number."""
    n = len(table)
    many, n_hubs = max(16, int(10 * np.sqrt(n))), 0
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
    ticket.node, ticket.below, head[degree] = i, head[degree], t
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
            bound = min(own.degree + degree - width, left - width)
            own.degree = bound
            _file(tickets, head, i, bound)
            least = min(least, bound)
            lists[end] = i
            end += 1
    return least, end
