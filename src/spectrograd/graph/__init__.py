"""Graphs as frozen values, their validation, connected components, node names and orderings."""

from spectrograd.graph.graph import Graph, Recall, RowBlock
from spectrograd.graph.multilayer import MultilayerGraph
from spectrograd.graph.validation import GraphError, GraphWarning
from spectrograd.typing import Array

__all__ = ["Array", "Graph", "GraphError", "GraphWarning", "MultilayerGraph", "Recall", "RowBlock"]
