"""From distances to weights of edges."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = Literal["self-tuned", "binary", "distance-kernel"]

# A node whose weights all underflow is isolated in effect: one spurious zero eigenvalue each.
SMALLEST_WEIGHT = 1e-6


def edge_weights(rows: Array, cols: Array, distances: Array, *, scale: Array, weights: Weights) -> Array:
    """Weights of edges of these lengths; ``scale`` (N) is each point's distance to its last neighbour."""
    if weights == "binary":
        return np.ones_like(distances)
    if weights == "self-tuned":
        own, other = scale[rows], scale[cols]
        # A point among twins has no scale of its own: the other end's stands in, or its edge would vanish.
        own, other = np.where(own == 0, other, own), np.where(other == 0, own, other)
    else:
        own = other = np.median(scale[scale > 0]) if scale.any() else np.zeros(())
    # The tiny floor only avoids 0 / 0: distance zero weighs one whatever the scale.
    own, other = (np.maximum(side, np.finfo(np.float64).tiny) for side in (own, other))
    with np.errstate(over="ignore"):  # an infinite exponent is a weight of zero, lifted to the smallest one
        exponent = (distances / own) * (distances / other)
    return np.asarray(np.maximum(np.exp(-exponent), SMALLEST_WEIGHT))
