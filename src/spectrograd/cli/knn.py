"""``spectrograd knn``: points to a graph of nearest neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from spectrograd.cli.options import (
    choice_option,
    common_options,
    count_option,
    dry_run_option,
    jobs_option,
    raw_option,
)
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd knn points.csv -o graph.npz
  spectrograd knn points.parquet -k 15 --ignore species --no-connect -o graph.csv.gz
  spectrograd knn vectors.npy -o graph.npz && spectrograd cluster graph.npz -k 5 -o labels.csv
"""


@click.command(epilog=EXAMPLES, short_help="Join points to their nearest neighbours.")
@click.argument("points", metavar="POINTS")
@count_option("-k", "--neighbors", "k", default=10, meaning="Neighbours each point chooses.")
@click.option(
    "-o", "--output", required=True, help=".npz .csv .tsv .parquet .mtx .graphml; text also as .gz or .zst."
)
@click.option(
    "-i", "--ignore", metavar="COLUMN", multiple=True, help="A column that is no coordinate; may be repeated."
)
@choice_option("--weights", "self-tuned binary distance-kernel", "self-tuned", "How close neighbours weigh.")
@click.option("--metric", default="euclidean", show_default=True, help="euclidean, cosine, manhattan, ...")
@choice_option(
    "--search", "auto exact approximate", "auto", "auto is exact up to 20,000 points or 8 dimensions."
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.98,
    show_default=True,
    help="Share of the true neighbours to find, measured on a sample; 1 is exact.",
)
@click.option(
    "--connect/--no-connect",
    default=True,
    show_default=True,
    help="Join separate components by their shortest links.",
)
@jobs_option
@raw_option
@dry_run_option
@common_options
def knn(
    session: Session,
    points: str,
    k: int,
    output: str,
    ignore: tuple[str, ...],
    jobs: int | None,
    connect: bool,
    raw: bool,
    **how: Any,
) -> int:
    """Read points and write the graph that joins each to its nearest neighbours.

    POINTS is a table with a header (.csv .tsv .txt .parquet, one row per point; a column node, id or name
    names the nodes), an array (.npy, or the first of an .npz), or - for a table on standard input.
    """
    from spectrograd.cli.estimate import describe
    from spectrograd.cli.run import hashed, keep_stdin
    from spectrograd.cli.summary import outline
    from spectrograd.io import check_graph_path, read_points, write_graph
    from spectrograd.points import knn_graph

    check_graph_path(output)
    session.check_target(output, "-o")
    with session.stage("read"), session.progress(f"reading {points}"):
        keep_stdin([points])
        table = read_points(points, ignore=ignore)
        source = hashed([points])
    n_points, n_features = table.coordinates.shape
    if session.dry_run:
        click.echo(
            f"dry run: nothing is computed or written\npoints   {n_points:,} in {n_features} dimensions"
        )
        click.echo(f"edges    at most {n_points * k:,}\noutput   {output}")
        return 0
    with session.stage("solve"), session.progress(f"neighbours of {n_points:,} points"):
        made = knn_graph(
            table.coordinates,
            k,
            connect=connect,
            n_jobs=jobs,
            **how,
        )
        graph = replace(made, names=table.names)
    with session.stage("report"):
        write_graph(output, graph, raw=raw)
    session.save_summary(outline(session, source, graph))
    session.done(f"a graph of {describe(graph)}, {graph.recall}", output)
    return 0
