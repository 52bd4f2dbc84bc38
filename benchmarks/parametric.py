"""A network as an embedding of MNIST, beside the eigenvectors and beside the package `spectralnet`.

60,000 points are known, 10,000 are placed without another solve: by `transform` of the eigenvectors (of
Nystrom's type), by `ParametricSpectralEmbedding`, by `spectralnet` where it is installed. Needs torch and the
folder of `benchmarks/first_hour.py`.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.first_hour import _mnist
from benchmarks.harness import DATA, table
from spectrograd import SpectralEmbedding, metrics
from spectrograd.graph import Graph
from spectrograd.labels import assign
from spectrograd.torch import ParametricSpectralEmbedding

K, KNOWN, EPOCHS = 10, 60_000, 10


class Placed(NamedTuple):
    """Rows of the known and of the new points, what it took, and how far from the eigenvectors they are."""

    known: Any
    new: Any
    seconds: float
    processor: float
    bound: str = "-"
    angle: str = "-"


def run() -> str:
    import torch

    torch.set_num_threads(1)  # as many for all: two would wait for one another on a busy machine
    cloud = _mnist(DATA / "mnist")
    X = np.asarray(cloud.points, dtype=np.float32) / 255
    known, new = X[:KNOWN], X[KNOWN:]
    eigen, model = _eigenvectors(known, new)
    found = {"eigenvectors and `transform`": eigen, f"network, {EPOCHS} epochs": _network(known, new, model)}
    if find_spec("spectralnet"):
        found[f"spectralnet {version('spectralnet')}, {EPOCHS} epochs"] = _spectralnet(known, new)
    rows = [(name, *_scores(placed, cloud.classes)) for name, placed in found.items()]
    head = (
        "method", "s", "processor s", "NMI", "NMI held out", "accuracy held out", "certified angle",
        "angle to the eigenvectors",
    )  # fmt: skip
    return (
        f"MNIST, {KNOWN:,} known and {len(new):,} held-out points, K = {K}, one thread, torch "
        f"{version('torch')}; seconds of the first row include the search for neighbours, whose graph the "
        "network takes over. Angles are sines of the largest angle between subspaces; accuracy is that of "
        "the clusters, each named by the known points; `spectralnet` as it comes but for its epochs.\n\n"
        + table(head, rows)
    )


def _scores(placed: Placed, classes: Any) -> tuple[str, ...]:
    """Clusters of the known points, and each new point in the nearest of them."""
    labels = assign(placed.known, K, unit_rows=True, norm_regularization=1.0, random_state=0).labels
    known, new = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (placed.known, placed.new))
    centres = np.array([known[labels == c].mean(axis=0) for c in range(K)])
    joined = (new @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)
    counts = np.zeros((K, K), int)
    np.add.at(counts, (labels, classes[:KNOWN]), 1)
    named = linear_sum_assignment(-counts)[1]
    nmi = (metrics.score(*pair)["nmi"] for pair in ((classes[:KNOWN], labels), (classes[KNOWN:], joined)))
    accuracy = (named[joined] == classes[KNOWN:]).mean()
    numbers = (f"{placed.seconds:.0f}", f"{placed.processor:.0f}", *(f"{x:.3f}" for x in (*nmi, accuracy)))
    return *numbers, placed.bound, placed.angle


class _Clock:
    def __init__(self) -> None:
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def cost(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.processor


def _eigenvectors(known: Any, new: Any) -> tuple[Placed, SpectralEmbedding]:
    clock = _Clock()
    model = SpectralEmbedding(K, random_state=0, n_jobs=1).fit(known)
    rows = model.transform(new)
    return Placed(model.embedding_, rows, *clock.cost(), _bound(model.certificate_), "0"), model


def _network(known: Any, new: Any, exact: SpectralEmbedding) -> Placed:
    graph = Graph.from_matrix(exact.affinity_matrix_)
    clock = _Clock()
    model = ParametricSpectralEmbedding(K, epochs=EPOCHS, engine="torch:cpu", random_state=0)
    rows = model.fit(known, graph=graph).transform(new)
    cost = clock.cost()
    angle = metrics.largest_principal_angle(model.embedding_, exact.embedding_, graph.degrees)
    return Placed(model.embedding_, rows, *cost, _bound(model.certificate_), f"{np.sin(angle):.3f}")


def _bound(certificate: Any) -> str:
    return f"{certificate.angle_bound:.1e}" if certificate.angle_bound < 1 else "no bound below 1"


def _spectralnet(known: Any, new: Any) -> Placed:
    import torch
    from spectralnet import SpectralNet

    torch.manual_seed(0)
    clock = _Clock()
    model = SpectralNet(n_clusters=K, spectral_epochs=EPOCHS)
    model.fit(torch.tensor(known))
    cost = clock.cost()
    rows = []
    for points in (known, new):
        model.predict(torch.tensor(points))
        rows.append(np.asarray(model.embeddings_, dtype=np.float64))
    return Placed(rows[0], rows[1], *cost)


if __name__ == "__main__":
    print(run())
