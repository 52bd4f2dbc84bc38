"""The content of a page as plain values, without HTML: tables, and figures in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from spectrograd.graph import Recall
from spectrograd.labels.eigengap import widest_gap
from spectrograd.report.run import Run
from spectrograd.report.scatter import (
    MISSING,
    USUALLY,
    DrawnAtMost,
    class_name,
    cluster_name,
    group,
    points_document,
)
from spectrograd.typing import JsonMapping, JsonObject

SCORE_TITLES = {"purity": "purity", "nmi": "NMI", "ri": "RI", "ari": "ARI"}

COLUMN_MEANINGS = {
    "seconds": "time of the solver, without compiling and measuring",
    "iterations": "its own steps; a direct method has none",
    "passes": "how often it read all edges",
    "purity": "share of nodes in a cluster where their class is the most frequent",
    "NMI": "what clusters and classes tell of each other: 0 nothing, 1 everything",
    "RI": "share of pairs of nodes that are together in both or apart in both",
    "ARI": "the same, corrected for chance: 0 is chance, 1 the same clusters",
}


def methods_table(rows: Sequence[Mapping[str, object]]) -> JsonObject:
    """The methods of ``demo`` in a table, the last one marked, and what its columns mean."""
    cells = [_method_cells(row) for row in rows]
    if cells and rows[-1]["error"] is None:
        cells[-1][0] += " (what you get unless you ask for another)"
    return {
        "table": {
            "caption": "Each layer alone, then the methods on the merged layers",
            "columns": ["method", "seconds", "iterations", "passes", *SCORE_TITLES.values()],
            "rows": cells,
        },
        "meanings": COLUMN_MEANINGS,
    }


def _method_cells(row: JsonMapping) -> list[str]:
    name = row["method"] if row["error"] is None else f"{row['method']}: failed, {row['error']}"
    iterations = None if row["iterations"] == 1 else row["iterations"]  # a direct method has none
    return [
        str(name),
        number(row["seconds"], 2),
        "–" if iterations is None else f"{iterations:,}",
        number(row["passes"] or None, 1),
        *(number(row[key], 3) for key in SCORE_TITLES),
    ]


def number(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


# --- Figures in plain words, for readers who do not think in residuals.

TINY = 1e-12
BELOW = "less than 10⁻¹²"
MERGED_GAP = (
    "Merged layers may have a gap after as many eigenvalues as were asked for by construction (Eq. 22): it "
    "says nothing about the number of clusters."
)


def certificate_words(certificate: Mapping[str, object], short_layers: Sequence[str] = ()) -> list[str]:
    """What a certificate (as in ``--summary-json``) means, a sentence each; the verdict first.

    ``short_layers`` are those whose own embedding, which the result is made of, fell short.
    """
    if not certificate["converged"]:
        verdict = "The eigenvectors did not reach the accuracy that was asked for; read them with care."
    elif short_layers:
        names = ", ".join(short_layers)
        verdict = f"The merge is as accurate as was asked for, but not these layers it is made of: {names}."
    else:
        verdict = "The eigenvectors are as accurate as was asked for."
    return [verdict, _angle(certificate), _missed(certificate), _residual(certificate)]


VERDICTS = {
    "clear": "The clusters are clear.",
    "weak": "The clusters are weak.",
    "none beyond chance": "The clusters are none beyond chance.",
    "not judged": "The clusters were not judged.",
}


def cluster_verdict_words(judged: JsonMapping | None) -> JsonObject | None:
    """What a verdict on clusters (as in ``--summary-json``) means; None where there is none."""
    if judged is None:
        return None
    words = [VERDICTS[judged["verdict"]], *_figures(judged)]
    return {"good": judged["verdict"] == "clear", "words": words, "exact": judged["sentence"]}


def _figures(judged: Mapping[str, object]) -> list[str]:
    if judged["conductance"] is None or judged["chance_conductance"] is None:
        return []
    sentences = [
        f"On average {judged['conductance']:.0%} of the weight of a cluster's edges leaves it; in a random "
        f"graph with the same degrees, clustered in the same way, {judged['chance_conductance']:.0%} does."
    ]
    if judged["needed_confidence"] is not None:
        sentences.append(
            f"Nodes are assigned with a confidence of {judged['confidence']:.2f} on average; without any "
            f"borders between the clusters it may reach {judged['needed_confidence']:.2f}."
        )
    return [*sentences, f"The largest cluster has {judged['largest_share']:.0%} of the nodes."]


def _angle(certificate: JsonMapping) -> str:
    bound = certificate["angle_bound"]
    gap = certificate["gap"]
    if gap is not None and gap <= 0:
        return (
            "An eigenvalue as small as the last one lies outside: where the eigenvectors were cut off is "
            "arbitrary, and another number of them (-k) may suit the graph better."
        )
    if bound is None or bound >= 1:
        return "How far the coordinates are from the true eigenvectors cannot be bounded."
    degrees = math.degrees(math.asin(bound))
    size = "less than 0.001°" if degrees < 0.001 else f"at most {degrees:.2g}°"
    return f"The space of coordinates is tilted by {size} against that of the true eigenvectors."


def _missed(certificate: JsonMapping) -> str:
    odds = certificate["missed_probability"]
    if odds == 0:
        return "No smaller eigenvalue was overlooked: all of them were counted."
    if odds is None or odds >= 1:
        return "Whether a smaller eigenvalue was overlooked is not known."
    return f"Had a smaller one been overlooked, the chance of evidence this good would be {small(odds)}."


def _residual(certificate: JsonMapping) -> str:
    return (
        "Put into their equation, the eigenvectors leave a remainder of "
        f"{small(certificate['max_residual'])}; "
        f"they are perpendicular up to {small(certificate['orthogonality'])}."
    )


def small(value: float | None) -> str:
    """A small number as people write it: ``3 · 10⁻⁵``."""
    if value is None:
        return "an unknown size"
    if value < TINY:
        return BELOW
    if value >= 0.001:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} · 10{raised}"


def share_words(value: float | None) -> str:
    """A share from 0 to 1; a small one is not written as 0.000, which only a true zero is."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:.3f}" if value >= 0.001 else small(value)


def suggested_clusters(values: Sequence[float], beyond: float | None) -> int | None:
    """The number of clusters by the rule of ``-k auto``; None with too few to compare."""
    known = [*values, *([] if beyond is None else [beyond])]
    return widest_gap(known).n_clusters if len(known) > 2 else None


def treatment_words(
    regularization: JsonMapping | None,
    excluded: JsonMapping | None,
    treatment: JsonMapping | None = None,
    aggregation: JsonMapping | None = None,
) -> list[str]:
    """What was done to the graph and its vectors, a sentence each; nothing where all was left as it is.

    ``regularization``, ``treatment`` and ``aggregation`` are those of ``--summary-json``; ``excluded`` has
    ``count``, ``share`` and ``names``.
    """
    sentences = []
    if aggregation is not None and aggregation.get("relative_information"):
        sentences.append(f"The layers were merged by {aggregation['sentence']}.")
    if treatment is not None and treatment.get("candidates"):
        sentences.append(f"The clusters were made from {treatment['name']}: {treatment['reason']}.")
    if treatment is not None and treatment.get("lopsided"):
        sentences.append(f"{treatment['lopsided'][:1].upper()}{treatment['lopsided'][1:]}.")
    if regularization is not None and regularization.get("tau"):
        tau = regularization["tau"]
        sentences.append(
            f"The graph was regularised with tau = {tau:g}: {tau:g} mean degrees were spread over all pairs "
            "of nodes. Eigenvalues and eigenvectors are those of the regularised graph, not of the graph as "
            f"it was given ({regularization['reason']})."
        )
    if excluded is not None:
        count = excluded["count"]
        names = ", ".join(excluded["names"])
        more = ", …" if count > len(excluded["names"]) else ""
        sentences.append(
            f"{count:,} node{'s' if count != 1 else ''} ({excluded['share']:.2%}) took no part, not being "
            f"connected to the rest, and are in no cluster: {names}{more}."
        )
    return sentences


def spectrum_words(
    values: Sequence[float], beyond: float | None, *, merged: bool = False, hint: bool = True
) -> str:
    """Where the eigenvalues jump most, and what that says; why those of a merge may be negative.

    A merge has a gap after the number of clusters that was asked for, whatever the data (Eq. 22): it hints at
    nothing. Neither does ``hint=False``, for data whose clusters are known.
    """
    text = MERGED_GAP if merged else _jump_words(values, beyond, hint=hint)
    if merged and min(values) < -TINY:
        text += (
            " Eigenvalues of merged layers may be negative: what the layers agree on is subtracted from the "
            "sum of their Laplacians (Eq. 22)."
        )
    return text


def _jump_words(values: Sequence[float], beyond: float | None, *, hint: bool) -> str:
    count = suggested_clusters(values, beyond)
    if count is None:
        return "Too few eigenvalues to compare gaps."
    gap = [*values, beyond or 0.0][count] - values[count - 1]
    text = f"The largest jump for its height, {gap:.3g}, comes after {count} eigenvalues"
    says = f": a hint at {count} clusters" if hint else ""
    if count == len(values):
        return f"{text}{says}. The next eigenvalue is an estimate."
    return f"{text} of {len(values)}{says}."


def convergence_words(curve: JsonMapping) -> str:
    """How long the solver took."""
    seconds = curve["seconds"]
    solver = curve["solver"]
    if len(seconds) < 2:
        when = f", done after {seconds[-1]:.2f} s" if seconds else ""
        return f"{solver} is a direct method: it has no iterations to show{when}."
    return f"{solver}: {len(seconds)} measurements in {seconds[-1]:.2f} s; measuring is not in the time."


# --- Run -> dict: what the page of ``embed`` or ``cluster`` says, in plain values and without any HTML.


SHOWN_MEMBERS = 6
SHOWN_LAYERS = 8
SHOWN_UNCERTAIN = 25


def run_document(run: Run, most: DrawnAtMost = USUALLY) -> JsonObject:
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
        "treatment": treatment_words(
            summary.get("regularization"),
            run.excluded,
            summary.get("treatment"),
            summary.get("aggregation"),
        ),
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


def _certificate(run: Run) -> JsonObject:
    """The verdict in words; a layer that fell short takes the trust of the whole with it."""
    certificate = run.summary["certificate"]
    short = [layer for layer in run.layers if not layer["converged"]]
    return {
        "converged": certificate["converged"] and not short,
        "words": certificate_words(certificate, [layer["name"] for layer in short]),
        "exact": [certificate["sentence"], *(f"layer {each['name']}: {each['sentence']}" for each in short)],
    }


def _scores(run: Run) -> JsonObject | None:
    scores = run.summary["scores"]
    if scores is None or run.nodes.classes is None:
        return None
    known = int(np.count_nonzero(run.nodes.classes != -1))
    return {
        "caption": f"Agreement with {run.truth} ({known:,} labelled nodes)",
        "columns": list(SCORE_TITLES.values()),
        "rows": [[number(scores[key], 3) for key in SCORE_TITLES]],
    }


def _clusters(run: Run) -> JsonObject | None:
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


def _uncertain(run: Run) -> list[JsonObject] | None:
    """The nodes whose labels are least sure, the worst first."""
    labels = run.nodes.labels
    sure = run.nodes.membership
    if labels is None or sure is None:
        return None
    worst = np.argsort(sure, kind="stable")[:SHOWN_UNCERTAIN]  # NaN, of nodes excluded, is last
    worst = worst[np.isfinite(sure[worst])]
    return [
        {"node": str(run.nodes.names[row]), "cluster": int(labels[row]), "confidence": float(sure[row])}
        for row in worst
    ]


def _confusion(run: Run) -> dict[str, object] | None:
    """How many nodes of each class are in each cluster."""
    labels = run.nodes.labels
    classes = run.nodes.classes
    if labels is None or classes is None:
        return None
    # Only nodes whose class is known are counted.
    known = classes != -1
    found = group(labels[known])
    kinds = group(classes[known])
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
    solver = summary["solver"]
    seconds = summary["seconds"]
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
