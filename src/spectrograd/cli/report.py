"""``spectrograd report``, and the options of ``embed`` and ``cluster`` that tell of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectrograd.cli.options import common_options, target_option
from spectrograd.cli.predict import MODEL
from spectrograd.cli.session import Session, is_described_folder

if TYPE_CHECKING:
    from spectrograd.report.run import Run


EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 --run results > labels.csv
  spectrograd report results -o page.html
"""

report_options = (
    click.option(
        "--report", "page", type=click.Path(dir_okay=False), help="Write an interactive HTML page there."
    ),
    click.option(
        "--run",
        "folder",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Save the run there, for 'spectrograd report', 'predict' and 'update'.",
    ),
)


def run_output_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add ``--report`` and ``--run``; the command gets them as ``page`` and ``folder``."""
    for option in reversed(report_options):
        command = option(command)
    return command


def check_targets(session: Session, page: str | None, folder: str | None) -> None:
    """Find out before the work whether page and folder can be written."""
    session.check_target(page, "--report")
    if page is not None:
        _check_plotly("--report")
    if folder is not None:
        place = Path(folder).resolve()
        existing = next(path for path in (place, *place.parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise click.BadParameter(f"{folder} cannot be written", param_hint="'--run'")
        if is_described_folder(existing):
            raise click.BadParameter(
                f"{folder}: a store or a saved model is in {existing}; a run needs a folder of its own",
                param_hint="'--run'",
            )


def save_page_and_run(
    page: str | None, folder: str | None, gather: Callable[[], Run], model: Callable[[], Any]
) -> None:
    """Write the page and save the run with its model, where they are wanted."""
    if page is None and folder is None:
        return
    from spectrograd.report.run import save_run

    run = gather()
    if folder is not None:
        save_run(folder, run)
        model().save(Path(folder, MODEL))
    if page is not None:
        _write(page, run)


def saved_model(fingerprint: str | None, *args: Any, **how: Any) -> object:
    """The fitted estimator behind a result; loaded when it is needed, since scikit-learn takes a second.

    ``fingerprint`` is that of the store whose graph it was: 'update' holds the store against it.
    """
    from spectrograd.estimators.persistence import model_of

    model = model_of(*args, **how)
    model._store_seen = fingerprint
    return model


def _write(page: str, run: Run) -> None:
    from spectrograd.report.document import run_document
    from spectrograd.report.page import write_run_page

    write_run_page(page, run_document(run))


def _check_plotly(option: str) -> None:
    from importlib.util import find_spec

    if find_spec("plotly") is None:
        from spectrograd.report.page import MISSING

        raise click.BadParameter(MISSING, param_hint=f"'{option}'")


@click.command(epilog=EXAMPLES, short_help="Make the page of a saved run.")
@click.argument("folder", metavar="RUN", type=click.Path())
@target_option("report.html", "The page.")
@common_options
def report(session: Session, folder: str, output: str) -> int:
    """Make the HTML page of a run that ``embed`` or ``cluster`` saved with --run.

    RUN is the folder. The page is one file that needs nothing beside it, and no network.
    """
    from spectrograd.report.run import load_run

    session.check_target(output, "-o")
    _check_plotly("-o")
    with session.stage("read"):
        run = load_run(folder)
    with session.stage("report"):
        _write(output, run)
    described = {"command": session.command, "command_line": session.command_line, "output": output}
    session.save_summary({**run.summary, **described, "seconds": session.timing()})
    session.done(f"the page of {len(run.nodes):,} nodes", output)
    return 0
