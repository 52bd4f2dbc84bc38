"""Several solvers on the same graph, each under the same budget: one row each, whatever happens."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spectrograd.engines import Engine
from spectrograd.engines.base import MultiVector
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.labels import assign
from spectrograd.metrics import SCORE_TITLES, largest_principal_angle, score
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.run import Prepared, label, prepare, solve_prepared
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.signed import for_signed
from spectrograd.solvers import REGISTRY, Progress, make_solver
from spectrograd.solvers.loop import INTERRUPTED
from spectrograd.solvers.settings import RunContext
from spectrograd.system import OutOfTimeError, defer_interrupts, one_thread, peak_memory
from spectrograd.typing import Array, JsonObject


@dataclass(eq=False)
class ScoreRecorder:
    """Scores every measurement of a run, at ever longer intervals, where ``classes`` are known.

    ``classes`` are those of the rows that are solved, in their order.
    """

    classes: Array | None
    engine: Engine
    seed: int | None
    n_clusters: int | None = None
    scores: list[float | None] = field(default_factory=list)

    def observe(self, basis: MultiVector) -> None:
        """Score a rough basis (N x K) after 1, 2, 4, 8 ... measurements."""
        done = len(self.scores)
        if self.classes is None or done & (done - 1):
            self.scores.append(None)
            return
        vectors = self.engine.to_numpy(basis)
        with one_thread():  # small products: waking threads costs more than they save
            # rows of K - 1 vectors, as a signed graph has, are no input of cluster_qr
            n_clusters = self.n_clusters or vectors.shape[1]
            method = "cluster_qr" if vectors.shape[1] == n_clusters else "kmeans"
            found = assign(vectors, n_clusters, method=method, unit_rows=True, random_state=self.seed)
        self.scores.append(score(self.classes, found.labels)["nmi"])

    def history(self, measured: Sequence[Progress]) -> list[JsonObject]:
        """The measurements as plain values."""
        kept = ("seconds", "iteration", "matvecs", "objective", "residual")
        rows: list[JsonObject] = [{name: getattr(item, name) for name in kept} for item in measured]
        for number, row in enumerate(rows):
            row["nmi"] = self.scores[number] if number < len(self.scores) else None
        return rows


Row = JsonObject

AUTO = "auto"
# Beside every solver with its defaults: settings that are methods of their own.
VARIANTS = ("stochastic-fb:setting=columns",)


@dataclass(eq=False)
class Trial:
    """A row in the making, with the result that its angle is measured by."""

    row: Row
    result: Result | None = None


def compare(
    graph: Graph | MultilayerGraph,
    settings: Settings,
    names: Sequence[str] | None = None,
    context: RunContext | None = None,
    *,
    classes: Array | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> tuple[list[Row], Prepared]:
    """Run solvers one after the other on the same graph; each does what ``cluster`` would do with it.

    A solver that fails or runs out of time has its row with the reason and the others go on; Ctrl-C ends
    the comparison and keeps the rows so far, the last one marked ``"interrupted"``. Kernels are compiled
    and libraries loaded before time and memory are measured. Layers are merged once, before, with the solver
    of the settings.

    Parameters
    ----------
    graph, settings
        As for :func:`~spectrograd.pipeline.cluster`; ``settings.time_budget`` is for each solver, without
        the time spent measuring.
    context
        Where the solvers run; on this machine when not given.
    names
        Solvers, with parameters where wanted: ``"auto"``, ``"power"``, ``"stochastic-fb:setting=columns"``.
        All of them when not given.
    classes
        Known classes (-1 unknown): every clustering is scored.
    on_row
        Called with every row when it is done; angles are added at the end.

    Returns
    -------
    rows, prepared
        A row has ``method, seconds, iterations, passes, matvecs, objective, angle, certificate, max_residual,
        purity, nmi, ri, ari, peak_memory_bytes, converged, stopped, error, history``. ``passes`` are reads of
        all edges, ``matvecs`` the columns multiplied in them. ``angle`` is the largest one to the best
        converged result, in radians. ``history`` holds ``seconds, iteration, matvecs, objective, residual,
        nmi``. ``peak_memory_bytes`` is what the solver added to the process.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> settings = Settings(n_components=3, seed=0)
    >>> rows, _ = compare(data.graph, settings, ["auto", "power"], classes=data.labels)
    >>> [(row["method"], row["converged"], row["angle"] < 1e-2) for row in rows]
    [('auto', True, True), ('power', True, True)]
    """
    chosen = [(name, *parse_spec(name)) for name in (default_names() if names is None else names)]
    if not chosen:
        raise ValueError("no solver to compare: name at least one")
    context = context or RunContext()
    if settings.n_clusters is None and isinstance(settings.n_components, int):
        settings = replace(settings, n_clusters=settings.n_components)
    settings = for_signed(graph, settings)
    prepared = prepare(graph, replace(settings, time_budget=None), context)
    trials: list[Trial] = []
    for name, solver, params in chosen:
        with defer_interrupts() as interruption:
            one = replace(settings, solver=solver, params=params)
            trials.append(_run(prepared, name, one, context, classes))
        if interruption.requested:
            trials[-1].row["error"] = INTERRUPTED
        if on_row is not None:
            on_row(trials[-1].row)
        if trials[-1].row["error"] == INTERRUPTED:
            break
    _measure_angles(trials)
    return [trial.row for trial in trials], prepared


def default_names() -> tuple[str, ...]:
    """The default and every solver there is, the exact one first."""
    return (AUTO, "eigen", *(name for name in REGISTRY if name != "eigen"), *VARIANTS)


def parse_spec(spec: str) -> tuple[str, JsonObject]:
    """``name[:parameter=value]...`` as a solver's name and its parameters."""
    name, *assignments = spec.strip().split(":")
    params: JsonObject = {}
    for assignment in assignments:
        key, mark, text = assignment.partition("=")
        if not mark:
            raise ValueError(f"{spec!r}: expected name or name:parameter=value, not {assignment!r}")
        try:
            params[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            params[key] = text
    if name != AUTO:
        make_solver(name, **params)  # says what is wrong with it
    elif params:
        raise ValueError(f"{spec!r}: 'auto' chooses its own parameters")
    return name, params


def _run(
    prepared: Prepared, name: str, settings: Settings, context: RunContext, classes: Array | None
) -> Trial:
    """Warm up, solve, certify, cluster; a failure becomes a row that says so."""
    trial = Trial(_empty_row(name))
    known = None if classes is None else np.asarray(classes)[prepared.kept]
    recorder = ScoreRecorder(known, context.engine, settings.seed, settings.n_clusters)
    rehearsal = replace(recorder, scores=[])
    try:
        # 1. kernels are compiled, and libraries loaded, before time and memory are measured
        _warm_up(prepared, settings, replace(context, hooks=(), observer=rehearsal.observe))
        # 2. solve and certify
        observed = replace(context, observer=recorder.observe, aborts_direct=True)
        with peak_memory() as peak:
            result = solve_prepared(prepared, settings, observed)
        # 3. cluster and score
        _judge(trial, label(result, settings, context), recorder, classes)
        trial.row["error"] = _reason(result, settings)
        trial.row["peak_memory_bytes"] = peak.added
    except KeyboardInterrupt:
        trial.row["error"] = INTERRUPTED
    except OutOfTimeError:
        trial.row["error"] = f"out of time after {settings.time_budget:g} s, without a result"
    except Exception as error:  # whatever it is, the others go on
        trial.row["error"] = f"{type(error).__name__}: {error}"
    return trial


def _empty_row(name: str) -> Row:
    keys = ("seconds", "iterations", "passes", "matvecs", "objective", "angle", "certificate", "max_residual")
    rest = ("peak_memory_bytes", "converged", "stopped", "error")
    return {"method": name} | dict.fromkeys((*keys, *SCORE_TITLES, *rest)) | {"history": []}


def _judge(trial: Trial, result: Result, recorder: ScoreRecorder, classes: Array | None) -> None:
    trial.result = result
    certificate = result.certificate
    scores = {} if classes is None else result.scores(classes)
    history = recorder.history(result.history)
    if history:
        history[-1]["nmi"] = scores.get("nmi")
    trial.row |= {
        "seconds": result.solver_seconds,
        "iterations": result.history[-1].iteration,
        "passes": result.passes,
        "matvecs": result.matvecs,
        "objective": float(result.eigenvalues.sum()),
        "certificate": certificate.sentence,
        "max_residual": certificate.max_residual,
        **scores,
        "converged": certificate.converged,
        "stopped": result.stop_reason,
        "history": history,
    }


def _reason(result: Result, settings: Settings) -> str | None:
    if result.stop_reason == "time_budget":
        return f"out of time after {settings.time_budget:g} s; these are its best figures so far"
    if result.stop_reason == "diverged":
        return "diverged; these are its best figures so far"
    return INTERRUPTED if result.interrupted else None


def _measure_angles(trials: Sequence[Trial]) -> None:
    """Against the converged result of least objective; nobody has an angle where nobody converged."""
    good = [trial.result for trial in trials if trial.result is not None and trial.row["converged"]]
    if not good:
        return
    best = min(good, key=lambda result: float(result.eigenvalues.sum()))
    metric = _on_all_nodes(best)
    for trial in trials:
        if trial.result is not None:
            trial.row["angle"] = largest_principal_angle(trial.result.vectors, best.vectors, metric)


def _on_all_nodes(result: Result) -> Array | None:
    """The metric of the operator for the rows of all nodes; those excluded are zero anyway."""
    if result.operator.metric is None:
        return None
    metric = np.ones(len(result.vectors))
    metric[result.rows] = result.operator.metric
    return metric


def _warm_up(prepared: Prepared, settings: Settings, context: RunContext) -> None:
    """Compile what the solver will need: one iteration, or all of it where that is what it takes."""
    if settings.solver != AUTO and make_solver(settings.solver).direct:
        return
    short = None if settings.solver == AUTO else 1
    quick = replace(settings, max_iter=short, seed=0, regularization=None)
    prepared.solve(quick, context)


def failures(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """One line per row that has a reason."""
    return [f"{row['method']}: {row['error']}" for row in rows if row["error"] is not None]
