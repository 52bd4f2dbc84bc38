"""Estimates of memory and time without a run: ``info`` and ``--dry-run``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import cast

import click
import numpy as np

from spectrograd.cli.options import SolveOptions
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS
from spectrograd.operators.laplacian import Kind, laplacian, masked_laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.memory_estimate import max_columns, resident_bytes, solver_bytes, streamed_bytes
from spectrograd.pipeline.plan import PlannedSolver, choose
from spectrograd.solvers.base import Problem

# Passes over the edges that the default solvers took on graphs of all kinds, from block models to roads.
FEW_PASSES = 10
MANY_PASSES = 200
MAX_SAMPLE_COLUMNS = 8  # of a pass over a graph on disk: all may not fit


@dataclass(frozen=True)
class Estimate:
    """Solver, memory in bytes and seconds per pass; passes are few on expanders, many on long thin graphs."""

    choice: PlannedSolver
    memory: int
    seconds_per_pass: float

    @property
    def seconds(self) -> tuple[float, float]:
        """Between what and what a run should take."""
        return FEW_PASSES * self.seconds_per_pass, MANY_PASSES * self.seconds_per_pass

    def lines(self) -> list[str]:
        """For people."""
        low, high = map(_short, self.seconds)
        one_pass = _short(self.seconds_per_pass * 1e3)
        spent = f"{low} to {high} s, no closer estimate"
        if self.choice.seconds is not None:
            spent = f"about {_short(self.choice.seconds)} s on one thread, by the cost model"
        return [
            f"solver   {self.choice.name}: {self.choice.reason}",
            f"memory   about {max(1, self.memory / 1e6):,.0f} MB",
            f"time     {spent} ({one_pass} ms for one pass over the edges)",
        ]


def estimate(
    graph: Graph | MultilayerGraph,
    k: int,
    kind: Kind = "random_walk",
    solver: str = "auto",
    memory_limit: int | None = None,
) -> Estimate:
    """Look at the graph (of several layers at the largest) and measure one pass; nothing is solved."""
    largest = max(graph.layers, key=lambda layer: layer.n_edges)
    n_components = max(1, min(k, largest.n_nodes - 1))
    operator = _operator(largest, kind)
    columns = max_columns(operator, memory_limit)
    problem = Problem(operator, min(n_components, operator.n_nodes - 1), max_columns=columns)
    choice = choose(problem, memory_limit) if solver == "auto" else PlannedSolver(solver, "asked for")
    one_pass = graph.n_layers * _seconds_per_pass(operator, problem.n_components)
    if graph.is_resident:
        memory = resident_bytes(graph, n_components, choice.name) + solver_bytes(largest, choice.name)
    else:
        limit = math.inf if memory_limit is None else memory_limit
        memory = streamed_bytes(graph, n_components, solver, limit)
    return Estimate(choice, memory, one_pass)


def memory_line(graph: Graph | MultilayerGraph, k: int) -> str:
    """What K vectors need, in memory and, of a store, streamed from the disk."""
    here = f"memory   about {resident_bytes(graph, k) / 1e6:,.0f} MB"
    if graph.is_resident:
        return here
    least = streamed_bytes(graph, k, memory_limit=0) // 1_000_000 + 1
    return f"{here} loaded; on disk it can stay from --memory-limit {least}MB on"


def tell(graph: Graph | MultilayerGraph, plan: Estimate, outputs: dict[str, str | None]) -> int:
    """Print what would be done, to stdout; the exit code is good."""
    click.echo(f"dry run: nothing is computed or written\ngraph    {describe(graph)}")
    for line in plan.lines():
        click.echo(line)
    for what, path in outputs.items():
        if path is not None:
            click.echo(f"{what:8} {path}")
    return 0


def describe(graph: Graph | MultilayerGraph) -> str:
    """Sizes in words."""
    n_layers = graph.n_layers
    return f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges, {n_layers} layer{'s' * (n_layers > 1)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _operator(graph: Graph, kind: Kind) -> SparseOperator:
    if not graph.is_resident:
        return masked_laplacian(graph, kind, 0.0, graph.isolated)
    return laplacian(_without_isolated(graph), kind)


def _without_isolated(graph: Graph) -> Graph:
    if not len(graph.isolated) or not graph.n_edges:
        return graph
    kept = np.flatnonzero(graph.degrees)
    return Graph.from_matrix(graph.matrix[kept][:, kept], signed=graph.is_signed)


def _seconds_per_pass(operator: SparseOperator, k: int) -> float:
    engine = LocalEngine()
    n_columns = min(k, MAX_SAMPLE_COLUMNS) if operator.is_streamed else k
    block = np.ones((operator.n_nodes, n_columns), np.float32 if operator.is_streamed else np.float64)
    engine.apply(operator, block)  # compiled, and in the caches
    began = time.perf_counter()
    engine.apply(operator, block)
    return (time.perf_counter() - began) * k / n_columns


def print_plan(
    graph: Graph | MultilayerGraph, k: int | str, options: SolveOptions, **outputs: str | None
) -> int:
    """What ``--dry-run`` prints instead of solving."""
    n_components = k if isinstance(k, int) else min(FIRST_MAX_CLUSTERS, graph.n_nodes - 1)
    kind = cast(Kind, options.laplacian)
    return tell(graph, estimate(graph, n_components, kind, options.solver, options.memory_limit), outputs)
