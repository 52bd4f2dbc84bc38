"""Half as many vectors more of a merge of layers, where they tell more."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import spectrograd
from spectrograd import MultilayerGraph, MultilayerSpectralClustering, MultilayerSpectralEmbedding, metrics
from spectrograd.pipeline.treatment import Candidate
from spectrograd.points.knn_graph import knn_graph


@cache
def digits():
    """Neighbours of handwritten digits by their left, middle and right columns."""
    data = load_digits()
    at = np.arange(64) % 8
    parts = [at < 3, (at >= 3) & (at < 5), at >= 5]
    views = [data.data[:, part] for part in parts]
    scaled = [(view - view.mean(axis=0)) / np.maximum(view.std(axis=0), 1e-9) for view in views]
    return MultilayerGraph.from_layers([knn_graph(view, 10) for view in scaled]), data.target


@cache
def fit(**options):
    return MultilayerSpectralClustering(10, random_state=0, **options).fit(digits()[0])


def test_more_vectors_make_better_clusters_where_they_tell_more():
    model = fit()
    assert model.treatment_.rows == "commute"
    assert model.embedding_.shape[1] == 15
    assert model.converged_
    first, other = model.treatment_.candidates
    assert other.relative > first.relative
    assert "of the information about the layers" in model.treatment_.reason
    truth = digits()[1]
    assert metrics.nmi(truth, model.labels_) > metrics.nmi(truth, fit(regularization=None).labels_) + 0.02


@pytest.mark.parametrize(
    "asked", [{"regularization": None}, {"solver": "eigen"}, {"assign_labels": "cluster_qr"}]
)
def test_nothing_is_compared_where_something_was_asked_for(asked):
    model = fit(**asked)
    assert not hasattr(model, "treatment_")
    assert model.embedding_.shape[1] == 10


def test_an_embedding_has_the_columns_asked_for():
    embedded = MultilayerSpectralEmbedding(10, drop_first=False, random_state=0).fit_transform(digits()[0])
    assert embedded.shape[1] == 10


def test_the_first_vectors_stay_where_more_tell_less(monkeypatch):
    monkeypatch.setattr(Candidate, "is_better_than", lambda self, first: False)
    model = MultilayerSpectralClustering(10, random_state=0).fit(digits()[0])
    assert model.treatment_.rows == "soft unit"
    assert model.embedding_.shape[1] == 10
    assert len(model.treatment_.candidates) == 2


def test_updates_and_saved_models_weigh_columns_in_the_same_way(tmp_path):
    model = MultilayerSpectralClustering(10, random_state=0).fit(digits()[0])
    before = model.labels_
    model.save(tmp_path / "model")
    loaded = spectrograd.load(tmp_path / "model")
    name = digits()[0].layer_names[0]
    loaded.partial_fit(pd.DataFrame({"src": [0, 1], "dst": [5, 7], "layer": [name, name]}))
    assert loaded.embedding_.shape[1] == 15
    assert loaded.treatment_.rows == "commute"
    assert metrics.nmi(before, loaded.labels_) > 0.98
