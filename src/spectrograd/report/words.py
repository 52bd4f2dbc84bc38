"""Figures in plain words, for readers who do not think in residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spectrograd.labels.eigengap import widest_gap

TINY = 1e-12
BELOW = "less than 10⁻¹²"


def certificate_words(certificate: Mapping[str, Any], short_layers: Sequence[str] = ()) -> list[str]:
    """What a certificate (as in ``--summary-json``) means, a sentence each; the verdict first.

    ``short_layers`` are those whose own embedding, which the result is made of, fell short.
    """
    if not certificate["converged"]:
        verdict = "The result did not reach the accuracy that was asked for; read it with care."
    elif short_layers:
        names = ", ".join(short_layers)
        verdict = f"The merge is as accurate as was asked for, but not these layers it is made of: {names}."
    else:
        verdict = "The result is as accurate as was asked for."
    return [verdict, _angle(certificate), _missed(certificate), _residual(certificate)]


def _angle(certificate: Mapping[str, Any]) -> str:
    bound, gap = certificate["angle_bound"], certificate["gap"]
    if gap is not None and gap <= 0:
        return (
            "An eigenvalue as small as the last one lies outside: where the eigenvectors were cut off is "
            "arbitrary, and another number of them (-k) may suit the graph better."
        )
    if bound is None or bound >= 1:
        return "How far the coordinates are from the true eigenvectors cannot be bounded."
    degrees = math.degrees(math.asin(bound))
    size = "less than 0.001°" if degrees < 0.001 else f"at most {degrees:.2g}°"
    return f"The space of coordinates is tilted by {size} against that of the true eigenvectors."


def _missed(certificate: Mapping[str, Any]) -> str:
    odds = certificate["missed_probability"]
    if odds == 0:
        return "No smaller eigenvalue was overlooked: all of them were counted."
    if odds is None or odds >= 1:
        return "Whether a smaller eigenvalue was overlooked is not known."
    return f"Had a smaller one been overlooked, the chance of evidence this good would be {small(odds)}."


def _residual(certificate: Mapping[str, Any]) -> str:
    return (
        "Put into their equation, the eigenvectors leave a remainder of "
        f"{small(certificate['max_residual'])}; "
        f"they are perpendicular up to {small(certificate['orthogonality'])}."
    )


def small(value: float | None) -> str:
    """A small number as people write it: ``3 · 10⁻⁵``."""
    if value is None:
        return "an unknown size"
    if value < TINY:
        return BELOW
    if value >= 0.001:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} · 10{raised}"


def share_words(value: float | None) -> str:
    """A share from 0 to 1; a small one is not written as 0.000, which only a true zero is."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:.3f}" if value >= 0.001 else small(value)


def suggested_clusters(values: Sequence[float], beyond: float | None) -> int | None:
    """The number of clusters by the rule of ``-k auto``; None with too few to compare."""
    known = [*values, *([] if beyond is None else [beyond])]
    return widest_gap(known).n_clusters if len(known) > 2 else None


def spectrum_words(values: Sequence[float], beyond: float | None, *, merged: bool = False) -> str:
    """Where the eigenvalues jump most, and what that says; why those of a merge may be negative."""
    text = _jump_words(values, beyond)
    if merged and min(values) < -TINY:
        text += (
            " Eigenvalues of merged layers may be negative: what the layers agree on is subtracted from the "
            "sum of their Laplacians (Eq. 22)."
        )
    return text


def _jump_words(values: Sequence[float], beyond: float | None) -> str:
    count = suggested_clusters(values, beyond)
    if count is None:
        return "Too few eigenvalues to compare gaps."
    gap = [*values, beyond or 0.0][count] - values[count - 1]
    text = f"The largest jump for its height, {gap:.3g}, comes after {count} eigenvalues"
    if count == len(values):
        return f"{text}: a hint at {count} clusters. The next eigenvalue is an estimate."
    return f"{text} of {len(values)}: a hint at {count} clusters."


def convergence_words(curve: Mapping[str, Any]) -> str:
    """How long the solver took."""
    seconds, solver = curve["seconds"], curve["solver"]
    if len(seconds) < 2:
        when = f", done after {seconds[-1]:.2f} s" if seconds else ""
        return f"{solver} is a direct method: it has no iterations to show{when}."
    return f"{solver}: {len(seconds)} measurements in {seconds[-1]:.2f} s; measuring is not in the time."
