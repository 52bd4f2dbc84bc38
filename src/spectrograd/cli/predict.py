"""``spectrograd predict``: new nodes or points to the clusters of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from spectrograd.cli.options import (
    GraphFiles,
    choice_option,
    common_options,
    reading_options,
    refuse_table_options,
)
from spectrograd.cli.session import Session
from spectrograd.typing import JsonMapping, JsonObject

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

    Files of a run have checksums, but whoever changes one can change these too; a fault of ours is
    reported in these words as well, and ``--debug`` shows where.
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
    from spectrograd.estimators.persistence import load_for_change
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
    from spectrograd.cli import run as running
    from spectrograd.estimators.out_of_sample import extrapolate, new_embedding, new_labels
    from spectrograd.io.write_results import (
        check_embedding_path,
        check_labels_path,
        write_embedding,
        write_labels,
    )

    with session.stage("read"):
        model = load_run_model(folder)
        labelled = hasattr(model, "labels_")
        write = write_labels if labelled else write_embedding
        running.check_output(session, output, check_labels_path if labelled else check_embedding_path)
        running.keep_stdin(new)
        with unusable(folder):
            given, names = _read(model, new, files, ignore)
    if outlier_quantile is not None and not labelled:
        raise click.UsageError("--outlier-quantile: the run is an embedding and has no clusters")
    with session.stage("assign"), unusable(folder):
        rows = extrapolate(model, given)
        values = new_labels(model, rows, outlier_quantile) if labelled else new_embedding(model, rows)
    with unusable(folder):
        running.write_result(output, write, values, rows.query.names if names is None else names)
    if session.summary_json is not None:
        session.save_summary(_summary(session, folder, new, model, values, rows.scores))
    return 0


def _read(
    model: Any, new: tuple[str, ...], files: GraphFiles, ignore: tuple[str, ...]
) -> tuple[object, object]:
    """What the model is asked, and names where the question does not carry them."""
    from spectrograd.graph import GraphError, MultilayerGraph
    from spectrograd.io import read_graph, read_points

    if getattr(model, "affinity_", model.affinity) == "nearest_neighbors":
        refuse_table_options(files)
        how: JsonObject = {"header": files.header, "format": files.format, "ignore": ignore}
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


def _summary(
    session: Session, folder: str, new: tuple[str, ...], model: Any, values: Any, scores: Any
) -> JsonObject:
    from spectrograd.cli import run as running
    from spectrograd.cli.summary import outline

    summary = outline(session, running.hashed(new), model.graph_)
    return summary | {
        "run": folder,
        "n_new": len(values),
        "outlier_scores": {"mean": float(scores.mean()), "max": float(scores.max())},
    }


# --- ``spectrograd update``: a run follows its graph.

ALL = "taken in"
FOLLOW = "run follows the store"
SKIP = "taken in before"
STORED = 1e-5  # of a degree: weights of a store are float32
UPDATE_EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 --run results -o labels.csv
  spectrograd update graph.csv monday.csv --run results -o labels.csv
  spectrograd update graph.csv --remove gone.csv --run results -o labels.csv
"""


@click.command(epilog=UPDATE_EXAMPLES, short_help="Take changed edges into a run.")
@click.argument("graph", metavar="GRAPH", type=click.Path())
@click.argument("edges", metavar="[EDGES]", required=False)
@click.option(
    "--run",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="The folder that 'cluster' or 'embed' saved the run in; it is brought up to date.",
)
@click.option("--remove", help="Edges to take away; each must be there.")
@choice_option(
    "--mode", "add set", "add", "Whether weights are added to those that are there, or take their place."
)
@choice_option("--new-nodes", "create refuse", "create", "What to do with nodes that the run does not know.")
@click.option("--again", is_flag=True, help="Take in the change that the run took in last once more.")
@click.option("-o", "--output", help="As of 'cluster' (or 'embed'); - (default) is CSV on stdout.")
@common_options
def update(
    session: Session,
    graph: str,
    edges: str | None,
    folder: str,
    remove: str | None,
    output: str | None,
    again: bool,
    **how: Any,
) -> int:
    """Take new, changed and removed edges into a run: a correction where that is enough, a solve where not.

    GRAPH is the graph the run was made of: a file is not changed, the run's own copy is; a store takes the
    changes too, so that others read them. EDGES is an edge list. Clusters keep their numbers; stderr tells
    what became of them, and whether a new 'cluster' is advised. An update that was interrupted is finished by
    the same command; a change that was the last to be taken in is not taken in twice.
    """
    from spectrograd.cli import run as running
    from spectrograd.io import read_graph
    from spectrograd.io.write_results import (
        check_embedding_path,
        check_labels_path,
        write_embedding,
        write_labels,
    )
    from spectrograd.pipeline.edge_changes import EdgeChanges

    if edges is None and remove is None:
        raise click.UsageError("nothing to change: give EDGES, --remove, or both")
    with session.stage("read"):
        changed = None if edges is None else read_graph(edges)
        removed = None if remove is None else read_graph(remove)
        changes = EdgeChanges(changed, removed, **how)
        model, ahead = load_run_for_change(folder, changes.digest)
        labelled = hasattr(model, "labels_")
        write = write_labels if labelled else write_embedding
        running.check_output(session, output, check_labels_path if labelled else check_embedding_path)
        with unusable(folder):
            step = _next_step(model, graph, changes, ahead, again)
    with session.stage("solve"), unusable(folder):
        sentence, result = _take(session, model, changes, step, how)
    files = [path for path in (graph, edges, remove) if path]
    with session.stage("report"), unusable(folder):
        running.write_result(output, write, model.labels_ if labelled else model.embedding_, model.names_)
        if step.what != SKIP:
            inside = Path(folder, MODEL)
            model.save(inside if inside.is_dir() else folder)
        if result is not None:
            _save_page(session, folder, model, result, files)
    session.note(sentence)
    if session.summary_json is not None:
        session.save_summary(_update_summary(session, model, files, step.what))
    return 0


class _Step(NamedTuple):
    """What is left to do: all of it, the run only (the store has the change already), or nothing.

    ``store`` is a store that follows the run's own copy of the graph.
    """

    what: str
    store: Any = None


def _take(session: Session, model: Any, changes: Any, step: _Step, how: JsonMapping) -> tuple[str, object]:
    """Bring the run up to date, and then the store that follows it; what was done, and the new result."""
    from spectrograd.estimators.partial_fit import follow_store, update_model

    if step.what == SKIP:
        return (
            "this change is the last one that the run has taken in; nothing was changed "
            "(--again takes it in once more)"
        ), None
    if step.what == FOLLOW:
        session.note(
            "the store has this change already, from an update that was interrupted: the run follows"
        )
    if step.what == FOLLOW and not model.graph_.is_resident:
        result = follow_store(model, changes)
        return str(model.update_sentence_), result
    result = update_model(model, changes.edges, changes.removed, **how)
    if step.store is not None:  # the run has the graph in memory: the store follows
        from spectrograd.pipeline.edge_changes import changed_store

        one = step.store.layers[0]
        if step.what == ALL:
            one = changed_store(step.store, changes).layers[0]
        model._store_seen = one.store.meta.fingerprint
    return str(model.update_sentence_), result


def _next_step(model: Any, path: str, changes: Any, ahead: bool, again: bool) -> _Step:
    """Whether the run was made of this graph, and how much of the change is still to be taken in."""
    from spectrograd.graph import GraphError
    from spectrograd.io import read_graph
    from spectrograd.store import is_store, open_store

    stored = is_store(path)
    repeated = getattr(model, "_last_change", None) == changes.digest and not again
    if not model.graph_.is_resident:
        one = model.graph_.layers[0]
        if not stored or Path(str(one.store.path)).resolve() != Path(path).resolve():
            raise GraphError(f"{path}: the run was made of the store {one.store.path}")
        return _Step(FOLLOW if ahead else SKIP if repeated else ALL)
    graph = open_store(path) if stored else read_graph(path)
    if not stored:
        _check_names(model, path, graph)
        return _Step(SKIP if repeated else ALL)
    first: Any = graph.layers[0]  # a layer of a store
    meta = first.store.meta
    seen = getattr(model, "_store_seen", None)
    if seen is None:  # of a model that was saved by itself
        _check_names(model, path, graph)
        _check_degrees(model, path, graph)
    elif meta.last_change == (seen, changes.digest) and meta.fingerprint != seen:
        return _Step(FOLLOW, graph)
    elif meta.fingerprint != seen:
        raise GraphError(
            f"{path}: is not as it was when the run was saved; repeat the update that was interrupted, "
            "or cluster it again"
        )
    return _Step(SKIP if repeated else ALL, graph)


def _check_names(model: Any, path: str, graph: Any) -> None:
    from spectrograd.graph import GraphError

    names = graph.node_names
    lost = names[model._training_data.rows_by_name.rows(names) < 0]
    if len(lost):
        raise GraphError(f"{path}: node {str(lost[0])!r} is not in the run; it was made of another graph")


def _check_degrees(model: Any, path: str, graph: Any) -> None:
    """Refuse a store whose edges are not those of the run, by their number and by the degrees."""
    import numpy as np

    from spectrograd.graph import GraphError

    of_store, of_run = (one.layers for one in (graph, model.graph_))
    rows = model._training_data.rows_by_name.rows(graph.node_names)
    same = len(of_store) == len(of_run) and graph.n_edges == model.graph_.n_edges
    if not same or not all(
        np.allclose(there.degrees, here.degrees[rows], rtol=STORED)
        for there, here in zip(of_store, of_run, strict=True)
    ):
        raise GraphError(
            f"{path}: {graph.n_edges:,} edges, {model.graph_.n_edges:,} in the run, or other weights; it was "
            "made of another version: cluster it again"
        )


def _save_page(session: Session, folder: str, model: Any, result: Any, files: list[str]) -> None:
    """What 'report' tells of the run, brought up to date; classes known before are kept, by name."""
    import numpy as np

    from spectrograd.cli import run as running
    from spectrograd.cli.summary import summarize
    from spectrograd.report.collect import gather_run
    from spectrograd.report.run import STORY, load_run, save_run

    if not Path(folder, STORY).is_file():  # a model saved from Python
        return
    before = load_run(folder)
    classes = None
    scores = None
    if before.nodes.classes is not None:
        known = dict(zip(map(str, before.nodes.names), before.nodes.classes, strict=True))
        classes = np.array([known.get(str(name), -1) for name in model.graph_.input_names])
        scores = None if result.labels is None else result.scores(classes)
    summary = summarize(session, running.hashed(files), model.graph_, result, scores)
    run = gather_run(
        model.graph_,
        result,
        summary,
        truth=None if classes is None else (str(before.truth), classes),
        class_names=before.class_names,
        drop_first=before.spectrum["first"] == 2,
    )
    save_run(folder, run)


def _update_summary(session: Session, model: Any, files: list[str], step: str) -> JsonObject:
    from spectrograd.cli import run as running
    from spectrograd.cli.summary import outline

    changes = getattr(model, "label_changes_", None)
    verdict = getattr(model, "cluster_verdict_", None)
    update = None
    if hasattr(model, "update_action_"):
        update = {
            "step": step,
            "action": model.update_action_,
            "drift": model.drift_,
            "label_changes": None if changes is None else changes.summary(),
            "refit_advised": model.refit_advised_,
            "sentence": model.update_sentence_,
        }
    return outline(session, running.hashed(files), model.graph_) | {
        "certificate": model.certificate_.summary(),
        "cluster_verdict": None if verdict is None else verdict.summary(),
        "update": update,
    }
