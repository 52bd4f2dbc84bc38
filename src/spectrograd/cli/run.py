"""How a command runs the pipeline: options to settings, input to graph, progress, verdict and output."""

from __future__ import annotations

import ast
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import click
import numpy as np

from spectrograd.aggregation import check_aggregation
from spectrograd.certificate import Certificate
from spectrograd.cli.options import GraphFiles, PointOptions, SolveOptions
from spectrograd.cli.session import (
    FAILED,
    GOOD,
    INTERRUPTED,
    STDIN,
    ProgressMeter,
    Session,
    echo,
    refuse_closed_output,
)
from spectrograd.cli.summary import Input
from spectrograd.embedding import Embedding
from spectrograd.engines import make_engine
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.features import FEATURE_AFFINITIES, FeatureAffinity, feature_graph
from spectrograd.io import read_graph, read_points
from spectrograd.io.edge_table import unique_names
from spectrograd.io.features import read_features
from spectrograd.io.labels import read_classes
from spectrograd.io.text import FileHash, hashing_reads, without_compression
from spectrograd.io.write_graph import naming
from spectrograd.io.write_results import check_parts, is_folder_of_parts, write_parts
from spectrograd.kernels import SMALL
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline import RunContext, Settings
from spectrograd.pipeline.cluster_verdict import CLEAR, NOT_JUDGED
from spectrograd.pipeline.memory_estimate import check_limit, open_within
from spectrograd.pipeline.merge import Merged
from spectrograd.pipeline.result import DistributedEmbedding, Result
from spectrograd.points.knn_graph import neighbour_graph
from spectrograd.points.mixed_layers import mixed_layers
from spectrograd.points.query import KnownPoints
from spectrograd.points.search import Wanted
from spectrograd.serialization.folders import store_path
from spectrograd.solvers import make_solver, rename_parameters
from spectrograd.store import is_store
from spectrograd.store.format import load_meta
from spectrograd.system import hash_file
from spectrograd.typing import Array, JsonObject

SHOWN_SIZES = 8  # clusters whose sizes fit in a line


def run(
    session: Session,
    graph: Graph | MultilayerGraph,
    settings: Settings,
    context: RunContext,
    stage: Callable[[Graph | MultilayerGraph, Settings, RunContext], Result],
) -> Result:
    """Run the pipeline's ``embed`` or ``cluster``: progress on the terminal, its story under ``-v``."""
    compiles = graph.n_nodes > SMALL or settings.solver not in ("auto", "eigen")
    with session.compile_clock(compiles), session.progress("embedding", _meter(settings)) as hook:
        try:
            result = stage(graph, settings, replace(context, hooks=(hook,), on_stage=session.begin))
        except KeyboardInterrupt:
            if how_to_go_on(session, context):
                session.note(f"interrupted; {how_to_go_on(session, context)}")
            raise
    # Report what was done, in the order of the pipeline.
    session.spend(result.seconds)
    session.engine = context.engine.summary()
    if result.merged is not None:
        _print_layers(session, result.merged, settings)
    session.detail(f"components: {result.connectivity.sentence}")
    session.detail(f"regularization: {result.regularization.reason}")
    if result.regularization.tau:
        session.note(f"{result.regularization.sentence}; why: {result.regularization.reason}")
    if result.treatment is not None:
        session.detail(result.treatment.sentence)
    for attempt in result.attempts:
        session.detail(f"solver {attempt.solver}: {attempt.reason}; {attempt.outcome}")
    session.detail(f"eigenvectors: {result.certificate.sentence}")
    if result.cluster_verdict is not None:
        session.detail(result.cluster_verdict.sentence)
    if session.seconds["jit"]:
        session.detail(f"compiling or loading kernels took {session.seconds['jit']:.1f} s")
    return result


def how_to_go_on(session: Session, context: RunContext) -> str:
    """Where the checkpoint of a run that was stopped is, and the command that goes on; empty without one."""
    if context.checkpoint is None or not any(Path(context.checkpoint).glob("*.ckpt")):
        return ""
    return f"a checkpoint was saved in {context.checkpoint}, go on with: {session.command_line}"


def _meter(settings: Settings) -> ProgressMeter:
    """The limits of a run; a solver that is asked for by name has its own number of iterations."""
    limit = settings.max_iter
    if limit is None and settings.solver != "auto":
        limit = make_solver(settings.solver, **settings.params).max_iter
    return ProgressMeter(limit, settings.time_budget)


def _print_layers(session: Session, merged: Merged, settings: Settings) -> None:
    shares = zip(merged.layer_names, merged.weights, strict=True)
    session.detail("layer weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in shares))
    session.detail(f"aggregation: {merged.chosen.sentence}")
    for name, layer in zip(merged.layer_names, merged.layers_behind, strict=False):
        if _fell_short(layer.certificate, settings):
            session.note(f"layer {name!r}: {layer.certificate.sentence}")


def _fell_short(certificate: Certificate, settings: Settings) -> bool:
    return not certificate.is_as_asked and settings.has_goal


def verdict(
    session: Session,
    result: Result,
    settings: Settings,
    context: RunContext,
    what: str,
    *targets: str | None,
) -> int:
    """Exit code of a finished run, with a line on stderr: ``what`` came out, or what went wrong."""
    sentence = result.certificate.sentence
    iterations = result.history[-1].iteration
    # The first of these that applies decides: interrupted, short of the goal, without a goal, good.
    if result.interrupted:
        kept = f"interrupted after {iterations} iterations; the best result so far was kept ({sentence})"
        echo("error", "; ".join(filter(None, (kept, how_to_go_on(session, context)))))
        return INTERRUPTED
    if _fell_short(result.certificate, settings):
        echo(
            "error",
            f"{sentence}; the result was kept: raise --max-iter, --time-budget or --tol, "
            "or choose another --solver or -k",
        )
        return FAILED
    if not result.certificate.converged:
        session.note(
            f"{settings.solver} ran its {iterations} iterations; without --tol it has no goal to miss"
        )
    proof = "eigenvectors certified" if result.converged else "eigenvectors not certified"
    tau = result.regularization.tau
    of = f" (of the regularised graph, tau = {tau:g})" if tau else ""
    judged = result.cluster_verdict
    if judged is not None and judged.verdict not in (CLEAR, NOT_JUDGED):
        session.note(judged.sentence)
    found = what if judged is None else f"{what}: {judged.short}"
    if result.treatment is not None and result.treatment.candidates:
        found += f", by {result.treatment.name}"
    session.done(f"{found}, {proof}{of}", *targets)
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
    next_best = f"(next best: {result.eigengap.runners_up_text})"
    if result.eigengap.clear:
        return f"{found}, a number taken from the eigenvalues {next_best}"
    return f"{found}, no clear number in the eigenvalues {next_best}"


# --- From the options of a command to the settings of the pipeline.

NAMED_KINDS = {bool: "true or false", int: "a whole number", float: "a number", NoneType: "none"}


def make_settings(session: Session, options: SolveOptions, k: int | str, **labelling: Any) -> Settings:
    """Check the options that name something, before a large file is read, and pack them."""
    check_aggregation(options.aggregation)
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
        memory_limit=options.memory_limit,
        seed=session.seed,
        **labelling,
    )


def make_context(options: SolveOptions) -> RunContext:
    """Where the run happens and where it is kept."""
    return RunContext(
        engine=make_engine(options.engine, n_jobs=options.jobs),
        checkpoint=options.checkpoint,
        checkpoint_every=options.every,
    )


def _solver_params(options: SolveOptions) -> JsonObject:
    texts = dict(options.param)
    if options.solver == "auto":
        return {name: _literal(text) for name, text in texts.items()}
    texts = rename_parameters(options.solver, texts)
    make_solver(options.solver, **texts)  # names the unknown ones
    kinds = get_type_hints(type(make_solver(options.solver)))
    return {name: _as_kind(kinds[name], name, text) for name, text in texts.items()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text.lower(), text)


def _as_kind(kind: object, name: str, text: str) -> object:
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


# --- What a command reads: its graph, the bytes it came from, and known classes.


def read_layers(
    session: Session,
    files: GraphFiles,
    k: int | str = FIRST_MAX_CLUSTERS,
    limit: tuple[int | None, str, str] = (None, "auto", "auto"),
    *,
    signed: bool = False,
) -> tuple[Graph | MultilayerGraph, Input]:
    """Read the graph and remember which bytes it came from; a store that does not fit the limit stays put.

    ``limit`` is the memory limit in bytes, and the solver and the engine that have to keep it: of a store
    that is read by the workers of a cluster nothing is loaded here. Where ``signed``, negative weights are
    read.
    """
    paths = files.paths
    (memory_limit, *how) = limit
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        n_vectors = FIRST_MAX_CLUSTERS if isinstance(k, str) else k
        graph: Graph | MultilayerGraph
        with hashing_reads(paths) as passed:
            if files.features:
                graph = read_mixed_layers(files, signed)
                paths = tuple(dict.fromkeys((*paths, *files.features)))
            elif len(paths) == 1 and is_store(paths[0]) and not any(files.how.values()):
                graph = open_within(paths[0], n_vectors, memory_limit, *how)
            else:
                graph = read_graph(*paths, **files.how, signed=signed)
                check_limit(graph, n_vectors, memory_limit, *how[:1])
        source = hashed(paths, passed)
    session.detail(f"{graph} read in {session.seconds['read']:.2f} s")
    return graph, source


def read_input(
    session: Session,
    files: GraphFiles,
    points: PointOptions | None,
    k: int | str,
    options: SolveOptions,
) -> tuple[Graph | MultilayerGraph, PointGraph | None, Input]:
    """Read a graph, or the graph of points with what is known of them, and remember where it came from."""
    if points is None:
        graph, source = read_layers(session, files, k, options.limit, signed=options.is_signed)
        return graph, None, source
    learned, source = read_point_graph(session, files, points, options.jobs, options.memory_limit)
    return learned.graph, learned, source


def read_mixed_layers(files: GraphFiles, signed: bool = False) -> MultilayerGraph:
    """A graph and features of its nodes, as layers; ids of both are matched by name."""
    edges = [path for path in files.paths if path not in files.features]
    if not edges:
        raise GraphError("--features go with a graph; for features alone, --points")
    graph = read_graph(*edges, **files.how, signed=signed)
    stems = unique_names([_view(path, None, 2) for path in (*edges, *files.features)])
    layers: dict[str, object] = dict(zip(stems, graph.layers, strict=False))
    if isinstance(graph, MultilayerGraph):
        layers = dict(zip(graph.layer_names, graph.layers, strict=True))
    names = None
    for path, stem in zip(files.features, stems[len(edges) :], strict=True):
        layers[stem], own = read_features(path)
        if own is not None and names is not None and not np.array_equal(own, names):
            raise GraphError(f"{path}: its rows have other ids than those of {files.features[0]}")
        names = own if names is None else names
    return mixed_layers(layers, names=names)


@dataclass(frozen=True, eq=False)
class PointGraph:
    """A graph of points, or of several views of them, and what its search knows for points to come."""

    graph: Graph | MultilayerGraph
    known: tuple[KnownPoints, ...]
    options: PointOptions


def read_point_graph(
    session: Session,
    files: GraphFiles,
    options: PointOptions,
    jobs: int | None,
    memory_limit: int | None = None,
) -> tuple[PointGraph, Input]:
    """Read points and join them to their neighbours; several files are views of the same points."""
    paths = files.paths
    with session.stage("read"), session.progress(f"reading {' '.join(paths)}"):
        keep_stdin(paths)
        asked = [(path, key) for path in paths for key in (files.key or (None,))]
        how: JsonObject = {"ignore": options.ignore, "header": files.header, "format": files.format}
        if options.affinity in FEATURE_AFFINITIES:
            return _read_features(session, asked, options, memory_limit, how), hashed(paths)
        with hashing_reads(paths) as passed:
            tables = [read_points(path, key=key, **how) for path, key in asked]
        source = hashed(paths, passed)
    for (path, key), table in zip(asked, tables, strict=True):
        if len(table.coordinates) != len(tables[0].coordinates):
            this, first = (path, paths[0]) if len(paths) > 1 else (key, asked[0][1])
            raise GraphError(
                f"{this} has {len(table.coordinates)} points, {first} has {len(tables[0].coordinates)}: "
                "views are of the same points"
            )
    wanted = Wanted(options.neighbors, options.metric, options.search, options.recall, jobs)  # type: ignore[arg-type]
    names = next((table.names for table in tables if table.names is not None), None)
    with session.stage("solve"), session.progress(f"neighbours of {len(tables[0].coordinates):,} points"):
        made = [neighbour_graph(table.coordinates, wanted, connect=True) for table in tables]
    graphs = [replace(graph, names=names) for graph, _ in made]
    stems = unique_names([_view(path, key, len(paths)) for path, key in asked])
    graph = graphs[0] if len(graphs) == 1 else MultilayerGraph(tuple(graphs), stems)
    session.detail(f"{graph} of points: {graph.recall}")
    return PointGraph(graph, tuple(known for _, known in made), options), source


def _read_features(
    session: Session,
    asked: Sequence[tuple[str, str | None]],
    options: PointOptions,
    memory_limit: int | None,
    how: JsonObject,
) -> PointGraph:
    """A graph of similar rows of features, which no search makes."""
    if len(asked) > 1:
        raise GraphError(f"--affinity {options.affinity} takes one file of features")
    path, key = asked[0]
    features, names = read_features(path, memory_limit=memory_limit, key=key, **how)
    graph = feature_graph(features, cast(FeatureAffinity, options.affinity), names=names)
    session.detail(f"{graph}")
    return PointGraph(graph, (), options)


def _view(path: str, key: str | None, n_files: int) -> str:
    return str(key) if n_files == 1 and key is not None else Path(without_compression(path)).stem


def keep_stdin(paths: Sequence[str]) -> None:
    """Keep the bytes of standard input: they can be read only once, but are parsed and hashed."""
    if STDIN in paths:
        sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8")


def hashed(paths: Sequence[str], passed: FileHash | None = None) -> Input:
    """Remember files and what was in them; those that were hashed as they were read are not read again."""
    passed = passed or FileHash(paths)
    digest = passed.digest
    fingerprint = None
    for path in paths[passed.n_passed :]:
        if is_store(path):
            fingerprint = load_meta(store_path(path)).fingerprint
            digest.update(fingerprint.encode())
            continue
        if path == STDIN:
            digest.update(cast(io.BytesIO, sys.stdin.buffer).getbuffer())
            continue
        hash_file(path, digest)
    return Input(tuple(paths), digest.hexdigest(), fingerprint if len(paths) == 1 else None)


def read_truth(
    session: Session, truth: str | None, graph: Graph | MultilayerGraph, column: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Known classes in the order of the nodes, and their names, where a file of them was given."""
    if truth is None:
        if column is not None:
            raise click.UsageError(
                "--label-column says which column of --labels counts; there are no --labels"
            )
        return None, ()
    with session.stage("read"):
        return read_classes(truth, graph.input_names, column)


def check_size(k: int | str, extra: int, graph: Graph | MultilayerGraph) -> None:
    """Refuse more vectors than the graph has; "auto" is no number yet."""
    most = graph.n_nodes - 1 - extra
    if not isinstance(k, str) and k > most:
        raise click.UsageError(
            f"-k {k} is too large for a graph of {graph.n_nodes} nodes; choose at most {most}",
            click.get_current_context(),
        )


# --- Where a command writes its result: to a file, or as CSV to standard output.

STDOUT = "-"


def check_output(session: Session, output: str | None, check_format: Callable[[str], None]) -> None:
    """Find out before the work whether the result can be written: format, folder, optional packages."""
    if output is None or output == STDOUT:
        refuse_closed_output()
        return
    if is_folder_of_parts(output):
        try:
            check_parts(output)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'-o'") from None
        return
    session.check_target(output, "-o")
    try:
        check_format(output)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'-o'") from None


def write_result(output: str | None, write: Callable[..., None], values: object, names: object) -> None:
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


# --- A result as a folder of Parquet files; what was left with workers is written by them.

Source = Graph | MultilayerGraph


def write_embedding_parts(path: str | os.PathLike[str], graph: Source, embedding: Embedding) -> list[Path]:
    """Columns ``node,e0,e1,...`` of the embedding of a graph; see :func:`write_parts`."""
    if not isinstance(embedding, DistributedEmbedding):
        return write_parts(path, embedding.vectors, graph.input_names)
    return write_parts(path, embedding.multivector, _names_by_row(graph, embedding), engine=embedding.engine)


def write_label_parts(path: str | os.PathLike[str], graph: Source, result: Result) -> list[Path]:
    """Columns ``node,label`` of a result with clusters; see :func:`write_parts`."""
    if result.labels is None:
        raise ValueError("there are no labels to write: this is an embedding only")
    left = result.embedding
    labels = result.label_multivector
    if not isinstance(left, DistributedEmbedding):
        return write_parts(path, result.labels, graph.input_names)
    if labels is None:  # few enough for the client to have found them
        rows = result.labels if left.order is None else result.labels[left.order]
        labels = left.engine.from_numpy(np.ascontiguousarray(rows)[:, None])
    return write_parts(path, labels, _names_by_row(graph, left), engine=left.engine)


def _names_by_row(graph: Source, left: DistributedEmbedding) -> Array | None:
    """The names of the nodes in the order of the graph's rows; None where they are the row numbers."""
    if left.names is None:
        return left.order
    return graph.input_names if left.order is None else graph.input_names[left.order]
