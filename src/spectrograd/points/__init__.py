"""Points to graphs: search for neighbours, weights, links between pieces."""

from spectrograd.points.knn_graph import knn_graph

__all__ = ["knn_graph"]
