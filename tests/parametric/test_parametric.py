"""A network on the paper's objective: its loss, its distance from the eigenvectors, new points, layers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import reference
from spectrograd import metrics
from spectrograd.labels import assign
from spectrograd.operators.laplacian import laplacian
from spectrograd.points.knn_graph import knn_graph
from spectrograd.torch import ParametricSpectralEmbedding

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")


@pytest.fixture(scope="module")
def points():
    X, labels = make_blobs(700, 5, centers=4, cluster_std=2.2, random_state=3)
    return X[:600], labels[:600], X[600:], labels[600:]


@pytest.fixture(scope="module")
def model(points):
    return ParametricSpectralEmbedding(
        3, hidden=(64, 64), epochs=60, batch_size=512, engine="torch:cpu", random_state=0
    ).fit(points[0])


def test_the_loss_is_the_objective():
    """On all edges, each as often as its weight says: exactly Eq. 8."""
    from spectrograd.torch.parametric import objective

    graph = reference.random_graph(40, np.random.default_rng(0), weighted=False)
    W = graph.matrix.tocoo()
    U = np.random.default_rng(1).standard_normal((40, 3))
    A, B = reference.dense_pencil(laplacian(graph))
    expected = np.trace(np.linalg.solve(U.T @ B @ U, U.T @ A @ U))
    found = objective(torch, torch.tensor(U[W.row]), torch.tensor(U[W.col]))
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_the_certificate_is_near_but_not_converged(points, model):
    """Ritz values lie above eigenvalues, by not much; the residual of a network is no eigenvector's."""
    operator = laplacian(knn_graph(points[0].astype(np.float32), 10, connect=True))
    exact = reference.smallest(operator, 4)[0]
    found = np.r_[model.certificate_.eigenvalues]
    assert (found >= exact - 1e-9).all()
    assert found.sum() < exact.sum() + 0.3
    assert not model.certificate_.converged
    assert model.objective_[-1] < model.objective_[0]
    np.testing.assert_allclose(found[1:], model.eigenvalues_)


def test_known_points_stay_where_they_are_and_new_ones_join_their_clusters(points, model):
    known, labels, new, new_labels = points
    np.testing.assert_allclose(model.transform(known), model.embedding_, atol=1e-4)
    np.testing.assert_array_equal(model.transform(torch.tensor(new)), model.transform(new))
    clusters = assign(model.embedding_, 4, unit_rows=True, norm_regularization=1.0, random_state=0).labels
    assert metrics.score(labels, clusters)["nmi"] > 0.85
    centres = np.array([model.embedding_[clusters == c].mean(axis=0) for c in range(4)])
    nearest = ((model.transform(new)[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert metrics.score(new_labels, nearest)["nmi"] > 0.85


def test_several_layers(points):
    """The volumes of layers count alike: one with all weights a thousand times larger changes nothing."""
    X = points[0]
    layers = [
        knn_graph(X[:, columns].astype(np.float32), 10, connect=True) for columns in ([0, 1, 2], [2, 3, 4])
    ]
    small = {"hidden": (32,), "epochs": 3, "engine": "torch:cpu", "random_state": 0}
    first = ParametricSpectralEmbedding(3, **small).fit(X, graph=[layer.matrix for layer in layers])
    second = ParametricSpectralEmbedding(3, **small).fit(X, graph=[layers[0].matrix, 1000 * layers[1].matrix])
    np.testing.assert_allclose(first.eigenvalues_, second.eigenvalues_, rtol=1e-4)


def test_what_it_refuses(points, model):
    with pytest.raises(ValueError, match="4 features per row; fit was given 5"):
        model.transform(points[2][:, :4])
    with pytest.raises(ValueError, match="row 7 are not finite"):
        ParametricSpectralEmbedding(engine="torch:cpu").fit(
            np.where(np.arange(20)[:, None] == 7, np.nan, 1.0)
        )
    with pytest.raises(ValueError, match="600 rows of features for 3 nodes"):
        ParametricSpectralEmbedding(engine="torch:cpu").fit(points[0], graph=np.ones((3, 3)) - np.eye(3))
