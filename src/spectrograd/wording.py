"""The words of whoever asked: options on the command line, parameters in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_command_lines: list[
    None
] = []  # one per command that runs; of the process, since commands read in threads too


@contextmanager
def command_line_words() -> Iterator[None]:
    """Inside, messages name options (``--source``) instead of parameters (``source=``)."""
    _command_lines.append(None)
    try:
        yield
    finally:
        _command_lines.pop()


def on_command_line() -> bool:
    """Whether messages are read at a command line."""
    return bool(_command_lines)


def parameters(*names: str) -> str:
    """Names of parameters as the reader of a message writes them.

    Examples
    --------
    >>> parameters("source", "target")
    'source=, target='
    >>> with command_line_words():
    ...     parameters("source", "target")
    '--source, --target'
    """
    if on_command_line():
        return ", ".join(f"--{name.replace('_', '-')}" for name in names)
    return ", ".join(f"{name}=" for name in names)


def setting(name: str, value: object) -> str:
    """A parameter with its value as the reader of a message writes it.

    Examples
    --------
    >>> setting("weight", "none"), setting("header", False), setting("key", ["a", "b"])
    ("weight='none'", 'header=False', "key=['a', 'b']")
    >>> with command_line_words():
    ...     setting("weight", "none"), setting("header", False), setting("key", ["a", "b"])
    ('--weight none', '--no-header', '--key a --key b')
    """
    if not on_command_line():
        return f"{name}={value!r}"
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    if isinstance(value, list):
        return " ".join(f"--{option} {one}" for one in value)
    return f"--{option} {value}"


def settings(**values: object) -> str:
    """Several parameters with their values.

    Examples
    --------
    >>> settings(source=3, target=5)
    'source=3, target=5'
    >>> with command_line_words():
    ...     settings(source=3, target=5)
    '--source 3 --target 5'
    """
    joint = " " if on_command_line() else ", "
    return joint.join(setting(name, value) for name, value in values.items())
