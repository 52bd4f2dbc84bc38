"""The pipeline as a command runs it: progress meanwhile, its story under ``-v``, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from spectrograd.certificate import Certificate
from spectrograd.cli.exit_codes import FAILED, GOOD, INTERRUPTED
from spectrograd.cli.meter import Meter
from spectrograd.cli.session import Session
from spectrograd.cli.voice import say
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.kernels import SMALL
from spectrograd.pipeline import Result, Settings
from spectrograd.pipeline.cluster_verdict import CLEAR, NOT_JUDGED
from spectrograd.pipeline.multilayer import Merged
from spectrograd.solvers import make_solver

SHOWN_SIZES = 8  # clusters whose sizes fit in a line


def run(
    session: Session,
    graph: Graph | MultilayerGraph,
    settings: Settings,
    line: Callable[[Graph | MultilayerGraph, Settings], Result],
) -> Result:
    """Run the pipeline's ``embed`` or ``cluster``: progress on the terminal, its story under ``-v``."""
    compiles = graph.n_nodes > SMALL or settings.solver not in ("auto", "eigen")
    with session.compile_clock(compiles), session.progress("embedding", _meter(settings)) as hook:
        try:
            result = line(graph, replace(settings, hooks=(hook,), on_stage=session.begin))
        except KeyboardInterrupt:
            if how_to_go_on(session, settings):
                session.note(f"interrupted; {how_to_go_on(session, settings)}")
            raise
    session.spend(result.seconds)
    session.engine = settings.engine.summary()
    if result.merged is not None:
        _tell_layers(session, result.merged, settings)
    session.detail(f"components: {result.connectivity.sentence}")
    session.detail(f"regularization: {result.regularization.reason}")
    if result.regularization.tau:
        session.note(f"{result.regularization.sentence}; why: {result.regularization.reason}")
    for attempt in result.attempts:
        session.detail(f"solver {attempt.solver}: {attempt.reason}; {attempt.outcome}")
    session.detail(f"eigenvectors: {result.certificate.sentence}")
    if result.cluster_verdict is not None:
        session.detail(result.cluster_verdict.sentence)
    if session.seconds["jit"]:
        session.detail(f"compiling or loading kernels took {session.seconds['jit']:.1f} s")
    return result


def how_to_go_on(session: Session, settings: Settings) -> str:
    """Where the checkpoint of a run that was stopped is, and the command that goes on; empty without one."""
    if settings.checkpoint is None or not any(Path(settings.checkpoint).glob("*.ckpt")):
        return ""
    return f"a checkpoint was saved in {settings.checkpoint}, go on with: {session.command_line}"


def _meter(settings: Settings) -> Meter:
    """The limits of a run; a solver that is asked for by name has its own number of iterations."""
    limit = settings.max_iter
    if limit is None and settings.solver != "auto":
        limit = make_solver(settings.solver, **settings.params).max_iter
    return Meter(limit, settings.time_budget)


def _tell_layers(session: Session, merged: Merged, settings: Settings) -> None:
    shares = zip(merged.layer_names, merged.weights, strict=True)
    session.detail("layer weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in shares))
    for name, layer in zip(merged.layer_names, merged.layers, strict=False):
        if _fell_short(layer.certificate, settings):
            session.note(f"layer {name!r}: {layer.certificate.sentence}")


def _fell_short(certificate: Certificate, settings: Settings) -> bool:
    return not certificate.converged and settings.has_goal


def verdict(session: Session, result: Result, settings: Settings, what: str, *targets: str | None) -> int:
    """Exit code of a finished run, with a line on stderr: ``what`` came out, or what went wrong."""
    sentence, iterations = result.certificate.sentence, result.history[-1].iteration
    if result.interrupted:
        kept = f"interrupted after {iterations} iterations; the best result so far was kept ({sentence})"
        say("error", "; ".join(filter(None, (kept, how_to_go_on(session, settings)))))
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
    proof = "eigenvectors certified" if result.converged else "eigenvectors not certified"
    tau = result.regularization.tau
    of = f" (of the regularised graph, tau = {tau:g})" if tau else ""
    judged = result.cluster_verdict
    if judged is not None and judged.verdict not in (CLEAR, NOT_JUDGED):
        session.note(judged.sentence)
    found = what if judged is None else f"{what}: {judged.short}"
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
    return f"{found}, a number taken from the eigenvalues (next best: {result.eigengap.runners_up_text})"
