"""``spectrograd embed``: a graph to coordinates."""

from __future__ import annotations

from functools import partial

import click

from spectrograd.cli.graph_files import GraphFiles, PointOptions, graph_files, point_options
from spectrograd.cli.options import (
    SolveOptions,
    common_options,
    components_option,
    dry_run_option,
    solve_options,
)
from spectrograd.cli.report import check_targets, run_output_options, saved_model, tell_run
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd embed graph.csv -k 8 -o emb.npz
  spectrograd embed friends.csv calls.csv -k 4 -o emb.csv --summary-json run.json
  zcat graph.csv.gz | spectrograd embed - --solver sgd-paper --param step_size=0.002 > emb.csv
"""


@click.command(epilog=EXAMPLES, short_help="Embed the nodes of a graph.")
@graph_files
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
    The trivial first eigenvector is left out.
    """
    from spectrograd import pipeline
    from spectrograd.cli import plan, reading, run_settings, running, writing
    from spectrograd.cli.summary import summarize
    from spectrograd.io import write_embedding
    from spectrograd.io.write.parts import is_folder_of_parts
    from spectrograd.pipeline.result_parts import write_embedding_parts
    from spectrograd.report.gather import gather_run

    settings = run_settings.make_settings(session, options, k + 1)
    write = partial(write_embedding, raw=options.raw)
    writing.check_output(session, output, write, [[0.0]])
    check_targets(session, page, folder)
    learned = None
    if points is None:
        graph, source = reading.read_layers(session, graphs, k + 1, options.limit)
    else:
        learned, source = reading.read_point_graph(session, graphs, points, options.jobs)
        graph = learned.graph
    reading.check_size(k, 1, graph)
    if session.dry_run:
        return plan.tell_plan(graph, k + 1, options, output=output, report=page, run=folder)
    result = running.run(session, graph, settings, pipeline.embed)
    told = partial(summarize, session, source, graph, result, None)
    with session.stage("report"):
        embedding = result.embedding.without_first()
        if is_folder_of_parts(output):
            write_embedding_parts(str(output), graph, embedding)
        else:
            writing.write_result(output, write, embedding.vectors, graph.input_names)
        model = partial(
            saved_model, source.fingerprint, graph, result, settings, points=learned, drop_first=True
        )
        tell_run(page, folder, lambda: gather_run(graph, result, told(), drop_first=True), model)
    session.save_summary(told())
    what = f"{embedding.n_components} coordinates of {graph.n_nodes:,} nodes"
    return running.verdict(session, result, settings, what, output, page, folder)
