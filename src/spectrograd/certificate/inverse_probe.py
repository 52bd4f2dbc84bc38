"""The probe of :mod:`~spectrograd.certificate.probe` with a factorisation at hand: the inverse tells sooner.

``T = (A - pole B)^-1 B`` has the eigenvectors of the pencil, with values ``1 / (t - pole)``; the wanted ones
are its largest, and far from the others. If K + 1 eigenvectors had eigenvalues below tau, some combination v
of them would be orthogonal to the found subspace, and ``v'BTv >= 1 / (tau - pole)``. So -T, restricted to the
complement of what was found, would have an eigenvalue of at most ``-1 / (tau - pole)``, and the recurrence of
a random vector says how unlikely that is.

A solve for eight columns takes hardly longer than for one. The squares of v's coordinates in eight random
vectors, each bounded by its own recurrence, sum to a chi-square of eight degrees of freedom, which is small
far more rarely than that of one: for odds of 5e-4 it has to be below 0.7, and not below 4e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from spectrograd.certificate.evidence import ENOUGH, Complement, needed_cut
from spectrograd.certificate.probe import Recurrence
from spectrograd.engines import Engine
from spectrograd.kernels import LANES
from spectrograd.linalg.subspace import Ritz

Array = NDArray[Any]
Times = Callable[[Array], Array]
MOST_SOLVES = 12  # what the numbers of another factorisation, which counts, cost
ROUNDING = 1e-12  # of the largest eigenvalue of T


@dataclass(frozen=True, eq=False)
class Inverted(Complement):
    """Recurrences of random vectors under -T, whose squared lengths were ``squares``."""

    recurrences: tuple[Recurrence, ...] = ()
    squares: tuple[float, ...] = ()
    pole: float = 0.0
    noise: float = 0.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest:
            return 1.0
        value, largest = self.noise - 1 / (tau - self.pole), 0.0
        for recurrence, square in zip(self.recurrences, self.squares, strict=True):
            if not value < recurrence.lowest:
                return 1.0
            largest += square * math.exp(-recurrence.log_sum(value)[0])
        return float(gammainc(len(self.squares) / 2, largest / 2))


def look_through(
    engine: Engine,
    times: Times,
    metric: Array,
    ritz: Ritz,
    pole: float,
    rng: np.random.Generator,
    *,
    beyond: float,
    residual: float,
    n_vectors: int = LANES,
    most_solves: int = MOST_SOLVES,
) -> Inverted:
    """Follow random vectors under ``times``, which is T, until the odds are good enough.

    ``ritz`` is what was found, ``residual`` its error, ``beyond`` the solver's guess of the next eigenvalue.
    """
    start = rng.standard_normal((len(metric), n_vectors), dtype=np.float32)
    top, walk = float(ritz.values[-1]), _Walk(engine, times, metric, ritz, pole, start)
    while True:
        walk.step()
        seen = walk.seen(beyond)
        tau = needed_cut(top, seen.lowest, residual)
        enough = seen.lowest <= top or seen.odds_below(tau) <= ENOUGH
        if enough or walk.n_steps == most_solves:
            return seen


class _Walk:
    """Some recurrences side by side, in walk form; all are kept orthogonal to what was found.

    ``basis`` holds that, and the last two vectors of each recurrence, the latest in columns ``at``.
    """

    def __init__(
        self, engine: Engine, times: Times, metric: Array, ritz: Ritz, pole: float, start: Array
    ) -> None:
        self.engine, self.times, self.metric, self.pole = engine, times, metric, pole
        self.noise = ROUNDING / (float(ritz.values[0]) - pole)
        (n, k), n_vectors = ritz.Q.shape, start.shape[1]
        self.basis = np.zeros((n, k + 2 * n_vectors))
        self.basis[:, :k] = ritz.Q
        self.at, self.width = slice(k, k + n_vectors), n_vectors
        self.recurrences = (Recurrence(),) * n_vectors
        x = start / np.sqrt(metric)[:, None]
        x -= engine.combine(ritz.Q, engine.gram(ritz.Q, x, metric))
        self.squares = np.diag(engine.gram(x, x, metric))
        self.basis[:, self.at] = self.current = x / np.sqrt(self.squares)
        self.betas = np.zeros(n_vectors)

    @property
    def n_steps(self) -> int:
        return len(self.recurrences[0].alphas)

    def step(self) -> None:
        """Mutates: one solve."""
        product = self.times(self.current)
        parts = self.engine.gram(self.basis, product, self.metric)
        alphas, k = np.diag(parts[self.at]).copy(), parts.shape[0] - 2 * self.width
        parts[k:] = 0
        before = slice(k, k + self.width) if self.at.start > k else slice(k + self.width, None)
        parts[self.at], parts[before] = np.diag(alphas), -np.diag(self.betas)
        new = self.engine.combine(self.basis, parts)
        new -= product
        self.betas = np.maximum(np.sqrt(np.diag(self.engine.gram(new, new, self.metric))), self.noise)
        new /= self.betas
        self.basis[:, before] = self.current = new
        self.at = before
        grown = zip(self.recurrences, -alphas, self.betas, strict=True)
        self.recurrences = tuple(r.followed(float(a), float(b)) for r, a, b in grown)

    def seen(self, guess: float) -> Inverted:
        """The evidence so far."""
        lowest = min(r.lowest for r in self.recurrences)
        lowest = min(guess, self.pole - 1 / lowest) if lowest < 0 else guess
        squares = tuple(float(square) for square in self.squares)
        return Inverted(
            lowest, self.width * self.n_steps, None, self.recurrences, squares, self.pole, self.noise
        )
