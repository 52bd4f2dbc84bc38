"""Solvers: one file per method, one registry line per method, one loop for all (docs/add_a_solver.md).

``make_solver`` finds a solver by its name. ``solve`` runs it: :func:`choose_variant` picks the class that is
written for the problem's engine (``VARIANTS``), and :func:`~spectrograd.solvers.loop.run_loop` iterates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar, Unpack

from spectrograd.solvers.base import Problem, Progress, Solver, State, StateT
from spectrograd.solvers.loop import Hook, LoopOptions, Solution, Stopping, run_loop

__all__ = [
    "REGISTRY",
    "VARIANTS",
    "Hook",
    "Problem",
    "Progress",
    "Solution",
    "Solver",
    "State",
    "Stopping",
    "choose_variant",
    "make_solver",
    "solve",
    "solver_class",
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
    "compressive": "compressive:Compressive",
    "power": "power:Power",
    "coordinate-power": "power:CoordinatePower",
}

SHORT_OF_MEMORY = "where memory is short"
EXPENSIVE_PASSES = "where passes are expensive"
ON_TORCH = "on engine 'torch'"
CONDITIONS: Mapping[str, Callable[[Problem], bool]] = {
    SHORT_OF_MEMORY: lambda problem: problem.is_short_of_memory,
    EXPENSIVE_PASSES: lambda problem: problem.passes_are_expensive,
    ON_TORCH: lambda problem: "tensors" in problem.capabilities,
}
# name -> {condition: "module:class"}: another class of the same method, run instead of the registered one
# where the condition holds; the first one counts. Its hyperparameters have the same names.
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "chebyshev": {
        SHORT_OF_MEMORY: "chebyshev_by_parts:ChebyshevByParts",
        EXPENSIVE_PASSES: "chebyshev_few_passes:FewPassChebyshev",
    },
    "lanczos": {EXPENSIVE_PASSES: "lanczos_few_passes:FewPassLanczos"},
    "sgd": {ON_TORCH: "torch_sgd:TorchSGD"},
    "sgd-paper": {ON_TORCH: "torch_sgd:TorchPaperSGD"},
}


ValueT = TypeVar("ValueT")


def solver_class(name: str) -> type[Solver[State]]:
    """The class registered under a name, which knows the facts about the solver."""
    if name not in REGISTRY:
        raise ValueError(f"solver={name!r}: expected one of auto, {', '.join(REGISTRY)}")
    return _load(REGISTRY[name])  # type: ignore[no-any-return]


def make_solver(name: str, **params: object) -> Solver[State]:
    """Make the solver of that name with its hyperparameters; the error of an unknown one lists all names."""
    chosen: Any = solver_class(name)
    params = rename_parameters(name, params)
    names = {f.name for f in fields(chosen)}
    unknown = sorted(set(params) - names)
    if unknown:
        raise ValueError(
            f"solver {name!r} has no parameter {unknown[0]!r}; it has {', '.join(sorted(names))}"
        )
    return chosen(**params)  # type: ignore[no-any-return]


def rename_parameters(name: str, params: Mapping[str, ValueT]) -> dict[str, ValueT]:
    """Replace old names of a solver's parameters (``Solver.renamed``) by those of today, with a warning."""
    renamed: Mapping[str, str] = _load(REGISTRY[name]).renamed if name in REGISTRY else {}
    for old in sorted(set(params) & set(renamed)):
        new = renamed[old]
        if new in params:
            raise ValueError(f"solver {name!r}: {old!r} is the old name of {new!r}; give only {new!r}")
        warnings.warn(
            f"solver {name!r}: the parameter {old!r} is now {new!r}; the old name goes with the next release",
            FutureWarning,
            stacklevel=3,
        )
    return {renamed.get(key, key): value for key, value in params.items()}


def choose_variant(problem: Problem, solver: Solver[StateT]) -> Solver[StateT]:
    """Choose the class that runs: the solver itself, or its variant for the problem, equally parametrised.

    Solvers of other classes than the registered ones (a user's own, a variant) are returned as they are.
    """
    name = getattr(solver, "name", "")
    if name not in VARIANTS or type(solver) is not _load(REGISTRY[name]):
        return solver
    for condition, path in VARIANTS[name].items():
        if CONDITIONS[condition](problem):
            return _with_parameters_of(solver, _load(path), condition)
    return solver


def solve(problem: Problem, solver: Solver[StateT], **options: Unpack[LoopOptions]) -> Solution:
    """Run a solver, or its variant for the problem, until it is done, good enough or out of time.

    Parameters
    ----------
    problem
        The operator, the number of eigenvectors and the engine.
    solver
        As :func:`make_solver` makes it.
    **options
        As in :func:`~spectrograd.solvers.loop.run_loop`.
    """
    return run_loop(problem, choose_variant(problem, solver), **options)


def _load(path: str) -> Any:
    """Import the class at ``"module:class"``."""
    module, class_name = path.split(":")
    return getattr(import_module(f"{__name__}.{module}"), class_name)


def _with_parameters_of(solver: Solver[StateT], variant: Any, condition: str) -> Solver[StateT]:
    """Make the variant with the solver's hyperparameters; those it does not have must be at their default."""
    names = {f.name for f in fields(variant)}
    params: dict[str, object] = {}
    for field in fields(solver):  # type: ignore[arg-type]
        value = getattr(solver, field.name)
        if field.name in names:
            params[field.name] = value
        elif value != field.default:
            raise ValueError(
                f"solver {solver.name!r} {condition} has no parameter {field.name!r}; "
                f"it has {', '.join(sorted(names))}"
            )
    return variant(**params)  # type: ignore[no-any-return]
