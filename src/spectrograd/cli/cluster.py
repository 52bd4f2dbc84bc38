"""``spectrograd cluster``: a graph to labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from spectrograd.cli.graph_files import GraphFiles, PointOptions, graph_files, point_options
from spectrograd.cli.option_values import CountOrAuto, choice_option
from spectrograd.cli.options import SolveOptions, common_options, dry_run_option, solve_options
from spectrograd.cli.report import check_targets, run_output_options, saved_model, tell_run
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 -o labels.csv
  spectrograd cluster graph.csv -k 5 --labels truth.csv --report page.html -o labels.csv
  spectrograd cluster points.csv --points -k 5 --run results -o labels.csv
  spectrograd cluster friends.csv calls.csv trips.csv -k 5 --aggregation projection > labels.csv
"""


@click.command(epilog=EXAMPLES, short_help="Cluster the nodes of a graph.")
@graph_files
@point_options
@click.option(
    "-k",
    "--clusters",
    "k",
    metavar="NUMBER|auto",
    type=CountOrAuto(),
    default=8,
    show_default=True,
    help="Clusters; auto is as many as the eigengap tells, at most 20.",
)
@click.option(
    "-o",
    "--output",
    help=".csv .tsv .npy .npz .parquet, a folder of parts (name.parquet/), or - for CSV (default).",
)
@click.option(
    "-l", "--labels", "truth", help="Known classes (node,label): the clusters are scored against them."
)
@click.option(
    "--label-column", metavar="COLUMN", help="Column of --labels that counts, by its name or number (from 1)."
)
@run_output_options
@choice_option(
    "--assign-labels", "kmeans cluster_qr discretize", "kmeans", "How rows of the embedding become clusters."
)
@click.option(
    "--n-init",
    type=click.IntRange(min=1, max=10_000),  # as spectrograd.pipeline.settings, which --help does not load
    default=10,
    show_default=True,
    help="Most starts of k-means.",
)
@solve_options
@dry_run_option
@common_options
def cluster(
    session: Session,
    graphs: GraphFiles,
    points: PointOptions | None,
    k: int | str,
    output: str | None,
    truth: str | None,
    label_column: str | None,
    page: str | None,
    folder: str | None,
    options: SolveOptions,
    **how: Any,
) -> int:
    """Cluster the nodes of a graph: spectral embedding, then k-means on rows of unit length.

    GRAPH is an edge list (.csv .tsv .txt .dat .parquet, columns src,dst[,weight][,layer]), a matrix (.npz
    .mtx .mat), .graphml, .gml, .net, .mpx, or - for text on standard input; text may be .gz or .zst. Several
    GRAPH are the layers of one multilayer graph. With --points it is a table of points.
    """
    from spectrograd import pipeline
    from spectrograd.cli import plan, reading, run_settings, running, writing
    from spectrograd.cli.summary import summarize
    from spectrograd.io import write_labels
    from spectrograd.io.write.parts import is_folder_of_parts
    from spectrograd.pipeline.result_parts import write_label_parts
    from spectrograd.report.gather import gather_run

    settings = run_settings.make_settings(session, options, k, **how)
    write = partial(write_labels, raw=options.raw)
    writing.check_output(session, output, write, [0])
    check_targets(session, page, folder)
    learned = None
    if points is None:
        graph, source = reading.read_layers(session, graphs, k, options.limit)
    else:
        learned, source = reading.read_point_graph(session, graphs, points, options.jobs)
        graph = learned.graph
    reading.check_size(k, 0, graph)
    classes, class_names = reading.read_truth(session, truth, graph, label_column)
    if session.dry_run:
        return plan.tell_plan(graph, k, options, output=output, report=page, run=folder)
    result = running.run(session, graph, settings, pipeline.cluster)
    scores = _score(session, classes, result)
    told = partial(summarize, session, source, graph, result, scores)
    known = None if truth is None else (truth, classes)
    with session.stage("report"):
        if is_folder_of_parts(output):
            write_label_parts(str(output), graph, result)
        else:
            writing.write_result(output, write, result.labels, graph.input_names)
        model = partial(saved_model, source.fingerprint, graph, result, settings, points=learned)
        run = partial(gather_run, graph, result, truth=known, class_names=class_names)
        tell_run(page, folder, lambda: run(summary=told()), model)
    session.save_summary(told())
    return running.verdict(session, result, settings, running.clusters_found(result), output, page, folder)


def _score(session: Session, classes: Any, result: Any) -> dict[str, float] | None:
    if classes is None:
        return None
    scores: dict[str, float] = result.scores(classes)
    if not session.quiet:
        from spectrograd.cli.tables import score_table

        session.console(stderr=True).print(score_table(scores))
    return scores
