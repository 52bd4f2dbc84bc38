"""The shape of a spectrum near its lower end, from twenty products of one vector.

Lanczos' recurrence of a random vector makes a quadrature rule of the density of eigenvalues: the Ritz values
are its nodes, the squares of the first components its weights (Golub and Meurant 1994; Lin, Saad and Yang
2016). ``N`` times the weights below a value counts the eigenvalues there, about. Where a graph is geometric
they crowd at the lower end by a power law; on an expander the counts begin far above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from spectrograd.engines.base import Engine
from spectrograd.linalg.subspace import Basis, Coordinates
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

SHAPE_STEPS = 20  # products of one vector
SHAPE_SEED = 28  # one for all: a plan is the same whatever the seed of the run
NULL_LEVEL = 5e-4  # of the width: null vectors are below it, and no other Ritz value of so few steps
# Powers of the law by which eigenvalues grow with their number.
MIN_POWER = 0.02
MAX_POWER = 2.0
MIN_LOG_STEP = 0.05  # between two counts, on a logarithmic scale


@dataclass(frozen=True, eq=False)
class SpectralShape:
    """Ritz values above the null vectors, and how many eigenvalues lie below each, about."""

    values: Array
    counts: Array
    basis: Basis | None = field(default=None, repr=False)  # that it was read off

    def near(self, k: int) -> tuple[float, float]:
        """The k-th eigenvalue, about, and the usual distance to the next one there."""
        # 1. the node of the quadrature rule next to the k-th eigenvalue
        log_values = np.log(self.values)
        log_counts = np.log(self.counts)
        at = math.log(max(k, 1.5))
        i = int(np.clip(np.searchsorted(log_counts, at), 1, len(log_counts) - 1))
        # 2. the local power law: value ~ number^power
        step = max(log_counts[i] - log_counts[i - 1], MIN_LOG_STEP)
        power = float(np.clip((log_values[i] - log_values[i - 1]) / step, MIN_POWER, MAX_POWER))
        # 3. extended to k; d value / d number = value power / k is the usual distance
        value = math.exp(log_values[i] + (at - log_counts[i]) * power)
        value = min(value, float(self.values[-1]))
        return value, value * power / k

    def crowding(self, k: int) -> float:
        """The width of the spectrum above the k-th eigenvalue, in distances to the next one.

        Krylov methods take about as many products as its square root (Saad 2011, section 6.6).
        """
        value, distance = self.near(k)
        top = float(self.values[-1])
        return max(1.5, (top - value) / max(distance, 1e-6 * top))


def random_basis(engine: Engine, operator: Operator, limit: int) -> Basis:
    """The Krylov space of a random vector in standard form, before its first product."""
    x = engine.random(operator.n_nodes, 1, SHAPE_SEED, np.float32)
    start = engine.combine(x, 1 / np.sqrt(engine.gram(x, x)))
    return Basis(engine, Coordinates.standard(engine, operator).operator, start, limit)


def spectral_shape(
    engine: Engine,
    operator: Operator,
    steps: int = SHAPE_STEPS,
    limit: int | None = None,
    basis: Basis | None = None,
) -> SpectralShape:
    """Measure the shape of an operator's spectrum by so many products of one vector.

    The basis has space for ``limit`` vectors, where a solver is to go on with it; a :func:`random_basis` that
    was begun before is gone on with.
    """
    n = operator.n_nodes
    width = operator.upper - operator.lower
    # 1. Lanczos' recurrence of a random vector
    steps = min(steps, max(2, n // 3))
    basis = random_basis(engine, operator, limit or steps) if basis is None else basis
    rng = np.random.default_rng(SHAPE_SEED)
    featureless = SpectralShape(np.array([0.5, 1.0]) * width, np.array([1.5, float(n)]))
    try:
        while basis.done < steps and not basis.full:
            basis.expand(rng)
        ritz = basis.ritz(min(steps, basis.done))
    except (FloatingPointError, np.linalg.LinAlgError):  # weights that no single precision holds
        return featureless
    # 2. quadrature: Ritz values are the nodes, squared first components the weights
    values = ritz.values - operator.lower
    above = values > NULL_LEVEL * width
    if above.sum() < 2:  # all eigenvalues but a few are alike: nothing crowds
        return featureless
    weights = ritz.Y[0, above] ** 2
    # 3. eigenvalues below each node
    counts = 1 + n * (np.cumsum(weights) - weights / 2)
    return SpectralShape(values[above], np.maximum.accumulate(np.maximum(counts, 1.01)), basis)
