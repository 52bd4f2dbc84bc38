"""How to get from a graph to its clusters: every option of the estimators and commands in one value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from spectrograd.operators.laplacian import Kind
from spectrograd.solvers.loop import SolverSettings

CHECKPOINT_EVERY = 300.0  # seconds: less than anybody minds to lose, and rare enough to cost nothing
# Solvers that run their iterations and stop: without a tolerance nobody asked them for an accuracy.
WITHOUT_GOAL = frozenset({"sgd", "sgd-paper", "stochastic-fb"})
MAX_STARTS = 10_000  # of k-means: more is a slip of the pen, and would never end


def ignore_stage(stage: str) -> None:
    """Nobody wants to know which stage begins."""


@dataclass(frozen=True, kw_only=True)
class Settings(SolverSettings):
    """What to compute and how; the solver's own settings are part of it.

    Attributes
    ----------
    n_components
        Eigenvectors, the trivial one included. "auto": as many as the eigengap tells clusters.
    n_clusters
        None: as many as there are eigenvectors.
    laplacian, regularization, disconnected
        Which eigenproblem, tau in mean degrees, and what to do with a graph in pieces.
    aggregation, alpha, layer_weights, aggregation_params
        How several layers become one operator.
    assign_labels, n_init
        How rows become clusters.
    keep_multivector
        Leave the embedding where the engine has it as well: ``Result.multivector``.
    checkpoint, checkpoint_every
        A folder where the run is kept, so that the same call goes on where it was stopped, and how many
        seconds lie between two checkpoints, at least.
    on_stage
        Called with the name of each stage when it begins: "layers", "merge", "solve", "assign".
    """

    n_components: int | str = 8
    n_clusters: int | None = None
    laplacian: Kind = "random_walk"
    regularization: float | str | None = "auto"
    disconnected: str = "components"
    aggregation: str = "projection"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, Any] = field(default_factory=dict)
    assign_labels: str = "kmeans"
    n_init: int = 10
    keep_multivector: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = CHECKPOINT_EVERY
    on_stage: Callable[[str], None] = ignore_stage

    def __post_init__(self) -> None:
        super().__post_init__()
        starts: Any = self.n_init  # whatever a user has put there
        whole = isinstance(starts, Integral) and not isinstance(starts, bool)
        if not whole or not 1 <= starts <= MAX_STARTS:
            raise ValueError(f"n_init={starts!r}: expected a whole number from 1 to {MAX_STARTS:,}")
        every: Any = self.checkpoint_every
        if not (isinstance(every, int | float) and 0 <= every < math.inf):
            raise ValueError(f"checkpoint_every={every!r}: expected seconds, a finite number from 0 on")

    @property
    def has_goal(self) -> bool:
        """Whether an accuracy was asked for, which a result can miss."""
        return self.solver not in WITHOUT_GOAL or self.tol != "auto"
