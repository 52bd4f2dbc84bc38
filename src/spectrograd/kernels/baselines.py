"""Whole iterations of the paper's algorithm (Eqs. 10-19) for up to eight columns, a row in registers.

The same steps as ``batch_gradient`` and ``move_rows``, without a sort, and without returning to Python
between them. Rows are padded to eight columns; the unused ones stay zero.
"""

import numpy as np

from spectrograd.kernels.jit import inner, serial
from spectrograd.kernels.simd import WIDTH, largest, lowest_bit, nothing, put, root, take


@serial
def paper_iterations(positions, csr, weights, scale, rows, low_rank, settings, moments, U, M, Y):
    """Mutates: U, M, Y and the moments, by one iteration per row of ``positions``; returns how many.

    ``positions`` are entries of the CSR matrix ``csr = (indptr, indices, guide, shift)``,
    ``rows = (row_term, metric)``, ``low_rank = (Z, a)``, ``settings = (step, beta1, beta2, printed)`` and
    ``moments`` is ``[m, v, vhat]`` of AMSGrad, 24 columns. Stops early where M is ill-conditioned. With
    ``printed`` (1 or 0) M counts a vertex once per edge of the batch, as Eq. 19 does.
    """
    n_nodes = U.shape[0]
    n_columns = M.shape[0]
    Z, a = low_rank
    # Scratch: rows of the gradient, edges of the batch per node, and a bit per node that is in the batch.
    G = np.zeros((n_nodes, WIDTH), U.dtype)
    incident = np.zeros(n_nodes, np.int32)
    marks = np.zeros((n_nodes >> 6) + 1, np.uint64)
    vertices = np.empty(min(n_nodes, 2 * positions.shape[1]), np.int32)
    H, inverse, P, dM = np.zeros((4, WIDTH, WIDTH), U.dtype)
    C = np.zeros((Z.shape[1], WIDTH), U.dtype)
    dY = np.zeros((Z.shape[1], WIDTH), U.dtype)
    # One iteration of the paper's algorithm: Eqs. 6, 10 and 14 to 19.
    for iteration in range(positions.shape[0]):
        # 1. M^-1 by Cholesky (Eqs. 6, 7)
        solved, M_inverse = _inverse(M)
        if not solved:
            return iteration
        # 2. C = diag(a) Z'U, for the low-rank part of A
        for f in range(Z.shape[1]):
            for k in range(n_columns):
                C[f, k] = a[f] * Y[f, k]
        # 3. A_S U and U'A_S U on the rows of the batch (Eqs. 13 to 17)
        _edge_gradient(positions[iteration], csr, weights, scale, U, G, incident, marks)
        touched = vertices[: _list_marked(marks, vertices)]
        _rest_of_gradient(touched, csr[0], incident, rows[0], Z, C, U, G, H[:n_columns])
        # 4. the K x K matrices of the gradient: 2 M^-1, and P + P' with P = M^-1 U'A_S U M^-1
        right = _product(_product(M_inverse, H), M_inverse)
        for j in range(n_columns):
            for k in range(n_columns):
                inverse[j, k] = 2 * M_inverse[j, k]  # the gradient's factor 2
                P[j, k] = right[j, k] + right[k, j]
        # 5. move the rows (Eq. 10); M and Y follow (Eq. 19)
        _move(touched, G, (inverse, P), rows[1], Z, incident, settings, moments, U, dM[:n_columns], dY)
        for j in range(n_columns):
            for k in range(n_columns):
                M[j, k] += dM[j, k]
        for f in range(Z.shape[1]):
            for k in range(n_columns):
                Y[f, k] += dY[f, k]
    return positions.shape[0]


@inner
def _inverse(M):
    """Whether M is well conditioned, and ``M^-1`` by Cholesky and triangular solves."""
    n = M.shape[0]
    L = np.zeros((n, n))
    inverse = np.zeros((n, n))
    for j in range(n):
        for i in range(j, n):
            # M = L L', column by column
            total = M[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                if not total > 0:
                    return False, inverse
                L[j, j] = np.sqrt(total)
            else:
                L[i, j] = total / L[j, j]
    diagonal = np.diag(L)
    for c in range(n):
        for i in range(c, n):
            # forward: L y = e_c
            total = 1.0 if i == c else 0.0
            for k in range(c, i):
                total -= L[i, k] * inverse[k, c]
            inverse[i, c] = total / L[i, i]
        for i in range(n - 1, -1, -1):
            # backward: L' x = y
            total = inverse[i, c]
            for k in range(i + 1, n):
                total -= L[k, i] * inverse[k, c]
            inverse[i, c] = total / L[i, i]
    return diagonal.min() > 1e-7 * diagonal.max(), inverse


@inner
def _product(A, B):
    """``A B`` for matrices too small for BLAS."""
    n = A.shape[0]
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for k in range(n):
                out[i, j] += A[i, k] * B[k, j]
    return out


@inner
def _edge_gradient(positions, csr, weights, scale, U, G, incident, marks):
    """Mutates: G by ``sum_e |w_e| (u_i - s_e u_j)`` (Eqs. 13, 15), edge counts and marks of both ends.

    ``s_e`` is the sign of the weight ``w_e``.
    """
    indptr, indices, guide, shift = csr
    for e in range(positions.shape[0]):
        p = positions[e]
        # the row of entry p: a table look-up, and a few steps (``row_guide``)
        i = np.int64(guide[p >> shift])
        while indptr[i + 1] <= p:
            i += 1
        j = np.int64(indices[p])
        sign = U.dtype.type(1)
        if weights is not None:
            sign = U.dtype.type(1) if weights[p] >= 0 else U.dtype.type(-1)
        # |w| scale_i scale_j (u_i - s u_j), added at i, and -s times it at j
        difference = take(U, i, 0) - take(U, j, 0) * sign
        if weights is not None:
            difference = difference * abs(weights[p])
        if scale is not None:
            difference = difference * (scale[i] * scale[j])
        put(G, i, 0, take(G, i, 0) + difference)
        put(G, j, 0, take(G, j, 0) - difference * sign)
        incident[i] += 1
        incident[j] += 1
        # one bit per node instead of a sort: reading the bits in order gives the vertices in ascending order
        marks[i >> 6] |= np.uint64(1) << np.uint64(i & 63)
        marks[j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@inner
def _list_marked(marks, vertices):
    """Mutates: vertices, the marked ones in ascending order, and marks, which it clears; how many."""
    count = 0
    for word in range(marks.shape[0]):
        bits = marks[word]
        while bits != 0:
            vertices[count] = (word << 6) + lowest_bit(bits)
            count += 1
            bits &= bits - np.uint64(1)
        marks[word] = 0
    return count


@inner
def _rest_of_gradient(vertices, indptr, incident, row_term, Z, C, U, G, H):
    """Mutates: G by the parts of A that are no edges, and ``H = U' A_S U``."""
    n_columns = H.shape[0]
    H[:] = 0
    for v in range(vertices.shape[0]):
        i = np.int64(vertices[v])
        # the share of the node's edges that are in the batch: an unbiased
        # sample of the diagonal and the low-rank part
        share = U.dtype.type(incident[i] / (indptr[i + 1] - indptr[i]))
        u = take(U, i, 0)
        low = nothing(U)
        for f in range(Z.shape[1]):
            low = low + Z[i, f] * take(C, f, 0)
        g = take(G, i, 0) + share * (row_term[i] * u - low)
        put(G, i, 0, g)
        for k in range(n_columns):
            # H = sum_i u_i' g_i
            put(H, k, 0, take(H, k, 0) + U[i, k] * g)


@inner
def _move(vertices, G, small, metric, Z, incident, settings, moments, U, dM, dY):
    """Mutates: the rows of U (Eq. 10) and their moments, G and incident (cleared), the changes of M and Y."""
    inverse, P = small
    step, beta1, beta2, printed = settings
    n_columns = dM.shape[0]
    one = U.dtype.type(1)
    tiny = U.dtype.type(1e-12)
    dM[:] = 0
    dY[:] = 0
    for v in range(vertices.shape[0]):
        i = np.int64(vertices[v])
        b = metric[i]
        u = take(U, i, 0)
        s = nothing(U)
        for k in range(n_columns):
            # direction g_i 2 M^-1 - b_i u_i (P + P') (Eq. 17)
            s = s + G[i, k] * take(inverse, k, 0) - (b * U[i, k]) * take(P, k, 0)
        put(G, i, 0, nothing(U))
        # AMSGrad (Reddi et al. 2018, Algorithm 2)
        first = beta1 * take(moments, i, 0) + (one - beta1) * s
        second = beta2 * take(moments, i, 8) + (one - beta2) * (s * s)
        most = largest(take(moments, i, 16), second)
        put(moments, i, 0, first)
        put(moments, i, 8, second)
        put(moments, i, 16, most)
        s = first * (-step) / (root(most) + tiny)
        moved = u + s
        # Eq. 19 as printed: a node counts once per edge of the batch that meets it
        if printed > 0:
            b *= U.dtype.type(incident[i])
        incident[i] = 0
        for k in range(n_columns):
            # U'BU loses the old row ...
            put(dM, k, 0, take(dM, k, 0) - (b * U[i, k]) * u)
        put(U, i, 0, moved)
        for k in range(n_columns):
            # ... and gains the new one
            put(dM, k, 0, take(dM, k, 0) + (b * U[i, k]) * moved)
        for f in range(Z.shape[1]):
            put(dY, f, 0, take(dY, f, 0) + Z[i, f] * s)


# --- Coordinate-wise power iteration: a few coordinates per round, chosen by how far they are from done.


@serial
def coordinate_rounds(matrix, diagonal, low_rank, x, z, size, n_rounds):
    """Mutates: ``x``, and ``z`` so that it stays ``(M + diag(diagonal)) x``.

    Power iteration on ``S = M + diag(diagonal) + P diag(a) P'`` with ``matrix = (indptr, indices, data)``
    the CSR form of the symmetric M and ``low_rank = (P, a)``. A round computes ``y = S x / theta``,
    theta the Rayleigh quotient, and moves the ``size`` coordinates where ``|y - x|`` is largest to y.
    Returns theta, the residual ``|S x - theta x| / |x|`` before the last round, and the entries of M read.
    """
    indptr, indices, data = matrix
    P, a = low_rank
    n_rows, rank = P.shape
    # h = P'x, kept up to date with the coordinates that move
    h = np.zeros(rank)
    for i in range(n_rows):
        for r in range(rank):
            h[r] += P[i, r] * x[i]
    change = np.empty(n_rows)
    distance = np.empty(n_rows)
    theta = 0.0
    residual = 0.0
    n_read = 0
    for _ in range(n_rounds):
        # 1. the Rayleigh quotient theta = x'Sx / x'x, and the residual |S x - theta x|
        g = a * h
        xx = 0.0
        xz = 0.0
        zz = 0.0
        for i in range(n_rows):
            full = z[i]
            for r in range(rank):
                full += P[i, r] * g[r]
            change[i] = full
            xx += x[i] * x[i]
            xz += x[i] * full
            zz += full * full
        theta = xz / xx
        residual = np.sqrt(max(zz / xx - theta * theta, 0.0))
        if not theta > 0:
            break
        for i in range(n_rows):
            # 2. how far a power step would move each coordinate
            change[i] = change[i] / theta - x[i]
            distance[i] = abs(change[i])
        # 3. the ``size`` coordinates that would move farthest (Lei et al. 2016, Algorithm 1)
        least = np.partition(distance, n_rows - size)[n_rows - size] if size < n_rows else 0.0
        left = size
        for i in range(n_rows):
            if distance[i] < least or left == 0 or distance[i] == 0.0:
                continue
            left -= 1
            step = change[i]
            # 4. move one; z follows by its column of M, which is a row of the symmetric CSR
            x[i] += step
            z[i] += diagonal[i] * step
            for r in range(rank):
                h[r] += P[i, r] * step
            for p in range(indptr[i], indptr[i + 1]):
                z[indices[p]] += data[p] * step
            n_read += indptr[i + 1] - indptr[i]
    return theta, residual, n_read
