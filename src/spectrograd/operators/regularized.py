"""Regularisation: ``tau / N`` added to every pair of nodes, never as an N x N matrix, and when to do it.

On sparse real graphs the exact smallest eigenvectors sit on tiny dangling pieces: a piece of volume v that
hangs by one edge has conductance 1 / v, below that of any real cluster of a well-linked graph. Adding
``tau`` to every degree lifts such a piece to about ``tau / (degree + tau)`` and leaves large clusters
almost where they were (Amini et al. 2013; Qin and Rohe 2013; Zhang and Rohe 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph, GraphError
from spectrograd.operators.laplacian import Kind, laplacian
from spectrograd.operators.sparse import LowRank, SparseOperator

Array = NDArray[Any]
# Mean degrees to add, the second only where the first leaves the eigenvectors localised. Measured: 0.1 is
# best or close to it wherever regularisation helps (docs/regularization.md).
TAU, MORE_TAU = 0.1, 0.3


@dataclass(frozen=True)
class Regularization:
    """What was decided and why.

    ``tau`` is in units of the mean degree, 0 where nothing was added; ``localized`` is the share of
    localised eigenvectors where ``"auto"`` looked for them.
    """

    tau: float
    reason: str
    localized: float | None = None

    @property
    def sentence(self) -> str:
        """What it means for the result; empty where nothing was added."""
        if not self.tau:
            return ""
        return (
            f"regularised with tau = {self.tau:g} ({self.tau:g} mean degrees, spread over all pairs of "
            "nodes): the eigenvectors are those of the regularised graph"
        )

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        return {
            "tau": self.tau,
            "localized": self.localized,
            "reason": self.reason,
            "sentence": self.sentence,
        }


def checked(value: Any) -> float | str | None:
    """``"auto"``, None or a number that is not negative; else an error."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and np.isfinite(value) and value >= 0:
        return float(value)
    raise ValueError(f"regularization={value!r}: expected 'auto', None or a number that is not negative")


def regularized(graph: Graph, kind: Kind, tau: float) -> SparseOperator:
    """The Laplacian of ``W + (t / N) 11'`` with ``t = tau`` mean degrees: degrees + t, and a rank-one part.

    All three kinds follow from the same matrix. For ``"unnormalized"`` it is ``L + t (I - 11'/N)``, which
    lifts every vector but the constant by t: the order of a connected graph's eigenvectors does not
    change, only the pieces of a disconnected one are told from the constant.

    Examples
    --------
    >>> star = Graph.from_edges([0, 0, 0], [1, 2, 3])
    >>> L = regularized(star, "unnormalized", 1.0)
    >>> np.round(L.to_dense()[1], 3).tolist()  # mean degree 1.5: every pair gets 0.375
    [-1.375, 2.125, -0.375, -0.375]
    """
    if tau == 0:
        return laplacian(graph, kind)
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    plain = laplacian(graph, kind, allow_isolated=True)  # checks the kind
    n, added = graph.n_nodes, tau * float(graph.degrees.mean())
    degrees, coefficient = graph.degrees + added, np.array([added / n])
    ones = LowRank(np.ones((n, 1)), coefficient)
    if kind == "unnormalized":
        return SparseOperator(graph, degrees, low_rank=ones, upper=plain.upper + added)
    if kind == "symmetric":
        scale = 1 / np.sqrt(degrees)
        return SparseOperator(graph, np.ones(n), scale=scale, low_rank=LowRank(scale[:, None], coefficient))
    return SparseOperator(graph, degrees, metric=degrees, low_rank=ones)
