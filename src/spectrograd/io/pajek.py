"""Text formats of networks with sections or attributes: Infomap, Pajek, multinet and networkx edge lists.

Edges of several layers are collected in :class:`LayeredEdges` while a file is read.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

import numpy as np

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.validation import explain_weight, is_invalid
from spectrograd.io.columns import NO_WEIGHT, Chosen, role_of
from spectrograd.io.edge_table import EdgeTable, ids_of_texts
from spectrograd.io.text import TextFile, data_lines, is_number, split_line
from spectrograd.notices import warn


@dataclass
class LayeredEdges:
    """Ends, weights and layers, collected line by line; node and layer names replace ids at the end."""

    file: TextFile
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    layer: list[str] = field(default_factory=list)
    node_names: dict[str, str] = field(default_factory=dict)
    layer_names: dict[str, str] = field(default_factory=dict)

    def add(self, line: int, ends: tuple[str, str], weight: str, layer: str) -> None:
        """One edge; its weight is checked here, where the line is known."""
        try:
            value = float(weight)
        except ValueError:
            raise self.file.error(line, f"{weight!r} is not a number (weight)") from None
        if is_invalid(value):
            raise self.file.error(line, f"weight {weight} {explain_weight(float(weight))}")
        self.source.append(ends[0])
        self.target.append(ends[1])
        self.weight.append(value)
        self.layer.append(layer)

    def table(self) -> EdgeTable:
        """The edges as any other table with a ``layer`` column."""
        if not self.source:
            raise GraphError(f"{self.file.name}: no edges inside the layers were found")
        columns = [[self.node_names.get(end, end) for end in ends] for ends in (self.source, self.target)]
        ends = ids_of_texts(*columns)
        layers = np.array([self.layer_names.get(layer, layer) for layer in self.layer], dtype=object)
        return EdgeTable(self.file.name, ends[0], ends[1], np.array(self.weight), layers)


# --- Infomap's multilayer text: ``*Vertices``, ``*Layers``, ``*Multilayer``, ``*Intra``, ``*Inter``.

INFOMAP_SUFFIX = ".net"
SECTIONS = (
    "*vertices",
    "*layers",
    "*multilayer",
    "*multiplex",
    "*intra",
    "*inter",
)


def looks_like_infomap(file: TextFile) -> bool:
    """Whether the first data line opens a section."""
    return file.first_line.lstrip().startswith("*")


def read_infomap(path: str) -> EdgeTable:
    """Read the edges inside the layers; edges between layers are left out with a warning.

    ``*Multilayer`` lines are ``layer node layer node [weight]``, ``*Intra`` lines ``layer node node
    [weight]``; ``*Vertices`` and ``*Layers`` (``id "name"``) give names to the numbers.
    """
    edges = LayeredEdges(TextFile(path))
    section = ""
    between = 0
    with edges.file.open() as handle:
        for number, line in data_lines(handle):
            words = split_line(line, None)
            if words[0].startswith("*"):
                section = _infomap_section(edges.file, number, words[0].lower())
            else:
                between += _take_infomap(edges, section, number, words)
    if between:
        warn(f"{edges.file.name}: {between} edges between layers left out", GraphWarning)
    return edges.table()


def _infomap_section(file: TextFile, number: int, name: str) -> str:
    if name not in SECTIONS:
        raise file.error(number, f"unknown section {name!r}; known are {' '.join(SECTIONS)}")
    return name


def _take_infomap(edges: LayeredEdges, section: str, number: int, words: list[str]) -> int:
    """Use one line; 1 if it is an edge between layers."""
    if section in ("*vertices", "*layers"):
        names = edges.node_names if section == "*vertices" else edges.layer_names
        if len(words) > 1:
            names[words[0]] = words[1]
        return 0
    if section == "*inter":
        return 1
    if section in ("*multilayer", "*multiplex"):
        _check_width(edges.file, number, words, 4, "layer node layer node [weight]")
        if words[0] != words[2]:
            return 1
        del words[2]
    elif section == "*intra":
        _check_width(edges.file, number, words, 3, "layer node node [weight]")
    else:
        raise GraphError(
            f"{edges.file.name}, line {number}: data before the first section (*Multilayer, ...)"
        )
    edges.add(number, (words[1], words[2]), words[3] if len(words) > 3 else "1", words[0])
    return 0


def _check_width(file: TextFile, number: int, words: list[str], width: int, form: str) -> None:
    if len(words) not in (width, width + 1):
        raise file.error(number, f"{width} or {width + 1} columns expected ({form}), found {len(words)}")


# --- Pajek's ``.net``: ``*Vertices``, then ``*Edges``, ``*Arcs``, ``*Edgeslist`` or ``*Arcslist``.

_PAIRS = ("*edges", "*arcs", "*links")
_LISTS = ("*edgeslist", "*arcslist")


@dataclass
class _Network:
    """What was read so far."""

    file: TextFile
    name_of: dict[str, str] = field(default_factory=dict)
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    directed: bool = False

    def add(self, number: int, ends: tuple[str, str], weight: str = "1") -> None:
        if not is_number(weight):
            raise self.file.error(number, f"{weight!r} is not a number (weight)")
        value = float(weight)
        if is_invalid(value):
            raise self.file.error(number, f"weight {weight} {explain_weight(float(weight))}")
        self.source.append(ends[0])
        self.target.append(ends[1])
        self.weight.append(value)


def read_net(path: str) -> EdgeTable:
    """Read a ``.net`` file: Pajek's, or Infomap's with layers (:mod:`spectrograd.io.pajek`)."""
    file = TextFile(path)
    with file.open() as handle:
        sections = {
            line.split()[0].lower() for _, line in data_lines(handle) if line.lstrip().startswith("*")
        }
    return _read_pajek(file) if sections & {*_PAIRS, *_LISTS} else read_infomap(path)


def _read_pajek(file: TextFile) -> EdgeTable:
    """Read nodes and edges; nodes are called by their names where each has one of its own."""
    network = _Network(file)
    section = ""
    with file.open() as handle:
        for number, line in data_lines(handle):
            words = split_line(line, None)
            if words[0].startswith("*"):
                section = _section(file, number, words[0].lower())
            else:
                _take(network, section, number, words)
    if not network.source:
        raise GraphError(f"{file.name}: no edges in it")
    names = network.name_of
    own = len(set(names.values())) == len(names)
    columns = (network.source, network.target, list(names))
    called = [[names.get(node, node) if own else node for node in column] for column in columns]
    source, target, nodes = ids_of_texts(*called)
    return EdgeTable(
        file.name,
        source,
        target,
        np.array(network.weight),
        nodes=nodes if len(nodes) else None,
        directed=network.directed,
    )


def _section(file: TextFile, number: int, name: str) -> str:
    known = ("*vertices", "*network", *_PAIRS, *_LISTS)
    if name not in known:
        raise file.error(
            number, f"section {name!r} cannot be read beside *Edges and *Arcs; known are {' '.join(known)}"
        )
    return name


def _take(network: _Network, section: str, number: int, words: list[str]) -> None:
    file = network.file
    if section == "*vertices":
        network.name_of[words[0]] = words[1] if len(words) > 1 else words[0]
    elif section in _PAIRS:
        if len(words) < 2:
            raise file.error(number, "two ends and perhaps a weight expected")
        network.add(number, (words[0], words[1]), *words[2:3])
        network.directed |= section == "*arcs"
    elif section in _LISTS:
        for end in words[1:]:
            network.add(number, (words[0], end))
        network.directed |= section == "*arcslist"
    else:
        raise file.error(number, "data before the first section (*Vertices, *Edges, ...)")


# --- multinet's ``.mpx``: sections ``#TYPE #LAYERS #ACTORS #EDGES ...``, edges ``actor,actor,layer[,...]``.

MPX_SUFFIX = ".mpx"


@dataclass
class _Header:
    """What the sections before ``#EDGES`` say about edges."""

    multilayer: bool = False
    attributes: list[tuple[str | None, str]] = field(default_factory=list)  # layer (None = all), name

    def weight_at(self, layer: str) -> int | None:
        """Position of the weight among the attributes of a layer's edges: local ones first, then global."""
        own = [name for where, name in self.attributes if where == layer]
        names = [*own, *(name for where, name in self.attributes if where is None)]
        return next((at for at, name in enumerate(names) if role_of(name) == "weight"), None)


def read_mpx(path: str) -> EdgeTable:
    """Read the edges inside the layers; a file without sections is a plain list of edges.

    A numeric edge attribute called ``weight`` is the weight. Edges between layers (type
    ``multilayer``) are left out with a warning. Directions are dropped.
    """
    edges = LayeredEdges(TextFile(path))
    header = _Header()
    section = "#edges"
    between = 0
    with edges.file.open() as handle:
        for number, line in enumerate(handle, start=1):
            text = line.strip()
            if not text or text.startswith("--"):
                continue
            if text.startswith("#"):
                section = text.lower()
                if section.startswith("#type "):
                    header.multilayer = "multilayer" in section
                    section = "#type"
            else:
                between += _take_mpx(edges, header, section, number, split_line(text, ","))
    if between:
        warn(f"{edges.file.name}: {between} edges between layers left out", GraphWarning)
    return edges.table()


def _take_mpx(edges: LayeredEdges, header: _Header, section: str, number: int, words: list[str]) -> int:
    """Use one line; 1 if it is an edge between layers."""
    if section == "#type":
        header.multilayer = words[0].lower() == "multilayer"
    elif section == "#edge attributes":
        if len(words) < 2:
            raise edges.file.error(number, "an edge attribute is [layer,]name,type")
        header.attributes.append((words[0] if len(words) > 2 else None, words[-2]))
    elif section == "#edges":
        return _take_edge(edges, header, number, words)
    return 0


def _take_edge(edges: LayeredEdges, header: _Header, number: int, words: list[str]) -> int:
    form = "actor,layer,actor,layer" if header.multilayer else "actor,actor,layer"
    width = form.count(",") + 1
    if len(words) < width or "" in words[:width]:
        raise edges.file.error(number, f"an edge is {form}[,attributes], found {','.join(words)!r}")
    if header.multilayer:
        if words[1] != words[3]:
            return 1
        words = [words[0], words[2], words[1], *words[4:]]
    at = header.weight_at(words[2])
    if at is not None and len(words) <= 3 + at:
        raise GraphError(f"{edges.file.name}, line {number}: the edge has no weight")
    edges.add(number, (words[0], words[1]), "1" if at is None else words[3 + at], words[2])
    return 0


# --- Edge lists as networkx writes them, ``a b {'weight': 2.0}``, under any suffix of text.

EDGELIST_SUFFIX = ".edgelist"
_PLACE = {"src": "1", "dst": "2"}
_EDGE = re.compile(r"\s*(\S.*?)(?:\s*[,;\t]\s*|\s+)(\{.*\})\s*")
_PARTED = tuple(re.compile(mark) for mark in (r"\s*\t\s*", r"\s*,\s*", r"\s*;\s*", r"\s+"))


def read_attributes(file: TextFile, chosen: Chosen) -> EdgeTable:
    """Read two ends per line and, in braces, attributes; the one called ``weight`` (or a synonym) counts."""
    for end in ("src", "dst"):
        if chosen.get(end, _PLACE[end]) != _PLACE[end]:
            raise GraphError(
                f"{file.name}: of lines with attributes in braces the first two words are the ends"
            )
    source = []
    target = []
    weight = []
    name = chosen.get("weight")
    with file.open() as handle:
        for number, line in data_lines(handle):
            edge = _split(line)
            if edge is None:
                raise file.error(number, "expected two ends and attributes in braces, as in the lines before")
            source.append(edge[0])
            target.append(edge[1])
            weight.append(_weight(file, number, edge[2], name))
    ends = ids_of_texts(source, target)
    return EdgeTable(file.name, ends[0], ends[1], np.array(weight))


def has_attributes(file: TextFile) -> bool:
    """Whether the first data line ends with attributes in braces."""
    return _split(file.first_line) is not None


def _split(line: str) -> tuple[str, str, str] | None:
    """Two ends and the attributes; ends may hold blanks where tabs or commas part them."""
    edge = _EDGE.fullmatch(line)
    if edge is None:
        return None
    for mark in _PARTED:
        ends = mark.split(edge[1])
        if len(ends) == 2 and all(ends):
            return ends[0], ends[1], edge[2]
    return None


def _weight(file: TextFile, number: int, text: str, name: str | None) -> float:
    if name == NO_WEIGHT:
        return 1.0
    try:
        attributes = ast.literal_eval(text)
        if name is not None:
            return _checked(file, number, float(attributes[name]))
        found = [value for name, value in attributes.items() if role_of(str(name)) == "weight"]
        weight = float(attributes.get("weight", found[0] if found else 1))
    except KeyError:
        raise file.error(number, f"no attribute {name!r} among {', '.join(map(repr, attributes))}") from None
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, GraphError):
            raise
        raise file.error(number, f"{text[:40]!r} are no attributes with a number as weight") from None
    return _checked(file, number, weight)


def _checked(file: TextFile, number: int, weight: float) -> float:
    if is_invalid(weight):
        raise file.error(number, f"weight {weight} {explain_weight(float(weight))}")
    return weight
