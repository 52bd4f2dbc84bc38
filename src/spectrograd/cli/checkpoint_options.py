"""``--checkpoint`` and ``--every`` of the commands that solve."""

from __future__ import annotations

import click

checkpoint_options = (
    click.option(
        "--checkpoint",
        metavar="DIR",
        help="Keep the run in this folder: the same command goes on from there, whatever stopped it.",
    ),
    click.option(
        "--every",
        metavar="SECONDS",
        type=click.FloatRange(min=0, max=1e9),
        default=300.0,  # as spectrograd.pipeline.settings, which --help does not load
        show_default=True,
        help="Between two checkpoints, at least.",
    ),
)
