"""What commands say of a run: regularisation, excluded nodes, pages after updates, bars, checkpoints."""

import logging
from types import SimpleNamespace

import numpy as np

from spectrograd import datasets
from spectrograd.cli import main
from spectrograd.cli.run import how_to_go_on
from spectrograd.cli.session import ProgressMeter
from spectrograd.engines import LocalEngine
from spectrograd.engines.base import Cost
from spectrograd.pipeline import Settings
from spectrograd.pipeline.run import note_small
from spectrograd.report.document import run_document
from spectrograd.report.run import load_run
from spectrograd.report.scatter import group
from spectrograd.solvers.settings import RunContext


def write_edges(path, more=()):
    ends = datasets.make_block_model(200, 3, random_state=0).graph.matrix.tocoo()
    edges = [(i, j) for i, j in zip(ends.row, ends.col, strict=True) if i < j] + list(more)
    path.write_text("src,dst\n" + "".join(f"{i},{j}\n" for i, j in edges))


def test_the_page_names_tau_and_excluded_nodes_and_follows_an_update(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_edges(tmp_path / "g.csv", [("x", "y")])
    common = ["--run", "run", "-o", "o.csv"]
    assert main(["cluster", "g.csv", "-k", "3", "--regularization", "0.5", *common]) == 0
    told = capsys.readouterr().err
    assert "certified (of the regularised graph, tau = 0.5)" in told
    assert "the eigenvectors are those of the regularised graph" in told
    page = run_document(load_run("run"))
    assert page["lead"].endswith("in 3 clusters; 2 nodes are in none.")
    assert [row["name"] for row in page["clusters"]["rows"]] == ["0", "1", "2"]
    assert "tau = 0.5" in page["treatment"][0]
    assert page["treatment"][1].startswith("2 nodes (0.99%) took no part")
    assert "x, y" in page["treatment"][1]
    (tmp_path / "change.csv").write_text("src,dst\nz,0\nz,1\n")
    assert main(["update", "g.csv", "change.csv", *common]) == 0
    after = load_run("run")
    assert len(after.nodes) == 203
    assert "z" in after.nodes.names


def test_minus_one_is_the_last_group():
    found = group(np.array([0, -1, 1, 2, 2]), 2)
    assert found.names == ["2", "the other 2", "-1"]
    assert found.codes[1] == found.missing == 2


def test_a_resumed_bar_counts_its_own_seconds():
    meter = ProgressMeter(max_iter=200, time_budget=50.0)
    seen = [SimpleNamespace(iteration=i, seconds=s) for i, s in ((100, 1000.0), (110, 1010.0))]
    assert meter.share(seen[0]) == 0.5
    assert meter.text(seen[0]) == ""
    assert meter.text(seen[1]) == "1.0 it/s  <0:40 left"


def test_a_stopped_run_says_how_to_go_on(tmp_path):
    session = SimpleNamespace(command_line="spectrograd cluster g.csv --checkpoint c")
    assert how_to_go_on(session, RunContext()) == ""
    assert how_to_go_on(session, RunContext(checkpoint=tmp_path)) == ""
    (tmp_path / "solve-001-state-000001.ckpt").touch()
    told = how_to_go_on(session, RunContext(checkpoint=tmp_path))
    assert str(tmp_path) in told
    assert session.command_line in told


def test_a_graph_too_small_for_a_cluster_is_told(caplog):
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    engine = SimpleNamespace(cost=Cost(per_round=0.02), summary=lambda: {"name": "dask"})
    with caplog.at_level(logging.WARNING, "spectrograd"):
        note_small(graph, Settings(n_components=3), engine)
        assert "too few for dask" in caplog.text
        caplog.clear()
        note_small(graph, Settings(n_components=3), LocalEngine())
        assert caplog.text == ""


PTY = """
import sys
from spectrograd.cli.session import Session
from spectrograd.cli.session import echo
session = Session("cluster", (), 0)
with session.progress("embedding"):
    echo("warning", "three nodes")
"""


def test_warnings_stand_above_the_bar():
    """In a pseudo terminal: before the warning the line of the bar is erased."""
    import os
    import pty
    import subprocess
    import sys

    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-c", PTY], stderr=slave, env=os.environ | {"TERM": "xterm"}, check=True)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    before = shown[: shown.index("warning")]
    assert "\x1b[2K" in before  # the bar was drawn, and is wiped out first
    assert "three nodes\x1b[0m\r\n" in shown or "three nodes\r\n" in shown
