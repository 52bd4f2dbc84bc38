"""What a command reads: its graph, the bytes it came from, and known classes."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import click

from spectrograd.cli.graph_files import GraphFiles, PointOptions
from spectrograd.cli.session import Session
from spectrograd.cli.summary import Input
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.io import read_graph, read_points
from spectrograd.io.read.compressed import without_compression
from spectrograd.io.read.join import unique
from spectrograd.io.read.labels import read_classes
from spectrograd.labels.eigengap import MOST
from spectrograd.pipeline.needs import check_limit, open_within
from spectrograd.points.neighbors import neighbour_graph
from spectrograd.points.new_points import KnownPoints
from spectrograd.points.search import Wanted
from spectrograd.store import is_store
from spectrograd.store.manifest import load_meta
from spectrograd.store.urls import store_path

STDIN = "-"
HASHED_AT_ONCE = 1 << 20  # bytes


def read_layers(
    session: Session,
    files: GraphFiles,
    k: int | str = MOST,
    limit: tuple[int | None, str, str] = (None, "auto", "auto"),
) -> tuple[Graph | MultilayerGraph, Input]:
    """Read the graph and remember which bytes it came from; a store that does not fit the limit stays put.

    ``limit`` is the memory limit in bytes, and the solver and the engine that have to keep it: of a store
    that is read by the workers of a cluster nothing is loaded here.
    """
    paths, (memory_limit, *how) = files.paths, limit
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        n_vectors = MOST if isinstance(k, str) else k
        if len(paths) == 1 and is_store(paths[0]) and not any(files.how.values()):
            graph = open_within(paths[0], n_vectors, memory_limit, *how)
        else:
            graph = read_graph(*paths, **files.how)
            check_limit(graph, n_vectors, memory_limit)
        source = hashed(paths)
    session.detail(f"{graph} read in {session.seconds['read']:.2f} s")
    return graph, source


@dataclass(frozen=True, eq=False)
class PointGraph:
    """A graph of points, or of several views of them, and what its search knows for points to come."""

    graph: Graph | MultilayerGraph
    known: tuple[KnownPoints, ...]
    options: PointOptions


def read_point_graph(
    session: Session, files: GraphFiles, options: PointOptions, jobs: int | None
) -> tuple[PointGraph, Input]:
    """Read points and join them to their neighbours; several files are views of the same points."""
    paths = files.paths
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        asked = [(path, key) for path in paths for key in (files.key or (None,))]
        how: dict[str, Any] = {"ignore": options.ignore, "header": files.header, "format": files.format}
        tables = [read_points(path, key=key, **how) for path, key in asked]
        source = hashed(paths)
    for (path, key), table in zip(asked, tables, strict=True):
        if len(table.coordinates) != len(tables[0].coordinates):
            this, first = (path, paths[0]) if len(paths) > 1 else (key, asked[0][1])
            raise GraphError(
                f"{this} has {len(table.coordinates)} points, {first} has {len(tables[0].coordinates)}: "
                "views are of the same points"
            )
    wanted = Wanted(options.neighbors, options.metric, options.search, options.recall, jobs)  # type: ignore[arg-type]
    names = next((table.names for table in tables if table.names is not None), None)
    with session.stage("solve"), session.progress(f"neighbours of {len(tables[0].coordinates):,} points"):
        made = [neighbour_graph(table.coordinates, wanted, connect=True) for table in tables]
    graphs = [replace(graph, names=names) for graph, _ in made]
    stems = unique([_view(path, key, len(paths)) for path, key in asked])
    graph = graphs[0] if len(graphs) == 1 else MultilayerGraph(tuple(graphs), stems)
    session.detail(f"{graph} of points: {graph.recall}")
    return PointGraph(graph, tuple(known for _, known in made), options), source


def _view(path: str, key: str | None, n_files: int) -> str:
    return str(key) if n_files == 1 and key is not None else Path(without_compression(path)).stem


def keep_stdin(paths: Sequence[str]) -> None:
    """Keep the bytes of standard input: they can be read only once, but are parsed and hashed."""
    if STDIN in paths:
        sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8")


def hashed(paths: Sequence[str]) -> Input:
    """Remember files and what was in them."""
    digest, fingerprint = hashlib.sha256(), None
    for path in paths:
        if is_store(path):
            fingerprint = load_meta(store_path(path)).fingerprint
            digest.update(fingerprint.encode())
            continue
        if path == STDIN:
            digest.update(cast(io.BytesIO, sys.stdin.buffer).getbuffer())
            continue
        with open(path, "rb") as handle:
            while piece := handle.read(HASHED_AT_ONCE):
                digest.update(piece)
    return Input(tuple(paths), digest.hexdigest(), fingerprint if len(paths) == 1 else None)


def read_truth(
    session: Session, truth: str | None, graph: Graph | MultilayerGraph, column: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Known classes in the order of the nodes, and their names, where a file of them was given."""
    if truth is None:
        if column is not None:
            raise click.UsageError(
                "--label-column says which column of --labels counts; there are no --labels"
            )
        return None, ()
    with session.stage("read"):
        return read_classes(truth, graph.input_names, column)


def check_size(k: int | str, extra: int, graph: Graph | MultilayerGraph) -> None:
    """Refuse more vectors than the graph has; "auto" is no number yet."""
    most = graph.n_nodes - 1 - extra
    if not isinstance(k, str) and k > most:
        raise click.UsageError(
            f"-k {k} is too large for a graph of {graph.n_nodes} nodes; choose at most {most}",
            click.get_current_context(),
        )
