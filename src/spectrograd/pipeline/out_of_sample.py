"""Rows of new nodes from their edges to known ones (Bengio et al. 2004): each row by itself, no solve.

Every row of ``A u = lambda B u`` can be solved for its own entry of ``u``. For a row of the training graph
that gives the row of the embedding back; for a new row of weights it is what the eigenvectors would have
there if the rest of them stayed as it is. Of a merged operator (Eq. 22) the layers' own embeddings are
extended first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.features import FeatureGraph
from spectrograd.labels.kmeans import row_lengths
from spectrograd.operators import Kind
from spectrograd.operators.composite import FunctionOperator
from spectrograd.operators.laplacian import form_of
from spectrograd.pipeline.merge import Merged
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import input_order
from spectrograd.typing import Array

MAX_PASSES = 10  # how far from known nodes a chain of new ones is followed
MIN_CHANGE = 1e-3  # a pass that changes rows by less, relative to the largest entry, is the last
MIN_DENOMINATOR = (
    1e-9  # of the diagonal: where an eigenvalue meets a degree, the row has no answer of its own
)


@dataclass(frozen=True, eq=False)
class LayerRule:
    """One layer's part in a row of the operator.

    Attributes
    ----------
    kind
        Which Laplacian.
    degrees : array of shape (n_nodes,)
        Of the training nodes; 0 where a node takes no part.
    n_active
        How many nodes do.
    added
        What regularisation adds to every degree.
    weight
        Of the layer in the sum.
    vectors, eigenvalues : arrays of shape (n_nodes, k) and (k,), or None
        The layer's own embedding, where its projector is part of the operator ...
    strength
        ... and the weight of that projector.
    """

    kind: Kind
    degrees: Array
    n_active: int
    added: float = 0.0
    weight: float = 1.0
    vectors: Array | None = None
    eigenvalues: Array | None = None
    strength: float = 0.0
    ties_pairs: bool = True  # whether what regularisation adds ties all pairs; it does not in a signed graph

    def scale(self, degrees: Array) -> Array:
        """Factor at both ends of an edge: ``1 / sqrt(degree)`` of a symmetric Laplacian, else 1."""
        if self.kind != "symmetric":
            return np.ones(len(degrees))
        total = degrees + self.added
        return np.asarray(np.where(total > 0, 1 / np.sqrt(np.where(total > 0, total, 1)), 0.0))

    @cached_property
    def known_scale(self) -> Array:
        """The scale of the training nodes, shape (n_nodes,)."""
        return self.scale(self.degrees)

    def diagonal(self, degrees: Array) -> Array:
        """The diagonal of ``A`` for rows of these degrees."""
        total = degrees + self.added
        return np.ones(len(degrees)) if self.kind == "symmetric" else total

    def metric(self, degrees: Array) -> Array:
        """The diagonal of ``B`` for rows of these degrees."""
        return degrees + self.added if self.kind == "random_walk" else np.ones(len(degrees))

    def everywhere(self, vectors: Array) -> Array:
        """Regularisation's sum over all training nodes, per unit of a row's scale; shape (k,)."""
        if not self.ties_pairs:
            return np.zeros(vectors.shape[1])
        return np.asarray(self.added / self.n_active * (self.known_scale @ vectors), dtype=np.float64)

    @cached_property
    def own_everywhere(self) -> Array:
        """The sum :meth:`everywhere` of the layer's own embedding."""
        assert self.vectors is not None
        return self.everywhere(self.vectors)


@dataclass(frozen=True, eq=False)
class NewRows:
    """Edges of new nodes.

    Attributes
    ----------
    known : per layer a sparse matrix of shape (n_new, n_nodes)
        Weights of the edges to training nodes.
    between : per layer a sparse symmetric matrix of shape (n_new, n_new), or empty
        Weights of the edges among the new nodes.
    """

    known: tuple[sp.csr_array, ...]
    between: tuple[sp.csr_array, ...] = ()

    def __len__(self) -> int:
        return int(self.known[0].shape[0])

    def summed(self, weights: Sequence[float]) -> NewRows:
        """The same edges in one layer, the weighted sum of all."""
        parts = (self.known, self.between)
        known, between = (
            (sp.csr_array(sum(c * matrix for c, matrix in zip(weights, part, strict=True))),) if part else ()
            for part in parts
        )
        return NewRows(known, between)


@dataclass(frozen=True, eq=False)
class Extended:
    """Rows for new nodes.

    Attributes
    ----------
    vectors : array of shape (n_new, k)
    reached : array of shape (n_new,)
        Whether edges lead from a node to the training nodes; where not, its row is zero.
    """

    vectors: Array
    reached: Array


@dataclass(frozen=True, eq=False)
class Extension:
    """A fitted embedding with the parts of its operator that new rows need.

    Attributes
    ----------
    vectors : array of shape (n_nodes, k)
        All columns; zero where a node was excluded.
    eigenvalues : array of shape (k,)
    active : array of bool, shape (n_nodes,)
        False where a node was excluded.
    layers
        One rule per layer; a single graph has one.
    sparse
        Whether edges take part themselves, or only the layers' subspaces do.
    sum_weights
        Weights with which the edges of all layers are added first, where the rule is that of their sum.
    """

    vectors: Array
    eigenvalues: Array
    active: Array
    layers: tuple[LayerRule, ...]
    sparse: bool = True
    sum_weights: tuple[float, ...] | None = None

    @property
    def layer_weights(self) -> tuple[float, ...]:
        """The weight of each layer's edges."""
        return self.sum_weights or tuple(layer.weight for layer in self.layers)

    def extend(self, rows: NewRows) -> Extended:
        """Rows of the embedding for new nodes; row i depends on row i of the query only.

        New nodes that are joined to new nodes take part in a few passes, each of which carries rows one edge
        further.
        """
        rows = self._restrict_to_active(rows)
        if self.sum_weights is not None:
            rows = rows.summed(self.sum_weights)
        if not any(matrix.nnz for matrix in rows.between):
            return self._extend_once(rows, None)
        extended = self._extend_once(replace(rows, between=()), None)
        for _ in range(MAX_PASSES):
            before = extended
            extended = self._extend_once(rows, extended)
            change = np.abs(extended.vectors - before.vectors).max(initial=0)
            size = np.abs(extended.vectors).max(initial=0)
            if change <= MIN_CHANGE * size and np.array_equal(extended.reached, before.reached):
                break
        return extended

    def _restrict_to_active(self, rows: NewRows) -> NewRows:
        """Drop edges to nodes that were excluded."""
        if self.active.all():
            return rows
        keep = sp.diags_array(self.active.astype(np.float64))
        known = tuple(sp.csr_array(matrix @ keep) for matrix in rows.known)
        for matrix in known:
            matrix.eliminate_zeros()
        return replace(rows, known=known)

    @cached_property
    def _everywhere(self) -> tuple[Array, ...]:
        """Per layer, the sum of regularisation over all training nodes, shape (k,)."""
        return tuple(layer.everywhere(self.vectors) for layer in self.layers)

    @cached_property
    def _coupling(self) -> tuple[Array | None, ...]:
        """Per layer ``U_s' U``, where its projector is part of the operator."""
        return tuple(
            None if layer.vectors is None else np.asarray(layer.vectors.T @ self.vectors, dtype=np.float64)
            for layer in self.layers
        )

    def _extend_once(self, rows: NewRows, before: Extended | None) -> Extended:
        """One pass: solve each new row for its own entry; ``before`` has rows of the new nodes themselves."""
        # u_i = (sum_j scale_i w_ij scale_j u_j + strength U_s' U part) /
        # (A_ii - lambda B_ii), column by column
        top = np.zeros((len(rows), self.vectors.shape[1]))
        bottom = np.zeros_like(top)
        reached = np.zeros(len(rows), bool)
        for number, layer in enumerate(self.layers):
            # 1. degrees of the new rows, by edges to training nodes and to new ones that are reached already
            known = rows.known[number]
            among = None if before is None else self._reached_edges(rows.between[number], before.reached)
            degrees = _row_sums(known) if among is None else _row_sums(known) + _row_sums(among)
            reached |= degrees > 0
            if self.sparse:
                new = None if before is None else before.vectors
                # 2. the edges' part of the row
                gathered = _gather(layer, self.vectors, self._everywhere[number], known, degrees, among, new)
                top += layer.weight * gathered
                diagonal = layer.weight * layer.diagonal(degrees)
                bottom += diagonal[:, None] - self._share_of_metric(layer, degrees)
            # 3. the part of the layer's projector: its own extension times U_s'U
            coupling = self._coupling[number]
            if coupling is not None and layer.strength:
                own = _extend_layer(layer, known)
                # not a matrix product: its last bits would depend on how many rows are asked for at once
                top += layer.strength * np.einsum("ij,jk->ik", own, coupling)
        if len(self.layers) > 1 or not self.sparse:
            # layers share the identity as metric: lambda itself
            bottom -= self.eigenvalues
        return Extended(np.where(reached[:, None], _divide_safely(top, bottom), 0.0), reached)

    def _share_of_metric(self, layer: LayerRule, degrees: Array) -> Array | float:
        """``lambda B`` where there is one graph; layers share the identity as metric."""
        if len(self.layers) > 1:
            return 0.0
        return np.outer(layer.metric(degrees), self.eigenvalues)

    @staticmethod
    def _reached_edges(between: sp.csr_array, reached: Array) -> sp.csr_array:
        return sp.csr_array(between @ sp.diags_array(reached.astype(np.float64)))


def _extend_layer(layer: LayerRule, known: sp.csr_array) -> Array:
    """The layer's own embedding, extended by the edges to training nodes."""
    assert layer.vectors is not None
    assert layer.eigenvalues is not None
    degrees = _row_sums(known)
    own = _gather(layer, layer.vectors, layer.own_everywhere, known, degrees)
    metric = np.outer(layer.metric(degrees), layer.eigenvalues)
    return _divide_safely(own, layer.diagonal(degrees)[:, None] - metric)


def _gather(
    layer: LayerRule,
    vectors: Array,
    everywhere: Array,
    known: sp.csr_array,
    degrees: Array,
    among: sp.csr_array | None = None,
    new: Array | None = None,
) -> Array:
    """``diag(scale) W diag(scale) U`` for the new rows, with regularisation's share."""
    own = layer.scale(degrees)
    scaled = vectors if layer.kind != "symmetric" else layer.known_scale[:, None] * vectors
    total = np.asarray(known @ scaled, dtype=np.float64)
    if among is not None and new is not None:
        total += among @ (own[:, None] * new)
    if layer.added:
        total += everywhere
    return np.asarray(own[:, None] * total)


def _divide_safely(top: Array, bottom: Array) -> Array:
    """``top / bottom``, kept in the range of numbers where the bottom vanishes."""
    # an eigenvalue that meets the diagonal: the row would be infinite
    floor = MIN_DENOMINATOR * np.maximum(1.0, np.abs(bottom).max(axis=1, initial=0))[:, None]
    safe = np.where(np.abs(bottom) < floor, np.where(bottom < 0, -floor, floor), bottom)
    return np.asarray(np.where(top == 0, 0.0, top / safe))


def _row_sums(matrix: sp.csr_array) -> Array:
    """Degrees: sums of ``|w|``."""
    sizes = abs(matrix) if matrix.nnz and matrix.data.min() < 0 else matrix
    return np.asarray(sizes.sum(axis=1), dtype=np.float64).ravel()


# --- The extension of a result: rules for rows that are not in its graph.


def extension_of(graph: Graph | MultilayerGraph, result: Result, settings: Settings) -> Extension | None:
    """The extension of a result to rows that are not in its graph; None where its operator has no rows.

    Functions of layers (``power-mean``, ``geometric``) are known by their products only, and layers on disk
    block by block.
    """
    several = isinstance(graph, MultilayerGraph)
    if several and any(isinstance(layer, FeatureGraph) for layer in graph.layers):
        return None
    if isinstance(result.operator, FunctionOperator) or (several and result.operator.is_streamed):
        return None
    kind = form_of(settings.laplacian)
    part = np.zeros(graph.n_nodes, bool)
    part[result.rows] = True
    part[result.connectivity.excluded] = False  # over a disk they are among the rows
    tau = result.regularization.tau
    if isinstance(graph, Graph):
        return Extension(result.vectors, result.eigenvalues, part, (_rule(graph, part, kind, tau),))
    common: Kind = "symmetric" if kind == "random_walk" else kind
    layers = [_rule(layer, part, common, tau) for layer in graph.layers]
    assert result.merged is not None
    if result.merged.chosen.aggregation == "sum" and common == "symmetric":
        weights = tuple(map(float, result.merged.weights))
        rule = _sum_of_rules(layers, weights)
        return Extension(result.vectors, result.eigenvalues, part, (rule,), sum_weights=weights)
    rules = _weigh_rules(layers, result.merged)
    has_edges = result.operator.n_edges > 0
    return Extension(result.vectors, result.eigenvalues, part, rules, sparse=has_edges)


def _rule(graph: Graph, part: Array, kind: Kind, tau: float) -> LayerRule:
    degrees = np.empty(graph.n_nodes)
    degrees[input_order(graph)] = graph.degrees
    degrees = np.where(part, degrees, 0.0)
    added = tau * float(degrees[part].mean())
    return LayerRule(kind, degrees, int(part.sum()), added, ties_pairs=not graph.is_signed)


def _sum_of_rules(layers: Sequence[LayerRule], weights: Sequence[float]) -> LayerRule:
    """The rule of one graph whose weights are the weighted sums of the layers' weights."""
    degrees = sum(c * layer.degrees for c, layer in zip(weights, layers, strict=True))
    added = sum(c * layer.added for c, layer in zip(weights, layers, strict=True))
    return replace(layers[0], degrees=np.asarray(degrees), added=added)


def _weigh_rules(layers: Sequence[LayerRule], merged: Merged) -> tuple[LayerRule, ...]:
    """The rules with the weights and, where they are part of the operator, the layers' own embeddings."""
    rules = [
        replace(layer, weight=float(weight)) for layer, weight in zip(layers, merged.weights, strict=True)
    ]
    low_rank = getattr(merged.operator, "low_rank", None)
    if low_rank is None or not merged.layers_behind:
        return tuple(rules)
    # An aggregation puts the layers' vectors first. Columns of unlike coefficients are scaled to the first.
    widths = [layer.embedding.n_components for layer in merged.layers]
    starts = np.cumsum([0, *widths[:-1]])
    return tuple(
        replace(
            rule,
            vectors=_scaled_columns(layer.embedding.vectors, low_rank.coefficients[start : start + width]),
            eigenvalues=layer.embedding.eigenvalues,
            strength=float(low_rank.coefficients[start]) if width else 0.0,
        )
        for rule, layer, start, width in zip(rules, merged.layers, starts, widths, strict=True)
    )


def _scaled_columns(vectors: Array, coefficients: Array) -> Array:
    """Columns times the roots of their coefficients, relative to the first."""
    if not len(coefficients) or (coefficients == coefficients[0]).all():
        return vectors
    return np.asarray(vectors * np.sqrt(coefficients / coefficients[0]))


# --- Outlier scores: how far a new row lies from the training data, on a scale on which that is uniform.
#
# The statistic of a new row is compared with the same statistic of every training row; the score is the share
# of training rows that lie less far out. A row drawn like the training data has a score that is uniform on
# [0, 1], up to ties and to the little that training rows have shaped their own surroundings.


@dataclass(frozen=True, eq=False)
class OutlierScale:
    """The statistic of the training rows, ascending."""

    training: Array

    @classmethod
    def of(cls, statistic: Array) -> OutlierScale:
        """Make the scale from the statistic of every training row that takes part."""
        return cls(np.sort(np.asarray(statistic, dtype=np.float64)))

    def score(self, statistic: Array) -> Array:
        """Share of training rows that lie less far out; 1 beyond all of them."""
        below = np.searchsorted(self.training, statistic, side="left")
        return np.where(np.isinf(statistic), 1.0, below / max(1, len(self.training)))


def disagreement(vectors: Array, rows: Sequence[sp.csr_array], weights: Sequence[float]) -> Array:
    """The disagreement of a row's neighbours on its place: 0 all in one direction, 1 in all of them.

    ``1 - |sum_j w_j r_j| / sum_j w_j`` with r the rows of the embedding at unit length; of several layers the
    weighted mean over those that know the row. Infinite where none does.

    Parameters
    ----------
    vectors : array of shape (n_nodes, k)
        The training rows.
    rows : per layer a sparse matrix of shape (n, n_nodes)
    weights
        Of the layers.
    """
    lengths = row_lengths(vectors)
    # the length of a weighted mean of unit rows: 1 if all agree, 0 if they point everywhere
    directions = vectors / np.where(lengths > 0, lengths, 1)[:, None]
    total = np.zeros(rows[0].shape[0])
    mass = np.zeros(rows[0].shape[0])
    for matrix, weight in zip(rows, weights, strict=True):
        degrees = _row_sums(matrix)
        known = degrees > 0
        share = row_lengths(matrix @ directions) / np.where(known, degrees, 1)
        total += np.where(known, weight * (1 - share), 0.0)
        mass += np.where(known, weight, 0.0)
    return np.asarray(np.where(mass > 0, total / np.where(mass > 0, mass, 1), np.inf))
