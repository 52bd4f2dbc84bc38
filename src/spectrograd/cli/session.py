"""The session of a command: messages on stderr, progress, the seconds of each stage, and the summary.

Also the checks that keep a command from overwriting its input or writing to a closed stream.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spectrograd.system import resolve_path
from spectrograd.typing import JsonObject

if TYPE_CHECKING:
    from rich.console import Console

    from spectrograd.solvers import Hook, Progress


COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_with_bar: list[Console] = []  # consoles that draw a bar at the moment, the last one innermost


def echo(kind: str, text: str) -> None:
    """Print ``kind: text`` as one line; what to do, after the last semicolon, stands out in colour."""
    line = " ".join(text.split())
    if not wants_colour():
        print_line(f"{kind}: {line}")
        return
    what, mark, fix = line.rpartition("; ")
    fixed = f"{what}{mark}{click.style(fix, bold=True)}" if mark else line
    print_line(f"{click.style(kind, fg=COLOURS[kind], bold=True)}: {fixed}")


def print_line(text: str) -> None:
    """A line of its own on stderr: a bar that is drawn there moves below it."""
    if not _with_bar:
        click.echo(text, err=True, color=wants_colour())
        return
    from rich.text import Text

    _with_bar[-1].print(Text.from_ansi(text), soft_wrap=True)


@contextmanager
def bar_on(console: Console) -> Iterator[None]:
    """Within, the console draws a bar on stderr."""
    _with_bar.append(console)
    try:
        yield
    finally:
        _with_bar.remove(console)


def wants_colour() -> bool:
    """Whether stderr is a terminal whose owner has not asked for plain text (https://no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# --- How far a run is: rate, share done and time left, as far as a limit tells.


@dataclass
class ProgressMeter:
    """The limits of a run: iterations, seconds, or neither. It may stop earlier, when it is good enough.

    A run that goes on from a checkpoint counts its own seconds and iterations: the first measurement of a
    solve is where it began.
    """

    max_iter: int | None = None
    time_budget: float | None = None
    _began: tuple[int, float] = (0, 0.0)
    _last: int | None = None

    def _own(self, progress: Progress) -> tuple[int, float]:
        """Iterations and seconds of this run; remembers where a solve began."""
        if self._last is None or progress.iteration < self._last:
            self._began = (progress.iteration, progress.seconds)
        self._last = progress.iteration
        return progress.iteration - self._began[0], progress.seconds - self._began[1]

    def share(self, progress: Progress) -> float | None:
        """How much of the nearest limit is used up, or None without a limit."""
        shares = []
        (_, seconds) = self._own(progress)
        if self.max_iter is not None:
            shares.append(progress.iteration / self.max_iter)
        if self.time_budget is not None:
            shares.append(seconds / self.time_budget)
        return min(1.0, max(shares)) if shares else None

    def text(self, progress: Progress) -> str:
        """Rate and, with a limit, the time left at most."""
        done, seconds = self._own(progress)
        if seconds <= 0 or done <= 0:
            return ""
        rate = f"{done / seconds:,.1f} it/s"
        lefts = []
        if self.max_iter is not None:
            lefts.append((self.max_iter - progress.iteration) * seconds / done)
        if self.time_budget is not None:
            lefts.append(self.time_budget - seconds)
        return f"{rate}  <{clock(max(0.0, min(lefts)))} left" if lefts else rate


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# --- One run of a command: what was asked, where messages go, and how long each stage took.

STAGES = ("read", "layers", "merge", "solve", "assign", "report")
STAGE_WORDS = {"layers": "layers", "merge": "merging", "assign": "labels"}
TABLE_WIDTH = 110  # where the output is no terminal and COLUMNS does not tell


@dataclass
class Session:
    """The common options of a command, its clock and its voice (stderr)."""

    command: str
    argv: tuple[str, ...]
    seed: int
    summary_json: str | None = None
    verbose: bool = False
    quiet: bool = False
    dry_run: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*STAGES, "jit"), 0.0))
    started: float = field(default_factory=time.perf_counter)
    stage_now: str = ""
    engine: JsonObject | None = None  # what it did, where something was solved

    @property
    def command_line(self) -> str:
        """What to type to repeat the run."""
        return shlex.join(["spectrograd", *self.argv])

    @property
    def on_terminal(self) -> bool:
        """Whether somebody watches stderr and wants progress."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        if not self.quiet:
            echo("note", text)

    def done(self, what: str, *targets: str | os.PathLike[str] | None) -> None:
        """Say in one line what came out, where it was saved and how long it took."""
        if not self.quiet:
            files = ", ".join(str(target) for target in targets if target not in (None, "-"))
            saved = f", saved {files}" if files else ""
            print_line(f"{what}{saved} in {self.timing()['total']:.1f} s")

    def detail(self, text: str) -> None:
        """Say something only with ``-v``."""
        if self.verbose and not self.quiet:
            print_line(text)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began

    def timing(self) -> dict[str, float]:
        """Seconds by stage, with the total so far."""
        return self.seconds | {"total": time.perf_counter() - self.started}

    @contextmanager
    def progress(self, label: str, meter: ProgressMeter | None = None, waiting: str = "") -> Iterator[Hook]:
        """A hook for the solver loop that draws a progress bar, on a terminal only.

        The bar fills up as far as the ``meter`` knows a limit; ``waiting`` stands there until it moves.
        """
        limits = meter or ProgressMeter()
        with ExitStack() as stack:
            show = self.status_line(stack, waiting or label)

            def hook(progress: Progress) -> None:
                what = STAGE_WORDS.get(self.stage_now, label)
                text = f"{what}: iteration {progress.iteration:,}  objective {progress.objective:.6g}"
                show(text, limits.share(progress), limits.text(progress))
                self.detail(f"{text}  {progress.seconds:.1f} s")

            yield hook

    def begin(self, stage: str) -> None:
        """The pipeline enters a stage: what the progress line is about."""
        self.stage_now = stage

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Add what the pipeline measured, by stage."""
        for stage, spent in seconds.items():
            self.seconds[stage] += spent

    @contextmanager
    def counting(self, label: str) -> Iterator[Callable[[int], None]]:
        """A function that shows how many things of a stream are done, on a terminal only."""
        with ExitStack() as stack:
            show = self.status_line(stack, label)

            def count(done: int) -> None:
                show(f"{label}: {done:,}")
                self.detail(f"{label}: {done:,}")

            yield count

    @staticmethod
    def _unseen(text: str, share: float | None = None, rate: str = "") -> None:
        """Draw nothing: stderr is a pipe or a file."""

    def status_line(self, stack: ExitStack, label: str) -> Callable[..., None]:
        """A function that shows a text, the share done and a rate until the stack ends; on terminals only."""
        if not self.on_terminal:
            return self._unseen
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[rate]}", markup=False),
        )
        console = self.console(stderr=True)
        bar = stack.enter_context(Progress(*columns, console=console, transient=True))
        stack.enter_context(bar_on(console))
        task = bar.add_task(label, total=None, rate="")

        def show(text: str, share: float | None = None, rate: str = "") -> None:
            limit = None if share is None else 1.0
            bar.update(task, description=text, total=limit, completed=share or 0.0, rate=rate)

        return show

    def console(self, *, stderr: bool = False) -> Console:
        """A rich console; tables get a width of their own where there is no terminal to fit."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) else TABLE_WIDTH
        return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else width)

    @contextmanager
    def compile_clock(self, needed: bool) -> Iterator[None]:
        """Count the seconds numba spends compiling or loading kernels as ``jit``.

        Loading numba takes a moment, so small graphs, which do without it, are not ``needed``.
        """
        if not needed and "numba" not in sys.modules:
            yield
            return
        from numba.core import event

        timer = event.TimingListener()
        with event.install_listener("numba:compiler_lock", timer):
            yield
        if timer.done:
            self.seconds["jit"] += timer.duration

    def check_target(self, path: str | os.PathLike[str] | None, option: str) -> None:
        """Refuse a file that cannot be written before anything is computed."""
        if path is None:
            return
        from spectrograd.io.write_graph import is_stream

        if is_stream(path):
            if not os.access(path, os.W_OK):
                raise click.BadParameter(f"{path} cannot be written", param_hint=f"'{option}'")
            return
        folder = resolve_path(path).parent
        if not folder.is_dir():
            raise click.BadParameter(
                f"the folder {folder} does not exist; create it first", param_hint=f"'{option}'"
            )
        if Path(path).is_dir() or not os.access(folder, os.W_OK):
            raise click.BadParameter(f"{path} cannot be written", param_hint=f"'{option}'")
        if is_described_folder(folder):
            raise click.BadParameter(
                f"{path}: a store or a saved model is in {folder}; write elsewhere", param_hint=f"'{option}'"
            )

    def save_summary(self, summary: dict[str, object]) -> None:
        """Write the summary where ``--summary-json`` says."""
        if self.summary_json is not None:
            from spectrograd.io.write_graph import write_whole_text
            from spectrograd.report.run import to_json

            write_whole_text(self.summary_json, to_json(summary))


# --- Targets that would destroy something, and standard streams that the caller has closed.

STDIN = "-"
INPUT_PARAMETERS = ("graphs", "graph", "edges", "remove", "new", "points", "truth", "config")
TARGET_PARAMETERS = {"output": "-o", "page": "--report", "summary_json": "--summary-json"}
closed_streams: set[str] = set()  # of stdin, stdout and stderr


def open_closed_streams() -> None:
    """Put the null device in the place of standard streams that are closed, as daemons have them.

    Otherwise the next file that is opened gets the number of a standard stream, and messages end in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        closed_streams.add(name)
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        null_stream = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
        setattr(sys, name, null_stream)


def input_paths(params: Mapping[str, object]) -> list[str]:
    """The files that a command reads, of the values of its parameters."""
    paths: list[str] = []
    for name in INPUT_PARAMETERS:
        value = params.get(name)
        values = value if isinstance(value, tuple) else (value,)
        paths.extend(path for path in values if isinstance(path, str))
    return paths


def refuse_closed_input(params: Mapping[str, object]) -> None:
    """Refuse ``-`` where there is no standard input."""
    if "stdin" in closed_streams and STDIN in input_paths(params):
        raise click.UsageError("-: standard input is closed; name a file", click.get_current_context())


def refuse_closed_output() -> None:
    """Refuse a result on standard output where there is none."""
    if "stdout" in closed_streams:
        raise click.UsageError(
            "standard output is closed; name a file with -o", click.get_current_context(silent=True)
        )


def refuse_to_overwrite_input(params: Mapping[str, object]) -> None:
    """Refuse a target that is one of the files to read, whatever its name: links are followed."""
    for name, option in TARGET_PARAMETERS.items():
        target = params.get(name)
        if not isinstance(target, str) or not os.path.isfile(target):
            continue
        for path in input_paths(params):
            if _is_same_file(path, target):
                raise click.BadParameter(
                    f"{target} is the input {path}, which it would replace; write elsewhere",
                    param_hint=f"'{option}'",
                )


def _is_same_file(path: str, target: str) -> bool:
    try:
        return os.path.samestat(os.fstat(0) if path == STDIN else os.stat(path), os.stat(target))
    except (OSError, ValueError):
        return False


def is_described_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store or a saved model: its manifest names its files."""
    try:
        with open(Path(folder, "meta.json"), "rb") as handle:
            return b'"spectrograd' in handle.read(100)
    except OSError:
        return False


# --- What a command tells the shell.

GOOD = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
