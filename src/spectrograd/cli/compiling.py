"""Tells when numba begins to compile, which takes seconds and happens once on a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.event import Listener


class FirstCompilation(Listener):  # type: ignore[misc]
    """Calls a function before the first kernel is compiled; kernels found on disk do not count."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: Any) -> None:
        """A kernel is about to be compiled."""
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()

    def on_end(self, event: Any) -> None:
        """It is compiled."""
