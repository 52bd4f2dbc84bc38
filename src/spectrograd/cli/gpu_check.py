"""``spectrograd gpu-check``: does the torch engine work here, and how fast is it."""

from __future__ import annotations

import click

from spectrograd import __version__
from spectrograd.cli.options import common_options
from spectrograd.cli.session import FAILED, Session

EXAMPLES = """\b
Examples:
  spectrograd gpu-check
  spectrograd gpu-check --device cuda:1 --nodes 1000000
"""


@click.command("gpu-check", epilog=EXAMPLES, short_help="Try the torch engine on this machine.")
@click.option("--device", default="", help="cpu, cuda, cuda:1; a card where there is one.")
@click.option(
    "--nodes", type=click.IntRange(min=1000), default=100_000, show_default=True, help="Of the timed graph."
)
@common_options
def gpu_check(session: Session, device: str, nodes: int) -> int:
    """Compare the torch engine with the local one on a small graph, time both, print a block to paste.

    Exit code 1 where the device does not agree with the host.
    """
    from spectrograd.cli.device_check import report

    text, passed = report(f"torch:{device}" if device else "torch", nodes)
    click.echo(text)
    facts = {"command": session.command, "version": __version__, "seed": session.seed, "passed": passed}
    session.save_summary(facts | {"device": device, "seconds": session.timing()})
    return 0 if passed else FAILED
