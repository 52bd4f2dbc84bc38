"""Kill commands at random moments, as a machine does: ``python killing.py FOLDER MOMENTS SEED``.

Commands run in forked children of one process that has loaded everything, so that a kill costs milliseconds.
Prints how often a child was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from spectrograd.cli import main
from spectrograd.serialization import codec as value_file
from spectrograd.serialization.codec import ArraySink

COMMANDS = {
    "labels": "cluster graph.csv -k 4 -s gradient-descent -t 0 --max-iter 300",
    "auto": "cluster graph.csv -k 4 -t 1e-13 --max-iter 3",
    "vectors": "embed graph.csv -k 4 -s lanczos -t 1e-11 -p basis_size=12 --max-iter 30",
    "layers": "embed graph.csv more.csv -k 3 -s chebyshev",
}
GOOD_ENOUGH = (0, 1)  # some of them are given too little time to be certified
# of writing a checkpoint: an array, all of it on the disk, its name, and the name on the disk
STEPS = ((ArraySink, "add"), (os, "fsync"), (os, "replace"), (value_file, "sync_folder"))


def die_within(step: int, number: int) -> None:
    """Be killed in the middle of a checkpoint: at the number-th time that a step of writing is taken."""
    place, name = STEPS[step]
    taken, seen = getattr(place, name), []

    def dying(*given, **more):
        seen.append(name)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return taken(*given, **more)

    setattr(place, name, dying)


def run(name, output, *, after=None, within=None, checkpoint=None):
    """Run a command in a child, which perhaps is killed; its exit code, or minus the signal."""
    more = () if checkpoint is None else ("--checkpoint", checkpoint, "--every", "0")
    child = os.fork()
    if child == 0:
        if within is not None:
            die_within(*within)
        os._exit(main([*COMMANDS[name].split(), "-q", "-o", output, *more]))
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def undisturbed(name):
    """What the command writes when nobody touches it, and how long it takes; here, so that all is loaded."""
    for _ in range(2):  # the first time things are loaded
        began = time.perf_counter()
        assert main([*COMMANDS[name].split(), "-q", "-o", f"{name}.npy"]) in GOOD_ENOUGH
    return Path(f"{name}.npy").read_bytes(), time.perf_counter() - began


def disturbed(name, rng, seconds):
    """Kill a run twice, in general and while it writes, then let it end; how often it was hit."""
    hit, folder = 0, f"run-{name}"
    step = (int(rng.integers(len(STEPS))), int(rng.integers(1, 12)))
    for how in ({"after": float(rng.uniform(0, 1.5 * seconds))}, {"within": step}):
        hit += run(name, "out.npy", checkpoint=folder, **how) == -signal.SIGKILL
    assert run(name, "out.npy", checkpoint=folder) in GOOD_ENOUGH
    left = os.listdir(folder)
    assert not [file for file in left if file.endswith(".tmp")], left
    for file in left:
        os.unlink(f"{folder}/{file}")
    os.rmdir(folder)
    return hit


def main_loop(folder, moments, seed):
    """Every moment is another command in turn."""
    os.chdir(folder)
    rng = np.random.default_rng(seed)
    expected = {name: undisturbed(name) for name in COMMANDS}
    before, hit = sorted(os.listdir()), 0
    for moment in range(moments):
        name = list(COMMANDS)[moment % len(COMMANDS)]
        hit += disturbed(name, rng, expected[name][1])
        assert Path("out.npy").read_bytes() == expected[name][0], (name, moment)
        # a kill while an output is written leaves its hidden temporary, which has no say in anything
        found = [
            file for file in sorted(os.listdir()) if not file.startswith((".out.npy.", ".out.run.toml."))
        ]
        assert found == sorted([*before, "out.npy", "out.run.toml"]), found
    sys.stdout.write(f"{hit}\n")


if __name__ == "__main__":
    main_loop(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
