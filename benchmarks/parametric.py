"""A network as an embedding of MNIST, beside the eigenvectors: `python -m benchmarks.parametric [POINTS]`.

Held-out points are placed by the network, or as means of their neighbours' rows (a Nystrom-type extension),
or by the package `spectralnet` where it is installed. Needs torch and a folder as `benchmarks/first_hour.py`
does; without it a mixture of Gaussians takes the place of MNIST.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.first_hour import DATA, _mixture, _mnist
from benchmarks.harness import table
from spectrograd import SpectralEmbedding, metrics
from spectrograd.labels import assign
from spectrograd.torch import ParametricSpectralEmbedding

K = 10


def run(n_points: int = 4000, epochs: int = 20) -> str:
    cloud = _mnist(DATA / "mnist") if (DATA / "mnist").is_dir() else _mixture(n_points + 1000, 50, K)
    order = np.random.default_rng(0).permutation(len(cloud.points))[: n_points + 1000]
    X, classes = np.asarray(cloud.points)[order].astype(np.float32), cloud.classes[order]
    known, new = slice(n_points), slice(n_points, None)
    rows = [
        _row("eigenvectors, means of neighbours", _neighbour_means, X, classes, known, new),
        _row("network", lambda A, B: _network(A, B, epochs), X, classes, known, new),
    ]
    if find_spec("spectralnet"):
        rows.append(_row("spectralnet", _spectralnet, X, classes, known, new))
    head = ("method", "seconds", "NMI", "NMI held out", "sum of Ritz values")
    missing = "" if find_spec("spectralnet") else "\n`spectralnet` is not installed: no row of its own.\n"
    return f"## {cloud.name}, {n_points:,} points and 1,000 held out\n\n{table(head, rows)}{missing}"


def _row(name, embed, X, classes, known, new):
    began = time.perf_counter()
    inside, outside, objective = embed(X[known], X[new])
    seconds = time.perf_counter() - began
    labels = assign(inside, K, unit_rows=True, softness=1.0, random_state=0).labels
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (inside, outside)]
    centres = np.array([unit[0][labels == c].mean(axis=0) for c in range(K)])
    joined = ((unit[1][:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    scores = [metrics.score(classes[known], labels)["nmi"], metrics.score(classes[new], joined)["nmi"]]
    return (name, f"{seconds:.1f}", f"{scores[0]:.3f}", f"{scores[1]:.3f}", f"{objective:.3f}")


def _neighbour_means(known, new):
    model = SpectralEmbedding(K, random_state=0).fit(known)
    near = NearestNeighbors(n_neighbors=10).fit(known).kneighbors(new, return_distance=False)
    return model.embedding_, model.embedding_[near].mean(axis=1), model.eigenvalues_.sum()


def _network(known, new, epochs):
    model = ParametricSpectralEmbedding(K, epochs=epochs, random_state=0).fit(known)
    print(model.certificate_.sentence)
    return model.embedding_, model.transform(new), model.eigenvalues_.sum()


def _spectralnet(known, new):
    import torch
    from spectralnet import SpectralNet

    model = SpectralNet(n_clusters=K)
    model.fit(torch.tensor(known))
    model.predict(torch.tensor(known))
    inside = np.asarray(model.embeddings_)
    model.predict(torch.tensor(new))
    return inside, np.asarray(model.embeddings_), float("nan")


if __name__ == "__main__":
    print(run(*(int(word) for word in sys.argv[1:])))
