"""A probe that rides along: random columns in the solver's own sweeps tell what it has skipped.

Let X be s Gaussian columns, standard in the metric B and independent of all that the solver uses, and p a
polynomial that is positive and falls on the spectrum below tau (a product of the solver's own Chebyshev
filters). If more than K eigenvalues lay below tau, some unit vector v in the span of their eigenvectors would
be orthogonal to the K vectors Q that were found. ``w = p(A) v`` lies in that span too, is at least ``p(tau)``
long, and

    |w'B X| = |v'B p(A) X| <= |(I - Q Q'B) p(A) X|_2 = rho,

while ``|w'B X|^2 / |w|^2`` is chi-square with s degrees of freedom: the odds that it is below
``(rho / p(tau))^2`` bound the chance of a miss. No sweep is made for it, and nothing of X enters the solver
(but it may choose its filters by what the solver has seen).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import gammainc

from spectrograd.certificate.certificate import ENOUGH, ComplementBound, needed_cut, probe_seed
from spectrograd.engines.base import Engine, MultiVector, new_seed
from spectrograd.linalg.chebyshev import NARROWEST, Filter, damping
from spectrograd.linalg.subspace import Ritz, orthonormalize
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

# Columns: chi-square of 8 degrees is below 0.7 in one of 2,000 cases, of one degree only below 4e-7; more
# columns would save a sweep and cost more in each.
COLUMNS = 8
# Sweeps that it may ask for after the solver has stopped: no more than a probe of its own takes.
MOST_MORE = 24
# How often it may be looked at before a run is certified: a Rayleigh-Ritz or a pass each, in three attempts
# at most. When to stop depends on what was seen, so that all looks share the level; with eight columns a
# hundredth of it costs less than a degree more.
LOOKS = 100
ROUNDING = 2  # units of a sweep's last digit, of the length of what went into it


@dataclass(frozen=True, eq=False)
class ProbeBlock:
    """Columns on their way: ``X`` (N x s) after the ``filters``.

    ``lengths`` are the norms of what went into each sweep, and ``before`` is what went into the last one.
    ``null`` (N x 1) is a known null vector, which was taken out at the beginning: the longest of all after a
    few degrees, it would cover the others with its rounding errors.
    """

    X: MultiVector
    lengths: tuple[float, ...] = ()
    filters: tuple[Filter, ...] = ()
    before: MultiVector | None = None
    null: MultiVector | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ProbeBlock:
        """Itself: it never changes."""
        return self

    def after(self, smooth: Filter, X: MultiVector, lengths: tuple[float, ...]) -> ProbeBlock:
        """One filter later."""
        lengths, filters = (*self.lengths, *lengths), (*self.filters, smooth)
        return replace(self, X=X, lengths=lengths, filters=filters, before=None)

    def beginning(self, cut: float, upper: float) -> ProbeBlock:
        """The same at the beginning of a filter that goes on one degree at a time."""
        return replace(self, filters=(*self.filters, Filter(0, cut, upper)), before=None)

    def advanced(self, engine: Engine, operator: Operator, product: MultiVector) -> ProbeBlock:
        """One degree of the last filter later; ``product`` is ``B^-1 A X``."""
        smooth = self.filters[-1]
        a, b, c = next(islice(damping(operator.lower, smooth.cut, smooth.upper), smooth.degree, None))
        same = np.eye(self.X.shape[1])
        X = engine.combine(product, a * same, self.X, b * same)
        if self.before is not None:
            X = engine.combine(X, same, self.before, c * same)
        lengths = (*self.lengths, norm(engine, self.X, operator.metric))
        filters = (*self.filters[:-1], replace(smooth, degree=smooth.degree + 1))
        return replace(self, X=X, lengths=lengths, filters=filters, before=self.X)


def new_probe_block(engine: Engine, operator: Operator, rng: np.random.Generator, dtype: Any) -> ProbeBlock:
    """Columns that are standard normal in the metric of the operator, which is in the form to be swept.

    They are zero on rows that take no part, as every vector is that could have been missed.
    """
    X = engine.random(operator.n_nodes, COLUMNS, probe_seed(new_seed(rng), operator), dtype)
    mass = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
    factors = 1 / np.sqrt(mass)
    if operator.excluded_rows is not None:
        factors[operator.excluded_rows] = 0
    X, known = engine.scale_rows(X, engine.from_numpy(factors[:, None])), operator.null_vector
    if known is None:
        return ProbeBlock(X)
    null = engine.from_numpy((known / np.sqrt(known @ (mass * known)))[:, None].astype(dtype))
    metric = engine.load_operator(operator).metric
    for _ in range(2):  # the second time takes out what rounding left
        X = engine.combine(X, np.eye(COLUMNS), null, -engine.gram(null, X, metric))
    return ProbeBlock(X, null=null)


@dataclass(frozen=True, eq=False)
class BlockProbeEvidence(ComplementBound):
    """What the columns tell: ``rho`` is their norm outside of what was found.

    The sweeps, through ``filters`` that leave one at ``lower``, began with columns of these ``lengths``;
    ``eps`` is the precision of their numbers, and the odds are those of one look times ``looks``.
    """

    rho: float = math.inf
    filters: tuple[Filter, ...] = ()
    lower: float = 0.0
    n_columns: int = COLUMNS
    lengths: tuple[float, ...] = ()
    eps: float = 0.0
    looks: int = 1

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self._end:
            return 1.0
        gain = sum(smooth.log_gain(tau, self.lower) for smooth in self.filters)  # log p(tau), at most 0
        return self._odds(math.log(max(self.rho, 1e-300)) - gain, self.log_noise(tau))

    @property
    def _end(self) -> float:
        """Where the first of the filters begins to damp: of what lies above they tell nothing."""
        return min((smooth.cut for smooth in self.filters), default=-math.inf)

    def farthest(self, top: float) -> float:
        """The largest tau whose odds are good, between the last value found and the end of the filters.

        Odds grow with tau. So if something was missed below the one that is chosen, the odds of the least
        tau above it were good as well, and they are those of a fixed number: choosing costs nothing.
        """
        usual, count = super().farthest(top), 64
        if not self._end > top:
            return usual
        cuts = np.linspace(top, self._end, count + 2)[1:-1]
        n_good = bisect_right(range(count), ENOUGH, key=lambda at: self.odds_below(float(cuts[at])))
        return max(usual, float(cuts[n_good - 1])) if n_good else usual

    def best_odds(self, tau: float) -> float:
        """What the odds would be if nothing but rounding were left of the columns."""
        return self._odds(-math.inf, self.log_noise(tau))

    def log_noise(self, tau: float) -> float:
        """Rounding errors, in units of what the filters leave of a missed vector.

        Those of a sweep are as large as what went into it, and go through the later degrees as a missed
        vector does: only the degrees up to then make it smaller than they are.
        """
        logs, gain, lengths = [-math.inf], 0.0, iter(self.lengths)
        for smooth in self.filters:
            for degree in range(1, smooth.degree + 1):
                done = gain + replace(smooth, degree=degree).log_gain(tau, self.lower)
                logs.append(math.log(max(ROUNDING * self.eps * next(lengths, 0.0), 1e-300)) - done)
            gain += smooth.log_gain(tau, self.lower)
        return float(np.logaddexp.reduce(logs))

    def _odds(self, log_rest: float, log_noise: float) -> float:
        log_ratio = float(np.logaddexp(log_rest, log_noise))
        chance = float(gammainc(self.n_columns / 2, math.exp(min(2 * log_ratio, 700)) / 2))
        return min(1.0, self.looks * chance)


def evidence_from_block(
    engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector, lowest: float, looks: int = 1
) -> BlockProbeEvidence:
    """Evidence of a probe block on the complement of Q (N x K, orthonormal in the metric); no pass.

    As many ``looks`` share the level of the odds.
    """
    return _seen(engine, operator, probe_block, _with_null(engine, operator, probe_block, Q), lowest, looks)


def _with_null(engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector) -> MultiVector:
    """A null vector that was taken out takes the place of the first column of Q, its approximation.

    The argument counts eigenvalues, and any K vectors will do for it.
    """
    if probe_block.null is None:
        return Q
    k = Q.shape[1]
    rest = np.diag(np.arange(k) > 0).astype(float)
    both = engine.combine(Q, rest, engine.astype(probe_block.null, Q.dtype), np.eye(1, k))
    return orthonormalize(engine, both, operator.metric).Q


def _seen(
    engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector, lowest: float, looks: int
) -> BlockProbeEvidence:
    metric, s = operator.metric, int(probe_block.X.shape[1])
    outside = engine.combine(probe_block.X, np.eye(s), Q, -engine.gram(Q, probe_block.X, metric))
    eps = float(np.finfo(probe_block.X.dtype).eps)
    return _block_evidence(operator, probe_block, norm(engine, outside, metric), lowest, eps, looks)


def _block_evidence(
    operator: Operator, probe_block: ProbeBlock, rho: float, lowest: float, eps: float, looks: int
) -> BlockProbeEvidence:
    cost = len(probe_block.lengths) * COLUMNS
    rest = (COLUMNS, probe_block.lengths, eps, looks)
    return BlockProbeEvidence(lowest, cost, None, rho, probe_block.filters, operator.lower, *rest)


def evidence_from_gram(
    operator: Operator, probe_block: ProbeBlock, M: Array, k: int, lowest: float, eps: float, looks: int = 1
) -> BlockProbeEvidence:
    """As :func:`evidence_from_block`, by the Gram matrix M of K orthonormal columns and the probe block."""
    s = COLUMNS
    across, own = M[:k, -s:], M[:k, :k]
    rho = longest(M[-s:, -s:] - across.T @ np.linalg.solve(own, across))
    return _block_evidence(operator, probe_block, rho, lowest, eps, looks)


def extend_block_probe(
    engine: Engine,
    operator: Operator,
    probe_block: ProbeBlock,
    ritz: Ritz,
    lowest: float,
    cut: float,
    residual: float,
    looks: int = 1,
) -> BlockProbeEvidence:
    """The same, with as many sweeps more as the odds take.

    ``ritz`` are the vectors found, with values and ``residual``; ``lowest`` is the solver's guess of the next
    eigenvalue and ``cut`` where filters begin. Where rounding hides what is looked for, no sweep helps.
    """
    tau = needed_cut(float(ritz.values[-1]), lowest, residual)
    Q = _with_null(engine, operator, probe_block, ritz.Q)
    seen = _seen(engine, operator, probe_block, Q, lowest, looks)
    if tau >= min(cut, operator.upper):
        return seen
    inside = operator.upper - NARROWEST * (operator.upper - operator.lower)
    probe_block = probe_block.beginning(min(cut, inside), operator.upper)
    for _ in range(MOST_MORE):
        if seen.odds_below(tau) <= ENOUGH or seen.best_odds(tau) > ENOUGH:
            break
        product = engine.recurrence(operator, probe_block.X, probe_block.X, (1.0, 0.0, 0.0))
        probe_block = probe_block.advanced(engine, operator, product)
        seen = _seen(engine, operator, probe_block, Q, lowest, looks)
    return seen


def norm(engine: Engine, X: MultiVector, metric: MultiVector | None) -> float:
    """The largest singular value in the metric."""
    return longest(engine.gram(X, X, metric))


def longest(M: Array) -> float:
    """The largest singular value of columns with this Gram matrix."""
    return math.sqrt(max(float(np.linalg.eigvalsh((M + M.T) / 2)[-1]), 0.0))
