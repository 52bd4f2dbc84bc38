"""Graphs as frozen values, and what can be said of them without an eigenvector: components, order, traversal."""

from spectrograd.graph.graph import Graph, Recall, RowBlock
from spectrograd.graph.multilayer import MultilayerGraph
from spectrograd.graph.validation import GraphError, GraphWarning
from spectrograd.typing import Array

__all__ = ["Array", "Graph", "GraphError", "GraphWarning", "MultilayerGraph", "Recall", "RowBlock"]
