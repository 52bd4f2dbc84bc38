"""The sparse factorisation: its order, its shape, its numbers, its solves, and what it does when it fails."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from spectrograd.graph import Graph
from spectrograd.kernels import ldl_numeric as numeric
from spectrograd.kernels import ldl_numeric as panels
from spectrograd.kernels.ldl_numeric import factorize, recur
from spectrograd.kernels.ldl_ordering import minimum_degree
from spectrograd.kernels.ldl_symbolic import MIN_PART_SHARE, arrange_fronts, cut
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.linalg.ldl import Factor, FrontFactor, SmallFactor, count_below
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.solvers.shift_invert import Inverse, RationalFilter, _unit_columns


def symmetric(n, rows, cols):
    """A pattern of ones; given pairs, both ways."""
    W = sp.coo_array((np.ones(len(rows)), (rows, cols)), shape=(n, n)).toarray()
    return sp.csr_array(np.maximum(W, W.T))


def random_pattern(n, density, seed):
    W = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed)).toarray()
    return sp.csr_array(np.triu(W, 1) + np.triu(W, 1).T)


def grid(side):
    nodes = np.arange(side * side).reshape(side, side)
    rows = np.concatenate([nodes[:, 1:].ravel(), nodes[1:].ravel()])
    return symmetric(side * side, rows, np.concatenate([nodes[:, :-1].ravel(), nodes[:-1].ravel()]))


SHAPES = {
    "path": symmetric(90, np.arange(89), np.arange(1, 90)),
    "star": symmetric(400, np.zeros(399, int), np.arange(1, 400)),
    "two hubs": symmetric(600, np.repeat([0, 1], 598), np.tile(np.arange(2, 600), 2)),
    "clique": symmetric(40, *np.triu_indices(40, 1)),
    "one node": sp.csr_array((1, 1)),
    "no edges": sp.csr_array((7, 7)),
    "isolated": symmetric(30, [3, 4, 7], [4, 5, 20]),
    "pieces": sp.csr_array(sp.block_diag([grid(9), symmetric(5, *np.triu_indices(5, 1)), grid(4)])),
    "grid": grid(14),
    "crowded": random_pattern(300, 0.03, 0),  # so full that the lists have to move together
}


def fronts_of(W):
    return arrange_fronts(W.indptr, W.indices, minimum_degree(W.indptr, W.indices))


def whole(fronts):
    """One part."""
    return cut(fronts, worth=np.inf)


def pieces(fronts):
    """As many parts as there can be, whatever their size."""
    return cut(fronts, largest=0.2, worth=0.0)


def check_factor(W, diagonal, parts=whole):
    """All that a factor promises, against dense matrices."""
    fronts = fronts_of(W)
    np.testing.assert_array_equal(np.sort(fronts.order), np.arange(len(diagonal)))
    np.testing.assert_array_equal(fronts.order[fronts.position], np.arange(len(diagonal)))
    values, pivots = factorize(W.indptr, W.indices, W.data, diagonal, fronts, parts(fronts))
    L, A = reference.dense_factor(fronts, values), np.diag(diagonal) - W.toarray()
    size = np.abs(L) @ np.diag(np.abs(pivots)) @ np.abs(L.T)  # no larger error than without pivoting
    error = np.abs(L @ np.diag(pivots) @ L.T - A[np.ix_(fronts.order, fronts.order)])
    assert (error <= 1e-13 * len(diagonal) * size.max()).all()
    if size.max() < 1e6:
        assert (pivots < 0).sum() == (np.linalg.eigvalsh(A) < 0).sum()
    return fronts, values, pivots


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("parts", [whole, pieces])
def test_a_factor_multiplies_back(name, definite, parts, monkeypatch):
    monkeypatch.setattr(numeric, "WIDE", 0.0)
    W, rng = SHAPES[name], np.random.default_rng(1)
    n = W.shape[0]
    diagonal = W.sum(1) + 0.1 if definite else rng.uniform(0.5, 3, n) * rng.choice([-1, 1], n)
    check_factor(W, diagonal, parts)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.floats(0, 0.3), st.integers(0, 10**6))
def test_any_symmetric_matrix(n, density, seed):
    rng = np.random.default_rng(seed)
    diagonal = rng.uniform(1, 3, n) * rng.choice([-1, 1], n)
    check_factor(random_pattern(n, density, seed), diagonal, pieces)


def test_the_bits_do_not_depend_on_the_threads():
    """Nor does the front of a clique that is wide enough to be shared, here above two halves."""
    W = sp.csr_array(sp.block_diag([grid(30), grid(31), symmetric(300, *np.triu_indices(300, 1))])).tolil()
    W[:900:7, 1861:1990] = W[900:1861:7, 1861:1998] = 1.0
    W = sp.csr_array(W.maximum(W.T))
    fronts = fronts_of(W)
    parts, found = cut(fronts, worth=0.0), []
    assert len(parts.subtrees) > 1
    for n_threads in (1, 2):
        before = numba.get_num_threads()
        numba.set_num_threads(min(n_threads, before))
        try:
            values, pivots = factorize(W.indptr, W.indices, W.data, W.sum(1) + 0.1, fronts, parts)
        finally:
            numba.set_num_threads(before)
        found.append((pivots, reference.dense_factor(fronts, values)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["long path", "many pieces", "two paths"])
def test_there_are_never_many_parts(name):
    """A tree that is a chain has one long part above; trees too small to be parts are above too."""
    n = 30_000
    here = np.arange(n - 1)
    if name == "many pieces":
        here = here[here % 3 != 2]
    elif name == "two paths":
        here = here[here != n // 2]
    W = sp.coo_array((np.ones(len(here)), (here, here + 1)), shape=(n, n))
    W = sp.csr_array((W + W.T).tocsr())
    fronts = fronts_of(W)
    parts = cut(fronts, largest=0.6 if name == "two paths" else 0.125, worth=0.0)
    assert len(parts.subtrees) <= 1 / MIN_PART_SHARE
    values, pivots = factorize(W.indptr, W.indices, W.data, W.sum(1) + 0.5, fronts, parts)
    work, x = np.empty((1, parts.n_places, 8)), np.random.default_rng(0).standard_normal((1, n, 8))
    product = (W.sum(1) + 0.5)[:, None] * x[0][fronts.position] - W @ x[0][fronts.position]
    found = np.zeros_like(x)
    recur(
        fronts, parts, values, pivots, np.ones(n), work, product[fronts.order][None], found, (1.0, 0.0, 0.0)
    )
    np.testing.assert_allclose(found, x, atol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_parts_are_subtrees_and_what_lies_above(name):
    fronts = fronts_of(SHAPES[name])
    parts, n = pieces(fronts), len(fronts.order)
    everything = np.concatenate([part.groups for part in (*parts.subtrees, parts.above)])
    np.testing.assert_array_equal(np.sort(everything), np.arange(len(fronts.oldest)))
    stands_for = np.concatenate([np.arange(n), parts.stands_for])
    np.testing.assert_array_equal(stands_for[parts.rows], fronts.rows)
    for part in parts.subtrees:
        mine = np.concatenate([np.arange(*fronts.columns[[s, s + 1]]) for s in part.groups])
        for s in part.groups:
            rows = parts.rows[fronts.row_start[s] : fronts.row_start[s + 1]]
            assert (np.isin(rows, mine) | ((part.begin <= rows) & (rows < part.end))).all()
    assert parts.n_places == n + len(parts.stands_for)


@pytest.mark.parametrize("name", SHAPES)
def test_minimum_degree_knows_the_fill(name):
    """The widths and neighbours that the quotient graph counts are those of elimination one by one."""
    W = SHAPES[name]
    pivots = minimum_degree(W.indptr, W.indices)
    leaders = np.arange(W.shape[0])
    while (pivots.into[leaders] >= 0).any():
        leaders = np.where(pivots.into[leaders] >= 0, pivots.into[leaders], leaders)
    groups = [np.flatnonzero(leaders == p) for p in pivots.order]
    assert [len(group) for group in groups] == pivots.width[pivots.order].tolist()
    order = np.concatenate(groups)
    found = reference.neighbours_at_elimination(W, order)
    hubs = set(pivots.order[len(pivots.order) - pivots.n_hubs :].tolist())
    when = np.argsort(order)
    for p, group in zip(pivots.order, groups, strict=True):
        later = found[group[np.argmax(when[group])]]
        if p not in hubs:
            assert pivots.below[p] == len(set(later.tolist()) - hubs)
    assert pivots.n_hubs == {"star": 1, "two hubs": 2}.get(name, 0)


@pytest.mark.parametrize("name", ["grid", "pieces", "crowded", "two hubs"])
def test_groups_hold_all_rows_and_few_zeros(name):
    W = SHAPES[name]
    fronts = fronts_of(W)
    found = reference.neighbours_at_elimination(W, fronts.order)
    kept = exact = 0
    for s in range(len(fronts.columns) - 1):
        rows = fronts.rows[fronts.row_start[s] : fronts.row_start[s + 1]]
        assert (np.diff(rows) > 0).all()
        assert fronts.oldest[s] <= s
        for j in range(fronts.columns[s], fronts.columns[s + 1]):
            later = fronts.position[found[fronts.order[j]]]
            assert set(later[later >= fronts.columns[s + 1]].tolist()) <= set(rows.tolist())
            kept, exact = kept + fronts.columns[s + 1] - j + len(rows), exact + 1 + len(later)
    assert exact <= kept <= 1.45 * exact


def test_the_order_fills_as_little_as_superlu_s():
    W = grid(40)
    n = W.shape[0]
    pivots = minimum_degree(W.indptr, W.indices)
    w, r = (a[pivots.order].astype(int) for a in (pivots.width, pivots.below))
    matrix = sp.csc_matrix(sp.diags_array(np.full(n, 5.0)) - W)
    options = {"SymmetricMode": True}
    lu = sla.splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    assert (w * (w + 1) // 2 + w * r).sum() <= 1.1 * lu.L.nnz


@pytest.mark.parametrize("parts", [whole, pieces])
@pytest.mark.parametrize("n_panels", [1, 3])
@pytest.mark.parametrize("name", ["grid", "pieces", "crowded", "path", "star"])
def test_recur(parts, n_panels, name):
    W, rng = SHAPES[name], np.random.default_rng(2)
    n = W.shape[0]
    diagonal = W.sum(1) + rng.uniform(0.5, 1, n)
    fronts = fronts_of(W)
    made = parts(fronts)
    values, pivots = factorize(W.indptr, W.indices, W.data, diagonal, fronts, made)
    current, previous = rng.standard_normal((2, n_panels, n, 8))
    work = np.full((n_panels, made.n_places, 8), np.nan)
    metric, coefficients = rng.uniform(1, 2, n), (1.7, -0.3, 0.4)
    A = (np.diag(diagonal) - W.toarray())[np.ix_(fronts.order, fronts.order)]
    expected = reference.recur(A, metric, current, previous, coefficients)
    recur(fronts, made, values, pivots, metric, work, current, previous, coefficients)
    np.testing.assert_allclose(previous, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("n_columns", [1, 8, 13])
def test_panels(n_columns):
    rng = np.random.default_rng(0)
    X, order = rng.standard_normal((50, n_columns)), rng.permutation(50).astype(np.int32)
    blocks, back = np.full((-(-n_columns // 8), 50, 8), np.nan), np.full_like(X, np.nan)
    panels.to_panels(X, order, blocks)
    columns = np.hstack(list(blocks))
    np.testing.assert_array_equal(columns[:, :n_columns], X[order])
    assert (columns[:, n_columns:] == 0).all()
    panels.from_panels(blocks, np.argsort(order).astype(np.int32), back)
    np.testing.assert_array_equal(back, X)


# --- Factor ------------------------------------------------------------------------------------------


LARGE = Thresholds(small=0)


@pytest.fixture(params=[FrontFactor, SmallFactor])
def kind(request):
    """Both factorisations, and the thresholds that lead to them."""
    return request.param, LARGE if request.param is FrontFactor else Thresholds()


@pytest.mark.parametrize("laplacian_kind", ["random_walk", "symmetric", "unnormalized"])
def test_factor_solves_and_counts(kind, laplacian_kind):
    operator = laplacian(reference.random_graph(300, np.random.default_rng(0)), laplacian_kind)
    A, B = reference.dense_pencil(operator.random_walk_form())
    values = np.sort(np.linalg.eigvals(np.linalg.solve(B, A)).real)
    sigma = (values[4] + values[5]) / 2
    form, sizes = kind
    factor = Factor.of(operator, sigma, sizes)
    assert type(factor) is form
    for n_columns in (1, 5, 8, 11):
        X = np.random.default_rng(1).standard_normal((300, n_columns))
        np.testing.assert_allclose(factor.solve(X), np.linalg.solve(A - sigma * B, X), rtol=1e-6, atol=1e-8)
    assert factor.n_negative == count_below(operator, sigma, sizes) == 5


def test_a_factor_of_a_singular_matrix_is_none(kind):
    pair = laplacian(Graph.from_edges([0], [1]), "unnormalized")
    assert Factor.of(pair, 0.0, kind[1]) is None


def test_a_factor_whose_errors_grew_is_none(kind):
    """Nearly zero pivots, although 1 is no eigenvalue: the signs would mean nothing."""
    W = reference.random_graph(40, np.random.default_rng(0)).matrix
    leaves = sp.eye_array(40) * np.sqrt(2)
    graph = Graph.from_matrix(sp.csr_array(sp.block_array([[W, leaves], [leaves, None]])))
    operator = laplacian(graph, "unnormalized")
    exact = np.linalg.eigvalsh(operator.to_dense())
    assert np.abs(exact - np.sqrt(2)).min() > 1e-3
    assert Factor.of(operator, np.sqrt(2) * (1 - 1e-15), kind[1]) is None
    assert Factor.of(operator, 1.0, kind[1]).n_negative == (exact < 1).sum()


def test_a_second_shift_pays_for_numbers_only():
    operator = laplacian(reference.random_graph(80, np.random.default_rng(0)))
    values = np.linalg.eigvalsh(operator.standard_form().to_dense())
    first = Factor.of(operator, -0.1, LARGE)
    second = Factor.of(operator, (values[2] + values[3]) / 2, LARGE)
    assert second.fronts is first.fronts
    assert (first.n_negative, second.n_negative) == (0, 3)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("degree", [1, 4])
def test_a_filter_of_the_inverse(kind, rank, degree):
    rng = np.random.default_rng(3)
    operator = laplacian(reference.random_graph(60, rng))
    if rank:
        low_rank = LowRank(rng.standard_normal((60, 2)) / 8, np.array([0.4, -0.2]))
        operator = type(operator)(operator.graph, operator.diagonal, None, operator.metric, low_rank)
    A, B = reference.dense_pencil(operator)
    pole, cut, X = -1.0, 0.3, rng.standard_normal((60, 11))
    found = RationalFilter(degree, cut, 2.0, pole).through(Inverse.of(operator, pole, kind[1]), X)
    T = np.linalg.solve(A - pole * B, B)
    S, previous, current = 2 * (cut - pole) * T - np.eye(60), X, None
    current = S @ X
    for _ in range(degree - 1):
        previous, current = current, 2 * S @ current - previous
    np.testing.assert_allclose(found, current, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-180])
def test_unit_columns(scale):
    X = np.random.default_rng(0).standard_normal((20, 4)) * scale
    X[:, 2] = 0
    unit = _unit_columns(X.copy())
    np.testing.assert_allclose(np.linalg.norm(unit, axis=0), [1, 1, 0, 1])
    np.testing.assert_allclose(unit[:, 0] * np.linalg.norm(X[:, 0] / scale), X[:, 0] / scale)
