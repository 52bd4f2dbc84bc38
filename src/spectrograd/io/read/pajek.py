"""Pajek's ``.net``: ``*Vertices``, then ``*Edges``, ``*Arcs``, ``*Edgeslist`` or ``*Arcslist``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.io.read.infomap import read_infomap
from spectrograd.io.read.tables import EdgeTable, ids_of_texts
from spectrograd.io.read.text import TextFile, data_lines, is_number, split_line

_PAIRS, _LISTS = ("*edges", "*arcs", "*links"), ("*edgeslist", "*arcslist")


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
        if not np.isfinite(value) or value < 0:
            raise self.file.error(number, f"weight {weight} must be finite and not negative")
        self.source.append(ends[0])
        self.target.append(ends[1])
        self.weight.append(value)


def read_net(path: str) -> EdgeTable:
    """Read a ``.net`` file: Pajek's, or Infomap's with layers (:mod:`spectrograd.io.read.infomap`)."""
    file = TextFile(path)
    with file.open() as handle:
        sections = {
            line.split()[0].lower() for _, line in data_lines(handle) if line.lstrip().startswith("*")
        }
    return _read_pajek(file) if sections & {*_PAIRS, *_LISTS} else read_infomap(path)


def _read_pajek(file: TextFile) -> EdgeTable:
    """Read nodes and edges; nodes are called by their names where each has one of its own."""
    network, section = _Network(file), ""
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
