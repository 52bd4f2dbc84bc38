"""From points to clusters, and to the clusters of new points, at the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.io

from spectrograd import load, metrics, read_labels
from spectrograd.cli import main

RNG = np.random.default_rng(0)
CENTRES = 9 * RNG.standard_normal((4, 3))
TRUTH = np.repeat(np.arange(4), 50)
POINTS = CENTRES[TRUTH] + RNG.standard_normal((200, 3))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"p{i},{x:.4f},{y:.4f},{z:.4f},kind\n" for i, (x, y, z) in enumerate(POINTS)]
    (tmp_path / "p.csv").write_text("name,x,y,z,what\n" + "".join(rows))
    (tmp_path / "new.csv").write_text("name,x,y,z,what\n" + "".join("q" + row[1:] for row in rows[::10]))
    return tmp_path


def outcome(capsys, *args):
    code = main(list(map(str, args)))
    return code, capsys.readouterr().err


def test_points_to_clusters_to_new_points_to_a_page(capsys, here):
    how = ["--points", "--ignore", "what", "--neighbors", 8, "--metric", "manhattan"]
    code, told = outcome(
        capsys, "cluster", "p.csv", *how, "-k", 4, "--run", "R", "-o", "l.csv", "--summary-json", "s.json"
    )
    assert code == 0, told
    names = [f"p{i}" for i in range(200)]
    labels = read_labels("l.csv", names)
    assert metrics.nmi(TRUTH, labels) > 0.95
    assert json.loads((here / "s.json").read_text())["graph"]["n_nodes"] == 200
    model = load("R/model")
    assert (model.n_neighbors, model.metric, model.affinity_) == (8, "manhattan", "nearest_neighbors")
    assert outcome(capsys, "predict", "R", "new.csv", "--ignore", "what", "-o", "n.csv")[0] == 0
    assert read_labels("n.csv", [f"q{i}" for i in range(0, 200, 10)]).tolist() == labels[::10].tolist()
    assert outcome(capsys, "report", "R", "-o", "page.html")[0] == 0
    assert outcome(capsys, "cluster", "-c", "R/run.toml", "-o", "again.csv", "--run", "R2")[0] == 0
    assert (here / "again.csv").read_bytes() == (here / "l.csv").read_bytes()


def test_points_to_an_embedding(capsys, here):
    code, told = outcome(
        capsys, "embed", "p.csv", "--points", "--ignore", "what", "-k", 2, "--run", "R", "-o", "e.csv"
    )
    assert code == 0, told
    assert outcome(capsys, "predict", "R", "new.csv", "--ignore", "what", "-o", "n.csv")[0] == 0
    assert (here / "n.csv").read_text().startswith("node,e0,e1\nq0,")


def test_views_are_layers(capsys, here):
    scipy.io.savemat("v.mat", {"A": POINTS, "B": POINTS[:, :2], "truth": TRUTH})
    keys = ["--key", "A", "--key", "B"]
    code, told = outcome(
        capsys, "cluster", "v.mat", "--points", *keys, "-k", 4, "--run", "R", "-o", "l.csv", "-l", "v.mat",
        "--label-column", "truth",
    )  # fmt: skip
    assert code == 0, told
    assert outcome(capsys, "predict", "R", "v.mat", *keys, "-o", "n.csv")[0] == 0
    assert (here / "n.csv").read_bytes() == (here / "l.csv").read_bytes()
    code, told = outcome(capsys, "predict", "R", "v.mat", "--key", "A")
    assert (code, told) == (2, "error: 1 tables of points for a run of 2; give them as 'cluster' got them\n")
    np.save("few.npy", POINTS[:50])
    np.save("all.npy", POINTS)
    code, told = outcome(capsys, "cluster", "all.npy", "few.npy", "--points", "-k", 4)
    assert code == 2
    assert "few.npy has 50 points, all.npy has 200: views are of the same points" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--neighbors", 5], "--neighbors goes with --points"),
        (["--points", "--source", "x"], "--source names a column of edges"),
        (["--points"], "'kind' in column 'what' is not a number; fill it, or --ignore what"),
        (["--points", "--ignore", "why"], "no column 'why' to ignore"),
        (["--points", "--ignore", "what", "--metric", "magic"], "magic"),
        (["--points", "--ignore", "what", "--key", "x"], "--key is for .mat files"),
        (["--label-column", "x", "--points", "--ignore", "what"], "there are no --labels"),
        ([], "no columns 'src' and 'dst' among 'name', 'x', 'y', 'z', 'what'; rename them, or say"),
    ],
)  # fmt: skip
def test_mistakes_are_named_in_the_words_of_the_command_line(capsys, options, message):
    code, told = outcome(capsys, "cluster", "p.csv", "-k", 2, *options)
    assert code == 2
    assert message in told
    assert "source=" not in told


def test_points_given_as_edges_are_sent_to_the_option(capsys, here):
    np.savetxt("b.data", np.random.default_rng(0).integers(0, 10**6, (1000, 2)), fmt="%d")
    for command in (["cluster", "b.data", "-k", 2], ["convert", "b.data", "-o", "g.store"]):
        code, told = outcome(capsys, *command)
        assert code == 2
        assert "'spectrograd cluster b.data --points' joins them" in told
    assert outcome(capsys, "cluster", "b.data", "--points", "-k", 2, "-o", "l.csv")[0] == 0


def test_a_header_is_said_by_an_option_and_kept_in_the_run_file(capsys, here):
    (here / "sr.csv").write_text(
        "sender,receiver\nann,bob\nbob,cid\ncid,ann\ndan,eve\neve,fay\nfay,dan\nann,dan\n"
    )
    code, told = outcome(capsys, "cluster", "sr.csv", "-k", 2, "-o", "l.csv")
    assert code == 0
    assert "warning: sr.csv, line 1: 'sender' and 'receiver' are taken for the header" in told
    assert "sender" not in (here / "l.csv").read_text()
    assert outcome(capsys, "cluster", "sr.csv", "--no-header", "-k", 2, "-o", "m.csv")[0] == 0
    assert "sender" in (here / "m.csv").read_text()
    assert outcome(capsys, "cluster", "-c", "m.run.toml", "-o", "n.csv")[0] == 0
    assert (here / "m.csv").read_bytes() == (here / "n.csv").read_bytes()
