"""``spectrograd gpu-check``: does the torch engine work here, and how fast is it."""

from __future__ import annotations

import click

from spectrograd.cli.exit_codes import FAILED

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
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings.")
def gpu_check(device: str, nodes: int, debug: bool, quiet: bool) -> int:
    """Compare the torch engine with the local one on a small graph, time both, print a block to paste.

    Exit code 1 where the device does not agree with the host.
    """
    from spectrograd.pipeline.device_check import report

    text, passed = report(f"torch:{device}" if device else "torch", nodes)
    click.echo(text)
    return 0 if passed else FAILED
