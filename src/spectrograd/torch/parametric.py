"""An embedding that is a function of features, so that new points have a place in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from spectrograd.certificate import Certificate
from spectrograd.engines.torch_engine import TorchEngine
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.tensors import from_tensor
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.protocol import Operator
from spectrograd.pipeline.certifying import certified
from spectrograd.points.neighbors import knn_graph
from spectrograd.solvers import Progress, Solution
from spectrograd.solvers.settings import SolverSettings
from spectrograd.torch.network import Training, is_small, outputs, trained

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class ParametricSpectralEmbedding(TransformerMixin, BaseEstimator):
    """``U = f(features)``, f a small network, trained on the paper's objective by mini-batches of edges.

    **Definition.** ``J = Tr(M^-1 U'LU)`` with ``M = U'DU`` (Eq. 8, random-walk metric), M and ``U'LU``
    estimated from the edges of a batch, the Cholesky factor of M inside the gradient. After training, M and
    ``U'LU`` of all rows rotate the outputs to Ritz vectors.

    **Meaning.** The eigenvectors as far as a network of these features can follow them; ``certificate_``
    says how far that is. New points need nothing but their features.

    Parameters
    ----------
    n_components
        Columns; the constant vector is not among them.
    hidden
        Widths of the hidden layers.
    n_neighbors
        Of the graph of the points, where none is given to ``fit``.
    epochs, batch_size, learning_rate
        An epoch draws as many edges as the graph has, by weight, in batches; Adam's rate falls to zero.
    engine
        ``"torch"`` or ``"torch:cuda:1"``: the device.
    random_state
        A seed.

    Attributes
    ----------
    embedding_ : (N, n_components)
    eigenvalues_ : (n_components,), Ritz values of the random-walk Laplacian
    certificate_ : how far the columns, the constant among them, are from eigenvectors
    objective_ : J of each epoch
    """

    n_components: int = 8
    hidden: Sequence[int] = (256, 256)
    n_neighbors: int = 10
    epochs: int = 20
    batch_size: int = 1024
    learning_rate: float = 1e-3
    engine: str = "torch"
    random_state: int | None = None

    def fit(self, X: Any, y: None = None, *, graph: Any = None) -> Self:
        """Train on features (N x d; a tensor will do) and a graph, layers, or the points' neighbours."""
        features = _features(X)
        merged = _one_graph(graph, features, self.n_neighbors)
        if merged.n_nodes != len(features):
            raise GraphError(f"{len(features)} rows of features for {merged.n_nodes} nodes")
        engine = TorchEngine(self.engine.removeprefix("torch").removeprefix(":") or None)
        on_device = engine.torch.tensor(features, device=engine.device)
        began = time.perf_counter()
        how = Training(
            tuple(self.hidden), self.batch_size, self.epochs, self.learning_rate, self.random_state
        )
        with engine.one_thread() if is_small(features.shape[1], how) else nullcontext():
            self.network_, self.objective_ = trained(on_device, merged, self.n_components + 1, how)
        self._place(engine, laplacian(merged), on_device, time.perf_counter() - began)
        self.n_features_in_, self._device = features.shape[1], engine.device
        return self

    def _place(self, engine: TorchEngine, operator: Operator, features: Any, seconds: float) -> None:
        """Rotate the network's outputs to Ritz vectors, and measure them against the operator."""
        U = engine.put(outputs(self.network_, features).cpu().numpy())
        placed = engine.place(operator)
        M = engine.gram(U, U, placed.metric)
        values, rotation = np.linalg.eigh(M)
        if values[0] <= 1e-12 * values[-1]:
            raise FloatingPointError(
                "the network's columns depend on each other: ask for fewer, or train longer"
            )
        Q = engine.combine(U, rotation / np.sqrt(values))
        known = Progress(len(self.objective_), 0.0, 0, self.objective_[-1], np.inf, 0.0, seconds)
        solution = Solution(Q, "parametric", (known,), "done", seconds, self.random_state)
        found = certified(operator, solution, SolverSettings(seed=self.random_state, engine=engine))
        vectors = found.embedding.vectors
        self._rotation = np.linalg.solve(M, engine.gram(U, engine.put(vectors), placed.metric))
        self.certificate_: Certificate = found.certificate
        self.embedding_, self.eigenvalues_ = vectors[:, 1:], found.embedding.eigenvalues[1:]

    def transform(self, X: Any) -> Array:
        """New points in the embedding: the network and its rotation, nothing else."""
        import torch

        features = _features(X)
        if features.shape[1] != self.n_features_in_:
            raise ValueError(f"{features.shape[1]} features per row; fit was given {self.n_features_in_}")
        U = outputs(self.network_, torch.tensor(features, device=self._device)).cpu().numpy()
        return np.asarray((U @ self._rotation)[:, 1:])


def _features(X: Any) -> Array:
    """Rows of float32, finite."""
    features = np.asarray(from_tensor(X), dtype=np.float32)
    if features.ndim != 2:
        raise ValueError(f"features have shape {features.shape}: a row for every point is needed")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise ValueError(f"features of row {row} are not finite: remove or fill them")
    return features


def _one_graph(graph: Any, features: Array, n_neighbors: int) -> Graph:
    """The graph, the mean of several layers of equal volume, or that of the nearest points."""
    if graph is None:
        return knn_graph(features, n_neighbors, connect=True)
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, list | tuple | dict):
        graph = MultilayerGraph.from_layers(graph)
    if not isinstance(graph, MultilayerGraph):
        return Graph.from_matrix(graph)
    mean = sum(layer.matrix * (layer.n_nodes / layer.degrees.sum()) for layer in graph.layers)
    return Graph.from_matrix(mean)
