"""Clusters of single layers under the names of the merged ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import MultilayerSpectralClustering, datasets, metrics
from spectrograd.pipeline.layer_labels import cluster_layers, layer_agreement

DATA = datasets.make_multilayer_gmm(300, 3, 4, separation=3.0, random_state=0)


@pytest.fixture(scope="module")
def model():
    return MultilayerSpectralClustering(4, random_state=0).fit(DATA.graph)


def test_layers_are_named_like_the_merge(model):
    assert model.layer_labels_.shape == (3, 300)
    for own in model.layer_labels_:
        same = (own == model.labels_).mean()
        for other in ([1, 0, 2, 3], [3, 1, 2, 0]):  # no exchange of two names does better
            assert same >= (np.array(other)[own] == model.labels_).mean()
        assert same == pytest.approx(1, abs=0.5)


def test_agreement_is_high_where_the_layers_say_the_same(model):
    agreement = model.layer_agreement_
    assert agreement.shape == (300,)
    assert set(np.round(3 * agreement).astype(int)) <= {0, 1, 2, 3}
    np.testing.assert_allclose(agreement, (model.layer_labels_ == model.labels_).mean(axis=0))
    right = agreement == 1
    wrong = agreement < 0.5
    assert right.any()
    if wrong.sum() > 5:
        assert metrics.purity(DATA.labels[right], model.labels_[right]) >= metrics.purity(
            DATA.labels[wrong], model.labels_[wrong]
        )


def test_nodes_that_a_layer_does_not_link_have_no_label_there():
    first, second = (layer.matrix.copy() for layer in DATA.graph.layers[:2])
    gone = sp.diags_array((np.arange(300) >= 20).astype(float))
    fitted = MultilayerSpectralClustering(4, random_state=0).fit([sp.csr_array(gone @ first @ gone), second])
    assert (fitted.layer_labels_[0, :20] == -1).all()
    assert (fitted.layer_labels_[1] >= 0).all()
    known = fitted.layer_agreement_[:20]
    assert set(known.tolist()) <= {0.0, 1.0}


def test_layers_that_were_not_embedded_have_no_labels():
    fitted = MultilayerSpectralClustering(4, aggregation="mean", random_state=0).fit(DATA.graph)
    assert fitted.layer_labels_ is None
    assert fitted.layer_agreement_ is None


def test_a_layer_without_columns_says_nothing():
    labels = np.array([0, 0, 1, 1])
    found = cluster_layers([np.zeros((4, 0)), np.eye(4)[:, :2]], labels, 2)
    assert found[0].tolist() == [-1] * 4
    assert found[1, :2].min() >= 0
    assert np.isnan(layer_agreement(found, np.array([-1, 0, 1, 1]))[0])
