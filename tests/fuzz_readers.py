"""``python tests/fuzz_readers.py 10000``: damaged files of every format, read, or refused in one line.

Input ``number`` is a mutation of a small good file, and always the same. A child process reads it under
limits of memory and time, and is started again behind an input that ends it. An input is good when it is
read, or is refused with one error of ours that names the file (exit code 2 of a command).
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fuzz_corpus
from spectrograd import GraphError, load, open_store, read_graph
from spectrograd.cli import main as command
from spectrograd.io import read_labels, read_points

READ, REFUSED, UNCLEAR, OTHER = "read", "refused", "unclear error", "other error"
CRASHED, HUNG, MEMORY = "crash", "hang", "memory"
OUTCOMES = (READ, REFUSED, UNCLEAR, OTHER, CRASHED, HUNG, MEMORY)
BAD = OUTCOMES[2:]
PATIENCE = 600.0  # seconds without a word, for what waits and does nothing
CPU_SECONDS = 20.0  # an input has some 100 kB at most
MEMORY_LIMIT = 2**30  # bytes beyond those of the program
READ_BY_COMMAND = ("checkpoint", "run", "config")


def _read(kind: str, path: Path, number: int) -> None:
    """Read an input as its kind is read."""
    if kind == "points":
        read_points(path)
    elif kind == "labels":
        read_labels(path)
    elif kind == "store":
        stored = open_store(path)
        for layer in getattr(stored, "layers", (stored,)):
            for _ in layer.blocks:
                pass
            _ = layer.in_memory().degrees
    elif kind == "model":
        model = load(path, check=number % 2 == 0)
        np.array(model.labels_)
        np.array(model.embedding_)
    else:
        read_graph(path)


def _command(kind: str, path: Path, good: Path) -> list[str]:
    """The command that reads an input of a kind that has no function."""
    graph, output = str(good.parent / "graph.csv"), str(path.parent / "out.csv")
    if kind == "config":
        return ["cluster", graph, "--config", str(path), "-n"]
    if kind == "run":
        return ["predict", str(path), str(good.parent / "new.csv"), "-o", output]
    solve = ["-s", "lanczos", "-p", "basis_size=8", "--checkpoint", str(path)]
    return ["cluster", graph, "-k", "2", *solve, "-o", output]


def _judge_command(kind: str, path: Path, good: Path) -> tuple[str, str]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = command(_command(kind, path, good))
    text = said.getvalue().strip()
    if "out of memory" in text:
        return MEMORY, text
    if "this is a bug" in text or code not in (0, 1, 2):
        return OTHER, text
    if code == 1 and "onverged" not in text:
        return UNCLEAR, text
    if code == 2:
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        return (REFUSED if len(errors) == 1 else UNCLEAR), text
    return READ, ""


def _judge(kind: str, path: Path, good: Path, number: int) -> tuple[str, str]:
    """How the reading of an input ends, and what is said of it."""
    # The default of SIGPROF ends the process, also in the middle of compiled code.
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind in READ_BY_COMMAND:
                outcome, text = _judge_command(kind, path, good)
            else:
                _read(kind, path, number)
                outcome, text = READ, ""
    except GraphError as error:
        text = str(error)
        outcome = REFUSED if path.name in text and "\n" not in text else UNCLEAR
    except MemoryError as error:
        outcome, text = MEMORY, repr(error)
    except BaseException as error:  # also what is no Exception must not leave a reader
        outcome, text = OTHER, f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return outcome, text


def make_input(number: int, corpus: dict[str, list[Path]], folder: Path) -> tuple[str, Path, Path]:
    """Kind of an input, the file that is made of it in a folder, and the good file behind it."""
    kinds = sorted(corpus)
    kind = kinds[number % len(kinds)]
    rng = np.random.default_rng((number, 34))
    good = corpus[kind][rng.integers(len(corpus[kind]))]
    path = folder / f"case-{number}{''.join(good.suffixes)}"
    if good.is_dir():
        fuzz_corpus.damaged_folder(good, path, rng)
    else:
        others = [file for files in corpus.values() for file in files if file.is_file()]
        other = others[rng.integers(len(others))].read_bytes()
        path.write_bytes(fuzz_corpus.damaged(good.read_bytes(), good.name, rng, other))
    return kind, path, good


def _work(place: Path, first: int, last: int) -> None:
    """Judge inputs, a line each; the body of the child."""
    corpus = fuzz_corpus.by_kind(place)
    # What is good is read. The first reading of a format loads its libraries, which the limit is not for.
    for kind, paths in corpus.items():
        for good in paths:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, good.name)
                (shutil.copytree if good.is_dir() else shutil.copy)(good, path)
                outcome, text = _judge(kind, path, good, 0)
            if outcome != READ:
                raise RuntimeError(f"{good.name}: {outcome}: {text}")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_LIMIT, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, last):
            kind, path, good = make_input(number, corpus, Path(folder))
            outcome, text = _judge(kind, path, good, number)
            about = " ".join(text.split())[:300].encode("ascii", "backslashreplace").decode()
            sys.__stdout__.write(f"{number}\t{kind}\t{outcome}\t{about}\n")
            sys.__stdout__.flush()
            for left in Path(folder).iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _lines_of_child(place: Path, first: int, last: int) -> Iterator[tuple[str, str, str] | int | None]:
    """Kind, outcome and text of each input; at an early end its code, or None where the child hangs."""
    call = [sys.executable, __file__, "--child", str(place), str(first), str(last)]
    process = subprocess.Popen(call, stdout=subprocess.PIPE)
    assert process.stdout is not None
    waiting = b""
    try:
        while True:
            ready = select.select([process.stdout], [], [], PATIENCE)[0]
            if not ready:
                yield None
                return
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            *lines, waiting = (waiting + piece).split(b"\n")
            for line in lines:
                _, kind, outcome, text = line.decode().split("\t", 3)
                yield kind, outcome, text
        yield process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def outcomes(first: int, last: int) -> Iterator[tuple[int, str, str, str]]:
    """Number, kind, outcome and text of every input."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kinds = sorted(fuzz_corpus.make_corpus(place))
        number = first
        while number < last:
            for found in _lines_of_child(place, number, last):
                if isinstance(found, tuple):
                    yield number, *found
                    number += 1
                elif found is not None and found > 0:
                    raise RuntimeError("the process that reads the inputs has failed before the next one")
                elif number < last:
                    outcome = HUNG if found in (None, -signal.SIGPROF) else CRASHED
                    yield number, kinds[number % len(kinds)], outcome, f"exit {found}"
                    number += 1


def main(n_inputs: int = 10_000, first: int = 0, seconds: int = 10**6) -> int:
    """Print how the inputs ended, by kind, and each one that ended badly; their number.

    It ends early after so many seconds.
    """
    write = sys.stdout.write
    counts: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    for number, kind, outcome, text in outcomes(first, first + n_inputs):
        counts[kind, outcome] += 1
        if outcome in BAD:
            write(f"input {number}: {kind}: {outcome}: {text}\n")
            sys.stdout.flush()
        if time.perf_counter() > began + seconds:
            break
    write("".join(f"{head:>15}" for head in ("format", *OUTCOMES)) + "\n")
    for kind in sorted({kind for kind, _ in counts}):
        write("".join(f"{cell:>15}" for cell in (kind, *(counts[kind, end] for end in OUTCOMES))) + "\n")
    totals = [sum(counts[kind, end] for kind, e in counts if e == end) for end in OUTCOMES]
    write("".join(f"{cell:>15}" for cell in ("all", *totals)) + "\n")
    write(f"{counts.total()} inputs in {time.perf_counter() - began:.0f} s\n")
    return sum(totals[2:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _work(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(min(1, main(*(int(word) for word in sys.argv[1:]))))
