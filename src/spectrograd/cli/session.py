"""One run of a command: what was asked, where messages go, and how long each stage took."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectrograd.cli.meter import Meter
from spectrograd.cli.voice import bar_on, print_line, say

if TYPE_CHECKING:
    from rich.console import Console

    from spectrograd.solvers import Hook, Progress

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
    engine: dict[str, Any] | None = None  # what it did, where something was solved

    @property
    def command_line(self) -> str:
        """What to type to repeat the run."""
        return shlex.join(["spectrograd", *self.argv])

    @property
    def on_terminal(self) -> bool:
        """Whether somebody watches stderr and wants to be told."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        if not self.quiet:
            say("note", text)

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
    def progress(self, label: str, meter: Meter | None = None, waiting: str = "") -> Iterator[Hook]:
        """A hook for the solver loop that draws a progress bar, on a terminal only.

        The bar fills up as far as the ``meter`` knows a limit; ``waiting`` stands there until it moves.
        """
        limits = meter or Meter()
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
        """A rich console; tables get room where there is no terminal to fit."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        told = os.environ.get("COLUMNS", "")
        width = int(told) if told.isdecimal() and int(told) else TABLE_WIDTH
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
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise click.BadParameter(
                f"the folder {folder} does not exist; create it first", param_hint=f"'{option}'"
            )
        if Path(path).is_dir() or not os.access(folder, os.W_OK):
            raise click.BadParameter(f"{path} cannot be written", param_hint=f"'{option}'")

    def save_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary where ``--summary-json`` says."""
        if self.summary_json is not None:
            from spectrograd.io.write.output import write_whole_text
            from spectrograd.report.strict_json import to_json

            write_whole_text(self.summary_json, to_json(summary))
