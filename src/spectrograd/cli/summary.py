"""The machine-readable result of a command (``--summary-json``)."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from spectrograd import __version__
from spectrograd.cli.session import Session
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.pipeline import Result
from spectrograd.pipeline.merge import Merged
from spectrograd.pipeline.rough_solve import UNMEASURED
from spectrograd.store import StoredGraph
from spectrograd.system import hash_file, peak_resident_bytes
from spectrograd.typing import JsonObject

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
# Of a layer, where the layers have weights of their own.
LAYER_SCORES = ("structure", "strength", "agreement", "copies", "noise")


@dataclass(frozen=True)
class Input:
    """Where the graph came from; ``sha256`` is that of all files one after the other.

    ``fingerprint`` is that of the one store it came from, None of anything else.
    """

    files: tuple[str, ...]
    sha256: str
    fingerprint: str | None = None

    @classmethod
    def of_arrays(cls, arrays: Sequence[object]) -> Input:
        """Data that was made, not read."""
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return cls((), digest.hexdigest())

    @classmethod
    def of_files(cls, paths: Sequence[Path]) -> Input:
        """Files, which may be large."""
        digest = hashlib.sha256()
        for path in paths:
            hash_file(path, digest)
        return cls(tuple(map(str, paths)), digest.hexdigest())


def summarize(
    session: Session,
    source: Input,
    graph: Graph | MultilayerGraph,
    result: Result,
    scores: Mapping[str, float] | None,
) -> JsonObject:
    """What every command's summary holds; for several layers there is also what is known of each."""
    return (
        outline(session, source, graph)
        | {
            "solver": {
                "name": result.solver,
                "reason": result.reason,
                "predicted_seconds": result.attempts[0].predicted_seconds if result.attempts else None,
                "iterations": result.history[-1].iteration,
                "passes": result.passes,
                "matvecs": result.matvecs,
                "stopped": result.stop_reason,
                "attempts": [asdict(attempt) for attempt in result.attempts],
            },
            "certificate": result.certificate.summary(),
            "scores": None if scores is None else dict(scores),
            "io": read_from_disk(graph),
        }
        | result.decisions()
        | ({} if result.n_clusters is None else {"n_clusters": result.n_clusters})
        | layer_summary(result.merged, graph)
    )


def read_from_disk(graph: Graph | MultilayerGraph) -> dict[str, int]:
    """How much of a graph on disk was read, and how often all of a layer; nothing of one in memory."""
    one = graph.layers[0]  # layers of a store share its files
    if not isinstance(one, StoredGraph):
        return {"bytes_read": 0, "passes_over_disk": 0}
    return {"bytes_read": one.bytes_read, "passes_over_disk": one.passes}


def outline(session: Session, source: Input, graph: Graph | MultilayerGraph) -> JsonObject:
    """Summary of a command that solves nothing."""
    sizes = {"n_nodes": graph.n_nodes, "n_edges": graph.n_edges, "n_layers": graph.n_layers}
    summary = outline_of(session, source, sizes)
    if graph.recall is not None:
        summary["graph"]["knn_recall"] = graph.recall.summary()
    return summary


def outline_of(session: Session, source: Input, sizes: Mapping[str, int]) -> JsonObject:
    """Do the same for a graph of which only the sizes are at hand."""
    return {
        "command": session.command,
        "command_line": session.command_line,
        "version": __version__,
        "seed": session.seed,
        "input": {"files": list(source.files), "sha256": source.sha256},
        "graph": dict(sizes),
        "seconds": session.timing(),
        "engine": session.engine,
        "solver": None,
        "certificate": None,
        "scores": None,
        "peak_memory_bytes": peak_resident_bytes(),
        "versions": versions(),
    }


def layer_summary(merged: Merged | None, graph: Graph | MultilayerGraph) -> JsonObject:
    """``layers``, one entry each under its name, and the distances between those that were embedded."""
    if merged is None or not isinstance(graph, MultilayerGraph):
        return {}
    entries: list[dict[str, object]] = [
        {"name": name, "n_edges": layer.n_edges, "weight": float(weight)}
        for name, layer, weight in zip(graph.layer_names, graph.layers, merged.weights, strict=True)
    ]
    for entry, layer in zip(entries, merged.layers, strict=False):
        entry |= {"seconds": layer.total_seconds, "solver": layer.solver}
        measured = layer.certificate.known != UNMEASURED
        entry |= {"converged": layer.certificate.converged if measured else None}
    if merged.scores is not None:
        for at, entry in enumerate(entries):
            entry |= {key: getattr(merged.scores, key)[at] for key in LAYER_SCORES}
    return {
        "layers": entries,
        "layer_distances": merged.distances if merged.layers else None,
        "aggregation": merged.chosen.summary(),
    }


def versions() -> dict[str, str | None]:
    """Of Python and the packages that do the numbers."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
