"""The jobs of the first hour, played through the command line as a newcomer would."""

import importlib
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from test_demo import ENVIRONMENT

from spectrograd import datasets
from spectrograd.cli import _one_line_notes, main
from spectrograd.io import write_graph
from spectrograd.kernels import SMALL
from spectrograd.kernels.jit import COMPILING, FirstCompilation

SECONDS = r"in \d+\.\d s"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a graph of four clusters and their classes; commands run in it."""
    data = datasets.make_block_model(200, 4, random_state=0)
    write_graph(tmp_path / "graph.csv", data.graph)
    rows = [f"{node},group {label}\n" for node, label in enumerate(data.labels)]
    (tmp_path / "truth.csv").write_text("node,label\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_line(capsys) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_from_points_to_a_page(here, capsys):
    points = np.vstack([np.random.default_rng(i).normal(20 * i, 1, (40, 2)) for i in range(3)])
    (here / "points.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in points.tolist()))
    assert main(["knn", "points.csv", "-o", "knn.npz"]) == 0
    assert re.fullmatch(
        rf"a graph of 120 nodes, .* edges, 1 layer, 100 % of .*, saved knn.npz {SECONDS}", last_line(capsys)
    )
    assert main(["cluster", "knn.npz", "-k", "3", "-o", "o.csv", "--report", "page.html"]) == 0
    expected = (
        rf"3 clusters \(40, 40, 40\): clear \(.*\), eigenvectors certified, saved o.csv, page.html {SECONDS}"
    )
    assert re.fullmatch(expected, last_line(capsys))


def test_a_number_of_clusters_that_was_found_is_told_with_its_runners_up(here, capsys):
    assert main(["cluster", "graph.csv", "-k", "auto", "-o", "o.csv"]) == 0
    told = last_line(capsys)
    assert told.startswith("4 clusters (50, 50, 50, 50), a number taken from the eigenvalues (next best: ")
    assert main(["cluster", "graph.csv", "-k", "auto", "-o", "o.csv", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_embedding_says_what_was_saved(here, capsys):
    assert main(["embed", "graph.csv", "-k", "3", "-o", "e.npy"]) == 0
    assert re.fullmatch(
        rf"3 coordinates of 200 nodes, eigenvectors certified, saved e.npy {SECONDS}", last_line(capsys)
    )


def test_compare_fits_80_columns_and_shows_how_far_it_is(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    solvers = "auto,eigen,stochastic-fb:setting=columns"
    options = ["-k", "4", "--labels", "truth.csv", "--solvers", solvers, "--time-budget", "0.5"]
    assert main(["compare", "graph.csv", *options]) == 0
    told = capsys.readouterr()
    assert "…" not in told.out
    assert max(map(len, told.out.splitlines())) <= 80
    assert {"NMI", "ARI", "angle", "good"} <= set(told.out.splitlines()[0].split())
    progress = told.err.splitlines()
    assert progress[0] == "3 solvers, at most 0.5 s each"
    assert [line.split()[:4] for line in progress[1:4]] == [
        ["1", "of", "3", "auto"],
        ["2", "of", "3", "eigen"],
        ["3", "of", "3", "stochastic-fb:setting=columns"],
    ]
    assert re.fullmatch(rf"\d of 3 solvers reached the accuracy asked for {SECONDS}", progress[-1])
    assert not list(here.glob("*.html"))


def test_compare_sets_isolated_nodes_aside_as_cluster_does(here, capsys):
    (here / "more.csv").write_text((here / "graph.csv").read_text() + "alone,alone\n")
    assert main(["compare", "more.csv", "-k", "4", "--solvers", "eigen"]) == 0
    assert "1 of 1 solvers" in last_line(capsys)


COUNTING = """
import sys
from numba.core import event
from spectrograd.cli import main

events = event.RecordingListener()
with event.install_listener("numba:compile", events):
    assert main(["cluster", "large.npz", "-k", "4", "-o", "o.csv"]) == 0
print(len(events.buffer))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    data = datasets.make_block_model(2 * SMALL, 4, random_state=0)
    write_graph(tmp_path / "large.npz", data.graph)
    command = [sys.executable, "-c", COUNTING]
    first, second = (
        subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert ("compiling" in first.stderr) == (first.stdout != "0\n")
    assert second.stdout == "0\n"
    assert "compiling" not in second.stderr


@pytest.mark.parametrize("quiet", [False, True])
def test_compiling_is_announced_before_it_starts(capsys, monkeypatch, quiet):
    """By any command, and through the logger, which users of the library see; once per kind of kernel."""

    def kernel_of(module):
        def kernel(x):
            return x + 1

        kernel.__module__ = module
        return numba.njit(kernel)

    ours, others = kernel_of("spectrograd.kernels.ldl_numeric"), kernel_of("theirs")
    reading = kernel_of("spectrograd.kernels.text")
    importlib.import_module("spectrograd.kernels.jit")  # from here on it listens
    monkeypatch.setattr(FirstCompilation, "announced", set())
    with _one_line_notes(quiet):
        others(1)
        assert capsys.readouterr().err == ""
        ours(1)
        announced = capsys.readouterr().err
        ours(1.0)
        assert capsys.readouterr().err == ""
        reading(1)
        another = capsys.readouterr().err
    assert announced == ("" if quiet else f"note: {COMPILING.format('the sparse factorisation')}\n")
    assert another == ("" if quiet else f"note: {COMPILING.format('the reading of edge lists')}\n")


def test_nothing_is_said_to_be_compiled_before_an_error(here, capsys, monkeypatch):
    """A missing package, a wrong option: nothing is compiled, so nothing is announced."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    importlib.import_module("spectrograd.kernels.jit")
    monkeypatch.setattr(FirstCompilation, "announced", set())
    assert main(["cluster", "graph.csv", "-k", "4", "--engine", "dask:2"]) == 2
    shown = capsys.readouterr().err
    assert "compiling" not in shown
    assert "--engine dask:2 needs the package 'distributed'" in shown
