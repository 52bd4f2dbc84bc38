"""Peers on layers, in an interpreter of their own: ``layers_peers.py serve`` answers lines of JSON.

A request is ``[NAME, FOLDER, K]``, an answer ``{"labels": ..., "seconds": ...}`` or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.sparse as sp

MAX_DENSE_NODES = 2_000
PACKAGES = ("mvlearn", "graspologic", "leidenalg", "igraph", "infomap")


def coregularized(layers: list[Any], k: int) -> list[int]:
    """Co-regularised multi-view spectral clustering (Kumar et al. 2011) of the layers' own affinities."""
    import numpy as np
    from mvlearn.cluster import MultiviewCoRegSpectralClustering

    class OfAffinities(MultiviewCoRegSpectralClustering):  # type: ignore[misc]
        def _affinity_mat(self, X: Any) -> Any:
            return X

    if layers[0].shape[0] > MAX_DENSE_NODES:
        raise ValueError("mvlearn's matrices are dense")
    small = 1e-6 * np.eye(layers[0].shape[0])  # no degree may be zero
    views = [layer.toarray() + small for layer in layers]
    return list(map(int, OfAffinities(k, random_state=0).fit_predict(views)))


def mase(layers: list[Any], k: int) -> list[int]:
    """Multiple adjacency spectral embedding (Arroyo et al. 2021) and k-means."""
    from graspologic.embed import MultipleASE
    from sklearn.cluster import KMeans

    rows = MultipleASE(n_components=k).fit_transform([sp.csr_array(layer) for layer in layers])
    return list(map(int, KMeans(k, n_init=10, random_state=0).fit_predict(rows)))


def leiden(layers: list[Any], k: int) -> list[int]:
    """Modularity of all layers (Traag et al. 2019), with a number of clusters of its own."""
    import igraph
    import leidenalg

    graphs = []
    for layer in layers:
        upper = sp.triu(layer, 1).tocoo()
        graph = igraph.Graph(
            n=layer.shape[0], edges=list(zip(upper.row.tolist(), upper.col.tolist(), strict=True))
        )
        graph.es["weight"] = upper.data.tolist()
        graphs.append(graph)
    found = leidenalg.find_partition_multiplex(
        graphs, leidenalg.ModularityVertexPartition, seed=0, weights="weight"
    )
    return list(found[0])


def infomap(layers: list[Any], k: int) -> list[int]:
    """The map equation of a multilayer network, with a number of clusters of its own."""
    from infomap import Infomap

    network = Infomap(silent=True, two_level=True, seed=1)
    for at, layer in enumerate(layers):
        upper = sp.triu(layer, 1).tocoo()
        for i, j, weight in zip(upper.row.tolist(), upper.col.tolist(), upper.data.tolist(), strict=True):
            network.add_multilayer_intra_link(at + 1, i, j, weight)
    network.run()
    labels = [0] * layers[0].shape[0]
    for node in network.nodes:
        labels[node.node_id] = int(node.module_id)
    return labels


METHODS: dict[str, Callable[[list[Any], int], list[int]]] = {
    "mvlearn co-regularized": coregularized,
    "graspologic MASE": mase,
    "leidenalg multiplex": leiden,
    "infomap": infomap,
}


def serve() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no answer
    for line in sys.stdin:
        name, folder, k = json.loads(line)
        data = [sp.load_npz(path).astype(float) for path in sorted(Path(folder).glob("*.npz"))]
        began = time.process_time()
        try:
            answer = {"labels": METHODS[name](data, int(k))}
        except Exception as error:  # a peer that fails has no row
            answer = {"error": str(error)}
        print(json.dumps({**answer, "seconds": time.process_time() - began}), file=answers, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "versions":
        print(", ".join(f"{name} {version(name)}" for name in PACKAGES))
    else:
        serve()
