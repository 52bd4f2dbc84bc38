"""``spectrograd demo``: the whole house in one run, without a file and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spectrograd.cli.options import common_options, nodes_option, target_option
from spectrograd.cli.session import Session, echo
from spectrograd.typing import JsonObject

if TYPE_CHECKING:
    from spectrograd.cli.methods import Trial
    from spectrograd.datasets import LayeredData
    from spectrograd.pipeline import Result
    from spectrograd.pipeline.merge import Merged
    from spectrograd.report.figures import Agreement


N_CLUSTERS = 5
# So few need no compiled kernels, but for two of the solvers shown: a newcomer waits a third of the time.
N_NODES = 4_000
FILES = {"labels": "labels.csv", "picture": "picture.png", "report": "report.html"}

EXAMPLES = """\b
Example:
  spectrograd demo -o demo --seed 1
"""


@click.command(epilog=EXAMPLES, short_help="Make data, cluster it in every way, draw it.")
@target_option("demo", "Folder for labels, picture and page; made if it is not there.", folder=True)
@nodes_option(N_NODES)
@common_options
def demo(session: Session, output: str, nodes: int) -> int:
    """Make a three-layer graph whose clusters are known, find them, and compare the ways to do it.

    No layer alone shows all five clusters; merged (Eq. 22 of the paper) they do. Prints a table and
    saves labels, a picture and a page.
    """
    from spectrograd.cli.summary import Input, summarize
    from spectrograd.datasets import make_multilayer_gmm
    from spectrograd.report.page import MISSING

    folder = _make_folder(output)
    with session.stage("read"):
        data = _numbered(make_multilayer_gmm(nodes, n_clusters=N_CLUSTERS, random_state=session.seed))
    merged, trials = _run(session, data)
    rows = [trial.row for trial in trials]
    chosen = trials[-1]
    if chosen.result is None:
        raise RuntimeError(f"the default solver failed: {chosen.error}")
    source = Input.of_arrays([data.labels, *data.points])
    with session.stage("report"):
        _save(folder, data, merged, trials)
        summary = summarize(session, source, data.graph, chosen.result, chosen.scores)
        files = dict(FILES)
        if find_spec("plotly"):
            _write_page(folder, data, trials, summary)
        else:
            session.note(f"no page is written: {MISSING}")
            del files["report"]
    saved = {what: str(folder / name) for what, name in files.items()}
    _print_report(session, data, merged, rows, saved)
    summary = summarize(session, source, data.graph, chosen.result, chosen.scores)
    session.save_summary(summary | {"rows": rows, "output": saved})
    return finish(rows, chosen)


def _numbered(data: LayeredData) -> LayeredData:
    """The same with layers 1, 2, 3, as table and picture call them."""
    from dataclasses import replace

    from spectrograd.graph import MultilayerGraph

    names = tuple(str(number) for number in range(1, data.graph.n_layers + 1))
    return replace(data, graph=MultilayerGraph(data.graph.layers, names))


def finish(rows: list[dict[str, object]], chosen: Trial) -> int:
    """0 when every method ran and the default one reached its accuracy, else 1 with a line saying why."""
    failed = [f"{row['method']}: {row['error']}" for row in rows if row["error"] is not None]
    if chosen.result is not None and not chosen.result.certificate.converged:
        failed.append(f"{chosen.method.label}: {chosen.result.certificate.sentence}")
    for reason in failed:
        echo("error", reason)
    return 1 if failed else 0


def _make_folder(output: str) -> Path:
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{output}: {error.strerror}", param_hint="'-o'") from None
    return folder


def _run(session: Session, data: LayeredData) -> tuple[Merged, list[Trial]]:
    from spectrograd.cli.methods import layer_trials, prepare_layers, run_method
    from spectrograd.paper.tables import DEFAULT, Method
    from spectrograd.pipeline import Settings

    settings = Settings(
        n_components=N_CLUSTERS, laplacian="symmetric", aggregation="projection", seed=session.seed
    )
    prepared = prepare_layers(session, data, settings)
    trials = layer_trials(session, data, settings)
    for method in (
        Method("merged: eigendecomposition", "eigen", {"method": "arpack"}),
        Method("merged: stochastic FB", "stochastic-fb"),
        Method("merged: SGD of the paper", "sgd-paper"),
        Method("merged: default solver", DEFAULT),
    ):
        trials.append(run_method(session, method, prepared, settings, data.labels))
    return prepared.merged, trials


def _save(folder: Path, data: LayeredData, merged: Merged, trials: list[Trial]) -> None:
    """Save labels and picture."""
    from spectrograd.io import write_labels
    from spectrograd.io.write_graph import naming
    from spectrograd.report import Curve, Picture, draw

    chosen = trials[-1]
    assert chosen.result is not None
    assert chosen.result.labels is not None
    curves = tuple(
        Curve.of(trial.method.label.removeprefix("merged: "), trial.result.history)
        for trial in trials[data.graph.n_layers :]
        if trial.result is not None
    )
    picture = Picture(
        f"{N_CLUSTERS} clusters, {data.graph.n_layers} layers, {data.graph.n_nodes:,} nodes: "
        "coloured by the clusters found in all layers together",
        chosen.result.vectors,
        chosen.result.labels,
        curves=curves,
        clouds=data.points,
        cloud_titles=tuple(
            f"Layer {number} (alone: NMI {trial.scores['nmi']:.2f})"
            for number, trial in enumerate(trials[: data.graph.n_layers], start=1)
        ),
        subtitle=f" of the merged layers (NMI {chosen.scores['nmi']:.2f})",
        agreement=agreement(merged, chosen.result, [f"layer {n + 1}" for n in range(data.graph.n_layers)]),
    )
    write_labels(folder / FILES["labels"], chosen.result.labels, data.graph.node_names)
    with naming(folder / FILES["picture"]):
        (folder / FILES["picture"]).write_bytes(draw(picture))


def _write_page(folder: Path, data: LayeredData, trials: list[Trial], summary: JsonObject) -> None:
    """Write the page of ``cluster --report`` with the comparison of methods in it."""
    from spectrograd.report.collect import gather_run
    from spectrograd.report.document import methods_table, run_document
    from spectrograd.report.page import write_run_page

    result = trials[-1].result
    assert result is not None
    run = gather_run(data.graph, result, summary, truth=("the clusters the data was made of", data.labels))
    document = run_document(run) | {"methods": methods_table([trial.row for trial in trials])}
    write_run_page(folder / FILES["report"], document)


def agreement(merged: Merged, result: Result, names: Sequence[str]) -> Agreement | None:
    """Of the layers, where they were embedded, and the merged embedding."""
    from spectrograd.pipeline.layer_weights import pairwise_agreement
    from spectrograd.report.figures import Agreement

    if not merged.layers:
        return None
    bases = [layer.embedding.vectors for layer in merged.layers]
    return Agreement((*names, "merged"), pairwise_agreement([*bases, result.vectors]))


def _print_report(
    session: Session, data: LayeredData, merged: Merged, rows: list[dict[str, object]], saved: dict[str, str]
) -> None:
    from spectrograd.cli.tables import MARK, row_table
    from spectrograd.report.document import COLUMN_MEANINGS

    graph = data.graph
    seconds = session.seconds
    click.echo(
        f"{graph.n_nodes:,} nodes, {graph.n_layers} layers, {graph.n_edges:,} edges, "
        f"{N_CLUSTERS} clusters; seed {session.seed}\n"
    )
    session.console().print(row_table(rows, n_first=graph.n_layers, marked=len(rows)))
    click.echo(f"{MARK} what you get unless you ask for another solver")
    for title, meaning in COLUMN_MEANINGS.items():
        click.echo(f"{title:12} {meaning}")
    click.echo(
        f"\nmerge: {merged.operator.n_edges:,} edges + rank {merged.operator.rank}; "
        f"embedding the layers took {seconds['layers']:.2f} s,\nmerging them {seconds['merge']:.2f} s; "
        f"compiling and warming up {seconds['jit']:.2f} s (not in the times above)\n"
    )
    for what, path in saved.items():
        click.echo(f"saved {what:8} {path}")
