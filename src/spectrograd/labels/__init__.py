"""Rows to clusters: k-means, pivoted QR, discretisation, and how many clusters there are."""

from spectrograd.labels.assign import Clustering, assign

__all__ = ["Clustering", "assign"]
