"""Tables, labels and outputs at the command line: nothing given is dropped without a word."""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from test_demo import ENVIRONMENT

from spectrograd.cli import main
from spectrograd.cli import run as running

PAIRS = ("ab", "bc", "ca", "cd", "de", "ef", "fd")
TABLE = "from,to,amount\n" + "".join(f"{a},{b},{30 + i}\n" for i, (a, b) in enumerate(PAIRS))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.csv").write_text(TABLE)
    return tmp_path


def outcome(capsys, *args):
    """Exit code, and what was said on stderr."""
    code = main(list(map(str, args)))
    return code, capsys.readouterr().err


def test_amounts_are_weights(capsys, here):
    assert outcome(capsys, "info", "g.csv", "--summary-json", "s.json") == (0, "")
    assert json.loads((here / "s.json").read_text())["graph"]["layers"][0]["weights"] == [30, 36]


@pytest.mark.parametrize("command", ["info", "embed", "cluster", "compare"])
def test_every_command_that_reads_tables_takes_the_names_of_columns(capsys, here, command):
    (here / "t.csv").write_text(TABLE.replace("from,to,amount", "caller,callee,minutes"))
    names = ["--source", "caller", "--target", "callee", "--weight", "minutes"]
    dry = [] if command == "info" else ["-k", 2, "--dry-run"]
    assert outcome(capsys, command, "t.csv", *names, *dry)[0] == 0
    code, told = outcome(capsys, command, "t.csv", "--source", "caller", *dry)
    assert code == 2
    assert "t.csv, line 1: no columns 'src' and 'dst' among 'caller', 'callee', 'minutes'" in told


def test_columns_are_written_into_the_run_file(capsys, here):
    (here / "t.csv").write_text(TABLE.replace("from,to,amount", "caller,callee,minutes"))
    names = ["--source", "caller", "--target", "callee"]
    code, told = outcome(capsys, "embed", "t.csv", "-k", 2, "-o", "e.csv", *names)
    assert code == 0
    assert "warning: t.csv, line 1: the column 'minutes' is taken for the weight" in told
    assert main(["embed", "-c", "e.run.toml", "-o", "f.csv", "-q"]) == 0
    assert (here / "e.csv").read_bytes() == (here / "f.csv").read_bytes()


def test_points_are_sent_to_knn(capsys, here):
    points = np.random.default_rng(0).standard_normal((100, 2))
    np.savetxt("p.csv", points, delimiter=",", header="x,y", comments="")
    code, told = outcome(capsys, "cluster", "p.csv", "-k", 2)
    assert code == 2
    assert told.startswith(
        "error: p.csv: these look like points, not edges: 'spectrograd cluster p.csv --points'"
    )


@pytest.mark.parametrize("header", ["node,truth", "who,truth", "id,label", "name,party"])
def test_labels_with_any_header(capsys, here, header):
    (here / "truth.csv").write_text(header + "\n" + "".join(f"{n},{'xy'[n > 'c']}\n" for n in "abcdef"))
    code, told = outcome(capsys, "cluster", "g.csv", "-k", 2, "-l", "truth.csv", "-o", "l.csv")
    assert code == 0
    assert ("line 1: taken as the header, since 'who' is no node" in told) == header.startswith("who")


def test_a_first_node_that_is_unknown_is_no_header_where_its_label_is_known(capsys, here):
    (here / "truth.csv").write_text("bbo,x\na,x\nb,y\n")
    code, told = outcome(capsys, "cluster", "g.csv", "-k", 2, "-l", "truth.csv")
    assert code == 2
    assert "truth.csv, line 1: node 'bbo' is not in the graph" in told


def test_formulas_are_marked_unless_raw(capsys, here):
    (here / "g.csv").write_text(
        TABLE.replace("a,", "=cmd(),").replace(",a", ",=cmd()").replace("=cmd()mount", "amount")
    )
    code, told = outcome(capsys, "cluster", "g.csv", "-k", 2, "-o", "l.csv")
    assert code == 0
    assert "warning: 1 ids begin as formulas" in told
    assert "\n'=cmd()," in (here / "l.csv").read_text()
    code, told = outcome(capsys, "cluster", "g.csv", "-k", 2, "-o", "l.csv", "--raw")
    assert code == 0
    assert "warning" not in told
    assert "\n=cmd()," in (here / "l.csv").read_text()
    assert main(["embed", "g.csv", "-k", "2", "--raw"]) == 0
    assert "\n=cmd()," in capsys.readouterr().out


LIMIT = 900  # bytes: the small files fit, the one asked for does not


def _limited():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "big.csv"],
        ["-o", "big.npz"],
        ["-o", "e.npy", "--summary-json", "big.json"],
        ["-o", "e.npy", "--run", "big"],
    ],
)
def test_a_full_disk_names_the_file(here, options):
    # No file may grow beyond the limit, which fails as a full disk does: an error that knows no file.
    rows = "".join(f"node{i},node{(i + 1) % 40}\n" for i in range(40))
    (here / "ring.csv").write_text(rows)
    command = [sys.executable, "-B", "-m", "spectrograd", "embed", "ring.csv", "-k", "2", "-q", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, preexec_fn=_limited, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: big")
    assert done.stderr.endswith(": File too large\n")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_standard_output_that_is_full(here):
    command = [sys.executable, "-m", "spectrograd", "embed", "g.csv", "-k", "2", "-q"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: No space left on device; free some")


def _damaged_runs(story, arrays):
    yield "run.json", story[: len(story) // 2]
    yield "run.json", b""
    yield "run.json", b"[]"
    for key in json.loads(story):
        rest = json.loads(story)
        del rest[key]
        yield "run.json", json.dumps(rest).encode()
        yield "run.json", json.dumps(rest | {key: 7}).encode()
    for at in range(10, len(arrays), len(arrays) // 12):
        yield "nodes.npz", arrays[:at]
        yield "nodes.npz", arrays[:at] + bytes([arrays[at] ^ 1]) + arrays[at + 1 :]


def test_damaged_runs_are_bad_input(capsys, here):
    assert main(["cluster", "g.csv", "-k", "2", "--run", "run", "-o", "l.csv", "-q"]) == 0
    files = {name: (here / "run" / name).read_bytes() for name in ("run.json", "nodes.npz")}
    assert main(["report", "run", "-q"]) == 0
    capsys.readouterr()
    for name, content in _damaged_runs(*files.values()):
        (here / "run" / name).write_bytes(content)
        code, told = outcome(capsys, "report", "run")
        assert code == 2, (name, content[:80])
        assert told.startswith(f"error: run/{name}: the saved run cannot be read (")
        assert told.count("\n") == 1
        (here / "run" / name).write_bytes(files[name])
    short = dict(np.load(here / "run" / "nodes.npz"))
    np.savez(here / "run" / "nodes.npz", **(short | {"labels": short["labels"][:2]}))
    assert outcome(capsys, "report", "run")[0] == 2


def test_a_table_is_not_read_again_for_its_hash(here, monkeypatch, capsys):
    monkeypatch.setattr(running, "hash_file", lambda *_: pytest.fail("read once more"))
    assert main(["cluster", "g.csv", "-k", "2", "-o", "l.csv", "--summary-json", "s.json"]) == 0
    source = json.loads((here / "s.json").read_text())["input"]
    assert source["sha256"] == hashlib.sha256((here / "g.csv").read_bytes()).hexdigest()
