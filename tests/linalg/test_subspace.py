"""Orthonormal bases, Rayleigh-Ritz and Krylov spaces, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la

import reference
from spectrograd.engines import LocalEngine
from spectrograd.linalg.subspace import (
    Basis,
    Coordinates,
    Ritz,
    deflated_ritz,
    inverse_factor,
    orthogonality_error,
    orthonormalize,
    rayleigh_ritz,
    residuals,
    upper_edge,
)
from spectrograd.operators.base import DenseOperator
from spectrograd.operators.laplacian import laplacian

ENGINE = LocalEngine()
N = 60


@pytest.fixture(scope="module")
def pencil():
    """A random-walk Laplacian, and its dense matrices."""
    operator = laplacian(reference.random_graph(N, np.random.default_rng(0)), "random_walk")
    return operator, *reference.dense_pencil(operator)


def block(k, seed=1, n=N):
    return np.random.default_rng(seed).standard_normal((n, k))


def span_sine(X, Y):
    return reference.largest_sine(np.linalg.qr(X)[0], np.linalg.qr(Y)[0])


def standard(matrix):
    """A dense operator whose bounds are its spectrum's."""
    values = np.linalg.eigvalsh(matrix)
    return DenseOperator(matrix, float(values[0]), float(values[-1]))


# --- Orthonormal bases


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_an_orthonormal_basis_has_the_same_span(pencil, scale):
    operator, _, B = pencil
    U = block(5)
    U[:, 2] *= scale
    Q, repaired = orthonormalize(ENGINE, U, operator.metric)
    assert repaired == 0
    assert np.abs(Q.T @ B @ Q - np.eye(5)).max() < 1e-13
    assert span_sine(Q, U) < 1e-10


def test_one_round_is_enough_for_what_is_nearly_orthonormal():
    Q = np.linalg.qr(block(4))[0]
    calls = []

    class Counting(LocalEngine):
        def gram(self, *args, **kwargs):
            calls.append(1)
            return super().gram(*args, **kwargs)

    orthonormalize(Counting(), Q + 1e-3 * block(4, 2) / N, None)
    assert len(calls) == 1
    orthonormalize(Counting(), block(4), None)
    assert len(calls) == 3


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_lost_directions_are_replaced_and_counted(pencil, lost):
    operator, _, B = pencil
    U = block(5)
    U[:, 5 - lost :] = U[:, :1] if lost < 4 else 0
    Q, repaired = orthonormalize(ENGINE, U, operator.metric, np.random.default_rng(3))
    assert repaired == lost
    assert np.abs(Q.T @ B @ Q - np.eye(5)).max() < 1e-12
    kept = U[:, : 5 - lost]
    assert np.linalg.norm(kept - Q @ (Q.T @ (B @ kept))) < 1e-10


def test_as_many_vectors_as_rows_are_a_basis_and_more_are_refused():
    Q = orthonormalize(ENGINE, block(7, n=7), None).Q
    assert np.allclose(Q.T @ Q, np.eye(7))
    with pytest.raises(ValueError, match="8 vectors of length 7"):
        orthonormalize(ENGINE, block(8, n=7), None)


def test_vectors_that_are_not_finite_are_no_basis():
    U = block(2)
    U[0, 0] = np.nan
    with pytest.raises(FloatingPointError, match="too long"):
        orthonormalize(ENGINE, U, None)
    with pytest.raises(FloatingPointError, match="not finite"):
        orthogonality_error(ENGINE, standard(np.eye(N)), U)


def test_the_factor_of_a_gram_matrix_near_rank_loss():
    """A direction is lost below ``least`` times the largest eigenvalue, of columns of unit length."""
    U = np.linalg.qr(block(3))[0] * [1e-9, 1.0, 1e9]
    F, lost = inverse_factor(U.T @ U)
    assert lost == 0
    assert np.allclose(F.T @ (U.T @ U) @ F, np.eye(3), atol=1e-9)
    for apart, expected in ((1e-5, 0), (1e-7, 1)):  # squared: 1e-10 and 1e-14 for 1e-12
        V = np.linalg.qr(block(3))[0]
        V[:, 2] = V[:, 0] + apart * V[:, 2]
        F, lost = inverse_factor(V.T @ V)
        assert (F.shape, lost) == ((3, 3 - expected), expected)
        assert np.abs(F.T @ (V.T @ V) @ F - np.eye(3 - expected)).max() < 1e-3


def test_the_error_of_orthogonality_is_the_largest_entry(pencil):
    operator = pencil[0]
    Q = orthonormalize(ENGINE, block(4), operator.metric).Q
    Q[:, 3] *= 2
    assert orthogonality_error(ENGINE, operator, Q) == pytest.approx(3)
    assert orthogonality_error(ENGINE, operator, Q, 3) < 1e-13


# --- Rayleigh-Ritz


def test_rayleigh_ritz_is_that_of_the_projected_matrix(pencil):
    operator, A, B = pencil
    Q = orthonormalize(ENGINE, block(6), operator.metric).Q
    ritz = rayleigh_ritz(ENGINE, operator, Q)
    assert np.allclose(ritz.values, np.linalg.eigvalsh(Q.T @ A @ Q))
    assert np.allclose(ritz.AQ, A @ ritz.Q)
    assert np.allclose(ritz.Q.T @ A @ ritz.Q, np.diag(ritz.values), atol=1e-13)
    assert np.allclose(ritz.Q.T @ B @ ritz.Q, np.eye(6))
    R = A @ ritz.Q - B @ ritz.Q * ritz.values
    norms = np.sqrt(np.einsum("ij,ij->j", R, np.linalg.solve(B, R)))
    assert np.allclose(residuals(ENGINE, operator, ritz), norms)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_known_null_vector_is_exact_and_the_others_are_orthogonal_to_it(pencil, k):
    operator, A, B = pencil
    null = operator.null_vector / np.sqrt(operator.null_vector @ B @ operator.null_vector)
    Q = orthonormalize(ENGINE, np.column_stack([null, block(k - 1)]) + 1e-4 * block(k, 2), operator.metric).Q
    ritz = deflated_ritz(ENGINE, operator, Q, null[:, None])
    assert ritz.values[0] == 0
    assert np.array_equal(ritz.Q[:, 0], null)
    assert np.abs(ritz.Q.T @ B @ ritz.Q - np.eye(k)).max() < 1e-3  # the null vector lies nearly in the span
    assert np.allclose(ritz.Q[:, 1:].T @ A @ ritz.Q[:, 1:], np.diag(ritz.values[1:]), atol=1e-12)
    assert np.allclose(ritz.AQ, A @ ritz.Q)
    assert (np.diff(ritz.values[1:]) >= 0).all()


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
def test_coordinates_keep_eigenvalues_and_take_vectors_there_and_back(kind):
    operator = laplacian(reference.random_graph(N, np.random.default_rng(0)), kind)
    A, B = reference.dense_pencil(operator)
    values, vectors = la.eigh(A, B)
    for coordinates in (Coordinates.standard(ENGINE, operator), Coordinates.random_walk(ENGINE, operator)):
        A2, B2 = reference.dense_pencil(coordinates.operator)
        assert np.allclose(la.eigvalsh(A2, B2), values)
        moved = coordinates.transform(vectors)
        assert np.allclose(A2 @ moved, B2 @ moved * values, atol=1e-10)
        assert np.allclose(coordinates.inverse_transform(moved), vectors)
    assert np.array_equal(
        reference.dense_pencil(Coordinates.standard(ENGINE, operator).operator)[1], np.eye(N)
    )


# --- Block Krylov spaces


def check(basis, A):
    """``A Q = Q T`` on what was multiplied, ``Q'Q = I``, and Ritz residuals as they are."""
    Q = np.asarray(basis.vectors.columns(0, basis.filled))
    assert np.abs(Q.T @ Q - np.eye(basis.filled)).max() < 1e-12
    assert np.allclose(A @ Q[:, : basis.done], Q @ basis.T[: basis.filled, : basis.done], atol=1e-11)
    ritz = basis.ritz()
    X = Q[:, : basis.done] @ ritz.Y
    assert np.allclose(np.linalg.norm(A @ X - X * ritz.values, axis=0), ritz.residuals, atol=1e-11)
    return Q, ritz


@pytest.fixture
def matrix():
    M = block(N, 7)
    return (M + M.T) / 2


@pytest.mark.parametrize("width", [1, 3])
def test_a_krylov_space_holds_the_products_of_its_vectors(matrix, width):
    operator = standard(matrix)
    start = np.linalg.qr(block(width))[0]
    basis, rng = Basis(ENGINE, operator, start, 12), np.random.default_rng(0)
    assert basis.front == width
    while not basis.full:
        basis.expand(rng)
    assert basis.filled + basis.front > 12 + 1 >= basis.filled
    assert basis.products == basis.done == basis.filled - width
    Q, _ = check(basis, matrix)
    # the space is that of the powers
    powers = np.hstack([np.linalg.matrix_power(matrix / 20, p) @ start for p in range(basis.filled // width)])
    assert span_sine(Q, powers) < 1e-6


@pytest.mark.parametrize("width", [1, 2])
def test_a_restart_keeps_the_first_ritz_vectors_and_goes_on(matrix, width):
    basis, rng = Basis(ENGINE, standard(matrix), np.linalg.qr(block(width))[0], 12), np.random.default_rng(0)
    while not basis.full:
        basis.expand(rng)
    ritz = basis.ritz()
    kept = np.asarray(basis.vectors.columns(0, basis.done)) @ ritz.Y[:, :4]
    basis.restart(ritz, 4)
    assert (basis.done, basis.filled) == (4, 4 + width)
    Q, again = check(basis, matrix)
    assert np.allclose(Q[:, :4], kept)
    assert np.allclose(again.values, ritz.values[:4])
    for _ in range(3):
        basis.expand(rng)
    check(basis, matrix)


def test_many_restarts_find_the_lowest_eigenvalues(matrix):
    basis, rng = Basis(ENGINE, standard(matrix), np.linalg.qr(block(2))[0], 20), np.random.default_rng(0)
    for _ in range(40):
        while not basis.full:
            basis.expand(rng)
        basis.restart(basis.ritz(), 8)
    assert np.allclose(basis.ritz().values[:3], np.linalg.eigvalsh(matrix)[:3], atol=1e-9)


def test_columns_beside_share_the_product(matrix):
    basis = Basis(ENGINE, standard(matrix), np.linalg.qr(block(2))[0], 12)
    beside = block(3, 5)
    assert np.allclose(basis.expand(np.random.default_rng(0), beside), matrix @ beside)
    check(basis, matrix)


@pytest.mark.parametrize("width", [1, 2])
def test_an_invariant_subspace_is_left_by_a_random_vector(matrix, width):
    vectors = np.linalg.eigh(matrix)[1]
    basis = Basis(ENGINE, standard(matrix), np.ascontiguousarray(vectors[:, :width]), 12)
    rng = np.random.default_rng(0)
    basis.expand(rng)
    assert (basis.done, basis.front) == (width, 1)
    for _ in range(4):
        basis.expand(rng)
    check(basis, matrix)


def test_directions_that_nearly_vanish_are_orthogonalised_again(matrix):
    """Lengths over five decades are kept; below a millionth of the largest they are dropped."""
    vectors, rng = np.linalg.eigh(matrix)[1], np.random.default_rng(0)
    for least, width in ((1e-5, 3), (1e-9, 2)):
        start = np.linalg.qr(vectors[:, :3] + block(3, 3) * [least, 1e-3, 1e-2])[0]
        basis = Basis(ENGINE, standard(matrix), start, 20)
        basis.expand(rng)
        assert basis.front == width
        if width == 3:
            for _ in range(3):
                basis.expand(rng)
            check(basis, matrix)


def test_a_basis_is_restored_from_its_numbers_and_parts(matrix):
    operator, rng = standard(matrix), np.random.default_rng(0)
    basis = Basis(ENGINE, operator, np.linalg.qr(block(2))[0], 12)
    for _ in range(3):
        basis.expand(rng)
    numbers = basis.numbers() | {"T": basis.T.copy()}
    twin = Basis.restore(ENGINE, operator, numbers, [part.copy() for part in basis.vectors.parts()])
    for one in (basis, twin):
        one.expand(np.random.default_rng(1))
    assert np.array_equal(basis.ritz().values, twin.ritz().values)
    assert (twin.products, twin.limit) == (basis.products, 12)


def test_a_basis_of_ritz_pairs_goes_on_as_the_one_they_are_from(matrix):
    operator, rng = standard(matrix), np.random.default_rng(0)
    basis = Basis(ENGINE, operator, np.linalg.qr(block(2))[0], 12)
    for _ in range(3):
        basis.expand(rng)
    ritz = basis.ritz()
    Q = np.asarray(basis.vectors.columns(0, 6)) @ ritz.Y
    front = np.ascontiguousarray(basis.vectors.columns(6, 8))
    other = Basis.of_ritz_pairs(ENGINE, operator, Q, ritz.values, front, ritz.coupling, 12)
    check(other, matrix)
    for one in (basis, other):
        one.expand(rng)
    check(other, matrix)
    assert np.allclose(other.ritz().values, basis.ritz().values)


def test_an_overflow_is_told(matrix):
    basis = Basis(ENGINE, standard(matrix), np.linalg.qr(block(1))[0], 12)
    basis.expand(np.random.default_rng(0))
    basis.T[0, 0] = np.inf
    with pytest.raises(FloatingPointError, match="overflowed"):
        basis.ritz()


def test_the_upper_edge_bounds_the_spectrum_and_stays_below_the_known_bound(matrix):
    top = float(np.linalg.eigvalsh(matrix)[-1])
    operator = DenseOperator(matrix, -3 * top, 3 * top)
    found = upper_edge(ENGINE, operator, np.random.default_rng(0), 25)
    assert top - 1e-3 <= found <= 1.2 * top
    known = DenseOperator(matrix, -3 * top, top)
    assert upper_edge(ENGINE, known, np.random.default_rng(0), 3) <= top


def test_residuals_of_given_pairs(pencil):
    operator, A, B = pencil
    values, vectors = la.eigh(A, B, subset_by_index=(0, 2))
    exact = Ritz(values, vectors, A @ vectors)
    assert residuals(ENGINE, operator, exact).max() < 1e-13
    shifted = Ritz(values + 0.5, vectors, A @ vectors)
    assert np.allclose(residuals(ENGINE, operator, shifted), 0.5)
