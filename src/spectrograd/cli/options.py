"""Options of the commands: their types, those that several commands share, and the values they become."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from spectrograd.cli.config import load as load_config
from spectrograd.cli.config import save as save_config
from spectrograd.cli.session import Session, refuse_closed_input, refuse_to_overwrite_input
from spectrograd.typing import JsonObject

Option = Callable[[Callable[..., object]], Callable[..., object]]
MAX_BATCH_SIZE = 100_000_000  # edges: some gigabytes


def auto_or_number(context: click.Context, parameter: click.Parameter, text: str) -> float | str:
    """``auto`` or a finite number that is not negative."""
    if text == "auto":
        return text
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor 'auto'") from None
    if not math.isfinite(number) or number < 0:
        raise click.BadParameter(f"{text!r} must be finite and not negative")
    return number


def layer_weights(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...] | str:
    """``equal``, ``auto``, or one number per layer."""
    if text in ("equal", "auto"):
        return text
    try:
        weights = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither 'equal' nor 'auto' nor numbers with commas between, one per layer"
        ) from None
    if not all(0 <= weight < math.inf for weight in weights):
        raise click.BadParameter(f"{text!r}: weights must be finite and not negative")
    return weights


def tau_option(context: click.Context, parameter: click.Parameter, text: str) -> float | str | None:
    """``auto``, ``none`` or a finite number that is not negative."""
    return None if text == "none" else auto_or_number(context, parameter, text)


class CountOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least one, or ``auto``."""

    name = "number or auto"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int | str:
        """What the text means."""
        if value == "auto":
            return "auto"
        at_least_one: Any = click.IntRange(min=1)
        return int(at_least_one.convert(value, parameter, context))


def named_values(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Each ``NAME=VALUE`` split at its first equals sign."""
    pairs = []
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
        pairs.append((name.strip().replace("-", "_"), value.strip()))
    return tuple(pairs)


def thread_count(context: click.Context, parameter: click.Parameter, jobs: int | None) -> int | None:
    """At least one, or -1 for all cores."""
    if jobs is not None and jobs < 1 and jobs != -1:
        raise click.BadParameter(f"{jobs}: expected at least one thread, or -1 for all cores")
    return jobs


def seconds_above_zero(
    context: click.Context, parameter: click.Parameter, seconds: float | None
) -> float | None:
    """A time budget: finite and above zero."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise click.BadParameter(f"{seconds:g}: expected a finite number of seconds above 0")
    return seconds


def choice_option(name: str, values: str, default: str, meaning: str) -> Option:
    """One of some words, which are given with blanks between."""
    return click.option(
        name, type=click.Choice(values.split()), default=default, show_default=True, help=meaning
    )


def count_option(*names: str, default: int, meaning: str) -> Option:
    """A whole number of at least one."""
    return click.option(*names, type=click.IntRange(min=1), default=default, show_default=True, help=meaning)


def target_option(default: str, meaning: str, *, folder: bool = False) -> Option:
    """``-o``: the file or folder that a command writes."""
    path: object = click.Path(dir_okay=folder, file_okay=not folder)
    return click.option("-o", "--output", type=path, default=default, show_default=True, help=meaning)


def number_or_auto_option(*names: str, meaning: str) -> Option:
    """``auto``, which is the default, or a number."""
    return click.option(
        *names,
        metavar="NUMBER|auto",
        callback=auto_or_number,
        default="auto",
        show_default=True,
        help=meaning,
    )


# --- ``--checkpoint`` and ``--every`` of the commands that solve.

checkpoint_options = (
    click.option(
        "--checkpoint",
        metavar="DIR",
        help="Keep the run in this folder: the same command goes on from there, whatever stopped it.",
    ),
    click.option(
        "--every",
        metavar="SECONDS",
        type=click.FloatRange(min=0, max=1e9),
        default=300.0,  # as spectrograd.pipeline.settings, which --help does not load
        show_default=True,
        help="Between two checkpoints, at least.",
    ),
)


# --- ``--memory-limit`` of the commands that solve.


def memory_size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Bytes of a text like ``2GB``."""
    from spectrograd.system import as_bytes

    try:
        return as_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


memory_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=memory_size,
    help="Such as 2GB: a store that does not fit is streamed from the disk; too little is an error.",
)


# --- ``spectrograd completion``: the script that teaches a shell to complete commands, options and solvers.

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SPECTROGRAD_COMPLETE"
EXAMPLES = """\b
Examples:
  spectrograd completion bash >> ~/.bashrc
  spectrograd completion zsh >> ~/.zshrc
  spectrograd completion fish > ~/.config/fish/completions/spectrograd.fish
"""


@click.command(epilog=EXAMPLES, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script that completes commands, options, files and names of solvers with the tab key."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "spectrograd", VARIABLE).source())
    return 0


def solvers(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of solvers that begin so."""
    from spectrograd.solvers import REGISTRY

    return [CompletionItem(name) for name in ("auto", *REGISTRY) if name.startswith(start)]


def aggregations(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of aggregations that begin so."""
    from spectrograd.aggregation import AUTO, REGISTRY

    return [CompletionItem(name) for name in (AUTO, *REGISTRY) if name.startswith(start)]


# --- Options that several commands share, and the frozen values they become.

Command = Callable[..., object]


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
    def is_signed(self) -> bool:
        """Whether the Laplacian takes negative weights; by its name, so that --help loads nothing."""
        return self.laplacian.startswith("signed")

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
        default="auto",
        show_default=True,
        shell_complete=aggregations,
        help="How several layers become one operator; auto compares some ways by their clusters.",
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
    help="Where passes run: local, torch, torch:cuda:1, dask:4 (processes on this machine), dask:tcp://host:port.",
)


laplacian_option = choice_option(
    "--laplacian",
    "random_walk symmetric unnormalized signed signed_symmetric signed_unnormalized",
    "random_walk",
    "Which eigenproblem; the paper uses unnormalized, and signed ones take negative weights.",
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
        "What to do with a graph in pieces; nodes excluded get cluster -1.",
    ),
    click.option(
        "-s",
        "--solver",
        default="auto",
        show_default=True,
        shell_complete=solvers,
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
    click.option(
        "--batch-size",
        type=click.IntRange(min=1, max=MAX_BATCH_SIZE),
        default=4000,
        show_default=True,
        help="Edges per mini-batch of the stochastic solvers.",
    ),
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
    def packed(**values: Any) -> object:
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
    def packed(context: click.Context, /, debug: bool, config: str | None, **values: Any) -> object:
        names = ("seed", "summary_json", "verbose", "quiet")
        settings = {name: values.pop(name) for name in names} | {"dry_run": values.pop("dry_run", False)}
        argv = tuple(context.find_object(list) or ())
        session = Session(str(context.info_name), argv, **settings)
        refuse_closed_input(context.params)
        refuse_to_overwrite_input(context.params)
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


# --- The argument GRAPH..., and the options that say which columns of its tables hold what.


@dataclass(frozen=True)
class GraphFiles:
    """The files of a graph, and what they do not tell themselves: columns of tables, header, format."""

    paths: tuple[str, ...]
    columns: dict[str, str | None]
    header: bool | None = None
    format: str | None = None
    key: tuple[str, ...] = ()
    features: tuple[str, ...] = ()  # files of features of the same nodes, which become layers

    @property
    def how(self) -> JsonObject:
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

    affinity: str = "nearest_neighbors"
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
    choice_option(
        "--affinity",
        "nearest_neighbors cosine linear",
        "nearest_neighbors",
        "With --points: what joins points; cosine and linear take all pairs, without forming them.",
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
    def packed(points: bool, **values: Any) -> object:
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


features_option = click.option(
    "--features",
    multiple=True,
    metavar="FILE",
    help="FILE has features of the nodes (one row each, as with --points): neighbours make it a layer.",
)


def refuse_table_options(graphs: GraphFiles) -> None:
    """Refuse names of columns of edges where there are points."""
    named = [name for name, column in graphs.columns.items() if column is not None]
    if named:
        raise click.UsageError(f"--{named[0]} names a column of edges; --points has --ignore for columns")


def reading_options(command: Command) -> Command:
    """Add the options that say how files are to be read; the command gets ``files`` without paths."""
    names = ("source", "target", "weight", "layer")

    @functools.wraps(command)
    def packed(**values: Any) -> object:
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
    def packed(graphs: tuple[str, ...], files: GraphFiles, **values: object) -> object:
        return command(graphs=replace(files, paths=graphs), **values)

    return click.argument("graphs", metavar="GRAPH...", nargs=-1, required=True)(reading_options(packed))
