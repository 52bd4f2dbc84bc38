"""Spectral embedding and clustering of graphs, single or multilayer, with a certificate on every result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spectrograd import datasets, metrics
    from spectrograd.estimators import (
        MultilayerSpectralClustering,
        MultilayerSpectralEmbedding,
        SpectralClustering,
        SpectralEmbedding,
    )
    from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
    from spectrograd.io import read_graph

__version__ = "0.1.0"

# public name -> module that holds it; loaded when first used, so that importing is fast
_HOMES = {
    "SpectralEmbedding": "estimators",
    "SpectralClustering": "estimators",
    "MultilayerSpectralEmbedding": "estimators",
    "MultilayerSpectralClustering": "estimators",
    "Graph": "graph",
    "GraphError": "graph",
    "GraphWarning": "graph",
    "MultilayerGraph": "graph",
    "read_graph": "io",
    "datasets": "",
    "metrics": "",
}

__all__ = [
    "Graph",
    "GraphError",
    "GraphWarning",
    "MultilayerGraph",
    "MultilayerSpectralClustering",
    "MultilayerSpectralEmbedding",
    "SpectralClustering",
    "SpectralEmbedding",
    "datasets",
    "metrics",
    "read_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spectrograd' has no attribute {name!r}")
    home = _HOMES[name]
    if not home:
        return import_module(f"spectrograd.{name}")
    return getattr(import_module(f"spectrograd.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
