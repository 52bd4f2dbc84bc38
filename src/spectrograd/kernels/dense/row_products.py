"""Products of rows with a table, each row by itself: what BLAS makes of a row depends on its company."""

from spectrograd.kernels.dense.lanes import WIDTH, nothing, put, take
from spectrograd.kernels.jit import serial

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
