"""``--regularization``, ``--disconnected``, ``-k auto`` and the reasons in the summary, end to end."""

import json

import numpy as np
import pytest
from test_demo import run
from test_laplacian_regularization import whiskered

from spectrograd import datasets


def write_edges(path, graph, extra=()):
    matrix = graph.matrix.tocoo()
    once = matrix.row < matrix.col
    pairs = [*zip(matrix.row[once], matrix.col[once], strict=True), *extra]
    path.write_text("src,dst\n" + "".join(f"n{a},n{b}\n" for a, b in pairs))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("treatment")
    write_edges(here / "dangling.csv", whiskered()[0])
    blocks = datasets.make_block_model(300, 4, random_state=0)
    write_edges(here / "components.csv", blocks.graph, extra=[("tiny", "crumb")])
    return here


def summary_of(folder, *args):
    done = run("cluster", *args, "-o", "labels.csv", "--summary-json", "run.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = (folder / "labels.csv").read_text().split()[1:]
    labels = {name: int(label) for name, label in (row.split(",") for row in rows)}
    return json.loads((folder / "run.json").read_text()), labels, done.stderr


def test_regularization_and_its_reason(folder):
    summary, _, _ = summary_of(folder, "dangling.csv", "-k", "2")
    assert summary["regularization"]["tau"] == 0.1
    assert "live on less than a tenth" in summary["regularization"]["reason"]
    attempts = summary["solver"]["attempts"]
    assert len(attempts) == 1  # rough vectors chose the treatment: one solve is certified
    assert attempts[0]["outcome"].startswith("converged")
    assert {"reason", "outcome", "iterations", "matvecs", "seconds"} <= set(attempts[0])
    assert summary["components"]["sentence"] == "the graph is connected"
    summary, _, _ = summary_of(folder, "dangling.csv", "-k", "2", "--regularization", "none")
    assert (summary["regularization"]["tau"], summary["eigengap"]) == (0, None)


def test_components_and_an_automatic_number(folder):
    summary, labels, stderr = summary_of(folder, "components.csv", "-k", "auto")
    assert summary["n_clusters"] == 4
    assert len(summary["eigengap"]["eigenvalues"]) == 21
    assert {name for name, label in labels.items() if label == -1} == {"ntiny", "ncrumb"}
    assert summary["components"]["n_excluded"] == 2
    assert "ntiny" in stderr
    assert "ncrumb" in stderr
    assert np.unique(list(labels.values())).tolist() == [-1, 0, 1, 2, 3]


def test_refused_with_a_word(folder):
    done = run("embed", "components.csv", "--disconnected", "error", cwd=folder)
    assert done.returncode == 2
    assert "2 components; 2 nodes are outside the largest" in done.stderr
    done = run("cluster", "components.csv", "-k", "many", cwd=folder)
    assert done.returncode == 2
    assert "'many' is not a valid integer range" in done.stderr
