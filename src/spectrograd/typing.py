"""Types that every package shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

Array = NDArray[Any]
"""A numpy array of any type and shape; docstrings say which."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that is being made: a summary, the content of a page, a manifest."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""
