"""Laplacians of a part of a graph on all of its rows: what a graph on disk has instead of a subgraph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph
from spectrograd.operators.laplacian import Kind, laplacian
from spectrograd.operators.regularized import regularized
from spectrograd.operators.sparse import LowRank, SparseOperator

Array = NDArray[Any]
# Normalised entries of excluded rows are divided by this, and their diagonal is chosen such that their
# eigenvalues lie at the upper bound, but for the part 1 / DIVISOR of it: behind those that are wanted,
# however many these are. Entries and diagonal are exact in float32.
DIVISOR = 2.0**20


def masked(
    graph: Graph, kind: Kind, tau: float, aside: Array, *, allow_isolated: bool = False
) -> SparseOperator:
    """The Laplacian of the graph without the nodes ``aside``, as an operator on all rows.

    Parameters
    ----------
    graph, kind, tau
        As for :func:`~spectrograd.operators.regularized.regularized`.
    aside : array of int
        Row numbers of whole components. Eigenvectors of the others are zero there; those of their own lie at
        the upper end of the spectrum, where no solver looks.
    allow_isolated : bool
        Whether other nodes may be without edges, as in a layer of a multilayer graph.

    Examples
    --------
    >>> two = Graph.from_edges([0, 1, 3], [1, 2, 4])
    >>> A = masked(two, "symmetric", 0.0, np.array([3, 4]))
    >>> np.linalg.eigvalsh(A.to_dense()).round(3).tolist()
    [0.0, 1.0, 2.0, 2.0, 2.0]
    """
    if len(aside) == 0:
        whole = regularized(graph, kind, tau) if tau else None
        return whole or laplacian(graph, kind, allow_isolated=allow_isolated)
    laplacian(graph, kind, allow_isolated=True)  # checks the kind and the size of the weights
    kept = np.ones(graph.n_nodes, bool)
    kept[aside] = False
    added = tau * float(graph.degrees[kept].mean())
    degrees = np.where(kept, graph.degrees + added, np.where(graph.degrees > 0, graph.degrees, 1.0))
    low_rank = None
    if tau:
        low_rank = LowRank(kept[:, None].astype(np.float32), np.array([added / kept.sum()]))
    forms = {"random_walk": _random_walk, "symmetric": _symmetric}
    return replace(forms.get(kind, _unnormalized)(graph, kept, degrees, low_rank), aside=aside)


def _random_walk(graph: Graph, kept: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    metric = np.where(kept, np.where(degrees > 0, degrees, 1.0), DIVISOR * degrees)
    diagonal = np.where(kept, degrees, (2 * DIVISOR - 1) * degrees)
    return SparseOperator(graph, diagonal, metric=metric, low_rank=low_rank)


def _symmetric(graph: Graph, kept: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    linked = degrees > 0
    root = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1.0)), 0.0)
    scale = np.where(kept, root, root / np.sqrt(DIVISOR))
    diagonal = np.where(kept, linked, 2 - 1 / DIVISOR)
    if low_rank is not None:
        low_rank = LowRank(low_rank.factors * root[:, None], low_rank.coefficients)
    return SparseOperator(graph, diagonal, scale=scale, low_rank=low_rank)


def _unnormalized(graph: Graph, kept: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    upper = 2 * float(degrees[kept].max())
    share = upper / (2 * DIVISOR)  # of the upper bound, to both sides of the diagonal
    scale = np.where(kept, 1.0, np.sqrt(share / np.where(degrees > 0, degrees, 1.0)))
    return SparseOperator(
        graph, np.where(kept, degrees, upper - share), scale=scale, low_rank=low_rank, upper=upper
    )
