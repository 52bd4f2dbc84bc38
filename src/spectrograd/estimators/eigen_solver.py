"""scikit-learn's names for the solver and its tolerance, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# eigen_solver -> our solver and its parameters
EIGEN_SOLVERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "arpack": ("eigen", {}),
    "lobpcg": ("lobpcg", {}),
    "amg": ("lobpcg", {"preconditioner": "amg"}),
}
ROUNDING = 1e-12  # ``eigen_tol=0`` asks for machine precision: the residual that double precision can reach


def solver_and_tolerance(model: Any) -> tuple[str, Mapping[str, Any], float | str]:
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


def _solver(model: Any) -> tuple[str, Mapping[str, Any]]:
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
