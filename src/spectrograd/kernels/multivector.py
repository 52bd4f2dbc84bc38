"""Dense kernels on multivectors: Gram matrices in float64, products with small matrices.

A reduction sums over chunks of a fixed number of rows and then adds the chunks in order, so that the bits do
not depend on the number of threads. Kernels are serial over a range of chunks, which threads of Python share:
numba takes three times as long to compile its own parallel form.
"""

from typing import Any

import numpy as np

from spectrograd.kernels.jit import inner, read_only, serial, share_rows
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


# --- Gram matrices in float64, combinations and residuals of multivectors of few columns.

CHUNK = 512  # rows of a chunk, whose sums are one K x K matrix


def gram(
    U: np.ndarray, V: np.ndarray, metric: np.ndarray | None, symmetric: bool, threaded: bool
) -> np.ndarray:
    """``U' diag(metric) V`` accumulated in float64.

    Of a product that is ``symmetric`` only the upper half is formed, and mirrored.
    """
    n_chunks = -(-len(U) // CHUNK)
    partial = np.zeros((n_chunks, U.shape[1], V.shape[1]))
    _for_chunks(gram_chunks, n_chunks, threaded, U, V, read_only(metric, np.float64), symmetric, partial)
    total = np.asarray(partial.sum(axis=0))  # chunk after chunk
    if symmetric:
        lower = np.tril_indices(len(total), -1)
        total[lower] = total.T[lower]
    return total


def _for_chunks(kernel: Any, n_chunks: int, threaded: bool, *arguments: Any) -> None:
    """Call ``kernel(first, last, *arguments)`` for all chunks at once, or for shares of them."""
    if threaded:
        share_rows(kernel, n_chunks, *arguments)
    else:
        kernel(0, n_chunks, *arguments)


@serial
def gram_chunks(first, last, U, V, metric, symmetric, partial):
    """Mutates: the sums of chunks first .. last in ``partial``; ``metric`` as :func:`read_only` has it."""
    n_rows, n_left = U.shape
    n_right = V.shape[1]
    for c in range(first, last):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        for b in range(0, n_right, WIDTH):
            width = min(WIDTH, n_right - b)
            for a in range(0, min(n_left, b + width) if symmetric else n_left, 4):
                # four columns of U by eight of V: 32 sums fit the registers
                _gram_block(U, V, metric, rows, (a, min(4, n_left - a)), (b, width), partial[c])


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


def combine(
    U: np.ndarray, C: np.ndarray, V: np.ndarray | None, E: np.ndarray | None, threaded: bool
) -> np.ndarray:
    """``U C + V E`` for multivector U, V and small C, E in the type of U; V and E may be None.

    No library threads to fight with, and the same bits for any number of them.
    """
    out = np.empty((len(U), C.shape[1]), U.dtype)
    if V is None or E is None:  # no columns are a second block like any other
        V = U[:, :0]
        E = C[:0]
    arrays = [np.ascontiguousarray(array) for array in (U, C, V, E)]
    _for_chunks(combine_chunks, -(-len(U) // CHUNK), threaded, *arrays, out)
    return out


@serial
def combine_chunks(first, last, U, C, V, E, out):
    """Mutates: the rows of chunks first .. last in ``out``."""
    n_right = C.shape[1]
    for c in range(first, last):
        end = min(U.shape[0], (c + 1) * CHUNK)
        for i in range(c * CHUNK, end, 4):
            for b in range(0, n_right, WIDTH):
                # four rows by eight columns at a time
                _four_rows(U, C, V, E, i, min(4, end - i), (b, min(WIDTH, n_right - b)), out)


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


def residual(
    Q: np.ndarray, AQ: np.ndarray, values: np.ndarray, metric: np.ndarray | None, keep: bool, threaded: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``A X - B X diag(values)`` for the first columns X of Q, and their squared norms in ``B^-1``.

    Norms are summed in float64; without ``keep`` they are all there is.
    """
    n_chunks = -(-len(Q) // CHUNK)
    theta = np.array(values, dtype=np.float64).reshape(1, -1)
    out = np.empty((len(Q) if keep else 0, len(values)), Q.dtype)
    partial = np.zeros((n_chunks, len(values)))
    _for_chunks(residual_chunks, n_chunks, threaded, Q, AQ, theta, read_only(metric, Q.dtype), out, partial)
    return out, partial.sum(axis=0)


@serial
def residual_chunks(first, last, Q, AQ, theta, metric, out, partial):
    """Mutates: the rows of chunks first .. last in ``out``, if it has rows, and their sums in ``partial``."""
    n_columns = theta.shape[1]
    for c in range(first, last):
        rows = (c * CHUNK, min(Q.shape[0], (c + 1) * CHUNK))
        for b in range(0, n_columns, WIDTH):
            _residual_block(Q, AQ, theta, metric, rows, (b, min(WIDTH, n_columns - b)), out, partial)


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
