"""``--memory-limit`` of the commands that solve."""

from __future__ import annotations

import click


def memory_size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Bytes of a text like ``2GB``."""
    from spectrograd.memory import as_bytes

    try:
        return as_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


memory_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=memory_size,
    help="Such as 2GB: a store that does not fit is streamed from the disk; too little is an error.",
)
