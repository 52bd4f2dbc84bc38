"""``convert``, and stores where the other commands take a graph."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spectrograd import read_graph
from spectrograd.cli import main


@pytest.fixture
def edges(tmp_path):
    rng = np.random.default_rng(0)
    blocks = np.kron(np.eye(3), np.full((40, 40), 0.4)) + 0.01
    ends = np.argwhere(np.triu(rng.random((120, 120)) < blocks, 1))
    path = tmp_path / "edges.csv"
    np.savetxt(path, ends, fmt="%d", delimiter=",", header="one,other", comments="")
    return path


def test_convert_then_info_then_cluster(tmp_path, edges, capsys):
    store, summary = tmp_path / "g.store", tmp_path / "s.json"
    command = ["convert", str(edges), "-o", str(store), "--source", "one", "--target", "other", "--edges"]
    command += ["--order", "labelprop", "--memory-limit", "100MB", "--summary-json", str(summary)]
    assert main(command) == 0
    assert "edges/s" in capsys.readouterr().err
    made = json.loads(summary.read_text())
    graph = read_graph(store)
    assert made["graph"] == {"n_nodes": 120, "n_edges": graph.n_edges, "n_layers": 1}
    assert len(made["input"]["sha256"]) == len(made["store"]["fingerprint"]) == 64
    assert main(["info", str(store), "--summary-json", str(summary)]) == 0
    out = capsys.readouterr().out
    assert f"{graph.n_edges:,} edges" in out
    assert json.loads(summary.read_text())["graph"]["layers"][0]["n_components"] == 1
    assert main(["cluster", str(store), "-k", "3", "-o", str(tmp_path / "labels.csv"), "-q"]) == 0
    rows = [line.split(",") for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert [int(node) for node, *_ in rows] == list(range(120))  # the order of the input
    labels = np.array([row[1] for row in rows]).reshape(3, 40)
    assert all(len(set(group)) == 1 for group in labels.tolist())


def test_convert_says_what_is_wrong(tmp_path, edges, capsys):
    store = str(tmp_path / "g.store")
    assert main(["convert", str(edges), "-o", store, "--memory-limit", "lots"]) == 2
    assert "'lots' is no amount of memory" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "no.csv"), "-o", store]) == 2
    assert "no such file" in capsys.readouterr().err
    given = ["--source", "one", "--target", "other", "-q"]
    assert main(["convert", str(edges), "-o", store, *given]) == 0
    assert main(["convert", str(edges), "-o", store, *given]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["convert", str(edges), "-o", store, "--force", *given]) == 0
    assert main(["convert", str(edges), "-o", str(edges), "--force", *given]) == 2
    assert "which it would replace" in capsys.readouterr().err
    other = edges.with_name("other.csv")
    other.write_text("src,dst\n")
    assert main(["convert", str(edges), "-o", str(other), "--force", *given]) == 2
    assert "is no store" in capsys.readouterr().err
