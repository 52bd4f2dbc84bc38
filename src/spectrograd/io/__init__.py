"""Doors of the house: files and other libraries' objects, in and out."""

from spectrograd.io.foreign.frames import from_frame, to_arrow, to_pandas, to_polars
from spectrograd.io.foreign.igraph import from_igraph, to_igraph
from spectrograd.io.foreign.networkx import from_networkx, to_networkx
from spectrograd.io.foreign.objects import graph_of
from spectrograd.io.foreign.pyg import from_pyg, to_edge_index
from spectrograd.io.read.files import read_graph
from spectrograd.io.read.labels import read_labels
from spectrograd.io.read.points import Points, read_points
from spectrograd.io.write.graphs import check_graph_path, write_graph
from spectrograd.io.write.results import write_embedding, write_labels

__all__ = [
    "Points",
    "check_graph_path",
    "from_frame",
    "from_igraph",
    "from_networkx",
    "from_pyg",
    "graph_of",
    "read_graph",
    "read_labels",
    "read_points",
    "to_arrow",
    "to_edge_index",
    "to_igraph",
    "to_networkx",
    "to_pandas",
    "to_polars",
    "write_embedding",
    "write_graph",
    "write_labels",
]
