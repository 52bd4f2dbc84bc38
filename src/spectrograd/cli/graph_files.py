"""The argument GRAPH..., and the options that say which columns of its tables hold what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

Command = Callable[..., Any]


@dataclass(frozen=True)
class GraphFiles:
    """The files of a graph, and which columns of tables hold what where their names do not tell."""

    paths: tuple[str, ...]
    columns: dict[str, str | None]


_TABLE_OPTIONS = tuple(
    click.option(f"--{name}", metavar="COLUMN", help=f"{what}, in tables that call it otherwise.{more}")
    for name, what, more in (
        ("source", "Column with one end of each edge", ""),
        ("target", "Column with the other end", ""),
        ("weight", "Column with the weight", " none: every row counts one."),
        ("layer", "Column with the layer", ""),
    )
)


def graph_files(command: Command) -> Command:
    """Add the argument GRAPH... and the options that name columns; the command gets ``graphs``."""
    names = ("source", "target", "weight", "layer")

    @functools.wraps(command)
    def packed(graphs: tuple[str, ...], **values: Any) -> Any:
        columns = {name: values.pop(name) for name in names}
        return command(graphs=GraphFiles(graphs, columns), **values)

    taking: Command = packed
    for option in reversed(_TABLE_OPTIONS):
        taking = option(taking)
    return click.argument("graphs", metavar="GRAPH...", nargs=-1, required=True)(taking)
