"""Graphs like those of the GraphChallenge's streaming-partition task (static), with known blocks."""

from __future__ import annotations

import numpy as np

from spectrograd.datasets.synthetic import LabelledGraph, Seed
from spectrograd.graph import Graph

# The challenge (Kao et al., Streaming graph challenge: stochastic block partition, 2017) has N^0.35 blocks of
# Dirichlet sizes and power-law degrees from 10 on with exponent 2.5; the other numbers are our choice.
BLOCK_EXPONENT, EVENNESS = 0.35, 10.0
LEAST_DEGREE, LARGEST_DEGREE, DEGREE_EXPONENT = 10, 100, 2.5
INSIDE_OVER_OUTSIDE = 5.0


def make_partition_graph(
    n_nodes: int = 20_000,
    n_clusters: int | None = None,
    *,
    ratio: float = INSIDE_OVER_OUTSIDE,
    random_state: Seed = None,
) -> LabelledGraph:
    """Draw a degree-corrected block model with uneven blocks and power-law degrees.

    Parameters
    ----------
    n_nodes
        Nodes; 2 million have 160 blocks.
    n_clusters
        Blocks; None is ``N^0.35``, as in the challenge (32 of 20,000 nodes).
    ratio
        Edge ends that stay in their block over those that leave it (5: easy; 2 to 3: the hard ones).
    random_state
        Seed or numpy Generator.

    Notes
    -----
    Block sizes are a symmetric Dirichlet draw with parameter 10, degrees a power law with exponent 2.5
    between 10 and 100, mean about 21. Edges that are drawn twice count once and loops are dropped, so that
    the largest degrees end a little below what was drawn.

    Examples
    --------
    >>> made = make_partition_graph(2_000, random_state=0)
    >>> made.graph.n_nodes, int(made.labels.max()) + 1
    (2000, 14)
    """
    k = round(n_nodes**BLOCK_EXPONENT) if n_clusters is None else n_clusters
    if not 1 <= k <= n_nodes // LEAST_DEGREE:
        raise ValueError(
            f"n_clusters is {k}; with {n_nodes} nodes it must be in 1..{n_nodes // LEAST_DEGREE}"
        )
    if not ratio > 0:
        raise ValueError(f"ratio is {ratio}; expected a positive number")
    rng = np.random.default_rng(random_state)
    sizes = np.maximum(LEAST_DEGREE, rng.dirichlet(np.full(k, EVENNESS)) * n_nodes)
    labels = rng.permutation(np.searchsorted(np.cumsum(sizes) / sizes.sum(), rng.random(n_nodes)))
    _, labels = np.unique(labels, return_inverse=True)  # a block that got nobody is none
    stubs = rng.permutation(np.repeat(np.arange(n_nodes, dtype=np.int32), _degrees(n_nodes, rng)))
    n_inside = round(len(stubs) * ratio / (1 + ratio))
    inside = stubs[:n_inside]
    inside = inside[np.argsort(labels[inside], kind="stable")]  # neighbours in this list share their block
    ends = np.concatenate([_paired(inside), _paired(stubs[n_inside:])])
    first, second = ends.min(axis=1), ends.max(axis=1)
    keys = np.unique(first.astype(np.int64) * n_nodes + second)
    heads, tails = keys // n_nodes, keys % n_nodes
    apart = heads != tails
    graph = Graph.from_edges(heads[apart], tails[apart], n_nodes=n_nodes)
    return LabelledGraph(graph, labels)


def _degrees(n_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Power law between the least and the largest degree."""
    degrees = np.arange(LEAST_DEGREE, LARGEST_DEGREE + 1)
    chances = degrees**-DEGREE_EXPONENT
    return rng.choice(degrees, n_nodes, p=chances / chances.sum())


def _paired(stubs: np.ndarray) -> np.ndarray:
    """Neighbours in the list joined to edges, shape (n / 2, 2); one that is left over is dropped."""
    return stubs[: len(stubs) // 2 * 2].reshape(-1, 2)
