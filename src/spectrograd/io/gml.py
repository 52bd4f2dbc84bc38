"""GML, read by a scanner of its own: keys followed by numbers, texts, or lists in brackets."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import role_of
from spectrograd.io.edge_table import EdgeTable, ids_of_texts
from spectrograd.io.text import TextFile

GML_SUFFIX = ".gml"
_TOKEN = re.compile(r'\s+|#[^\n]*|"(?P<text>[^"]*)"|(?P<word>[^\s"\[\]]+)|(?P<bracket>[\[\]])')
_MAX_DEPTH = 50  # lists inside lists: graphics have two
Record = list[tuple[str, Any]]  # keys may come several times


def read_gml(path: str) -> EdgeTable:
    """Read nodes and edges; directions are dropped with a word.

    Nodes are called by their ``label`` where each has one of its own, else by their ``id``. The edge
    attribute ``weight`` (or a synonym, such as ``value``) is the weight.
    """
    file = TextFile(path)
    with file.open() as handle:
        tokens = _tokens(file, handle.read())
    graph = _one(_record(file, tokens, 0), "graph")
    if not isinstance(graph, list):
        raise GraphError(f"{path}: no 'graph [ ... ]' in it; this is not GML")
    name_of = _names(file, [record for key, record in graph if key == "node"])
    edges = [record for key, record in graph if key == "edge"]
    if not edges:
        raise GraphError(f"{path}: no edges in it")
    ends = [
        [_end(file, at, edge, end, name_of) for at, edge in enumerate(edges)] for end in ("source", "target")
    ]
    source, target, nodes = ids_of_texts(*ends, list(name_of.values()))
    weight = np.array([_weight(file, at, edge) for at, edge in enumerate(edges)])
    return EdgeTable(path, source, target, weight, nodes=nodes, directed=_one(graph, "directed") == "1")


def _tokens(file: TextFile, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind (``text``, ``word``, ``bracket``) and value of each token."""
    at = 0
    line = 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise file.error(line, "a quote is not closed")
        if found.lastgroup:
            yield line, found.lastgroup, found[found.lastgroup]
        line += text.count("\n", at, found.end())
        at = found.end()


def _record(file: TextFile, tokens: Iterator[tuple[int, str, str]], depth: int) -> Record:
    """Keys and values up to the closing bracket, or to the end of the file."""
    found: Record = []
    line = 1
    for line, kind, key in tokens:
        if (kind, key) == ("bracket", "]") and depth:
            return found
        value_line, value_kind, value = next(tokens, (line, "", ""))
        if kind != "word" or not value_kind or (value == "]" and value_kind == "bracket"):
            raise file.error(line, f"{key!r}: a key and its value expected")
        if value_kind == "bracket":
            if depth == _MAX_DEPTH:
                raise file.error(value_line, f"more than {_MAX_DEPTH} lists inside each other")
            found.append((key, _record(file, tokens, depth + 1)))
        else:
            found.append((key, html.unescape(value) if value_kind == "text" else value))
    if depth:
        raise file.error(line, "a bracket is not closed; the file was cut off")
    return found


def _one(record: object, key: str) -> Any:
    """The first value of a key, or None."""
    return next((value for name, value in record if name == key), None) if isinstance(record, list) else None


def _names(file: TextFile, records: list[object]) -> dict[str, str]:
    """What each id is called."""
    ids = [_one(record, "id") for record in records]
    missing = next((at for at, node in enumerate(ids) if not isinstance(node, str)), None)
    if missing is not None:
        raise GraphError(f"{file.name}, node {missing}: it has no id")
    if len(set(ids)) < len(ids):
        twice = next(node for node in ids if ids.count(node) > 1)
        raise GraphError(f"{file.name}: two nodes have the id {twice}")
    labels = [_one(record, "label") for record in records]
    own = all(isinstance(label, str) and label for label in labels) and len(set(labels)) == len(labels)
    return dict(zip(ids, labels if own else ids, strict=True))


def _end(file: TextFile, at: int, edge: object, end: str, name_of: dict[str, str]) -> str:
    node = _one(edge, end)
    if not isinstance(node, str) or node not in name_of:
        raise GraphError(f"{file.name}, edge {at}: its {end} {node!r} is none of the nodes")
    return name_of[node]


def _weight(file: TextFile, at: int, edge: Any) -> float:
    keys = [key for key, _ in edge if role_of(key) == "weight"]
    text = _one(edge, "weight" if "weight" in keys else keys[0]) if keys else "1"
    try:
        weight = float(text)
    except (TypeError, ValueError):
        raise GraphError(f"{file.name}, edge {at}: {text!r} is not a number (weight)") from None
    if is_invalid(weight):
        raise GraphError(f"{file.name}, edge {at}: weight {text} {explain_weight(weight)}")
    return weight
