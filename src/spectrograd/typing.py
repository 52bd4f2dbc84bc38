"""Types that every package shares."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""A numpy array of any type and shape; docstrings say which."""
