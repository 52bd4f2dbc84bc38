"""Rows to clusters: k-means, pivoted QR, discretisation, and how many clusters there are."""

from spectrograd.labels.clustering import Clustering, assign

__all__ = ["Clustering", "assign"]
