"""The points of the scatter: coordinates and colours as base64, few enough to be drawn smoothly."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from spectrograd.report.figures import project
from spectrograd.report.run import Nodes, Run
from spectrograd.typing import Array, JsonObject

MISSING = -1  # the label of nodes that were excluded, the class of those it is not known of
DOT = 0.05  # of the whole width: below, a cluster is drawn as one point


@dataclass(frozen=True)
class DrawnAtMost:
    """How much of a run is drawn: what a browser turns smoothly, and what fits into a menu or a legend."""

    points: int = 200_000
    columns: int = 8
    groups: int = 100
    layers: int = 20


USUALLY = DrawnAtMost()


@dataclass(frozen=True, eq=False)
class Groups:
    """Nodes by cluster or class: a code per node, a name per code.

    ``shown`` are the values that have a code of their own; the rest share a name. Nodes of no group (-1) have
    the last code, ``missing``, which is None where there are no such nodes.
    """

    codes: Array
    names: list[str]
    shown: list[Any]
    missing: int | None = None


def group(values: Array, most: int = USUALLY.groups) -> Groups:
    """Number the values; where there are many, the largest keep a number and the others share one.

    Examples
    --------
    >>> found = group(np.array([1, -1, 0, 1]))
    >>> found.codes.tolist(), found.names, found.shown, found.missing
    ([1, 2, 0, 1], ['0', '1', '-1'], [0, 1], 2)
    """
    kinds, codes, sizes = np.unique(values, return_inverse=True, return_counts=True)
    alone = np.flatnonzero(kinds == MISSING)
    real = np.flatnonzero(kinds != MISSING)
    kept = real
    names: list[str] = []
    if len(real) > most:
        kept = np.sort(real[np.argsort(-sizes[real], kind="stable")[: most - 1]])
        names = [f"the other {len(real) - len(kept):,}"]
    names = [*(str(kind) for kind in kinds[kept]), *names]
    place = np.full(len(kinds), len(kept))
    place[kept] = np.arange(len(kept))
    missing = len(names) if len(alone) else None
    if missing is not None:
        place[alone] = missing
        names.append(str(MISSING))
    return Groups(place[codes], names, kinds[kept].tolist(), missing)


def points_document(run: Run, most: DrawnAtMost = USUALLY) -> JsonObject:
    """Names, coordinates, groups and scores of the nodes that are drawn.

    Returns
    -------
    dict
        ``names``; ``columns`` (``name``, ``data``) and ``scores`` (also ``title``); ``groups`` (``title``,
        ``names``, ``codes``); ``edges`` of the drawing; ``axes``, the columns shown first in the plane and in
        space; ``view``, what the first columns are, and ``note``, what was left out (both empty where there
        is nothing to say).
    """
    whole = run.nodes
    view, what, collapsed = _view(whole)
    rows = sample(len(whole), most.points)
    nodes = whole.take(rows)
    width = min(nodes.vectors.shape[1], most.columns)
    numbers = range(run.spectrum["first"], run.spectrum["first"] + width)
    vectors = [(f"eigenvector {number}", nodes.vectors[:, i]) for i, number in enumerate(numbers)]
    layout, drawing = _layout(nodes)
    columns = [*((name, column[rows]) for name, column in view), *vectors]
    axes = _axes(len(view), run.spectrum["first"], len(columns), by_eigenvectors=collapsed)
    if collapsed and layout:
        axes["plane"] = [len(columns), len(columns) + 1]
    columns += layout
    return {
        "names": [str(name) for name in nodes.names.tolist()],
        "columns": [{"name": name, "data": _floats(column)} for name, column in columns],
        "groups": _groups(run, rows, most.groups),
        "edges": _encoded(np.asarray(run.edges, dtype="<i4")),
        "scores": _scores(run, nodes, most.layers),
        "axes": axes,
        "view": " ".join(filter(None, (what, drawing))),
        "note": _note(len(nodes), len(whole), width, whole.vectors.shape[1]),
    }


def sample(n_nodes: int, most: int = USUALLY.points) -> Array:
    """Rows to draw: all, or a random choice, in order; always the same one."""
    if n_nodes <= most:
        return np.arange(n_nodes)
    return np.sort(np.random.default_rng(0).choice(n_nodes, most, replace=False))


def _view(nodes: Nodes) -> tuple[list[tuple[str, Array]], str, bool]:
    """Columns made for looking at clusters, what they are, and whether each cluster is but a dot there."""
    if nodes.labels is None:
        return [], "", False
    plane, what = project(nodes.vectors.astype(np.float64), nodes.labels)
    text = f"View 1 and view 2: {what} of the rows, which were scaled to unit length before."
    collapsed = _is_collapsed(plane, nodes.labels)
    if collapsed:
        text += " There each cluster is hardly more than a dot, so other coordinates are shown first."
    return [("view 1", plane[:, 0]), ("view 2", plane[:, 1])], text, collapsed


def _layout(nodes: Nodes) -> tuple[list[tuple[str, Array]], str]:
    if nodes.layout is None:
        return [], ""
    text = "Layout 1 and layout 2: a drawing of the graph in which edges pull and nodes repel each other."
    return [("layout 1", nodes.layout[:, 0]), ("layout 2", nodes.layout[:, 1])], text


def _is_collapsed(plane: Array, labels: Array) -> bool:
    """Whether the nodes of every cluster lie on top of each other."""
    found = np.unique(labels[labels != MISSING])
    within = max((float(plane[labels == label].std(axis=0).max()) for label in found), default=0.0)
    return within < DOT * float(plane[labels != MISSING].std(axis=0).max(initial=0.0))


def _axes(n_view: int, first: int, n_columns: int, *, by_eigenvectors: bool) -> dict[str, list[int]]:
    """The view in the plane; in space, and where the view is of no use, eigenvectors beyond the constant."""
    start = n_view + (1 if first == 1 else 0)

    def beyond(count: int) -> list[int]:
        """As many columns as wanted, ending earlier where there are none left."""
        begin = max(0, min(start, n_columns - count))
        return [min(begin + i, n_columns - 1) for i in range(count)]

    return {"plane": [0, 1] if n_view and not by_eigenvectors else beyond(2), "space": beyond(3)}


def cluster_name(name: str) -> str:
    """What a cluster is called: that of excluded nodes is none."""
    return "none" if name == str(MISSING) else name


def class_name(run: Run, name: str) -> str:
    """What a class is called; ``name`` is its number as text."""
    if name == "-1":
        return "unknown"
    return run.class_names[int(name)] if run.class_names and name.isdigit() else name


def _groups(run: Run, rows: Array, most: int) -> list[JsonObject]:
    known = [("cluster", run.nodes.labels), ("class", run.nodes.classes)]
    found = [(title, group(values, most)) for title, values in known if values is not None]
    return [
        {
            "title": title,
            "names": [
                class_name(run, name) if title == "class" else cluster_name(name) for name in groups.names
            ],
            "codes": _encoded(groups.codes[rows].astype(np.uint8)),
            "missing": groups.missing,
        }
        for title, groups in found
    ]


def _scores(run: Run, nodes: Nodes, most_layers: int) -> list[JsonObject]:
    found = []
    if nodes.membership is not None:
        sure = np.nan_to_num(nodes.membership)
        found.append(("confidence", "confidence in the label", sure))
    if nodes.scores is not None and run.agreement is not None:
        names = run.agreement["names"][: nodes.scores.shape[1]][:most_layers]
        found += [
            (f"layer {name}", f"agreement with layer {name}", nodes.scores[:, i])
            for i, name in enumerate(names)
        ]
    return [{"name": name, "title": title, "data": _encoded(_bytes(values))} for name, title, values in found]


def _note(n_shown: int, n_nodes: int, n_columns: int, n_vectors: int) -> str:
    parts = []
    if n_shown < n_nodes:
        parts.append(
            f"Drawn are {n_shown:,} of {n_nodes:,} nodes, chosen at random; the search finds only these, "
            "the tables count all."
        )
    if n_columns < n_vectors:
        parts.append(f"The first {n_columns} of {n_vectors} eigenvectors can be chosen as axes.")
    return " ".join(parts)


def _bytes(shares: Array) -> Array:
    """Numbers from 0 to 1 in 256 steps: finer than the eye distinguishes colours."""
    return np.asarray(np.rint(shares * 255), dtype=np.uint8)


def _floats(column: Array) -> str:
    return _encoded(np.ascontiguousarray(column, dtype="<f4"))


def _encoded(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
