"""``spectrograd predict``: new nodes or points to the clusters of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from spectrograd.cli.graph_files import GraphFiles, reading_options, refuse_table_options
from spectrograd.cli.options import common_options
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 --run results -o labels.csv
  spectrograd predict results newcomers.csv -o new_labels.csv
  spectrograd cluster points.csv --points -k 5 --run clouds -o labels.csv
  spectrograd predict clouds new_points.csv -o new_labels.csv
"""
MODEL = "model"  # the folder of a run that holds its model


def load_run_model(folder: str) -> Any:
    """The model of a run, or a model that stands there itself."""
    return load_run_for_change(folder, "")[0]


@contextmanager
def unusable(folder: str) -> Iterator[None]:
    """Name the run in whatever goes wrong inside: its arrays came from a file, and may not fit together.

    Files of a run have checksums, but whoever changes one can change these too; a fault of ours is told in
    these words as well, and ``--debug`` shows where.
    """
    try:
        yield
    except (click.ClickException, KeyboardInterrupt, MemoryError, OSError):
        raise
    except ValueError as error:
        if folder in str(error) or type(error).__name__ == "GraphError":
            raise
        raise click.ClickException(f"{folder}: {error}") from error
    except Exception as error:
        raise click.ClickException(
            f"{folder}: the saved run does not fit together ({type(error).__name__}: {error}); make it again "
            "with 'cluster' or 'embed', --debug shows the traceback"
        ) from error


def load_run_for_change(folder: str, digest: str) -> tuple[Any, bool]:
    """The model of a run, and whether its graph on disk has taken in the change of this digest since."""
    from spectrograd.estimators.saving import load_for_change
    from spectrograd.graph import GraphError

    inside = Path(folder, MODEL)
    if not inside.is_dir() and not Path(folder, "meta.json").is_file():
        raise GraphError(f"{folder}: no model there; 'embed' and 'cluster' save one with --run")
    return load_for_change(inside if inside.is_dir() else folder, digest, check=True)


@click.command(epilog=EXAMPLES, short_help="Find the clusters of new nodes.")
@click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
@click.argument("new", metavar="NEW...", nargs=-1, required=True)
@click.option("-o", "--output", help="As of 'cluster' (or 'embed'); - (default) is CSV on stdout.")
@click.option(
    "--outlier-quantile",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Nodes farther out than this share of the training data get cluster -1.",
)
@click.option(
    "--ignore", metavar="COLUMN", multiple=True, help="A column of new points that is no coordinate."
)
@reading_options
@common_options
def predict(
    session: Session,
    folder: str,
    new: tuple[str, ...],
    output: str | None,
    outlier_quantile: float | None,
    files: GraphFiles,
    ignore: tuple[str, ...],
) -> int:
    """Find the clusters of new nodes by their edges to the nodes of a run, without another solve.

    RUN is the folder that 'cluster' or 'embed' wrote with --run, or a saved model. NEW is an edge list or
    another file of edges between new and known nodes, by name (several layers: as for the run); for a
    model of points, a table of points. Of an embedding the rows of the new nodes are written.
    """
    from spectrograd.cli import writing
    from spectrograd.io import write_embedding, write_labels

    with session.stage("read"):
        model = load_run_model(folder)
        labelled = hasattr(model, "labels_")
        write = write_labels if labelled else write_embedding
        writing.check_output(session, output, write, [0] if labelled else [[0.0]])
        with unusable(folder):
            given, names = _read(model, new, files, ignore)
    if outlier_quantile is not None and not labelled:
        raise click.UsageError("--outlier-quantile: the run is an embedding and has no clusters")
    with session.stage("assign"), unusable(folder):
        ask = partial(model.predict, outlier_quantile=outlier_quantile) if labelled else model.transform
        values = ask(given)
    with unusable(folder):
        writing.write_result(output, write, values, model.new_names_ if names is None else names)
    session.save_summary(_summary(session, folder, new, model, values))
    return 0


def _read(model: Any, new: tuple[str, ...], files: GraphFiles, ignore: tuple[str, ...]) -> tuple[Any, Any]:
    """What the model is asked, and names where the question does not carry them."""
    from spectrograd.graph import GraphError, MultilayerGraph
    from spectrograd.io import read_graph, read_points

    if getattr(model, "affinity_", model.affinity) == "nearest_neighbors":
        refuse_table_options(files)
        how: dict[str, Any] = {"header": files.header, "format": files.format, "ignore": ignore}
        tables = [read_points(path, key=key, **how) for path in new for key in (files.key or (None,))]
        n_views = len(getattr(model, "layer_names_", ("points",)))
        if len(tables) != n_views:
            raise GraphError(
                f"{len(tables)} tables of points for a run of {n_views}; give them as 'cluster' got them"
            )
        names = next((table.names for table in tables if table.names is not None), None)
        views = [table.coordinates for table in tables]
        return (views if hasattr(model, "layer_names_") else views[0]), names
    graph = read_graph(*new, **files.how)
    if not isinstance(graph, MultilayerGraph) and hasattr(model, "layer_names_") and len(new) == 1:
        # one file without layers: the edges of one layer, called as the file
        return {Path(new[0]).stem: graph}, None
    return graph, None


def _summary(session: Session, folder: str, new: tuple[str, ...], model: Any, values: Any) -> dict[str, Any]:
    from spectrograd.cli import reading
    from spectrograd.cli.summary import outline

    reading.keep_stdin(new)
    told = outline(session, reading.hashed(new), model.graph_)
    scores = model.outlier_score_
    return told | {
        "run": folder,
        "n_new": len(values),
        "outlier_scores": {"mean": float(scores.mean()), "max": float(scores.max())},
    }
