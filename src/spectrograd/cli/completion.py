"""``spectrograd completion``: the script that teaches a shell to complete commands, options and solvers."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SPECTROGRAD_COMPLETE"
EXAMPLES = """\b
Examples:
  spectrograd completion bash >> ~/.bashrc
  spectrograd completion zsh >> ~/.zshrc
  spectrograd completion fish > ~/.config/fish/completions/spectrograd.fish
"""


@click.command(epilog=EXAMPLES, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script that completes commands, options, files and names of solvers with the tab key."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "spectrograd", VARIABLE).source())
    return 0


def solvers(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of solvers that begin so."""
    from spectrograd.pipeline.solving import solver_names

    return [CompletionItem(name) for name in solver_names() if name.startswith(start)]


def aggregations(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of aggregations that begin so."""
    from spectrograd.aggregation import REGISTRY

    return [CompletionItem(name) for name in REGISTRY if name.startswith(start)]
