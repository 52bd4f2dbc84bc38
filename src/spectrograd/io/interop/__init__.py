"""Graphs of other libraries' objects: networkx, igraph, PyG, AnnData, data frames; none is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.io.interop.anndata import from_anndata, is_anndata
from spectrograd.io.interop.frames import from_frame, is_edge_frame
from spectrograd.io.interop.igraph import from_igraph, is_igraph
from spectrograd.io.interop.networkx import from_networkx, is_networkx
from spectrograd.io.interop.pyg import from_pyg, is_pyg

# Whether an object is of this kind, and what makes a graph of it; the first that fits is taken.
READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Graph | MultilayerGraph]], ...] = (
    (is_networkx, from_networkx),
    (is_igraph, from_igraph),
    (is_edge_frame, from_frame),
    (is_pyg, from_pyg),
    (is_anndata, from_anndata),
)


def graph_of(thing: object) -> Graph | MultilayerGraph | None:
    """Make a graph of a foreign graph or edge table; None where a thing is neither (an array, say)."""
    if isinstance(thing, Graph | MultilayerGraph):
        return thing
    return next((reader(thing) for fits, reader in READERS if fits(thing)), None)
