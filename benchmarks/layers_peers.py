"""Peers on layers, in an interpreter of their own: ``layers_peers.py NAME FOLDER K`` prints labels."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.sparse as sp

PACKAGES = ("graspologic", "leidenalg", "igraph", "infomap")


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
    "graspologic MASE": mase,
    "leidenalg multiplex": leiden,
    "infomap": infomap,
}

if __name__ == "__main__":
    if sys.argv[1] == "versions":
        print(", ".join(f"{name} {version(name)}" for name in PACKAGES))
    else:
        name, folder, k = sys.argv[1:]
        data = [sp.load_npz(path).astype(float) for path in sorted(Path(folder).glob("*.npz"))]
        began = time.process_time()
        labels = METHODS[name](data, int(k))
        print(json.dumps({"labels": labels, "seconds": time.process_time() - began}))
