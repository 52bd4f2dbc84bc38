"""``predict`` and ``update`` end to end: runs that take new nodes and changed edges."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spectrograd import SpectralClustering, datasets, metrics
from spectrograd.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A graph of named nodes in 3 clusters, a run of it, and the edges of 20 nodes that came later."""
    monkeypatch.chdir(tmp_path)
    data = datasets.make_block_model(320, 3, mean_degree=16, mixing=0.1, random_state=0)
    order = np.random.default_rng(0).permutation(320)
    entries = data.graph.matrix[order][:, order].tocoo()
    once = entries.row < entries.col
    old = once & (entries.col < 300)
    for name, kept in (("graph.csv", old), ("new.csv", once & ~old)):
        lines = [f"n{i},n{j}\n" for i, j in zip(entries.row[kept], entries.col[kept], strict=True)]
        (tmp_path / name).write_text("src,dst\n" + "".join(lines))
    truth = data.labels[order]
    (tmp_path / "truth.csv").write_text("node,label\n" + "".join(f"n{i},{c}\n" for i, c in enumerate(truth)))
    assert main(["cluster", "graph.csv", "-k", "3", "--run", "results", "-o", "labels.csv", "-q"]) == 0
    return tmp_path


def labels_of(path):
    lines = path.read_text().splitlines()[1:]
    return dict(line.split(",") for line in lines)


def test_predict(here):
    assert main(["predict", "results", "new.csv", "-o", "new_labels.csv", "--summary-json", "told.json"]) == 0
    found, truth = labels_of(here / "new_labels.csv"), labels_of(here / "truth.csv")
    assert set(found) == {f"n{i}" for i in range(300, 320)}
    both = labels_of(here / "labels.csv") | found
    assert metrics.nmi([truth[n] for n in both], list(both.values())) > 0.9
    told = json.loads((here / "told.json").read_text())
    assert told["n_new"] == 20
    assert told["run"] == "results"


def test_predict_of_an_embedding_and_of_points(here, capsys):
    assert main(["embed", "graph.csv", "-k", "2", "--run", "rows", "-o", "emb.csv", "-q"]) == 0
    assert main(["predict", "rows", "new.csv", "-o", "more.csv"]) == 0
    assert (here / "more.csv").read_text().startswith("node,e0,e1\n")
    assert main(["predict", "rows", "new.csv", "--outlier-quantile", "0.9"]) == 2
    X = np.random.default_rng(0).standard_normal((60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    SpectralClustering(2, random_state=0).fit(X).save("points.model")
    np.save("more.npy", X[:3] + 0.01)
    assert main(["predict", "points.model", "more.npy", "-o", "out.csv"]) == 0
    assert len(set(labels_of(here / "out.csv").values())) == 1


def test_update(here, capsys):
    before = labels_of(here / "labels.csv")
    done = main(
        ["update", "graph.csv", "new.csv", "--run", "results", "-o", "l2.csv", "--summary-json", "t.json"]
    )
    assert done == 0
    after = labels_of(here / "l2.csv")
    assert len(after) == 320
    assert np.mean([after[name] == label for name, label in before.items()]) > 0.95
    assert "nodes changed their cluster" in capsys.readouterr().err
    told = json.loads((here / "t.json").read_text())
    assert told["update"]["action"] in ("kept", "warm start")
    assert told["certificate"]["converged"]
    assert main(["update", "graph.csv", "--remove", "new.csv", "--run", "results", "-o", "l3.csv", "-q"]) == 0
    assert labels_of(here / "l3.csv")["n300"] == "-1"  # nothing is left that joins it to the rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["update", "graph.csv", "--run", "results"], "nothing to change"),
        (["update", "graph.csv", "--remove", "new.csv", "--run", "results"], "is not in the graph"),
        (
            ["update", "graph.csv", "new.csv", "--run", "results", "--new-nodes", "refuse"],
            "is not in the graph",
        ),
        (["update", "new.csv", "graph.csv", "--run", "results"], "made of another graph"),
        (["predict", "results", "graph.csv"], "every node in it is known"),
        (["predict", ".", "new.csv"], "no model there"),
    ],
)
def test_errors_leave_the_run_as_it_was(here, capsys, arguments, message):
    before = (here / "results" / "model" / "meta.json").read_bytes()
    capsys.readouterr()
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert (here / "results" / "model" / "meta.json").read_bytes() == before
