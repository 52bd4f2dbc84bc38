"""Estimators show themselves: a picture, and their figures in a notebook."""

from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from spectrograd import (
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
)

SIZES = (150, 150)


@pytest.fixture(scope="module")
def fitted():
    single = datasets.make_block_model(300, 2, random_state=0).graph
    several = datasets.make_multilayer_gmm(200, 2, 3, random_state=0).graph
    return {
        "clustering": SpectralClustering(2, random_state=0).fit(single),
        "embedding": SpectralEmbedding(3, random_state=0).fit(single),
        "multilayer clustering": MultilayerSpectralClustering(3, random_state=0).fit(several),
        "multilayer embedding": MultilayerSpectralEmbedding(1, random_state=0).fit(several),
    }


NAMES = ("clustering", "embedding", "multilayer clustering", "multilayer embedding")


def drawn_points(axis):
    (cloud,) = axis.collections
    return np.asarray(cloud.get_offsets())


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_draws_its_nodes(fitted, name):
    axis = Figure().subplots()
    assert fitted[name].plot(ax=axis) is axis
    points = drawn_points(axis)
    assert len(points) == len(fitted[name].embedding_)
    assert np.isfinite(points).all()
    assert type(fitted[name]).__name__ in axis.get_title()


def test_components_are_the_axes(fitted):
    model = fitted["embedding"]
    points = drawn_points(model.plot(ax=Figure().subplots(), components=(2, 0)))
    wanted = model.embedding_[:, [2, 0]]
    assert points[np.lexsort(points.T)] == pytest.approx(wanted[np.lexsort(wanted.T)])


def test_clusters_have_colours_of_their_own_and_a_legend(fitted):
    axis = fitted["clustering"].plot(ax=Figure().subplots())
    colours = axis.collections[0].get_facecolors()
    assert len(np.unique(colours, axis=0)) == 2
    assert sorted(text.get_text() for text in axis.get_legend().get_texts()) == [
        "cluster 0 (150)",
        "cluster 1 (150)",
    ]


def test_a_figure_is_made_where_none_is_given(fitted, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "subplots", lambda **options: (None, Figure(**options).subplots()))
    assert fitted["clustering"].plot().figure is not None


@pytest.mark.parametrize("components", [(0, 3), (0,), (-1, 0), ("0", 1)])
def test_components_that_are_not_there(fitted, components):
    with pytest.raises(ValueError, match="expected two columns from 0 to 2"):
        fitted["embedding"].plot(ax=Figure().subplots(), components=components)


def test_nothing_to_draw_before_fit():
    with pytest.raises(NotFittedError):
        SpectralClustering().plot()


class Texts(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.text = ""
        self.feed(page)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_show_scikit_learns_diagram_and_the_certificate(fitted, name):
    model = fitted[name]
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "sk-top-container" in html
        text = Texts(html).text
        assert "The eigenvectors are as accurate as was asked for." in text
        assert f"solver {model.solver_}" in text
    assert ("nodes per cluster" in text) == hasattr(model, "labels_")


def test_the_text_of_a_fitted_clustering_has_the_verdict_on_its_clusters(fitted):
    model = fitted["clustering"]
    parameters, verdict = repr(model).split("\n")
    assert parameters == "SpectralClustering(n_clusters=2, random_state=0)" == repr(sklearn.clone(model))
    assert verdict == f"# {model.cluster_verdict_.sentence}"
    assert repr(fitted["embedding"]) == "SpectralEmbedding(n_components=3, random_state=0)"
    pipeline = repr(make_pipeline(model))
    assert "SpectralClustering(n_clusters=2, random_state=0)" in pipeline
    assert model.cluster_verdict_.sentence not in pipeline
    long = repr(SpectralClustering(2, memory_limit="2GB", checkpoint="a folder", solver="lanczos", n_init=3))
    assert max(map(len, long.split("\n"))) <= 80


def test_sizes_are_told(fitted):
    assert "nodes per cluster: 0: 150, 1: 150" in fitted["clustering"]._repr_html_()


def test_a_result_that_fell_short_says_so():
    graph = datasets.make_block_model(300, 3, random_state=0).graph
    model = SpectralEmbedding(3, solver="gradient-descent", max_iter=1, random_state=0).fit(graph)
    assert "did not reach the accuracy" in model._repr_html_()


def test_before_fit_the_diagram_stands_alone():
    html = SpectralClustering()._repr_html_()
    assert "sk-top-container" in html
    assert "spectrograd-certificate" not in html
    assert "spectrograd-certificate" not in estimator_html_repr(SpectralClustering())


def test_scikit_learns_text_display_is_respected(fitted):
    with sklearn.config_context(display="text"):
        assert not hasattr(fitted["clustering"], "_repr_html_")
        assert "text/html" not in fitted["clustering"]._repr_mimebundle_()


def test_a_notebook_shows_a_model_without_warnings(fitted, recwarn):
    """scikit-learn reads the docstring, whose parameters stand in several sections."""
    read = getattr(pytest.importorskip("sklearn.utils._repr_html.common"), "scrape_estimator_docstring", None)
    if read is not None:
        read.cache_clear()
    fitted["clustering"]._repr_mimebundle_()
    assert not [str(warning.message) for warning in recwarn if "section" in str(warning.message)]
