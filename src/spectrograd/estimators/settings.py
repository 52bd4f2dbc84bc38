"""The parameters of an estimator as settings of the pipeline."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_random_state

from spectrograd.engines import make_engine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS
from spectrograd.pipeline import RunContext, Settings
from spectrograd.pipeline.memory_estimate import check_limit
from spectrograd.solvers.base import Progress
from spectrograd.system import as_bytes

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral

# eigen_solver -> our solver and its parameters
EIGEN_SOLVERS: dict[str, tuple[str, Mapping[str, object]]] = {
    "arpack": ("eigen", {}),
    "lobpcg": ("lobpcg", {}),
    "amg": ("lobpcg", {"preconditioner": "amg"}),
}
ROUNDING = 1e-12  # ``eigen_tol=0`` asks for machine precision: the residual that double precision can reach


def solver_and_tolerance(model: Spectral) -> tuple[str, Mapping[str, object], float | str]:
    """``solver``, its parameters and ``tol``, whichever of the two vocabularies they were given in."""
    solver, params = _solver(model)
    if model.eigen_tol == "auto":
        return solver, params, model.tol
    if model.tol != "auto":
        raise ValueError(f"tol={model.tol!r} and eigen_tol={model.eigen_tol!r} mean the same: give one")
    if not isinstance(model.eigen_tol, int | float) or not model.eigen_tol >= 0:
        raise ValueError(f"eigen_tol={model.eigen_tol!r}: expected a number that is not negative, or 'auto'")
    if model.eigen_solver == "arpack":
        params = {"tol": model.eigen_tol} | dict(params)
    return solver, params, max(float(model.eigen_tol), ROUNDING)


def _solver(model: Spectral) -> tuple[str, Mapping[str, object]]:
    params = model.solver_params or {}
    if model.eigen_solver is None:
        return model.solver, params
    if model.eigen_solver not in EIGEN_SOLVERS:
        raise ValueError(
            f"eigen_solver={model.eigen_solver!r}: expected None, {', '.join(EIGEN_SOLVERS)}; "
            "other methods are chosen by solver"
        )
    if model.solver != "auto":
        raise ValueError(
            f"solver={model.solver!r} and eigen_solver={model.eigen_solver!r} mean the same: give one"
        )
    if model.eigen_solver == "amg":
        _check_pyamg()
    name, implied = EIGEN_SOLVERS[model.eigen_solver]
    return name, dict(implied) | dict(params)


def _check_pyamg() -> None:
    try:
        import pyamg  # noqa: F401
    except ImportError:
        raise ValueError(
            "The eigen_solver was set to 'amg', but pyamg is not available. pip install 'spectrograd[amg]'"
        ) from None


# --- Settings of the pipeline.

# Parameters that the pipeline takes under the same name, where the estimator has them.
SAME_NAMES = (
    "laplacian",
    "regularization",
    "disconnected",
    "max_iter",
    "time_budget",
    "batch_size",
    "aggregation",
    "alpha",
    "layer_weights",
    "assign_labels",
    "n_init",
)


def make_settings(model: Spectral, n_nodes: int) -> Settings:
    """The parameters as the pipeline takes them, checked against the size of the graph."""
    given = {name: getattr(model, name) for name in _parameter_names(type(model))}
    solver, solver_params, tol = solver_and_tolerance(model)
    n_components = model._n_columns(n_nodes)  # which refuses what is no number
    n_clusters = given.get("n_clusters", "auto")
    return Settings(
        **{name: given[name] for name in SAME_NAMES if name in given},
        n_components=n_components,
        n_clusters=None if isinstance(n_clusters, str) else int(n_clusters),
        aggregation_params=given.get("aggregation_params") or {},
        solver=solver,
        params=solver_params,
        tol=tol,
        seed=seed_of(model.random_state),
        memory_limit=as_bytes(model.memory_limit),
    )


@functools.cache
def _parameter_names(kind: type[Spectral]) -> tuple[str, ...]:
    """The parameters of an estimator; scikit-learn reads them off the signature, each time anew."""
    return tuple(kind._get_param_names())


def make_context(model: Spectral) -> RunContext:
    """Engine, progress hook and checkpoint folder of the fit."""
    return RunContext(
        engine=make_engine(model.engine, n_jobs=model.n_jobs),
        hooks=progress_hooks(model.verbose),
        keep_multivector=getattr(model, "_keeps_multivector", False),
        checkpoint=model.checkpoint,
        checkpoint_every=model.checkpoint_every,
    )


def check_memory(model: Spectral, graph: Graph | MultilayerGraph, settings: Settings) -> None:
    """Refuse a memory limit that the graph does not fit; stores were opened with it in mind."""
    k = FIRST_MAX_CLUSTERS if isinstance(settings.n_components, str) else settings.n_components
    check_limit(graph, k, model.memory_limit, model.solver)


def check_components(k: object, n_available: int, name: str) -> None:
    """Refuse a number of columns or clusters that the graph cannot have."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise ValueError(f"{name}={k!r}: expected a whole number of at least 1")
    if k >= n_available:
        raise ValueError(f"{name}={k} is too many for this graph: it must be below {n_available}")


def seed_of(random_state: object) -> int | None:
    """A numpy Generator seed from scikit-learn's ``random_state``."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def progress_hooks(verbose: int) -> Sequence[Callable[[Progress], None]]:
    """A hook that logs progress, where ``verbose`` asks for it; the logging of the process stays as it is."""
    if not verbose:
        return ()
    logger = logging.getLogger("spectrograd")
    if not logger.hasHandlers():  # nobody has asked for log records: progress goes to standard error
        logger = logging.Logger("spectrograd", logging.INFO)
        logger.addHandler(logging.StreamHandler())

    def log(progress: Progress) -> None:
        logger.info(
            "iteration %d  objective %.6g  residual %.2g  %.2f s",
            progress.iteration,
            progress.objective,
            progress.residual,
            progress.seconds,
        )

    return (log,)
