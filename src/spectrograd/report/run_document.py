"""Run -> dict: what the page of ``embed`` or ``cluster`` says, in plain values and without any HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Recall
from spectrograd.report.document import SCORE_TITLES, number
from spectrograd.report.points import (
    MISSING,
    USUALLY,
    DrawnAtMost,
    class_name,
    cluster_name,
    group,
    points_document,
)
from spectrograd.report.run import Run
from spectrograd.report.words import (
    certificate_words,
    cluster_verdict_words,
    convergence_words,
    spectrum_words,
    suggested_clusters,
    treatment_words,
)

Array = NDArray[Any]

SHOWN_MEMBERS = 6
SHOWN_LAYERS = 8
SHOWN_UNCERTAIN = 25


def run_document(run: Run, most: DrawnAtMost = USUALLY) -> dict[str, Any]:
    """What the page says.

    Returns
    -------
    dict
        ``title, lead, note, certificate, cluster_verdict, treatment, scores, clusters, uncertain, confusion,
        agreement, spectrum, curves, words, facts, command``, ``methods`` (a comparison, where there is one)
        and ``points``, which holds arrays as base64.
    """
    summary = run.summary
    points = points_document(run, most)
    several = summary["graph"]["n_layers"] > 1
    return {
        "title": f"spectrograd {summary['command']}",
        "lead": _lead(run),
        "note": points["note"],
        "certificate": _certificate(run),
        "cluster_verdict": cluster_verdict_words(summary.get("cluster_verdict")),
        "treatment": treatment_words(summary.get("regularization"), run.excluded),
        "scores": _scores(run),
        "clusters": _clusters(run),
        "uncertain": _uncertain(run),
        "confusion": _confusion(run),
        "agreement": run.agreement,
        "spectrum": {**run.spectrum, "gap": None if several else suggested_clusters(*_spectrum(run))},
        "curves": run.curves,
        "words": {
            "spectrum": spectrum_words(*_spectrum(run), merged=several, hint=run.nodes.classes is None),
            "curves": convergence_words(run.curves[-1]),
        },
        "facts": _facts(run),
        "methods": None,
        "command": summary["command_line"],
        "points": points,
    }


def _spectrum(run: Run) -> tuple[list[float], float | None]:
    return run.spectrum["values"], run.spectrum["beyond"]


def _lead(run: Run) -> str:
    graph = run.summary["graph"]
    layers = f" in {graph['n_layers']} layers" if graph["n_layers"] > 1 else ""
    head = f"{graph['n_nodes']:,} nodes and {graph['n_edges']:,} edges{layers}"
    if "knn_recall" in graph:
        head += f" ({Recall.from_summary(graph['knn_recall'])})"
    if run.nodes.labels is None:
        return f"{head}, embedded in {run.nodes.vectors.shape[1]} dimensions."
    labels = run.nodes.labels
    n_out = int(np.count_nonzero(labels == MISSING))
    rest = f"; {n_out:,} nodes are in none" if n_out else ""
    return f"{head}, in {len(np.unique(labels[labels != MISSING]))} clusters{rest}."


def _certificate(run: Run) -> dict[str, Any]:
    """The verdict in words; a layer that fell short takes the trust of the whole with it."""
    certificate = run.summary["certificate"]
    short = [layer for layer in run.layers if not layer["converged"]]
    return {
        "converged": certificate["converged"] and not short,
        "words": certificate_words(certificate, [layer["name"] for layer in short]),
        "exact": [certificate["sentence"], *(f"layer {each['name']}: {each['sentence']}" for each in short)],
    }


def _scores(run: Run) -> dict[str, Any] | None:
    scores = run.summary["scores"]
    if scores is None or run.nodes.classes is None:
        return None
    known = int(np.count_nonzero(run.nodes.classes != -1))
    return {
        "caption": f"Agreement with {run.truth} ({known:,} labelled nodes)",
        "columns": list(SCORE_TITLES.values()),
        "rows": [[number(scores[key], 3) for key in SCORE_TITLES]],
    }


def _clusters(run: Run) -> dict[str, Any] | None:
    """Size, conductance and some members of every cluster; the smallest are left out where there are many."""
    labels = run.nodes.labels
    if labels is None:
        return None
    clusters = group(labels)
    layers = run.conductance[:SHOWN_LAYERS]
    ranks = {name: rank for rank, name in enumerate(np.unique(labels).tolist())}
    rows = []
    for code, name in enumerate(clusters.shown):
        inside = np.flatnonzero(clusters.codes == code)
        members = ", ".join(map(str, run.nodes.names[inside[:SHOWN_MEMBERS]]))
        rows.append(
            {
                "code": code,
                "name": str(name),
                "size": len(inside),
                "share": len(inside) / len(labels),
                "conductance": [layer["values"][ranks[name]] for layer in layers],
                "members": members + (", …" if len(inside) > SHOWN_MEMBERS else ""),
            }
        )
    return {
        "layers": [layer["name"] for layer in layers],
        "rows": rows,
        "n_hidden": len(ranks) - len(rows) - (clusters.missing is not None),
    }


def _uncertain(run: Run) -> list[dict[str, Any]] | None:
    """The nodes whose labels are least sure, the worst first."""
    labels, sure = run.nodes.labels, run.nodes.membership
    if labels is None or sure is None:
        return None
    worst = np.argsort(sure, kind="stable")[:SHOWN_UNCERTAIN]  # NaN, of nodes set aside, is last
    worst = worst[np.isfinite(sure[worst])]
    return [
        {"node": str(run.nodes.names[row]), "cluster": int(labels[row]), "confidence": float(sure[row])}
        for row in worst
    ]


def _confusion(run: Run) -> dict[str, Any] | None:
    """How many nodes of each class are in each cluster."""
    labels, classes = run.nodes.labels, run.nodes.classes
    if labels is None or classes is None:
        return None
    known = classes != -1
    found, kinds = group(labels[known]), group(classes[known])
    table = np.zeros((len(found.names), len(kinds.names)), dtype=np.int64)
    np.add.at(table, (found.codes, kinds.codes), 1)
    order = np.argsort(table.argmax(axis=0), kind="stable")  # where most of it is
    return {
        "clusters": [cluster_name(name) for name in found.names],
        "classes": [class_name(run, kinds.names[kind]) for kind in order],
        "values": table[:, order].tolist(),
    }


def _facts(run: Run) -> list[list[str]]:
    summary = run.summary
    solver, seconds = summary["solver"], summary["seconds"]
    stages = [f"{stage} {value:.2f} s" for stage, value in seconds.items() if value >= 0.005]
    facts = {
        "seed": summary["seed"],
        "solver": f"{solver['name']} ({solver['reason']})",
        "time": ", ".join(stages),
        "input": ", ".join(summary["input"]["files"]),
        "sha256": summary["input"]["sha256"],
        "spectrograd": summary["version"],
        **_versions(summary["versions"]),
    }
    return [[name, str(value)] for name, value in facts.items()]


def _versions(versions: Mapping[str, str | None]) -> dict[str, str]:
    return {name: version for name, version in versions.items() if version is not None}
