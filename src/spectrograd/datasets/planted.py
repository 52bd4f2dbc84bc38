"""Planted groups in data that are no plain graph: signed edges."""

from __future__ import annotations

import numpy as np

from spectrograd.datasets.synthetic import LabelledGraph, Seed
from spectrograd.graph import Graph


def make_signed_block_model(
    n_nodes: int = 10_000,
    n_clusters: int = 5,
    *,
    mean_degree: float = 20.0,
    noise: float = 0.1,
    random_state: Seed = None,
) -> LabelledGraph:
    """Draw a signed graph: random edges, positive within groups and negative between them, but for noise.

    The signed stochastic block model of Cucuringu et al. (2019): the positions of the edges say nothing.

    Parameters
    ----------
    n_nodes, n_clusters
        Sizes; groups differ by one node at most.
    mean_degree
        Twice the number of draws over the number of nodes; edges drawn twice count once.
    noise
        Fraction of the edges whose sign is turned.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> data = make_signed_block_model(1_000, 2, noise=0.0, random_state=0)
    >>> edges = data.graph.matrix.tocoo()
    >>> same = data.labels[edges.row] == data.labels[edges.col]
    >>> set(edges.data[same].tolist()), set(edges.data[~same].tolist())
    ({1.0}, {-1.0})
    """
    if not 1 <= n_clusters < n_nodes:
        raise ValueError(f"n_clusters={n_clusters}: choose 1..{n_nodes - 1}")
    if not 0 <= noise <= 1:
        raise ValueError(f"noise={noise}: expected a share from 0 to 1")
    rng = np.random.default_rng(random_state)
    labels = rng.permutation(np.arange(n_nodes) % n_clusters)
    # 1. Edges, whatever the groups; a ring keeps every node in one component.
    n_drawn = max(0, round(n_nodes * mean_degree / 2) - n_nodes)
    ring = rng.permutation(n_nodes)
    heads = np.concatenate([ring, rng.integers(0, n_nodes, n_drawn)])
    tails = np.concatenate([np.roll(ring, 1), rng.integers(0, n_nodes, n_drawn)])
    low = np.minimum(heads, tails)
    high = np.maximum(heads, tails)
    keys = np.unique(low * n_nodes + high)[:, None]
    ends = np.hstack([keys // n_nodes, keys % n_nodes])
    ends = ends[ends[:, 0] != ends[:, 1]]
    # 2. Signs.
    signs = np.where(labels[ends[:, 0]] == labels[ends[:, 1]], 1.0, -1.0)
    signs[rng.random(len(signs)) < noise] *= -1
    graph = Graph.from_edges(ends[:, 0], ends[:, 1], signs, n_nodes=n_nodes, signed=True)
    return LabelledGraph(graph, labels)
