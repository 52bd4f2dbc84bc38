"""``joint``: every layer's embedding and the merged one in one run, on one shared objective.

The paper's future work. With U the merged basis and U^s those of the layers, minimise

    sum_s c_s [ Tr(U' L^s U) + Tr(U^s' L^s U^s) - alpha Tr(U U' U^s U^s') ]

over all of them at once. For fixed U^s the merged problem is Eq. 22; for fixed U the last term draws
each layer towards the consensus. Two ways: ``steps="sgd"``, mini-batches of edges throughout, which
reads the edges half as often; ``steps="sweeps"``, the default, which meets a certificate and does not mind
small graphs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, mean, projection
from spectrograd.aggregation.joint_epochs import JointEpochs
from spectrograd.aggregation.joint_sweeps import JointSweeps
from spectrograd.operators.balanced import of_common_size
from spectrograd.solvers.loop import Solution, Stopping, solve
from spectrograd.solvers.protocol import Problem
from spectrograd.solvers.settings import SolverSettings

Array = NDArray[Any]
NEEDS_EMBEDDINGS = True
OPTIONS = ("steps", "epochs", "coupling", "degree", "merge_degree", "guard", "tighter")
LOOSER = 10
aggregate = projection.aggregate


def run(
    layers: Layers,
    n_components: int,
    settings: SolverSettings,
    *,
    alpha: float | str = "auto",
    steps: str = "sweeps",
    **options: Any,
) -> tuple[Solution, Array, tuple[Array, ...]]:
    """The joint run: its story, the merged basis and the layers' own.

    Sweeps stop when the merged residual is below ten times the tolerance asked of an exact solver and those
    of the layers are ``tighter`` times smaller: the clusters do not change any more (docs/multilayer.md).
    """
    alphas = projection.resolve_alpha(alpha, layers)
    operators, divisor = of_common_size(layers.operators)
    layers, alphas = replace(layers, operators=operators), alphas / divisor
    frame = mean.aggregate(layers)
    limit = LOOSER * settings.tolerance * (frame.upper - frame.lower)
    solver = _solver(steps, layers, alphas, limit, options)
    solution = solve(
        Problem(frame, n_components, settings.engine),
        solver,
        stopping=Stopping(settings.max_iter, limit, settings.started().deadline),
        on_progress=settings.hooks,
        seed=settings.seed,
        time_budget=settings.time_budget,
        checkpoint=settings.next_checkpoint(),
    )
    merged, *own = np.split(solution.Q, len(layers.operators) + 1, axis=1)
    return solution, merged, tuple(own)


def _solver(
    steps: str, layers: Layers, alphas: Array, limit: float, options: dict[str, Any]
) -> JointEpochs | JointSweeps:
    """The way asked for, with its own options and no others."""
    own = {"sgd": ("epochs", "coupling"), "sweeps": tuple(set(OPTIONS) - {"steps", "epochs"})}
    if steps not in own:
        raise ValueError(f"steps={steps!r}: expected 'sweeps' or 'sgd'")
    foreign = sorted(set(options) - set(own[steps]))
    if foreign:
        raise ValueError(f"aggregation 'joint' takes {foreign[0]!r} only without steps={steps!r}")
    if steps == "sweeps":
        return JointSweeps(layers, alphas, settle=limit, **options)
    if any(operator.is_streamed for operator in layers.operators):
        raise ValueError("steps='sgd' of 'joint' needs the layers in memory: choose steps='sweeps'")
    return JointEpochs(layers, alphas, **options)
