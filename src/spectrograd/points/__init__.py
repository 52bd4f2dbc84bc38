"""Points to graphs: search for neighbours, weights, links between pieces."""

from spectrograd.points.neighbors import knn_graph

__all__ = ["knn_graph"]
