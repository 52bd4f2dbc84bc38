"""scikit-learn for real: its estimator checks, its parameters, its machinery."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn.cluster
import sklearn.manifold
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from spectrograd import (
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    metrics,
)
from spectrograd.estimators.settings import ROUNDING, solver_and_tolerance

PAIRS = [
    (SpectralClustering, sklearn.cluster.SpectralClustering),
    (SpectralEmbedding, sklearn.manifold.SpectralEmbedding),
]
# Estimator -> check of scikit-learn -> why it cannot pass. The documentation says how many there are.
EXCEPTIONS: dict[str, dict[str, str]] = {}


class OneLayerPerColumn:
    """scikit-learn's checks give one array of points: here each column becomes a layer."""

    def fit(self, X, y=None):
        X = validate_data(self, X, ensure_min_samples=2)
        return super().fit([X[:, [column]] for column in range(X.shape[1])])

    def partial_fit(self, X, y=None):
        if not hasattr(self, "labels_") and not hasattr(self, "embedding_"):
            return self.fit(X)
        X = validate_data(self, X, reset=False)
        return super().partial_fit([X[:, [column]] for column in range(X.shape[1])])

    def transform(self, X):
        return super().transform(self.columns(X))

    def score_samples(self, X):
        return super().score_samples(self.columns(X))

    def columns(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return [X[:, [column]] for column in range(X.shape[1])]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.sparse = True, False
        return tags


class ColumnsEmbedding(OneLayerPerColumn, MultilayerSpectralEmbedding):
    pass


class ColumnsClustering(OneLayerPerColumn, MultilayerSpectralClustering):
    def predict(self, X, *, outlier_quantile=None):
        return super().predict(self.columns(X), outlier_quantile=outlier_quantile)


POINTS = {"affinity": "nearest_neighbors"}


@parametrize_with_checks(
    [
        SpectralEmbedding(),
        SpectralClustering(),
        MultilayerSpectralEmbedding(),
        MultilayerSpectralClustering(),
        ColumnsEmbedding(2, aggregation="mean", **POINTS),
        ColumnsClustering(2, aggregation="mean", **POINTS),
        SpectralEmbedding(2, affinity="rbf"),
        SpectralClustering(2, affinity="rbf"),
    ],
    expected_failed_checks=lambda estimator: EXCEPTIONS.get(type(estimator).__name__, {}),
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_documentation_lists_the_exceptions():
    page = (Path(__file__).parents[2] / "docs" / "coming_from_scikit_learn.md").read_text(encoding="utf-8")
    reasons = [reason for checks in EXCEPTIONS.values() for reason in checks.values()]
    assert ("exceptions: none" in page) == (not reasons)
    assert all(reason in page for reason in reasons)


def test_the_columns_are_layers(blobs):
    model = ColumnsClustering(3, aggregation="mean", random_state=0, **POINTS).fit(blobs[0])
    assert len(model.layer_names_) == 2
    assert model.labels_.shape == (90,)


# --- the same parameters ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blobs():
    """Three clear clusters of positive points."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 30)
    centres = np.array([[3, 3], [9, 3], [3, 9.0]])
    return centres[truth] + 0.5 * rng.standard_normal((90, 2)), truth


def same_up_to_sign(first, second, atol):
    signs = np.sign((first * second).sum(axis=0))
    np.testing.assert_allclose(first * signs, second, atol=atol)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["clustering", "embedding"])
def test_every_parameter_of_scikit_learn_is_taken(ours, theirs):
    mine, known = (inspect.signature(cls).parameters for cls in (ours, theirs))
    assert known.keys() <= mine.keys()
    assert {name: mine[name].kind for name in known} == {name: known[name].kind for name in known}
    differing = {name for name in known if mine[name].default != known[name].default}
    # the defaults of the public contract
    own = set() if ours is SpectralClustering else {"n_components", "n_neighbors"}
    assert differing == {"affinity"} | own


@pytest.mark.parametrize("cls", [MultilayerSpectralEmbedding, MultilayerSpectralClustering])
def test_layers_have_the_parameters_of_one_layer(cls):
    single = SpectralClustering if cls is MultilayerSpectralClustering else SpectralEmbedding
    mine, one = cls().get_params(), single().get_params()
    assert one.keys() <= mine.keys()
    assert {name for name in one if one[name] != mine[name]} == set()


@pytest.mark.parametrize(
    "kernel", sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - {"additive_chi2", "cosine", "linear"})
)
def test_every_kernel_is_scikit_learns(blobs, kernel):
    X, _ = blobs
    X = X / 10
    params = {"gamma": 0.7, "degree": 2, "coef0": 0.5}
    model = SpectralEmbedding(2, affinity=kernel, random_state=0, **params).fit(X)
    expected = pairwise_kernels(X, metric=kernel, filter_params=True, **params)
    np.testing.assert_allclose(model.affinity_matrix_, expected)
    reference = sklearn.manifold.SpectralEmbedding(2, affinity="precomputed", random_state=0)
    assert metrics.largest_principal_angle(model.embedding_, reference.fit_transform(expected)) < 1e-6


@pytest.mark.parametrize("gamma", [None, 0.3])
def test_embedding_equals_scikit_learns(blobs, gamma):
    X, _ = blobs
    ours = SpectralEmbedding(3, affinity="rbf", gamma=gamma, random_state=0).fit_transform(X / 5)
    theirs = sklearn.manifold.SpectralEmbedding(3, affinity="rbf", gamma=gamma, random_state=0)
    same_up_to_sign(ours, theirs.fit_transform(X / 5), 1e-8)


def test_kernel_params_count_and_are_not_changed(blobs):
    X, truth = blobs
    given = {"gamma": 0.3}
    model = SpectralClustering(3, affinity="laplacian", gamma=99, kernel_params=given, random_state=0).fit(X)
    np.testing.assert_allclose(model.affinity_matrix_, pairwise_kernels(X, metric="laplacian", gamma=0.3))
    assert given == {"gamma": 0.3}
    assert metrics.nmi(truth, model.labels_) > 0.95


def test_a_clusterings_function_takes_two_points_an_embeddings_all(blobs):
    X, truth = blobs

    def likeness(x, y, scale):
        return np.exp(-((x - y) ** 2).sum() / scale)

    clustering = SpectralClustering(3, affinity=likeness, kernel_params={"scale": 2.0}, random_state=0)
    assert metrics.nmi(truth, clustering.fit_predict(X)) > 0.95
    layered = MultilayerSpectralClustering(3, affinity=likeness, kernel_params={"scale": 2.0}, random_state=0)
    assert metrics.nmi(truth, layered.fit_predict([X, X])) > 0.95
    embedding = SpectralEmbedding(2, affinity=lambda x: pairwise_kernels(x, metric="rbf"), random_state=0)
    expected = SpectralEmbedding(2, affinity="rbf", gamma=0.5, random_state=0).fit_transform(X)
    same_up_to_sign(embedding.fit_transform(X), expected, 1e-10)


def test_sparse_points(blobs):
    from scipy.sparse import coo_matrix, csr_array

    X, truth = blobs
    dense = SpectralClustering(3, random_state=0).fit(X)
    assert metrics.nmi(truth, dense.labels_) > 0.95
    for sparse in (csr_array(X), coo_matrix(X)):
        model = SpectralClustering(3, random_state=0).fit(sparse)
        np.testing.assert_allclose(
            model.affinity_matrix_.toarray(), dense.affinity_matrix_.toarray(), atol=1e-6
        )
        np.testing.assert_array_equal(model.labels_, dense.labels_)
    bad = csr_array(X)
    bad.data[7] = np.inf
    from spectrograd.points.knn_graph import knn_graph

    with pytest.raises(ValueError, match=r"points are not finite \(first in row 3\)"):
        knn_graph(bad)


def test_n_neighbors_none_is_a_tenth_of_the_points(blobs):
    assert SpectralEmbedding(2, n_neighbors=None, random_state=0).fit(blobs[0]).n_neighbors_ == 9


@pytest.mark.parametrize(
    ("eigen_solver", "solver"),
    [("arpack", "eigen"), ("lobpcg", "lobpcg"), ("amg", "lobpcg"), (None, "eigen")],
)
def test_eigen_solver_is_one_of_ours(blobs, eigen_solver, solver):
    if eigen_solver == "amg":
        pytest.importorskip("pyamg")
    X, truth = blobs
    model = SpectralClustering(3, eigen_solver=eigen_solver, affinity="rbf", gamma=0.1, random_state=0).fit(X)
    assert model.solver_ == solver
    assert model.converged_
    assert metrics.nmi(truth, model.labels_) > 0.95


def test_amg_preconditions():
    pytest.importorskip("pyamg")
    model = SpectralEmbedding(eigen_solver="amg", solver_params={"guard": 2})
    assert solver_and_tolerance(model) == ("lobpcg", {"preconditioner": "amg", "guard": 2}, "auto")


def test_eigen_tol_is_tol():
    assert solver_and_tolerance(SpectralEmbedding(eigen_tol=1e-3)) == ("auto", {}, 1e-3)
    assert solver_and_tolerance(SpectralEmbedding(tol=1e-3)) == ("auto", {}, 1e-3)
    arpack = SpectralEmbedding(eigen_solver="arpack", eigen_tol=1e-3)
    assert solver_and_tolerance(arpack) == ("eigen", {"tol": 1e-3}, 1e-3)
    assert solver_and_tolerance(SpectralEmbedding(eigen_tol=0)) == ("auto", {}, ROUNDING)


def test_machine_precision_can_be_certified(blobs):
    model = SpectralEmbedding(2, affinity="rbf", gamma=0.1, eigen_solver="arpack", eigen_tol=0).fit(blobs[0])
    assert model.converged_


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"eigen_solver": "magic"},
            "eigen_solver='magic': expected None, arpack, lobpcg, amg; other methods",
        ),
        ({"eigen_solver": "lobpcg", "solver": "sgd"}, "solver='sgd' and eigen_solver='lobpcg' mean the same"),
        ({"eigen_tol": 1e-3, "tol": 1e-4}, "tol=0.0001 and eigen_tol=0.001 mean the same: give one"),
        ({"eigen_tol": -1}, "eigen_tol=-1: expected a number that is not negative, or 'auto'"),
        ({"eigen_tol": "tiny"}, "eigen_tol='tiny': expected a number"),
        ({"affinity": "magic"}, "affinity='magic': expected one of nearest_neighbors, rbf.*, or a function"),
        ({"n_components": 90}, "n_components=90 is too many for this graph"),
        ({"affinity": "linear"}, "negative"),
    ],
)
def test_mistakes_are_named(blobs, params, words):
    X = blobs[0] - 6 if params == {"affinity": "linear"} else blobs[0]
    with pytest.raises(ValueError, match=words):
        SpectralClustering(3).set_params(**params).fit(X)


def test_without_pyamg_amg_says_what_to_install(blobs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ValueError, match=r"pyamg is not available. pip install 'spectrograd\[amg\]'"):
        SpectralClustering(3, eigen_solver="amg").fit(blobs[0])


def test_n_components_of_a_clustering(blobs):
    X, _ = blobs
    model = SpectralClustering(3, n_components=5, random_state=0).fit(X)
    assert model.embedding_.shape == (90, 5)
    assert set(model.labels_) == {0, 1, 2}
    same = SpectralClustering(3, n_components=3, random_state=0).fit_predict(X)
    np.testing.assert_array_equal(same, SpectralClustering(3, random_state=0).fit_predict(X))


def test_single_precision_in_single_precision_out(blobs):
    X, _ = blobs
    for affinity in ("nearest_neighbors", "rbf"):
        model = SpectralEmbedding(2, affinity=affinity, random_state=0)
        assert model.fit_transform(X.astype(np.float32)).dtype == np.float32
        assert model.fit_transform(X).dtype == np.float64


def test_a_graph_leaves_no_affinity_matrix(blobs):
    from spectrograd.points.knn_graph import knn_graph

    model = SpectralEmbedding(2, random_state=0).fit(blobs[0])
    assert model.affinity_matrix_.shape == (90, 90)
    assert not hasattr(model.fit(knn_graph(blobs[0])), "affinity_matrix_")


# --- the machinery ----------------------------------------------------------------------------------


def test_pipelines(blobs):
    X, truth = blobs
    labels = make_pipeline(StandardScaler(), SpectralClustering(3, random_state=0)).fit_predict(X)
    assert metrics.nmi(truth, labels) > 0.95
    neighbours = KNeighborsTransformer(n_neighbors=12)
    clustering = SpectralClustering(
        3, affinity="precomputed_nearest_neighbors", n_neighbors=10, random_state=0
    )
    assert metrics.nmi(truth, make_pipeline(neighbours, clustering).fit_predict(X)) > 0.95
    rows = make_pipeline(StandardScaler(), SpectralEmbedding(2, random_state=0)).fit_transform(X)
    assert metrics.nmi(truth, KMeans(3, n_init=5, random_state=0).fit_predict(rows)) > 0.95


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "precomputed"])
def test_grid_search(blobs, affinity):
    X, truth = blobs
    data = X if affinity == "nearest_neighbors" else pairwise_kernels(X, metric="rbf", gamma=0.1)

    def score(model, X, y):
        return metrics.nmi(y, model.fit_predict(X))

    model = SpectralClustering(affinity=affinity, random_state=0)
    everything = [(np.arange(90), np.arange(90))]  # nothing is held out: labels are of the nodes seen
    search = GridSearchCV(model, {"n_clusters": [2, 3]}, scoring=score, cv=everything, error_score="raise")
    search.fit(data, truth)
    assert search.best_params_ == {"n_clusters": 3}
    assert search.best_score_ > 0.9
    assert search.best_estimator_.labels_.shape == (90,)


def test_set_output(blobs):
    pandas = pytest.importorskip("pandas")
    X, _ = blobs
    table = pandas.DataFrame(X, index=[f"row {i}" for i in range(90)], columns=["a", "b"])
    model = SpectralEmbedding(2, random_state=0).set_output(transform="pandas")
    rows = model.fit_transform(table)
    assert list(rows.columns) == ["spectralembedding0", "spectralembedding1"]
    assert list(rows.index) == list(table.index)
    assert list(model.feature_names_in_) == ["a", "b"]
    layered = MultilayerSpectralEmbedding(2, random_state=0, **POINTS).set_output(transform="pandas")
    assert layered.fit_transform([X, X]).shape == (90, 2)


def test_joblib_dumps(blobs, tmp_path):
    X, _ = blobs
    for model in (
        SpectralClustering(3, random_state=0),
        SpectralEmbedding(2, affinity="rbf", random_state=0),
    ):
        joblib.dump(model.fit(X), tmp_path / "model.joblib")
        again = joblib.load(tmp_path / "model.joblib")
        np.testing.assert_array_equal(again.embedding_, model.embedding_)
        assert again.get_params() == model.get_params()
        assert again.certificate_.sentence == model.certificate_.sentence


def test_estimators_run_in_joblibs_threads(blobs):
    models = [SpectralClustering(k, random_state=0) for k in (2, 3)]
    fits = joblib.Parallel(n_jobs=2, prefer="threads")(
        joblib.delayed(clone(model).fit)(blobs[0]) for model in models
    )
    for model, fitted in zip(models, fits, strict=True):
        np.testing.assert_array_equal(fitted.labels_, model.fit(blobs[0]).labels_)
