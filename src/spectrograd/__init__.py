"""Spectral embedding and clustering of graphs, single or multilayer, with a certificate on every result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrograd import datasets, metrics
    from spectrograd.estimators import (
        DiffusionMap,
        MultilayerSpectralClustering,
        MultilayerSpectralEmbedding,
        SpectralClustering,
        SpectralCoclustering,
        SpectralEmbedding,
    )
    from spectrograd.estimators.persistence import load_model as load
    from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
    from spectrograd.io import (
        from_frame,
        from_igraph,
        from_networkx,
        from_pyg,
        open_store,
        read_graph,
        read_labels,
        read_points,
        to_arrow,
        to_edge_index,
        to_igraph,
        to_networkx,
        to_pandas,
        to_polars,
        write_embedding,
        write_graph,
        write_labels,
    )
    from spectrograd.layouts import layout, umap_init
    from spectrograd.points import knn_graph


__version__ = "0.2.0"

# Public name -> its module (empty: it is a module itself), loaded when first used: importing stays fast.
_MODULE_OF = {
    "SpectralEmbedding": "estimators",
    "SpectralClustering": "estimators",
    "MultilayerSpectralEmbedding": "estimators",
    "MultilayerSpectralClustering": "estimators",
    "DiffusionMap": "estimators",
    "SpectralCoclustering": "estimators",
    "load": "estimators",
    "Graph": "graph",
    "GraphError": "graph",
    "GraphWarning": "graph",
    "MultilayerGraph": "graph",
    "from_frame": "io",
    "from_igraph": "io",
    "from_networkx": "io",
    "from_pyg": "io",
    "open_store": "store",
    "read_graph": "io",
    "read_labels": "io",
    "read_points": "io",
    "to_arrow": "io",
    "to_edge_index": "io",
    "to_igraph": "io",
    "to_networkx": "io",
    "to_pandas": "io",
    "to_polars": "io",
    "write_embedding": "io",
    "write_graph": "io",
    "write_labels": "io",
    "knn_graph": "points",
    "layout": "layouts",
    "umap_init": "layouts",
    "datasets": "",
    "metrics": "",
}

__all__ = [
    "DiffusionMap",
    "Graph",
    "GraphError",
    "GraphWarning",
    "MultilayerGraph",
    "MultilayerSpectralClustering",
    "MultilayerSpectralEmbedding",
    "SpectralClustering",
    "SpectralCoclustering",
    "SpectralEmbedding",
    "datasets",
    "from_frame",
    "from_igraph",
    "from_networkx",
    "from_pyg",
    "knn_graph",
    "layout",
    "load",
    "metrics",
    "open_store",
    "read_graph",
    "read_labels",
    "read_points",
    "to_arrow",
    "to_edge_index",
    "to_igraph",
    "to_networkx",
    "to_pandas",
    "to_polars",
    "umap_init",
    "write_embedding",
    "write_graph",
    "write_labels",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'spectrograd' has no attribute {name!r}")
    module = _MODULE_OF[name]
    if not module:
        return import_module(f"spectrograd.{name}")
    return getattr(import_module(f"spectrograd.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
