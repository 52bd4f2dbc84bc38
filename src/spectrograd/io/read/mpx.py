"""multinet's ``.mpx``: sections ``#TYPE #LAYERS #ACTORS #EDGES ...``, edges ``actor,actor,layer[,...]``."""

from __future__ import annotations

from dataclasses import dataclass, field

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.io.read.columns import role_of
from spectrograd.io.read.layered import LayeredEdges
from spectrograd.io.read.tables import EdgeTable
from spectrograd.io.read.text import TextFile, split_line
from spectrograd.notices import warn

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
    edges, header = LayeredEdges(TextFile(path)), _Header()
    section, between = "#edges", 0
    with edges.file.open() as handle:
        for number, line in enumerate(handle, start=1):
            text = line.strip()
            if not text or text.startswith("--"):
                continue
            if text.startswith("#"):
                section = text.lower()
                if section.startswith("#type "):
                    header.multilayer, section = "multilayer" in section, "#type"
            else:
                between += _take(edges, header, section, number, split_line(text, ","))
    if between:
        warn(f"{edges.file.name}: {between} edges between layers left out", GraphWarning)
    return edges.table()


def _take(edges: LayeredEdges, header: _Header, section: str, number: int, words: list[str]) -> int:
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
