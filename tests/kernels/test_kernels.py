"""Kernels against their plain-NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from spectrograd.kernels import minibatch as batch
from spectrograd.kernels import multivector as dense
from spectrograd.kernels import spmm
from spectrograd.solvers.minibatch import rows_of

FORMS = ["parallel", "serial"]
DTYPES = [np.float32, np.float64]
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


def form_of(kernel, form):
    return kernel if form == "parallel" else kernel.serial


def close(actual, expected, dtype):
    expected = np.asarray(expected)
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[dtype] * scale)


def columns(n, k, rng, dtype=np.float64):
    return rng.standard_normal((n, k)).astype(dtype)


# --- passes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n_columns", [5, 8, 19])  # none, one and two whole lanes, with leftovers
def test_laplacian_rows(graphs, form, dtype, scaled, weighted, n_columns):
    rng = np.random.default_rng(0)
    n_nodes = 1300
    (whole,) = graphs[weighted].blocks
    first, last = 300, 1100  # a block in the middle, of several chunks; other rows stay as they are
    begin, end = whole.indptr[first], whole.indptr[last]
    indptr, indices = whole.indptr[first : last + 1] - begin, whole.indices[begin:end]
    weights = whole.weights[begin:end].astype(dtype) if weighted else None
    diagonal = rng.random(n_nodes).astype(dtype)
    scale = rng.random(n_nodes).astype(dtype) if scaled else None
    U = columns(n_nodes, n_columns, rng, dtype)
    V = scale[:, None] * U if scaled else U
    out = np.full_like(U, 7)
    args = (first, indptr, indices, weights, diagonal, scale, U, V, out)
    expected = reference.laplacian_rows(*args)
    spmm.multiply((first, indptr, indices), *args[3:], form == "parallel")
    assert (out[:first] == 7).all()
    assert (out[last:] == 7).all()
    close(out, expected, dtype)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_metric", [True, False])
@pytest.mark.parametrize("widths", [(3, 4), (8, 8), (5, 19)])  # blocks of 4 x 8, whole and in parts
def test_gram(threaded, dtype, with_metric, widths):
    """The kernel gram_chunks, on shares of the chunks and on all at once."""
    rng = np.random.default_rng(1)
    n_rows = 2 * dense.CHUNK + 17
    U, V = (columns(n_rows, width, rng, dtype) for width in widths)
    metric = rng.random(n_rows).astype(dtype) if with_metric else None
    found = dense.gram(U, V, metric, False, threaded)
    assert found.dtype == np.float64
    # float32 vectors, yet the sums are float64: as exact as the twin
    np.testing.assert_allclose(found, reference.gram(U, V, metric), rtol=0, atol=1e-9)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("width", [1, 4, 7, 8, 13, 40])
def test_symmetric_gram(threaded, width):
    rng = np.random.default_rng(1)
    U, metric = (
        columns(dense.CHUNK + 17, width, rng, np.float32),
        rng.random(dense.CHUNK + 17).astype(np.float32),
    )
    found = dense.gram(U, U, metric, True, threaded)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, reference.gram(U, U, metric), rtol=0, atol=1e-9)


# --- choosing edges ---------------------------------------------------------------------------------


def ragged_indptr(rng):
    """Row pointers with empty rows, also the first and the last, and one very long row."""
    lengths = rng.integers(0, 4, 60)
    lengths[[0, 7, 8, 59]] = 0
    lengths[20] = 40
    return np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("shift", [0, 1, 3, 10])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_row_guide_and_edges_at(shift, weighted, scaled):
    rng = np.random.default_rng(2)
    indptr = ragged_indptr(rng)
    indices = rng.integers(0, 60, indptr[-1]).astype(np.int32)
    guide = batch.row_guide(indptr, shift)
    expected = np.array(reference.row_guide(indptr, shift))
    inside = np.arange(len(guide)) << shift < indptr[-1]
    np.testing.assert_array_equal(guide[inside], expected[inside])
    weights = rng.random(indptr[-1]) if weighted else None
    scale = rng.random(60) if scaled else None
    positions = rng.permutation(indptr[-1])
    found = batch.edges_at(positions, indptr, indices, weights, scale, guide, shift)
    twins = reference.edges_at(positions, indptr, indices, weights, scale)
    for array, twin in zip(found, twins, strict=True):
        np.testing.assert_allclose(array, twin, rtol=1e-15)


@pytest.mark.parametrize("n_entries", [64, 65, 79])
def test_shuffled_entries(n_entries):
    blocks = np.random.default_rng(3).permutation(-(-n_entries // 16))
    found = batch.shuffled_entries(blocks, 16, n_entries)
    np.testing.assert_array_equal(found, reference.shuffled_entries(blocks, 16, n_entries))
    assert sorted(found) == list(range(n_entries))


@pytest.mark.parametrize("weighted", [True, False])
def test_induced_edges(graphs, weighted):
    (block,) = graphs[weighted].blocks
    nodes = np.random.default_rng(4).choice(1300, 400, replace=False).astype(np.int32)
    slot = np.arange(1300, dtype=np.int32)  # whatever other kernels left there
    found = batch.induced_edges(nodes, block.indptr, block.indices, slot)
    np.testing.assert_array_equal(found, reference.induced_edges(nodes, block.indptr, block.indices))
    assert len(found) > 50
    again = batch.induced_edges(nodes[:100], block.indptr, block.indices, slot)  # no mark is left
    np.testing.assert_array_equal(again, reference.induced_edges(nodes[:100], block.indptr, block.indices))


def batch_of_edges(graph, rng, n_edges):
    """Random entries with repetitions, as heads, tails and their weights."""
    (block,) = graph.blocks
    positions = rng.integers(0, len(block.indices), n_edges)
    heads = (np.searchsorted(block.indptr, positions, side="right") - 1).astype(np.int32)
    weights = np.ones(n_edges) if block.weights is None else block.weights[positions]
    return heads, block.indices[positions], weights


def grouped(heads, tails, values, slot=None):
    slot = np.zeros(1300, np.int32) if slot is None else slot
    return batch.group_by_vertex(heads, tails, values, np.sort(np.concatenate([heads, tails])), slot)


def as_tiles(rows):
    """The inverse of ``rows_of``: chunks of vertices with the vertex last."""
    n_chunks = -(-len(rows) // batch.CHUNK)
    padded = np.zeros((n_chunks * batch.CHUNK, rows.shape[1]), rows.dtype)
    padded[: len(rows)] = rows
    return np.ascontiguousarray(padded.reshape(n_chunks, batch.CHUNK, -1).transpose(0, 2, 1))


@pytest.mark.parametrize("n_edges", [1, 40, 3000])
def test_group_by_vertex_and_incidence_shares(graphs, n_edges):
    heads, tails, values = batch_of_edges(graphs[True], np.random.default_rng(7), n_edges)
    slot = np.arange(1300, dtype=np.int32)[::-1].copy()  # scratch: what it holds must not matter
    vertices, ptr, partners, weights = grouped(heads, tails, values, slot)
    expected_vertices, expected_met = reference.group_by_vertex(heads, tails, values)
    assert vertices.tolist() == expected_vertices
    assert ptr[0] == 0
    assert ptr[-1] == 2 * n_edges
    for v, met in enumerate(expected_met):
        span = slice(ptr[v], ptr[v + 1])
        assert sorted(zip(partners[span].tolist(), weights[span].tolist(), strict=True)) == met
    np.testing.assert_array_equal(slot[vertices], np.arange(len(vertices)))  # pairs() relies on it
    indptr = graphs[True].blocks[0].indptr
    np.testing.assert_allclose(
        batch.incidence_shares(vertices, ptr, indptr), reference.incidence_shares(vertices, ptr, indptr)
    )


# --- moving rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [0, 6])
@pytest.mark.parametrize("weighted", [True, False])
def test_batch_gradient(graphs, form, dtype, n_factors, weighted):
    rng = np.random.default_rng(8)
    heads, tails, weights = batch_of_edges(graphs[weighted], rng, 3000)
    weights = weights.astype(dtype)
    groups = grouped(heads, tails, weights)
    vertices = groups[0]
    assert len(vertices) > 2 * batch.CHUNK
    row_part = (rng.random(len(vertices)), rng.standard_normal(1300).astype(dtype))
    U, Z = columns(1300, 5, rng, dtype), columns(1300, n_factors, rng, dtype)
    C = rng.standard_normal((n_factors, 5)).astype(dtype)
    kernel = form_of(batch.batch_gradient, form)
    tiles, H = kernel(groups, row_part, Z, C, U, True)
    expected_G, expected_H = reference.batch_gradient(heads, tails, weights, row_part, Z, C, U, vertices)
    assert tiles.dtype == dtype
    assert H.dtype == np.float64
    close(rows_of(tiles, len(vertices)), expected_G, dtype)
    close(H, expected_H, dtype)
    padding = tiles.transpose(0, 2, 1).reshape(-1, 5)[len(vertices) :]
    assert not padding.any()  # move_rows works on whole chunks
    only_G, no_H = kernel(groups, row_part, Z, C, U, False)
    np.testing.assert_array_equal(only_G, tiles)
    assert not no_H.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [0, 6])
@pytest.mark.parametrize("adaptive", [True, False])
def test_move_rows(form, dtype, n_factors, adaptive):
    rng = np.random.default_rng(9)
    vertices = np.sort(rng.permutation(1300)[:700]).astype(np.int32)
    U, Z = columns(1300, 5, rng, dtype), columns(1300, n_factors, rng, dtype)
    G, metric = columns(700, 5, rng, dtype), (rng.random(1300) + 1).astype(dtype)
    small = (rng.standard_normal((5, 5)).astype(dtype), rng.standard_normal((5, 5)).astype(dtype))
    rates = rng.random(700) * 0.1
    table = rng.random((1300 if adaptive else 0, 15)).astype(dtype)
    moments = (table, np.array([0.9, 0.99], dtype))
    expected_U, expected_table, expected_dM, expected_dY = reference.move_rows(
        vertices, G, small, rates, metric, Z, moments, U
    )
    resting = np.setdiff1d(np.arange(1300), vertices)
    before = U.copy()
    dM, dY = form_of(batch.move_rows, form)(vertices, as_tiles(G), small, rates, metric, Z, moments, U)
    np.testing.assert_array_equal(U[resting], before[resting])
    close(U, expected_U, dtype)
    close(table, expected_table, dtype)
    close(dM, expected_dM, dtype)
    close(dY, expected_dY, dtype)
