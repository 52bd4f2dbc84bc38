"""Solvers: one file each, one registry line each, one loop for all (see docs/add_a_solver.md)."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from spectrograd.solvers.base import Problem, Progress, Solver, State
from spectrograd.solvers.loop import Hook, Solution, Stopping, solve

__all__ = [
    "REGISTRY",
    "Hook",
    "Problem",
    "Progress",
    "Solution",
    "Solver",
    "State",
    "Stopping",
    "make_solver",
    "solve",
]

# name -> "module:class"; modules are imported when asked for, since some compile kernels.
REGISTRY = {
    "sgd": "sgd:UnbiasedSGD",
    "sgd-paper": "sgd_paper:PaperSGD",
    "gradient-descent": "gradient_descent:GradientDescent",
    "forward-backward": "gradient_descent:ForwardBackward",
    "stochastic-fb": "stochastic_fb:StochasticForwardBackward",
    "multilevel": "multilevel:Multilevel",
    "chebyshev": "chebyshev:Chebyshev",
    "lanczos": "lanczos:Lanczos",
    "shift-invert": "shift_invert:ShiftInvert",
    "lobpcg": "lobpcg:LOBPCG",
    "eigen": "eigen:Eigen",
    "nystrom": "nystrom:Nystrom",
    "variational-nystrom": "nystrom:VariationalNystrom",
    "power": "power:Power",
    "coordinate-power": "power:CoordinatePower",
}


def make_solver(name: str, **params: Any) -> Solver[Any]:
    """The solver of that name with its hyperparameters, or an error that lists what there is."""
    if name not in REGISTRY:
        raise ValueError(f"solver={name!r}: expected one of auto, {', '.join(REGISTRY)}")
    module, class_name = REGISTRY[name].split(":")
    solver_class = getattr(import_module(f"{__name__}.{module}"), class_name)
    known = {f.name for f in fields(solver_class)}
    unknown = sorted(set(params) - known)
    if unknown:
        raise ValueError(
            f"solver {name!r} has no parameter {unknown[0]!r}; it has {', '.join(sorted(known))}"
        )
    return solver_class(**params)  # type: ignore[no-any-return]
