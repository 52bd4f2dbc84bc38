"""Sparse matrix times a few columns, fused with the diagonal and the scaling of a Laplacian."""

import numba

from spectrograd.kernels._jit import parallel

CHUNK = 256


@parallel
def laplacian_rows(start, indptr, indices, weights, diagonal, scale, U, V, out):
    """Mutates: the rows of one block in ``out``.

    ``out_i = diagonal_i u_i - scale_i sum_j w_ij v_j`` where ``V = diag(scale) U`` was prepared by
    the caller (gathering one array is cheaper than two). ``weights`` and ``scale`` may be None.
    """
    n_rows = indptr.shape[0] - 1
    n_columns = U.shape[1]
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            row = out[start + r]
            for k in range(n_columns):
                row[k] = 0
            for p in range(indptr[r], indptr[r + 1]):
                source = V[numba.uint32(indices[p])]
                if weights is None:
                    for k in range(n_columns):
                        row[k] += source[k]
                else:
                    w = weights[p]
                    for k in range(n_columns):
                        row[k] += w * source[k]
            own = U[start + r]
            d = diagonal[start + r]
            if scale is None:
                for k in range(n_columns):
                    row[k] = d * own[k] - row[k]
            else:
                s = scale[start + r]
                for k in range(n_columns):
                    row[k] = d * own[k] - s * row[k]
