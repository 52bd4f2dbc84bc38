"""GraphML, in and out, by the standard library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_names import as_plain
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import role_of
from spectrograd.io.edge_table import EdgeTable, ids_of_texts
from spectrograd.io.interop.frames import edge_rows
from spectrograd.io.matrices import decoding
from spectrograd.io.text import open_bytes

GRAPHML_SUFFIX = ".graphml"
_NODE_NAMES = "name"  # the attribute under which igraph keeps the names of nodes


@dataclass
class _Document:
    """What was read so far; attributes are declared before they are used, so one pass is enough."""

    path: str
    weight_key: str = ""
    default_weight: str = "1"
    name_key: str = ""
    directed: bool = False
    nodes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether each node has a name of its own."""
        return len(set(self.names.values())) == len(self.nodes) == len(self.names)


def read_graphml(path: str) -> EdgeTable:
    """Read nodes and edges; directions are dropped with a word.

    The edge attribute called ``weight`` (or a synonym) is the weight. Nodes are called by their attribute
    ``name`` (igraph) where each has one of its own, else by their id (networkx).
    """
    document = _Document(path)
    with open_bytes(path) as handle, decoding(path, "not GraphML"):
        for tag, element in _elements(handle):
            _TAKERS[tag](document, element)
    if not document.source:
        raise GraphError(f"{path}: no edges in it")
    columns = (document.source, document.target, document.nodes)
    if document.named:
        columns = tuple([document.names.get(node, node) for node in column] for column in columns)  # type: ignore[assignment]
    source, target, nodes = ids_of_texts(*columns)
    weight = np.array(document.weight)
    return EdgeTable(path, source, target, weight, nodes=nodes, directed=document.directed)


def node_attribute(path: str, wanted: Sequence[str]) -> tuple[list[str], list[str], str] | None:
    """Nodes as :func:`read_graphml` calls them, their values of the first attribute there is, and its name.

    Parameters
    ----------
    path : str
    wanted : sequence of str
        Names of attributes, the best first, in lower case.

    Returns
    -------
    nodes, values, name
        A value is blank where a node has none. None if no attribute of these names is declared.
    """
    keys: dict[str, str] = {}
    values: list[dict[str, str]] = []
    document = _Document(path)
    with open_bytes(path) as handle, decoding(path, "not GraphML"):
        for tag, element in _elements(handle):
            if tag == "key" and element.get("for", "all") in ("node", "all"):
                keys[element.get("attr.name", "").lower()] = element.get("id", "")
            if tag == "node":
                values.append({child.get("key", ""): (child.text or "").strip() for child in element})
            if tag in ("key", "node"):
                _TAKERS[tag](document, element)
    name = next((name for name in wanted if name in keys), None)
    if name is None:
        return None
    nodes = [document.names[node] for node in document.nodes] if document.named else document.nodes
    return nodes, [found.get(keys[name], "") for found in values], name


def _elements(handle: BinaryIO) -> Iterator[tuple[str, ElementTree.Element]]:
    """Each key, node and edge once it is complete; the tree is cut back as it grows."""
    graph: ElementTree.Element | None = None
    for event, element in ElementTree.iterparse(handle, events=("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if event == "start":
            if tag == "graph":
                graph = element
                yield tag, element
        elif tag in _TAKERS and tag != "graph":
            yield tag, element
            if graph is not None:
                graph.clear()


def _take_key(document: _Document, key: ElementTree.Element) -> None:
    name = key.get("attr.name", "")
    owner = key.get("for", "all")
    if owner in ("edge", "all") and role_of(name) == "weight":
        if document.weight_key and name != "weight":
            return  # the attribute of this very name goes before its synonyms
        document.weight_key = key.get("id", "")
        document.default_weight = _child(key, "default") or "1"
    elif owner in ("node", "all") and name == _NODE_NAMES:
        document.name_key = key.get("id", "")


def _take_node(document: _Document, node: ElementTree.Element) -> None:
    name = node.get("id", "")
    document.nodes.append(name)
    label = _child(node, "data", document.name_key) if document.name_key else None
    if label:
        document.names[name] = label


def _take_edge(document: _Document, edge: ElementTree.Element) -> None:
    ends = (edge.get("source"), edge.get("target"))
    number = len(document.source)
    if ends[0] is None or ends[1] is None:
        raise GraphError(f"{document.path}, edge {number}: it has no source or no target")
    text = _child(edge, "data", document.weight_key) if document.weight_key else None
    text = text or document.default_weight
    try:
        weight = float(text)
    except ValueError:
        raise GraphError(f"{document.path}, edge {number}: {text!r} is not a number (weight)") from None
    if is_invalid(weight):
        raise GraphError(f"{document.path}, edge {number}: weight {text} {explain_weight(weight)}")
    document.source.append(ends[0])
    document.target.append(ends[1])
    document.weight.append(weight)


def _take_graph(document: _Document, graph: ElementTree.Element) -> None:
    document.directed = graph.get("edgedefault") == "directed"


_TAKERS = {"graph": _take_graph, "key": _take_key, "node": _take_node, "edge": _take_edge}


def _child(element: ElementTree.Element, tag: str, key: str = "") -> str | None:
    """Text of the first child with a tag (and a key), or None."""
    for child in element:
        if child.tag.rpartition("}")[2] == tag and child.get("key", "") == key:
            return (child.text or "").strip()
    return None


def graphml_lines(graph: Graph) -> Iterator[str]:
    """The lines of a GraphML file; every node is there, also those without edges."""
    yield '<?xml version="1.0" encoding="utf-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    if graph.is_weighted:
        yield '<key id="weight" for="edge" attr.name="weight" attr.type="double"/>\n'
    yield '<graph edgedefault="undirected">\n'
    names = [quoteattr(str(name)) for name in as_plain(graph.node_names).tolist()]
    for name in names:
        yield f"<node id={name}/>\n"
    for row, col, weight in zip(*(column.tolist() for column in edge_rows(graph)), strict=True):
        data = f'<data key="weight">{weight!r}</data>' if graph.is_weighted else ""
        yield f"<edge source={names[row]} target={names[col]}>{data}</edge>\n"
    yield "</graph>\n</graphml>\n"
