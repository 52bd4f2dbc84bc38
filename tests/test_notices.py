"""Warnings point to the caller's line, in the caller's words."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from spectrograd import Graph, MultilayerSpectralClustering, SpectralClustering, SpectralEmbedding, datasets
from spectrograd.cli import main
from spectrograd.io import read_graph, write_graph

DATA = datasets.make_block_model(300, 3, random_state=0)


def component_labels(n_alone):
    """A graph of three blocks and some pairs of nodes that nothing joins to it."""
    ends = DATA.graph.matrix.tocoo()
    upper = ends.row < ends.col
    more = 300 + 2 * np.arange(n_alone // 2)
    return Graph.from_edges(np.append(ends.row[upper], more), np.append(ends.col[upper], more + 1))


def caught(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return seen


@pytest.mark.parametrize(
    "call",
    [
        lambda: SpectralClustering(3, random_state=0).fit(component_labels(4)),
        lambda: SpectralClustering(3, random_state=0).fit_predict(component_labels(4)),
        lambda: make_pipeline(FunctionTransformer(), SpectralClustering(3)).fit(component_labels(4)),
        lambda: Graph.from_edges([0, 1, 1], [1, 2, 1]),
        lambda: SpectralEmbedding(3, solver="lanczos", max_iter=1, tol=1e-14).fit(DATA.graph),
    ],
)
def test_warnings_name_this_file(call):
    seen = caught(call)
    assert seen
    assert {warning.filename for warning in seen} == {__file__}


def test_warnings_about_files_name_the_caller(tmp_path):
    (tmp_path / "g.csv").write_text("src,dst,colour\n1,2,red\n2,3,blue\n")
    seen = caught(lambda: read_graph(tmp_path / "g.csv"))
    assert [warning.filename for warning in seen] == [__file__]


@pytest.mark.parametrize(("n_alone", "share"), [(4, ""), (20, " (6.2%)")])
def test_excluded_nodes_are_told_in_the_words_of_the_caller(n_alone, share, tmp_path, capsys):
    graph = component_labels(n_alone)
    (python,) = caught(lambda: SpectralClustering(3, random_state=0).fit(graph))
    write_graph(tmp_path / "g.csv", graph)
    assert main(["cluster", str(tmp_path / "g.csv"), "-k", "3", "-o", str(tmp_path / "o.csv")]) == 0
    command = capsys.readouterr().err
    told = f"{n_alone} of {300 + n_alone} nodes{share} are not connected"
    assert told in str(python.message)
    assert told in command
    assert "disconnected='regularize'" in str(python.message)
    assert "--disconnected regularize" in command
    assert "disconnected='" not in command


@pytest.mark.parametrize("cls", [SpectralClustering, SpectralEmbedding])
def test_a_fit_that_falls_short_warns(cls):
    with pytest.warns(ConvergenceWarning, match="NOT converged"):
        model = cls(3, solver="lanczos", max_iter=1, tol=1e-14, random_state=0).fit(DATA.graph)
    assert not model.converged_


def test_layers_that_fall_short_warn_and_the_sentence_agrees():
    """Rough subspaces of layers that are part of the merge are said, even where the merge itself is good."""
    rough = {"solver": "lanczos", "max_iter": 1, "tol": 1e-14, "aggregation": "projection"}
    model = MultilayerSpectralClustering(3, random_state=0, **rough)
    with pytest.warns(ConvergenceWarning, match="NOT converged in layers"):
        model.fit([DATA.graph, DATA.graph])
    assert not model.converged_
    assert model.certificate_.sentence.startswith("NOT converged")


def test_commands_say_it_in_their_own_error_only(tmp_path, capsys):
    write_graph(tmp_path / "g.csv", DATA.graph)
    how = ["--solver", "lanczos", "--max-iter", "1", "--tol", "1e-14", "-o", str(tmp_path / "o.csv")]
    assert main(["cluster", str(tmp_path / "g.csv"), "-k", "3", *how]) == 1
    assert capsys.readouterr().err.count("NOT converged") == 1


def test_no_goal_no_warning():
    seen = caught(lambda: SpectralClustering(3, solver="sgd", random_state=0).fit(DATA.graph))
    assert not [w for w in seen if issubclass(w.category, ConvergenceWarning)]
