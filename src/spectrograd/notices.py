"""Warnings that point to the caller's line and name parameters as the reader writes them.

In Python these are keywords (``source=``), on the command line options (``--source``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

_PACKAGE_FOLDER = str(Path(__file__).parent) + os.sep
# Modules of the standard library whose frames stand between the caller and the package.
_WRAPPERS = (f"{os.sep}contextlib.py", f"{os.sep}functools.py")

# --- Warnings


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called into the package, however deep inside its cause is.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("three nodes were left out")
    >>> str(caught[0].message)
    'three nodes were left out'
    """
    warnings.warn(message, category, stacklevel=_levels_to_caller() + 1)


def _levels_to_caller() -> int:
    """Count the frames between :func:`warn` and the first one outside the package, as ``stacklevel`` does."""
    level = 1
    frame = sys._getframe(2)  # the caller of warn()
    while frame.f_back is not None and _is_inside(frame):
        level += 1
        frame = frame.f_back
    return level


def _is_inside(frame: FrameType) -> bool:
    """Whether a frame belongs to the package, to scikit-learn or to a context manager between the two."""
    name = frame.f_code.co_filename
    return name.startswith((_PACKAGE_FOLDER, _scikit_learn_folder())) or name.endswith(_WRAPPERS)


def _scikit_learn_folder() -> str:
    """Return the folder of scikit-learn, whose pipelines call the estimators; it is not imported."""
    if not _folders:
        spec = find_spec("sklearn")
        origin = None if spec is None else spec.origin
        _folders.append(_PACKAGE_FOLDER if origin is None else f"{Path(origin).parent}{os.sep}")
    return _folders[0]


_folders: list[str] = []


# --- Names of parameters

# One entry per running command. A global of the process, not a context variable: commands use threads.
_command_lines: list[None] = []


@contextmanager
def command_line_words() -> Iterator[None]:
    """Let messages inside the block name options (``--source``) instead of parameters (``source=``)."""
    _command_lines.append(None)
    try:
        yield
    finally:
        _command_lines.pop()


def on_command_line() -> bool:
    """Whether messages are read at a command line."""
    return bool(_command_lines)


def parameters(*names: str) -> str:
    """Format names of parameters as the reader of a message writes them.

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
    """Format a parameter with its value as the reader of a message writes it.

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
    """Format several parameters with their values.

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
    """Format a parameter as the caller writes it, with its value unless that is None.

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
