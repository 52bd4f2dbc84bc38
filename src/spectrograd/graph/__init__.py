"""Graphs as frozen values, and what can be said of them without an eigenvector: pieces, order, traversal."""

from spectrograd.graph.cleaning import GraphError, GraphWarning
from spectrograd.graph.graph import Array, Graph, RowBlock
from spectrograd.graph.multilayer import MultilayerGraph
from spectrograd.graph.recall import Recall

__all__ = ["Array", "Graph", "GraphError", "GraphWarning", "MultilayerGraph", "Recall", "RowBlock"]
