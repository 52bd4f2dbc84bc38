"""The certificate of Ritz pairs: error bounds that hold whatever solver made them.

For K Ritz pairs ``theta, q`` of the pencil ``A u = lambda B u`` with ``Q'BQ = I``:

1. **Residuals.** Each interval ``theta +- r`` with ``r = |A q - theta B q|`` in the norm of ``B^-1`` holds an
   eigenvalue (Parlett 1998, section 4.5). They do not say that these are the smallest eigenvalues.
2. **Completeness.** A :class:`ComplementBound` says how likely its evidence would be if an eigenvector with
   eigenvalue below some ``tau`` had been missed: zero after a count, a p-value after a random probe.
3. **Angle.** Where nothing below ``tau > theta_K`` was missed, the sine of the largest angle between the span
   of Q and the true subspace is at most ``(sum_j (r_j / (tau - theta_j))^2)^1/2`` (:func:`sine_bound`).

Rounding enters rigorously: a bound on it is added to the residuals and subtracted from the distance.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from spectrograd.certificate.mixed_columns import MixedColumns
from spectrograd.engines import Engine
from spectrograd.engines.base import MultiVector
from spectrograd.graph import Graph
from spectrograd.graph.graph import magnitudes
from spectrograd.linalg.subspace import Ritz, orthogonality_error
from spectrograd.notices import warn
from spectrograd.operators.base import Operator, OperatorOfSeveral
from spectrograd.operators.sparse import SparseOperator
from spectrograd.typing import Array, JsonObject

GOOD_ANGLE = 0.03  # sine that clustering needs: labels do not change below it
MAX_MISS_ODDS = 1e-3
TARGET_ODDS = MAX_MISS_ODDS / 2
# Where tau may lie, as fractions of the gap.
MIN_GAP_FRACTION = 0.05
MAX_GAP_FRACTION = 0.5
CUT_ITERATIONS = 4
CUT_ANGLE = 0.98 * GOOD_ANGLE  # that a cut is chosen for
# Cells of the spectrum's width into which eigenvalues are sorted before they enter a seed, and where cells
# begin: eigenvalues of graphs are often round numbers, and none of those is to lie on an edge of a cell.
SEED_CELLS = 1024
FIRST_CELL_EDGE = (5**0.5 - 1) / 2


# --- Bounds on the spectrum outside the span.


@dataclass(frozen=True, eq=False)
class ComplementBound:
    """A bound on the spectrum outside the span of K vectors; this one holds with certainty.

    ``lowest`` is the smallest eigenvalue there (or a Ritz value, where that is not known), ``columns`` the
    cost in products of the operator with single columns, and no eigenvalue lies below ``complete_below``
    (None: ``lowest``).
    """

    lowest: float
    columns: int = 0
    complete_below: float | None = None

    def odds_below(self, tau: float) -> float:
        """The chance of evidence this good if an eigenvector with eigenvalue below ``tau`` was missed."""
        return 0.0 if tau < (self.lowest if self.complete_below is None else self.complete_below) else 1.0

    def farthest(self, top: float) -> float:
        """The highest tau that the evidence supports: half way from the last Ritz value to ``lowest``."""
        return top + MAX_GAP_FRACTION * max(self.lowest - top, 0.0)


def sine_bound(values: Array, residuals: Array | float, beyond: float) -> float:
    """Bound the sine of the largest angle between the span of Ritz vectors and the true subspace.

    All other eigenvalues are at least ``beyond``. Let V be their eigenvectors, L their values and
    ``r_j = A q_j - theta_j B q_j``. Then ``(L - theta_j) V'B q_j = V' r_j``, a Sylvester equation by columns,
    so ``|V'B q_j| <= |r_j| / (beyond - theta_j)``. The sine is the spectral norm of ``V'BQ``, at most the
    root of the sum of these squares: Davis and Kahan (1970) with a gap for every column. Without a gap it is
    infinite.
    """
    distances = beyond - values
    if not distances[-1] > 0:
        return float("inf")
    return float(np.linalg.norm(residuals / distances))


def needed_cut(values: Array, lowest: float, residuals: Array | float) -> float:
    """``tau`` between the last Ritz value and the lowest outside, up to which evidence is needed.

    :func:`sine_bound` at tau should be good; tau is no higher than that takes, since evidence is cheaper the
    farther it stays from ``lowest``.
    """
    top = float(values[-1])
    gap = lowest - top
    if not gap > 0:
        return top
    high = top + MAX_GAP_FRACTION * gap
    # Newton's method for 1 / sine_bound, which is concave in tau and nearly linear: iterates stay below tau.
    tau = top + MIN_GAP_FRACTION * gap
    if not tau > top:  # a gap below the rounding of its ends
        return top
    for _ in range(CUT_ITERATIONS):
        ratios = residuals / (tau - values)
        squares = ratios * ratios
        sine = math.sqrt(squares.sum())
        if sine <= CUT_ANGLE or tau >= high:
            break
        slope = float((squares / (tau - values)).sum()) / sine**2
        tau = min(high, tau + (sine / CUT_ANGLE - 1) / slope)
    return tau


def probe_seed(seed: int, operator: Operator, values: Array | None = None) -> int:
    """The seed of a probe's random numbers: a hash of the user's seed, the degrees and the Ritz values.

    With the user's seed alone every graph of N nodes would meet the same random vector, each update of a
    model as well, and an eigenvector nearly orthogonal to it would stay hidden. Degrees are those of the
    graph, whatever engine or number of threads is at work, relative to the largest and in float32.
    Eigenvalues do differ in their last digits from one engine to the other, so that only the cell of each,
    a thousandth of the width of the spectrum, is taken: engines draw the same numbers unless a value lies
    within its own rounding error of an edge.
    """
    # user's seed, number of nodes, degrees, cells of the Ritz values: all that makes this problem another one
    digest = hashlib.blake2b(np.int64(seed).tobytes() + np.int64(operator.n_nodes).tobytes(), digest_size=8)
    for degrees in _degrees(operator):
        largest = float(degrees.max(initial=0.0)) or 1.0
        digest.update((degrees / largest).astype("<f4").tobytes())
    if values is not None:
        part = (np.asarray(values, dtype=np.float64) - operator.lower) / (operator.upper - operator.lower)
        digest.update(np.floor(SEED_CELLS * part + FIRST_CELL_EDGE).astype("<i8").tobytes())
    return int.from_bytes(digest.digest(), "little") >> 2


def _degrees(operator: Operator) -> Iterator[Array]:
    if isinstance(operator, SparseOperator):
        yield operator.graph.degrees
    elif isinstance(operator, OperatorOfSeveral):
        for own in operator.operators:
            yield from _degrees(own)


# --- The certificate: how far a result can be from the truth, measured after the fact.

GAP_BISECTIONS = 8  # of the gap, to see how far the evidence reaches: to half a per cent
BULK_GAP_RATIO = 20.0  # times every later gap: where clusters end and a bulk begins
MAX_EXCLUDED_WEIGHT = 1e-3  # length of a vector on excluded rows; float32 leaves some 1e-6 there
EXCLUDED_CHUNK = 1 << 16  # excluded rows that are looked at together
PROBE_NOISE = 1e-5  # of the width: a gap that is no less than this below zero may be none, seen in float32


@dataclass(frozen=True, eq=False)
class Certificate:
    """Evidence about an embedding, whatever solver made it.

    Attributes
    ----------
    residuals
        ``|A q - theta B q|`` per vector in the natural norm, with ``rounding`` added: each interval
        ``theta +- residual`` holds an eigenvalue.
    orthogonality
        Largest entry of ``|Q'BQ - I|``.
    gap
        Distance from the last eigenvalue found to what lies beyond, as the probe saw it: an estimate, and
        over a store often too wide (a Ritz value of a rough vector); ``gap_bound`` is a lower bound.
    angle_bound
        Bound on the sine of the largest angle to the true subspace: residual over a part of the gap. Infinite
        where nothing bounds it: the odds of a miss are not met, or no gap is left.
    missed_probability
        The chance of evidence this good if a smaller eigenvalue was skipped (a p-value, not the chance that
        one was); 0 where all were counted.
    columns
        What the probe cost: products of the operator with single columns; that of its guard vectors, at most
        eight columns at once, counts as one.
    asked
        The angle (or, with a number as ``tol``, the relative residual) that was asked for.
    known
        Why nothing was measured: the result is exact, or was given up.
    rounding
        By how much rounding may move an eigenvalue of the operator; residuals and angle include it.
    objection
        Why the numbers themselves are not to be believed; empty where nothing speaks against them.
    complete_below
        As far as the odds of a miss stay small: below it lie the eigenvalues found and no others.
    uncertified_layers
        Names of the layers behind a merge whose own embeddings fell short, whatever the merge is worth.
    mixed
        The statement on columns that are mixtures of eigenvectors, which have no certificate; else None.
    determined, leading_angle
        Where K cuts through a bulk of eigenvalues without a gap: how many vectors lie before it, and the
        bound on the sine of the angle of their span; None where that is not so.
    """

    residuals: Array
    eigenvalues: Array
    orthogonality: float
    gap: float
    angle_bound: float
    missed_probability: float
    columns: int
    asked: str
    converged: bool
    known: str = ""
    rounding: float = 0.0
    objection: str = ""
    complete_below: float = -np.inf
    uncertified_layers: tuple[str, ...] = ()
    determined: int | None = None
    leading_angle: float = float("inf")
    mixed: MixedColumns | None = None

    @property
    def is_as_asked(self) -> bool:
        """Whether the accuracy was reached; of mixtures of eigenvectors: whether they are free of doubts."""
        return self.converged or (self.mixed is not None and not self.mixed.objections)

    @property
    def max_residual(self) -> float:
        """The worst residual."""
        return float(self.residuals.max())

    @property
    def sure(self) -> float:
        """The former name of ``complete_below``."""
        warn("Certificate.sure will be removed: it is called complete_below", FutureWarning)
        return self.complete_below

    @property
    def gap_bound(self) -> float:
        """A lower bound on the gap: ``lambda_K+1 >= complete_below`` and ``lambda_K <= theta_K``."""
        return (
            max(0.0, self.complete_below - float(self.eigenvalues[-1]))
            if np.isfinite(self.complete_below)
            else 0.0
        )

    @property
    def intervals(self) -> Array:
        """Per vector an interval that holds an eigenvalue, K x 2."""
        return np.column_stack([self.eigenvalues - self.residuals, self.eigenvalues + self.residuals])

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        if self.uncertified_layers:
            names = ", ".join(self.uncertified_layers)
            merge = replace(self, uncertified_layers=())
            return f"NOT converged in layers {names}; the merge: {merge.sentence}"
        if self.mixed is not None:
            return f"not measured: {self.mixed.sentence}"
        if self.known:
            return f"{'exact' if self.converged else 'not measured'}: {self.known}"
        word = "converged" if self.converged else "NOT converged"
        if self.objection:
            reason = self.objection
        elif self.determined is not None:
            reason = (
                f"K cuts through a bulk: vectors after the {ordinal(self.determined)} are not determined, "
                f"the span of those before is within an angle of sine {self.leading_angle:.2g} of the truth"
            )
        elif self.gap <= 0:
            reason = "an eigenvalue as small as the last one lies outside the subspace"
        elif self.missed_probability > MAX_MISS_ODDS:
            reason = f"the probe cannot rule out a skipped eigenvector (p = {self.missed_probability:.2g})"
        elif not self.angle_bound < 1:
            reason = "the gap is too small for these residuals: nothing bounds the angle to the truth"
        else:
            reason = f"the subspace is within an angle of sine {self.angle_bound:.2g} of the truth"
        return f"{word} (asked for {self.asked}): {reason}; largest residual {self.max_residual:.2g}"

    def in_units(self, unit: float) -> Certificate:
        """The certificate for eigenvalues ``unit`` times as large."""
        return replace(
            self,
            residuals=unit * self.residuals,
            eigenvalues=unit * self.eigenvalues,
            gap=unit * self.gap,
            rounding=unit * self.rounding,
            complete_below=unit * self.complete_below,
            mixed=None if self.mixed is None else self.mixed.in_units(unit),
        )

    def summary(self) -> JsonObject:
        """The values that ``--summary-json`` holds."""
        return {
            "converged": self.converged,
            "max_residual": self.max_residual,
            "angle_bound": min(self.angle_bound, 1.0),
            "orthogonality": self.orthogonality,
            "missed_probability": self.missed_probability,
            "gap": self.gap,
            "determined": self.determined,
            "gap_bound": self.gap_bound,
            "sentence": self.sentence,
            "mixed_columns": None if self.mixed is None else self.mixed.summary(),
        }


def ordinal(number: int) -> str:
    """An ordinal number, in words up to the twelfth."""
    words = [
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
        "eleventh",
        "twelfth",
    ]
    if number <= len(words):
        return words[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def before_the_bulk(values: Array, k: int) -> int | None:
    """Count the values before a bulk that the K-th of them lies in; None: there is no such bulk.

    A bulk is what follows a gap beside which all later ones are tiny: which vectors of it belong to the first
    K is chance. ``values`` are ascending, the last one is that after the K-th. A lone first vector, the
    constant, is no cluster.
    """
    gaps = np.diff(values)
    if k < 2 or len(gaps) < k:
        return None
    # BULK_GAP_RATIO times every later gap: the last such gap ends the clusters
    later = np.maximum.accumulate(gaps[::-1])[::-1]  # the widest gap from each on
    apart = np.flatnonzero(gaps[: k - 1] > BULK_GAP_RATIO * later[1:k])
    return int(apart[-1]) + 1 if len(apart) and apart[-1] > 0 else None


def certificate_of_leading(leading: Certificate, ritz: Ritz, measured: Array, beyond: float) -> Certificate:
    """The certificate of K vectors of which only those before a bulk are certified: not converged."""
    return replace(
        leading,
        residuals=measured,
        eigenvalues=ritz.values,
        gap=beyond - float(ritz.values[-1]),
        angle_bound=float("inf"),
        converged=False,
        determined=len(leading.eigenvalues),
        leading_angle=leading.angle_bound,
    )


def exact_certificate(n_components: int, known: str) -> Certificate:
    """The certificate of exact vectors, for the reason ``known``."""
    zeros = np.zeros(n_components)
    return Certificate(zeros, zeros, 0.0, 0.0, 0.0, 0.0, 0, "exact", True, known)


def unmeasured_certificate(eigenvalues: Array, why: str) -> Certificate:
    """A certificate without measurements, for the reason ``why``: not converged."""
    unknown = np.full(len(eigenvalues), np.inf)
    return Certificate(unknown, eigenvalues, np.inf, 0.0, np.inf, 1.0, 0, "nothing", False, why)


def mixed_certificate(values: Array, mixed: MixedColumns) -> Certificate:
    """The statement on mixtures of eigenvectors, whose values are Rayleigh quotients: not converged."""
    return replace(unmeasured_certificate(values, "mixtures of eigenvectors"), mixed=mixed)


def certify(
    engine: Engine,
    operator: Operator,
    ritz: Ritz,
    tol: float | str,
    complement_bound: ComplementBound,
    measured: Array,
    rounding: float | None = None,
    cast: float = 0.0,
) -> Certificate:
    """Certify Ritz pairs by their residuals and a bound on the spectrum outside their span.

    The angle follows from :func:`sine_bound`, where nothing below ``tau`` was missed, with the stated odds.
    Rounding adds to the residuals and is subtracted from tau.

    Parameters
    ----------
    engine, operator
        The operator as it was made, not as it is loaded on the engine.
    ritz
        K Ritz pairs: values (K,), vectors N x K.
    tol
        "auto" asks for an angle, a number for a relative residual.
    complement_bound
        What lies outside the span of the Ritz vectors.
    measured : array of shape (K,)
        Norms of the residuals, rounding included.
    rounding
        That of the product which the residuals are from; None: of a plain product in the type of the vectors.
    cast
        Sine of the angle by which the type of the output may turn the vectors.
    """
    orthogonality = orthogonality_error(engine, engine.load_operator(operator), ritz.Q)
    floor = operator.rounding(ritz.Q.dtype) if rounding is None else rounding
    top = float(ritz.values[-1])
    gap = complement_bound.lowest - top
    # 1. The angle to the true subspace (Davis & Kahan 1970, sin theta theorem).
    tau, odds = _supported_cut(ritz.values + floor, complement_bound, measured)
    angle = sine_bound(ritz.values, measured, tau - floor) + cast
    # 2. The accuracy that was asked for.
    if isinstance(tol, str):
        asked = f"sine <= {GOOD_ANGLE}"
        is_accurate = angle <= GOOD_ANGLE
    else:
        asked = f"relative residual <= {tol:g}"
        is_accurate = float(measured.max()) <= tol * (operator.upper - operator.lower)
    # 3. Nothing is certified without a bound on the angle, or against an objection.
    objection = _object_to_values(operator, ritz.values, gap, floor) or _object_to_excluded_weight(
        engine, operator, ritz.Q
    )
    is_trusted = math.isfinite(angle) and odds <= MAX_MISS_ODDS and orthogonality < 1e-3 and not objection
    angle = angle if is_trusted else float("inf")
    return Certificate(
        residuals=measured,
        eigenvalues=ritz.values,
        orthogonality=orthogonality,
        gap=gap,
        angle_bound=angle,
        missed_probability=odds,
        columns=complement_bound.columns,
        asked=asked,
        converged=bool(is_accurate and angle < 1),
        rounding=floor,
        objection=objection,
        complete_below=_highest_supported_cut(top, complement_bound) - floor if is_trusted else -np.inf,
    )


def _object_to_values(operator: Operator, values: Array, gap: float, floor: float) -> str:
    """Why the values cannot be those of the operator, whatever was measured; empty: they can."""
    width = operator.upper - operator.lower
    below = operator.lower - float(values.min())
    if below > floor:
        return (
            f"the first eigenvalue lies below all that the operator can have, by {below / width:.2g} of the "
            "width of the spectrum"
        )
    least_gap = max(floor * np.sqrt(len(values)) / GOOD_ANGLE, PROBE_NOISE * width)  # that rounding leaves
    hidden = -PROBE_NOISE * width < gap < least_gap
    if hidden and isinstance(operator, SparseOperator) and _loses_weights(operator.graph):
        return (
            "the gap cannot be certified: the lightest edges are lost in the rounding of the degrees, which "
            f"may move eigenvalues by {floor / width:.2g} of the width of the spectrum"
        )
    return ""


def _object_to_excluded_weight(engine: Engine, operator: Operator, Q: MultiVector) -> str:
    """An objection where a vector has weight on excluded rows: it is no eigenvector of the active graph."""
    rows = operator.excluded_rows
    if rows is None or not len(rows):
        return ""
    # the part of each vector on excluded rows, as a norm in the metric
    squares = np.zeros(Q.shape[1])
    for first in range(0, len(rows), EXCLUDED_CHUNK):
        some = rows[first : first + EXCLUDED_CHUNK]
        mass = np.ones(len(some)) if operator.metric is None else operator.metric[some]
        squares += mass @ engine.to_numpy(Q, some).astype(np.float64) ** 2
    if float(squares.max()) <= MAX_EXCLUDED_WEIGHT**2:
        return ""
    n_wrong = int((squares > MAX_EXCLUDED_WEIGHT**2).sum())
    return (
        f"{n_wrong} of the {len(squares)} vectors have weight on nodes that are excluded: there are hardly "
        "more eigenvectors in the rest of the graph than were asked for"
    )


def _loses_weights(graph: Graph) -> bool:
    """Whether some edge weighs so little that the sum of the largest degree would not show it."""
    weights = (b.weights for b in graph.blocks if b.weights is not None)
    lightest = min((float(magnitudes(own).min(initial=np.inf)) for own in weights), default=1.0)
    return bool(lightest < np.finfo(np.float64).eps * graph.degrees.max())


def _highest_supported_cut(top: float, complement_bound: ComplementBound) -> float:
    """The highest tau with small odds of a miss, by bisection of the gap."""
    low = top
    high = complement_bound.lowest
    for _ in range(GAP_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if complement_bound.odds_below(middle) <= MAX_MISS_ODDS else (low, middle)
    return low


def _supported_cut(values: Array, complement_bound: ComplementBound, residuals: Array) -> tuple[float, float]:
    """``tau`` and the odds of a miss below it: as far as the evidence reaches, or as needed."""
    tau = complement_bound.farthest(float(values[-1]))
    odds = complement_bound.odds_below(tau)
    if odds <= MAX_MISS_ODDS:
        return tau, odds
    tau = needed_cut(values, complement_bound.lowest, residuals)
    return tau, complement_bound.odds_below(tau)
