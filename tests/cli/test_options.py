"""``knn``, ``info``, ``completion``, ``--config``, ``--dry-run``, and how a command speaks."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import tomllib

import click
import numpy as np
import pytest
from test_demo import COMMAND, ENVIRONMENT, load_strictly, rows_of, run

from spectrograd import read_graph
from spectrograd.cli import main, program
from spectrograd.cli import session as meter
from spectrograd.cli.options import common_options
from spectrograd.solvers.base import Progress

COMMANDS = sorted(program.commands)
EDGES = "src,dst\n" + "".join(f"{a},{b}\n" for a, b in ("ab", "bc", "ca", "cd", "de", "ef", "fd"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    (folder / "g.csv").write_text(EDGES)
    rng = np.random.default_rng(0)
    points = np.repeat([[0.0, 0], [9, 9]], 20, axis=0) + rng.standard_normal((40, 2))
    rows = "".join(f"p{i:02d},{x},{y},{'uv'[i // 20]}\n" for i, (x, y) in enumerate(points))
    (folder / "points.csv").write_text("id,x,y,kind\n" + rows)
    return folder


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A fresh folder with the same files, to run commands in this process."""
    for file in folder.glob("*.csv"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_points_to_graph_to_clusters(folder):
    made = run(
        "knn", "points.csv", "-i", "kind", "-k", 5, "-o", "k.npz", "--summary-json", "k.json", cwd=folder
    )
    assert (made.returncode, made.stdout) == (0, "")
    assert made.stderr.startswith("a graph of 40 nodes, ")
    assert "saved k.npz in" in made.stderr
    graph = read_graph(folder / "k.npz")
    assert graph.node_names.tolist() == [f"p{i:02d}" for i in range(40)]
    summary = load_strictly(folder / "k.json")
    assert (summary["command"], summary["graph"]["n_nodes"]) == ("knn", 40)
    done = run("cluster", "k.npz", "-k", 2, cwd=folder)
    labels = dict(rows_of(done.stdout)[1:])
    assert len({labels[f"p{i:02d}"] for i in range(20)}) == 1
    assert len(set(labels.values())) == 2


def test_knn_from_standard_input_and_in_pieces(here, capsys, monkeypatch):
    typed = (here / "points.csv").read_text()
    done = run("knn", "-", "-i", "kind", "-k", 3, "--no-connect", "-o", "k.csv.gz", cwd=here, stdin=typed)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert main(["info", "k.csv.gz"]) == 0
    assert "mind     2 separate components" in capsys.readouterr().out
    assert main(["knn", "points.csv", "-i", "kind", "-k", "3", "-o", "j.parquet"]) == 0
    assert main(["info", "j.parquet"]) == 0
    assert "mind" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["points.csv", "-o", "k.npz"],
            "points.csv, line 2: 'u' in column 'kind' is not a number; fill it, or",
        ),
        (["points.csv", "-o", "k.doc"], "k.doc: cannot write '.doc' files; choose one of .csv"),
        (
            ["points.csv", "-i", "kind", "-k", "40", "-o", "k.npz"],
            "n_neighbors is 40, but",
        ),
        (["none.csv", "-o", "k.npz"], "none.csv: no such file"),
        (["points.csv"], "Missing option '-o'"),
    ],
)
def test_knn_errors(here, capsys, args, message):
    assert main(["knn", *args]) == 2
    assert message in capsys.readouterr().err
    assert len(list(here.iterdir())) == 2


def test_info_tells_contents_faults_and_needs(here, capsys):
    (here / "h.csv").write_text("src,dst,weight\na,b,1\nb,c,2\nx,y,1e9\n")
    assert main(["info", "h.csv", "--summary-json", "i.json"]) == 0
    out = capsys.readouterr().out
    for text in ("5 nodes, 3 edges, 1 layer", "weights 1 to 1e+09", "2 separate components", "of 1e+09"):
        assert text in out
    assert re.search(r"^solver   eigen: .*\nmemory   about \d+ MB\ntime     .* ms for one pass", out, re.M)
    summary = load_strictly(here / "i.json")
    assert summary["graph"]["layers"][0]["n_components"] == 2
    assert summary["estimate"]["memory_bytes"] > 0
    assert main(["info", "g.csv", "h.csv"]) == 0
    assert "layer    h:" in capsys.readouterr().out
    write_lonely(here / "l.npz")
    assert main(["info", "l.npz"]) == 0
    assert "1 nodes have no edge (alone); remove them" in capsys.readouterr().out


def write_lonely(path):
    from spectrograd import Graph, write_graph

    write_graph(path, Graph.from_edges([0], [1], names=["a", "b", "alone"]))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ["embed", "g.csv", "-k", "2", "-o", "e.csv"],
            ["6 nodes, 7 edges", "solver   eigen", "output   e.csv"],
        ),
        (["cluster", "g.csv", "-k", "2", "--report", "p.html"], ["6 nodes, 7 edges", "report   p.html"]),
        (["cluster", "g.csv", "g.csv", "-k", "2", "-s", "sgd"], ["2 layers", "solver   sgd: asked for"]),
        (["compare", "g.csv", "-k", "2", "--solvers", "eigen"], ["solvers  eigen", "output   the table"]),
        (
            ["knn", "points.csv", "-i", "kind", "-o", "k.npz"],
            ["40 in 2 dimensions", "at most 400"],
        ),
    ],
)
def test_dry_run_checks_and_tells_but_writes_nothing(here, capsys, args, expected):
    before = sorted(os.listdir(here))
    assert main([*args, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dry run: nothing is computed or written\n")
    for text in expected:
        assert text in out
    assert sorted(os.listdir(here)) == before


def test_dry_run_finds_what_is_wrong(here, capsys):
    assert main(["cluster", "g.csv", "-k", "6", "-n"]) == 2
    assert "-k 6 is too large" in capsys.readouterr().err


def test_a_run_leaves_the_file_that_repeats_it(here):
    options = ["-k", "2", "-s", "sgd-paper", "-p", "max_iter=30", "-p", "optimizer=sgd", "--seed", "7", "-q"]
    assert main(["cluster", "g.csv", *options, "-t", "0.5", "-o", "one.csv"]) in (0, 1)
    made = tomllib.loads((here / "one.run.toml").read_text())
    assert made["command"] == "cluster"
    assert (made["graphs"], made["clusters"], made["seed"]) == (["g.csv"], 2, 7)
    assert (made["param"], made["tol"]) == (["max_iter=30", "optimizer=sgd"], "0.5")
    assert not {"config", "quiet", "dry-run", "report"} & set(made)
    assert main(["cluster", "--config", "one.run.toml", "-o", "two.csv"]) in (0, 1)
    assert (here / "two.csv").read_bytes() == (here / "one.csv").read_bytes()
    again = tomllib.loads((here / "two.run.toml").read_text())
    assert again == made | {"output": "two.csv"}


def test_the_command_line_goes_before_the_file(here, capsys):
    (here / "run.toml").write_text('graphs = ["none.csv"]\nclusters = 3\nassign-labels = "cluster_qr"\n')
    assert main(["cluster", "g.csv", "-c", "run.toml", "-k", "2"]) == 0
    assert {row[1] for row in rows_of(capsys.readouterr().out)[1:]} == {"0", "1"}
    assert main(["cluster", "-c", "run.toml"]) == 2
    assert "none.csv: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('command = "embed"', "run.toml is for 'spectrograd embed', not for 'spectrograd cluster'"),
        (
            'colour = "red"',
            "run.toml: unknown key 'colour'; known are affinity, aggregation, alpha, ",
        ),
        ("clusters = ", "run.toml: not TOML"),
        ('clusters = "two"', "'two' is not a valid integer"),
        ("clusters = 0", "0 is not in the range x>=1"),
        ("clusters = 1979-05-27", "run.toml: clusters is a date; a whole number is needed"),
        ("clusters = 2.5", "run.toml: clusters is 2.5; a whole number is needed"),
        ("time-budget = 07:32:00", "run.toml: time-budget is a time; a number or a text is needed"),
        ("seed = true", "run.toml: seed is true; a number or a text is needed"),
        ("tol = [1, 2]", "run.toml: tol is a list; one value is needed"),
        ("tol = {a = 1}", "run.toml: tol is a dict; a number or a text is needed"),
        ('graphs = "g.csv"', 'run.toml: graphs is "g.csv"; a list is needed'),
        ('raw = "yes"', 'run.toml: raw is "yes"; true or false is needed'),
        (None, "run.toml: No such file"),
    ],
)
def test_bad_config_files(here, capsys, text, message):
    if text is not None:
        (here / "run.toml").write_text(text)
    assert main(["cluster", "g.csv", "-c", "run.toml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_file_stands_beside_whatever_is_written(here):
    assert main(["embed", "g.csv", "-k", "2", "--summary-json", "s.json", "-o", "-"]) == 0
    assert (here / "s.run.toml").exists()
    (here / 'quo"te\x7f.csv').write_text(EDGES)
    assert main(["embed", 'quo"te\x7f.csv', "-k", "2", "-o", "q.csv"]) == 0
    assert tomllib.loads((here / "q.run.toml").read_text())["graphs"] == ['quo"te\x7f.csv']


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(capsys, shell):
    assert main(["completion", shell]) == 0
    assert "_SPECTROGRAD_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("spectrograd clu", "cluster"),
        ("spectrograd cluster --agg", "--aggregation"),
        ("spectrograd cluster --solver shift", "shift-invert"),
        ("spectrograd embed -a power", "power-mean"),
        ("spectrograd cluster --laplacian sym", "symmetric"),
    ],
)
def test_completion_completes(words, expected):
    asked = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_SPECTROGRAD_COMPLETE": "bash_complete",
    }
    code = "import sys; from spectrograd.cli import main; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT | asked, capture_output=True, text=True, check=False
    )
    assert f"plain,{expected}" in done.stdout.splitlines()


def on_a_terminal(*args, cwd, **environment):
    """Run with stderr on a terminal; return the exit code and what was drawn."""
    owner, terminal = pty.openpty()
    env = {k: v for k, v in ENVIRONMENT.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | environment
    with subprocess.Popen(
        [*COMMAND, *args], cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=terminal
    ) as process:
        os.close(terminal)
        drawn = b""
        try:
            while chunk := os.read(owner, 4096):
                drawn += chunk
        except OSError:  # the other end was closed
            pass
    os.close(owner)
    return process.returncode, drawn.decode()


def test_errors_are_coloured_on_a_terminal_unless_asked_not_to(folder):
    code, drawn = on_a_terminal("cluster", "g.csv", "-k", "9", cwd=folder)
    assert code == 2
    assert "\x1b[31m" in drawn
    assert "\x1b[1msee 'spectrograd cluster --help'" in drawn  # the way out stands out
    _, plain = on_a_terminal("cluster", "g.csv", "-k", "9", cwd=folder, NO_COLOR="1")
    assert "\x1b[31m" not in plain
    assert "\x1b[1m" not in plain
    assert "error: -k 9 is too large" in plain


def test_a_limit_gives_the_bar_a_rate_and_a_time_left(folder):
    options = ["-s", "gradient-descent", "--max-iter", "3000", "-t", "0"]
    _, drawn = on_a_terminal("embed", "g.csv", "-k", "2", *options, cwd=folder)
    assert re.search(r"[\d,.]+ it/s", drawn)
    assert re.search(r"<\d+:\d\d left", drawn)


def progress(iteration, seconds):
    return Progress(iteration, 0.0, 0, 1.0, 1.0, 0.0, seconds=seconds)


def running(max_iter=None, time_budget=None):
    """A meter that has seen the first measurement of a solve, which is where its own counts begin."""
    limits = meter.ProgressMeter(max_iter, time_budget)
    assert limits.text(progress(0, 0.0)) == ""
    return limits


def test_meter():
    assert running().text(progress(10, 2.0)) == "5.0 it/s"
    assert running().share(progress(10, 2.0)) is None
    assert running(max_iter=100).text(progress(10, 2.0)) == "5.0 it/s  <0:18 left"
    assert running(max_iter=100, time_budget=4.0).share(progress(10, 2.0)) == 0.5
    assert running(time_budget=7202.0).text(progress(1, 1.0)) == "1.0 it/s  <2:00:01 left"
    assert running(max_iter=5).share(progress(10, 2.0)) == 1.0


def test_a_resumed_run_counts_its_own_seconds():
    resumed = meter.ProgressMeter(max_iter=100, time_budget=100.0)
    assert resumed.text(progress(50, 90.0)) == ""
    assert resumed.text(progress(60, 92.0)) == "5.0 it/s  <0:08 left"
    assert resumed.share(progress(60, 92.0)) == 0.6


def test_interrupted_while_reading_is_130_and_leaves_nothing(folder, tmp_path):
    with subprocess.Popen(
        [*COMMAND, "cluster", "-", "-k", "2", "-o", str(tmp_path / "l.csv")],
        cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdin.write("a,b\n")
        process.stdin.flush()
        time.sleep(4)  # until it waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().strip() == "error: interrupted; nothing was written"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_bad_usage_with_the_way_out(folder):
    args = ["embed", "g.csv", "-k", "2", "-o", "e.parquet"]
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        f"from spectrograd.cli import main; sys.exit(main({args!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("pip install spectrograd[interop]")


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_alike_in_all_commands(name):
    """A short form means the same everywhere, every option has help, every command an example."""
    command = program.commands[name]
    shorts = {
        "-o": "--output", "-s": "--solver", "-p": "--param", "-t": "--tol", "-j": "--jobs",
        "-a": "--aggregation", "-c": "--config", "-n": "--dry-run", "-l": "--labels",
        "-v": "--verbose", "-q": "--quiet", "-i": "--ignore",
    }  # fmt: skip
    for option in command.params:
        if isinstance(option, click.Argument):
            continue
        assert option.help, option.name
        short = [form for form in option.opts if not form.startswith("--")]
        long = [form for form in option.opts if form.startswith("--")]
        assert long, f"{short} has no long form"
        if short and short != ["-k"]:
            assert shorts[short[0]] == long[0]
    help_text = command.get_help(click.Context(command, info_name=name))
    assert f"spectrograd {name} " in help_text
    if name != "completion":
        names = {option.name for option in command.params}
        assert {"seed", "summary_json", "verbose", "quiet", "debug", "config"} <= names


def test_a_command_that_fails_leaves_no_config(here):
    @click.command()
    @click.option("-o", "--output")
    @common_options
    def broken(session, output):
        raise ValueError("no")

    program.add_command(broken, "broken")
    try:
        assert main(["broken", "-o", "x.csv"]) == 2
    finally:
        del program.commands["broken"]
    assert not (here / "x.run.toml").exists()


def test_a_small_graph_loads_neither_numba_nor_the_extras(folder):
    code = (
        "import sys; from spectrograd.cli import main\n"
        "code = main(['cluster', 'g.csv', '-k', '2', '-o', 'small.csv'])\n"
        "heavy = {'numba', 'matplotlib', 'sklearn', 'pandas', 'pyarrow', 'networkx', 'rich'}\n"
        "sys.exit(f'loaded {heavy & set(sys.modules)}' if heavy & set(sys.modules) else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr[:10]) == (0, "2 clusters")


def test_the_base_install_is_small():
    """What the package asks for without an extra, and nothing else."""
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[\w-]+", line).group() for line in project["dependencies"]}
    assert names <= {"numpy", "scipy", "scikit-learn", "numba", "click", "rich", "matplotlib", "tbb"}
    assert all(project["optional-dependencies"].values()), "an extra that brings nothing"


def test_the_paper_s_plan_is_told_without_running_it(here, capsys):
    assert main(["paper", "--table", "1", "--skip-dense", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "dry run: nothing is computed or written" in told
    assert "Stochastic FB, Proposed (sgd-paper), Default (auto)" in told
    assert "dense" not in told
    assert not list(here.glob("*.toml"))


def test_knn_says_how_many_true_neighbours_it_found_and_the_page_repeats_it(tmp_path, capsys):
    rng = np.random.default_rng(0)
    points = 3 * rng.standard_normal((4, 12))[rng.integers(4, size=1500)] + rng.standard_normal((1500, 12))
    np.save(tmp_path / "p.npy", points)
    graph, summary, page = (str(tmp_path / name) for name in ("g.npz", "s.json", "page.html"))
    asked = [
        "--search",
        "approximate",
        "--recall",
        "0.9",
        "--metric",
        "cosine",
        "--summary-json",
        summary,
        "-v",
    ]
    assert main(["knn", str(tmp_path / "p.npy"), "-o", graph, *asked]) == 0
    assert "of the true neighbours, +- " in capsys.readouterr().err
    found = load_strictly(tmp_path / "s.json")["graph"]["knn_recall"]
    assert 0.9 <= found["value"] <= 1
    assert found["rows_compared"] == 400
    labels = str(tmp_path / "l.csv")
    assert main(["cluster", graph, "-k", "4", "-o", labels, "--report", page]) == 0
    assert f"{100 * found['value']:.1f} % of the true neighbours, +- " in (tmp_path / "page.html").read_text()
    assert main(["knn", str(tmp_path / "p.npy"), "-o", graph, "--metric", "far"]) == 2
    assert "unknown metric 'far'" in capsys.readouterr().err
