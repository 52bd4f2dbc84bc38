"""Laplacians of graphs of similar rows, by two thin products with the features a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.graph import GraphError
from spectrograd.graph.features import FeatureGraph
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import LowRank
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector


@dataclass(frozen=True, eq=False)
class SimilarityOperator(Operator):
    """``A = diag(diagonal) - diag(f) c Z Z' diag(f) - Y diag(a) Y'`` and ``B = diag(metric)``.

    With Z the features, and f the row factors of the similarity times those (g) of the Laplacian's form. W
    has no diagonal, so its own weights are part of ``diagonal``.

    Attributes
    ----------
    graph : FeatureGraph
        Whose features, and how they make weights.
    diagonal : array of shape (N,)
        Degrees and own weights, and what regularisation adds, in the form asked for.
    form : array of shape (N,)
        g: ones, or ``1 / sqrt(degree)`` of the symmetric form.
    low_rank : LowRank or None
        ``Y diag(a) Y'``: the constant part of the weights, and what regularisation adds to every pair.
    metric : array of shape (N,) or None
    rows, factors : object
        The features and f on an engine; None before the operator is placed.
    """

    graph: FeatureGraph
    diagonal: Array
    form: Array
    low_rank: LowRank | None = None
    metric: Array | None = None
    lower: float = 0.0
    upper: float = 2.0
    rows: Any = None
    factors: Any = None

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return self.graph.n_nodes

    @property
    def names(self) -> Array | None:
        """Names of the rows."""
        return self.graph.names

    @property
    def null_vector(self) -> Array | None:
        """``1 / g``: the constant of the random walk."""
        linked = self.form > 0
        return None if self.lower < 0 else np.where(linked, 1 / np.where(linked, self.form, 1.0), 0.0)

    @property
    def is_plain(self) -> bool:
        """Whether g is one, but for rows that are similar to none."""
        return bool(np.isin(self.form, (0.0, 1.0)).all())

    @property
    def scale(self) -> Array | None:
        """G where it normalises, as ``scale`` of a sparse operator; else None."""
        return None if self.is_plain else self.form

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """``A X``: ``Z' (f X)`` is small, and ``Z`` times that a multivector."""
        # 1. C = c Z' diag(f) X
        rows = self.graph.features if self.rows is None else self.rows
        factors = self._row_factors if self.factors is None else self.factors
        inner = self.graph.inner * engine.project(rows, engine.scale_rows(X, factors))
        # 2. diag(diagonal) X - diag(f) Z C
        similar = engine.scale_rows(engine.expand(rows, inner, X), factors)
        unit = np.eye(X.shape[1])
        product = engine.combine(engine.scale_rows(X, self.diagonal), unit, similar, -unit)
        # 3. - Y diag(a) Y'X
        return product if self.low_rank is None else engine.subtract_low_rank(product, self.low_rank, X)

    @cached_property
    def _row_factors(self) -> Array:
        """f, shape (n_nodes,)."""
        return np.asarray(self.graph.row_scale * self.form)

    def to_engine(self, engine: Engine) -> SimilarityOperator:
        """Load features and vectors."""

        def place(vector: Array) -> Any:
            return engine.from_numpy(np.asarray(vector)[:, None])

        return replace(
            self,
            rows=engine.place_features(self.graph.features),
            factors=place(self._row_factors),
            low_rank=self.low_rank
            and LowRank(engine.from_numpy(self.low_rank.factors), self.low_rank.coefficients),
            diagonal=place(self.diagonal),
            metric=None if self.metric is None else place(self.metric),
        )

    def rounding(self, dtype: DTypeLike) -> float:
        """Bound the rounding of sums along the columns of Z (in float64) and along its rows."""
        eps = float(np.finfo(dtype).eps)
        n_rows, n_features = self.graph.features.shape
        per_row = self.graph.features.n_entries / n_rows
        along = n_rows * float(np.finfo(np.float64).eps) + (min(per_row, n_features) + 8) * eps
        per_mass = 1.0 if self.metric is None else 1 / self.metric
        return along * 2 * float(np.abs(self.diagonal * per_mass).max())

    def standard_form(self) -> SimilarityOperator:
        """``B^-1/2 A B^-1/2``."""
        if self.metric is None:
            return self
        return replace(
            self,
            diagonal=self.diagonal / self.metric,
            form=self.form / self._root,
            low_rank=_divided(self.low_rank, self._root),
            metric=None,
        )

    def random_walk_form(self) -> SimilarityOperator:
        """The pencil whose g is one."""
        return self if (self.form == 1).all() else self._random_walk

    @cached_property
    def _random_walk(self) -> SimilarityOperator:
        # vectors diag(g) u: diagonal and metric are divided by g^2
        squares = self.form**2
        metric = (1 if self.metric is None else self.metric) / squares
        ones = np.ones(self.n_nodes)
        low_rank = _divided(self.low_rank, self.form)
        return replace(self, diagonal=self.diagonal / squares, form=ones, low_rank=low_rank, metric=metric)

    @property
    def standard_factors(self) -> Array | None:
        """Row factors into :meth:`standard_form`."""
        return None if self.metric is None else self._root

    @property
    def random_walk_factors(self) -> Array | None:
        """Row factors into :meth:`random_walk_form`."""
        return None if (self.form == 1).all() else self.form

    @cached_property
    def _root(self) -> Array:
        assert self.metric is not None
        return np.asarray(np.sqrt(self.metric))

    def from_random_walk(self, vectors: Array) -> Array:
        """Turn vectors of :meth:`random_walk_form` into vectors of the pencil."""
        return vectors / self.form[:, None]


def _divided(low_rank: LowRank | None, divisor: Array) -> LowRank | None:
    return low_rank and LowRank(low_rank.factors / divisor[:, None], low_rank.coefficients)


def similarity_laplacian(
    graph: FeatureGraph, kind: str, tau: float = 0.0, *, allow_isolated: bool = False
) -> SimilarityOperator:
    """The Laplacian of a graph of features, regularised by tau mean degrees.

    Where ``allow_isolated``, rows that are similar to none are rows of zeros, as in a layer of several.

    Examples
    --------
    >>> from spectrograd.graph.features import feature_graph
    >>> graph = feature_graph([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], "linear")
    >>> similarity_laplacian(graph, "unnormalized").to_dense().tolist()
    [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    """
    if kind not in ("random_walk", "symmetric", "unnormalized"):
        raise GraphError(
            f"laplacian={kind!r} needs the sizes of all weights, which implicit similarities do not have: "
            "use 'random_walk', or form the matrix and take affinity='precomputed'"
        )
    added = tau * float(graph.degrees.mean())
    degrees = graph.degrees + added
    diagonal = degrees + graph.own_weights
    low_rank = None
    if graph.constant or added:
        # Y = [1 on linked rows, 1], a = [constant of the weights, t / N]
        ties = np.column_stack([graph.linked, np.ones(graph.n_nodes)])
        low_rank = LowRank(ties, np.array([graph.constant, added / graph.n_nodes]))
    lower = 0.0
    if graph.kernel_error is not None:  # weights that are off may be negative
        lower = -1.0
        if degrees.min() <= 0:
            raise GraphError(
                f"affinity={graph.affinity!r}: points without near ones have no weight beyond the error of "
                "the approximation; take a smaller gamma, or affinity='nearest_neighbors'"
            )
    linked = degrees > 0
    ones = linked.astype(np.float64) if allow_isolated else np.ones(graph.n_nodes)
    diagonal = np.where(linked, diagonal, 0.0) if allow_isolated else diagonal
    if kind == "unnormalized":
        # u'Lu <= sum w_ij (2 u_i^2 + 2 u_j^2): no eigenvalue exceeds twice the largest degree
        top = 2 * float(degrees.max())
        return SimilarityOperator(graph, diagonal, ones, low_rank, lower=lower * top, upper=top)
    if kind == "symmetric":
        form = ones / np.sqrt(np.where(linked, degrees, 1.0))
        scaled = low_rank and LowRank(low_rank.factors * form[:, None], low_rank.coefficients)
        return SimilarityOperator(graph, diagonal * form**2, form, scaled, lower=lower)
    return SimilarityOperator(graph, diagonal, ones, low_rank, metric=degrees, lower=lower)
