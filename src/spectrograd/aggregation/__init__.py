"""Aggregations: layers (and their embeddings) become one Operator, and the line goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import MultilayerGraph
from spectrograd.laplacian import Kind, Operator, laplacian

Array = NDArray[Any]

REGISTRY = {"projection": "projection", "mean": "mean"}


@dataclass(frozen=True, eq=False)
class Layers:
    """What an aggregation starts from: one operator per layer, weights, and embeddings if it wants them."""

    operators: tuple[Operator, ...]
    weights: Array
    embeddings: tuple[Array, ...] = ()


def make_aggregation(name: str) -> tuple[Callable[..., Operator], bool]:
    """The function ``aggregate(layers, **options)`` of that name, and whether it needs embeddings."""
    if name not in REGISTRY:
        raise ValueError(f"aggregation={name!r}: expected one of {', '.join(REGISTRY)}")
    module = import_module(f"{__name__}.{REGISTRY[name]}")
    return module.aggregate, module.NEEDS_EMBEDDINGS


def layer_operators(graph: MultilayerGraph, kind: Kind) -> tuple[Operator, ...]:
    """One Laplacian per layer, all with the identity as metric so that they can be added.

    Layers are summed with a common metric; ``random_walk`` layers enter as ``symmetric`` ones, which
    have the same eigenvalues (Dong et al. 2014 do the same). A node may be isolated in some layers.
    """
    common: Kind = "unnormalized" if kind == "unnormalized" else "symmetric"
    return tuple(laplacian(layer, common, allow_isolated=True) for layer in graph.layers)


def checked_weights(weights: Sequence[float] | Array | None, n_layers: int) -> Array:
    """Layer weights that sum to the number of layers; None is one each."""
    if weights is None:
        return np.ones(n_layers)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_layers,):
        raise ValueError(f"layer_weights has shape {values.shape} for {n_layers} layers")
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
        raise ValueError("layer_weights must be finite, not negative and not all zero")
    return np.asarray(values * (n_layers / values.sum()))
