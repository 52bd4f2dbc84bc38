"""Aggregations: layers (and their embeddings) become one operator, with which the pipeline goes on.

Each is a module of this package with a line in ``REGISTRY``, and defines

- ``aggregate(layers, *, alpha, **options) -> Operator``, where ``layers`` are :class:`Layers`;
- ``NEEDS_EMBEDDINGS``, whether the layers are embedded before it;
- ``OPTIONS``, the names of its options, where it has any;
- ``run``, where it embeds layers and merged graph itself in one run (:mod:`spectrograd.aggregation.joint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.features import FeatureGraph
from spectrograd.operators.base import Operator
from spectrograd.operators.laplacian import Kind, masked_laplacian
from spectrograd.operators.similarity import SimilarityOperator, similarity_laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.typing import Array

REGISTRY = {  # name -> module of this package, imported when it is asked for
    "projection": "projection",
    "mean": "mean",
    "sum": "summed",
    "power-mean": "power_mean",
    "geometric": "geometric",
    "grassmann": "grassmann",
    "joint": "joint",
    "coregularized": "coregularized",
}
# The candidates that "auto" has, and how it chooses: :mod:`spectrograd.pipeline.aggregation_choice`.
AUTO = "auto"


# Of stored edges, or of rows of features whose similarities are not formed.
LayerOperator = SparseOperator | SimilarityOperator
L = TypeVar("L", bound=LayerOperator)


@dataclass(frozen=True, eq=False)
class Layers:
    """The input of an aggregation: operators, weights, and the layers' embeddings where it needs them.

    ``tau`` is the regularisation that every operator has, in mean degrees of its layer.
    """

    operators: tuple[LayerOperator, ...]
    weights: Array
    embeddings: tuple[Array, ...] = ()
    eigenvalues: tuple[Array, ...] = ()
    tau: float = 0.0

    @property
    def n_nodes(self) -> int:
        """Nodes, shared by all layers."""
        return self.operators[0].n_nodes

    @property
    def names(self) -> Array | None:
        """Node names, where the input had any."""
        return self.operators[0].names

    @property
    def sparse(self) -> tuple[SparseOperator, ...]:
        """The operators, all of which have edges; an error where one is of similarities never formed."""
        found = tuple(operator for operator in self.operators if isinstance(operator, SparseOperator))
        if len(found) < len(self.operators):
            raise GraphError(
                "a layer of similarities that are never formed has no edges, which this aggregation or these "
                "weights need: use aggregation='projection' or 'mean', or affinity='nearest_neighbors'"
            )
        return found


@dataclass(frozen=True, eq=False)
class Aggregation:
    """An entry of the registry: ``aggregate(layers, **options)`` and what it asks for.

    ``run`` is set for an aggregation that embeds layers and merged graph itself, in one run.
    """

    name: str
    aggregate: Callable[..., Operator]
    needs_embeddings: bool
    options: tuple[str, ...]
    run: Callable[..., Any] | None = None

    def embeds_layers(self, params: Mapping[str, object]) -> bool:
        """Whether the layers are embedded first: always, or for the truncated form of a function."""
        return self.needs_embeddings or params.get("method") == "truncated"

    def check_options(self, params: Mapping[str, object] | None) -> dict[str, object]:
        """The options as a dict, or an error that lists what there is."""
        chosen = dict(params or {})
        unknown = sorted(set(chosen) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "none"
            raise ValueError(f"aggregation {self.name!r} has no parameter {unknown[0]!r}; it has {known}")
        return chosen


def make_aggregation(name: str) -> Aggregation:
    """The aggregation of that name, or an error that lists what there is."""
    if name not in REGISTRY:
        raise ValueError(f"aggregation={name!r}: expected one of {', '.join((AUTO, *REGISTRY))}")
    module: ModuleType = import_module(f"{__name__}.{REGISTRY[name]}")
    options = getattr(module, "OPTIONS", ())
    return Aggregation(name, module.aggregate, module.NEEDS_EMBEDDINGS, options, getattr(module, "run", None))


def check_aggregation(name: str, params: Mapping[str, object] | None = None) -> None:
    """Raise an error for a name or a parameter that nobody knows; "auto" has no parameters."""
    if name != AUTO:
        make_aggregation(name).check_options(params)
    elif params:
        raise ValueError(
            f"aggregation 'auto' has no parameter {next(iter(params))!r}; it chooses them itself"
        )


def layer_operators(
    graph: MultilayerGraph, kind: Kind, tau: float = 0.0, excluded: Array | None = None
) -> tuple[LayerOperator, ...]:
    """One Laplacian per layer, all with the identity as metric so that they can be added.

    Layers are summed with a common metric; ``random_walk`` layers enter as ``symmetric`` ones, which
    have the same eigenvalues (Dong et al. 2014 do the same). A node may be isolated in some layers.
    ``tau`` regularises every layer that has edges. Rows ``excluded`` take no part.
    """
    symmetric: dict[Kind, Kind] = {"random_walk": "symmetric", "signed": "signed_symmetric"}
    common = symmetric.get(kind, kind)
    nothing = np.empty(0, np.int64) if excluded is None else excluded

    def operator(layer: Graph) -> LayerOperator:
        if isinstance(layer, FeatureGraph):
            return similarity_laplacian(layer, common, tau, allow_isolated=True)
        return masked_laplacian(layer, common, tau if layer.n_edges else 0.0, nothing, allow_isolated=True)

    return tuple(operator(layer) for layer in graph.layers)


def without_absent(operator: SparseOperator) -> SparseOperator:
    """The operator with its isolated nodes at the top of the spectrum instead of at zero.

    A node without edges has eigenvalue zero, so a layer that lacks K nodes would have an embedding
    made of nothing but absent nodes. In a sum of layers the zero is right: no opinion.
    """
    absent = operator.graph.degrees == 0
    if not absent.any() or operator.rank:  # regularised: every node has a degree
        return operator
    return replace(operator, diagonal=np.where(absent, operator.upper, operator.diagonal))


def with_neutral_nodes(operator: L) -> L:
    """The operator with a neutral diagonal entry for the nodes that the layer does not know.

    The eigenvalues of a normalised Laplacian have mean 1. A zero would say that any cluster of such nodes
    is perfect, and nodes that few layers know would make up the smallest eigenvectors of a sum
    (docs/adr/0056). Unnormalised layers are not touched: their sum is the Laplacian of the summed graph.
    """
    absent = operator.diagonal == 0
    if operator.scale is None or operator.rank or not absent.any():
        return operator
    return replace(operator, diagonal=np.where(absent, typical_diagonal(operator), operator.diagonal))


def typical_diagonal(operator: LayerOperator) -> float:
    """The median of the diagonal over the nodes that have edges: 1 for a normalised Laplacian."""
    linked = operator.diagonal[operator.diagonal > 0]
    return float(np.median(linked)) if len(linked) else 0.0


def normalize_weights(weights: Sequence[float] | Array | None, n_layers: int) -> Array:
    """Layer weights that sum to the number of layers; None is one each."""
    if weights is None:
        return np.ones(n_layers)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_layers,):
        raise ValueError(f"layer_weights has shape {values.shape} for {n_layers} layers")
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
        raise ValueError("layer_weights must be finite, not negative and not all zero")
    return np.asarray(values * (n_layers / values.sum()))
