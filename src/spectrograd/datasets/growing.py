"""A graph that grows by the day, and in which two groups come apart: for models that follow their graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.datasets.synthetic import make_block_model
from spectrograd.graph import Graph

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Day:
    """Edges that come (with the people who sign up) and go: row numbers, of shape (n, 2)."""

    added: Array
    removed: Array


@dataclass(frozen=True, eq=False)
class GrowingGraph:
    """The graph before the first day, what each day changes, and the group of everybody (n_nodes,)."""

    first: Graph
    days: tuple[Day, ...]
    labels: Array


def make_growing_graph(
    n_start: int = 800,
    n_days: int = 30,
    *,
    per_day: int = 12,
    n_groups: int = 4,
    apart_from: int = 15,
    random_state: int | None = None,
) -> GrowingGraph:
    """People who sign up with their friends so far, and two groups that begin as one.

    Parameters
    ----------
    n_start, n_days, per_day : int
        People at the start, days, and how many come on each.
    n_groups : int
        Planted groups; ties hold the first two together.
    apart_from : int
        The day (from 1) on which these ties begin to go, evenly until the last one.
    random_state : int, optional
        For reproducible graphs.
    """
    rng = np.random.default_rng(random_state)
    n_nodes = n_start + per_day * n_days
    model = make_block_model(n_nodes, n_groups, mean_degree=20, mixing=0.15, random_state=random_state)
    people, labels = rng.permutation(n_nodes), np.empty(n_nodes, dtype=np.int64)
    labels[people] = model.labels
    entries = model.graph.matrix.tocoo()
    once = entries.row < entries.col
    friends = people[np.column_stack([entries.row[once], entries.col[once]])]
    ties = _ties(labels[:n_start], friends, rng)
    day_of_person = np.maximum(0, (np.arange(n_nodes) - n_start) // per_day + 1)
    day_of_edge = day_of_person[friends].max(axis=1)
    shares = iter(np.array_split(ties, max(1, n_days - apart_from + 1)))
    days = tuple(
        Day(friends[day_of_edge == day], next(shares) if day >= apart_from else ties[:0])
        for day in range(1, n_days + 1)
    )
    start = np.vstack([friends[day_of_edge == 0], ties])
    return GrowingGraph(Graph.from_edges(start[:, 0], start[:, 1], n_nodes=n_start), days, labels)


def _ties(labels: Array, friends: Array, rng: np.random.Generator) -> Array:
    """Edges between the first two groups that are not there, about eight per person, in random order."""
    sides = [np.flatnonzero(labels == group) for group in (0, 1)]
    drawn = np.column_stack([rng.choice(side, 8 * len(sides[0])) for side in sides])
    keys = len(labels) * drawn.min(axis=1) + drawn.max(axis=1)
    inside = friends[(friends < len(labels)).all(axis=1)]
    known = len(labels) * inside.min(axis=1) + inside.max(axis=1)
    fresh = np.setdiff1d(keys, known)
    return rng.permutation(np.column_stack(np.divmod(fresh, len(labels))))
