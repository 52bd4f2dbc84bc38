"""What a machine does to a command: ``python faults.py TRIES`` tries each fault on each command.

``lost worker`` and ``lost scheduler`` are tried on ``cluster --engine dask:ADDRESS`` only.

A try works in a fresh folder and in a forked child: the command runs under the fault, then again without it.
It survived when the first run ended well, was killed, or said in one line what is wrong, and nothing is lost:
what was there before is whole, and the second run leaves the same as a run that nobody disturbed.
Prints a line of JSON per fault and command: ``[fault, command, tries, survived, lost, text of a failure]``.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from spectrograd import GraphError, load, open_store
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph

COMMANDS = {
    "convert": "convert graph.csv -o out/new.store --edges",
    "cluster": "cluster g.store -k 3 -o out/labels.csv",
    "update": "update g.store change.csv --run run -o out/labels.csv",
    "predict": "predict run new.csv -o out/labels.csv",
}
OUTPUT = {"convert": "out/new.store"}
PATIENCE = 300  # seconds


def prepare() -> None:
    """The inputs of all commands, in the working folder."""
    write_graph("graph.csv", make_block_model(300, 3, mean_degree=12, random_state=0).graph)
    Path("change.csv").write_text("src,dst,weight\n0,299,1\n1,298,1\n")
    Path("new.csv").write_text("src,dst\nnew,1\nnew,2\n")
    Path("precious.csv").write_text("kept\n")
    Path("out").mkdir()
    assert main(["convert", "graph.csv", "-o", "g.store", "--edges", "-q"]) == 0
    assert main(["cluster", "g.store", "-k", "3", "--run", "run", "-o", "labels.csv", "-q"]) == 0


def state(command: str) -> tuple[object, ...]:
    """What a command leaves: degrees of a store and a run, labels."""
    if command == "convert":
        return (open_store(OUTPUT[command]).in_memory().degrees.tolist(),)
    labels = Path("out/labels.csv").read_text()
    degrees = open_store("g.store").in_memory().degrees.tolist()
    return labels, degrees, load("run/model").labels_.tolist()


def in_child(command: str, prelude: Callable[[], None] | None, during: Callable[[int], None] | None) -> int:
    """Run a command in a forked child; its exit code, or minus the signal. ``said.txt`` has its messages."""
    child = os.fork()
    if child == 0:
        code = 70
        with open("said.txt", "w") as said, redirect_stderr(said), redirect_stdout(said):
            if prelude is not None:
                prelude()
            code = main(COMMANDS[command].split())
        os._exit(code)
    if during is not None:
        during(child)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 70


# --- The faults. Each prepares the folder, and cleans up behind the first run.

Fault = tuple[Callable[[], None] | None, Callable[[int], None] | None]


@contextmanager
def kill(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """A kill -9 at a random moment."""

    def during(child: int) -> None:
        time.sleep(float(rng.uniform(0, seconds)))
        os.kill(child, signal.SIGKILL)

    yield None, during


@contextmanager
def stop(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """A SIGSTOP at a random moment; it goes on half a second later."""

    def during(child: int) -> None:
        time.sleep(float(rng.uniform(0, seconds)))
        os.kill(child, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (child, signal.SIGCONT)).run()

    yield None, during


@contextmanager
def full_disk(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """No file can grow beyond a random size, as on a disk that is full."""

    def prelude() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(1, 3000)), limit))

    yield prelude, None


@contextmanager
def clock_jump(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """The clock of the day jumps by up to ten years, back and forth, whenever it is asked."""

    def prelude() -> None:
        asked = time.time
        time.time = lambda: asked() + float(rng.uniform(-3e8, 3e8))

    yield prelude, None


@contextmanager
def read_only(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """The folder of the output is read-only; root, who may write everywhere, gets a read-only mount."""
    mounted = os.geteuid() == 0
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", "out"], check=True)
    else:
        os.chmod("out", 0o500)
    try:
        yield None, None
    finally:
        if mounted:
            subprocess.run(["umount", "out"], check=True)
        os.chmod("out", 0o700)


@contextmanager
def symlink(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """In place of the output there is a link: to an input, to itself, to nowhere, or to a folder."""
    target = Path(OUTPUT.get(command, "out/labels.csv"))
    given = {"convert": "graph.csv", "predict": "new.csv", "update": "change.csv", "cluster": "g.store"}[
        command
    ]
    target.symlink_to(rng.choice([f"../{given}", target.name, "nowhere/x", "../run"]))
    yield None, None
    if target.is_symlink():
        target.unlink()


@contextmanager
def corrupt(command: str, rng: np.random.Generator, seconds: float) -> Iterator[Fault]:
    """One bit of an input is wrong; it is put right afterwards."""
    read = {"convert": "graph.csv", "cluster": "g.store", "update": "g.store", "predict": "run"}[command]
    files = [path for path in sorted(Path(read).rglob("*")) if path.is_file()] or [Path(read)]
    file = files[rng.integers(len(files))]
    before = file.read_bytes()
    changed = bytearray(before)
    changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    file.write_bytes(changed)
    kept = Path(tempfile.mkdtemp(dir="."))
    for name in ("g.store", "run"):
        shutil.copytree(name, kept / name)
    yield None, None
    for name in ("g.store", "run"):  # as from a backup: what was made of bad input is bad
        shutil.rmtree(name)
        shutil.copytree(kept / name, name)
    shutil.rmtree(kept)
    shutil.rmtree(
        "out/new.store", ignore_errors=True
    )  # texts have no checksum: another digit is another graph
    file.write_bytes(before)


FAULTS = {
    "kill -9": kill,
    "disk full": full_disk,
    "corrupt block": corrupt,
    "SIGSTOP": stop,
    "clock jump": clock_jump,
    "read-only folder": read_only,
    "symlink in the way": symlink,
}


def is_clear(code: int) -> bool:
    """Whether a run ended well, by a signal, or with one error in one line."""
    said = Path("said.txt").read_text()
    errors = sum(line.startswith("error: ") for line in said.splitlines())
    bad = "Traceback" in said or "this is a bug" in said
    return code in (0, -signal.SIGKILL) or (code in (1, 2) and not bad and errors == 1)


def try_once(place: Path, fault: str, command: str, seed: int, expected: object, seconds: float) -> str:
    """``""`` where the command survives; else ``lost ...`` or ``unclear ...``."""
    rng = np.random.default_rng((seed, *map(ord, fault + command)))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(place, folder, dirs_exist_ok=True)
        os.chdir(folder)
        inputs = {name: Path(name).read_bytes() for name in ("graph.csv", "change.csv", "new.csv")}
        try:
            with FAULTS[fault](command, rng, seconds) as (prelude, during):
                code = in_child(command, prelude, during)
            said = Path("said.txt").read_text()
            if not is_clear(code):
                return f"unclear: exit {code}: {said[-300:]}"
            if Path("precious.csv").read_text() != "kept\n" or any(
                Path(name).read_bytes() != content for name, content in inputs.items()
            ):
                return f"lost: an input after: {said[-200:]}"
            if command != "convert" or not Path(OUTPUT[command]).exists():
                code = in_child(command, None, None)
                if code != 0:
                    return f"lost: exit {code} of the run behind: {Path('said.txt').read_text()[-300:]}"
            return "" if fault_free(command) == expected else f"lost: another result after: {said[-200:]}"
        finally:
            os.chdir(place)


def fault_free(command: str) -> object:
    """The state, or what is wrong with it."""
    try:
        return state(command)
    except (GraphError, OSError) as error:
        return str(error)


# --- A cluster of processes, one of which is killed.

CLUSTERED = "cluster g.store -k 3 -s chebyshev -t 1e-10 -o out/labels.csv --engine dask:{}"
LOST = ("lost worker", "lost scheduler")


@contextmanager
def dask_cluster() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], str]]:
    """A scheduler, two workers that their nanny starts again, and the address."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    Path("scheduler.json").unlink(missing_ok=True)
    words = ("--port", "0", "--no-dashboard", "--scheduler-file", "scheduler.json")
    scheduler = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **quiet)
    words = ("--scheduler-file", "scheduler.json", "--nworkers", "2", "--nthreads", "1", "--no-dashboard")
    workers = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", *words], **quiet)
    try:
        # a worker that is killed before it has registered takes its nanny along
        wait = "import distributed; distributed.Client(scheduler_file='scheduler.json').wait_for_workers(2)"
        subprocess.run([sys.executable, "-c", wait], check=True, timeout=PATIENCE, **quiet)
        yield scheduler, workers, json.loads(Path("scheduler.json").read_text())["address"]
    finally:
        for process in (workers, scheduler):
            process.terminate()
            process.wait(PATIENCE)


def worker_processes(nanny: int) -> list[int]:
    """The processes that a nanny has started to compute."""
    import psutil

    children = psutil.Process(nanny).children(recursive=True)
    return [child.pid for child in children if any("spawn_main" in word for word in child.cmdline())]


def cluster_on(address: str) -> subprocess.Popen[bytes]:
    """Start the command; ``said.txt`` has its messages."""
    words = CLUSTERED.format(address).split()
    with open("said.txt", "wb") as said:
        return subprocess.Popen([sys.executable, "-m", "spectrograd", *words], stdout=said, stderr=said)


def lose_process(fault: str, rng: np.random.Generator, seconds: float, expected: str | None) -> str:
    """``""`` where the command survives the loss and leaves what it should."""
    Path("out/labels.csv").unlink(missing_ok=True)
    with dask_cluster() as (scheduler, workers, address):
        process = cluster_on(address)
        time.sleep(float(rng.uniform(0, seconds)))
        lost = scheduler.pid if fault == "lost scheduler" else int(rng.choice(worker_processes(workers.pid)))
        os.kill(lost, signal.SIGKILL)
        code = process.wait(PATIENCE)
    said = Path("said.txt").read_text()
    if not is_clear(code) or (fault == "lost worker" and code != 0):
        return f"unclear: exit {code}: {said}"
    if code != 0:  # the command is given again, to a cluster that is whole
        with dask_cluster() as (_, _, address):
            code = cluster_on(address).wait(PATIENCE)
    same = code == 0 and Path("out/labels.csv").read_text() == expected
    return "" if same else f"lost: exit {code}, another result after: {said[-200:]}"


def run_clustered(tries: int, faults: tuple[str, ...]) -> Iterator[tuple[str, str, int, int, int, str]]:
    """Fault, command, tries, survived, lost, and the text of a failure."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare()
        with dask_cluster() as (_, _, address):
            cluster_on(address).wait(PATIENCE)  # compiles
            began = time.monotonic()
            assert cluster_on(address).wait(PATIENCE) == 0, Path("said.txt").read_text()
            seconds = time.monotonic() - began
        expected = Path("out/labels.csv").read_text()
        for fault in faults:
            rng = np.random.default_rng(list(map(ord, fault)))
            ends = [lose_process(fault, rng, seconds, expected) for _ in range(tries)]
            lost = sum(end.startswith("lost") for end in ends)
            yield fault, "cluster", tries, ends.count(""), lost, max(ends)
        os.chdir("/")


def run(tries: int, faults: tuple[str, ...] = tuple(FAULTS)) -> Iterator[tuple[str, str, int, int, int, str]]:
    """Fault, command, tries, survived, lost, and the text of a failure."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        place = Path(folder)
        os.chdir(place)
        prepare()
        for command in COMMANDS:
            shutil.copytree(place, Path(other, command))
            os.chdir(Path(other, command))
            began = time.monotonic()
            assert in_child(command, None, None) == 0, Path("said.txt").read_text()
            seconds = time.monotonic() - began
            expected = state(command)
            for fault in faults:
                ends = [try_once(place, fault, command, seed, expected, seconds) for seed in range(tries)]
                lost = sum(end.startswith("lost") for end in ends)
                yield fault, command, tries, ends.count(""), lost, max(ends)
            os.chdir(place)
        os.chdir("/")


if __name__ == "__main__":
    n_tries = int(sys.argv[1])
    chosen = tuple(sys.argv[2:]) or (*FAULTS, *LOST)
    of_commands = tuple(name for name in chosen if name in FAULTS)
    of_clusters = tuple(name for name in chosen if name in LOST)
    with_commands = run(n_tries, of_commands) if of_commands else ()
    # each try starts a cluster
    with_clusters = run_clustered(2 * n_tries, of_clusters) if of_clusters else ()
    for row in itertools.chain(with_commands, with_clusters):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
