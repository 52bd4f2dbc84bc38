"""``spectrograd cluster``: a graph to labels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from spectrograd.cli.options import (
    CountOrAuto,
    GraphFiles,
    PointOptions,
    SolveOptions,
    choice_option,
    common_options,
    components_option,
    dry_run_option,
    features_option,
    graph_files,
    point_options,
    solve_options,
)
from spectrograd.cli.report import check_targets, run_output_options, save_page_and_run, saved_model
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 -o labels.csv
  spectrograd cluster graph.csv -k 5 --labels truth.csv --report page.html -o labels.csv
  spectrograd cluster points.csv --points -k 5 --run results -o labels.csv
  spectrograd cluster links.csv words.npz --features words.npz -k 7 -o labels.csv
  spectrograd cluster friends.csv calls.csv trips.csv -k 5 --aggregation projection > labels.csv
"""


@click.command(epilog=EXAMPLES, short_help="Cluster the nodes of a graph.")
@graph_files
@features_option
@point_options
@click.option(
    "-k",
    "--clusters",
    "k",
    metavar="NUMBER|auto",
    type=CountOrAuto(),
    default=8,
    show_default=True,
    help="Clusters; auto is as many as the eigengap tells, at most 60.",
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
    features: tuple[str, ...],
    points: PointOptions | None,
    k: int | str,
    output: str | None,
    truth: str | None,
    label_column: str | None,
    page: str | None,
    folder: str | None,
    options: SolveOptions,
    **how: object,
) -> int:
    """Cluster the nodes of a graph: spectral embedding, then k-means on rows of unit length.

    GRAPH is an edge list (.csv .tsv .txt .dat .parquet, columns src,dst[,weight][,layer]), a matrix (.npz
    .mtx .mat), .graphml, .gml, .net, .mpx, or - for text on standard input; text may be .gz or .zst. Several
    GRAPH are the layers of one multilayer graph. With --points it is a table of points.
    """
    from spectrograd import pipeline
    from spectrograd.cli import estimate as plan
    from spectrograd.cli import run as running
    from spectrograd.cli.run import write_label_parts
    from spectrograd.cli.summary import summarize
    from spectrograd.io.write_results import check_labels_path, is_folder_of_parts, write_labels
    from spectrograd.report.collect import gather_run

    # 1. What is asked for, and whether its results can be written.
    settings = running.make_settings(session, options, k, **how)
    context = running.make_context(options)
    write = partial(write_labels, raw=options.raw)
    running.check_output(session, output, check_labels_path)
    check_targets(session, page, folder)
    # 2. The input: a graph, or points, and the known classes.
    files = replace(graphs, features=features)
    graph, learned, source = running.read_input(session, files, points, k, options)
    running.check_size(k, 0, graph)
    classes, class_names = running.read_truth(session, truth, graph, label_column)
    if session.dry_run:
        return plan.print_plan(graph, k, options, output=output, report=page, run=folder)
    # 3. The pipeline.
    result = running.run(session, graph, settings, context, pipeline.cluster)
    # 4. Scores, labels, page and run folder.
    scores = _score(session, classes, result)
    make_summary = partial(summarize, session, source, graph, result, scores)
    known = None if truth is None else (truth, classes)
    with session.stage("report"):
        if is_folder_of_parts(output):
            write_label_parts(str(output), graph, result)
        else:
            running.write_result(output, write, result.labels, graph.input_names)
        model = partial(saved_model, source.fingerprint, graph, result, settings, points=learned)
        run = partial(gather_run, graph, result, truth=known, class_names=class_names)
        save_page_and_run(page, folder, lambda: run(summary=make_summary()), model)
    session.save_summary(make_summary())
    return running.verdict(
        session, result, settings, context, running.clusters_found(result), output, page, folder
    )


def _score(session: Session, classes: object, result: Any) -> dict[str, float] | None:
    if classes is None:
        return None
    scores: dict[str, float] = result.scores(classes)
    if not session.quiet:
        from spectrograd.cli.tables import score_table

        session.console(stderr=True).print(score_table(scores))
    return scores


# --- ``spectrograd embed``: a graph to coordinates.

EMBED_EXAMPLES = """\b
Examples:
  spectrograd embed graph.csv -k 8 -o emb.npz
  spectrograd embed friends.csv calls.csv -k 4 -o emb.csv --summary-json run.json
  zcat graph.csv.gz | spectrograd embed - --solver sgd-paper --param step_size=0.002 > emb.csv
"""


@click.command(epilog=EMBED_EXAMPLES, short_help="Embed the nodes of a graph.")
@graph_files
@features_option
@point_options
@components_option("Columns of the embedding.")
@click.option(
    "-o",
    "--output",
    help=".csv .tsv .npy .npz .parquet .w2v, a folder of parts (name.parquet/), or - for CSV.",
)
@run_output_options
@solve_options
@dry_run_option
@common_options
def embed(
    session: Session,
    graphs: GraphFiles,
    features: tuple[str, ...],
    points: PointOptions | None,
    k: int,
    output: str | None,
    page: str | None,
    folder: str | None,
    options: SolveOptions,
) -> int:
    """Embed the nodes of a graph by eigenvectors of its Laplacian.

    GRAPH is an edge list (.csv .tsv .txt .dat .parquet, columns src,dst[,weight][,layer]), a matrix (.npz
    .mtx .mat), .graphml, .gml, .net, .mpx, or - for text on standard input; text may be .gz or .zst. Several
    GRAPH are the layers of one multilayer graph. With --points it is a table of points.
    The trivial first eigenvector is left out; of a signed Laplacian none is trivial.
    """
    from spectrograd import pipeline
    from spectrograd.cli import estimate as plan
    from spectrograd.cli import run as running
    from spectrograd.cli.run import write_embedding_parts
    from spectrograd.cli.summary import summarize
    from spectrograd.io.write_results import check_embedding_path, is_folder_of_parts, write_embedding
    from spectrograd.report.collect import gather_run

    n_columns = k if options.is_signed else k + 1
    settings = running.make_settings(session, options, n_columns)
    context = running.make_context(options)
    write = partial(write_embedding, raw=options.raw)
    running.check_output(session, output, check_embedding_path)
    check_targets(session, page, folder)
    files = replace(graphs, features=features)
    graph, learned, source = running.read_input(session, files, points, n_columns, options)
    running.check_size(k, n_columns - k, graph)
    if session.dry_run:
        return plan.print_plan(graph, n_columns, options, output=output, report=page, run=folder)
    result = running.run(session, graph, settings, context, pipeline.embed)
    make_summary = partial(summarize, session, source, graph, result, None)
    with session.stage("report"):
        drop_first = not options.is_signed  # no eigenvector of a signed Laplacian is trivial
        embedding = result.embedding.without_first() if drop_first else result.embedding
        if is_folder_of_parts(output):
            write_embedding_parts(str(output), graph, embedding)
        else:
            running.write_result(output, write, embedding.vectors, graph.input_names)
        model = partial(
            saved_model, source.fingerprint, graph, result, settings, points=learned, drop_first=drop_first
        )
        save_page_and_run(
            page, folder, lambda: gather_run(graph, result, make_summary(), drop_first=drop_first), model
        )
    session.save_summary(make_summary())
    what = f"{embedding.n_components} coordinates of {graph.n_nodes:,} nodes"
    return running.verdict(session, result, settings, context, what, output, page, folder)
