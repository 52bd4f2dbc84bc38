"""The slow and obvious: small graphs, dense eigenproblems, and a plain-NumPy twin of every kernel.

A twin that mutates in the kernel's place works on copies and returns what the kernel would have written.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from spectrograd.graph import Graph


def random_graph(n_nodes, rng, *, weighted=True, mean_degree=8):
    """A connected graph: a ring with random chords."""
    ring = np.arange(n_nodes)
    chords = rng.integers(0, n_nodes, (2, n_nodes * mean_degree // 2 - n_nodes))
    W = np.zeros((n_nodes, n_nodes))
    rows, cols = np.concatenate([ring, chords[0]]), np.concatenate([(ring + 1) % n_nodes, chords[1]])
    W[rows, cols] = rng.uniform(0.2, 2.0, len(rows)) if weighted else 1.0
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0)
    return Graph.from_matrix(W)


def dense_pencil(operator):
    """``A`` and ``B`` of an operator, from its parts alone."""
    W = operator.graph.matrix.toarray()
    if operator.scale is not None:
        W = operator.scale[:, None] * W * operator.scale
    A = np.diag(operator.diagonal) - W
    if operator.low_rank is not None:
        Z, a = operator.low_rank.factors, operator.low_rank.coefficients
        A = A - (Z * a) @ Z.T
    return A, np.eye(len(A)) if operator.metric is None else np.diag(operator.metric)


def smallest(operator, k):
    """The k smallest eigenvalues of the pencil and their vectors, by LAPACK."""
    return la.eigh(*dense_pencil(operator), subset_by_index=(0, k - 1))


def largest_sine(Q, V, metric=None):
    """Sine of the largest principal angle between two spans, both orthonormal in the metric."""
    b = np.ones(len(Q)) if metric is None else metric
    outside = Q - V @ (V.T @ (b[:, None] * Q))
    return float(np.sqrt(np.linalg.norm(outside.T @ (b[:, None] * outside), 2)))


def adjacency(indptr, indices, weights, n_nodes):
    """The dense matrix behind the rows of a block."""
    W = np.zeros((len(indptr) - 1, n_nodes))
    for r in range(len(indptr) - 1):
        for p in range(indptr[r], indptr[r + 1]):
            W[r, indices[p]] += 1.0 if weights is None else weights[p]
    return W


def laplacian_rows(start, indptr, indices, weights, diagonal, scale, U, V, out):
    """``out`` with the rows of the block replaced by ``diagonal u - scale W v``."""
    n_rows = len(indptr) - 1
    rows = slice(start, start + n_rows)
    product = adjacency(indptr, indices, weights, len(U)) @ V.astype(np.float64)
    if scale is not None:
        product = scale[rows, None] * product
    result = out.astype(np.float64)
    result[rows] = diagonal[rows, None] * U[rows].astype(np.float64) - product
    return result


def gram(U, V, metric):
    """``U' diag(metric) V`` in float64."""
    b = np.ones(len(U)) if metric is None else metric.astype(np.float64)
    return U.T.astype(np.float64) @ (b[:, None] * V.astype(np.float64))


def row_of(position, indptr):
    """The row that holds an entry: the last one that begins at or before it, and is not empty."""
    return max(r for r in range(len(indptr) - 1) if indptr[r] <= position < indptr[r + 1])


def row_guide(indptr, shift):
    """For every ``2**shift``-th entry the row it lies in; the last row past the end."""
    n_cells = (indptr[-1] >> shift) + 1
    last = len(indptr) - 2
    return [row_of(c << shift, indptr) if c << shift < indptr[-1] else last for c in range(n_cells)]


def edges_at(positions, indptr, indices, weights, scale):
    """Both ends of the entries at ``positions`` and their weights, scaled at both ends."""
    heads = [row_of(p, indptr) for p in positions]
    tails = [int(indices[p]) for p in positions]
    values = np.ones(len(positions)) if weights is None else np.array([weights[p] for p in positions])
    if scale is not None:
        values = values * scale[heads] * scale[tails]
    return heads, tails, values


def incidence_shares(vertices, ptr, indptr):
    """Occurrences of each vertex in the batch per entry of its row."""
    return [(ptr[v + 1] - ptr[v]) / (indptr[i + 1] - indptr[i]) for v, i in enumerate(vertices)]


def shuffled_entries(blocks, block_size, n_entries):
    """Entry numbers of whole blocks, in the order of ``blocks``."""
    every = np.arange(n_entries)
    return np.concatenate([every[b * block_size : (b + 1) * block_size] for b in blocks])


def induced_edges(nodes, indptr, indices):
    """Positions of the entries ``i < j`` with both ends among ``nodes``, in the order of ``nodes``."""
    chosen = {int(i) for i in nodes}
    return [
        p
        for i in nodes
        for p in range(indptr[i], indptr[i + 1])
        if indices[p] > i and int(indices[p]) in chosen
    ]


def group_by_vertex(heads, tails, values):
    """Unique vertices in ascending order, and for each its (partner, weight) pairs, sorted."""
    met = {}
    for i, j, w in zip(heads.tolist(), tails.tolist(), values.tolist(), strict=True):
        met.setdefault(i, []).append((j, w))
        met.setdefault(j, []).append((i, w))
    vertices = sorted(met)
    return vertices, [sorted(met[i]) for i in vertices]


def batch_laplacian(heads, tails, edge_weights, n_nodes):
    """``A_S = sum_e |w_e| (e_i - s_e e_j)(e_i - s_e e_j)'``, s_e the sign of w_e, dense (Eq. 15)."""
    A = np.zeros((n_nodes, n_nodes))
    for i, j, w in zip(heads, tails, edge_weights, strict=True):
        A[i, i] += abs(w)
        A[j, j] += abs(w)
        A[i, j] -= w
        A[j, i] -= w
    return A


def batch_gradient(heads, tails, edge_weights, row_part, Z, C, U, vertices):
    """Rows ``vertices`` of ``A_S U`` with the shared row terms, and ``U' A_S U``."""
    shares, row_term = row_part
    U = U.astype(np.float64)
    G = (batch_laplacian(heads, tails, edge_weights, len(U)) @ U)[vertices]
    own = row_term[vertices, None] * U[vertices] - Z[vertices].astype(np.float64) @ C
    G = G + shares[:, None] * own
    return G, U[vertices].T @ G


def move_rows(vertices, G, small, rates, metric, Z, moments, U):
    """U and the moments after the step (Eq. 10; AMSGrad if there are moments), changes of U'BU and Z'U."""
    inverse, P = small
    table, (beta1, beta2) = moments
    before = U.astype(np.float64)
    direction = G @ inverse - metric[vertices, None] * before[vertices] @ P
    table = table.astype(np.float64)
    if len(table):
        m, v, vhat = np.split(table[vertices], 3, axis=1)
        m = beta1 * m + (1 - beta1) * direction
        v = beta2 * v + (1 - beta2) * direction**2
        vhat = np.maximum(vhat, v)
        table[vertices] = np.hstack([m, v, vhat])
        direction = m / (np.sqrt(vhat) + 1e-12)
    after = before.copy()
    after[vertices] -= rates[:, None] * direction
    dM = gram(after, after, metric) - gram(before, before, metric)
    return after, table, dM, Z.T.astype(np.float64) @ (after - before)


def recurrence_rows(block, weights, diagonal, metric, coefficients, rank_one, U, previous, out):
    """``out`` with the rows of the block replaced by ``alpha B^-1 A u + beta u + gamma previous``."""
    start, indptr, indices = block
    rows = slice(start, start + len(indptr) - 1)
    alpha, beta, gamma = coefficients
    U = U.astype(np.float64)
    product = diagonal[rows, None] * U[rows] - adjacency(indptr, indices, weights, len(U)) @ U
    if rank_one is not None:
        product -= np.outer(rank_one[0][rows], rank_one[1])
    if metric is not None:
        product = product / metric[rows, None]
    result = out.astype(np.float64)
    result[rows] = alpha * product + beta * U[rows] + gamma * previous[rows]
    return result


def combine(U, C, V, E):
    """``U C + V E``."""
    return U @ C if V is None else U @ C + V @ E


def galerkin(W, part):
    """``P'WP`` without its diagonal, dense."""
    P = np.eye(part.max() + 1)[part]
    coarse = P.T @ W @ P
    np.fill_diagonal(coarse, 0)
    return coarse


def level_of(W, source):
    """Every vertex's distance from the source, by powers of the adjacency matrix; -1 where it has none."""
    level = np.full(len(W), -1)
    front = np.zeros(len(W), bool)
    front[source] = True
    while front.any():
        level[front] = level.max() + 1
        front = (W[front].sum(axis=0) > 0) & (level < 0)
    return level


def level_widths(W, source):
    """Vertices at each distance from the source."""
    level = level_of(W, source)
    return np.bincount(level[level >= 0]).tolist()


def residual(Q, AQ, values, metric):
    """``A X - B X diag(values)`` for the first columns of Q, and squared norms in ``B^-1``."""
    b = np.ones((len(Q), 1)) if metric is None else metric[:, None]
    k = len(values)
    R = AQ[:, :k] - b * Q[:, :k] * values
    return R, (R**2 / b).sum(axis=0)


def orthogonalize(rows, count, width):
    """Coefficients of ``width`` rows from ``count`` on along those before, and what is left of them."""
    known, new = rows[:count], rows[count : count + width]
    C = known @ new.T
    return C, new - C.T @ known


def rotate(rows, Y):
    """Rows of which the first are ``Y' rows``."""
    combine_inplace = rows.copy()
    combine_inplace[: Y.shape[1]] = Y.T @ rows[: len(Y)]
    return combine_inplace


def paper_iterations(positions, csr, weights, scale, rows, low_rank, settings, moments, U, M, Y):
    """U, the moments, M and Y after one iteration of the paper per row of ``positions`` (Eqs. 10-19)."""
    indptr, indices = csr[:2]
    (row_term, metric), (Z, a), (step, *betas, printed) = rows, low_rank, settings
    for batch in positions:
        heads, tails, values = edges_at(batch, indptr, indices, weights, scale)
        ends = np.concatenate([heads, tails])
        vertices, counts = np.unique(ends, return_counts=True)
        shares = counts / np.diff(indptr)[vertices]
        G, H = batch_gradient(heads, tails, values, (shares, row_term), Z, a[:, None] * Y, U, vertices)
        inverse = np.linalg.inv(M)
        P = inverse @ H @ inverse
        rates = np.full(len(vertices), step)
        before = U[vertices]
        U, moments, dM, dY = move_rows(
            vertices, G, (2 * inverse, P + P.T), rates, metric, Z, (moments, betas), U
        )
        if printed:  # Eq. 19: once per edge
            b = (counts * metric[vertices])[:, None]
            dM = U[vertices].T @ (b * U[vertices]) - before.T @ (b * before)
        M, Y = M + dM, Y + dY
    return U, moments, M, Y


def dense_factor(fronts, values):
    """L as a dense matrix, from the rows of ``L'`` in every front."""
    n = len(fronts.order)
    L = np.zeros((n, n))
    for s in range(len(fronts.columns) - 1):
        columns = np.arange(fronts.columns[s], fronts.columns[s + 1])
        front = np.concatenate([columns, fronts.rows[fronts.row_start[s] : fronts.row_start[s + 1]]])
        size = len(columns) * len(front)
        block = values[0, fronts.entry_start[s] :][:size].reshape(len(columns), len(front))
        for k, j in enumerate(columns):
            L[front[k:], j] = block[k, k:]
    return L


def neighbours_at_elimination(W, order):
    """Later neighbours of every node when it is eliminated, by adding the edges that elimination makes."""
    linked = W.toarray() != 0
    np.fill_diagonal(linked, False)
    left, found = np.ones(len(order), bool), {}
    for v in order:
        left[v] = False
        found[v] = np.flatnonzero(linked[v] & left)
        linked[np.ix_(found[v], found[v])] = True
        linked[found[v], found[v]] = False
    return found


def recur(A, metric, current, previous, coefficients):
    """``a A^-1 M current + b current + c previous`` for every panel, by a dense solve."""
    a, b, c = coefficients
    pairs = zip(current, previous, strict=True)
    return np.array([a * np.linalg.solve(A, metric[:, None] * X) + b * X + c * Y for X, Y in pairs])


def entries_left(W, part, chosen):
    """Distinct coarse neighbours of the chosen aggregates over the entries of their members."""
    before = after = 0
    for c in chosen:
        rows = W[np.flatnonzero(part == c)].tocoo()
        before += rows.nnz
        after += len(set(part[rows.coords[1]].tolist()) - {c})
    return after / max(before, 1)


def look_over(W):
    """Whether a CSR matrix has flaws, weights other than one, and is unlike its transpose, entry by entry."""
    entries, flawed = {}, False
    for i in range(W.shape[0]):
        columns = W.indices[W.indptr[i] : W.indptr[i + 1]].tolist()
        flawed |= columns != sorted(set(columns)) or i in columns
        entries |= {(i, j): W.data[W.indptr[i] + at] for at, j in enumerate(columns)}
    flawed |= not all(0 < weight < np.inf for weight in W.data)
    unlike = any(entries.get((j, i)) != weight for (i, j), weight in entries.items())
    return flawed, any(weight != 1 for weight in W.data), unlike


def mean_with_transpose(W):
    """``(W + W') / 2`` and the largest difference of the two, infinite where the patterns differ; dense."""
    W = W.toarray()
    largest = np.abs(W - W.T).max() if ((W > 0) == (W > 0).T).all() else np.inf
    return (W + W.T) * W.dtype.type(0.5), largest


def component_of(W):
    """The connected component of every vertex, by spreading the smallest number along the edges."""
    found = np.arange(W.shape[0])
    linked = W.toarray() > 0
    for _ in range(W.shape[0]):
        for i in range(W.shape[0]):
            found[i] = min([found[i], *found[linked[i]]])
    return np.unique(found, return_inverse=True)[1]


def assign_rows(rows, centres):
    """Labels, squared distances, and per centre: sum of its rows, their number, what is lost without it."""
    gaps = ((rows[:, None].astype(np.float64) - centres) ** 2).sum(axis=2)
    labels = np.argmin(gaps, axis=1)
    least = np.sort(gaps, axis=1)[:, :2]
    tallies = []
    for c in range(len(centres)):
        own = labels == c
        lost = (least[own, -1] - least[own, 0]).sum() if len(centres) > 1 else np.inf
        tallies.append([*rows[own].sum(axis=0, dtype=np.float64), own.sum(), lost])
    return labels, least[:, 0], np.array(tallies)


def rows_of_list(source, target, weight, n_nodes, rule):
    """What a store holds of a list of edges: ``{(i, j): weight}`` in both directions, by dictionaries."""
    listed = [(int(i), int(j), float(w)) for i, j, w in zip(source, target, weight, strict=True) if i != j]
    forward = sorted((i, j, w) for i, j, w in listed)
    halve = bool(listed) and forward == sorted((j, i, w) for i, j, w in listed)
    merged = {}
    for i, j, w in listed:
        for key in ((i, j), (j, i)):
            if rule == "sum":
                merged[key] = merged.get(key, 0.0) + (w / 2 if halve else w)
            elif rule == "max":
                merged[key] = max(merged.get(key, w), w)
            else:
                merged.setdefault(key, w)
    return {key: w for key, w in merged.items() if w != 0}


def component_numbers(source, target, n_nodes):
    """Components numbered as their first nodes come, by repeated relabelling."""
    labels = np.arange(n_nodes)
    changed = True
    while changed:
        before = labels.copy()
        for i, j in zip(source, target, strict=True):
            labels[i] = labels[j] = min(labels[i], labels[j])
        changed = not np.array_equal(before, labels)
    return np.unique(labels, return_inverse=True)[1]


def scanned(text, delimiter, roles):
    """Edges of a text by Python's own parsing."""
    edges = []
    for line in text.splitlines():
        if not line.strip() or line.strip()[0] in "#%":
            continue
        fields = [field.strip() for field in (line.split(delimiter) if delimiter else line.split())]
        named = dict(zip(roles, fields, strict=True))
        edges.append(
            (int(named["src"]), int(named["dst"]), float(named.get("weight", 1)), named.get("layer"))
        )
    return edges


def numbered_words(words):
    """The distinct words in the order they are first met, and each word's place among them."""
    known = list(dict.fromkeys(words))
    return known, [known.index(word) for word in words]


def both_directions(source, target, weights, n):
    """W + W' without loops; their number and the first; pairs listed, both ways, and unlike their reverse."""
    loops = np.flatnonzero(source == target)
    matrix, seen = np.zeros((n, n)), np.zeros((n, n), bool)
    for e, (i, j) in enumerate(zip(source, target, strict=True)):
        if i != j:
            matrix[i, j] += 1 if weights is None else weights[e]
            seen[i, j] = True
    facts = seen.sum(), (seen & seen.T).sum(), (matrix != matrix.T).sum()
    return matrix + matrix.T, (len(loops), loops[0] if len(loops) else -1), facts


def descend(heads, tails, values, rows, low_rank, batch_size, steps, total_mass, U, M, Y):
    """U, M and Y after one repaired step per batch of edges, by dense matrices."""
    row_term, metric, push, shares = (np.asarray(x, np.float64) for x in rows)
    Z, a = low_rank
    U, M, Y = U.astype(np.float64), M.copy(), Y.copy()
    for at, step in enumerate(steps):
        chosen = slice(at * batch_size, (at + 1) * batch_size)
        h, t, w = heads[chosen], tails[chosen], values[chosen]
        A_U = np.zeros_like(U)
        np.add.at(A_U, h, np.abs(w)[:, None] * U[h] - w[:, None] * U[t])
        np.add.at(A_U, t, np.abs(w)[:, None] * U[t] - w[:, None] * U[h])
        share = np.bincount(np.concatenate([h, t]), minlength=len(U)) * shares
        A_U += share[:, None] * (row_term[:, None] * U - Z @ (a[:, None] * Y))
        inverse = np.linalg.inv(M)
        P = inverse @ U.T @ A_U @ inverse
        G = A_U @ inverse - (metric * push)[:, None] * (U @ (P + P.T) / 2)
        lengths = np.linalg.norm(G, axis=1)
        moving = (share > 0) & (lengths > 0)
        G[moving] *= -step * np.sqrt(np.trace(M) / total_mass) / lengths[moving, None]
        U[moving] += G[moving]
        M, Y = U.T @ (metric[:, None] * U), Z.T @ U
    return U, M, Y


def keep_closest(products, row_terms, column_terms, ids, rows, own, gaps, found):
    """``gaps`` and ``found`` after the new distances, by sorting old and new together."""
    gaps, found = gaps.copy(), found.copy()
    for i, row in enumerate(rows):
        new = row_terms[i] + column_terms - 2 * products[i]
        allowed = ids != own[i]
        every = np.concatenate([gaps[row], new[allowed]])
        order = np.argsort(every, kind="stable")[: gaps.shape[1]]
        found[row] = np.concatenate([found[row], ids[allowed]])[order]
        gaps[row] = every[order]
    return gaps, found


def row_products(rows, table):
    """Products of rows with a table, one number after the other."""
    products = np.zeros((len(rows), table.shape[1]))
    for j, line in enumerate(table):
        products += rows[:, j : j + 1].astype(float) * line
    return products


def candidate_gaps(points, unit, asked, candidates):
    """Squared distances to candidates in a unit of length, infinite where there is none."""
    gaps = (((points[candidates].astype(float) - asked[:, None]) / unit) ** 2).sum(axis=2)
    return np.where(candidates < 0, np.inf, gaps)


def merged_rows(rows, changes, one):
    """Rows in CSR form with changed entries in place of those that are there; zero: gone."""
    pointers, columns, weights = [0], [], []
    for i in range(len(rows[0]) - 1):
        old, new = (slice(part[0][i], part[0][i + 1]) for part in (rows, changes))
        own = [one] * (old.stop - old.start) if rows[2] is None else rows[2][old].tolist()
        row = dict(zip(rows[1][old].tolist(), own, strict=True))
        row |= dict(zip(changes[1][new].tolist(), changes[2][new].tolist(), strict=True))
        kept = sorted((column, weight) for column, weight in row.items() if weight != 0)
        columns += [column for column, _ in kept]
        weights += [weight for _, weight in kept]
        pointers.append(len(columns))
    return pointers, columns, weights


# --- flat filters


def step_filter(operator, X, edge, degree):
    """A Jackson-damped Chebyshev step of ``B^-1 A``, by its recurrence on dense matrices in float64."""
    A, B = dense_pencil(operator)
    half = (operator.upper - operator.lower) / 2
    S = (np.linalg.solve(B, A) - (operator.lower + half) * np.eye(len(A))) / half
    angle = np.arccos((edge - operator.lower) / half - 1)
    n = degree + 2
    before, term = X.astype(np.float64), S @ X
    out = (1 - angle / np.pi) * before
    for m in range(1, degree + 1):
        damped = (n - m) * np.cos(np.pi * m / n) + np.sin(np.pi * m / n) / np.tan(np.pi / n)
        out += -2 * np.sin(m * angle) / (m * np.pi) * damped / n * term
        before, term = term, 2 * S @ term - before
    return out
