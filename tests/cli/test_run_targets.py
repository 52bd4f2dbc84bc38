"""Targets that would destroy an input, pipes as targets, closed standard streams, limits of the system."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import spectrograd
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph
from spectrograd.system import as_bytes

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
COMMAND = [sys.executable, "-m", "spectrograd"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph("graph.csv", make_block_model(120, 3, mean_degree=16, random_state=0).graph)
    return tmp_path


def shell(command, **how):
    """A command line as a shell runs it, ``spectrograd`` being ours."""
    script = command.replace("spectrograd", f"{sys.executable} -m spectrograd")
    return subprocess.run(
        ["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **how
    )


def one_line(capsys):
    (line,) = capsys.readouterr().err.splitlines()
    return line


# --- Targets that are inputs.


@pytest.mark.parametrize("link", ["", "symlink", "hard link"])
@pytest.mark.parametrize("option", ["-o", "--report", "--summary-json"])
def test_a_target_that_is_an_input_is_refused_before_the_work(here, capsys, link, option):
    target = "again.csv" if link else "./graph.csv"
    if link:
        {"symlink": os.symlink, "hard link": os.link}[link]("graph.csv", target)
    before = Path("graph.csv").read_bytes()
    assert main(["cluster", "graph.csv", "-k", "3", option, target]) == 2
    assert f"'{option}': {target} is the input graph.csv, which it would replace" in one_line(capsys)
    assert Path("graph.csv").read_bytes() == before
    assert sorted(os.listdir()) == sorted({"graph.csv", Path(target).name})


@pytest.mark.parametrize("target", ["loop.csv", "loop"])
def test_a_target_that_is_a_link_to_itself_is_refused(here, capsys, target):
    os.symlink(target, target)
    command = ["convert", "graph.csv"] if target == "loop" else ["cluster", "graph.csv", "-k", "3"]
    assert main([*command, "-o", target]) in (1, 2)
    assert target in one_line(capsys)
    assert os.path.islink(target)


def test_other_inputs_are_as_safe(here, capsys):
    Path("truth.csv").write_text("node,label\n0,a\n")
    assert main(["cluster", "graph.csv", "-k", "3", "-l", "truth.csv", "-o", "truth.csv"]) == 2
    assert "truth.csv is the input truth.csv" in one_line(capsys)
    assert main(["knn", "graph.csv", "-o", "graph.csv"]) == 2
    assert "graph.csv is the input graph.csv" in one_line(capsys)
    assert main(["cluster", "graph.csv", "-k", "3", "--run", "run", "-o", "labels.csv", "-q"]) == 0
    assert main(["predict", "run", "graph.csv", "-o", "graph.csv"]) == 2
    assert main(["update", "graph.csv", "graph.csv", "--run", "run", "-o", "graph.csv"]) == 2
    capsys.readouterr()
    assert (
        main(["cluster", "graph.csv", "-k", "3", "-o", "labels.csv", "-q"]) == 0
    )  # a result may be replaced


def test_standard_input_is_an_input(here):
    done = shell("spectrograd cluster - -k 3 -o graph.csv < graph.csv")
    assert done.returncode == 2
    assert "graph.csv is the input -" in done.stderr


def test_nothing_is_written_into_a_store_or_a_model(here, capsys):
    assert main(["convert", "graph.csv", "-o", "g.store", "-q"]) == 0
    files = sorted(os.listdir("g.store"))
    os.symlink("g.store", "link")
    for target in ("g.store", "link", "g.store/run"):
        assert main(["cluster", "graph.csv", "-k", "3", "--run", target]) == 2
        assert "a run needs a folder of its own" in one_line(capsys)
    for option, target in (("-o", "g.store/labels.csv"), ("--summary-json", "link/meta.json")):
        assert main(["cluster", "graph.csv", "-k", "3", option, target]) == 2
        assert "a store or a saved model is in" in one_line(capsys)
    assert sorted(os.listdir("g.store")) == files


# --- Pipes and descriptors as targets.


def test_the_summary_goes_into_a_pipe_that_stays_one(here, capsys):
    os.mkfifo("summary.json")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("summary.json").read_text()))
    reader.start()
    assert (
        main(["cluster", "graph.csv", "-k", "3", "-o", "labels.csv", "--summary-json", "summary.json"]) == 0
    )
    reader.join(60)
    assert json.loads(received[0])["command"] == "cluster"
    assert Path("summary.json").is_fifo()


@pytest.mark.parametrize(
    ("target", "redirected"),
    [("/dev/stdout", ""), ("/dev/fd/3", "3>&1"), ("/dev/fd/3", "3> three.json"), (">(cat)", "")],
)
def test_the_summary_goes_into_a_descriptor(here, target, redirected):
    done = shell(
        f"spectrograd cluster graph.csv -k 3 -o labels.csv --summary-json {target} {redirected}; wait"
    )
    assert done.returncode == 0, done.stderr
    text = Path("three.json").read_text() if "three" in redirected else done.stdout
    assert json.loads(text)["n_clusters"] == 3
    assert "error" not in done.stderr


def test_labels_and_summary_share_standard_output(here):
    done = shell("spectrograd cluster graph.csv -k 3 --summary-json /dev/stdout > both.txt")
    assert done.returncode == 0, done.stderr
    lines = Path("both.txt").read_text().splitlines()
    assert lines[0] == "node,label"
    assert json.loads("\n".join(lines[121:]))["command"] == "cluster"


def test_a_descriptor_that_is_not_open_is_refused(here, capsys):
    assert main(["cluster", "graph.csv", "-k", "3", "--summary-json", "/dev/fd/987"]) == 2
    assert "/dev/fd/987 cannot be written" in one_line(capsys)


# --- Standard streams that are closed.


def test_without_stderr_a_command_does_its_work(here):
    done = shell("spectrograd cluster graph.csv -k 3 -o labels.csv 2>&-")
    assert done.returncode == 0
    assert len(Path("labels.csv").read_text().splitlines()) == 121
    assert shell("spectrograd cluster nothing.csv -k 3 2>&-").returncode == 2


def test_without_any_stream_the_file_holds_the_result_alone(here):
    done = shell("spectrograd cluster graph.csv -k 3 -o labels.csv <&- >&- 2>&-")
    assert done.returncode == 0
    assert Path("labels.csv").read_text().startswith("node,label\n")
    assert len(Path("labels.csv").read_text().splitlines()) == 121


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("spectrograd cluster - -k 3 -o labels.csv <&-", "-: standard input is closed; name a file"),
        ("spectrograd knn - -o knn.csv <&-", "-: standard input is closed; name a file"),
        ("spectrograd cluster graph.csv -k 3 >&-", "standard output is closed; name a file with -o"),
        ("spectrograd embed graph.csv -k 3 -o - >&-", "standard output is closed; name a file with -o"),
    ],
)
def test_a_closed_stream_that_is_needed_is_one_line(here, command, message):
    done = shell(command)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {message}")


def test_a_table_for_people_may_go_nowhere(here):
    done = shell("spectrograd info graph.csv --summary-json info.json >&-")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("info.json").read_text())["command"] == "info"


# --- Values beyond all bounds, limits of the system, a Ctrl-C during the first imports.


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--memory-limit", "1e400GB", "is no amount of memory"),
        ("--layer-weights", "nan", "weights must be finite and not negative"),
        ("--layer-weights", "1,inf", "weights must be finite and not negative"),
        ("--layer-weights", "-1", "weights must be finite and not negative"),
        ("--batch-size", "99999999999999", "is not in the range 1<=x<=100000000"),
    ],
)
def test_values_beyond_all_bounds_are_one_line(here, capsys, option, value, message):
    assert main(["cluster", "graph.csv", "-k", "3", option, value]) == 2
    line = one_line(capsys)
    assert f"'{option}'" in line
    assert message in line


def test_sizes_of_memory_are_finite():
    with pytest.raises(ValueError, match="no amount of memory"):
        as_bytes("1e309")


def test_a_limit_on_the_size_of_files_names_the_file(here, capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        code = main(["convert", "graph.csv", "-o", "g.store"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    assert one_line(capsys) == "error: g.store: File too large"
    assert os.listdir() == ["graph.csv"]


# Interrupts itself in the middle of the first import of the command line.
INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "spectrograd.cli.session":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
import runpy
sys.argv = ["spectrograd", "demo"]
runpy.run_module("spectrograd", run_name="__main__")
"""


def test_an_interrupt_while_importing_is_no_traceback(here):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; nothing was written\n"
