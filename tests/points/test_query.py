"""Questions about points that came later: found by the lists of the fit, each by itself to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import reference
import spectrograd
from spectrograd import SpectralClustering
from spectrograd.estimators.affinity_rows import PointRows
from spectrograd.kernels.multivector import STRIP, row_products
from spectrograd.points.knn_graph import neighbour_graph
from spectrograd.points.search import Wanted


def mixture(n_points, n_features, seed=0):
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(9).standard_normal((10, n_features))
    return centres[rng.integers(10, size=n_points)] + rng.standard_normal((n_points, n_features))


def known(points, k=5, **wanted):
    return neighbour_graph(points, Wanted(k, search="approximate", recall=0.95, **wanted))[1]


def same_answers(one, other):
    np.testing.assert_array_equal(one.weights.toarray(), other.weights.toarray())
    np.testing.assert_array_equal(one.same, other.same)
    np.testing.assert_array_equal(one.outlier_scale, other.outlier_scale)


def test_row_products_do_not_depend_on_the_company():
    rng = np.random.default_rng(0)
    rows, table = (rng.standard_normal(shape).astype(np.float32) for shape in ((37, 83), (83, 2 * STRIP)))
    whole = np.empty((37, 2 * STRIP), np.float32)
    row_products(rows, table, whole)
    np.testing.assert_allclose(whole, reference.row_products(rows, table), atol=1e-4)
    for row in range(37):
        alone = np.empty((1, 2 * STRIP), np.float32)
        row_products(rows[row : row + 1].copy(), table, alone)
        np.testing.assert_array_equal(alone[0], whole[row])


@pytest.mark.parametrize("n_features", [12, 100])  # as they are, and projected
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_lists_answer_for_each_point_by_itself(n_features, metric):
    points, new = mixture(3000, n_features), mixture(300, n_features, seed=1)
    model = known(points, metric=metric)
    assert model.index is not None
    found = model.ask(new)
    exact = neighbour_graph(points, Wanted(5, metric, search="exact"))[1].ask(new)
    shared = (found.weights != 0).multiply(exact.weights != 0).sum()
    assert shared > 0.93 * 5 * 300
    for part in (slice(7, 8), slice(100, 290)):
        alone = model.ask(new[part])
        np.testing.assert_array_equal(alone.weights.toarray(), found.weights[part].toarray())
        np.testing.assert_array_equal(alone.outlier_scale, found.outlier_scale[part])
    assert (found.same == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_twins_are_found_among_points_that_single_precision_cannot_tell_apart(dtype):
    points = mixture(3000, 70).astype(dtype)
    points[1000:1400] = points[1000]
    points[1000:1400, 0] += np.arange(400) * 1e-6  # closer than a projection resolves
    points[50:120] = points[50]  # a crowd in one place
    model = known(points)
    rows = np.r_[0:50, 120:3000:7, 1000:1400]
    first = {row.tobytes(): at for at, row in reversed(list(enumerate(points)))}
    expected = [first[points[row].tobytes()] for row in rows]
    assert model.ask(points[rows]).same.tolist() == expected
    assert model.ask(points[rows].astype(np.float64)).same.tolist() == expected
    assert (model.ask(points[50:120]).same == 50).all()


def test_points_far_out_are_answered_and_known_as_such():
    points = mixture(3000, 70)
    model, far = known(points), np.stack([points[0] + 1e3, points[0] * 1e12])
    found = model.ask(far)
    assert (np.diff(found.weights.indptr) == 5).all()
    assert (found.outlier_scale > 100).all()
    with pytest.raises(ValueError, match="row 1 lies too far from the training points"):
        model.ask(np.stack([points[0], np.full(70, 1e300)]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float64])
def test_grey_levels_are_kept_in_single_precision_with_the_same_answers(dtype):
    grey = np.clip(128 + 20 * mixture(3300, 70), 0, 255).round()
    points = grey[:3000].astype(dtype)
    model = known(points)
    assert model.points.dtype == np.float32
    offset = 2.0**-40  # no longer a number of single precision
    double = known(grey[:3000] + offset)
    assert double.points.dtype == np.float64
    same_answers(model.ask(grey[3000:]), model.ask(grey[3000:].astype(dtype)))
    exact = neighbour_graph(points, Wanted(5, search="exact"))[1].ask(grey[3000:])
    shared = (model.ask(grey[3000:]).weights != 0).multiply(exact.weights != 0).sum()
    assert shared > 0.93 * 5 * 300
    halves = grey[3000:] + 0.5
    np.testing.assert_allclose(model.ask(halves).scale, double.ask(halves + offset).scale, rtol=1e-3)


def test_small_integers_are_fitted_and_asked_as_they_are():
    grey = np.clip(128 + 30 * mixture(600, 12), 0, 255).astype(np.uint8)
    models = [
        SpectralClustering(10, affinity="nearest_neighbors", random_state=0).fit(x)
        for x in (grey, grey.astype(float))
    ]
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    assert models[0].embedding_.dtype == np.float64
    new = np.clip(grey[:50].astype(int) + 1, 0, 255)
    answers = [
        model.predict(x) for model, x in zip(models, (new.astype(np.uint8), new.astype(float)), strict=True)
    ]
    np.testing.assert_array_equal(*answers)


def test_lists_grow():
    points, new = mixture(3000, 70), mixture(500, 70, seed=1)
    model = known(points[:2500])
    grown = model.with_more(points[2500:], model.ask(points[2500:]))
    assert grown.ask(points).same.tolist() == list(range(3000))
    exact = neighbour_graph(points, Wanted(5, search="exact"))[1].ask(new)
    shared = (grown.ask(new).weights != 0).multiply(exact.weights != 0).sum()
    assert shared > 0.9 * 5 * 500


def test_a_saved_model_has_its_lists(tmp_path):
    points, new = mixture(3000, 20), mixture(50, 20, seed=1)
    model = SpectralClustering(10, random_state=0).fit(points)
    model._training_data = type(model._training_data)(
        model._training_data.graph,
        model._training_data.extension,
        model._training_data.names,
        (PointRows(known(points, 10)),),
        model._training_data.clusters,
    )
    model.save(tmp_path / "model")
    again = spectrograd.load(tmp_path / "model")
    assert again._training_data.makers[0].known.index is not None
    np.testing.assert_array_equal(again.transform(new), model.transform(new))
    np.testing.assert_array_equal(again.transform(points[:9]), model.embedding_[:9])
