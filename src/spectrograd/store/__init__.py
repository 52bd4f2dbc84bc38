"""A graph on disk: written once under a memory limit, streamed from then on (docs/store.md)."""

from spectrograd.store.shuffled_edges import Edges
from spectrograd.store.stored_graph import StoredGraph, is_store, open_store

__all__ = ["Edges", "StoredGraph", "is_store", "open_store"]
