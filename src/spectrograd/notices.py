"""Warnings that point to the caller's line, in his words: parameters of Python, options of a command."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

_OWN = str(Path(__file__).parent) + os.sep
_BETWEEN = (
    f"{os.sep}contextlib.py",
    f"{os.sep}functools.py",
)  # of the standard library: they call for whoever called them
_by_options: ContextVar[bool] = ContextVar("by_options", default=False)


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


@contextmanager
def by_options() -> Iterator[None]:
    """Within, :func:`parameter` names command line options."""
    before = _by_options.set(True)
    try:
        yield
    finally:
        _by_options.reset(before)


def parameter(name: str, value: Any = None) -> str:
    """A parameter as the caller writes it, with a value where one is given.

    Examples
    --------
    >>> parameter("disconnected", "regularize")
    "disconnected='regularize'"
    >>> with by_options():
    ...     parameter("disconnected", "regularize")
    '--disconnected regularize'
    """
    if not _by_options.get():
        return name if value is None else f"{name}={value!r}"
    option = f"--{name.replace('_', '-')}"
    return option if value is None else f"{option} {value}"
