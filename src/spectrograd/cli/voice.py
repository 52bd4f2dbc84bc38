"""What a command says on stderr: one line each, its kind in colour on a terminal, above any progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_with_bar: list[Console] = []  # consoles that draw a bar at the moment, the last one innermost


def say(kind: str, text: str) -> None:
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
