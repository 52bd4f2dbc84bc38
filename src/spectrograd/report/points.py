"""The points of the scatter: coordinates and colours as base64, few enough to be drawn smoothly."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.report.picture import project
from spectrograd.report.run import Nodes, Run

Array = NDArray[Any]

SHOWN_POINTS = 200_000
SHOWN_COLUMNS = 8
SHOWN_GROUPS = 100
SHOWN_LAYERS = 20


@dataclass(frozen=True, eq=False)
class Groups:
    """Nodes by cluster or class: a code per node, a name per code.

    ``shown`` are the values that have a code of their own; the rest share the last name.
    """

    codes: Array
    names: list[str]
    shown: list[Any]


def group(values: Array) -> Groups:
    """Number the values; where there are many, the largest keep a number and the others share one."""
    kinds, codes, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if len(kinds) <= SHOWN_GROUPS:
        return Groups(codes, [str(kind) for kind in kinds], kinds.tolist())
    kept = np.sort(np.argsort(-sizes, kind="stable")[: SHOWN_GROUPS - 1])
    place = np.full(len(kinds), len(kept))
    place[kept] = np.arange(len(kept))
    names = [*(str(kind) for kind in kinds[kept]), f"the other {len(kinds) - len(kept):,}"]
    return Groups(place[codes], names, kinds[kept].tolist())


def points_document(run: Run) -> dict[str, Any]:
    """Names, coordinates, groups and scores of the nodes that are drawn.

    Returns
    -------
    dict
        ``names``; ``columns`` and ``scores`` (``name``, ``data``); ``groups`` (``title``, ``names``,
        ``codes``); ``axes``, the columns shown first in the plane and in space; ``view``, what the first
        two columns are, and ``note``, what was left out (both empty where there is nothing to say).
    """
    whole = run.nodes
    view, what = _view(whole)
    rows = sample(len(whole))
    nodes = whole.take(rows)
    width = min(nodes.vectors.shape[1], SHOWN_COLUMNS)
    numbers = range(run.spectrum["first"], run.spectrum["first"] + width)
    vectors = [(f"eigenvector {number}", nodes.vectors[:, i]) for i, number in enumerate(numbers)]
    columns = [*((name, column[rows]) for name, column in view), *vectors]
    return {
        "names": [str(name) for name in nodes.names.tolist()],
        "columns": [{"name": name, "data": _floats(column)} for name, column in columns],
        "groups": _groups(whole, rows),
        "scores": _scores(run, nodes),
        "axes": _axes(len(view), run.spectrum["first"], len(columns)),
        "view": what,
        "note": _note(len(nodes), len(whole), width, whole.vectors.shape[1]),
    }


def sample(n_nodes: int) -> Array:
    """Rows to draw: all, or a random choice, in order; always the same one."""
    if n_nodes <= SHOWN_POINTS:
        return np.arange(n_nodes)
    return np.sort(np.random.default_rng(0).choice(n_nodes, SHOWN_POINTS, replace=False))


def _view(nodes: Nodes) -> tuple[list[tuple[str, Array]], str]:
    if nodes.labels is None:
        return [], ""
    plane, what = project(nodes.vectors.astype(np.float64), nodes.labels)
    text = f"View 1 and view 2: rows scaled to unit length, {what}."
    return [("view 1", plane[:, 0]), ("view 2", plane[:, 1])], text


def _axes(n_view: int, first: int, n_columns: int) -> dict[str, list[int]]:
    """The view in the plane; in space, and where there is no view, eigenvectors beyond the constant one."""
    start = n_view + (1 if first == 1 else 0)

    def beyond(count: int) -> list[int]:
        """As many columns as wanted, ending earlier where there are none left."""
        begin = max(0, min(start, n_columns - count))
        return [min(begin + i, n_columns - 1) for i in range(count)]

    return {"plane": [0, 1] if n_view else beyond(2), "space": beyond(3)}


def _groups(whole: Nodes, rows: Array) -> list[dict[str, Any]]:
    known = [("cluster", whole.labels), ("class", whole.classes)]
    found = [(title, group(values)) for title, values in known if values is not None]
    return [
        {
            "title": title,
            "names": ["unknown" if title == "class" and name == "-1" else name for name in groups.names],
            "codes": _encoded(groups.codes[rows].astype(np.uint8)),
        }
        for title, groups in found
    ]


def _scores(run: Run, nodes: Nodes) -> list[dict[str, Any]]:
    if nodes.scores is None or run.agreement is None:
        return []
    names = run.agreement["names"][: nodes.scores.shape[1]][:SHOWN_LAYERS]
    return [{"name": name, "data": _encoded(_bytes(nodes.scores[:, i]))} for i, name in enumerate(names)]


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
    """Numbers from 0 to 1 in 256 steps: finer than colours can be told apart."""
    return np.asarray(np.rint(shares * 255), dtype=np.uint8)


def _floats(column: Array) -> str:
    return _encoded(np.ascontiguousarray(column, dtype="<f4"))


def _encoded(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
