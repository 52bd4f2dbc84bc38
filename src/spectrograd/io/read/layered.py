"""Edges of several layers while a file is scanned; shared by the multilayer text formats."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.io.read.tables import EdgeTable, ids_of_texts
from spectrograd.io.read.text import TextFile


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
        if not np.isfinite(value) or value < 0:
            raise self.file.error(line, f"weight {weight} must be finite and not negative")
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
