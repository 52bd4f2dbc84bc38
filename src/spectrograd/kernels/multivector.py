"""Dense kernels on multivectors: Gram matrices in float64, products with small matrices, orthogonalisation.

A reduction sums over chunks of a fixed number of rows and then adds the chunks in order, so that the bits do
not depend on the number of threads.
"""

from typing import Any

import numba
import numpy as np

from spectrograd.kernels.jit import inner, parallel, serial
from spectrograd.kernels.simd import WIDTH, narrow, nothing, put, put_first, take, take_first, take_one, wide


@inner
def sum_chunks(partial):
    """The sum over chunks, in order.

    A function of its own: in a parallel kernel numba would wake the threads for every ``+=`` of two arrays,
    which takes longer than the chunks themselves.
    """
    total = np.zeros(partial.shape[1:])
    sums = total.reshape(total.size)
    parts = partial.reshape(partial.size)
    for c in range(partial.shape[0]):
        for k in range(sums.size):
            sums[k] += parts[c * sums.size + k]
    return total


@inner
def add_rows_from(first, near, rest):
    """Mutates: ``rest`` plus ``near``, of which rows before ``first`` hold nothing."""
    for j in range(first, rest.shape[0]):
        for k in range(rest.shape[1]):
            rest[j, k] += near[j, k]
    return rest


# --- Gram matrices in float64, combinations and residuals of multivectors of few columns.

CHUNK = 512  # rows of a chunk, whose sums are one K x K matrix


def as_weights(metric: Any, dtype: Any = np.float64) -> Any:
    """A metric as the kernels here take it: one type for all, none at all is an empty one.

    Otherwise each of them would be compiled for a metric that may be written, for one that may not, and for
    none.
    """
    weights = np.empty(0, dtype) if metric is None else np.ascontiguousarray(metric, dtype=dtype).view()
    weights.flags.writeable = False
    return weights


@parallel
def gram(U, V, metric, symmetric):
    """``U' diag(metric) V`` accumulated in float64; ``metric`` as :func:`as_weights` has it.

    Of a product that is ``symmetric`` only the upper half is formed, and mirrored.
    """
    n_rows, n_left = U.shape
    n_right = V.shape[1]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    partial = np.zeros((n_chunks, n_left, n_right))
    for c in numba.prange(n_chunks):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        for b in range(0, n_right, WIDTH):
            width = min(WIDTH, n_right - b)
            for a in range(0, min(n_left, b + width) if symmetric else n_left, 4):
                # four columns of U by eight of V: 32 sums fit the registers
                _gram_block(U, V, metric, rows, (a, min(4, n_left - a)), (b, width), partial[c])
    total = sum_chunks(partial)
    if symmetric:
        for i in range(n_left):
            for j in range(i):
                total[i, j] = total[j, i]
    return total


@inner
def _gram_block(U, V, metric, rows, left, right, out):
    """Mutates: a block of at most 4 x 8 sums in ``out``, kept in registers meanwhile."""
    (a, height) = left
    (b, width) = right
    zero = nothing(out)
    first = zero
    second = zero
    third = zero
    fourth = zero
    for i in range(rows[0], rows[1]):
        if width == WIDTH:
            row = wide(take(V, i, b))
        else:
            row = wide(take_first(V, i, b, width))
        if metric.shape[0] > 0:
            # row i of diag(metric) V, in float64; each of four columns of U multiplies it
            row = row * metric[i]
        first = first + U[i, a] * row
        if height > 1:
            second = second + U[i, a + 1] * row
        if height > 2:
            third = third + U[i, a + 2] * row
        if height > 3:
            fourth = fourth + U[i, a + 3] * row
    put_first(out, a, b, width, first)
    if height > 1:
        put_first(out, a + 1, b, width, second)
    if height > 2:
        put_first(out, a + 2, b, width, third)
    if height > 3:
        put_first(out, a + 3, b, width, fourth)


@parallel
def combine(U, C, V, E):
    """``U C + V E`` for multivector U, V and small C, E; V and E may be None.

    No library threads to fight with, and the same bits for any number of them.
    """
    n_rows = U.shape[0]
    n_right = C.shape[1]
    out = np.empty((n_rows, n_right), U.dtype)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        end = min(n_rows, (c + 1) * CHUNK)
        for i in range(c * CHUNK, end, 4):
            for b in range(0, n_right, WIDTH):
                # four rows by eight columns at a time
                _four_rows(U, C, V, E, i, min(4, end - i), (b, min(WIDTH, n_right - b)), out)
    return out


@inner
def _four_rows(U, C, V, E, i, height, columns, out):
    """Mutates: at most four rows of ``U C + V E`` at once, so that no sum waits for itself."""
    b, width = columns
    last = i + height - 1
    second = min(i + 1, last)
    third = min(i + 2, last)
    fourth = min(i + 3, last)
    rows = (i, second, third, fourth)
    zero = nothing(out)
    w, x, y, z = _add_products(U, C, rows, columns, (zero, zero, zero, zero))
    if V is not None:
        w, x, y, z = _add_products(V, E, rows, columns, (w, x, y, z))
    put_first(out, fourth, b, width, z)  # where rows are missing, the last one is written again
    put_first(out, third, b, width, y)
    put_first(out, second, b, width, x)
    put_first(out, i, b, width, w)


@inner
def _add_products(U, C, rows, columns, sums):
    """Sums of four rows, plus those rows of ``U C``."""
    w, x, y, z = sums
    b, width = columns
    for a in range(U.shape[1]):
        # U C as a sum of outer products: entry a of four rows times row a of C
        row = take(C, a, b) if width == WIDTH else take_first(C, a, b, width)
        w = w + take_one(U, rows[0], a) * row
        x = x + take_one(U, rows[1], a) * row
        y = y + take_one(U, rows[2], a) * row
        z = z + take_one(U, rows[3], a) * row
    return w, x, y, z


@parallel
def residual(Q, AQ, values, metric, keep):
    """``A X - B X diag(values)`` for the first columns X of Q, and their squared norms in ``B^-1``.

    ``metric`` as :func:`as_weights` has it. Norms are summed in float64; without ``keep`` they are all
    there is.
    """
    n_rows = Q.shape[0]
    n_columns = values.shape[0]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    out = np.empty((n_rows if keep else 0, n_columns), Q.dtype)
    theta = values.reshape(1, n_columns)
    partial = np.zeros((n_chunks, n_columns))
    for c in numba.prange(n_chunks):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        for b in range(0, n_columns, WIDTH):
            _residual_block(Q, AQ, theta, metric, rows, (b, min(WIDTH, n_columns - b)), out, partial)
    return out, sum_chunks(partial)


@inner
def _residual_block(Q, AQ, theta, metric, rows, columns, out, partial):
    """Mutates: eight columns of one chunk's rows in ``out``, if it has rows, and of its norms."""
    start, width = columns
    squares = nothing(partial)
    shift = take_first(theta, 0, start, width)
    for i in range(rows[0], rows[1]):
        b = np.float64(metric[i]) if metric.shape[0] > 0 else 1.0
        own = take_first(Q, i, start, width)
        product = take_first(AQ, i, start, width)
        # A q - theta b q in float64; its square over b is the norm in B^-1
        r = wide(product) - b * shift * wide(own)
        squares = squares + r * r / b
        if out.shape[0] > 0:
            put_first(out, i, start, width, narrow(r, own))
    put_first(partial, rows[0] // CHUNK, start, width, squares)


# --- Products of rows with a table, each row by itself: what BLAS makes of a row depends on its company.

STRIP = 8 * WIDTH  # columns of the table whose sums are in registers together


@serial
def row_products(rows, table, products):
    """Mutates: ``products = rows @ table``, every entry summed in the same order whatever the other rows are.

    ``table`` (p x m) and ``products`` (n x m) are padded to whole strips of columns. A strip stays in the
    first cache while all rows pass over it.
    """
    for b in range(0, table.shape[1], STRIP):
        for i in range(rows.shape[0]):
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = nothing(products)
            for j in range(rows.shape[1]):
                x = rows[i, j]
                s0 = s0 + x * take(table, j, b)
                s1 = s1 + x * take(table, j, b + WIDTH)
                s2 = s2 + x * take(table, j, b + 2 * WIDTH)
                s3 = s3 + x * take(table, j, b + 3 * WIDTH)
                s4 = s4 + x * take(table, j, b + 4 * WIDTH)
                s5 = s5 + x * take(table, j, b + 5 * WIDTH)
                s6 = s6 + x * take(table, j, b + 6 * WIDTH)
                s7 = s7 + x * take(table, j, b + 7 * WIDTH)
            put(products, i, b, s0)
            put(products, i, b + WIDTH, s1)
            put(products, i, b + 2 * WIDTH, s2)
            put(products, i, b + 3 * WIDTH, s3)
            put(products, i, b + 4 * WIDTH, s4)
            put(products, i, b + 5 * WIDTH, s5)
            put(products, i, b + 6 * WIDTH, s6)
            put(products, i, b + 7 * WIDTH, s7)


# --- Vectors that follow one another, stored as rows: orthogonal to all before them, and rotated in place.

KRYLOV_CHUNK = 1024  # nodes of a chunk: eight rows of them stay in a core's first cache


@parallel
def orthogonalize(Q, first, count, width):
    """Mutates: ``width`` rows of Q from ``count`` on become orthogonal to those before them.

    Returns their coefficients and then their own inner products. Rows from ``first`` on, which hold nearly
    all of them, are taken out before the rest is measured: one round for the others is then enough.
    """
    n_chunks = (Q.shape[1] + KRYLOV_CHUNK - 1) // KRYLOV_CHUNK
    zero = np.int64(0)  # numba would make a type of 0 and compile all below once more
    partial = np.zeros((n_chunks, count + width, width))
    for c in numba.prange(n_chunks):
        # 1. coefficients of the last rows, which hold nearly all of the projection
        _products(Q, _span(Q, c), (first, count), count, partial[c])
    near = sum_chunks(partial)
    for c in numba.prange(n_chunks):
        # 2. take them out, and measure what is left along all rows: "twice is enough" (Parlett 1998, 6.9)
        _subtract(Q, _span(Q, c), first, count, near)
        _products(Q, _span(Q, c), (zero, count), count, partial[c])
    rest = sum_chunks(partial)
    for c in numba.prange(n_chunks):
        # 3. take that out; inner products of the remainder
        _subtract(Q, _span(Q, c), zero, count, rest)
        _products(Q, _span(Q, c), (count, count + width), count, partial[c])
    return add_rows_from(first, near, rest[:count]), sum_chunks(partial)[count:]


@parallel
def rotate(Q, Y):
    """Mutates: the first rows of Q become ``Y' Q``, for as many rows of Q as Y has."""
    used, kept = Y.shape
    for c in numba.prange((Q.shape[1] + KRYLOV_CHUNK - 1) // KRYLOV_CHUNK):
        span = _span(Q, c)
        rows = np.zeros((kept, KRYLOV_CHUNK), Q.dtype)
        for j in range(0, used, 4):
            for a in range(kept):
                # rows of Y'Q for these nodes, four rows of Q at a time, in a
                # buffer: Q is written when all are known
                _add_four(rows, a, span[0], Q, j, used, span, Y, a, 1.0)
        for a in range(kept):
            for i in range(span[0], span[1]):
                Q[a, i] = rows[a, i - span[0]]


@inner
def _span(Q, c):
    """The nodes of a chunk."""
    return c * KRYLOV_CHUNK, min(Q.shape[1], (c + 1) * KRYLOV_CHUNK)


@inner
def _products(Q, span, rows, count, out):
    """Mutates: ``out_jk = q_j' w_k`` over one chunk for j in ``rows``, where w_0 is row ``count``."""
    width = out.shape[1]
    sums = np.empty((4, WIDTH), Q.dtype)
    if width < 4:
        for j in range(rows[0], rows[1], 4):
            for k in range(width):
                _four_products(Q, span, j, rows[1], count + k, sums)
                for a in range(min(4, rows[1] - j)):
                    out[j + a, k] = _all_lanes(sums, a)
    else:
        for j in range(rows[0], rows[1]):
            for k in range(0, width, 4):
                _four_products(Q, span, count + k, count + width, j, sums)
                for a in range(min(4, width - k)):
                    out[j, k + a] = _all_lanes(sums, a)


@inner
def _all_lanes(sums, a):
    """The sum of a row of eight, number by number: numba's own sum takes longer to compile."""
    total = sums[a, 0]
    for lane in range(1, WIDTH):
        total += sums[a, lane]
    return total


@inner
def _four_products(Q, span, four, end, one, sums):
    """Mutates: products of row ``one`` with rows from ``four`` on, as sums of eight lanes.

    Rows from ``end`` on are not looked at: the last one takes their place.
    """
    w = four
    x = min(four + 1, end - 1)
    y = min(four + 2, end - 1)
    z = min(four + 3, end - 1)
    a = b = c = d = nothing(Q)
    whole = span[1] - (span[1] - span[0]) % WIDTH
    for i in range(span[0], whole, WIDTH):
        q = take(Q, one, i)
        a = a + q * take(Q, w, i)
        b = b + q * take(Q, x, i)
        c = c + q * take(Q, y, i)
        d = d + q * take(Q, z, i)
    rest = span[1] - whole
    if rest > 0:
        q = take_first(Q, one, whole, rest)
        a = a + q * take_first(Q, w, whole, rest)
        b = b + q * take_first(Q, x, whole, rest)
        c = c + q * take_first(Q, y, whole, rest)
        d = d + q * take_first(Q, z, whole, rest)
    put(sums, 0, 0, a)
    put(sums, 1, 0, b)
    put(sums, 2, 0, c)
    put(sums, 3, 0, d)


@inner
def _subtract(Q, span, first, count, coefficients):
    """Mutates: ``w_k -= sum_j c_jk q_j`` over one chunk for j from ``first`` to ``count``."""
    nowhere = np.int64(0)
    for j in range(first, count, 4):
        for k in range(coefficients.shape[1]):
            _add_four(Q, count + k, nowhere, Q, j, count, span, coefficients, k, -1.0)


@inner
def _add_four(target, row, shift, Q, j, end, span, coefficients, k, sign):
    """Mutates: a row of ``target``, whose columns lag by ``shift``: plus ``sign sum_j c_jk q_j``, four j."""
    x = min(j + 1, end - 1)
    y = min(j + 2, end - 1)
    z = min(j + 3, end - 1)
    number = target.dtype.type
    a = number(sign * coefficients[j, k])
    b = number(sign * coefficients[x, k] if j + 1 < end else 0.0)
    c = number(sign * coefficients[y, k] if j + 2 < end else 0.0)
    d = number(sign * coefficients[z, k] if j + 3 < end else 0.0)
    whole = span[1] - (span[1] - span[0]) % WIDTH
    for i in range(span[0], whole, WIDTH):
        # a sum of four products, in pairs: the second pair need not wait for the first
        more = (a * take(Q, j, i) + b * take(Q, x, i)) + (c * take(Q, y, i) + d * take(Q, z, i))
        put(target, row, i - shift, take(target, row, i - shift) + more)
    rest = span[1] - whole
    if rest > 0:
        more = a * take_first(Q, j, whole, rest) + b * take_first(Q, x, whole, rest)
        more = more + (c * take_first(Q, y, whole, rest) + d * take_first(Q, z, whole, rest))
        old = take_first(target, row, whole - shift, rest)
        put_first(target, row, whole - shift, rest, old + more)
