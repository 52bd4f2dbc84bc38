"""The argument GRAPH..., and the options that say which columns of its tables hold what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import click

from spectrograd.cli.option_values import choice_option, count_option

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
        "--format", metavar="FORMAT", help="Read files as if this were their suffix: csv, edgelist, mtx, ..."
    ),
    click.option(
        "--key",
        metavar="NAME",
        multiple=True,
        help="Variable of a .mat file; may be repeated, for layers.",
    ),
)


@dataclass(frozen=True)
class PointOptions:
    """How points become a graph: the options of ``--points``."""

    neighbors: int = 10
    metric: str = "euclidean"
    search: str = "auto"
    recall: float = 0.98
    ignore: tuple[str, ...] = ()


_POINT_OPTIONS = (
    click.option(
        "--points",
        is_flag=True,
        help="GRAPH is a table of points (several: views); neighbours make the graph.",
    ),
    count_option("--neighbors", default=10, meaning="With --points: neighbours each point chooses."),
    click.option(
        "--metric", default="euclidean", show_default=True, help="With --points: euclidean, cosine, ..."
    ),
    choice_option(
        "--search", "auto exact approximate", "auto", "With --points: how neighbours are searched."
    ),
    click.option(
        "--recall",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.98,
        show_default=True,
        help="With --points: share of the true neighbours to find; 1 is exact.",
    ),
    click.option(
        "--ignore", metavar="COLUMN", multiple=True, help="With --points: a column that is no coordinate."
    ),
)


def point_options(command: Command) -> Command:
    """Add ``--points`` and what goes with it; the command gets ``points``, None where GRAPH holds edges."""
    names = [field.name for field in fields(PointOptions)]

    @functools.wraps(command)
    def packed(points: bool, **values: Any) -> Any:
        chosen = {name: values.pop(name) for name in names}
        if points:
            refuse_table_options(values["graphs"])
            return command(points=PointOptions(**chosen), **values)
        context = click.get_current_context()
        for name in names:
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} goes with --points", context)
        return command(points=None, **values)

    taking: Command = packed
    for option in reversed(_POINT_OPTIONS):
        taking = option(taking)
    return taking


def refuse_table_options(graphs: GraphFiles) -> None:
    """Refuse names of columns of edges where there are points."""
    named = [name for name, column in graphs.columns.items() if column is not None]
    if named:
        raise click.UsageError(f"--{named[0]} names a column of edges; --points has --ignore for columns")


def reading_options(command: Command) -> Command:
    """Add the options that say how files are to be read; the command gets ``files`` without paths."""
    names = ("source", "target", "weight", "layer")

    @functools.wraps(command)
    def packed(**values: Any) -> Any:
        columns = {name: values.pop(name) for name in names}
        how = {name: values.pop(name) for name in ("header", "format", "key")}
        return command(files=GraphFiles((), columns, **how), **values)

    taking: Command = packed
    for option in reversed(_TABLE_OPTIONS):
        taking = option(taking)
    return taking


def graph_files(command: Command) -> Command:
    """Add the argument GRAPH... and the options that say how to read it; the command gets ``graphs``."""

    @functools.wraps(command)
    def packed(graphs: tuple[str, ...], files: GraphFiles, **values: Any) -> Any:
        return command(graphs=replace(files, paths=graphs), **values)

    return click.argument("graphs", metavar="GRAPH...", nargs=-1, required=True)(reading_options(packed))
