"""Whose object is this? Told without importing the package."""

from __future__ import annotations

from typing import Any


def comes_from(thing: Any, *packages: str) -> bool:
    """Whether an object's class, or one it inherits from, is defined in one of the packages."""
    return any(cls.__module__.partition(".")[0] in packages for cls in type(thing).__mro__)
