"""Do eigenvectors live on the graph, or on tiny components of it? What regularisation is decided by."""

from __future__ import annotations

import numpy as np

from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.subspace import Coordinates
from spectrograd.operators.base import Operator
from spectrograd.operators.laplacian import TAU, Regularization
from spectrograd.typing import Array

# A vector is localised when it lives on less than this part of a cluster's fair share of the volume.
TINY_SHARE = 0.1
# Of the vectors, more than how many must be localised to crowd out the clusters.
TOO_MANY = 0.5


def participation(operator: Operator, vectors: MultiVector, engine: Engine | None = None) -> Array:
    """Share of the graph's volume on which each vector lives: ``(sum d u^2)^2 / (vol sum d u^4)``.

    One for a constant, the share itself for the indicator of a set, whatever its place. Vectors are a
    multivector of the engine, N x k; without one, a numpy array.
    """
    walk = Coordinates.random_walk(engine or LocalEngine(), operator)
    seen = walk.engine.column_statistics(walk.transform(vectors), walk.operator.metric)
    second, fourth = seen.second / seen.mass, seen.fourth / seen.mass  # weights of any size
    return np.asarray(second**2 / fourth)


def judge(
    operator: Operator,
    vectors: MultiVector,
    n_trivial: int = 1,
    *,
    tau: float = TAU,
    rough: bool = False,
    engine: Engine | None = None,
    volume: float = 1.0,
) -> Regularization:
    """Look at eigenvectors (a multivector, N x k) and decide whether ``tau`` is called for.

    The first ``n_trivial`` vectors, which are constant on components, are not looked at. ``rough`` vectors
    still mix neighbours and so live on more than they will: half of them are then enough. ``volume`` is the
    share of the operator's volume that takes part.
    """
    k = vectors.shape[1]
    if k <= n_trivial:
        return Regularization(0.0, "not needed: no eigenvector beside the trivial ones")
    chosen = (engine or LocalEngine()).columns(vectors, slice(n_trivial, None))
    shares = k * participation(operator, chosen, engine) / volume
    n_tiny = int((shares < TINY_SHARE).sum())
    found = (
        f"{n_tiny} of {len(shares)} eigenvectors live on less than a tenth of a cluster's share of the graph"
    )
    localized = n_tiny / len(shares)
    if localized > TOO_MANY or (rough and localized == TOO_MANY):
        return Regularization(tau, f"{found}: {tau:g} mean degrees added to every degree", localized)
    return Regularization(0.0, f"not needed: {found}", localized)
