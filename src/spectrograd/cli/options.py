"""Options that several commands share, and the frozen values they become."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

from spectrograd.cli import completion
from spectrograd.cli.checkpoint_options import checkpoint_options
from spectrograd.cli.config import load as load_config
from spectrograd.cli.config import save as save_config
from spectrograd.cli.memory_option import memory_option
from spectrograd.cli.option_values import (
    Option,
    choice_option,
    count_option,
    layer_weights,
    named_values,
    number_or_auto_option,
    seconds_above_zero,
    tau_option,
    thread_count,
)
from spectrograd.cli.session import Session

Command = Callable[..., Any]


@dataclass(frozen=True)
class SolveOptions:
    """How to go from a graph to an embedding: the options ``embed`` and ``cluster`` share."""

    laplacian: str
    regularization: float | str | None
    disconnected: str
    solver: str
    param: tuple[tuple[str, str], ...]
    tol: float | str
    max_iter: int | None
    time_budget: float | None
    batch_size: int
    jobs: int | None
    engine: str
    aggregation: str
    alpha: float | str
    layer_weights: tuple[float, ...] | str
    raw: bool
    memory_limit: int | None
    checkpoint: str | None
    every: float

    @property
    def limit(self) -> tuple[int | None, str, str]:
        """What decides whether a store is loaded: memory, solver, engine."""
        return self.memory_limit, self.solver, self.engine


raw_option = click.option(
    "--raw",
    is_flag=True,
    help="Write ids like =cmd() to CSV as they are, without ' before them: spreadsheets run them.",
)

_MERGE_OPTIONS = (
    click.option(
        "-a",
        "--aggregation",
        default="projection",
        show_default=True,
        shell_complete=completion.aggregations,
        help="How several layers become one operator.",
    ),
    number_or_auto_option("--alpha", meaning="Weight of the layers' subspaces in the projection merge."),
    click.option(
        "--layer-weights",
        metavar="equal|auto|W1,W2,...",
        callback=layer_weights,
        default="equal",
        show_default=True,
        help="How much each layer counts; auto: none for noise, less for weak or outvoted layers.",
    ),
)


jobs_option = click.option(
    "-j",
    "--jobs",
    type=int,
    callback=thread_count,
    help="Threads of compiled kernels and searches; all cores when not given.",
)


engine_option = click.option(
    "--engine",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="Where passes run: local, dask:4 (processes on this machine) or dask:tcp://host:port.",
)


laplacian_option = choice_option(
    "--laplacian",
    "random_walk symmetric unnormalized",
    "random_walk",
    "Which eigenproblem; the paper uses unnormalized.",
)
tol_option = number_or_auto_option(
    "-t", "--tol", meaning="Largest residual allowed, relative to the width of the spectrum."
)

_SOLVE_OPTIONS = (
    laplacian_option,
    click.option(
        "--regularization",
        metavar="NUMBER|auto|none",
        callback=tau_option,
        default="auto",
        show_default=True,
        help="tau in mean degrees, added to every degree; auto adds it where eigenvectors are localised.",
    ),
    choice_option(
        "--disconnected",
        "components regularize largest error",
        "components",
        "What to do with a graph in pieces; nodes set aside get cluster -1.",
    ),
    click.option(
        "-s",
        "--solver",
        default="auto",
        show_default=True,
        shell_complete=completion.solvers,
        help="auto or a solver's name.",
    ),
    click.option(
        "-p",
        "--param",
        metavar="NAME=VALUE",
        multiple=True,
        callback=named_values,
        help="A parameter of the solver; may be repeated.",
    ),
    tol_option,
    click.option("--max-iter", type=click.IntRange(min=1), help="Most iterations (default: the solver's)."),
    click.option(
        "--time-budget",
        type=float,
        callback=seconds_above_zero,
        help="Seconds after which the best result so far is taken.",
    ),
    count_option("--batch-size", default=4000, meaning="Edges per mini-batch of the stochastic solvers."),
    jobs_option,
    engine_option,
    memory_option,
    *checkpoint_options,
    raw_option,
    *_MERGE_OPTIONS,
)

_COMMON_OPTIONS = (
    click.option(
        "-c",
        "--config",
        type=click.Path(dir_okay=False),
        is_eager=True,
        callback=load_config,
        help="Take options from a TOML file, such as the .run.toml that a run leaves beside its output.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="The same seed gives the same result.",
    ),
    click.option(
        "--summary-json",
        type=click.Path(dir_okay=False),
        help="Write sizes, seconds, certificate and scores there, for machines.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say more on stderr."),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but errors."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)


def solve_options(command: Command) -> Command:
    """Add the options of :class:`SolveOptions`; the command gets them as ``options``."""
    names = [field.name for field in fields(SolveOptions)]

    @functools.wraps(command)
    def packed(**values: Any) -> Any:
        options = SolveOptions(**{name: values.pop(name) for name in names})
        return command(options=options, **values)

    return _decorated(packed, _SOLVE_OPTIONS)


def merge_options(command: Command) -> Command:
    """Add the options that say how layers are merged."""
    return _decorated(command, _MERGE_OPTIONS)


def common_options(command: Command) -> Command:
    """Add the options every command has; the command gets a :class:`Session` made of them."""

    @functools.wraps(command)
    @click.pass_context
    def packed(context: click.Context, /, debug: bool, config: str | None, **values: Any) -> Any:
        names = ("seed", "summary_json", "verbose", "quiet")
        settings = {name: values.pop(name) for name in names} | {"dry_run": values.pop("dry_run", False)}
        argv = tuple(context.find_object(list) or ())
        session = Session(str(context.info_name), argv, **settings)
        session.check_target(session.summary_json, "--summary-json")
        code = command(session=session, **values)
        if not session.dry_run:
            save_config(context, argv[1:])
        return code

    return _decorated(packed, _COMMON_OPTIONS)


def _decorated(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


dry_run_option = click.option(
    "-n", "--dry-run", is_flag=True, help="Check everything, say what would be done, and stop."
)


def nodes_option(default: int) -> Option:
    """``--nodes`` of commands that make their own data."""
    return click.option(
        "--nodes",
        type=click.IntRange(min=100),
        default=default,
        show_default=True,
        help="Nodes of the synthetic data.",
    )


def components_option(meaning: str) -> Option:
    """``-k``: columns of an embedding."""
    return count_option("-k", "--components", "k", default=8, meaning=meaning)
