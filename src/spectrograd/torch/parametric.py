"""A small network trained on the objective: ``U = f(features)`` with orthogonality by a Cholesky factor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from spectrograd.certificate import Certificate
from spectrograd.engines.torch_engine import TorchEngine, TorchMultiVector, find_device
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.validation import from_tensor
from spectrograd.operators.base import Operator
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.solve import certify_solution
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers import Progress, Solution
from spectrograd.solvers.settings import RunContext, SolverSettings
from spectrograd.system import need
from spectrograd.typing import Array

Tensor = Any
WORTH_THREADS = 5e7  # multiplications of a batch; below, threads wait for one another on a busy CPU
ROWS = 1 << 14  # rows of features at a time where all of them are embedded


@dataclass(frozen=True)
class Training:
    """How to train: widths of the hidden layers, edges per batch, passes over as many edges as there are."""

    hidden: tuple[int, ...]
    batch_size: int
    epochs: int
    learning_rate: float
    seed: int | None


def objective(torch: Any, heads: Tensor, tails: Tensor) -> Tensor:
    """``J(U) = Tr(R^-T U'LU R^-1)`` with ``R'R = U'DU``, of the two ends (b x K each) of b edges.

    Edges are drawn with odds proportional to their weights, so that their ends are drawn by degree: the mean
    of ``u u'`` over ends is ``U'DU``, that of half the squared differences over edges ``U'LU``, both over the
    volume. The gradient goes through the factor.
    """
    ends = torch.cat([heads, tails]).double()
    differences = (heads - tails).double()
    M = ends.T @ ends / len(ends)
    R = torch.linalg.cholesky(M, upper=True)
    whitened = torch.linalg.solve_triangular(R, differences, upper=True, left=False)
    return whitened.square().sum() / (2 * len(differences))


def trained(features: Tensor, graph: Graph, n_outputs: int, how: Training) -> tuple[Any, list[float]]:
    """A network from features (N x d) to ``n_outputs`` numbers per row, and J of each epoch, its mean."""
    torch = need("torch", "ParametricSpectralEmbedding")
    rng = np.random.default_rng(how.seed)
    with torch.random.fork_rng(devices=[]):  # the user's random numbers go on as if nothing had been
        torch.manual_seed(int(rng.integers(2**62)))
        network = _network(torch, features, n_outputs, how.hidden)
    heads, tails, weights = _edges(torch, graph, features.device)
    draw = torch.Generator(features.device).manual_seed(int(rng.integers(2**62)))
    per_epoch = max(1, len(heads) // how.batch_size)
    optimizer = torch.optim.Adam(network.parameters(), lr=how.learning_rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.epochs * per_epoch)
    history: list[float] = []
    cumulative = weights.cumsum(0)
    for _ in range(how.epochs):
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for _ in range(per_epoch):
            spots = torch.rand(how.batch_size, dtype=torch.float64, generator=draw, device=features.device)
            chosen = torch.searchsorted(cumulative, spots * cumulative[-1]).clamp_max(len(heads) - 1)
            U = network(torch.cat([features[heads[chosen]], features[tails[chosen]]]))
            J = objective(torch, U[: how.batch_size], U[how.batch_size :])
            optimizer.zero_grad()
            J.backward()
            optimizer.step()
            falling.step()
            total += J.detach()
        history.append(float(total) / per_epoch)
        if not np.isfinite(history[-1]):
            raise FloatingPointError("the network left the range of numbers: choose a smaller learning_rate")
    return network, history


def is_small(n_features: int, how: Training) -> bool:
    """Whether a batch is too little work for several threads."""
    widths = (n_features, *how.hidden)
    per_row = sum(a * b for a, b in zip(widths, (*widths[1:], 1), strict=True))
    return 2 * how.batch_size * per_row < WORTH_THREADS


def outputs(network: Any, features: Tensor) -> Tensor:
    """The network on all rows, in float64 (N x K)."""
    torch = need("torch", "ParametricSpectralEmbedding")
    with torch.no_grad():
        return torch.cat([network(part).double() for part in features.split(ROWS)])


def _network(torch: Any, features: Tensor, n_outputs: int, hidden: tuple[int, ...]) -> Any:
    """Features less their mean and over their spread, hidden layers, and outputs that may be anything."""
    spread = features.var(dim=0)
    first = torch.nn.BatchNorm1d(features.shape[1], eps=0.0, affine=False)
    first.running_mean.copy_(features.mean(dim=0))  # fixed: it is not in training
    first.running_var.copy_(torch.where(spread > 0, spread, 1.0))
    layers: list[Any] = [first]
    width = features.shape[1]
    for size in hidden:
        layers += [torch.nn.Linear(width, size), torch.nn.SiLU()]
        width = size
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, n_outputs)).eval().to(features.device)


def _edges(torch: Any, graph: Graph, device: object) -> tuple[Tensor, Tensor, Tensor]:
    """Both ends of every edge, and its weight in float64: sums of 10^7 weights need it."""
    W = graph.matrix
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(W.indptr))
    upper = rows < W.indices
    parts = (rows[upper], W.indices[upper].astype(np.int64), W.data[upper].astype(np.float64))
    return tuple(torch.tensor(part, device=device) for part in parts)


# --- An embedding that is a function of features, so that new points have a place in it.


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

    def fit(self, X: object, y: None = None, *, graph: object = None) -> Self:
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
        self.n_features_in_ = features.shape[1]
        self._device = engine.device
        return self

    def _place(self, engine: TorchEngine, operator: Operator, features: object, seconds: float) -> None:
        """Rotate the network's outputs to Ritz vectors, and measure them against the operator."""
        U = engine.from_numpy(outputs(self.network_, features).cpu().numpy())
        placed = engine.load_operator(operator)
        M = engine.gram(U, U, placed.metric)
        values, rotation = np.linalg.eigh(M)
        if values[0] <= 1e-12 * values[-1]:
            raise FloatingPointError(
                "the network's columns depend on each other: ask for fewer, or train longer"
            )
        Q = engine.combine(U, rotation / np.sqrt(values))
        known = Progress(len(self.objective_), 0.0, 0, self.objective_[-1], np.inf, 0.0, seconds)
        solution = Solution(Q, "parametric", (known,), "done", seconds)
        found = certify_solution(
            operator, solution, SolverSettings(seed=self.random_state), RunContext(engine)
        )
        vectors = found.embedding.vectors
        self._rotation = np.linalg.solve(M, engine.gram(U, engine.from_numpy(vectors), placed.metric))
        self.certificate_: Certificate = found.certificate
        self.embedding_ = vectors[:, 1:]
        self.eigenvalues_ = found.embedding.eigenvalues[1:]

    def transform(self, X: object) -> Array:
        """New points in the embedding: the network and its rotation, nothing else."""
        import torch

        features = _features(X)
        if features.shape[1] != self.n_features_in_:
            raise ValueError(f"{features.shape[1]} features per row; fit was given {self.n_features_in_}")
        U = outputs(self.network_, torch.tensor(features, device=self._device)).cpu().numpy()
        return np.asarray((U @ self._rotation)[:, 1:])


def _features(X: object) -> Array:
    """Rows of float32, finite."""
    features = np.asarray(from_tensor(X), dtype=np.float32)
    if features.ndim != 2:
        raise ValueError(f"features have shape {features.shape}: a row for every point is needed")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise ValueError(f"features of row {row} are not finite: remove or fill them")
    return features


def _one_graph(graph: object, features: Array, n_neighbors: int) -> Graph:
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


# --- Results of the estimators as tensors.

ModelT = TypeVar("ModelT")


def keep_on_device(model: ModelT) -> ModelT:
    """Ask an estimator to leave the embedding of its next fits on the engine's device, too.

    :func:`embedding_tensor` then gives that very tensor, which has never been on the host. It takes
    ``8 N K`` bytes there for as long as the model lives. ``engine=`` must be one of torch's.

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding
    >>> model = keep_on_device(SpectralEmbedding(2, engine="torch"))
    """
    if not str(getattr(model, "engine", None)).startswith("torch"):
        raise ValueError(
            f"engine={getattr(model, 'engine', None)!r} has no device to keep tensors on: use 'torch', "
            "'torch:cuda' or 'torch:cpu'"
        )
    model._keeps_multivector = True  # type: ignore[attr-defined]
    return model


def embedding_tensor(model: Any, device: str | None = None) -> Any:
    """The ``embedding_`` of a fitted estimator as a tensor, N x K; other libraries take it by DLPack.

    Parameters
    ----------
    model
        Any fitted estimator of this package. One that was asked to (:func:`keep_on_device`) has it on its
        device; the ``embedding_`` of others is copied there from the host.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``; None: that of the estimator's engine, the CPU for others.

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding, datasets
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> model = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(graph)
    >>> tuple(embedding_tensor(model, "cpu").shape)  # doctest: +SKIP
    (300, 2)
    """
    torch = need("torch", "embedding_tensor")
    kept = getattr(model, "_multivector", None)
    if isinstance(kept, TorchMultiVector):
        tensor = kept.tensor[:, kept.shape[1] - model.embedding_.shape[1] :]  # without the constant
        if model._rotation is not None:
            tensor = tensor @ tensor.new_tensor(model._rotation)
        where = tensor.device if device is None else find_device(torch, device)
        return tensor.to(where, getattr(torch, model.embedding_.dtype.name))
    if device is None:
        kind, _, device = str(model.engine).partition(":")
        device = (device or None) if kind == "torch" else "cpu"
    return torch.as_tensor(model.embedding_, device=find_device(torch, device))
