"""Figures in plain words, for readers who do not think in residuals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spectrograd.labels.eigengap import widest_gap

TINY = 1e-12
BELOW = "less than 10⁻¹²"
MERGED_GAP = (
    "Merged layers may have a gap after as many eigenvalues as were asked for by construction (Eq. 22): it "
    "says nothing about the number of clusters."
)


def certificate_words(certificate: Mapping[str, Any], short_layers: Sequence[str] = ()) -> list[str]:
    """What a certificate (as in ``--summary-json``) means, a sentence each; the verdict first.

    ``short_layers`` are those whose own embedding, which the result is made of, fell short.
    """
    if not certificate["converged"]:
        verdict = "The eigenvectors did not reach the accuracy that was asked for; read them with care."
    elif short_layers:
        names = ", ".join(short_layers)
        verdict = f"The merge is as accurate as was asked for, but not these layers it is made of: {names}."
    else:
        verdict = "The eigenvectors are as accurate as was asked for."
    return [verdict, _angle(certificate), _missed(certificate), _residual(certificate)]


VERDICTS = {
    "clear": "The clusters are clear.",
    "weak": "The clusters are weak.",
    "none beyond chance": "The clusters are none beyond chance.",
    "not judged": "The clusters were not judged.",
}


def cluster_verdict_words(judged: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a verdict on clusters (as in ``--summary-json``) means; None where there is none."""
    if judged is None:
        return None
    words = [VERDICTS[judged["verdict"]], *_figures(judged)]
    return {"good": judged["verdict"] == "clear", "words": words, "exact": judged["sentence"]}


def _figures(judged: Mapping[str, Any]) -> list[str]:
    if judged["conductance"] is None or judged["chance_conductance"] is None:
        return []
    told = [
        f"On average {judged['conductance']:.0%} of the weight of a cluster's edges leaves it; in a random "
        f"graph with the same degrees, clustered in the same way, {judged['chance_conductance']:.0%} does."
    ]
    if judged["needed_confidence"] is not None:
        told.append(
            f"Nodes are assigned with a confidence of {judged['confidence']:.2f} on average; without any "
            f"borders between the clusters it may reach {judged['needed_confidence']:.2f}."
        )
    return [*told, f"The largest cluster has {judged['largest_share']:.0%} of the nodes."]


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


def treatment_words(
    regularization: Mapping[str, Any] | None, excluded: Mapping[str, Any] | None
) -> list[str]:
    """What was done to the graph before it was solved, a sentence each; nothing where it was left as it is.

    ``regularization`` is that of ``--summary-json``; ``excluded`` has ``count``, ``share`` and ``names``.
    """
    told = []
    if regularization is not None and regularization.get("tau"):
        tau = regularization["tau"]
        told.append(
            f"The graph was regularised with tau = {tau:g}: {tau:g} mean degrees were spread over all pairs "
            "of nodes. Eigenvalues and eigenvectors are those of the regularised graph, not of the graph as "
            f"it was given ({regularization['reason']})."
        )
    if excluded is not None:
        count, names = excluded["count"], ", ".join(excluded["names"])
        more = ", …" if count > len(excluded["names"]) else ""
        told.append(
            f"{count:,} node{'s' if count != 1 else ''} ({excluded['share']:.2%}) took no part, not being "
            f"connected to the rest, and are in no cluster: {names}{more}."
        )
    return told


def spectrum_words(
    values: Sequence[float], beyond: float | None, *, merged: bool = False, hint: bool = True
) -> str:
    """Where the eigenvalues jump most, and what that says; why those of a merge may be negative.

    A merge has a gap after the number of clusters that was asked for, whatever the data (Eq. 22): it hints at
    nothing. Neither does ``hint=False``, for data whose clusters are known.
    """
    text = MERGED_GAP if merged else _jump_words(values, beyond, hint=hint)
    if merged and min(values) < -TINY:
        text += (
            " Eigenvalues of merged layers may be negative: what the layers agree on is subtracted from the "
            "sum of their Laplacians (Eq. 22)."
        )
    return text


def _jump_words(values: Sequence[float], beyond: float | None, *, hint: bool) -> str:
    count = suggested_clusters(values, beyond)
    if count is None:
        return "Too few eigenvalues to compare gaps."
    gap = [*values, beyond or 0.0][count] - values[count - 1]
    text = f"The largest jump for its height, {gap:.3g}, comes after {count} eigenvalues"
    says = f": a hint at {count} clusters" if hint else ""
    if count == len(values):
        return f"{text}{says}. The next eigenvalue is an estimate."
    return f"{text} of {len(values)}{says}."


def convergence_words(curve: Mapping[str, Any]) -> str:
    """How long the solver took."""
    seconds, solver = curve["seconds"], curve["solver"]
    if len(seconds) < 2:
        when = f", done after {seconds[-1]:.2f} s" if seconds else ""
        return f"{solver} is a direct method: it has no iterations to show{when}."
    return f"{solver}: {len(seconds)} measurements in {seconds[-1]:.2f} s; measuring is not in the time."
