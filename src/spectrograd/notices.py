"""Warnings that point to the caller's line, in his words: parameters of Python, options of a command."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

_OWN = str(Path(__file__).parent) + os.sep
_BETWEEN = (
    f"{os.sep}contextlib.py",
    f"{os.sep}functools.py",
)  # of the standard library: they call for whoever called them


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called into the package, however deep inside the cause was found.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     warn("three nodes were left out")
    >>> str(seen[0].message)
    'three nodes were left out'
    """
    warnings.warn(message, category, stacklevel=_levels_to_caller() + 1)


def _levels_to_caller() -> int:
    """Frames between :func:`warn` and the first one outside the package, as ``stacklevel`` counts them."""
    level, frame = 1, sys._getframe(2)  # warn() was called there
    while frame.f_back is not None and _is_inside(frame):
        level, frame = level + 1, frame.f_back
    return level


def _is_inside(frame: FrameType) -> bool:
    """Whether a frame is ours, or of what stands between us and a caller: scikit-learn, context managers."""
    name = frame.f_code.co_filename
    return name.startswith((_OWN, _scikit_learn())) or name.endswith(_BETWEEN)


def _scikit_learn() -> str:
    """Folder of scikit-learn, whose pipelines and decorators call us; loaded or not."""
    if not _folders:
        found = find_spec("sklearn")
        origin = None if found is None else found.origin
        _folders.append(_OWN if origin is None else f"{Path(origin).parent}{os.sep}")
    return _folders[0]


_folders: list[str] = []


# One entry per command that runs; of the process, not of a context: commands read in threads too.
_command_lines: list[None] = []


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


def parameter(name: str, value: object = None) -> str:
    """A parameter as the caller writes it, with a value where one is given.

    Examples
    --------
    >>> parameter("disconnected", "regularize")
    "disconnected='regularize'"
    >>> with command_line_words():
    ...     parameter("disconnected")
    '--disconnected'
    """
    if value is not None:
        return setting(name, value)
    return f"--{name.replace('_', '-')}" if on_command_line() else name
