"""``spectrograd warm-up``: compile now what later runs would compile."""

from __future__ import annotations

import click

from spectrograd import __version__
from spectrograd.cli.options import common_options
from spectrograd.cli.session import Session, print_line

EXAMPLES = """\b
Examples:
  spectrograd warm-up
  spectrograd warm-up --kind graphs --kind layers
  RUN NUMBA_CACHE_DIR=/opt/kernels spectrograd warm-up   # in a Dockerfile, with the same ENV
"""
KIND_NAMES = ("graphs", "layers", "geometric", "points", "sgd", "files")


@click.command("warm-up", epilog=EXAMPLES, short_help="Compile all kernels now, for images and containers.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KIND_NAMES),
    help="Only what runs of this kind need; may be repeated.",
)
@common_options
def warm_up(session: Session, kinds: tuple[str, ...]) -> int:
    """Compile what later runs may need and keep it on disk, where numba keeps it (NUMBA_CACHE_DIR).

    Prints a line per kind: what it is for, how many kernels were compiled, how long it took.
    """
    from spectrograd.pipeline.warm_up import warm_up as compile_kinds

    found = []
    for kind in compile_kinds(kinds):
        found.append({"kind": kind.kind, "compiled": kind.n_compiled, "seconds": kind.seconds})
        if not session.quiet:
            print_line(
                f"{kind.kind}: {kind.description}: {kind.n_compiled} compiled, {kind.seconds:.1f} s in all"
            )
    facts = {"command": session.command, "version": __version__, "seed": session.seed, "kinds": found}
    session.save_summary(facts | {"seconds": session.timing()})
    return 0
