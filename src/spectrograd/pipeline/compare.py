"""Several solvers on the same operator, each under the same budget: one row each, whatever happens."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.memory import peak_memory
from spectrograd.metrics import largest_principal_angle
from spectrograd.operators.laplacian import Operator
from spectrograd.pipeline.solving import Settings, certified
from spectrograd.pipeline.watched import OutOfTimeError, Setting, Watched
from spectrograd.solvers import (
    REGISTRY,
    Solution,
    Solver,
    Stopping,
    make_solver,
    solve,
)

Array = NDArray[Any]
Row = dict[str, Any]

SCORES = ("purity", "nmi", "ri", "ari")
INTERRUPTED = "interrupted"
# Beside every solver with its defaults: settings that are methods of their own.
VARIANTS = ("stochastic-fb:setting=columns",)


@dataclass(eq=False)
class Trial:
    """A row in the making, with the basis that its angle is measured by."""

    row: Row
    vectors: Array | None = None


def compare(
    operator: Operator,
    n_components: int,
    names: Sequence[str] | None = None,
    *,
    time_budget: float | None = None,
    labels: Array | None = None,
    seed: int | None = None,
    on_row: Callable[[Row], None] | None = None,
    tol: float | str = "auto",
    n_jobs: int | None = None,
) -> list[Row]:
    """Run solvers one after the other on the same problem.

    A solver that fails or runs out of time has its row with the reason and the others go on; Ctrl-C ends
    the comparison and keeps the rows so far, the last one marked ``"interrupted"``. Kernels are compiled
    before the clock starts.

    Parameters
    ----------
    operator, n_components
        The problem.
    names
        Solvers, with parameters where wanted: ``"power"``, ``"stochastic-fb:setting=columns"``. All of
        them when not given.
    time_budget
        Seconds for each solver, without the time spent measuring.
    labels
        Known classes (-1 unknown): every embedding is clustered and scored.
    seed, tol, n_jobs
        As for a single run.
    on_row
        Called with every row when it is done; angles are added at the end.

    Returns
    -------
    list of dict
        ``method, seconds, iterations, passes, objective, angle, certificate, max_residual, purity, nmi,
        ri, ari, peak_memory_bytes, converged, stopped, error, history``. ``angle`` is the largest one to
        the best converged result, in radians. ``history`` holds ``seconds, objective, residual, nmi``.
        ``peak_memory_bytes`` is what the solver added to the process.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> from spectrograd.operators.laplacian import laplacian
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> rows = compare(laplacian(data.graph), 3, ["eigen", "power"], labels=data.labels, seed=0)
    >>> [(row["method"], row["converged"], row["angle"] < 1e-2) for row in rows]
    [('eigen', True, True), ('power', True, True)]
    """
    chosen = [(name, parse_spec(name)) for name in (default_names() if names is None else names)]
    if not chosen:
        raise ValueError("no solver to compare: name at least one")
    setting = Setting(operator, n_components, time_budget, labels, seed, tol, n_jobs)
    setting.problem()  # a wrong number of components is no solver's fault
    trials: list[Trial] = []
    for name, solver in chosen:
        trials.append(_run(setting, name, solver))
        if on_row is not None:
            on_row(trials[-1].row)
        if trials[-1].row["error"] == INTERRUPTED:
            break
    _measure_angles(trials, operator)
    return [trial.row for trial in trials]


def default_names() -> tuple[str, ...]:
    """Every solver there is, the exact one first."""
    return ("eigen", *(name for name in REGISTRY if name != "eigen"), *VARIANTS)


def parse_spec(spec: str) -> Solver:
    """``name[:parameter=value]...`` as a solver."""
    name, *assignments = spec.strip().split(":")
    params: dict[str, Any] = {}
    for assignment in assignments:
        key, mark, text = assignment.partition("=")
        if not mark:
            raise ValueError(f"{spec!r}: expected name or name:parameter=value, not {assignment!r}")
        try:
            params[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            params[key] = text
    return make_solver(name, **params)


def _run(setting: Setting, name: str, solver: Solver) -> Trial:
    """Warm up, solve, certify, cluster; a failure becomes a row that says so."""
    trial = Trial(_empty_row(name))
    watched = Watched(solver, setting)
    try:
        _warm_up(setting, solver)
        with peak_memory() as peak:
            solution = solve(
                setting.problem(),
                watched,
                stopping=Stopping(
                    tol=Settings(tol=setting.tol).tolerance
                    * (setting.operator.upper - setting.operator.lower)
                ),
                seed=setting.seed,
                time_budget=setting.time_budget,
            )
        _judge(setting, trial, solution, watched)
        trial.row["peak_memory_bytes"] = peak.added
    except KeyboardInterrupt:
        trial.row["error"] = INTERRUPTED
    except OutOfTimeError:
        trial.row["error"] = f"out of time after {setting.time_budget:g} s, without a result"
    except Exception as error:  # whatever it is, the others go on
        trial.row["error"] = f"{type(error).__name__}: {error}"
    return trial


def _empty_row(name: str) -> Row:
    keys = ("seconds", "iterations", "passes", "objective", "angle", "certificate", "max_residual")
    rest = ("peak_memory_bytes", "converged", "stopped", "error")
    return {"method": name} | dict.fromkeys((*keys, *SCORES, *rest)) | {"history": []}


def _judge(setting: Setting, trial: Trial, solution: Solution, watched: Watched) -> None:
    operator, last = setting.operator, solution.last
    result = certified(
        operator, solution, Settings(tol=setting.tol, seed=setting.seed, engine=setting.engine)
    )
    certificate = result.certificate
    trial.vectors = result.embedding.vectors
    scores = setting.clustered(trial.vectors)
    history = watched.history(solution.history)
    if history:
        history[-1]["nmi"] = scores.get("nmi")
    trial.row |= {
        "seconds": solution.seconds,
        "iterations": last.iteration,
        "passes": last.passes + last.edges_seen / max(1, operator.graph.n_edges),
        "objective": float(result.embedding.eigenvalues.sum()),
        "certificate": certificate.sentence,
        "max_residual": certificate.max_residual,
        **scores,
        "converged": certificate.converged,
        "stopped": solution.stop_reason,
        "error": _reason(solution, setting),
        "history": history,
    }


def _reason(solution: Solution, setting: Setting) -> str | None:
    if solution.stop_reason == "time_budget":
        return f"out of time after {setting.time_budget:g} s; these are its best figures so far"
    if solution.stop_reason == "diverged":
        return "diverged; these are its best figures so far"
    return INTERRUPTED if solution.stop_reason == "interrupted" else None


def _measure_angles(trials: Sequence[Trial], operator: Operator) -> None:
    """Against the converged result of least objective; nobody has an angle where nobody converged."""
    good = [trial for trial in trials if trial.row["converged"]]
    if not good:
        return
    reference = min(good, key=lambda trial: float(trial.row["objective"])).vectors
    assert reference is not None
    for trial in trials:
        if trial.vectors is not None:
            trial.row["angle"] = largest_principal_angle(trial.vectors, reference, operator.metric)


def _warm_up(setting: Setting, solver: Solver) -> None:
    """Compile what the solver will need: one iteration, or for a direct method some products."""
    problem = setting.problem()
    for columns in (1, setting.n_components):
        problem.apply(np.ones((problem.n_nodes, columns)))
    problem.orthonormalize(np.random.default_rng(0).standard_normal((problem.n_nodes, setting.n_components)))
    if not solver.direct:
        solve(problem, solver, stopping=Stopping(max_iter=1), seed=0)


def failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per row that has a reason."""
    return [f"{row['method']}: {row['error']}" for row in rows if row["error"] is not None]
