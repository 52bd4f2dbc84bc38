"""The probe block: random columns in the solver's own passes bound the odds of a skipped eigenvector.

Let X be s Gaussian columns, standard in the metric B and independent of all that the solver uses, and p a
polynomial that is positive and falls on the spectrum below tau (a product of the solver's own Chebyshev
filters). If more than K eigenvalues lay below tau, some unit vector v in the span of their eigenvectors would
be orthogonal to the K vectors Q that were found. ``w = p(A) v`` lies in that span too, is at least ``p(tau)``
long, and

    |w'B X| = |v'B p(A) X| <= |(I - Q Q'B) p(A) X|_2 = rho,

while ``|w'B X|^2 / |w|^2`` is chi-square with s degrees of freedom: the odds that it is below
``(rho / p(tau))^2`` bound the chance of a miss. No pass is made for it, and nothing of X enters the solver
(but it may choose its filters by the Ritz values of the solver).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import gammainc

from spectrograd.certificate.certificate import TARGET_ODDS, ComplementBound, needed_cut, probe_seed
from spectrograd.engines.base import Engine, MultiVector, new_seed
from spectrograd.linalg.chebyshev_filter import MIN_DAMPED_SHARE, Filter, damping_coefficients
from spectrograd.linalg.subspace import Ritz, orthonormalize
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

# Columns: chi-square of 8 degrees is below 0.7 in one of 2,000 cases, of one degree only below 4e-7; more
# columns would save a pass and cost more in each.
PROBE_COLUMNS = 8
# Passes that it may add after the solver has stopped: no more than a Lanczos probe takes.
MAX_EXTRA_PASSES = 24
# How often it may be looked at before a run is certified: a Rayleigh-Ritz or a pass each, in three attempts
# at most. When to stop depends on what was seen, so that all looks share the level; with eight columns a
# hundredth of it costs less than a degree more.
MAX_LOOKS = 100
ROUNDING_UNITS = 2  # rounding error of a pass: units of the last digit, times the norm of its input


@dataclass(frozen=True, eq=False)
class ProbeBlock:
    """Gaussian columns ``X`` (N x s) after the ``filters``.

    ``lengths`` are the norms of the input of each pass, and ``before`` (N x s) is the input of the last one.
    ``null`` (N x 1) is a known null vector, which was projected out at first: the longest of all after a few
    degrees, it would cover the others with its rounding errors.
    """

    X: MultiVector
    lengths: tuple[float, ...] = ()
    filters: tuple[Filter, ...] = ()
    before: MultiVector | None = None
    null: MultiVector | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> ProbeBlock:
        """Itself: it never changes."""
        return self

    def with_filter(self, smooth: Filter, X: MultiVector, lengths: tuple[float, ...]) -> ProbeBlock:
        """The block after one more filter: X (N x s), and the norms of the inputs of its passes."""
        lengths = (*self.lengths, *lengths)
        filters = (*self.filters, smooth)
        return replace(self, X=X, lengths=lengths, filters=filters, before=None)

    def begin_filter(self, cut: float, upper: float) -> ProbeBlock:
        """The block at degree 0 of a filter that is applied one degree at a time."""
        return replace(self, filters=(*self.filters, Filter(0, cut, upper)), before=None)

    def advance(self, engine: Engine, operator: Operator, product: MultiVector) -> ProbeBlock:
        """The block after one more degree of the last filter; ``product`` (N x s) is ``B^-1 A X``."""
        smooth = self.filters[-1]
        # X_j+1 = a B^-1 A X_j + b X_j + c X_j-1: the damped Chebyshev recurrence
        a, b, c = next(
            islice(damping_coefficients(operator.lower, smooth.cut, smooth.upper), smooth.degree, None)
        )
        same = np.eye(self.X.shape[1])
        X = engine.combine(product, a * same, self.X, b * same)
        if self.before is not None:
            X = engine.combine(X, same, self.before, c * same)
        lengths = (*self.lengths, metric_norm(engine, self.X, operator.metric))
        filters = (*self.filters[:-1], replace(smooth, degree=smooth.degree + 1))
        return replace(self, X=X, lengths=lengths, filters=filters, before=self.X)


def new_probe_block(
    engine: Engine, operator: Operator, rng: np.random.Generator, dtype: DTypeLike
) -> ProbeBlock:
    """Draw columns that are standard normal in the metric of the operator, which is in random-walk form.

    They are zero on excluded rows, as every vector is that could have been missed.
    """
    X = engine.random(operator.n_nodes, PROBE_COLUMNS, probe_seed(new_seed(rng), operator), dtype)
    # x = B^-1/2 g with g standard normal: v'B x is standard normal for every unit vector v
    mass = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
    factors = 1 / np.sqrt(mass)
    if operator.excluded_rows is not None:
        factors[operator.excluded_rows] = 0
    X = engine.scale_rows(X, engine.from_numpy(factors[:, None]))
    vector = operator.null_vector
    if vector is None:
        return ProbeBlock(X)
    null = engine.from_numpy((vector / np.sqrt(vector @ (mass * vector)))[:, None].astype(dtype))
    metric = engine.load_operator(operator).metric
    for _ in range(2):  # the second time takes out what rounding left
        X = engine.combine(X, np.eye(PROBE_COLUMNS), null, -engine.gram(null, X, metric))
    return ProbeBlock(X, null=null)


@dataclass(frozen=True, eq=False)
class BlockProbeEvidence(ComplementBound):
    """Evidence of a probe block: ``rho`` is its norm outside the K vectors of the solver.

    The passes, through ``filters`` that are one at ``lower``, had inputs of these ``lengths``; ``eps`` is the
    precision of their numbers, and the odds are those of one look times ``looks``.
    """

    rho: float = math.inf
    filters: tuple[Filter, ...] = ()
    lower: float = 0.0
    n_columns: int = PROBE_COLUMNS
    lengths: tuple[float, ...] = ()
    eps: float = 0.0
    looks: int = 1

    def odds_below(self, tau: float) -> float:
        """Odds of ``chi^2_s <= (rho / p(tau))^2``, rounding included, times the looks."""
        if tau >= self._end:
            return 1.0
        gain = sum(smooth.log_gain(tau, self.lower) for smooth in self.filters)  # log p(tau), at most 0
        return self._odds(math.log(max(self.rho, 1e-300)) - gain, self.log_noise(tau))

    @property
    def _end(self) -> float:
        """The least cut of the filters: above it they give no evidence."""
        return min((smooth.cut for smooth in self.filters), default=-math.inf)

    def farthest(self, top: float) -> float:
        """The largest tau whose odds are good, between the last Ritz value and the end of the filters.

        Odds grow with tau. So if something was missed below the one that is chosen, the odds of the least
        tau above it were good as well, and they are those of a fixed number: choosing costs nothing.
        """
        usual = super().farthest(top)
        count = 64
        if not self._end > top:
            return usual
        cuts = np.linspace(top, self._end, count + 2)[1:-1]
        n_good = bisect_right(range(count), TARGET_ODDS, key=lambda at: self.odds_below(float(cuts[at])))
        return max(usual, float(cuts[n_good - 1])) if n_good else usual

    def best_odds(self, tau: float) -> float:
        """The odds if nothing but rounding were left of the columns."""
        return self._odds(-math.inf, self.log_noise(tau))

    def log_noise(self, tau: float) -> float:
        """Logarithm of the rounding errors, in units of what the filters leave of a missed vector.

        The error of a pass is proportional to the norm of its input, and the later degrees damp it as they
        damp a missed vector: only the degrees up to then make the vector smaller than the error.
        """
        logs = [-math.inf]
        gain = 0.0
        lengths = iter(self.lengths)
        for smooth in self.filters:
            for degree in range(1, smooth.degree + 1):
                # what the filters up to this degree leave of a vector with eigenvalue tau
                gain_so_far = gain + replace(smooth, degree=degree).log_gain(tau, self.lower)
                logs.append(
                    math.log(max(ROUNDING_UNITS * self.eps * next(lengths, 0.0), 1e-300)) - gain_so_far
                )
            gain += smooth.log_gain(tau, self.lower)
        return float(np.logaddexp.reduce(logs))

    def _odds(self, log_rest: float, log_noise: float) -> float:
        # rho and the rounding errors add up, as logarithms: both range over hundreds of decades
        log_ratio = float(np.logaddexp(log_rest, log_noise))
        # P(chi^2_s <= x) = P(s/2, x/2), the regularised incomplete gamma function
        chance = float(gammainc(self.n_columns / 2, math.exp(min(2 * log_ratio, 700)) / 2))
        return min(1.0, self.looks * chance)


def evidence_from_block(
    engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector, lowest: float, looks: int = 1
) -> BlockProbeEvidence:
    """Evidence of a probe block on the complement of Q (N x K, orthonormal in the metric); no pass.

    As many ``looks`` share the level of the odds.

    Parameters
    ----------
    engine, operator
        The operator is loaded on the engine.
    probe_block
        After the filters of the solver; columns X, N x s.
    Q
        Multivector N x K, orthonormal in the metric.
    lowest
        The solver's estimate of the next eigenvalue.
    looks
        As many looks share the level of the odds.
    """
    return _evidence_outside(
        engine, operator, probe_block, _with_null(engine, operator, probe_block, Q), lowest, looks
    )


def _with_null(engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector) -> MultiVector:
    """Replace the first column of Q, an approximation of the null vector, by the one projected out.

    The argument counts eigenvalues, and any K vectors will do for it.
    """
    if probe_block.null is None:
        return Q
    k = Q.shape[1]
    # zero out the first column of Q, and put the null vector there
    rest = np.diag(np.arange(k) > 0).astype(float)
    both = engine.combine(Q, rest, engine.astype(probe_block.null, Q.dtype), np.eye(1, k))
    return orthonormalize(engine, both, operator.metric).Q


def _evidence_outside(
    engine: Engine, operator: Operator, probe_block: ProbeBlock, Q: MultiVector, lowest: float, looks: int
) -> BlockProbeEvidence:
    metric = operator.metric
    s = int(probe_block.X.shape[1])
    # rho = |(I - Q Q'B) p(A) X|_2
    outside = engine.combine(probe_block.X, np.eye(s), Q, -engine.gram(Q, probe_block.X, metric))
    eps = float(np.finfo(probe_block.X.dtype).eps)
    return _block_evidence(operator, probe_block, metric_norm(engine, outside, metric), lowest, eps, looks)


def _block_evidence(
    operator: Operator, probe_block: ProbeBlock, rho: float, lowest: float, eps: float, looks: int
) -> BlockProbeEvidence:
    cost = len(probe_block.lengths) * PROBE_COLUMNS
    rest = (PROBE_COLUMNS, probe_block.lengths, eps, looks)
    return BlockProbeEvidence(lowest, cost, None, rho, probe_block.filters, operator.lower, *rest)


def evidence_from_gram(
    operator: Operator, probe_block: ProbeBlock, M: Array, k: int, lowest: float, eps: float, looks: int = 1
) -> BlockProbeEvidence:
    """As :func:`evidence_from_block`, by the Gram matrix M of K orthonormal columns and the probe block.

    Parameters
    ----------
    operator, probe_block
        As of :func:`evidence_from_block`; the columns themselves are not needed.
    M : array of shape (m, m)
        Gram matrix of a block that begins with the K vectors and ends with the s columns of the probe.
    k
        Number of vectors.
    lowest
        The solver's estimate of the next eigenvalue.
    eps
        Precision of the block.
    looks
        As many looks share the level of the odds.
    """
    s = PROBE_COLUMNS
    across = M[:k, -s:]
    own = M[:k, :k]
    # rho^2 = |X'BX - X'BQ (Q'BQ)^-1 Q'BX|_2, a Schur complement
    rho = spectral_norm(M[-s:, -s:] - across.T @ np.linalg.solve(own, across))
    return _block_evidence(operator, probe_block, rho, lowest, eps, looks)


def extend_block_probe(
    engine: Engine,
    operator: Operator,
    probe_block: ProbeBlock,
    ritz: Ritz,
    lowest: float,
    cut: float,
    residuals: Array | float,
    looks: int = 1,
) -> BlockProbeEvidence:
    """Evidence of a probe block after as many further passes as its odds need, at most ``MAX_EXTRA_PASSES``.

    Where rounding errors exceed what a missed vector would leave, no pass helps and none is made.

    Parameters
    ----------
    engine, operator
        The operator is loaded on the engine.
    probe_block
        After the filters of the solver.
    ritz
        The K Ritz pairs of the solver.
    lowest
        The solver's estimate of the next eigenvalue.
    cut
        Where the added filter begins to damp.
    residuals
        Those of ``ritz``, of shape (K,).
    looks
        As many looks share the level of the odds.
    """
    # 1. up to where nothing may be missed, and what the solver's own filters say of that
    tau = needed_cut(ritz.values, lowest, residuals)
    Q = _with_null(engine, operator, probe_block, ritz.Q)
    evidence = _evidence_outside(engine, operator, probe_block, Q, lowest, looks)
    if tau >= min(cut, operator.upper):
        return evidence
    # 2. a further filter, one degree and one pass at a time
    inside = operator.upper - MIN_DAMPED_SHARE * (operator.upper - operator.lower)
    probe_block = probe_block.begin_filter(min(cut, inside), operator.upper)
    for _ in range(MAX_EXTRA_PASSES):
        # enough, or rounding alone exceeds what may be left: more passes would change nothing
        if evidence.odds_below(tau) <= TARGET_ODDS or evidence.best_odds(tau) > TARGET_ODDS:
            break
        product = engine.recurrence(operator, probe_block.X, probe_block.X, (1.0, 0.0, 0.0))
        probe_block = probe_block.advance(engine, operator, product)
        evidence = _evidence_outside(engine, operator, probe_block, Q, lowest, looks)
    return evidence


def metric_norm(engine: Engine, X: MultiVector, metric: MultiVector | None) -> float:
    """The largest singular value in the metric."""
    return spectral_norm(engine.gram(X, X, metric))


def spectral_norm(M: Array) -> float:
    """The largest singular value of columns with this Gram matrix."""
    return math.sqrt(max(float(np.linalg.eigvalsh((M + M.T) / 2)[-1]), 0.0))
