"""``spectrograd compare``: several solvers on the same graph, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from spectrograd.cli.options import (
    GraphFiles,
    common_options,
    dry_run_option,
    engine_option,
    graph_files,
    jobs_option,
    laplacian_option,
    memory_option,
    merge_options,
    seconds_above_zero,
    tol_option,
)
from spectrograd.cli.session import FAILED, GOOD, INTERRUPTED, Session, echo
from spectrograd.typing import JsonObject


@click.command(short_help="Run several solvers on the same graph.")
@graph_files
@click.option(
    "-k", "--clusters", "k", type=click.IntRange(min=1), default=8, show_default=True, help="Clusters."
)
@click.option(
    "-l", "--labels", "truth", help="Known classes (node,label): every result is scored against them."
)
@click.option("--solvers", help="Names, comma-separated, as in power,nystrom:walk=10; all when not given.")
@click.option(
    "--time-budget",
    type=float,
    callback=seconds_above_zero,
    default=3.0,
    show_default=True,
    help="Seconds for each solver.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Page with tables and curves (HTML).")
@laplacian_option
@tol_option
@jobs_option
@engine_option
@merge_options
@memory_option
@dry_run_option
@common_options
def compare(
    session: Session,
    graphs: GraphFiles,
    k: int,
    truth: str | None,
    solvers: str | None,
    output: str | None,
    **how: Any,
) -> int:
    """Run every solver on the same problem, each under the same budget, and print what came out.

    A solver that fails or runs out of time has its row with the reason; the others go on. Ctrl-C keeps
    what is done. Several GRAPH are the layers of one multilayer graph: they are merged once, before. Labels
    are those of the K vectors; which vectors make the best clusters is decided by ``cluster`` alone.

    \b
    Examples:
      spectrograd compare graph.csv -k 5 --labels truth.csv -o page.html
      spectrograd compare graph.csv -k 5 --solvers eigen,power,stochastic-fb:setting=columns
    """  # noqa: D301
    from spectrograd.aggregation import check_aggregation
    from spectrograd.cli import run as running
    from spectrograd.cli.summary import layer_summary
    from spectrograd.pipeline.compare import parse_spec

    names = None if solvers is None else [name.strip() for name in solvers.split(",") if name.strip()]
    for name in names or ():
        parse_spec(name)  # a wrong name is found before a large file is read
    check_aggregation(how["aggregation"])
    session.check_target(output, "-o")
    limit = (how["memory_limit"], "auto", how["engine"])
    graph, source = running.read_layers(
        session, graphs, k, limit, signed=how["laplacian"].startswith("signed")
    )
    running.check_size(k, 0, graph)
    classes, _ = running.read_truth(session, truth, graph)
    if session.dry_run:
        from spectrograd.cli.estimate import memory_line

        click.echo(f"dry run: nothing is computed or written\ngraph    {graph}\nsolvers  {solvers or 'all'}")
        click.echo(memory_line(graph, k))
        click.echo(
            f"time     at most {how['time_budget']:g} s for each solver\noutput   {output or 'the table'}"
        )
        return GOOD
    rows, merged = _rows(session, graph, names, classes, how | {"k": k})
    if output is not None:
        with session.stage("report"):
            _write_page(session, output, graph, rows, how["time_budget"])
    _print_report(session, rows)
    session.save_summary(_summary(session, source, graph, rows) | layer_summary(merged, graph))
    code = _exit_code(rows)
    if code == GOOD:
        good = sum(bool(row["converged"]) for row in rows)
        session.done(f"{good} of {len(rows)} solvers reached the accuracy asked for", output)
    return code


def _rows(
    session: Session, graph: Any, names: list[str] | None, classes: Any, how: JsonObject
) -> tuple[list[JsonObject], Any]:
    from spectrograd.engines import make_engine
    from spectrograd.pipeline import RunContext, Settings
    from spectrograd.pipeline.compare import compare as run
    from spectrograd.pipeline.compare import default_names

    chosen = default_names() if names is None else names
    budget = f"at most {how['time_budget']:g} s each"
    done: list[str] = []
    if not session.quiet:
        click.echo(f"{len(chosen)} solvers, {budget}", err=True)

    def show_row(row: JsonObject) -> None:
        done.append(row["method"])
        if not session.quiet:
            spent = "" if row["seconds"] is None else f"{row['seconds']:.2f} s"
            good = {True: "good", False: "not certified", None: "no result"}[row["converged"]]
            reason = f" ({row['error']})" if row["error"] else ""
            text = f"{row['method']:20} {spent:>8}  {good}{reason}"
            click.echo(f"{len(done):3} of {len(chosen)}  {text}", err=True)
        session.detail(f"{row['method']}: {row['error'] or row['certificate']}")

    settings = Settings(
        n_components=how["k"],
        laplacian=how["laplacian"],
        tol=how["tol"],
        time_budget=how["time_budget"],
        memory_limit=how["memory_limit"],
        seed=session.seed,
        **{name: how[name] for name in ("aggregation", "alpha", "layer_weights")},
    )
    context = RunContext(make_engine(how["engine"], n_jobs=how["jobs"]), on_stage=session.begin)
    with session.compile_clock(True), session.stage("solve"):
        rows, prepared = run(graph, settings, names, context, classes=classes, on_row=show_row)
    session.engine = context.engine.summary()
    merged = getattr(prepared, "merged", None)
    if merged is not None:
        session.spend(merged.seconds)
        session.seconds["solve"] -= sum(merged.seconds.values())
    return rows, merged


def _write_page(session: Session, output: str, graph: Any, rows: Sequence[Any], budget: float) -> None:
    from spectrograd.cli.summary import versions
    from spectrograd.report.compare_page import compare_document
    from spectrograd.report.page import write_page

    run = {
        "command": session.command_line,
        "seed": session.seed,
        "time_budget": budget,
        "versions": versions(),
    }
    write_page(output, compare_document(graph, rows, run=run))


def _print_report(session: Session, rows: Sequence[dict[str, object]]) -> None:
    """The table, with all columns where the terminal is wide enough."""
    from spectrograd.cli.tables import WIDE, solver_table
    from spectrograd.pipeline.compare import failures

    console = session.console()
    console.print(solver_table(rows, console.width))
    if console.width < WIDE:
        session.note(
            "iterations, purity, RI and memory are left out to fit this terminal; the page (-o) has them"
        )
    for reason in failures(rows):
        session.note(reason)


def _summary(session: Session, source: Any, graph: Any, rows: Sequence[JsonObject]) -> JsonObject:
    from spectrograd.cli.summary import outline

    good = [row for row in rows if row["converged"]]
    best = min(good, key=lambda row: float(row["seconds"])) if good else None
    scores = None if best is None else {key: best[key] for key in ("purity", "nmi", "ri", "ari")}
    return outline(session, source, graph) | {
        "solver": best
        and {
            "name": best["method"],
            "reason": "the fastest of those that converged",
            "iterations": best["iterations"],
            "passes": best["passes"],
            "matvecs": best["matvecs"],
        },
        "certificate": best and {name: best[name] for name in ("converged", "max_residual", "certificate")},
        "scores": scores,
        "rows": list(rows),
    }


def _exit_code(rows: Sequence[dict[str, object]]) -> int:
    if rows and rows[-1]["error"] == "interrupted":
        echo("error", f"interrupted; {len(rows)} rows were kept")
        return INTERRUPTED
    return GOOD if any(row["objective"] is not None for row in rows) else FAILED
