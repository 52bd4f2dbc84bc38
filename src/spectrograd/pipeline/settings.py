"""Settings of a run as data: every option of the estimators and commands that decides the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from spectrograd.operators.laplacian import Kind
from spectrograd.solvers import solver_class
from spectrograd.solvers.settings import SolverSettings

MAX_STARTS = 10_000  # of k-means: more is a slip of the pen, and would never end


@dataclass(frozen=True, kw_only=True)
class Settings(SolverSettings):
    """Settings of a run as plain values, from which its identity is made.

    Engine, hooks, checkpoints and deadline are in :class:`~spectrograd.solvers.settings.RunContext`.

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
    """

    n_components: int | str = 8
    n_clusters: int | None = None
    laplacian: Kind = "random_walk"
    regularization: float | str | None = "auto"
    disconnected: str = "components"
    aggregation: str = "auto"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, object] = field(default_factory=dict)
    assign_labels: str = "kmeans"
    n_init: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        starts: Any = self.n_init  # whatever a user has put there
        whole = isinstance(starts, Integral) and not isinstance(starts, bool)
        if not whole or not 1 <= starts <= MAX_STARTS:
            raise ValueError(f"n_init={starts!r}: expected a whole number from 1 to {MAX_STARTS:,}")

    @property
    def has_goal(self) -> bool:
        """Whether an accuracy was asked for, which a result can miss."""
        return self.tol != "auto" or self.solver == "auto" or solver_class(self.solver).has_goal
