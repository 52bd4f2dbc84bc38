"""``--checkpoint``: commands that are killed, terminated, or whose disk is full, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spectrograd
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
SLOW = ("-s", "gradient-descent", "-t", "0", "--max-iter", "100000")


@pytest.fixture
def folder(tmp_path):
    write_graph(tmp_path / "graph.csv", make_block_model(400, 4, random_state=0).graph)
    write_graph(tmp_path / "more.csv", make_block_model(400, 4, random_state=1).graph)
    return tmp_path


def killed(folder, moments, seed):
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), str(folder), str(moments), str(seed)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are killed in forked processes")
def test_killed_at_any_moment_a_run_goes_on_to_the_same_bits(folder):
    assert killed(folder, 5, 0) > 0


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_two_hundred_moments(folder, seed):
    assert killed(folder, 50, seed) >= 40  # of a hundred: some are aimed behind the end


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are killed in forked processes")
@pytest.mark.parametrize("command", ["update", "convert"])
@pytest.mark.parametrize("hits", [6, pytest.param(40, marks=pytest.mark.chaos)])
def test_killed_at_any_step_of_writing_a_command_is_repeated_to_the_same_bits(tmp_path, command, hits):
    """Also between the store's commit and the run's: no edge is added twice, and none is lost."""
    folder = tmp_path / "work"
    folder.mkdir()
    graph = make_block_model(300, 3, mean_degree=16, random_state=0).graph
    write_graph(folder / "graph.csv", graph)
    write_graph(folder / "other.csv", make_block_model(300, 3, mean_degree=12, random_state=1).graph)
    ends = graph.matrix.tocoo()
    (folder / "change.csv").write_text(f"src,dst,weight\n{ends.row[0]},{ends.col[0]},5\n")
    script = Path(__file__).with_name("killing_steps.py")
    call = [sys.executable, str(script), str(folder), command, str(hits)]
    done = subprocess.run(call, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 0.9 * hits


def test_a_terminated_command_saves_and_writes_what_it_has(folder):
    command = [sys.executable, "-m", "spectrograd", "cluster", "graph.csv", "-k", "4", *SLOW]
    command += ["-o", "labels.csv", "--checkpoint", "run", "--every", "1e6", "-v"]
    process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:  # with -v every measurement is told
        if "iteration 100" in line:
            break
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=200)[1]
    assert process.returncode == 130
    assert "interrupted after" in told
    assert len((folder / "labels.csv").read_text().splitlines()) == 401
    assert [file[:15] for file in os.listdir(folder / "run")] == ["solve-000-state"]


def command(folder, *more):
    given = ["cluster", folder / "graph.csv", "-k", 4, "-o", folder / "labels.npy", *more]
    return main([str(argument) for argument in given])


def test_a_command_that_goes_on_and_one_that_is_refused(folder, capsys):
    assert command(folder, "--checkpoint", folder / "run") == 0
    found = np.load(folder / "labels.npy")
    assert command(folder, "--checkpoint", folder / "run", "--every", 5) == 0
    assert (np.load(folder / "labels.npy") == found).all()
    capsys.readouterr()
    assert command(folder, "--checkpoint", folder / "run", "--seed", 1) == 2
    told = capsys.readouterr().err
    assert "run: was written for seed 0, this run has seed 1; take another folder, or remove" in told
    assert told.count("\n") == 1


def test_folders_that_cannot_be_used(folder, capsys):
    assert command(folder, "--checkpoint", folder / "graph.csv") == 2
    assert "graph.csv: this is no folder" in capsys.readouterr().err
    assert command(folder, "--checkpoint", folder / "no" / "where") == 2
    assert "no such folder; create it first" in capsys.readouterr().err
    os.symlink("/proc/sys", folder / "closed")  # nobody may make files there, not even root
    assert command(folder, "--checkpoint", folder / "closed") == 1
    told = capsys.readouterr().err
    assert "/proc/sys" in told
    assert told.count("\n") == 1


def test_a_full_disk_ends_the_run_and_keeps_the_checkpoint_before(folder, capsys):
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    how = ("-s", "lanczos", "-t", "1e-12", "-p", "basis_size=12", "--every", 0)  # its basis grows to doubles
    try:
        assert command(folder, *how, "--checkpoint", disk / "run") == 1
        told = capsys.readouterr().err
        assert "disk/run/solve-000-" in told
        assert "the disk is full; earlier checkpoints are as they were" in told
        left = os.listdir(disk / "run")
        assert left
        assert not [file for file in left if file.endswith(".tmp")]
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        assert command(folder, *how, "--checkpoint", disk / "run") == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    found = (folder / "labels.npy").read_bytes()
    assert command(folder, *how[:-2]) == 0
    assert (folder / "labels.npy").read_bytes() == found
