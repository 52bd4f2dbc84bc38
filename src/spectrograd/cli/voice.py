"""What a command says on stderr: one line each, its kind in colour on a terminal."""

from __future__ import annotations

import os
import sys

import click

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def say(kind: str, text: str) -> None:
    """Print ``kind: text`` as one line; what to do, after the last semicolon, stands out in colour."""
    line = " ".join(text.split())
    if not wants_colour():
        click.echo(f"{kind}: {line}", err=True)
        return
    what, mark, fix = line.rpartition("; ")
    fixed = f"{what}{mark}{click.style(fix, bold=True)}" if mark else line
    click.echo(f"{click.style(kind, fg=COLOURS[kind], bold=True)}: {fixed}", err=True, color=True)


def wants_colour() -> bool:
    """Whether stderr is a terminal whose owner has not asked for plain text (https://no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
