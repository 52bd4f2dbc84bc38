"""Localised eigenvectors, which live on a tiny part of the graph: what regularisation is decided by."""

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
# Share of localised vectors above which they crowd out the clusters.
MAX_LOCALIZED_SHARE = 0.5
# Columns of a filtered block among which the volume is shared out at most: what they hold does not depend on
# their number. The loop then looks at the Ritz vectors themselves.
COLUMNS_THAT_SHARE = 8


def participation(operator: Operator, vectors: MultiVector, engine: Engine | None = None) -> Array:
    """Share of the graph's volume on which each vector lives: ``(sum d u^2)^2 / (vol sum d u^4)``.

    One for a constant, the share itself for the indicator of a set, whatever its place. Vectors are a
    multivector of the engine, N x k; without one, a numpy array.
    """
    walk = Coordinates.random_walk(engine or LocalEngine(), operator)
    moments = walk.engine.column_statistics(walk.transform(vectors), walk.operator.metric)
    # Sums of d u^2 and d u^4 over the volume first: fourth powers of any weights then fit into float64.
    second = moments.second / moments.mass
    fourth = moments.fourth / moments.mass
    return np.asarray(second**2 / fourth)


def columns_are_localized(engine: Engine, X: MultiVector, metric: MultiVector | None, width: int) -> bool:
    """Whether most of the first ``width`` columns of X (N x m, in random-walk form) live on few nodes.

    Random columns that a filter has damped a little show it long before they are eigenvectors: what grows in
    them lives on the same sets.
    """
    # The formula of ``participation``; X is in random-walk form already, and its size is about one.
    statistics = engine.column_statistics(X, metric)
    parts = statistics.second**2 / (statistics.fourth * statistics.mass)
    # a cluster's fair share of the volume, were there as many clusters as columns
    fair = 1 / min(X.shape[1], COLUMNS_THAT_SHARE)
    return bool(np.median(parts[:width]) < TINY_SHARE * fair)


def decide_regularization(
    operator: Operator,
    vectors: MultiVector,
    n_trivial: int = 1,
    *,
    tau: float = TAU,
    rough: bool = False,
    engine: Engine | None = None,
    volume: float = 1.0,
) -> Regularization:
    """Decide by eigenvectors whether ``tau`` is added to the degrees.

    Parameters
    ----------
    operator
        Whose eigenvectors these are.
    vectors
        A multivector of the engine, N x k; without an engine a numpy array.
    n_trivial
        The first vectors, which are constant on components, are not considered.
    tau
        In mean degrees, where it is called for.
    rough
        Vectors of an unfinished solve still mix neighbours and so live on more nodes than they will: half of
        them localised are then enough.
    volume
        Share of the operator's volume that takes part.
    """
    k = vectors.shape[1]
    if k <= n_trivial:
        return Regularization(0.0, "not needed: no eigenvector beside the trivial ones")
    chosen = (engine or LocalEngine()).columns(vectors, slice(n_trivial, None))
    # in units of a cluster's fair share of the volume, 1/k
    shares = k * participation(operator, chosen, engine) / volume
    n_tiny = int((shares < TINY_SHARE).sum())
    evidence = (
        f"{n_tiny} of {len(shares)} eigenvectors live on less than a tenth of a cluster's share of the graph"
    )
    localized = n_tiny / len(shares)
    if localized > MAX_LOCALIZED_SHARE or (rough and localized == MAX_LOCALIZED_SHARE):
        return Regularization(tau, f"{evidence}: {tau:g} mean degrees added to every degree", localized)
    return Regularization(0.0, f"not needed: {evidence}", localized)
