"""A law: the scale of the weights changes eigenvalues of the unnormalised Laplacian, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import MultilayerSpectralClustering, SpectralClustering, SpectralEmbedding
from spectrograd.graph import Graph, GraphError
from spectrograd.operators.equilibration import MAX_SIZE, MIN_SIZE, equilibrate
from spectrograd.operators.laplacian import laplacian, regularized_laplacian
from spectrograd.solvers import REGISTRY

KINDS = ["random_walk", "symmetric", "unnormalized"]
EXPONENTS = [-200, -100, -25, -5, 5, 20, 100, 200]
PARAMS = {"sgd": {"batch_size": 30}, "sgd-paper": {"batch_size": 30}, "stochastic-fb": {"batch_size": 30}}
STOCHASTIC = ("sgd", "sgd-paper", "stochastic-fb")
FEW_STEPS = {"sgd": 20, "sgd-paper": 20, "stochastic-fb": 20, "coordinate-power": 50}


def three_blocks(size=15):
    """Three groups, linked by light edges; weights of many digits."""
    rng = np.random.default_rng(5)
    part = np.repeat(np.arange(3), size)
    random = rng.random((3 * size, 3 * size))
    W = np.where(part[:, None] == part, random + 0.5, 0.05 * random)
    W = np.triu(W, 1)
    return W + W.T, part


def fitted(W, kind, solver, **more):
    model = SpectralClustering(
        3, affinity="precomputed", laplacian=kind, solver=solver, random_state=0, regularization=None,
        max_iter=FEW_STEPS.get(solver), **{"solver_params": PARAMS.get(solver), **more},
    )  # fmt: skip
    return model.fit(W)


def unit_rows_of(model, W, kind):
    """The vectors in coordinates in which they are orthonormal, whatever the scale."""
    root = np.sqrt(W.sum(axis=1) / W.max())[:, None] if kind == "random_walk" else 1.0
    return np.linalg.qr(model.embedding_ / np.abs(model.embedding_).max() * root)[0]


def scale_of(exponent, solver):
    """A power of ten; for solvers that magnify every rounding one of four, which rounds nothing."""
    return 4.0 ** round(exponent * np.log2(10) / 2) if solver in STOCHASTIC else 10.0**exponent


@pytest.mark.filterwarnings("ignore::spectrograd.graph.GraphWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["auto", *REGISTRY])
def test_the_scale_of_the_weights_plays_no_part(solver, kind):
    W, _ = three_blocks()
    plain = fitted(W, kind, solver)
    for exponent in EXPONENTS:
        scale = scale_of(exponent, solver)
        other = fitted(W * scale, kind, solver)
        values = other.eigenvalues_ / (scale if kind == "unnormalized" else 1.0)
        np.testing.assert_allclose(values, plain.eigenvalues_, rtol=1e-3, atol=1e-4 * W.sum(axis=1).max())
        both = unit_rows_of(plain, W, kind), unit_rows_of(other, W, kind)
        assert reference.largest_sine(*both, None) < 2e-2
        assert np.array_equal(other.labels_, plain.labels_)
        assert other.converged_ == plain.converged_


@pytest.mark.parametrize(
    "aggregation", ["projection", "mean", "power-mean", "geometric", "grassmann", "joint"]
)
@pytest.mark.parametrize("kind", ["symmetric", "unnormalized"])
def test_the_scale_of_all_layers_plays_no_part(aggregation, kind):
    W, part = three_blocks(25)
    layers = [W, np.where(part[:, None] == part, W, 3 * W)]
    for scale in (1.0, 1e-200, 1e-25, 1e20, 1e200):
        model = MultilayerSpectralClustering(
            3, laplacian=kind, aggregation=aggregation, random_state=0, regularization=None
        ).fit([layer * scale for layer in layers])
        assert model.converged_
        assert len(set(zip(model.labels_, part, strict=True))) == 3


@pytest.mark.parametrize("scale", [1e-25, 1e20])
def test_a_random_regular_graph_of_light_edges(scale):
    rng = np.random.default_rng(0)
    W = np.zeros((120, 120))
    for _ in range(2):
        order = rng.permutation(120)
        W[order, np.roll(order, 1)] = W[np.roll(order, 1), order] = 1
    operator = laplacian(Graph.from_matrix(W), "unnormalized")
    truth = reference.smallest(operator, 3)[1]
    model = SpectralEmbedding(
        3, drop_first=False, affinity="precomputed", laplacian="unnormalized", solver="power", random_state=0,
        regularization=None,
    ).fit(W * scale)  # fmt: skip
    sine = reference.largest_sine(model.embedding_, truth, None)
    assert not model.converged_ or sine <= model.certificate_.angle_bound


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e20])
def test_a_turned_torus_is_not_certified_from_the_other_one(scale):
    """The start is an invariant subspace, and the wrong one."""

    def torus(a, b):
        loop = sp.diags_array([1.0] * 4, offsets=[1, -1, 9, -9], shape=(10, 10)).tocsr()
        return sp.csr_array(a * sp.kron(loop, sp.eye_array(10)) + b * sp.kron(sp.eye_array(10), loop)) * scale

    model = SpectralEmbedding(
        3, drop_first=False, affinity="precomputed", laplacian="unnormalized", solver="power", random_state=0,
        regularization=None, warm_start=True,
    )  # fmt: skip
    model.fit(torus(1, 0.2))
    assert model.fit(torus(0.2, 1)).converged_ is False


def test_the_user_sees_his_own_numbers():
    W, _ = three_blocks()
    graph = Graph.from_matrix(W * 1e150)
    assert np.array_equal(graph.matrix.toarray(), W * 1e150)
    model = SpectralEmbedding(
        2, affinity="precomputed", laplacian="unnormalized", drop_first=False, regularization=None
    ).fit(W * 1e150)
    truth = np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W)[:2] * 1e150
    assert np.abs(model.eigenvalues_ - truth).max() <= model.certificate_.max_residual
    assert model.history_[-1].residual > 1e130
    np.testing.assert_allclose(model.certificate_.intervals.mean(axis=1), model.eigenvalues_)
    walk = SpectralEmbedding(2, affinity="precomputed", drop_first=False, regularization=None).fit(W * 1e150)
    gram = (walk.embedding_ * graph.degrees[:, None]).T @ walk.embedding_
    np.testing.assert_allclose(gram, np.eye(2), atol=1e-6)


def test_weights_whose_sums_overflow_are_refused():
    W, _ = three_blocks()
    with pytest.raises(GraphError, match="too large"):
        laplacian(Graph.from_matrix(W * 1e307))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize("ratio", [1.0, 1e30])
def test_a_balanced_operator_is_the_same_operator(kind, tau, ratio):
    W, part = three_blocks()
    side = np.where(part < 1, 1.0, ratio**-0.5)
    graph = Graph.from_matrix(W * np.outer(side, side) * 1e100)
    given = regularized_laplacian(graph, kind, tau)
    found = equilibrate(given)
    assert found is not None
    inner = found.operator
    assert MIN_SIZE <= inner.upper - inner.lower <= MAX_SIZE
    assert all(np.isfinite(block.weights).all() for block in inner.astype(np.float32).graph.blocks)
    vectors = np.random.default_rng(0).standard_normal((graph.n_nodes, 2))
    np.testing.assert_allclose(found.transform(found.inverse_transform(vectors)), vectors)
    # u'A u / u'B u is unit times what the inner pencil has for the same vector
    u = found.inverse_transform(vectors[:, :1])
    mass, inner_mass = (op.metric if op.metric is not None else np.ones(45) for op in (given, inner))
    quotient = (u.T @ (given @ u)).item() / (mass @ u**2).item()
    v = vectors[:, :1]
    assert quotient == pytest.approx(found.unit * (v.T @ (inner @ v)).item() / (inner_mass @ v**2).item())
    assert equilibrate(inner) is None


def test_ordinary_graphs_are_left_alone():
    graph = reference.random_graph(40, np.random.default_rng(0))
    assert all(equilibrate(laplacian(graph, kind)) is None for kind in KINDS)
