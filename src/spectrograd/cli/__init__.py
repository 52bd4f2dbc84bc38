"""The command line: parse -> call the line -> exit code.

Only light modules are imported here, so that ``spectrograd --help`` answers at once; the commands load
the rest when they run. Exit codes: 0 good, 1 the run failed or did not reach the asked accuracy, 2 bad
usage or bad input, 130 interrupted.
"""

from __future__ import annotations

import errno
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from spectrograd import __version__
from spectrograd.cli.cluster import cluster, embed
from spectrograd.cli.compare import compare
from spectrograd.cli.convert import convert
from spectrograd.cli.demo import demo
from spectrograd.cli.gpu_check import gpu_check
from spectrograd.cli.info import info
from spectrograd.cli.knn import knn
from spectrograd.cli.options import completion
from spectrograd.cli.paper import paper
from spectrograd.cli.predict import predict, update
from spectrograd.cli.report import report
from spectrograd.cli.session import BAD_INPUT, FAILED, INTERRUPTED, echo, open_closed_streams
from spectrograd.cli.warm_up import warm_up
from spectrograd.notices import command_line_words
from spectrograd.system import MissingExtra

__all__ = ["main", "program"]

EXAMPLES = """\b
First steps, no file needed:
  spectrograd demo
Your own graph, an edge list src,dst[,weight]:
  spectrograd cluster graph.csv -k 5 -o labels.csv
"""


@click.group(
    invoke_without_command=True, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="spectrograd")
@click.pass_context
def program(context: click.Context) -> int | None:
    """Spectral embedding and clustering of graphs, with a certificate on every result."""
    if context.invoked_subcommand is not None:
        return None
    click.echo(context.get_help(), err=True)
    context.exit(BAD_INPUT)


COMMANDS = (
    demo,
    paper,
    info,
    convert,
    knn,
    embed,
    cluster,
    predict,
    update,
    compare,
    report,
    gpu_check,
    warm_up,
)
for _command in (*COMMANDS, completion):
    program.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own) and return its exit code."""
    open_closed_streams()
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    quiet = "-q" in args or "--quiet" in args
    try:
        with _one_line_warnings(debug, quiet), _one_line_notes(quiet), command_line_words():
            code = program.main(args, prog_name="spectrograd", standalone_mode=False, obj=args)
        return int(code or 0)
    except (Exception, click.Abort) as error:
        if debug:
            traceback.print_exc()
        code, message = _explain(error)
        echo("error", message)
        return code


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit code of an error, and one line: what, where, what to do."""
    if isinstance(error, click.Abort):
        return INTERRUPTED, "interrupted; nothing was written"
    if isinstance(error, click.ClickException):
        return BAD_INPUT, error.format_message().rstrip(".") + _hint(error)
    if isinstance(error, MissingExtra):
        return BAD_INPUT, str(error)
    if type(error).__name__ == "SolveError":  # not imported: it would bring numpy along
        return FAILED, str(error)
    if isinstance(error, ValueError) and not _is_from_linear_algebra(error):
        return BAD_INPUT, str(error)
    if isinstance(error, MemoryError):
        return FAILED, f"out of memory ({error}); take a smaller graph or fewer components (-k)"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        hint = "; free some, or write elsewhere" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return FAILED, f"{where}{error.strerror or error}{hint}"
    return FAILED, f"{type(error).__name__}: {error}; this is a bug, run again with --debug for the traceback"


def _hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f"; see '{context.command_path} --help'"


def _is_from_linear_algebra(error: ValueError) -> bool:
    """LinAlgError is a ValueError, but no fault of the user's."""
    return type(error).__name__ == "LinAlgError"


@contextmanager
def _one_line_warnings(debug: bool, quiet: bool) -> Iterator[None]:
    """Show warnings meant for the user as ``warning: ...``; others only with ``--debug``."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        # a command that falls short of its accuracy says so in its own error
        meant = issubclass(category, UserWarning) and category.__name__ != "ConvergenceWarning"
        if not quiet and (debug or meant):
            echo("warning", str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


class _Notes(logging.Handler):
    """The voice of the command line for what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """In one line."""
        echo("note", record.getMessage())


@contextmanager
def _one_line_notes(quiet: bool) -> Iterator[None]:
    """Show what the library logs, such as that it has to compile, as ``note: ...``."""
    logger = logging.getLogger("spectrograd")
    handler = logging.NullHandler() if quiet else _Notes()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
