"""``coregularized`` against a twin of few dense lines, and what it promises."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from spectrograd import MultilayerSpectralClustering, datasets, metrics
from spectrograd.aggregation import layer_operators
from spectrograd.pipeline import Settings
from spectrograd.pipeline.merge import merge

K = 4
DATA = datasets.make_multilayer_gmm(300, 3, K, separation=2.2, random_state=0)
FORMS = ("centroid", "pairwise")


def top(A):
    return np.linalg.eigh(A)[1][:, -K:]


def twin(form, strength, rounds):
    """Kumar, Rai and Daume 2011, both forms line by line."""
    similarities = [2 * np.eye(300) - op.to_dense() for op in layer_operators(DATA.graph, "symmetric")]
    subspaces = [top(A) for A in similarities]
    for _ in range(rounds):
        for v, A in enumerate(similarities):
            if form == "pairwise":
                drawn = sum(U @ U.T for w, U in enumerate(subspaces) if w != v)
            else:
                centroid = top(sum(U @ U.T for U in subspaces))
                drawn = centroid @ centroid.T
            subspaces[v] = top(A + strength * drawn)
    return top(sum(U @ U.T for U in subspaces))


def merged(form, **options):
    return merge(
        DATA.graph,
        K,
        Settings(seed=0),
        aggregation="coregularized",
        aggregation_params={"form": form, **options},
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strength", [0.1, 0.5])
def test_the_same_subspace_as_the_twin(form, strength):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = merged(form, strength=strength, max_iter=5, tol=0.0).embed(K, Settings(seed=0))
    cosines = np.linalg.svd(found.embedding.vectors.T @ twin(form, strength, 5))[1]
    assert cosines.min() > 1 - 1e-4
    assert found.certificate.converged


@pytest.mark.parametrize("form", FORMS)
def test_without_strength_it_is_grassmann(form):
    plain = merge(DATA.graph, K, Settings(seed=0), aggregation="grassmann").embed(K, Settings(seed=0))
    found = merged(form, strength=0.0).embed(K, Settings(seed=0))
    assert np.linalg.svd(found.embedding.vectors.T @ plain.embedding.vectors)[1].min() > 1 - 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_layers_come_closer_and_clusters_are_found(form):
    model = MultilayerSpectralClustering(
        K, aggregation="coregularized", aggregation_params={"form": form}, random_state=0
    ).fit(DATA.graph)
    alone = [MultilayerSpectralClustering(K, random_state=0).fit([g]).labels_ for g in DATA.graph.layers]
    assert metrics.nmi(DATA.labels, model.labels_) > max(metrics.nmi(DATA.labels, one) for one in alone)
    assert model.aggregation_ == "coregularized"
    assert model.converged_


def test_a_run_that_does_not_settle_warns():
    with pytest.warns(ConvergenceWarning, match="did not settle in 1 rounds"):
        merged("pairwise", strength=3.0, max_iter=1, tol=0.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"form": "both"}, "expected 'centroid' or 'pairwise'"),
        ({"strength": -1.0}, "strength=-1.0: expected a number >= 0"),
        ({"max_iter": 0}, "max_iter=0: expected a whole number"),
        ({"rounds": 3}, "has no parameter 'rounds'"),
    ],
)
def test_bad_options_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        merge(DATA.graph, K, Settings(seed=0), aggregation="coregularized", aggregation_params=params)
