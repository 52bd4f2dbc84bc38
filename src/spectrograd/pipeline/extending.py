"""What a result knows of rows that are not in its graph: see :mod:`spectrograd.pipeline.extension`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import make_aggregation
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.operators import Kind
from spectrograd.operators.function import FunctionOperator
from spectrograd.pipeline.extension import Extension, LayerRule
from spectrograd.pipeline.multilayer import Merged
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import input_order

Array = NDArray[Any]


def extension_of(graph: Graph | MultilayerGraph, result: Result, settings: Settings) -> Extension | None:
    """What a result knows of rows that are not in its graph; None where its operator has no rows.

    Functions of layers (``power-mean``, ``geometric``) are known by their products only, and layers on disk
    block by block.
    """
    several = isinstance(graph, MultilayerGraph)
    if isinstance(result.operator, FunctionOperator) or (several and result.operator.is_streamed):
        return None
    part, kind = np.zeros(graph.n_nodes, bool), settings.laplacian
    part[result.rows] = True
    part[result.connectivity.aside] = False  # over a disk they are among the rows
    tau = result.regularization.tau
    if isinstance(graph, Graph):
        return Extension(result.vectors, result.eigenvalues, part, (_rule(graph, part, kind, tau),))
    common: Kind = "symmetric" if kind == "random_walk" else kind
    layers = [_rule(layer, part, common, tau) for layer in graph.layers]
    assert result.merged is not None
    rules = _weighed(layers, result.merged, make_aggregation(settings.aggregation).needs_embeddings)
    has_edges = result.operator.n_edges > 0
    return Extension(result.vectors, result.eigenvalues, part, rules, sparse=has_edges)


def _rule(graph: Graph, part: Array, kind: Kind, tau: float) -> LayerRule:
    degrees = np.empty(graph.n_nodes)
    degrees[input_order(graph)] = graph.degrees
    degrees = np.where(part, degrees, 0.0)
    added = tau * float(degrees[part].mean())
    return LayerRule(kind, degrees, int(part.sum()), added)


def _weighed(layers: Sequence[LayerRule], merged: Merged, with_subspaces: bool) -> tuple[LayerRule, ...]:
    """The rules with the weights and, where they are part of the operator, the layers' own embeddings."""
    rules = [
        replace(layer, weight=float(weight)) for layer, weight in zip(layers, merged.weights, strict=True)
    ]
    low_rank = getattr(merged.operator, "low_rank", None)
    if low_rank is None or not with_subspaces:
        return tuple(rules)
    # An aggregation puts the layers' vectors first, all columns of a layer with one coefficient.
    widths = [layer.embedding.n_components for layer in merged.layers]
    starts = np.cumsum([0, *widths[:-1]])
    return tuple(
        replace(
            rule,
            vectors=layer.embedding.vectors,
            eigenvalues=layer.embedding.eigenvalues,
            strength=float(low_rank.coefficients[start]) if width else 0.0,
        )
        for rule, layer, start, width in zip(rules, merged.layers, starts, widths, strict=True)
    )
