"""The straight line as a command walks it: read, merge, solve, write, and the verdict at the end."""

from __future__ import annotations

import ast
import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import click
import numpy as np

from spectrograd.aggregation import make_aggregation
from spectrograd.certificate import Certificate
from spectrograd.cli.exit_codes import FAILED, GOOD, INTERRUPTED
from spectrograd.cli.graph_files import GraphFiles
from spectrograd.cli.meter import Meter
from spectrograd.cli.options import LineOptions
from spectrograd.cli.session import Session
from spectrograd.cli.summary import Input
from spectrograd.cli.voice import say
from spectrograd.engines import make_engine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.io import read_graph
from spectrograd.io.read.labels import read_classes
from spectrograd.io.write.output import naming
from spectrograd.kernels import SMALL
from spectrograd.labels.eigengap import MOST
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline import Result, Settings
from spectrograd.pipeline.multilayer import Merged
from spectrograd.pipeline.needs import check_limit, open_within
from spectrograd.solvers import make_solver
from spectrograd.store import is_store
from spectrograd.store.manifest import load_meta

STDIN = STDOUT = "-"
HASHED_AT_ONCE = 1 << 20  # bytes
SHOWN_SIZES = 8  # clusters whose sizes fit in a line
# Solvers that run their iterations and stop: without --tol nobody asked them for an accuracy.
WITHOUT_GOAL = frozenset({"sgd", "sgd-paper", "stochastic-fb"})
NAMED_KINDS = {bool: "true or false", int: "a whole number", float: "a number", NoneType: "none"}


def read_layers(
    session: Session, files: GraphFiles, k: int | str = MOST, memory_limit: int | None = None
) -> tuple[Graph | MultilayerGraph, Input]:
    """Read the graph and remember which bytes it came from; a store that does not fit the limit stays put."""
    paths = files.paths
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        n_vectors = MOST if isinstance(k, str) else k
        if len(paths) == 1 and is_store(paths[0]) and not any(files.columns.values()):
            graph = open_within(paths[0], n_vectors, memory_limit)
        else:
            graph = read_graph(*paths, **files.columns)
            check_limit(graph, n_vectors, memory_limit)
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
        if path == STDIN:
            digest.update(cast(io.BytesIO, sys.stdin.buffer).getbuffer())
            continue
        with open(path, "rb") as handle:
            while piece := handle.read(HASHED_AT_ONCE):
                digest.update(piece)
    return Input(tuple(paths), digest.hexdigest())


def read_truth(
    session: Session, truth: str | None, graph: Graph | MultilayerGraph
) -> tuple[Any, tuple[str, ...]]:
    """Known classes in the order of the nodes, and their names, where a file of them was given."""
    if truth is None:
        return None, ()
    with session.stage("read"):
        return read_classes(truth, graph.input_names)


def check_size(k: int | str, extra: int, graph: Graph | MultilayerGraph) -> None:
    """Refuse more vectors than the graph has; "auto" is no number yet."""
    most = graph.n_nodes - 1 - extra
    if not isinstance(k, str) and k > most:
        raise click.UsageError(
            f"-k {k} is too large for a graph of {graph.n_nodes} nodes; choose at most {most}",
            click.get_current_context(),
        )


def make_settings(session: Session, options: LineOptions, k: int | str, **labelling: Any) -> Settings:
    """Check the options that name something, before a large file is read, and pack them."""
    make_aggregation(options.aggregation)
    return Settings(
        n_components=k,
        laplacian=cast(Kind, options.laplacian),
        regularization=options.regularization,
        disconnected=options.disconnected,
        aggregation=options.aggregation,
        alpha=options.alpha,
        layer_weights=options.layer_weights,
        solver=options.solver,
        params=_solver_params(options),
        tol=options.tol,
        max_iter=options.max_iter,
        time_budget=options.time_budget,
        batch_size=options.batch_size,
        seed=session.seed,
        engine=make_engine(options.engine, n_jobs=options.jobs),
        checkpoint=options.checkpoint,
        checkpoint_every=options.every,
        **labelling,
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
    kinds = get_type_hints(type(make_solver(options.solver)))
    return {name: _as_kind(kinds[name], name, text) for name, text in texts.items()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text.lower(), text)


def _as_kind(kind: Any, name: str, text: str) -> Any:
    """The text as a value of a parameter's declared type, such as ``int | None``."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    value = _literal(text)
    if NoneType in kinds and text.lower() == "none":
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if bool in kinds and isinstance(value, bool):
        return value
    if int in kinds and number and isinstance(value, int):
        return value
    if float in kinds and number:
        return float(value)
    if any(one not in NAMED_KINDS for one in kinds):  # words, which the solver checks
        return text
    expected = " or ".join(NAMED_KINDS[one] for one in kinds)
    raise click.BadParameter(f"{name}={text}: expected {expected}", param_hint="'--param'")


def walk(
    session: Session,
    graph: Graph | MultilayerGraph,
    settings: Settings,
    run: Callable[[Graph | MultilayerGraph, Settings], Result],
) -> Result:
    """The pipeline's ``embed`` or ``cluster``: progress on the terminal, its story under ``-v``."""
    compiles = graph.n_nodes > SMALL or settings.solver not in ("auto", "eigen")
    with session.compile_clock(compiles), session.progress("embedding", meter(settings)) as hook:
        result = run(graph, replace(settings, hooks=(hook,), on_stage=session.begin))
    session.spend(result.seconds)
    session.engine = settings.engine.summary()
    if result.merged is not None:
        _tell_layers(session, result.merged, settings)
    session.detail(f"components: {result.connectivity.sentence}")
    session.detail(f"regularization: {result.regularization.reason}")
    for attempt in result.attempts:
        session.detail(f"solver {attempt.solver}: {attempt.reason}; {attempt.outcome}")
    session.detail(f"certificate: {result.certificate.sentence}")
    if session.seconds["jit"]:
        session.detail(f"compiling or loading kernels took {session.seconds['jit']:.1f} s")
    return result


def _tell_layers(session: Session, merged: Merged, settings: Settings) -> None:
    shares = zip(merged.layer_names, merged.weights, strict=True)
    session.detail("layer weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in shares))
    for name, layer in zip(merged.layer_names, merged.layers, strict=False):
        if _fell_short(layer.certificate, settings):
            session.note(f"layer {name!r}: {layer.certificate.sentence}")


def _fell_short(certificate: Certificate, settings: Settings) -> bool:
    without_goal = settings.solver in WITHOUT_GOAL and settings.tol == "auto"
    return not certificate.converged and not without_goal


def tell_plan(
    graph: Graph | MultilayerGraph, k: int | str, options: LineOptions, **outputs: str | None
) -> int:
    """What ``--dry-run`` prints instead of solving."""
    from spectrograd.cli.plan import estimate, tell

    n_components = k if isinstance(k, int) else min(MOST, graph.n_nodes - 1)
    return tell(graph, estimate(graph, n_components, cast(Kind, options.laplacian), options.solver), outputs)


def verdict(session: Session, result: Result, settings: Settings, what: str, *targets: str | None) -> int:
    """Exit code of a finished run, with a line on stderr: ``what`` came out, or what went wrong."""
    sentence, iterations = result.certificate.sentence, result.history[-1].iteration
    if result.interrupted:
        say(
            "error",
            f"interrupted after {iterations} iterations; the best result so far was kept ({sentence})",
        )
        return INTERRUPTED
    if _fell_short(result.certificate, settings):
        say(
            "error",
            f"{sentence}; the result was kept: raise --max-iter, --time-budget or --tol, "
            "or choose another --solver or -k",
        )
        return FAILED
    if not result.certificate.converged:
        session.note(
            f"{settings.solver} ran its {iterations} iterations; without --tol it has no goal to miss"
        )
    proof = "certified" if result.converged else "not certified"
    session.done(f"{what}, {proof}", *targets)
    return GOOD


def clusters_found(result: Result) -> str:
    """How many clusters there are, of which sizes, and where the number was to be found, its runners-up."""
    if result.labels is None:
        raise ValueError("there are no clusters: this is an embedding only")
    sizes = np.sort(np.bincount(result.labels[result.labels >= 0], minlength=result.n_clusters or 0))[::-1]
    few = len(sizes) <= SHOWN_SIZES
    shown = ", ".join(f"{size:,}" for size in sizes) if few else f"{sizes[0]:,} to {sizes[-1]:,} nodes"
    found = f"{len(sizes)} cluster{'s' if len(sizes) != 1 else ''} ({shown})"
    if result.eigengap is None:
        return found
    return f"{found}, a number taken from the eigenvalues (next best: {result.eigengap.runners_up_text})"


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
        with path.open("rb") as handle, naming("standard output"):
            shutil.copyfileobj(handle, sys.stdout.buffer)
            sys.stdout.buffer.flush()
