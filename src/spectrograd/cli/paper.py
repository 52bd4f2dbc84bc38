"""``spectrograd paper``: the command that runs the experiments of ``spectrograd.paper`` and prints them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectrograd.cli.demo import finish
from spectrograd.cli.options import common_options, dry_run_option, nodes_option
from spectrograd.cli.session import Session
from spectrograd.paper.tables import EXPERIMENTS, RI_IS, Experiment, table_methods, time_ratios
from spectrograd.typing import JsonObject

if TYPE_CHECKING:
    from spectrograd.cli.summary import Input
    from spectrograd.datasets import LayeredData
    from spectrograd.paper.setting import Score
    from spectrograd.pipeline.merge import Merged

EXAMPLES = """\b
Examples:
  spectrograd paper --table 1 --skip-dense --summary-json table1.json
  spectrograd paper --table 1 --seeds 0-7
  spectrograd paper --table 1 --ablation --seeds 0-2
  spectrograd paper --table 1 --scale --nodes 300000
  spectrograd paper --table 2 --yelp yelp_dataset --skip-dense
"""


@click.command(epilog=EXAMPLES, short_help="Repeat the paper's tables.")
@click.option(
    "--table", type=click.Choice(list(EXPERIMENTS)), default="1", show_default=True, help="Which table."
)
@click.option(
    "--yelp",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Table 2: the folder with Yelp's files *business*.json and *review*.json (or .json.gz).",
)
@click.option("--strict", is_flag=True, help="Table 2: stop at a broken line instead of skipping it.")
@click.option("--skip-dense", is_flag=True, help="Leave out the dense eigendecomposition (minutes).")
@click.option(
    "--seeds", metavar="0-7", help="Table 1 in the paper's own setting, mean and spread over these seeds."
)
@click.option(
    "--ablation", "study", flag_value="ablation", help="Table 1: what each choice does that is not printed."
)
@click.option(
    "--scale", "study", flag_value="scale", help="Table 1's data up to --nodes (100,000): table and picture."
)
@nodes_option(10_000)
@dry_run_option
@common_options
def paper(session: Session, table: str, yelp: str | None, nodes: int, **options: Any) -> int:
    """Repeat Table 1 (synthetic data, three layers, five clusters) or 2 (Yelp, four layers, three classes).

    Every method works on the same merged operator in the same run. As in the paper, times are those of
    the merge stage; the embeddings of the layers are timed apart.
    """
    experiment = EXPERIMENTS[table]
    if (yelp is not None) != (table == "2"):
        problem = "--table 2 needs --yelp DIR, the folder with Yelp's business and review files"
        raise click.UsageError(
            problem if yelp is None else "--yelp is for --table 2", click.get_current_context()
        )
    study = options["study"] or ("seeds" if options["seeds"] else None)
    if study and yelp is not None:
        raise click.UsageError(f"--{study} is for --table 1", click.get_current_context())
    if session.dry_run:
        return _print_plan(experiment, yelp or study, options["skip_dense"], nodes)
    if study:
        return run_study(session, study, parse_seeds(options["seeds"] or str(session.seed)), nodes)
    data, source = _synthetic(session, nodes) if yelp is None else _yelp(session, yelp, options["strict"])
    return _repeat(session, experiment, (data, source), options["skip_dense"])


def _repeat(
    session: Session, experiment: Experiment, inputs: tuple[LayeredData, Input], skip_dense: bool
) -> int:
    """All methods of a table on the same merged operator."""
    from spectrograd.cli.methods import prepare_layers, run_method, seconds_per_pass
    from spectrograd.cli.summary import summarize
    from spectrograd.pipeline import Settings

    data, source = inputs
    k = experiment.n_clusters
    settings = Settings(n_components=k, laplacian="symmetric", aggregation="projection", seed=session.seed)
    prepared = prepare_layers(session, data, settings)
    merged = prepared.merged
    trials = [
        run_method(session, method, prepared, settings, data.labels)
        for method in table_methods(experiment, skip_dense, data.graph.n_nodes)
    ]
    rows = [trial.row | {"paper": dict(trial.method.paper)} for trial in trials]
    chosen = trials[-1]
    if chosen.result is None:
        raise RuntimeError(f"the default solver failed: {chosen.error}")
    ratios = time_ratios(rows, seconds_per_pass(merged.operator, k))
    _print_report(session, experiment, rows, ratios, (data, merged))
    summary = summarize(session, source, data.graph, chosen.result, chosen.scores)
    session.save_summary(summary | {"table": experiment.table, "rows": rows, "ratios": ratios})
    return finish(rows, chosen)


def _print_plan(experiment: Experiment, yelp: str | None, skip_dense: bool, nodes: int) -> int:
    """What ``--dry-run`` prints instead of solving."""
    click.echo("dry run: nothing is computed or written")
    click.echo(f"table    {experiment.table}: {experiment.data}, {yelp or f'{nodes:,} nodes'}")
    click.echo(f"methods  {', '.join(m.label for m in table_methods(experiment, skip_dense, nodes))}")
    return 0


def _synthetic(session: Session, nodes: int) -> tuple[LayeredData, Input]:
    from spectrograd.cli.summary import Input
    from spectrograd.datasets import make_multilayer_gmm

    with session.stage("read"):
        clusters = EXPERIMENTS["1"].n_clusters
        data = make_multilayer_gmm(nodes, n_clusters=clusters, random_state=session.seed)
        return data, Input.of_arrays([data.labels, *data.points])


def _yelp(session: Session, folder: str, strict: bool) -> tuple[LayeredData, Input]:
    from spectrograd.cli.summary import Input
    from spectrograd.datasets import load_yelp
    from spectrograd.datasets.yelp import yelp_files

    with session.stage("read"), session.counting("reviews read and scored") as count:
        source = Input.of_files(yelp_files(folder))
        data = load_yelp(folder, on_error="raise" if strict else "skip", n_jobs=-1, progress=count)
    session.note(f"{data.report.n_reviews:,} reviews of {data.graph.n_nodes:,} businesses")
    return data, source


def _print_report(
    session: Session,
    experiment: Experiment,
    rows: list[dict[str, object]],
    ratios: dict[str, float | None],
    found: tuple[LayeredData, Merged],
) -> None:
    from spectrograd.cli.tables import paper_table

    data, merged = found
    spent = session.seconds
    console = session.console()
    graph = data.graph
    click.echo(
        f"Table {experiment.table}: {experiment.data}, N={graph.n_nodes:,}, {graph.n_layers} layers, "
        f"{experiment.n_clusters} clusters; seed {session.seed}\n"
    )
    console.print(paper_table(rows, console.width))
    layers = zip(graph.layer_names, merged.layers, strict=True)
    each = ", ".join(f"{name} {layer.total_seconds:.2f}" for name, layer in layers)
    click.echo(
        f'\nThe paper\'s column "RI" {RI_IS[experiment.table]}.\n'
        "Its times were taken on 40 cores; it does not say which eigensolver it ran.\n"
        f"Not in the times above: layers {spent['layers']:.2f} s ({each}),\nmerge {spent['merge']:.2f} s, "
        f"compiling and warming up {spent['jit']:.2f} s."
    )
    for text, key, name in (
        ("dense eigendecomposition / proposed", "dense_over_sgd_paper", "eigen"),
        ("stochastic FB / proposed", "stochastic_fb_over_sgd_paper", "stochastic_fb"),
    ):
        if ratios[key] is not None:
            click.echo(f"Time ratio {text}: {ratios[key]:.1f} (paper: {experiment.ratio(name):.1f}).")
    if ratios["pass_equivalents"] is not None:
        click.echo(
            f"The proposed method's run costs as much as {ratios['pass_equivalents']:,.0f} products "
            "of the operator with the embedding."
        )


# --- ``spectrograd paper --seeds | --ablation | --scale``: Table 1 in the paper's own setting, as tables.

PICTURE = "paper-scale.png"
SEPARATION = (
    "The data: three layers of planar Gaussian mixtures. The paper does not print how far apart its means\n"
    "are; at 1.9 standard deviations (to the nearest other mean, on average) the exact merge has about its\n"
    "purity and NMI (--ablation shows the others)."
)


def parse_seeds(text: str) -> list[int]:
    """``0-7`` or ``0,3,5``."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise click.UsageError(
                f"--seeds {text}: expected numbers such as 0-7 or 0,3,5", click.get_current_context()
            )
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def run_study(session: Session, study: str, seeds: Sequence[int], nodes: int) -> int:
    """Calculate a study, print it and put it into the summary."""
    tell = {"seeds": _print_seeds, "ablation": _print_ablation, "scale": _print_scale}[study]
    with session.stage("solve"), session.progress(f"{study} of Table 1"):
        found = tell(seeds, nodes)
    session.save_summary({"table": 1, "study": study, "seeds": list(seeds), "nodes": nodes, "found": found})
    return 0


def _print_seeds(seeds: Sequence[int], nodes: int) -> JsonObject:
    from spectrograd.paper.setting import METHODS, over_seeds

    found = over_seeds(nodes, seeds, METHODS)
    click.echo(f"Table 1 in the paper's own setting, N={nodes:,}, seeds {_named(seeds)}: mean (spread)\n")
    _print(("method", "seconds", "purity", "NMI", "ARI"), [[n, *_figures(s)] for n, s in found.items()])
    click.echo(
        "\nThe eigendecomposition takes the aggregated matrix, normalised after aggregation; all other rows\n"
        f"the unnormalised one. {SEPARATION}"
    )
    return {name: [asdict(score) for score in scores] for name, scores in found.items()}


def _print_ablation(seeds: Sequence[int], nodes: int) -> JsonObject:
    from spectrograd.paper.setting import CLAIMS, over_readings, over_seeds

    readings = over_readings(nodes, seeds)
    click.echo(f"What the paper leaves open, N={nodes:,}, seeds {_named(seeds)}: NMI, mean (spread)\n")
    methods = list(next(iter(readings.values())))
    _print(
        ("reading", *methods),
        [[name, *(_mean(row[method], "nmi") for method in methods)] for name, row in readings.items()],
    )
    claims = over_seeds(nodes, seeds, CLAIMS)
    click.echo("\nIts claims: batch size, batches drawn anew, speed against accuracy (sgd-paper)\n")
    _print(
        ("batches", "seconds", "purity", "NMI", "ARI"),
        [[n, *_figures(s)] for n, s in claims.items()],
    )
    return {
        "readings": {
            name: {method: [asdict(score) for score in scores] for method, scores in row.items()}
            for name, row in readings.items()
        },
        "claims": {name: [asdict(score) for score in scores] for name, scores in claims.items()},
    }


def _print_scale(seeds: Sequence[int], nodes: int) -> JsonObject:
    from spectrograd.paper.scale import FB_LARGEST_SIZE, FIRST_SIZE, LARGEST_SIZE, draw, over_sizes

    largest = nodes if nodes != FIRST_SIZE else LARGEST_SIZE
    found = over_sizes(largest, seeds)
    click.echo(f"Table 1's data against N, seeds {_named(seeds)}: mean (spread)\n")
    _print(
        ("nodes", "method", "seconds", "purity", "NMI", "ARI"),
        [[f"{n:,}", name, *_figures(s)] for n, row in found.items() for name, s in row.items()],
    )
    draw(found, Path(PICTURE))
    if largest > FB_LARGEST_SIZE:
        click.echo(f"\nStochastic FB above {FB_LARGEST_SIZE:,} nodes is left out: it alone would take hours.")
    click.echo(f"\nsaved picture  {PICTURE}")
    return {str(n): {name: [asdict(x) for x in s] for name, s in row.items()} for n, row in found.items()}


def _figures(scores: Sequence[Score]) -> list[str]:
    return [_mean(scores, key) for key in ("seconds", "purity", "nmi", "ari")]


def _mean(scores: Sequence[Score], key: str) -> str:
    from spectrograd.paper.setting import spread

    mean, deviation = spread(scores, key)
    return f"{mean:.3g} ({deviation:.2g})" if key == "seconds" else f"{mean:.3f} ({deviation:.3f})"


def _named(seeds: Sequence[int]) -> str:
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if whole and len(seeds) > 1 else ",".join(map(str, seeds))


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns, two spaces apart."""
    widths = [max(len(str(row[c])) for row in (head, *rows)) for c in range(len(head))]
    for row in (head, *rows):
        click.echo(
            "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
