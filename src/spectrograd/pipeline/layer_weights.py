"""``layer_weights="auto"``: as much influence for a layer as its edges can show it deserves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import typical_diagonal
from spectrograd.operators.laplacian import Operator
from spectrograd.pipeline.layer_agreement import copies
from spectrograd.pipeline.layer_evidence import CLEAR, Findings, Hearing, examine, hear, ramp

Array = NDArray[Any]
# What a layer keeps that is outvoted: it has clusters, though other ones than the rest, and is no noise.
OUTVOTED = 0.1
# Clarity of a layer up to which it cannot judge others, and from which it can. Below, ratios of weights
# of 1.4 already cost layers that complete each other a tenth of NMI.
BLURRED, SHARP = 0.45, 0.7


@dataclass(frozen=True, eq=False)
class LayerScores:
    """Per layer.

    Attributes
    ----------
    structure
        How far the layer's eigenvalues lie from those of random graphs with the same degrees: 0 is
        a random graph, 1 is perfect clusters.
    strength
        How strong its clusters are over its own noise: above 1 they show in its eigenvalues, up to 1 they
        do not, and it is the most that the evidence allows.
    agreement
        Share of what the other layers show that this layer's edges confirm, from 0 (chance) to 1; 1 where
        no other layer shows anything.
    copies
        How many layers have this same subspace, itself included.
    noise
        Layers without structure whose edges confirm nothing, although those of a weak layer would.
    weights
        ``strength / copies``, less for a layer that is outvoted, none for noise, nearer to equal where some
        nodes would be left with next to nothing; over the layer's median degree
        where the Laplacians are unnormalised, so that no layer wins by the scale of its weights.
    """

    structure: Array
    strength: Array
    agreement: Array
    copies: Array
    noise: Array
    weights: Array


def weigh_layers(
    operators: Sequence[Operator], embeddings: Sequence[Array], seed: int | None = None
) -> LayerScores:
    """Weights that follow what the layers show and confirm; see :class:`LayerScores` for the rule.

    ``seed`` draws the shuffled layers against which each layer is held.
    """
    rng = np.random.default_rng(seed)
    found = [examine(operator, U, rng) for operator, U in zip(operators, embeddings, strict=True)]
    same = copies(embeddings)
    heard = hear([operator.graph for operator in operators], found, same)
    strength = _strengths(found, heard, same)
    agreement = heard.share(np.maximum(strength, 1.0) * np.array([f.edge / 2 if f else 0.5 for f in found]))
    scales = np.array([typical_diagonal(operator) or 1.0 for operator in operators])
    has_embedding = np.array([U.shape[1] > 0 for U in embeddings])
    trust = _trust(found, heard, same)
    weights = has_embedding * strength * trust / same.sum(axis=1)
    present = np.array([(op.graph.degrees > 0) | (op.rank > 0) for op in operators])
    weights = _keeping_every_node(weights, present * has_embedding[:, None]) / scales
    structure = np.array([f.structure if f else 0.0 for f in found])
    return LayerScores(structure, strength, agreement, same.sum(axis=1), strength == 0, weights)


def _keeping_every_node(weights: Array, present: Array) -> Array:
    """Weights moved towards equal ones, as far as no node falls below the least that these give a node.

    ``present`` says which layer (row) knows which node (column). A node known only to a layer of small
    weight hardly hangs together with the rest; a few of them would make up the whole merged embedding.
    """
    equal = present.any(axis=1).astype(float)
    if not weights.sum() > 0:  # nothing to go by: every layer that has an embedding counts the same
        return equal
    weights = weights * (equal.sum() / weights.sum())
    alike, own = equal @ present, weights @ present
    least = alike[alike > 0].min()
    short = (alike > 0) & (own < (1 - 1e-9) * least)  # not by rounding
    move = float(np.max((least - own[short]) / (alike[short] - own[short]), initial=0.0))
    return np.asarray((1 - move) * weights + move * equal)


def _strengths(found: Sequence[Findings | None], heard: Hearing, same: Array) -> Array:
    """Strength over half the edge: own where the layer has clear clusters, else what the others allow."""
    levels = zip(*heard.levels(), _authority(found, same), strict=True)
    strength = np.array([_strength(f, *at) if f else np.nan for f, at in zip(found, levels, strict=True)])
    known = strength[np.isfinite(strength)]
    usual = float(np.median(known)) if len(known) else 1.0
    strength = np.where(np.isfinite(strength), strength, usual)  # too small a layer to tell
    return np.asarray(
        same @ strength / same.sum(axis=1)
    )  # copies have one strength, however they were shuffled


def _strength(layer: Findings, most: float, certainty: float, authority: float) -> float:
    """Between its own strength and what it confirms: ``most`` it can have, ``certainty`` that it has any.

    A layer that may, for all we know, be as strong as one just below the edge, counts as such. If it
    can have at most half of that, and nothing says that it has any, it is noise.
    """
    hidden = min(1.0, most / (layer.edge / 2))
    hidden = max(2 * hidden - 1, certainty * (1 + hidden) / 2, 0.0)
    hidden = 1 - authority * (1 - hidden)
    clear = float(ramp(layer.excess[0]))
    return clear * _shrunk(layer) + (1 - clear) * hidden


def _shrunk(layer: Findings) -> float:
    """At most half way from 1 to its own strength: just above the edge a strength is hardly known.

    Layers that complete each other are best merged equally, and strengths of like blocks differ by chance.
    """
    return 1 + layer.mean_clarity * (layer.strength / (layer.edge / 2) - 1) / 2


def _authority(found: Sequence[Findings | None], same: Array) -> Array:
    """Per layer, from 0 to 1, whether another one is clear enough to judge it.

    Among layers that barely show themselves one that shows nothing may be as good as they are.
    """
    clarity = np.array([f.mean_clarity if f else 0.0 for f in found])
    return _sharpness(np.max(np.where(same, 0.0, clarity), axis=1))


def _sharpness(clarity: Any) -> Array:
    return np.asarray(np.clip((clarity - BLURRED) / (SHARP - BLURRED), 0.0, 1.0))


def _trust(found: Sequence[Findings | None], heard: Hearing, same: Array) -> Array:
    """Less than 1 for layers that are outvoted *and* leave no room for the rest among K - 1 directions.

    Layers that see different clusters complete each other as long as all that they show has room.
    Relative to the median, so layers that agree little, but equally, all keep their weight.
    """
    trust = np.ones(len(found))
    shown = np.array([ramp(f.excess).sum() if f else 0.0 for f in found])
    speaking = np.flatnonzero(shown > 0)
    if len(speaking) < 3:  # two cannot outvote each other
        return trust
    room = max(f.directions.shape[1] for f in found if f)
    own = np.array([f.strength if f else 1.0 for f in found])
    agreement = heard.share(own, CLEAR)
    first = same.argmax(axis=1) == np.arange(len(same))  # copies have one vote
    usual = float(np.median(agreement[(shown > 0) & first]))
    for s in speaking:
        needed = shown[s] + np.max(shown * (1 - heard.shares(own, CLEAR)[s]) * ~same[s])
        shortage = np.clip((needed - room) / shown[s], 0.0, 1.0)
        loyal = min(1.0, agreement[s] / usual) if usual > 0 else 1.0
        trust[s] = max(OUTVOTED, 1 - shortage * (1 - loyal))
    return trust
