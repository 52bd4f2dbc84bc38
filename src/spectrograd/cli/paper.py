"""``spectrograd paper``: the paper's experiments, our figures beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectrograd.cli.demo import finish
from spectrograd.cli.options import common_options, dry_run_option, nodes_option
from spectrograd.cli.session import Session

if TYPE_CHECKING:
    from spectrograd.cli.methods import Method
    from spectrograd.cli.summary import Input
    from spectrograd.datasets import LayeredData
    from spectrograd.paper.setting import Score
    from spectrograd.pipeline.multilayer import Merged


Figures = dict[str, float | None]
# DisplayMixin by a computation in docs/method.md for the first table; the second has no data to show it with.
RI_IS = {
    1: "agrees numerically with the adjusted Rand index (ARI), not with RI",
    2: "is taken to be the adjusted Rand index (ARI), as it is in Table 1; that is not shown",
}
FIGURES = ("seconds", "iterations", "purity", "nmi", "ri")
NOT_IN_PAPER: Figures = dict.fromkeys(FIGURES)
DENSE, FB, SGD = "Eigendecomposition (dense)", "Stochastic FB", "Proposed (sgd-paper)"


@dataclass(frozen=True)
class Experiment:
    """A table of El Gheche, Chierchia & Frossard (ICASSP 2019); rows of figures as in ``FIGURES``."""

    table: int
    data: str
    n_clusters: int
    eigen: tuple[float | None, ...]
    stochastic_fb: tuple[float | None, ...]
    proposed: tuple[float | None, ...]

    def ratio(self, name: str) -> float:
        """Time of a method over that of the proposed one."""
        return float(getattr(self, name)[0] or 0) / float(self.proposed[0] or 1)


# On 40 cores; the paper does not say which eigensolver.
EXPERIMENTS = {
    "1": Experiment(
        1,
        "synthetic data",
        5,
        eigen=(36.3, None, 0.93, 0.83, 0.85),
        stochastic_fb=(22.8, 3000, 0.94, 0.84, 0.86),
        proposed=(5.2, 500, 0.92, 0.79, 0.82),
    ),
    "2": Experiment(
        2,
        "Yelp data",
        3,
        eigen=(69.7, None, 0.87, 0.65, 0.56),
        stochastic_fb=(50.6, 3000, 0.88, 0.79, 0.88),
        proposed=(11.4, 500, 0.86, 0.71, 0.84),
    ),
}

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
    settings = Settings(n_components=k, laplacian="symmetric", seed=session.seed)
    prepared = prepare_layers(session, data, settings)
    merged = prepared.merged
    trials = [
        run_method(session, method, prepared, settings, data.labels)
        for method in _methods(experiment, skip_dense, data.graph.n_nodes)
    ]
    rows = [trial.row | {"paper": dict(trial.method.paper)} for trial in trials]
    chosen = trials[-1]
    if chosen.result is None:
        raise RuntimeError(f"the default solver failed: {chosen.error}")
    ratios = _ratios(rows, seconds_per_pass(merged.operator, k))
    _print_report(session, experiment, rows, ratios, (data, merged))
    summary = summarize(session, source, data.graph, chosen.result, chosen.scores)
    session.save_summary(summary | {"table": experiment.table, "rows": rows, "ratios": ratios})
    return finish(rows, chosen)


def _print_plan(experiment: Experiment, yelp: str | None, skip_dense: bool, nodes: int) -> int:
    """What ``--dry-run`` prints instead of solving."""
    click.echo("dry run: nothing is computed or written")
    click.echo(f"table    {experiment.table}: {experiment.data}, {yelp or f'{nodes:,} nodes'}")
    click.echo(f"methods  {', '.join(m.label for m in _methods(experiment, skip_dense, nodes))}")
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


def _methods(experiment: Experiment, skip_dense: bool, nodes: int) -> list[Method]:
    from spectrograd.cli.methods import DEFAULT, Method

    eigen, fb, proposed = (
        dict(zip(FIGURES, figures, strict=True))
        for figures in (experiment.eigen, experiment.stochastic_fb, experiment.proposed)
    )
    wait = f"dense eigendecomposition of a {nodes:,} x {nodes:,} matrix: this takes minutes (--skip-dense)"
    dense = Method(DENSE, "eigen", {"method": "dense"}, eigen, wait if nodes > 5000 else "")
    return [
        *([] if skip_dense else [dense]),
        Method("Eigendecomposition (sparse)", "eigen", {"method": "arpack"}, eigen),
        Method(FB, "stochastic-fb", {"max_iter": 3000}, fb),
        Method(SGD, "sgd-paper", {"max_iter": 500}, proposed),
        Method("Default (auto)", DEFAULT, {}, NOT_IN_PAPER),
    ]


def _ratios(rows: list[dict[str, Any]], one_pass: float) -> dict[str, float | None]:
    """How our times compare with each other: that carries over to other machines, seconds do not."""
    seconds = {row["method"]: row["seconds"] for row in rows}
    sgd = seconds[SGD]

    def over_sgd(value: float | None) -> float | None:
        return None if value is None or sgd is None else value / sgd

    return {
        "dense_over_sgd_paper": over_sgd(seconds.get(DENSE)),
        "stochastic_fb_over_sgd_paper": over_sgd(seconds[FB]),
        "pass_equivalents": None if sgd is None else sgd / one_pass,
        "seconds_per_pass": one_pass,
    }


def _print_report(
    session: Session,
    experiment: Experiment,
    rows: list[dict[str, Any]],
    ratios: dict[str, float | None],
    found: tuple[LayeredData, Merged],
) -> None:
    from spectrograd.cli.tables import paper_table

    (data, merged), spent, console = found, session.seconds, session.console()
    graph = data.graph
    click.echo(
        f"Table {experiment.table}: {experiment.data}, N={graph.n_nodes:,}, {graph.n_layers} layers, "
        f"{experiment.n_clusters} clusters; seed {session.seed}\n"
    )
    console.print(paper_table(rows, console.width))
    layers = zip(graph.layer_names, merged.layers, strict=True)
    each = ", ".join(f"{name} {layer.seconds:.2f}" for name, layer in layers)
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
FIRST, LARGEST = 10_000, 100_000  # of --scale, where --nodes says nothing
FB_LARGEST = 100_000  # 3,000 QR factorisations of all rows: beyond that it alone would take the time of all
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


def _print_seeds(seeds: Sequence[int], nodes: int) -> dict[str, Any]:
    from spectrograd.paper.setting import METHODS, over_seeds

    found = over_seeds(nodes, seeds, METHODS)
    click.echo(f"Table 1 in the paper's own setting, N={nodes:,}, seeds {_named(seeds)}: mean (spread)\n")
    _print(("method", "seconds", "purity", "NMI", "ARI"), [[n, *_figures(s)] for n, s in found.items()])
    click.echo(
        "\nThe eigendecomposition takes the aggregated matrix, normalised after aggregation; all other rows\n"
        f"the unnormalised one. {SEPARATION}"
    )
    return {name: [asdict(score) for score in scores] for name, scores in found.items()}


def _print_ablation(seeds: Sequence[int], nodes: int) -> dict[str, Any]:
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


def _print_scale(seeds: Sequence[int], nodes: int) -> dict[str, Any]:
    largest = nodes if nodes != FIRST else LARGEST
    found = over_sizes(largest, seeds)
    click.echo(f"Table 1's data against N, seeds {_named(seeds)}: mean (spread)\n")
    _print(
        ("nodes", "method", "seconds", "purity", "NMI", "ARI"),
        [[f"{n:,}", name, *_figures(s)] for n, row in found.items() for name, s in row.items()],
    )
    draw(found, Path(PICTURE))
    if largest > FB_LARGEST:
        click.echo(f"\nStochastic FB above {FB_LARGEST:,} nodes is left out: it alone would take hours.")
    click.echo(f"\nsaved picture  {PICTURE}")
    return {str(n): {name: [asdict(x) for x in s] for name, s in row.items()} for n, row in found.items()}


def over_sizes(largest: int, seeds: Sequence[int]) -> dict[int, dict[str, list[Score]]]:
    """The methods of the paper and the unbiased one on its data, by size."""
    from spectrograd.paper.setting import EIGEN, FB, PRINTED, UNBIASED, over_seeds

    sizes = [size for size in (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000) if size <= largest]
    sizes = [size for size in sizes if size >= min(FIRST, largest)] or [largest]
    return {
        size: over_seeds(
            size, seeds, [m for m in (EIGEN, FB, PRINTED, UNBIASED) if m != FB or size <= FB_LARGEST]
        )
        for size in sizes
    }


def draw(found: dict[int, dict[str, list[Score]]], path: Path) -> None:
    """Quality and time against N, from the scores by size and method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from spectrograd.paper.setting import spread

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    both = figure.subplots(1, 2)
    for axes, key, title in zip(both, ("nmi", "seconds"), ("NMI", "seconds"), strict=True):
        for name in dict.fromkeys(name for row in found.values() for name in row):
            points = [(n, *spread(row[name], key)) for n, row in found.items() if name in row]
            x, mean, error = zip(*points, strict=True)
            axes.errorbar(x, mean, error, marker="o", capsize=2, label=name)
        axes.set(xscale="log", xlabel="nodes", title=title)
        axes.grid(alpha=0.25)
    both[1].set_yscale("log")
    both[0].legend(fontsize=7, frameon=False, loc="lower left")
    figure.savefig(path, dpi=130)


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
