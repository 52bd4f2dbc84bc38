"""Edge tables in memory: pandas or polars frames and structured arrays with a ``layer`` column."""

from __future__ import annotations

from typing import Any

import numpy as np

from spectrograd.graph import Array, GraphError, MultilayerGraph
from spectrograd.io import join_edges
from spectrograd.io.tables import COLUMN_NAMES, EdgeTable

NAME = "edge table"


def is_frame(value: Any) -> bool:
    """Whether the value has named columns: a data frame or a structured array."""
    return _columns(value) is not None


def read_layers(frame: Any) -> MultilayerGraph:
    """The layers of a long edge table: columns ``src, dst, layer`` and, if it likes, ``weight``.

    Columns are found by the same names as in files (``source``, ``target``, ...; case does not matter),
    others are ignored. Errors name the row, counted from 0.
    """
    found = {role: _column(frame, role) for role in COLUMN_NAMES}
    missing = [role for role in ("src", "dst", "layer") if found[role] is None]
    if missing:
        seen = ", ".join(map(str, _columns(frame)))
        raise GraphError(
            f"{NAME}: no column {missing[0]!r}; several layers need the columns src, dst, layer and, "
            f"where edges differ, weight (found: {seen})"
        )
    ends = [_ids(found[role], role) for role in ("src", "dst")]
    if ends[0].dtype != ends[1].dtype:
        ends = [end.astype(str).astype(object) for end in ends]
    layer = np.array([str(value) for value in _ids(found["layer"], "layer")], dtype=object)
    table = EdgeTable(NAME, ends[0], ends[1], _weights(found["weight"]), layer)
    if len(layer) == 0:
        raise GraphError(f"{NAME}: it has no rows")
    graph = join_edges([table], [NAME])
    assert isinstance(graph, MultilayerGraph)
    return graph


def _columns(frame: Any) -> Any:
    names = getattr(getattr(frame, "dtype", None), "names", None)
    return names if names is not None else getattr(frame, "columns", None)


def _column(frame: Any, role: str) -> Array | None:
    wanted = COLUMN_NAMES[role]
    same = [name for name in _columns(frame) if str(name).lower() in wanted]
    if len(same) > 1:
        raise GraphError(
            f"{NAME}: columns {same[0]!r} and {same[1]!r} both name the {role}; keep one of them"
        )
    return np.asarray(frame[same[0]]) if same else None


def _ids(values: Array | None, role: str) -> Array:
    """Whole numbers as int64, anything else as text; nothing may be missing."""
    assert values is not None
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    if missing.any():
        raise GraphError(f"{NAME}, row {int(np.argmax(missing))}: the {role} column is empty")
    if values.dtype.kind == "f" and (values == np.floor(values)).all():  # pandas: integers once beside a NaN
        return values.astype(np.int64)
    return np.array([str(value) for value in values.tolist()], dtype=object)


def _weights(values: Array | None) -> Array | None:
    if values is None:
        return None
    try:
        weight = values.astype(np.float64)
    except (TypeError, ValueError):
        raise GraphError(f"{NAME}: the weight column holds something that is not a number") from None
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(f"{NAME}, row {at}: weight {weight[at]} must be finite and not negative")
    return weight
