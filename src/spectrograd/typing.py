"""Types that every package shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    """A numpy array of any type and shape; docstrings say which."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that is being made: a summary, the content of a page, a manifest."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""


def __getattr__(name: str) -> Any:
    """``Array``, once it is asked for: commands that only print a help text do without numpy."""
    if name != "Array":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from numpy.typing import NDArray

    return NDArray[Any]
