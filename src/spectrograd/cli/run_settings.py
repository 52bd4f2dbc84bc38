"""From the options of a command to the settings of the pipeline."""

from __future__ import annotations

import ast
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import click

from spectrograd.aggregation import make_aggregation
from spectrograd.cli.options import SolveOptions
from spectrograd.cli.session import Session
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline import Settings
from spectrograd.solvers import make_solver

NAMED_KINDS = {bool: "true or false", int: "a whole number", float: "a number", NoneType: "none"}


def make_settings(session: Session, options: SolveOptions, k: int | str, **labelling: Any) -> Settings:
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
        memory_limit=options.memory_limit,
        seed=session.seed,
        engine=make_engine(options.engine, n_jobs=options.jobs),
        checkpoint=options.checkpoint,
        checkpoint_every=options.every,
        **labelling,
    )


def _solver_params(options: SolveOptions) -> dict[str, Any]:
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
