"""The quotient graph: what elimination leaves of a graph, in the memory that the graph took.

An eliminated pivot is an *element*, which stands for the clique of its variables; a variable's list holds its
elements first, then the variables it still neighbours by an edge of its own. Lists only shrink.
"""

from spectrograd.kernels._jit import inner

NONE = -1
# A row of the table, which is half a cache line: where the list begins, its entries, those of them that
# are elements; vertices the variable stands for (negative in the newest element, 0 where it is none any
# more); its degree; a mark (0 where an element was absorbed); its hash, and who follows in that bucket.
START, LENGTH, ELEMENTS, WIDTH, DEGREE, MARK, KEY, NEXT = range(8)
MOST = 2**30


@inner
def copy_graph(indptr, indices, table, lists):
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
def compress(table, lists, free):
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
def new_element(table, lists, parent, me, free):
    """Mutates: all. The neighbours of pivot me, by edges and elements, which it absorbs: where, how many."""
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
def measure_outside(table, lists, first, last, flag):
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
def update_degrees(table, lists, bucket, into, parent, me, first, last, flag):
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
def join_equals(table, lists, bucket, into, first, last, flag):
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
def fresh(table, flag):
    """Mutates: marks, where the flag would overflow. A flag that no mark has reached."""
    if flag < MOST:
        return flag
    for i in range(len(table)):
        if table[i, MARK] != 0:
            table[i, MARK] = 1
    return 2
