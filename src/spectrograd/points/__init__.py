"""Nearest-neighbour graphs of points: search, weights, links between components, neighbours of new points."""

from spectrograd.points.knn_graph import knn_graph

__all__ = ["knn_graph"]
