"""Bad usage and bad input: one clear line, the right exit code, nothing on stdout."""

import subprocess
import sys

import pytest
from test_demo import ENVIRONMENT, run

EDGES = "src,dst,weight\na,b,1\nb,c,1\nc,d,1\nd,a,1\na,c,1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "good.csv").write_text(EDGES)
    (folder / "text.csv").write_text("src,dst,weight\na,b,1\nb,c,heavy\n")
    (folder / "ragged.csv").write_text("src,dst,weight\na,b,1\nb,c\n")
    (folder / "negative.csv").write_text("src,dst,weight\na,b,1\nb,c,-2\n")
    (folder / "empty.csv").write_text("")
    (folder / "strange.xyz").write_text(EDGES)
    (folder / "truth.csv").write_text("node,label\na,0\nzebra,1\n")
    return folder


BAD = {
    "missing file": (["nosuch.csv"], ["nosuch.csv", "no such file"]),
    "text for a weight": (["text.csv"], ["text.csv, line 3", "'heavy' is not a number"]),
    "ragged row": (["ragged.csv"], ["ragged.csv, line 3", "3 columns expected"]),
    "negative weight": (["negative.csv"], ["negative.csv, line 3", "negative"]),
    "empty file": (["empty.csv"], ["empty.csv", "empty"]),
    "kind of file": (["strange.xyz"], ["strange.xyz", "unknown kind of file '.xyz'"]),
    "k too large": (["good.csv", "-k", "4"], ["-k 4 is too large", "4 nodes", "at most 3"]),
    "k not positive": (["good.csv", "-k", "0"], ["'-k'", "x>=1"]),
    "k not a number": (["good.csv", "-k", "two"], ["'-k'", "'two' is not a valid integer"]),
    "solver": (["good.csv", "--solver", "magic"], ["solver='magic'", "sgd-paper"]),
    "parameter": (
        ["good.csv", "--solver", "sgd", "--param", "nosuch=1"],
        ["no parameter 'nosuch'", "epochs"],
    ),
    "parameter value": (
        ["good.csv", "--solver", "sgd", "--param", "step_size=wide"],
        ["step_size=wide", "a number"],
    ),
    "optional parameter": (
        ["good.csv", "--solver", "lanczos", "--param", "block_size=wide"],
        ["block_size=wide", "a whole number or none"],
    ),
    "time that is no number": (["good.csv", "--time-budget", "nan"], ["'--time-budget'", "nan", "finite"]),
    "no thread": (["good.csv", "-j", "0"], ["'-j'", "0: expected at least one thread"]),
    "fewer threads than none": (["good.csv", "-j", "-5"], ["'-j'", "-5: expected at least one thread"]),
    "starts without end": (["good.csv", "--n-init", "9223372036854775807"], ["'--n-init'", "10000"]),
    "whole parameter": (
        ["good.csv", "--solver", "sgd", "--param", "max_iter=1.5"],
        ["max_iter=1.5", "whole number"],
    ),
    "parameter form": (["good.csv", "--param", "theta"], ["'theta' is not of the form NAME=VALUE"]),
    "laplacian": (["good.csv", "--laplacian", "magic"], ["'--laplacian'", "'magic' is not one of"]),
    "aggregation": (["good.csv", "--aggregation", "magic"], ["aggregation='magic'", "projection"]),
    "tolerance": (["good.csv", "--tol", "nan"], ["'--tol'", "finite"]),
    "alpha": (["good.csv", "--alpha", "much"], ["'--alpha'", "neither a number nor 'auto'"]),
    "assign": (["good.csv", "--assign-labels", "magic"], ["'--assign-labels'", "cluster_qr"]),
    "option": (["good.csv", "--colour"], ["--colour", "cluster --help"]),
    "no graph": ([], ["GRAPH", "cluster --help"]),
    "output folder": (["good.csv", "-o", "nowhere/labels.csv"], ["'-o'", "nowhere does not exist"]),
    "output format": (["good.csv", "-o", "labels.docx"], ["labels.docx", "choose one of .csv"]),
    "summary folder": (["good.csv", "--summary-json", "nowhere/s.json"], ["'--summary-json'", "nowhere"]),
    "report folder": (["good.csv", "--report", "nowhere/p.html"], ["'--report'", "nowhere"]),
    "run folder": (["good.csv", "--run", "good.csv/run"], ["'--run'", "good.csv/run cannot be written"]),
    "labels": (
        ["good.csv", "-k", "2", "--labels", "truth.csv"],
        ["truth.csv, line 3", "'zebra' is not in the graph"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_2(folder, case):
    args, expected = BAD[case]
    done = run("cluster", *args, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    for text in expected:
        assert text in line


def test_a_target_that_cannot_be_written_is_found_before_the_graph_is_read(folder):
    done = run("embed", "text.csv", "-o", "emb.docx", cwd=folder)
    assert done.returncode == 2
    assert "emb.docx" in done.stderr
    assert "heavy" not in done.stderr


def test_report_of_a_folder_without_a_run(folder):
    done = run("report", ".", cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "no saved run there (run.json is missing)" in line
    assert "--run" in line
    assert not (folder / "report.html").exists()


def test_without_plotly_the_page_is_refused_before_the_work(folder):
    code = (
        "import sys, importlib.util, spectrograd.cli as cli\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'plotly' else find(name, *rest)\n"
        "sys.exit(cli.main(['embed', 'text.csv', '--report', 'page.html']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'spectrograd[report]'" in done.stderr
    assert "heavy" not in done.stderr


def test_unknown_command_and_table(folder):
    for args, expected in ((["clutser"], "clutser"), (["paper", "--table", "7"], "'7' is not")):
        done = run(*args, cwd=folder)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert expected in line


def test_no_command_shows_the_help(folder):
    done = run(cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "spectrograd demo" in done.stderr


def test_traceback_only_with_debug(folder):
    plain = run("cluster", "text.csv", cwd=folder)
    debug = run("cluster", "text.csv", "--debug", cwd=folder)
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.stderr.splitlines()[-1] == plain.stderr.splitlines()[0]
    assert plain.returncode == debug.returncode == 2


def test_a_bug_is_exit_1_and_says_how_to_see_more(folder):
    code = (
        "import sys, spectrograd.cli as cli, spectrograd.cli.run as reading\n"
        "def broken(*args, **options): raise TypeError('two\\nlines')\n"
        "reading.read_layers = broken\n"
        "sys.exit(cli.main(['cluster', 'good.csv']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: TypeError: two lines; this is a bug, run again with --debug for the traceback\n"
    )


def test_closed_pipe_is_no_traceback(folder):
    command = f"{sys.executable} -m spectrograd embed good.csv -k 2 | true"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["demo", "paper", "embed", "cluster", "report"])
def test_help_has_an_example_and_the_common_options(folder, command):
    done = run(command, "--help", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\n    spectrograd {command} " in done.stdout  # on a line of its own
    for option in ("--seed", "--summary-json", "--verbose", "--quiet", "--debug", "--help"):
        assert option in done.stdout


def test_help_loads_nothing_heavy():
    code = (
        "import sys, spectrograd.cli as cli\n"
        "code = cli.main(['--help'])\n"
        "heavy = {'numpy', 'scipy', 'numba', 'sklearn', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "cluster" in done.stdout


def test_version(folder):
    import spectrograd

    assert run("--version", cwd=folder).stdout.strip() == f"spectrograd, version {spectrograd.__version__}"


def test_optional_parameters_of_solvers_are_numbers(folder):
    for value in ("2", "none"):
        found = run("embed", "good.csv", "-k", "1", "-s", "lanczos", "-p", f"block_size={value}", cwd=folder)
        assert found.returncode == 0, found.stderr
