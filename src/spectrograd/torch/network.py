"""A small network trained on the objective: ``U = f(features)`` with orthogonality by a Cholesky factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.extras import need
from spectrograd.graph import Graph

Array = NDArray[Any]
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
    ends, differences = torch.cat([heads, tails]).double(), (heads - tails).double()
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


def _edges(torch: Any, graph: Graph, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Both ends of every edge, and its weight in float64: sums of 10^7 weights need it."""
    W = graph.matrix
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(W.indptr))
    upper = rows < W.indices
    parts = (rows[upper], W.indices[upper].astype(np.int64), W.data[upper].astype(np.float64))
    return tuple(torch.tensor(part, device=device) for part in parts)
