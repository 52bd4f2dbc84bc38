"""Graphs of points that get more of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.estimators.inputs import kernel_matrix, without_diagonal
from spectrograd.estimators.row_makers import KernelRows, PointRows, RowMaker
from spectrograd.graph import Graph


class Grown(NamedTuple):
    """The graph with its new points, their rows (n_new, n_old), and a maker that knows all points."""

    graph: Graph
    rows: sp.csr_array
    maker: RowMaker


def more_points(model: Any, maker: RowMaker, graph: Graph, new: Any) -> Grown:
    """Join new points to a graph of points.

    Old neighbours stay neighbours: who among the old points would now choose a new one is not asked, since
    that would change what they have chosen before.
    """
    if not isinstance(maker, PointRows | KernelRows):
        raise ValueError("partial_fit takes points, or edges; a matrix of another size has to be fitted anew")
    if isinstance(maker, KernelRows):
        points = (sp.vstack if sp.issparse(maker.points) else np.vstack)([maker.points, new])
        grown = Graph.from_matrix(without_diagonal(kernel_matrix(model, points)))
        return Grown(grown, maker(model, new).weights, KernelRows(points))
    asked = maker.known.ask(new)
    rows = asked.weights
    matrix = sp.csr_array(sp.block_array([[graph.matrix, rows.T], [rows, None]], format="csr"))
    return Grown(Graph._from_clean_csr(matrix, None), rows, PointRows(maker.known.with_more(new, asked)))
