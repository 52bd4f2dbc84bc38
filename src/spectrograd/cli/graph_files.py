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
    """The files of a graph, and what they do not tell themselves: columns of tables, header, format."""

    paths: tuple[str, ...]
    columns: dict[str, str | None]
    header: bool | None = None
    format: str | None = None
    key: tuple[str, ...] = ()

    @property
    def how(self) -> dict[str, Any]:
        """As keywords of ``read_graph``."""
        return {**self.columns, "header": self.header, "format": self.format, "key": self.key}


_TABLE_OPTIONS = (
    *(
        click.option(f"--{name}", metavar="COLUMN", help=f"{what}, by its name or number (from 1).{more}")
        for name, what, more in (
            ("source", "Column with one end of each edge", ""),
            ("target", "Column with the other end", ""),
            ("weight", "Column with the weight", " none: every row counts one."),
            ("layer", "Column with the layer", ""),
        )
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text table names its columns; found out where not said.",
    ),
    click.option(
        "--format", metavar="FORMAT", help="Read GRAPH as if this were its suffix: csv, edgelist, mtx, ..."
    ),
    click.option(
        "--key",
        metavar="NAME",
        multiple=True,
        help="Variable of a .mat file; may be repeated, for layers.",
    ),
)


def graph_files(command: Command) -> Command:
    """Add the argument GRAPH... and the options that say how to read it; the command gets ``graphs``."""
    names = ("source", "target", "weight", "layer")

    @functools.wraps(command)
    def packed(graphs: tuple[str, ...], **values: Any) -> Any:
        columns = {name: values.pop(name) for name in names}
        how = {name: values.pop(name) for name in ("header", "format", "key")}
        return command(graphs=GraphFiles(graphs, columns, **how), **values)

    taking: Command = packed
    for option in reversed(_TABLE_OPTIONS):
        taking = option(taking)
    return click.argument("graphs", metavar="GRAPH...", nargs=-1, required=True)(taking)
