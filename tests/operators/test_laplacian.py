"""Operators against dense matrices, on the numpy path and on the compiled one."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import scipy.linalg as la
from test_graph import split

import reference
from spectrograd.aggregation import Layers, layer_operators, mean, projection, without_absent
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers.settings import RunContext

KINDS = ["random_walk", "symmetric", "unnormalized"]
PATHS = {
    "numpy": Thresholds(),
    "serial": Thresholds(small=0),
    "parallel": Thresholds(small=0, worth_threads=0),
}


@pytest.fixture(params=PATHS)
def engine(request):
    """Each way to a product, on the same small graph."""
    return LocalEngine(thresholds=PATHS[request.param])


@pytest.fixture(scope="module", params=[True, False], ids=["weighted", "unweighted"])
def graph(request):
    return reference.random_graph(70, np.random.default_rng(0), weighted=request.param)


def with_low_rank(operator, rng):
    Z = la.qr(rng.standard_normal((operator.n_nodes, 4)), mode="economic")[0]
    low_rank = LowRank(Z, np.array([0.5, 1.0, 2.0, 0.1]))
    return SparseOperator(operator.graph, operator.diagonal, operator.scale, operator.metric, low_rank)


def definition(graph, kind):
    """``A`` and ``B`` written down as in the textbook."""
    W = graph.matrix.toarray()
    D = np.diag(W.sum(axis=1))
    if kind == "symmetric":
        root = np.diag(1 / np.sqrt(np.diag(D)))
        return root @ (D - W) @ root, np.eye(len(W))
    return D - W, D if kind == "random_walk" else np.eye(len(W))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low_rank", [False, True])
def test_products_equal_the_dense_matrix(graph, engine, kind, dtype, low_rank):
    rng = np.random.default_rng(1)
    operator = laplacian(graph, kind)
    A, B = definition(graph, kind)
    if low_rank:
        operator = with_low_rank(operator, rng)
        Z, a = operator.low_rank.factors, operator.low_rank.coefficients
        A = A - Z @ np.diag(a) @ Z.T
    U = rng.standard_normal((70, 5)).astype(dtype)
    product = engine.apply(operator, U)
    assert product.dtype == dtype
    np.testing.assert_allclose(product, A @ U, atol=1e-12 if dtype is np.float64 else 2e-5 * np.abs(A).max())
    np.testing.assert_array_equal(operator @ U[:, 0], (operator @ U[:, :1])[:, 0])
    np.testing.assert_array_equal(operator @ np.asfortranarray(U), operator @ U)
    np.testing.assert_allclose(engine.apply(operator, np.eye(70)), A, atol=1e-12)
    np.testing.assert_allclose(reference.dense_pencil(operator)[1], B)


def test_products_never_change_their_operand(graph, engine):
    operator = with_low_rank(laplacian(graph, "symmetric"), np.random.default_rng(2))
    U = np.ones((70, 2))
    engine.apply(operator, U)
    assert (U == 1).all()


def test_whole_numbers_are_multiplied_too(graph):
    operator = laplacian(graph, "unnormalized")
    whole = np.arange(140).reshape(70, 2)
    np.testing.assert_array_equal(operator @ whole, operator @ whole.astype(float))


@pytest.mark.parametrize("kind", KINDS)
def test_the_trivial_vector_is_in_the_kernel(graph, engine, kind):
    operator = laplacian(graph, kind)
    trivial = np.sqrt(graph.degrees) if kind == "symmetric" else np.ones(70)
    np.testing.assert_allclose(engine.apply(operator, trivial[:, None]), 0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [[0, 30, 31, 70], [0, 0, 70, 70]])
def test_several_row_blocks_give_the_same_product(graph, engine, kind, cuts):
    U = np.random.default_rng(3).standard_normal((70, 4))
    parts = split(graph, cuts)
    assert len(parts.blocks) == 3
    for X, error in ((U, 1e-13), (U.astype(np.float32), 2e-5)):
        expected = engine.apply(laplacian(graph, kind), X)
        np.testing.assert_allclose(engine.apply(laplacian(parts, kind), X), expected, atol=error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("low_rank", [False, True])
def test_standard_form_has_the_same_eigenvalues(graph, engine, kind, low_rank):
    operator = laplacian(graph, kind)
    if low_rank:
        operator = with_low_rank(operator, np.random.default_rng(4))
    A, B = reference.dense_pencil(operator)
    standard = operator.standard_form()
    assert standard.metric is None
    values, vectors = la.eigh(engine.apply(standard, np.eye(70)))
    np.testing.assert_allclose(values, la.eigh(A, B, eigvals_only=True), atol=1e-10)
    back = vectors if operator.metric is None else vectors / operator.standard_factors[:, None]
    np.testing.assert_allclose(A @ back, B @ back * values, atol=1e-9)
    np.testing.assert_allclose(back.T @ B @ back, np.eye(70), atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_spectrum_lies_within_its_bounds(graph, kind):
    operator = laplacian(graph, kind)
    values = la.eigh(*reference.dense_pencil(operator), eigvals_only=True)
    assert values[0] >= operator.lower - 1e-12
    assert values[-1] <= operator.upper + 1e-12
    complete = laplacian(Graph.from_matrix(1 - np.eye(2)), kind)  # one edge: the upper bound is met
    assert la.eigh(*reference.dense_pencil(complete), eigvals_only=True)[-1] == pytest.approx(complete.upper)


@pytest.mark.parametrize("kind", KINDS)
def test_aggregated_operators(engine, kind):
    rng = np.random.default_rng(5)
    layers = MultilayerGraph.from_layers([reference.random_graph(60, rng) for _ in range(3)])
    weights = np.array([0.5, 1.0, 1.5])
    operators = layer_operators(layers, kind)
    expected = sum(c * reference.dense_pencil(op)[0] for c, op in zip(weights, operators, strict=True))
    summed = mean.aggregate(Layers(operators, weights))
    np.testing.assert_allclose(engine.apply(summed, np.eye(60)), expected, atol=1e-12)
    bases = tuple(embed(op, 3, Settings(seed=0), RunContext(engine)).embedding.vectors for op in operators)
    merged = projection.aggregate(Layers(operators, weights, bases), alpha=0.7)
    expected = expected - 0.7 * sum(c * U @ U.T for c, U in zip(weights, bases, strict=True))  # Eq. 22
    np.testing.assert_allclose(engine.apply(merged, np.eye(60)), expected, atol=1e-12)
    for operator in (summed, merged):
        values = la.eigvalsh(reference.dense_pencil(operator)[0])
        assert operator.lower - 1e-12 <= values[0]
        assert values[-1] <= operator.upper + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_row_term_is_what_the_diagonal_holds_beyond_edges(graph, kind):
    operator = laplacian(graph, kind)
    A = reference.dense_pencil(operator)[0]
    np.testing.assert_allclose(operator.row_term, A.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(operator.row_sums, A.diagonal() - A.sum(axis=1), atol=1e-12)


def test_casting_twice_is_free(graph):
    operator = with_low_rank(laplacian(graph), np.random.default_rng(6))
    single = operator.astype(np.float32)
    assert operator.astype(np.float64) is operator
    assert operator.astype(np.float32) is single
    parts = (single.diagonal, single.metric, single.low_rank.factors, single.low_rank.coefficients)
    assert {part.dtype for part in parts} == {np.dtype(np.float32)}
    assert single.shape == (70, 70)


# --- nodes without edges ----------------------------------------------------------------------------


def lonely(n_isolated, names=None):
    W = np.zeros((3 + n_isolated,) * 2)
    W[0, 1] = W[1, 0] = W[1, 2] = W[2, 1] = 0.5
    return Graph.from_matrix(W, names=names)


@pytest.mark.parametrize("kind", KINDS)
def test_isolated_nodes_are_named(kind):
    with pytest.raises(GraphError, match=r"2 isolated nodes .*: dan, eve; remove them"):
        laplacian(lonely(2, ["ann", "bob", "cid", "dan", "eve"]), kind)
    with pytest.raises(GraphError, match=r"7 isolated nodes .*: 3, 4, 5, 6, 7, \.\.\.; remove"):
        laplacian(lonely(7), kind)
    with pytest.raises(GraphError, match="it has nodes but no edge"):
        laplacian(Graph.from_matrix(np.zeros((3, 3))), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_isolated_nodes_may_be_allowed(engine, kind):
    operator = laplacian(lonely(1), kind, allow_isolated=True)
    A, B = reference.dense_pencil(operator)
    assert not A[3].any()  # no opinion in a sum of layers
    np.testing.assert_allclose(engine.apply(operator, np.eye(4)), A, atol=1e-15)
    assert (la.eigh(A, B, eigvals_only=True) < 1e-12).sum() == 2
    # on its own a layer must not spend its eigenvectors on the nodes it lacks
    values = la.eigh(*reference.dense_pencil(without_absent(operator)), eigvals_only=True)
    assert (values < 1e-12).sum() == 1
    assert values[-1] <= operator.upper + 1e-12


def test_unknown_kind(graph):
    with pytest.raises(ValueError, match="laplacian='signless': expected one of random_walk, symmetric, unn"):
        laplacian(graph, "signless")


def test_the_name_of_0_1_is_kept_for_one_release():
    room = import_module("spectrograd.operators.laplacian")
    with pytest.warns(DeprecationWarning, match="SparseOperator"):
        assert room.Operator is SparseOperator
    with pytest.raises(AttributeError, match="no attribute"):
        _ = room.Nothing
