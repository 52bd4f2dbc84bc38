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

from spectrograd.embedding import peaks, row_slices
from spectrograd.graph import Graph, GraphError
from spectrograd.operators.laplacian import Kind, LowRank, Operator, laplacian

Array = NDArray[Any]
# Mean degrees to add, the second only where the first leaves the eigenvectors localised. Measured: 0.1 is
# best or close to it wherever regularisation helps (docs/regularization.md).
TAU, MORE_TAU = 0.1, 0.3
# A vector is localised when it lives on less than this part of a cluster's fair share of the volume.
TINY_SHARE = 0.1
# Of the vectors, more than how many must be localised to crowd out the clusters.
TOO_MANY = 0.5


@dataclass(frozen=True)
class Regularization:
    """What was decided and why.

    ``tau`` is in units of the mean degree, 0 where nothing was added; ``localized`` is the share of
    localised eigenvectors where ``"auto"`` looked for them.
    """

    tau: float
    reason: str
    localized: float | None = None

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        return {"tau": self.tau, "localized": self.localized, "reason": self.reason}


def checked(value: Any) -> float | str | None:
    """``"auto"``, None or a number that is not negative; else an error."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and np.isfinite(value) and value >= 0:
        return float(value)
    raise ValueError(f"regularization={value!r}: expected 'auto', None or a number that is not negative")


def regularized(graph: Graph, kind: Kind, tau: float) -> Operator:
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
        return Operator(graph, degrees, low_rank=ones, upper=plain.upper + added)
    if kind == "symmetric":
        scale = 1 / np.sqrt(degrees)
        return Operator(graph, np.ones(n), scale=scale, low_rank=LowRank(scale[:, None], coefficient))
    return Operator(graph, degrees, metric=degrees, low_rank=ones)


def participation(operator: Operator, vectors: Array) -> Array:
    """Share of the graph's volume on which each vector lives: ``(sum d u^2)^2 / (vol sum d u^4)``.

    One for a constant, the share itself for the indicator of a set, whatever its place.
    """
    walk = operator.walk_form()
    u = operator.to_walk(vectors)
    largest = np.maximum(np.abs(peaks(u)), 1e-300, dtype=np.float64)  # scaled: u^4 must not underflow
    mass = np.ones(len(u)) if walk.metric is None else walk.metric / walk.metric.max()
    second, fourth = np.zeros(u.shape[1]), np.zeros(u.shape[1])
    for rows in row_slices(u):
        squares = (u[rows] / largest) ** 2
        second += mass[rows] @ squares
        fourth += mass[rows] @ squares**2
    return np.asarray(second**2 / (mass.sum() * fourth))


def judge(
    operator: Operator, vectors: Array, n_trivial: int = 1, *, tau: float = TAU, rough: bool = False
) -> Regularization:
    """Look at eigenvectors and decide whether ``tau`` is called for.

    The first ``n_trivial`` vectors, which are constant on components, are not looked at. ``rough`` vectors
    still mix neighbours and so live on more than they will: half of them are then enough.
    """
    k = vectors.shape[1]
    shares = k * participation(operator, vectors[:, n_trivial:])
    if not len(shares):
        return Regularization(0.0, "not needed: no eigenvector beside the trivial ones")
    n_tiny = int((shares < TINY_SHARE).sum())
    found = (
        f"{n_tiny} of {len(shares)} eigenvectors live on less than a tenth of a cluster's share of the graph"
    )
    localized = n_tiny / len(shares)
    if localized > TOO_MANY or (rough and localized == TOO_MANY):
        return Regularization(tau, f"{found}: {tau:g} mean degrees added to every degree", localized)
    return Regularization(0.0, f"not needed: {found}", localized)
