"""``embed`` and ``cluster`` end to end, as a user starts them: in a process of their own."""

import hashlib
import os
import pty
import re
import signal
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_circles
from test_demo import COMMAND, ENVIRONMENT, check_summary, load_strictly, rows_of, run

from spectrograd import SpectralClustering, SpectralEmbedding, datasets, read_graph
from spectrograd.points.knn_graph import knn_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A block model with named nodes as an edge list, its classes, and a matrix of the same graph."""
    folder = tmp_path_factory.mktemp("graphs")
    data = datasets.make_block_model(240, 3, mean_degree=16, mixing=0.1, random_state=0)
    entries = data.graph.matrix.tocoo()
    # Names whose sorted order is not the order in which the file mentions them.
    names = [f"n{(7 * i) % 240:03d}" for i in range(240)]
    edges = [(names[i], names[j]) for i, j in zip(entries.row, entries.col, strict=True) if i < j]
    (folder / "graph.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in edges))
    classes = dict(zip(names, data.labels.tolist(), strict=True))
    (folder / "truth.csv").write_text("node,label\n" + "".join(f"{n},{c}\n" for n, c in classes.items()))
    return folder


def test_cluster_writes_clean_csv_with_the_nodes_in_order(folder):
    done = run("cluster", "graph.csv", "-k", 3, "--summary-json", "c.json", cwd=folder)
    assert done.returncode == 0
    assert re.fullmatch(
        r"3 clusters \(80, 80, 80\): clear \(.*\), eigenvectors certified in \d+\.\d s\n", done.stderr
    )
    rows = rows_of(done.stdout)
    assert rows[0] == ["node", "label"]
    assert [name for name, _ in rows[1:]] == sorted(f"n{i:03d}" for i in range(240))
    truth = dict(rows_of((folder / "truth.csv").read_text())[1:])
    pairs = {(label, truth[name]) for name, label in rows[1:]}
    assert len(pairs) == 3  # each cluster is one class: names went with the rows
    check_summary(load_strictly(folder / "c.json"), "cluster")


def test_cluster_agrees_with_the_estimator(folder):
    done = run("cluster", "graph.csv", "-k", 3, "-o", "labels.csv", "--seed", 5, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"3 clusters .*: clear \(.*\), eigenvectors certified, saved labels.csv in \d+\.\d s\n", done.stderr
    )
    labels = [int(label) for _, label in rows_of((folder / "labels.csv").read_text())[1:]]
    model = SpectralClustering(3, random_state=5).fit(read_graph(folder / "graph.csv"))
    assert labels == model.labels_.tolist()


def test_cluster_scores_go_to_stderr_and_summary(folder):
    done = run(
        "cluster", "graph.csv", "-k", 3, "--labels", "truth.csv", "--summary-json", "c.json", cwd=folder
    )
    assert done.returncode == 0
    scores = load_strictly(folder / "c.json")["scores"]
    assert scores["nmi"] > 0.9
    assert f"{scores['ari']:.3f}" in done.stderr
    assert "NMI" in done.stderr
    assert "NMI" not in done.stdout


def test_the_same_seed_gives_the_same_labels(folder):
    options = ("cluster", "graph.csv", "-k", 6, "--solver", "sgd-paper", "--max-iter", 20, "--seed")
    first, again, other = (run(*options, seed, cwd=folder).stdout for seed in (1, 1, 2))
    assert len(rows_of(first)) == 241
    assert first == again
    assert first != other


def test_embed_agrees_with_the_estimator(folder):
    done = run("embed", "graph.csv", "-k", 2, "-o", "emb.npz", "--summary-json", "e.json", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    graph = read_graph(folder / "graph.csv")
    with np.load(folder / "emb.npz") as saved:
        assert saved["nodes"].tolist() == graph.node_names.tolist()
        expected = SpectralEmbedding(2, random_state=0).fit_transform(graph)
        assert np.allclose(saved["embedding"], expected, atol=1e-10)
    summary = load_strictly(folder / "e.json")
    check_summary(summary, "embed")
    assert summary["scores"] is None


def test_standard_input_is_a_file_like_any_other(folder):
    text = (folder / "graph.csv").read_text()
    typed = run("embed", "-", "-k", 2, "-o", "-", "--summary-json", "s.json", cwd=folder, stdin=text)
    read = run("embed", "graph.csv", "-k", 2, cwd=folder)
    assert rows_of(typed.stdout)[0] == ["node", "e0", "e1"]
    assert typed.stdout == read.stdout
    source = load_strictly(folder / "s.json")["input"]
    assert source == {"files": ["-"], "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_several_files_are_layers(folder):
    done = run("cluster", "graph.csv", "graph.csv", "-k", 3, "--summary-json", "m.json", cwd=folder)
    summary = load_strictly(folder / "m.json")
    assert done.returncode == 0
    assert summary["graph"]["n_layers"] == 2
    assert summary["seconds"]["layers"] > 0
    both = (folder / "graph.csv").read_bytes() * 2
    assert summary["input"]["sha256"] == hashlib.sha256(both).hexdigest()


def test_solver_parameters_reach_the_solver(folder):
    options = ("--solver", "sgd-paper", "--param", "max_iter=7", "--param", "optimizer=sgd", "-o", "e.npy")
    run("embed", "graph.csv", "-k", 2, *options, "--summary-json", "p.json", cwd=folder)
    solver = load_strictly(folder / "p.json")["solver"]
    assert (solver["name"], solver["iterations"]) == ("sgd-paper", 7)


def test_the_page_of_a_run_escapes_names_and_can_be_made_later(tmp_path):
    nasty = "<script>alert(1)</script>"
    names = [f"{nasty}{i:02d}" for i in range(12)]
    cliques = [(i, j) for i in range(12) for j in range(i) if i // 6 == j // 6]
    edges = [f"{names[i]},{names[j]}\n" for i, j in [*cliques, (5, 6)]]
    (tmp_path / "g.csv").write_text("src,dst\n" + "".join(edges))
    truth = "node,label\n" + "".join(f"{name},{i // 6}\n" for i, name in enumerate(names))
    (tmp_path / "<b>truth.csv").write_text(truth)
    options = ("--report", "page.html", "--run", "deep/run", "--labels", "<b>truth.csv", "-q")
    done = run("cluster", "g.csv", "-k", 2, *options, cwd=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert (done.returncode, done.stderr) == (0, "")
    assert nasty not in page
    assert "<b>truth" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;0" in page
    assert "\\u003cscript>alert(1)\\u003c/script>0" in page
    assert "&lt;b&gt;truth.csv" in page
    again = run("report", "deep/run", "-o", "again.html", "--summary-json", "again.json", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("the page of 12 nodes, saved again.html in")
    assert (tmp_path / "again.html").read_text() == page
    assert load_strictly(tmp_path / "again.json")["command"] == "report"


def test_embed_writes_a_page_and_a_run_too(folder, tmp_path):
    options = ("-k", 2, "-o", tmp_path / "e.npy", "--report", tmp_path / "e.html", "--run", tmp_path / "run")
    done = run("embed", "graph.csv", "graph.csv", *options, cwd=folder)
    assert done.returncode == 0
    page = (tmp_path / "e.html").read_text()
    assert "How the layers agree" in page
    assert 'id="clusters"' not in page
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "run.json",
        "nodes.npz",
        "run.toml",
        "model",
    }


def test_quiet_hides_warnings_and_scores_verbose_explains(tmp_path):
    (tmp_path / "g.csv").write_text("src,dst\na,b\nb,c\nc,c\nc,d\n")
    plain, quiet, verbose = (
        run("cluster", "g.csv", "-k", 2, *flag, cwd=tmp_path) for flag in ([], ["-q"], ["-v"])
    )
    assert plain.stderr.startswith("warning: g.csv: 1 self loops dropped")
    assert len(plain.stderr.splitlines()) == 2
    assert plain.stderr.splitlines()[1].startswith("2 clusters (")
    assert quiet.stderr == ""
    assert "solver eigen: 4 nodes" in verbose.stderr
    assert plain.stdout == quiet.stdout == verbose.stdout


def test_an_accuracy_not_reached_is_exit_1_with_the_result_kept(folder):
    done = run("cluster", "graph.csv", "-k", 3, "--tol", "1e-19", "--summary-json", "x.json", cwd=folder)
    assert done.returncode == 1
    assert len(rows_of(done.stdout)) == 241
    assert done.stderr.startswith("error: NOT converged")
    assert len(done.stderr.splitlines()) == 1
    assert load_strictly(folder / "x.json")["certificate"]["converged"] is False


@pytest.mark.parametrize(("goal", "code", "start"), [([], 0, "note: "), (["--tol", "1e-9"], 1, "error: ")])
def test_a_stochastic_solver_fails_only_a_goal_it_was_given(folder, goal, code, start):
    options = ("--solver", "sgd-paper", "--max-iter", 5, *goal)
    done = run("embed", "graph.csv", "-k", 2, *options, cwd=folder)
    assert done.returncode == code
    assert done.stderr.startswith(start)
    assert len(rows_of(done.stdout)) == 241


def test_interrupted_run_keeps_its_best_and_exits_130(folder, tmp_path):
    options = ["--solver", "gradient-descent", "--max-iter", "100000000", "--tol", "0", "-v"]
    target = tmp_path / "labels.csv"
    command = [*COMMAND, "cluster", "graph.csv", "-k", "3", *options, "-o", str(target)]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        seen = 0
        for line in process.stderr:
            seen += line.startswith("embedding: iteration")
            if seen == 3:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(60) == 130
    assert "error: interrupted" in rest
    assert "Traceback" not in rest
    assert len(rows_of(target.read_text())) == 241


def test_progress_is_drawn_on_a_terminal_only(folder):
    options = ["--solver", "gradient-descent", "--max-iter", "40", "--tol", "0"]
    command = [*COMMAND, "cluster", "graph.csv", "-k", "3", *options]
    owner, terminal = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=terminal
    ) as process:
        os.close(terminal)
        drawn = b""
        try:
            while chunk := os.read(owner, 4096):
                drawn += chunk
        except OSError:  # the other end was closed
            pass
        stdout = process.stdout.read()
    os.close(owner)
    assert b"iteration 40" in drawn
    assert b"objective" in drawn
    assert len(rows_of(stdout.decode())) == 241
    piped = run(*command[3:], cwd=folder)
    assert "iteration 40  objective" not in piped.stderr


def test_the_treatment_is_in_line_summary_and_page(tmp_path):
    """Two rings, of which two eigenvectors show one only: four make the clusters, and that is said."""
    points, _ = make_circles(1500, noise=0.08, factor=0.5, random_state=3)
    sp.save_npz(tmp_path / "rings.npz", sp.csr_matrix(knn_graph(points, 10).matrix))
    done = run(
        *("cluster", "rings.npz", "-k", 2, "-o", "labels.csv", "-v"),
        *("--report", "page.html", "--summary-json", "c.json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0
    chosen = "4 vectors by commute distance"
    assert f", by {chosen}, eigenvectors certified" in done.stderr
    assert f"clusters by {chosen}: they tell" in done.stderr
    treatment = load_strictly(tmp_path / "c.json")["treatment"]
    assert treatment["name"] == chosen
    assert [each["name"] for each in treatment["candidates"]] == ["2 vectors", chosen]
    assert f"The clusters were made from {chosen}: they tell" in (tmp_path / "page.html").read_text()
