"""Graphs as columns: each edge once, its ends by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.node_names import as_names, as_objects, as_plain
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import (
    Chosen,
    assign_roles,
    chosen_columns,
    mostly_numbers,
    role_of,
)
from spectrograd.io.coordinates import are_axes, points_message
from spectrograd.io.edge_table import EdgeTable, join_tables
from spectrograd.io.text import ROWS_TO_SNIFF
from spectrograd.notices import warn
from spectrograd.system import need
from spectrograd.typing import Array, JsonObject


def edge_columns(graph: Graph | MultilayerGraph) -> dict[str, Array]:
    """Return the columns ``src``, ``dst``, ``weight`` (where a weight is not one) and ``layer``.

    Examples
    --------
    >>> {k: v.tolist() for k, v in edge_columns(Graph.from_edges(["a", "b"], ["b", "c"], [2, 1])).items()}
    {'src': ['a', 'b'], 'dst': ['b', 'c'], 'weight': [2.0, 1.0]}
    """
    triples = [edge_rows(layer) for layer in graph.layers]
    rows, cols, weights = (np.concatenate(parts) for parts in zip(*triples, strict=True))
    columns = {"src": graph.node_names[rows], "dst": graph.node_names[cols]}
    if any(layer.is_weighted for layer in graph.layers):
        columns["weight"] = weights
    if isinstance(graph, MultilayerGraph):
        columns["layer"] = np.repeat(as_objects(graph.layer_names), [layer.n_edges for layer in graph.layers])
    return columns


def edge_rows(graph: Graph) -> tuple[Array, Array, Array]:
    """Return the ends of each edge as row numbers, smaller one first, and its weight."""
    entries = graph.matrix.tocoo()
    rows, cols = entries.coords
    once = rows < cols
    return rows[once], cols[once], entries.data[once]


# --- Whose object is this? Recognised without importing the package.


def comes_from(thing: object, *packages: str) -> bool:
    """Whether an object's class, or one it inherits from, is defined in one of the packages."""
    return any(cls.__module__.partition(".")[0] in packages for cls in type(thing).__mro__)


# --- Edge tables in memory: pandas, polars, pyarrow and structured arrays, in and out.

NAME = "edge table"
_LIKE_IDS = re.compile(r"(^|[_\W])(id|ids|node|nodes|vertex|index|idx)($|[_\W\d])|id$")
_SHARED = 0.5  # of the ids at one end that stand at the other end too


def from_frame(
    frame: object,
    *,
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    layer: str | int | None = None,
) -> Graph | MultilayerGraph:
    """Make a graph of a pandas, polars or pyarrow edge table; each row is one undirected edge.

    Parameters
    ----------
    frame : DataFrame, LazyFrame or Table
    source, target, weight, layer : str or int, optional
        The columns by name; those not named are found as in files (``src``, ``dst``, ``weight``, ``layer``
        and their synonyms; the two columns of a table of two), and those not used are named in a warning.
        ``weight="none"``: every row counts one. A ``layer`` column makes a :class:`MultilayerGraph`.

    Returns
    -------
    Graph or MultilayerGraph
        Ids keep their type.

    Examples
    --------
    >>> import pandas
    >>> from_frame(pandas.DataFrame({"src": ["a", "b"], "dst": ["b", "c"]})).node_names.tolist()
    ['a', 'b', 'c']
    """
    chosen = chosen_columns(source=source, target=target, weight=weight, layer=layer)
    return join_tables([edge_table(frame, NAME, chosen)], ["edges"], typed=True)


def to_pandas(graph: Graph | MultilayerGraph) -> Any:
    """Return the edges as a pandas DataFrame with columns ``src``, ``dst``[, ``weight``][, ``layer``]."""
    return need("pandas", "to_pandas").DataFrame(edge_columns(graph))


def to_polars(graph: Graph | MultilayerGraph) -> Any:
    """Return the edges as a polars DataFrame; ids that are neither numbers nor texts become texts."""
    polars = need("polars", "to_polars")
    return polars.DataFrame({name: as_plain(column) for name, column in edge_columns(graph).items()})


def to_arrow(graph: Graph | MultilayerGraph) -> Any:
    """Return the edges as a pyarrow Table; ids that are neither numbers nor texts become texts."""
    arrow = need("pyarrow", "to_arrow")
    return arrow.table({name: as_plain(column) for name, column in edge_columns(graph).items()})


def is_frame(thing: object) -> bool:
    """Whether a thing is a table of pandas, polars or pyarrow, or an array with named fields."""
    if _fields(thing) is not None:
        return True
    return comes_from(thing, "pandas", "polars", "pyarrow") and hasattr(thing, "columns")


def _fields(thing: object) -> tuple[str, ...] | None:
    """Names of the fields of a structured array."""
    return getattr(getattr(thing, "dtype", None), "names", None) if isinstance(thing, np.ndarray) else None


def is_edge_frame(thing: object) -> bool:
    """Whether a table has both ends of edges; columns of fractions are coordinates, whatever their name."""
    if not is_frame(thing):
        return False
    roles = {role_of(str(name)): name for name in column_names(thing)}
    if not {"src", "dst"} <= set(roles):
        return False
    return all(column_values(thing, roles[end]).dtype.kind != "f" for end in ("src", "dst"))


def holds_texts(frame: object) -> bool:
    """Whether a table has a column of texts, so that its rows cannot be points."""
    columns = (column_values(frame, name)[:ROWS_TO_SNIFF] for name in column_names(frame))
    return any(
        column.dtype.kind in "US" or (column.dtype == object and any(isinstance(x, str) for x in column))
        for column in columns
    )


def takes_for_edges(frame: object) -> bool:
    """Whether a table of whole numbers without the usual names holds edges: True with a warning, else False.

    Two or three columns of whole numbers that are not negative are edges where both ends share their ids, or
    where the columns have no names or those of ids. Where they may as well be coordinates it is an error that
    says how to call it. More columns, fractions and negative numbers are points.
    """
    names = column_names(frame)
    if len(names) not in (2, 3) or are_axes(names):
        return False
    values = [column_values(frame, name) for name in names]
    if any(column.dtype.kind not in "iu" for column in values) or not len(values[0]):
        return False
    if any(column.min() < 0 for column in values):
        return False
    call = ", ".join(
        f"{role}={name!r}" for role, name in zip(("source", "target", "weight"), names, strict=False)
    )
    first = np.unique(values[0])
    second = np.unique(values[1])
    shared = len(np.intersect1d(first, second, assume_unique=True)) / min(len(first), len(second))
    again = len(np.union1d(first, second)) <= len(values[0])
    nameless = all(isinstance(name, int | np.integer) for name in names)
    like_ids = all(_LIKE_IDS.search(str(name).lower()) for name in names[:2])
    if like_ids or (again and (nameless or shared >= _SHARED)):
        what = "its columns of ids" if like_ids else "its whole numbers that come again"
        warn(
            f"the table is taken for edges because of {what}: fit(table, {call}) says so; for points "
            "give an array, fit(table.to_numpy())",
            GraphWarning,
        )
        return True
    raise GraphError(
        f"a table of {len(names)} columns of whole numbers may hold edges or points: for edges "
        f"fit(table, {call}), for points fit(table.to_numpy())"
    )


def from_pairs(pairs: Any) -> Graph:
    """Make a graph of a list of tuples ``(a, b)`` or ``(a, b, weight)``."""
    source = [pair[0] for pair in pairs]
    target = [pair[1] for pair in pairs]
    weighted = len(pairs[0]) == 3
    if weighted and not all(isinstance(pair[2], int | float | np.number) for pair in pairs):
        bad = next(at for at, pair in enumerate(pairs) if not isinstance(pair[2], int | float | np.number))
        raise GraphError(f"edge list, entry {bad}: the weight {pairs[bad][2]!r} is not a number")
    weights = np.array([pair[2] for pair in pairs], dtype=np.float64) if weighted else None
    return Graph.from_edges(source, target, weights)


def is_list_of_pairs(thing: object) -> bool:
    """Whether a thing is a list of edges: tuples of two ends (and a weight), or lists of them with texts.

    Lists of lists of numbers are points, as in scikit-learn; edges of numbers are tuples, as in networkx.
    """
    if (
        not isinstance(thing, list | tuple)
        or not thing
        or not all(isinstance(pair, list | tuple) for pair in thing)
    ):
        return False
    if len({len(pair) for pair in thing}) != 1 or len(thing[0]) not in (2, 3):
        return False
    ends = [end for pair in thing for end in pair[:2]]
    if any(isinstance(end, str) for end in ends):
        return True
    whole = all(isinstance(end, int | np.integer) and not isinstance(end, bool) for end in ends)
    return whole and all(isinstance(pair, tuple) for pair in thing)


def edge_table(frame: object, name: str, chosen: Chosen | None = None) -> EdgeTable:
    """Find the columns of a frame and check them; errors count rows from 0."""
    roles = _roles(frame, name, chosen or {})
    by_name = {role_of(str(column)) for column in column_names(frame)} | set(chosen or {})
    if not {"src", "dst"} <= by_name and any(
        column_values(frame, roles[end]).dtype.kind == "f" for end in ("src", "dst")
    ):
        raise GraphError(points_message(name, name))
    ends = [_ids(frame, name, roles[end]) for end in ("src", "dst")]
    if len(ends[0]) == 0:
        raise GraphError(f"{name}: empty, no edges in it")
    weight = _weights(frame, name, roles["weight"]) if "weight" in roles else None
    layer = _ids(frame, name, roles["layer"]) if "layer" in roles else None
    texts = None if layer is None else as_objects(list(map(str, layer.tolist())))
    return EdgeTable(name, ends[0], ends[1], weight, texts)


def column_names(frame: Any) -> list[Any]:
    """Names of the columns in their order."""
    fields = _fields(frame)
    if fields is not None:
        return list(fields)
    if hasattr(frame, "collect_schema"):  # polars; a lazy frame should not be asked for its columns
        return list(frame.collect_schema().names())
    return list(getattr(frame, "column_names", frame.columns))  # pyarrow's ``columns`` are the data


def column_values(frame: Any, name: object) -> Array:
    """One column as an array."""
    if _fields(frame) is not None:
        return np.asarray(frame[name])
    if hasattr(frame, "collect"):
        frame = frame.select(name).collect()
    column = frame.column(name) if hasattr(frame, "column_names") else frame[name]
    return np.asarray(column.to_numpy())


def _roles(frame: object, name: str, chosen: Chosen) -> JsonObject:
    names = column_names(frame)
    roles = assign_roles(name, names, chosen, lambda at: _is_numeric(column_values(frame, names[at])))
    return {role: column for role, column in zip(roles, names, strict=True) if role is not None}


def _is_numeric(values: Array) -> bool:
    return values.dtype.kind in "iuf" or (
        values.dtype == object and mostly_numbers(values[:ROWS_TO_SNIFF].tolist())
    )


def _ids(frame: object, name: str, column: object) -> Array:
    values = column_values(frame, column)
    empty = values != values if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    if values.dtype == object:
        empty = np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))
    if empty.any():
        raise GraphError(f"{name}, row {int(np.argmax(empty))}: the column {column!r} is empty")
    if values.dtype == object:
        kinds = [type(value) for value in values]
        at = next((i for i, kind in enumerate(kinds) if kind.__hash__ is None), None)
        if at is not None:
            what = f"the column {column!r} holds a {kinds[at].__name__}"
            raise GraphError(f"{name}, row {at}: {what}; ids are texts or numbers")
    return as_names(values)


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _weights(frame: object, name: str, column: object) -> Array:
    values = column_values(frame, column)
    try:
        weight = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{name}: the column {column!r} does not hold numbers ({error})") from None
    bad = is_invalid(weight)
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(f"{name}, row {at}: weight {weight[at]} {explain_weight(weight[at])}")
    return weight
