"""Readers and writers: files and other libraries' objects, in and out."""

from spectrograd.io.interop import graph_of
from spectrograd.io.interop.frames import from_frame, to_arrow, to_pandas, to_polars
from spectrograd.io.interop.igraph import from_igraph, to_igraph
from spectrograd.io.interop.networkx import from_networkx, to_networkx
from spectrograd.io.interop.pyg import from_pyg, to_edge_index
from spectrograd.io.labels import read_labels
from spectrograd.io.points import Points, read_points
from spectrograd.io.read_graph import read_graph
from spectrograd.io.write_graph import check_graph_path, write_graph
from spectrograd.io.write_results import write_embedding, write_labels
from spectrograd.store import open_store

__all__ = [
    "Points",
    "check_graph_path",
    "from_frame",
    "from_igraph",
    "from_networkx",
    "from_pyg",
    "graph_of",
    "open_store",
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
