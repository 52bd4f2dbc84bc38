"""The straight line as a command walks it: read, merge, solve, write, and the verdict at the end."""

from __future__ import annotations

import ast
import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from spectrograd.aggregation import make_aggregation
from spectrograd.cli.meter import Meter
from spectrograd.cli.options import LineOptions
from spectrograd.cli.session import Session
from spectrograd.cli.summary import Input
from spectrograd.cli.voice import say
from spectrograd.engines import make_engine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.pieces import Connectivity
from spectrograd.io import read_graph
from spectrograd.labels.eigengap import MOST, Eigengap
from spectrograd.operators.laplacian import SMALL, Kind, Operator
from spectrograd.operators.regularized import Regularization
from spectrograd.pipeline.layer_preparation import Treated, treat
from spectrograd.pipeline.multilayer import Merged, merge
from spectrograd.pipeline.single import Treatment, embed_graph, with_all_nodes
from spectrograd.pipeline.solving import Embedded, Settings
from spectrograd.solvers import make_solver
from spectrograd.store import is_store
from spectrograd.store.manifest import load_meta

STDIN = STDOUT = "-"
# Solvers that run their iterations and stop: without --tol nobody asked them for an accuracy.
WITHOUT_GOAL = frozenset({"sgd", "sgd-paper", "stochastic-fb"})
GOOD, FAILED, INTERRUPTED = 0, 1, 130


@dataclass(frozen=True, eq=False)
class Solved:
    """An embedding, its operator, what was decided before and, for several layers, how they were merged."""

    result: Embedded
    operator: Operator
    regularization: Regularization
    connectivity: Connectivity
    eigengap: Eigengap | None = None
    softness: float = 0.0
    merged: Merged | None = None


def read_layers(session: Session, paths: Sequence[str]) -> tuple[Graph | MultilayerGraph, Input]:
    """Read the graph and remember which bytes it came from."""
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        graph = read_graph(*paths)
        source = hashed(paths)
    session.detail(f"{graph} read in {session.seconds['read']:.2f} s")
    return graph, source


def keep_stdin(paths: Sequence[str]) -> None:
    """Keep the bytes of standard input: they can be read only once, but are parsed and hashed."""
    if STDIN in paths:
        sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8")


def hashed(paths: Sequence[str]) -> Input:
    """Remember files and what was in them."""
    digest = hashlib.sha256()
    for path in paths:
        if is_store(path):
            digest.update(load_meta(Path(path)).fingerprint.encode())
            continue
        kept = cast(io.BytesIO, sys.stdin.buffer)
        digest.update(kept.getvalue() if path == STDIN else Path(path).read_bytes())
    return Input(tuple(paths), digest.hexdigest())


def check_size(k: int | str, extra: int, graph: Graph | MultilayerGraph) -> None:
    """Refuse more vectors than the graph has; "auto" is no number yet."""
    most = graph.n_nodes - 1 - extra
    if not isinstance(k, str) and k > most:
        raise click.UsageError(
            f"-k {k} is too large for a graph of {graph.n_nodes} nodes; choose at most {most}",
            click.get_current_context(),
        )


def make_settings(session: Session, options: LineOptions) -> Settings:
    """Check the options that name something, before a large file is read, and pack them."""
    make_aggregation(options.aggregation)
    return Settings(
        solver=options.solver,
        params=_solver_params(options),
        tol=options.tol,
        max_iter=options.max_iter,
        time_budget=options.time_budget,
        batch_size=options.batch_size,
        seed=session.seed,
        engine=make_engine(n_jobs=options.jobs),
    )


def meter(settings: Settings) -> Meter:
    """The limits of a run; a solver that is asked for by name has its own number of iterations."""
    limit = settings.max_iter
    if limit is None and settings.solver != "auto":
        limit = make_solver(settings.solver, **settings.params).max_iter
    return Meter(limit, settings.time_budget)


def _solver_params(options: LineOptions) -> dict[str, Any]:
    texts = dict(options.param)
    if options.solver == "auto":
        return {name: _literal(text) for name, text in texts.items()}
    make_solver(options.solver, **texts)  # names the unknown ones
    defaults = make_solver(options.solver)
    return {name: _like(getattr(defaults, name), name, text) for name, text in texts.items()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text.lower(), text)


def _like(default: Any, name: str, text: str) -> Any:
    """The text as a value of the same type as the parameter's default."""
    value = _literal(text)
    if isinstance(default, bool):
        fits = isinstance(value, bool)
    elif isinstance(default, int | float):
        fits = isinstance(value, int if isinstance(default, int) else int | float)
        fits = fits and not isinstance(value, bool)
        value = type(default)(value) if fits else value
    else:
        value, fits = text, True
    if not fits:
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
        raise click.BadParameter(f"{name}={text}: expected {kind}", param_hint="'--param'")
    return value


def solve_line(
    session: Session,
    graph: Graph | MultilayerGraph,
    n_components: int | str,
    options: LineOptions,
    settings: Settings,
) -> Solved:
    """Graph -> operator -> embedding; several layers are merged first."""
    compiles = graph.n_nodes > SMALL or options.solver not in ("auto", "eigen")
    treatment = Treatment(cast(Kind, options.laplacian), options.regularization, options.disconnected)
    with session.compile_clock(compiles):
        if isinstance(graph, MultilayerGraph):
            solved = _solve_layers(session, graph, n_components, options, (settings, treatment))
        else:
            waiting = "embedding (the first run on a machine compiles kernels)" if compiles else ""
            with session.stage("solve"), session.progress("embedding", meter(settings), waiting) as hook:
                found = embed_graph(graph, n_components, replace(settings, hooks=(hook,)), treatment)
            decided = (found.regularization, found.connectivity, found.eigengap)
            solved = Solved(found.result, found.operator, *decided, found.softness)
    session.detail(f"components: {solved.connectivity.sentence}")
    session.detail(f"regularization: {solved.regularization.reason}")
    for attempt in solved.result.attempts:
        session.detail(f"solver {attempt.solver}: {attempt.reason}; {attempt.outcome}")
    session.detail(f"certificate: {solved.result.certificate.sentence}")
    if session.seconds["jit"]:
        session.detail(f"compiling or loading kernels took {session.seconds['jit']:.1f} s")
    return solved


def decisions(solved: Solved) -> dict[str, Any]:
    """For the summary: what was decided before solving, and why."""
    return {
        "regularization": solved.regularization.summary(),
        "components": solved.connectivity.summary(),
        "eigengap": None if solved.eigengap is None else solved.eigengap.summary(),
    }


def _solve_layers(
    session: Session,
    graph: MultilayerGraph,
    n_components: int | str,
    options: LineOptions,
    how: tuple[Settings, Treatment],
) -> Solved:
    settings, treatment = how
    treated = treat(graph, n_components, settings, treatment)
    merged = _merge(session, treated, options, settings)
    with session.stage("solve"), session.progress("embedding", meter(settings)) as hook:
        result = merged.embed(treated.n_components, replace(settings, hooks=(hook,)))
    rows = (graph.names, treated.connectivity.kept, graph.n_nodes)
    merged = replace(merged, layers=tuple(with_all_nodes(layer, *rows) for layer in merged.layers))
    decided = (treated.regularization, treated.connectivity, treated.eigengap)
    return Solved(with_all_nodes(result, *rows), merged.operator, *decided, merged=merged)


def _merge(session: Session, treated: Treated, options: LineOptions, settings: Settings) -> Merged:
    with session.progress("layers") as hook:
        merged = merge(
            treated.graph,
            treated.n_components,
            replace(settings, hooks=(hook,)),
            laplacian=cast(Kind, options.laplacian),
            aggregation=options.aggregation,
            alpha=options.alpha,
            layer_weights=options.layer_weights,
            tau=treated.regularization.tau,
        )
    for stage, seconds in merged.seconds.items():
        session.seconds[stage] += seconds
    names = treated.graph.layer_names
    shares = zip(names, merged.weights, strict=True)
    session.detail("layer weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in shares))
    for name, layer in zip(names, merged.layers, strict=False):
        if layer.solution.stop_reason == "interrupted":
            raise KeyboardInterrupt
        if _fell_short(layer, options):
            session.note(f"layer {name!r}: {layer.certificate.sentence}")
    return merged


def _fell_short(result: Embedded, options: LineOptions) -> bool:
    without_goal = options.solver in WITHOUT_GOAL and options.tol == "auto"
    return not result.certificate.converged and not without_goal


def tell_plan(
    graph: Graph | MultilayerGraph, k: int | str, options: LineOptions, **outputs: str | None
) -> int:
    """What ``--dry-run`` prints instead of solving."""
    from spectrograd.cli.plan import estimate, tell

    n_components = k if isinstance(k, int) else min(MOST, graph.n_nodes - 1)
    return tell(graph, estimate(graph, n_components, cast(Kind, options.laplacian), options.solver), outputs)


def verdict(session: Session, result: Embedded, options: LineOptions) -> int:
    """Exit code of a finished run, with a line on stderr where it is not plainly good."""
    sentence, iterations = result.certificate.sentence, result.solution.last.iteration
    if result.solution.stop_reason == "interrupted":
        say(
            "error",
            f"interrupted after {iterations} iterations; the best result so far was kept ({sentence})",
        )
        return INTERRUPTED
    if _fell_short(result, options):
        say(
            "error",
            f"{sentence}; the result was kept: raise --max-iter, --time-budget or --tol, "
            "or choose another --solver or -k",
        )
        return FAILED
    if not result.certificate.converged:
        session.note(
            f"{options.solver} ran its {iterations} iterations; without --tol it has no goal to miss"
        )
    return GOOD


def check_output(session: Session, output: str | None, write: Callable[..., None], sample: Any) -> None:
    """Find out before the work whether the result can be written: format, folder, optional packages."""
    if output in (None, STDOUT):
        return
    session.check_target(output, "-o")
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, f"probe{''.join(Path(str(output)).suffixes[-2:])}")
        try:
            write(probe, sample, np.zeros(1, dtype=np.int64))
        except ValueError as error:
            raise click.BadParameter(str(error).replace(str(probe), str(output)), param_hint="'-o'") from None


def write_result(output: str | None, write: Callable[..., None], values: Any, names: Any) -> None:
    """Write to a file, or as CSV to standard output."""
    if output not in (None, STDOUT):
        write(output, values, names)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.csv")
        write(path, values, names)
        with path.open("rb") as handle:
            shutil.copyfileobj(handle, sys.stdout.buffer)
