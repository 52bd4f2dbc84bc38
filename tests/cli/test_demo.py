"""``demo`` and ``paper`` end to end, as a user starts them: in a process of their own."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import spectrograd
from spectrograd import datasets
from spectrograd.cli import main
from spectrograd.kernels.jit import COMPILING

# One thread: the suite runs several processes at once, and spinning BLAS threads would fight for the cores.
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(spectrograd.__file__).parents[1]),
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
COMMAND = [sys.executable, "-m", "spectrograd"]
STAGES = {"read", "layers", "merge", "solve", "assign", "report", "total", "jit"}
COMPILING_NOTE = f"note: {COMPILING.format('.*')}\n"
ROW = {"method", "seconds", "iterations", "passes", "purity", "nmi", "ri", "ari", "converged", "error"}


def run(*args, cwd, stdin=""):
    """What a command prints, but for the note that it has to compile: that depends on who came before."""
    done = subprocess.run(
        [*COMMAND, *map(str, args)],
        cwd=cwd,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    done.stderr = re.sub(COMPILING_NOTE, "", done.stderr)
    return done


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def load_strictly(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(Path(path).read_text(), parse_constant=refuse)


def check_summary(summary, command):
    assert summary["command"] == command
    assert summary["version"] == spectrograd.__version__
    assert set(summary["seconds"]) == STAGES
    assert 0 < summary["seconds"]["solve"] < summary["seconds"]["total"]
    assert set(summary["graph"]) - {"knn_recall"} == {"n_nodes", "n_edges", "n_layers"}
    assert len(summary["input"]["sha256"]) == 64
    assert {"name", "reason", "iterations", "passes"} <= set(summary["solver"])
    certificate = {"converged", "max_residual", "angle_bound", "orthogonality", "missed_probability"}
    assert certificate <= set(summary["certificate"])
    assert summary["peak_memory_bytes"] > 10_000_000
    assert set(summary["versions"]) == {"python", "numpy", "scipy", "scikit-learn", "numba"}
    assert summary["versions"]["numpy"] == np.__version__
    assert "seed" in summary
    assert "scores" in summary


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo run")
    done = run("demo", "--nodes", 600, "--seed", 3, "--summary-json", "demo.json", cwd=folder)
    return folder, done


@pytest.fixture(scope="module")
def paper_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    done = run("paper", "--table", 1, "--nodes", 200, "--summary-json", "paper.json", cwd=folder)
    return load_strictly(folder / "paper.json"), done


def test_demo_succeeds_and_is_quiet_in_a_pipe(demo_run):
    folder, done = demo_run
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("labels.csv", "picture.png", "report.html"):
        assert str(Path("demo", name)) in done.stdout
        assert (folder / "demo" / name).stat().st_size > 1000


def test_demo_table_shows_every_method_with_its_scores(demo_run):
    folder, done = demo_run
    rows = load_strictly(folder / "demo.json")["rows"]
    assert [row["method"] for row in rows] == [
        "layer 1 alone",
        "layer 2 alone",
        "layer 3 alone",
        "merged: eigendecomposition",
        "merged: stochastic FB",
        "merged: SGD of the paper",
        "merged: default solver",
    ]
    for column in ("seconds", "passes", "NMI"):
        assert any(line.startswith(f"{column} ") for line in done.stdout.splitlines())
    assert "merged: default solver * " in done.stdout
    for row in rows:
        assert set(row) == ROW
        line = next(line for line in done.stdout.splitlines() if line.startswith(row["method"]))
        assert line.split()[-4:] == [f"{row[key]:.3f}" for key in ("purity", "nmi", "ri", "ari")]


def test_demo_merge_beats_every_layer_alone(demo_run):
    rows = load_strictly(demo_run[0] / "demo.json")["rows"]
    exact, fb, _, default = rows[3:]  # the paper's settings are those of ten times as many nodes
    assert max(row["nmi"] for row in rows[:3]) + 0.05 < min(row["nmi"] for row in (exact, fb, default))
    assert [row["iterations"] for row in rows[4:6]] == [3000, 500]
    assert rows[6]["converged"]


def test_demo_summary_is_complete(demo_run):
    summary = load_strictly(demo_run[0] / "demo.json")
    check_summary(summary, "demo")
    assert summary["seed"] == 3
    assert summary["graph"]["n_nodes"] == 600
    assert summary["graph"]["n_layers"] == 3
    last = summary["rows"][-1]
    assert summary["scores"] == {key: last[key] for key in ("purity", "nmi", "ri", "ari")}


def test_demo_labels_agree_with_its_scores(demo_run):
    folder, _ = demo_run
    labels = np.loadtxt(folder / "demo" / "labels.csv", delimiter=",", skiprows=1, dtype=int)
    assert labels[:, 0].tolist() == list(range(600))
    truth = datasets.make_multilayer_gmm(600, random_state=3).labels
    scores = load_strictly(folder / "demo.json")["scores"]
    assert spectrograd.metrics.score(truth, labels[:, 1]) == pytest.approx(scores)


def test_demo_page_stands_alone(demo_run):
    folder, _ = demo_run
    page = (folder / "demo" / "report.html").read_text()
    summary = load_strictly(folder / "demo.json")
    assert "default-src 'none'" in page  # it may not reach for anything outside
    assert 'id="scatter"' in page
    assert "The methods compared" in page
    assert "default solver (what you get unless you ask for another)" in page
    assert "spectrograd demo --nodes 600 --seed 3" in page
    assert summary["versions"]["scipy"] in page
    assert all(row["method"] in page for row in summary["rows"])


def test_demo_without_plotly_writes_all_but_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(import_module("spectrograd.cli.demo"), "find_spec", lambda name: None)
    summary = tmp_path / "demo.json"
    command = ["demo", "--nodes", "200", "-o", str(tmp_path / "demo"), "--summary-json", str(summary)]
    assert main(command) in (0, 1)
    captured = capsys.readouterr()
    assert "no page is written: the report page needs plotly" in captured.err
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names >= {"labels.csv", "picture.png"}
    assert "report.html" not in names
    assert sorted(load_strictly(summary)["output"]) == ["labels", "picture"]
    assert "report.html" not in captured.out


def test_paper_puts_its_figures_beside_ours(paper_run):
    summary, done = paper_run
    assert done.returncode == 0
    check_summary(summary, "paper")
    paper = {row["method"]: row["paper"] for row in summary["rows"]}
    assert paper["Eigendecomposition (dense)"]["seconds"] == 36.3
    assert paper["Stochastic FB"] == {
        "seconds": 22.8,
        "iterations": 3000,
        "purity": 0.94,
        "nmi": 0.84,
        "ri": 0.86,
    }
    assert paper["Proposed (sgd-paper)"]["ri"] == 0.82
    assert paper["Default (auto)"]["seconds"] is None
    line = next(line for line in done.stdout.splitlines() if line.startswith("Proposed (sgd-paper)"))
    assert line.split()[-5:] == ["5.2", "500", "0.92", "0.79", "0.82"]
    assert "adjusted Rand index" in done.stdout


def test_paper_rows_come_from_one_operator_and_agree(paper_run):
    rows = {row["method"]: row for row in paper_run[0]["rows"]}
    assert all(set(row) == ROW | {"paper"} for row in rows.values())
    dense, sparse = rows["Eigendecomposition (dense)"], rows["Eigendecomposition (sparse)"]
    assert all(dense[key] == pytest.approx(sparse[key]) for key in ("purity", "nmi", "ri", "ari"))
    assert rows["Stochastic FB"]["iterations"] == 3000
    assert rows["Proposed (sgd-paper)"]["iterations"] == 500


def test_paper_ratios_follow_from_its_rows(paper_run):
    summary, _ = paper_run
    seconds = {row["method"]: row["seconds"] for row in summary["rows"]}
    ratios, sgd = summary["ratios"], seconds["Proposed (sgd-paper)"]
    assert ratios["dense_over_sgd_paper"] == pytest.approx(seconds["Eigendecomposition (dense)"] / sgd)
    assert ratios["stochastic_fb_over_sgd_paper"] == pytest.approx(seconds["Stochastic FB"] / sgd)
    assert ratios["pass_equivalents"] == pytest.approx(sgd / ratios["seconds_per_pass"])
    assert summary["seconds"]["layers"] > 0
    assert summary["seconds"]["merge"] > 0


def test_paper_can_skip_the_dense_method(tmp_path):
    done = run("paper", "--nodes", 100, "--skip-dense", "--summary-json", "p.json", cwd=tmp_path)
    summary = load_strictly(tmp_path / "p.json")
    assert done.returncode == 0
    assert "(dense)" not in done.stdout
    assert summary["rows"][0]["method"] == "Eigendecomposition (sparse)"
    assert summary["ratios"]["dense_over_sgd_paper"] is None
