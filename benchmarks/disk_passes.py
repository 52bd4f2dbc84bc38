"""Sweeps over a graph on disk to a certified subspace, by solver, and what a slow disk makes of them."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import table
from spectrograd import Graph, datasets, open_store, write_graph
from spectrograd.pipeline import Settings, embed
from spectrograd.points.knn_graph import knn_graph

# SPECTROGRAD_LARGEST=200000 is the size of the figures in ADR 39; the default takes a few minutes.
SIZE = min(int(os.environ.get("SPECTROGRAD_LARGEST", 10_000)), 2_000_000)
CLUSTERS = 16
SPEEDS = (None, 1000, 500, 200, 100)  # MB/s at which the reader delivers; None: as fast as it can
MOST_SECONDS = 5.0  # for what polynomials are not made for
PLANE = "k-NN in the plane"
SOLVERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("chebyshev", "chebyshev", {}),
    ("block Krylov", "lanczos", {}),
    ("sgd, 3 passes, then Krylov", "sgd", {"epochs": 3, "polish": True}),
)


class Run(NamedTuple):
    """What a solve took."""

    passes: int
    bytes_read: int
    seconds: float
    certified: bool
    angle: float


def run() -> str:
    """The table."""
    rows: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family, graph in families():
            path = Path(folder, "graph.store")
            write_graph(path, graph)
            solved(path, "chebyshev", {}, None, MOST_SECONDS)  # compiles
            rows += _of_family(family, path)
    head = ("graph", "solver", "passes", "MB read", "certified", *map(_speed, SPEEDS))
    size = (
        f"{SIZE:,} nodes, K = {CLUSTERS}; seconds by the speed of the reader, the fastest certified **so**; "
        f"in the plane every solver has {MOST_SECONDS:g} seconds."
    )
    return f"{size}\n\n{table(head, rows)}"


def families() -> Iterator[tuple[str, Graph]]:
    """Four kinds of graphs, half of the edges inside clusters where there are any."""
    made = datasets.make_block_model
    yield "block model", made(SIZE, CLUSTERS, mean_degree=40, mixing=0.5, random_state=1).graph
    corrected = {"mean_degree": 40, "mixing": 0.5, "degree_exponent": 2.5}
    yield "degree-corrected", made(SIZE, CLUSTERS, **corrected, random_state=1).graph
    hubs = {"mean_degree": 40, "mixing": 0.5, "degree_exponent": 2.1}
    yield "with hubs", made(SIZE, CLUSTERS, **hubs, random_state=1).graph
    points = np.random.default_rng(1).normal(size=(SIZE, 2))
    yield PLANE, knn_graph(points, 10, connect=True)


def _of_family(family: str, path: Path) -> list[tuple[Any, ...]]:
    runs = []
    for _, name, params in SOLVERS:
        budget = MOST_SECONDS if family == PLANE else None
        first = solved(path, name, params, None, budget)
        slower = SPEEDS[1:] if first.certified else ()  # what is not certified wins no race
        runs.append([first, *(solved(path, name, params, speed) for speed in slower)])
    rows: list[tuple[Any, ...]] = []
    for (title, _, _), each in zip(SOLVERS, runs, strict=True):
        first = each[0]
        verdict = "yes" if first.certified else f"no (sine {min(first.angle, 1):.2g})"
        cells = [_cell(each, runs, at) for at in range(len(SPEEDS))]
        rows.append((family, title, first.passes, f"{first.bytes_read / 1e6:,.0f}", verdict, *cells))
    return rows


def _cell(own: list[Run], runs: list[list[Run]], at: int) -> str:
    if at >= len(own):
        return ""
    fastest = min((each[at].seconds for each in runs if at < len(each) and each[0].certified), default=0.0)
    text = f"{own[at].seconds:.2f}"
    return f"**{text}**" if own[at].seconds == fastest else text


def solved(
    path: Path, solver: str, params: dict[str, Any], speed: int | None, budget: float | None = None
) -> Run:
    """One solve over a store whose reader is held at a speed (MB/s), in a ``budget`` of seconds."""
    graph: Any = open_store(path)
    graph.store.files.speed = None if speed is None else speed * 1e6
    settings = Settings(n_components=CLUSTERS, solver=solver, params=params, seed=0, time_budget=budget)
    began = time.perf_counter()
    result = embed(graph, settings)
    seconds = time.perf_counter() - began
    certificate = result.certificate
    return Run(graph.passes, graph.bytes_read, seconds, certificate.converged, certificate.angle_bound)


def _speed(speed: int | None) -> str:
    return "as it is" if speed is None else f"{speed:,} MB/s"
