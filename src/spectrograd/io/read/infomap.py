"""Infomap's multilayer text: ``*Vertices``, ``*Layers``, ``*Multilayer``, ``*Intra``, ``*Inter``."""

from __future__ import annotations

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.io.read.layered import LayeredEdges
from spectrograd.io.read.tables import EdgeTable
from spectrograd.io.read.text import TextFile, data_lines, split_line
from spectrograd.notices import warn

INFOMAP_SUFFIX = ".net"
SECTIONS = (
    "*vertices",
    "*layers",
    "*multilayer",
    "*multiplex",
    "*intra",
    "*inter",
)


def looks_like_infomap(path: str) -> bool:
    """Whether the first line that says anything opens a section."""
    with TextFile(path).open() as handle:
        _, line = next(data_lines(handle), (0, ""))
    return line.lstrip().startswith("*")


def read_infomap(path: str) -> EdgeTable:
    """Read the edges inside the layers; edges between layers are left out with a warning.

    ``*Multilayer`` lines are ``layer node layer node [weight]``, ``*Intra`` lines ``layer node node
    [weight]``; ``*Vertices`` and ``*Layers`` (``id "name"``) give names to the numbers.
    """
    edges = LayeredEdges(TextFile(path))
    section, between = "", 0
    with edges.file.open() as handle:
        for number, line in data_lines(handle):
            words = split_line(line, None)
            if words[0].startswith("*"):
                section = _section(edges.file, number, words[0].lower())
            else:
                between += _take(edges, section, number, words)
    if between:
        warn(f"{edges.file.name}: {between} edges between layers left out", GraphWarning)
    return edges.table()


def _section(file: TextFile, number: int, name: str) -> str:
    if name not in SECTIONS:
        raise file.error(number, f"unknown section {name!r}; known are {' '.join(SECTIONS)}")
    return name


def _take(edges: LayeredEdges, section: str, number: int, words: list[str]) -> int:
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
