"""``spectrograd update``: a run follows its graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from spectrograd.cli.option_values import choice_option
from spectrograd.cli.options import common_options
from spectrograd.cli.predict import MODEL, load_run_model
from spectrograd.cli.session import Session

EXAMPLES = """\b
Examples:
  spectrograd cluster graph.csv -k 5 --run results -o labels.csv
  spectrograd update graph.csv monday.csv --run results -o labels.csv
  spectrograd update graph.csv --remove gone.csv --run results -o labels.csv
"""


@click.command(epilog=EXAMPLES, short_help="Take changed edges into a run.")
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
@click.option("-o", "--output", help="As of 'cluster' (or 'embed'); - (default) is CSV on stdout.")
@common_options
def update(
    session: Session,
    graph: str,
    edges: str | None,
    folder: str,
    remove: str | None,
    output: str | None,
    **how: Any,
) -> int:
    """Take new, changed and removed edges into a run: a correction where that is enough, a solve where not.

    GRAPH is the graph the run was made of: a file is not changed, the run's own copy is; a store takes the
    changes too, so that others read them. EDGES is an edge list. Clusters keep their numbers; stderr tells
    what became of them, and whether a new 'cluster' is advised.
    """
    from spectrograd.cli import writing
    from spectrograd.io import read_graph, write_embedding, write_labels

    if edges is None and remove is None:
        raise click.UsageError("nothing to change: give EDGES, --remove, or both")
    with session.stage("read"):
        model = load_run_model(folder)
        labelled = hasattr(model, "labels_")
        write = write_labels if labelled else write_embedding
        writing.check_output(session, output, write, [0] if labelled else [[0.0]])
        store = _check_same(model, graph)
        changed = None if edges is None else read_graph(edges)
        removed = None if remove is None else read_graph(remove)
    with session.stage("solve"):
        result = model._follow(changed, removed, **how)
        if store is not None:  # the run has the graph in memory: the store follows
            from spectrograd.pipeline.graph_changes import EdgeChanges
            from spectrograd.pipeline.store_changes import changed_store

            changed_store(store, EdgeChanges(changed, removed, **how))
    with session.stage("report"):
        writing.write_result(output, write, model.labels_ if labelled else model.embedding_, model.names_)
        inside = Path(folder, MODEL)
        model.save(inside if inside.is_dir() else folder)
        _save_page(session, folder, model, result, [path for path in (graph, edges, remove) if path])
    session.note(model.update_sentence_)
    session.save_summary(_summary(session, model, [path for path in (graph, edges, remove) if path]))
    return 0


def _check_same(model: Any, path: str) -> Any:
    """Whether the run was made of this graph; returns a store that has to follow the run's own copy."""
    from spectrograd.graph import GraphError
    from spectrograd.io import read_graph
    from spectrograd.store import is_store, open_store

    stored = is_store(path)
    graph = open_store(path) if stored else read_graph(path)
    if not model.graph_.is_resident:
        one = getattr(model.graph_, "layers", (model.graph_,))[0]
        if not stored or one.store.path.resolve() != Path(path).resolve():
            raise GraphError(f"{path}: the run was made of the store {one.store.path}")
        return None
    names = graph.node_names
    lost = names[model._knowledge.rows_by_name.rows(names) < 0]
    if len(lost):
        raise GraphError(f"{path}: node {str(lost[0])!r} is not in the run; it was made of another graph")
    if stored and graph.n_edges != model.graph_.n_edges:
        raise GraphError(
            f"{path}: {graph.n_edges:,} edges, {model.graph_.n_edges:,} in the run; it was made of another "
            "version: cluster it again"
        )
    return graph if stored else None


def _save_page(session: Session, folder: str, model: Any, result: Any, files: list[str]) -> None:
    """What 'report' tells of the run, brought up to date; classes known before are kept, by name."""
    import numpy as np

    from spectrograd.cli import reading
    from spectrograd.cli.summary import summarize
    from spectrograd.report.gather import gather_run
    from spectrograd.report.run import STORY, load_run, save_run

    if not Path(folder, STORY).is_file():  # a model saved from Python
        return
    before, classes, scores = load_run(folder), None, None
    if before.nodes.classes is not None:
        known = dict(zip(map(str, before.nodes.names), before.nodes.classes, strict=True))
        classes = np.array([known.get(str(name), -1) for name in model.graph_.input_names])
        scores = None if result.labels is None else result.scores(classes)
    told = summarize(session, reading.hashed(files), model.graph_, result, scores)
    run = gather_run(
        model.graph_,
        result,
        told,
        truth=None if classes is None else (str(before.truth), classes),
        class_names=before.class_names,
        drop_first=before.spectrum["first"] == 2,
    )
    save_run(folder, run)


def _summary(session: Session, model: Any, files: list[str]) -> dict[str, Any]:
    from spectrograd.cli import reading
    from spectrograd.cli.summary import outline

    changes = getattr(model, "label_changes_", None)
    return outline(session, reading.hashed(files), model.graph_) | {
        "certificate": model.certificate_.summary(),
        "update": {
            "action": model.update_action_,
            "drift": model.drift_,
            "label_changes": None if changes is None else changes.summary(),
            "refit_advised": model.refit_advised_,
            "sentence": model.update_sentence_,
        },
    }
