"""Exceptions of signed Laplacians: refused options, and the number of eigenvectors that tell K clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.notices import parameter
from spectrograd.operators.laplacian import is_signed_kind
from spectrograd.pipeline.settings import Settings

# Rayleigh quotient of the constant vector in the signed normalised Laplacian: twice the share of negative
# weight. Below this the graph holds together as a whole, and the constant is one of its K vectors.
MAX_TRIVIAL_QUOTIENT = 0.5


def for_signed(graph: Graph | MultilayerGraph, settings: Settings) -> Settings:
    """The settings for a signed Laplacian; others are returned as they are.

    K groups that fight each other have K - 1 eigenvectors below the bulk (Cucuringu et al. 2019): the
    constant vector is none of them, because most of the weight between the groups is negative.
    ``n_components`` equal to ``n_clusters`` is therefore made one less, but where little weight is negative.
    Of several layers, whose normalised Laplacians are added, the mean share of negative weight decides.
    """
    if not is_signed_kind(settings.laplacian):
        return settings
    if settings.disconnected == "regularize":
        raise ValueError(
            f"{parameter('disconnected', 'regularize')} ties components by positive weights, which "
            f"{parameter('laplacian', settings.laplacian)} does not add: use "
            f"{parameter('disconnected', 'components')}"
        )
    k = settings.n_clusters
    layers = [layer for layer in graph.layers if layer.n_edges]
    if isinstance(settings.n_components, str):
        raise ValueError(
            f"{parameter('laplacian', settings.laplacian)} does not find the number of clusters: say how many"
        )
    if k is None or k < 2 or settings.n_components != k or not layers:
        return settings
    quotient = float(np.mean([trivial_quotient(layer) for layer in layers]))
    return settings if quotient < MAX_TRIVIAL_QUOTIENT else replace(settings, n_components=k - 1)


def trivial_quotient(graph: Graph) -> float:
    """``1'L1 / 1'D1`` of the signed Laplacian: twice the share of negative weight; one pass.

    Examples
    --------
    >>> trivial_quotient(Graph.from_edges([0, 1], [1, 2], [3.0, -1.0], signed=True))
    0.5
    """
    negative = 0.0
    for block in graph.blocks:
        if block.weights is not None:
            negative -= float(np.minimum(block.weights, 0).sum(dtype=np.float64))
    return 2 * negative / float(graph.degrees.sum())
