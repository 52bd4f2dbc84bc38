"""Kinds of options: choices, counts, targets, numbers or ``auto``, NAME=VALUE; a wrong one is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def auto_or_number(context: click.Context, parameter: click.Parameter, text: str) -> float | str:
    """``auto`` or a finite number that is not negative."""
    if text == "auto":
        return text
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor 'auto'") from None
    if not math.isfinite(number) or number < 0:
        raise click.BadParameter(f"{text!r} must be finite and not negative")
    return number


def layer_weights(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...] | str:
    """``equal``, ``auto``, or one number per layer."""
    if text in ("equal", "auto"):
        return text
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither 'equal' nor 'auto' nor numbers with commas between, one per layer"
        ) from None


def tau_option(context: click.Context, parameter: click.Parameter, text: str) -> float | str | None:
    """``auto``, ``none`` or a finite number that is not negative."""
    return None if text == "none" else auto_or_number(context, parameter, text)


class CountOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least one, or ``auto``."""

    name = "number or auto"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> int | str:
        """What the text means."""
        if value == "auto":
            return "auto"
        at_least_one: Any = click.IntRange(min=1)
        return int(at_least_one.convert(value, parameter, context))


def named_values(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Each ``NAME=VALUE`` split at its first equals sign."""
    pairs = []
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
        pairs.append((name.strip().replace("-", "_"), value.strip()))
    return tuple(pairs)


def thread_count(context: click.Context, parameter: click.Parameter, jobs: int | None) -> int | None:
    """At least one, or -1 for all cores."""
    if jobs is not None and jobs < 1 and jobs != -1:
        raise click.BadParameter(f"{jobs}: expected at least one thread, or -1 for all cores")
    return jobs


def seconds_above_zero(
    context: click.Context, parameter: click.Parameter, seconds: float | None
) -> float | None:
    """A time budget: finite and above zero."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise click.BadParameter(f"{seconds:g}: expected a finite number of seconds above 0")
    return seconds


def choice_option(name: str, values: str, default: str, meaning: str) -> Option:
    """One of some words, which are given with blanks between."""
    return click.option(
        name, type=click.Choice(values.split()), default=default, show_default=True, help=meaning
    )


def count_option(*names: str, default: int, meaning: str) -> Option:
    """A whole number of at least one."""
    return click.option(*names, type=click.IntRange(min=1), default=default, show_default=True, help=meaning)


def target_option(default: str, meaning: str, *, folder: bool = False) -> Option:
    """``-o``: the file or folder that a command writes."""
    path: Any = click.Path(dir_okay=folder, file_okay=not folder)
    return click.option("-o", "--output", type=path, default=default, show_default=True, help=meaning)


def number_or_auto_option(*names: str, meaning: str) -> Option:
    """``auto``, which is the default, or a number."""
    return click.option(
        *names,
        metavar="NUMBER|auto",
        callback=auto_or_number,
        default="auto",
        show_default=True,
        help=meaning,
    )
