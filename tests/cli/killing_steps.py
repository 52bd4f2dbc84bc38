"""Kill ``update`` and ``convert`` at every step of writing: ``python killing_steps.py FOLDER COMMAND HITS``.

A step is a call that changes the disk: a file or folder is flushed, renamed or removed. A run that is not
disturbed says how many there are; then children that are forked of one process, which has loaded everything,
are killed right before or right after some of them, and the same command is given again.
Prints how often a child was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

import spectrograd
from spectrograd import open_store
from spectrograd.cli import main

STEPS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")
COMMANDS = {
    "update": "update g.store change.csv --run run -o out.csv -q",
    "convert": "convert other.csv -o g.store --force --edges -q",
}


def count_steps(counted, kill_at=None, after=False):
    """Make every step counted; at one of them the process ends, before or after it."""

    def watched(step):
        def call(*given, **more):
            counted.append(step)
            dies = len(counted) == kill_at
            if dies and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = step(*given, **more)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))


def run(command, kill_at=None, after=False):
    """The command in a child: its exit code, or minus the signal."""
    child = os.fork()
    if child == 0:
        count_steps([], kill_at, after)
        os._exit(main(COMMANDS[command].split()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def number_of_steps(command):
    """How many steps an undisturbed run takes, and what it leaves."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        counted = []
        count_steps(counted)
        code = main(COMMANDS[command].split())
        os.write(writer, str(len(counted)).encode())
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return int(os.read(reader, 20)), state(command)


def state(command):
    """What may not depend on whether anybody was killed: weights of the store and of the run, labels."""
    degrees = np.asarray(open_store("g.store").in_memory().degrees)
    if command == "convert":
        return (degrees,)
    model = spectrograd.load("run/model")
    return degrees, np.asarray(model.graph_.degrees), model.labels_


def main_loop(folder, command, hits):
    os.chdir(folder)
    assert main(["convert", "graph.csv", "-o", "g.store", "-q"]) == 0
    assert main(["cluster", "g.store", "-k", "3", "--run", "run", "-o", "labels.csv", "-q"]) == 0
    before = sorted(os.listdir())
    for name in ("g.store", "run"):
        shutil.copytree(name, Path("..") / f"kept-{name}")

    def begin_anew():
        for name in ("g.store", "run"):
            shutil.rmtree(name)
            shutil.copytree(Path("..") / f"kept-{name}", name)
        for name in set(os.listdir()) - set(before):
            os.unlink(name) if os.path.isfile(name) else shutil.rmtree(name)

    n_steps, expected = number_of_steps(command)
    killed = 0
    for moment in range(hits):
        begin_anew()
        at = 1 + moment // 2 * n_steps // max(1, (hits + 1) // 2)
        killed += run(command, at, after=moment % 2 == 1) == -signal.SIGKILL
        if command == "convert":  # the old store or the new one, whole
            open_store("g.store").in_memory()
        code = run(command)
        assert code == 0, (command, at, moment % 2, code)
        for one, other in zip(state(command), expected, strict=True):
            assert np.array_equal(one, other), (command, at, moment % 2)
        left = [name for name in os.listdir() if name.startswith(".") or name.endswith((".tmp", ".lock"))]
        hidden = [name for name in left if not name.startswith((".out.", ".g.store."))]
        assert not hidden, hidden
    sys.stdout.write(f"{killed} of {hits}, {n_steps} steps\n")


if __name__ == "__main__":
    main_loop(sys.argv[1], sys.argv[2], int(sys.argv[3]))
