"""Diffusion maps: dense twin, parity with pydiffmap's and scanpy's formulas, new points, models, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from spectrograd import DiffusionMap, Graph, load
from spectrograd.graph import GraphError

RNG = np.random.default_rng(0)
POINTS = np.column_stack([np.linspace(0, 3, 150) ** 1.5, 0.3 * RNG.standard_normal((150, 2))])
KERNEL = rbf_kernel(POINTS, gamma=2.0)


def dense_map(K, alpha, k):
    """Eigenvalues and psi of the walk, by a dense eigendecomposition."""
    q = K.sum(axis=1)
    Ka = K / np.outer(q, q) ** alpha
    d = Ka.sum(axis=1)
    values, V = np.linalg.eigh(Ka / np.sqrt(np.outer(d, d)))
    order = np.argsort(-values)[1 : k + 1]
    return values[order], V[:, order] / np.sqrt(d)[:, None] * np.sqrt(d.sum())


def up_to_signs(A, B):
    return A * np.sign((A * B).sum(axis=0))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("t", [1, 3, 0.5])
def test_coordinates_are_those_of_the_dense_map(alpha, t):
    values, psi = dense_map(KERNEL, alpha, 3)
    model = DiffusionMap(3, alpha=alpha, t=t, affinity="rbf", gamma=2.0, tol=1e-9).fit(POINTS)
    assert np.allclose(model.eigenvalues_, values, atol=1e-8)
    assert np.allclose(up_to_signs(model.embedding_, psi), psi * values**t, atol=1e-5)
    assert model.converged_
    assert model.get_feature_names_out().tolist() == [f"diffusionmap{i}" for i in range(3)]


def test_all_steps_at_once():
    values, psi = dense_map(KERNEL, 1.0, 2)
    model = DiffusionMap(2, t="auto", affinity="rbf", gamma=2.0, tol=1e-9).fit(POINTS)
    expected = psi * values / (1 - values)
    assert np.allclose(up_to_signs(model.embedding_, expected), expected, atol=1e-4)


def test_a_graph_without_own_weights_is_scanpys_map():
    """scanpy: K / (q q'), then eigenvectors of the symmetric transition matrix, which are psi sqrt(d)."""
    W = KERNEL - np.eye(150)
    values, psi = dense_map(W, 1.0, 3)
    model = DiffusionMap(3, alpha=1.0, t=0, tol=1e-9).fit(Graph.from_matrix(W))
    assert np.allclose(model.eigenvalues_, values, atol=1e-8)
    assert np.allclose(up_to_signs(model.embedding_, psi), psi, atol=1e-4)


def test_density_is_undone():
    """A circle sampled unevenly: with alpha = 1 the first two coordinates are its cosine and sine."""
    angle = 2 * np.pi * np.linspace(0, 1, 400, endpoint=False)
    angle = angle + 0.7 * np.sin(angle)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    radius = {
        alpha: np.linalg.norm(
            DiffusionMap(2, alpha=alpha, t=0, affinity="rbf", gamma=30.0).fit_transform(circle), axis=1
        )
        for alpha in (0.0, 1.0)
    }
    assert radius[1.0].std() < 0.1 * radius[1.0].mean() < radius[0.0].std()


def test_new_points_lie_where_the_fit_has_them(tmp_path):
    model = DiffusionMap(2, affinity="rbf", gamma=2.0, tol=1e-9).fit(POINTS)
    assert np.allclose(model.transform(POINTS[:5]), model.embedding_[:5])
    near = model.transform(POINTS[:5] + 1e-4)
    assert np.allclose(near, model.embedding_[:5], atol=0.03)  # a twin is one neighbour more
    model.save(tmp_path / "map")
    assert np.array_equal(load(tmp_path / "map").transform(POINTS[:5] + 1e-4), near)
    neighbours = DiffusionMap(2, n_neighbors=15, random_state=0).fit(POINTS)
    assert np.allclose(neighbours.transform(POINTS[:5] + 1e-6), neighbours.embedding_[:5], atol=0.05)


def test_rows_of_a_graph_are_extended_exactly():
    W = sp.csr_array(KERNEL - np.eye(150))
    model = DiffusionMap(2, alpha=0.5, tol=1e-9).fit(Graph.from_matrix(W))
    assert np.allclose(model.transform(W[:4]), model.embedding_[:4], atol=1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": 2}, "alpha=2: expected a number from 0 to 1"),
        ({"t": -1}, "t=-1: expected 'auto' or a number"),
        ({"t": "all"}, "t='all': expected 'auto' or a number"),
        ({"self_weight": -1}, "self_weight=-1: expected"),
        ({"n_components": 200}, "too many"),
    ],
)
def test_mistakes_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        DiffusionMap(**params).fit(POINTS)
    model = DiffusionMap(2, tol=1e-6).fit(Graph.from_matrix(KERNEL - np.eye(150)))
    with pytest.raises(GraphError, match="one weight per node, 150"):
        model.transform(np.ones((1, 7)))
